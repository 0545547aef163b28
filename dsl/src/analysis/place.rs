//! Where exactly a name stands: in the hole of a string it is found inside it, and in comments and strings there is none.

use crate::source::{Sources, Span};

/// What kind of text a place belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Code,
    Comment,
    /// In a string.
    Text,
    /// In a hole of a string.
    Hole,
}

/// The place just before `offset`. Strings end on their line, comments nest.
pub(super) fn at(text: &str, offset: usize) -> Place {
    let bytes = &text.as_bytes()[..offset.min(text.len())];
    let mut place = Place::Code;
    let mut depth = 0;
    let mut i = 0;
    while i < bytes.len() {
        let two = &bytes[i..bytes.len().min(i + 2)];
        let mut step = 1;
        match (place, bytes[i]) {
            (Place::Comment, b'\n') if depth == 0 => place = Place::Code,
            (Place::Comment, _) if depth > 0 && two == b"/*" => (depth, step) = (depth + 1, 2),
            (Place::Comment, _) if depth > 0 && two == b"*/" => {
                (depth, step) = (depth - 1, 2);
                if depth == 0 {
                    place = Place::Code;
                }
            }
            (Place::Code, b'/') if two == b"//" => place = Place::Comment,
            (Place::Code, b'/') if two == b"/*" => (place, depth, step) = (Place::Comment, 1, 2),
            (Place::Code, b'"') => place = Place::Text,
            (Place::Text | Place::Hole, b'"' | b'\n') => place = Place::Code,
            (Place::Text, b'\\') => step = 2,
            (Place::Text, b'{') => place = Place::Hole,
            (Place::Hole, b'}') => place = Place::Text,
            (Place::Code | Place::Comment | Place::Text | Place::Hole, _) => {}
        }
        i += step;
    }
    place
}

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
