//! Text to tree. A light scan finds the items, `pest` parses each by `mgraph.pest`, and the builders turn what it found
//! into [`ast`]. Every broken item is reported, at its first mistake.

mod build;
mod expressions;
mod items;
mod mistake;
mod scan;
mod split;
mod statements;
mod types;
mod words;

use pest::Parser;

use crate::ast;
use crate::diagnostic::{Code, Diagnostic};
use crate::source::{FileId, Sources, Span};
use build::Builder;
use scan::Kind;
use words::{Grammar, Rule};

pub use words::RESERVED;

/// A family is a page or two.
const MAX_BYTES: usize = 1 << 20;

/// The tree of a file, or everything that is wrong with its syntax, in the order of the text.
pub fn parse(sources: &Sources, file: FileId) -> Result<ast::File, Vec<Diagnostic>> {
    let text = sources.get(file).text.as_str();
    if text.len() > MAX_BYTES {
        let sentence = format!("this file has {} bytes, and the limit is {MAX_BYTES}", text.len());
        return Err(vec![Diagnostic::new(Code::FileTooLarge, Span { file, start: 0, end: 0 }, sentence)]);
    }
    let (tokens, mut errors) = scan::scan(file, text);
    let mut split = split::split(file, text, &tokens);
    mark_broken(&mut split.pieces, &tokens, &errors);
    errors.append(&mut split.errors);

    let builder = Builder::new(file, text, &tokens);
    let mut tree = ast::File { header: None, items: Vec::new() };
    for (index, piece) in split.pieces.iter().enumerate() {
        let (first, last) = (tokens[piece.tokens.start], tokens[piece.tokens.end - 1]);
        let is_header = &text[first.start..first.end] == "family";
        if is_header && index > 0 {
            errors.push(misplaced_header(builder.span(first.start, first.end), tree.header.as_ref()));
        }
        if piece.broken {
            continue;
        }
        match Grammar::parse(Rule::item, &text[first.start..last.end]) {
            Err(error) => errors.push(mistake::explain(&error, first.start, piece, &builder)),
            Ok(pairs) => {
                builder.enter_piece(first.start, &piece.doc);
                for pair in pairs.filter(|pair| pair.as_rule() != Rule::EOI) {
                    if pair.as_rule() == Rule::header {
                        let doc = split::doc_text(text, &tokens[..piece.tokens.start], Kind::FileDoc);
                        tree.header.get_or_insert(builder.header(pair, doc));
                    } else {
                        tree.items.push(builder.item(pair));
                    }
                }
            }
        }
    }
    errors.extend(builder.into_errors());
    errors.sort_by_key(|error| error.span.start);
    if errors.is_empty() { Ok(tree) } else { Err(errors) }
}

/// A piece with an error in its strings, comments or characters is not parsed: the grammar would stumble there again.
fn mark_broken(pieces: &mut [split::Piece], tokens: &[scan::Token], errors: &[Diagnostic]) {
    for error in errors {
        let at = error.span.start as usize;
        let piece = pieces.iter_mut().rfind(|piece| tokens[piece.tokens.start].start <= at);
        if let Some(piece) = piece {
            piece.broken = true;
        }
    }
}

fn misplaced_header(span: Span, first: Option<&ast::Header>) -> Diagnostic {
    match first {
        Some(first) => Diagnostic::new(Code::MisplacedHeader, span, "a file describes one family")
            .also(first.name.span, "the family of this file"),
        None => Diagnostic::new(Code::MisplacedHeader, span, "`family` stands before everything else")
            .help("move this line to the top of the file"),
    }
}
