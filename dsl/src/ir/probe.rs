//! Where in the text a probe comes from, by the name that a run gave it.

use super::{LoadType, OpKind, PatternPart, Program, Region, Statement};
use crate::source::Span;

impl Program {
    /// The `value @ "name"` whose holes can read as in `name`. Of several, such as probes in different arms of an `if`, the one
    /// with the most letters of its own.
    pub fn probe(&self, name: &str) -> Option<Span> {
        let of_blocks = self.blocks.iter().flat_map(|block| &block.functions).map(|function| &function.body);
        let of_ops = self.ops.iter().filter_map(|op| match &op.kind {
            OpKind::Tensor { function, .. } => Some(&function.body),
            OpKind::Load { .. } => None,
        });
        let mut found = Vec::new();
        of_blocks.chain(of_ops).for_each(|body| collect(body, name, &mut found));
        found.into_iter().rev().max_by_key(|(letters, _)| *letters).map(|(_, span)| span)
    }
}

fn collect(region: &Region, name: &str, found: &mut Vec<(usize, Span)>) {
    region.for_each(&mut |statement| {
        let Statement::Probe { name: pattern, span, .. } = statement else { return };
        if reads_as(pattern, name) {
            let letters = pattern.iter().map(|part| match part {
                PatternPart::Text(text) => text.len(),
                PatternPart::Hole(_) => 0,
            });
            found.push((letters.sum(), *span));
        }
    });
}

/// Whether the holes can be filled so that the pattern reads `name`: an integer's by digits, any other by some text. Two holes
/// never touch, so few ways are tried.
fn reads_as(pattern: &[PatternPart], name: &str) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return name.is_empty() };
    match first {
        PatternPart::Text(text) => name.strip_prefix(text.as_str()).is_some_and(|left| reads_as(rest, left)),
        PatternPart::Hole(load) => {
            let fits = |text: &str| load.ty != LoadType::Int || text.parse::<i64>().is_ok();
            let mut ends = name.char_indices().map(|(at, c)| at + c.len_utf8());
            ends.any(|end| fits(&name[..end]) && reads_as(rest, &name[end..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::compile_text;

    const FAMILY: &str = include_str!("../../../models/families/llama.mgraph");

    #[test]
    fn a_stage_leads_to_the_line_that_names_it() {
        let program = compile_text("llama.mgraph", FAMILY).unwrap();
        let line = |name: &str| program.probe(name).map(|span| program.sources.line_column(span).0);
        let written =
            |name: &str| FAMILY.lines().position(|line| line.contains(&format!("@ {name:?}"))).map(|at| at + 1);
        for (name, pattern) in
            [("embed", "embed"), ("layer.0.attn", "layer.{i}.attn"), ("layer.11", "layer.{i}"), ("logits", "logits")]
        {
            assert!(written(pattern).is_some(), "{pattern}");
            assert_eq!(line(name), written(pattern), "{name}");
        }
        assert_eq!(line("layer.x"), None);
        assert_eq!(line("layer"), None);
    }
}
