//! Text to tree. A light scan finds the items, `pest` parses each by `mgraph.pest`, and the builders turn what it found
//! into [`ast`]. Every mistake is reported, one per statement or declaration.

mod build;
mod expressions;
mod items;
mod mistake;
mod recover;
pub(crate) mod scan;
mod split;
mod statements;
mod types;
mod words;

use pest::Parser;
use pest::iterators::Pair;

use crate::ast;
use crate::diagnostic::{Code, Diagnostic};
use crate::source::{FileId, PRELUDE, Sources, Span};
use build::Builder;
use recover::Recovery;
use scan::Kind;
use words::{Grammar, Rule};

pub use words::RESERVED;

/// What the formatter needs of the grammar.
pub(crate) mod grammar {
    pub use super::expressions::tightness;
    pub use super::words::{Rule, token};
}

/// A family is a page or two, some 20 kB; whatever takes a quadratic look at a text stays quick below this.
const MAX_BYTES: usize = 1 << 17;

/// The tree of a file, or everything that is wrong with its syntax, in the order of the text.
pub fn parse(sources: &Sources, file: FileId) -> Result<ast::File, Vec<Diagnostic>> {
    let Parsed { tree, errors, .. } = parse_whole_items(sources, file);
    if errors.is_empty() { Ok(tree) } else { Err(errors) }
}

/// What of a file can be read, and what cannot.
#[derive(Debug)]
pub struct Parsed {
    /// The items without mistakes.
    pub tree: ast::File,
    /// Where each item stands, the broken ones too, in the order of the text.
    pub items: Vec<Span>,
    pub errors: Vec<Diagnostic>,
}

/// As [`parse`], for a text that is being written: keeps the items that are whole.
pub fn parse_whole_items(sources: &Sources, file: FileId) -> Parsed {
    let mut tree = ast::File { header: None, items: Vec::new() };
    let text = sources.get(file).text.as_str();
    if text.len() > MAX_BYTES {
        let sentence = format!("this file has {} bytes, and the limit is {MAX_BYTES}", text.len());
        let error = Diagnostic::new(Code::FileTooLarge, Span { file, start: 0, end: 0 }, sentence);
        return Parsed { tree, items: Vec::new(), errors: vec![error] };
    }
    let (tokens, mut errors) = scan::scan(file, text);
    let mut split = split::split(file, text, &tokens);
    mark_broken(&mut split, &tokens, &errors);
    errors.append(&mut split.errors);

    let text_of = |piece: &split::Piece| {
        let first = tokens[piece.tokens.start];
        &text[first.start..first.end]
    };
    let builder = Builder::new(file, text, &tokens);
    let mut items = Vec::new();
    for (index, piece) in split.pieces.iter().enumerate() {
        let (first, last) = (tokens[piece.tokens.start], tokens[piece.tokens.end - 1]);
        items.push(builder.span(first.start, last.end));
        if index > 0 && text_of(piece) == "family" {
            let is_second = split.pieces.first().is_some_and(|first| text_of(first) == "family");
            errors.push(misplaced_header(builder.span(first.start, first.end), is_second));
            continue;
        }
        if piece.broken {
            continue;
        }
        match Grammar::parse(Rule::item, &text[first.start..last.end]) {
            Err(error) => {
                errors.push(mistake::explain(&error, first.start, piece, &builder));
                errors.append(&mut more_mistakes(file, text, &tokens, piece, &error));
            }
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
    if errors.is_empty() && tree.header.is_none() && file != PRELUDE {
        errors.push(
            Diagnostic::new(
                Code::MissingHeader,
                Span { file, start: 0, end: 0 },
                "this file does not say which family it describes",
            )
            .help("begin it with `family NAME for \"MODEL_TYPE\"`"),
        );
    }
    errors.sort_by_key(|error| error.span.start);
    Parsed { tree, items, errors }
}

/// What else is wrong in an item whose first mistake is `first`.
fn more_mistakes(
    file: FileId,
    text: &str,
    tokens: &[scan::Token],
    piece: &split::Piece,
    first: &pest::error::Error<Rule>,
) -> Vec<Diagnostic> {
    let (start, end) = (tokens[piece.tokens.start].start, tokens[piece.tokens.end - 1].end);
    let mut recovery = Recovery::new(text, tokens, piece.tokens.clone());
    let mut errors = Vec::new();
    let mut at = start + mistake::offset(first);
    // An entry is blanked out in each turn, at most two for one mistake.
    while errors.len() < recover::MAX_MISTAKES && recovery.blank_out(at) {
        let builder = Builder::new(file, &recovery.text, &recovery.tokens);
        let piece = split::Piece { tokens: recovery.piece.clone(), doc: String::new(), broken: true };
        match Grammar::parse(Rule::item, &recovery.text[start..end]) {
            Ok(pairs) => {
                builder.enter_piece(start, "");
                // The tree has holes: only what its builders say about the rest is wanted.
                pairs.filter(|pair| pair.as_rule() != Rule::EOI).for_each(|pair| drop(builder.item(pair)));
                errors.extend(builder.into_errors());
                break;
            }
            Err(error) => {
                at = start + mistake::offset(&error);
                if !recovery.is_known(at) {
                    errors.push(mistake::explain(&error, start, &piece, &builder));
                }
            }
        }
    }
    errors
}

/// The items of a text that [`parse`] accepts, as the grammar reads them, each with its place in the text.
pub(crate) fn items(text: &str) -> Vec<(usize, Pair<'_, Rule>)> {
    let file = PRELUDE;
    let (tokens, _) = scan::scan(file, text);
    let split = split::split(file, text, &tokens);
    let pieces =
        split.pieces.into_iter().map(|piece| (tokens[piece.tokens.start].start, tokens[piece.tokens.end - 1].end));
    pieces
        .flat_map(|(start, end)| {
            let pairs = Grammar::parse(Rule::item, &text[start..end]).into_iter().flatten();
            pairs.filter(|pair| pair.as_rule() != Rule::EOI).map(move |pair| (start, pair))
        })
        .collect()
}

/// A piece with an error in its strings, comments or characters is not parsed, and its brackets are not judged: what
/// was lost there would be missed again.
fn mark_broken(split: &mut split::Split, tokens: &[scan::Token], errors: &[Diagnostic]) {
    let pieces = &mut split.pieces;
    let piece_at = |pieces: &[split::Piece], error: &Diagnostic| {
        pieces.iter().rposition(|piece| tokens[piece.tokens.start].start <= error.span.start as usize)
    };
    let broken: Vec<_> = errors.iter().filter_map(|error| piece_at(pieces, error)).collect();
    for &index in &broken {
        pieces[index].broken = true;
    }
    let brackets = [Code::UnclosedBracket, Code::UnmatchedBracket];
    split.errors.retain(|error| {
        !brackets.contains(&error.code) || !piece_at(pieces, error).is_some_and(|index| broken.contains(&index))
    });
}

fn misplaced_header(span: Span, is_second: bool) -> Diagnostic {
    if is_second {
        Diagnostic::new(Code::MisplacedHeader, span, "a file describes one family, and this is the second `family`")
    } else {
        Diagnostic::new(Code::MisplacedHeader, span, "`family` stands before everything else")
            .help("move this line to the top of the file")
    }
}
