//! A text in the one canonical layout: the same tokens and comments, with other blanks and line breaks between them.
//!
//! The builders walk what the grammar read, so that parentheses and the spelling of numbers stay; they say where lines may
//! break, and `layout` decides. Of the author's own layout three things count: empty lines (one at most), short bodies in
//! braces on one line, and whether a comment stands behind code or above it. Only commas that end lists come and go.

mod columns;
mod comments;
mod expressions;
mod items;
mod layout;
mod types;
mod write;

use crate::check::Failed;
use crate::parser::{self, grammar::Rule};
use crate::source::Sources;
use columns::{Row, align};
use layout::Op;
use write::Writer;

/// The text in canonical layout, or what is wrong with its syntax; `name` is shown to people.
pub fn format(name: &str, text: &str) -> Result<String, Failed> {
    let mut sources = Sources::default();
    // The first file of a compilation is the prelude: it alone may lack a header, which layout does not ask for.
    let file = sources.add(name, text);
    match parser::parse(&sources, file) {
        Ok(_) => Ok(layout::print(&write(&text.replace("\r\n", "\n")))),
        Err(diagnostics) => Err(Failed { diagnostics, sources }),
    }
}

fn write(text: &str) -> Vec<Op<'_>> {
    let mut writer = Writer::new(text);
    let mut first = true;
    let mut aliases: Vec<Row> = Vec::new();
    for (base, pair) in parser::items(text) {
        writer.enter_item(base);
        let is_alone = writer.before_entry(base, std::mem::take(&mut first));
        if is_alone || pair.as_rule() != Rule::type_alias {
            align(&mut writer.ops, &std::mem::take(&mut aliases));
        }
        if pair.as_rule() == Rule::type_alias {
            aliases.push(writer.type_alias(pair));
        } else {
            writer.item(pair);
        }
    }
    align(&mut writer.ops, &aliases);
    writer.before_end(text.len(), first);
    writer.ops
}
