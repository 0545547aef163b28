//! Where exactly a name stands: a name in the hole of a string is found inside it.

use crate::source::{Sources, Span};

/// The places of `name` in what the checker named: the span itself, or the holes of the string there.
pub(super) fn of_name(sources: &Sources, at: Span, name: &str) -> Vec<Span> {
    let text = sources.text(at);
    if text == name {
        return vec![at];
    }
    let mut found = Vec::new();
    let mut hole = false;
    let mut rest = 0;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    while let Some(c) = text[rest..].chars().next() {
        let length = text[rest..].find(|c| !is_word(c)).unwrap_or(text.len() - rest);
        match c {
            '{' => hole = true,
            '}' => hole = false,
            _ if hole && length > 0 && &text[rest..rest + length] == name => {
                let start = at.start + rest as u32;
                found.push(Span { file: at.file, start, end: start + length as u32 });
            }
            _ => {}
        }
        rest += length.max(c.len_utf8());
    }
    found
}
