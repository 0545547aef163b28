//! What is said to people when a text is wrong: one code table, one value per mistake, two renderings.
//!
//! A stage that finds a mistake makes a [`Diagnostic`] and goes on; nothing here decides what is a mistake.

mod code;
mod explain;
mod render;

pub use code::Code;
pub use explain::{Example, Snippet};
pub use render::{extent, render, render_plain};

use crate::source::Span;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub code: Code,
    pub span: Span,
    /// One sentence without a full stop: what is wrong, and what was expected.
    pub message: String,
    /// A few words under the span; may be empty.
    pub label: String,
    /// What to write instead.
    pub help: Option<String>,
    /// Other places that explain the mistake.
    pub related: Vec<(Span, String)>,
}

impl Diagnostic {
    pub fn new(code: Code, span: Span, message: impl Into<String>) -> Self {
        Diagnostic { code, span, message: message.into(), label: String::new(), help: None, related: Vec::new() }
    }

    pub fn label(mut self, text: impl Into<String>) -> Self {
        self.label = text.into();
        self
    }

    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    pub fn also(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push((span, text.into()));
        self
    }
}

/// The known name that was probably meant: at most one edit per three letters away.
pub fn suggest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= allowed && distance < candidate.chars().count())
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Sources;

    #[test]
    fn suggests_near_names_only() {
        let known = ["heads", "hidden", "kv_heads"];
        assert_eq!(suggest("hiden", known), Some("hidden"));
        assert_eq!(suggest("heads_kv", known), None);
        assert_eq!(suggest("x", ["y"]), None);
    }

    #[test]
    fn renders_place_sentence_and_help() {
        let mut sources = Sources::default();
        let file = sources.add("toy.mgraph", "family toy for \"toy\"\nmodel { hiden }\n");
        let error = Diagnostic::new(Code::UnknownName, Span { file, start: 29, end: 34 }, "there is no name `hiden`")
            .label("not known here")
            .help("did you mean `hidden`?");
        let text = render(std::slice::from_ref(&error), &sources, false);
        for part in ["mg0101", "there is no name `hiden`", "toy.mgraph:2:9", "not known here", "did you mean `hidden`?"]
        {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert_eq!(render_plain(&error, &sources), "toy.mgraph:2:9: error[mg0101]: there is no name `hiden`");
    }

    #[test]
    fn rendering_survives_spans_outside_the_text() {
        let mut sources = Sources::default();
        let file = sources.add("toy.mgraph", "é");
        for (start, end) in [(0, 1), (1, 1), (1, 9), (7, 9), (2, 1)] {
            let error = Diagnostic::new(Code::UnknownName, Span { file, start, end }, "x");
            render(std::slice::from_ref(&error), &sources, true);
            render_plain(&error, &sources);
        }
    }
}
