//! Which ways the branches of a family's text go.

use std::collections::{BTreeMap, BTreeSet};

use mgraph_dsl::{
    config::{ConfigNames, Resolved},
    ir::{LoadKind, Program, Statement},
    load::truth,
    trace::Trace,
};

use super::hints::{each_load, has_locals};

/// Conditions of the family's own text, and which way they went.
#[derive(Default)]
pub struct Branches(BTreeMap<(u32, u32), BTreeSet<bool>>);

impl Branches {
    pub fn of(program: &Program) -> Branches {
        let mut all = Branches::default();
        let file = program.block(program.model).span.file;
        for function in program.blocks.iter().filter(|block| block.span.file == file).flat_map(|b| &b.functions) {
            function.body.for_each(&mut |statement| {
                if let Statement::If { condition, .. } = statement {
                    all.0.insert((condition.span.start, condition.span.end), BTreeSet::new());
                }
            });
        }
        all
    }

    pub fn went(&mut self, program: &Program, resolved: &Resolved, traced: &Trace) {
        let file = program.block(program.model).span.file;
        for (span, holds) in traced.branches.iter().filter(|(span, _)| span.file == file) {
            self.0.entry((span.start, span.end)).or_default().insert(*holds);
        }
        // Those of the config that name nothing but its fields.
        let names = ConfigNames { program, resolved };
        each_load(program, &mut |load| {
            if let LoadKind::If(condition, ..) = &load.kind
                && condition.span.file == file
                && !has_locals(condition)
                && let Ok(holds) = truth(condition, &names)
            {
                self.0.entry((condition.span.start, condition.span.end)).or_default().insert(holds);
            }
        });
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Those that went one way alone, as they are written.
    pub fn one_way(&self, program: &Program) -> Vec<String> {
        let text = &program.sources.get(program.block(program.model).span.file).text;
        let one = self.0.iter().filter(|(_, ways)| ways.len() < 2);
        one.map(|((start, end), ways)| format!("if {} {ways:?}", &text[*start as usize..*end as usize])).collect()
    }
}
