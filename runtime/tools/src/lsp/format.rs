//! Formatting, as one edit from the first line that changes to the last.

use lsp_types::{Position, Range, TextEdit};
use mgraph_dsl::format;

use super::document::Document;

/// No edit for a text that does not parse: its mistakes are shown already.
pub fn format(document: &Document) -> Option<Vec<TextEdit>> {
    let old = document.text();
    let new = format::format("", old).ok()?;
    if new == old {
        return Some(Vec::new());
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let before = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - before;
    let after = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let range = Range {
        start: Position { line: before as u32, character: 0 },
        end: document.position(old[..old.len() - after].concat().len() as u32),
    };
    Some(vec![TextEdit { range, new_text: new[before..new.len() - after].concat() }])
}
