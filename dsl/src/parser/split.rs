//! Cuts a file into its items, so that each is parsed alone and one broken item does not hide the errors of the next.
//!
//! The words that open items are reserved, so wherever `block NAME (` stands, an item begins, even if brackets before
//! it were left open.

use super::scan::{Kind, Token};
use super::words::RESERVED;
use crate::diagnostic::{Code, Diagnostic, suggest};
use crate::source::{FileId, Span};

pub const ITEM_WORDS: &[&str] =
    &["family", "config", "processor", "numerics", "contract", "type", "op", "block", "model"];

/// Brackets nest at most this deep, which bounds the stack of everything that walks the text or the tree.
pub const MAX_BRACKETS: usize = 64;

/// The tokens of one item.
#[derive(Debug)]
pub struct Piece {
    /// Indices into the tokens, doc comments before the item excluded.
    pub tokens: std::ops::Range<usize>,
    /// The `///` lines before the item, joined, without the marks.
    pub doc: String,
    /// Its brackets do not fit, or it is no item; this has been said, and parsing it would only say it again.
    pub broken: bool,
}

pub struct Split {
    pub pieces: Vec<Piece>,
    pub errors: Vec<Diagnostic>,
}

pub fn split(file: FileId, text: &str, tokens: &[Token]) -> Split {
    let mut splitter = Splitter {
        file,
        text,
        tokens,
        open: Vec::new(),
        ifs: 0,
        crooked: None,
        out: Split { pieces: Vec::new(), errors: Vec::new() },
    };
    for index in 0..tokens.len() {
        splitter.step(index);
    }
    splitter.end_of_brackets(None);
    splitter.out
}

struct Splitter<'a> {
    file: FileId,
    text: &'a str,
    tokens: &'a [Token],
    /// Indices of the brackets that are open.
    open: Vec<usize>,
    /// How many `if`s may stand in each other's conditions, the only nesting without brackets.
    ifs: usize,
    /// The first pair of braces in this piece whose lines are not equally indented: the usual sign of a forgotten `}`.
    crooked: Option<(usize, usize)>,
    out: Split,
}

impl Splitter<'_> {
    fn step(&mut self, index: usize) {
        let token = self.tokens[index];
        match token.kind {
            Kind::Doc | Kind::FileDoc => return,
            Kind::Word if self.opens_item(index) => {
                self.end_of_brackets(Some(index));
                self.begin(index);
            }
            Kind::Word if self.is_stray(index) => {
                self.begin(index);
                self.stray(index);
            }
            Kind::Word | Kind::Number | Kind::Text | Kind::Mark | Kind::Open | Kind::Close => {
                if self.out.pieces.is_empty() {
                    self.begin(index);
                    self.stray(index);
                }
            }
        }
        if let Some(piece) = self.out.pieces.last_mut() {
            piece.tokens.end = index + 1;
        }
        match self.text_of(index) {
            "if" => self.ifs += 1,
            "{" | "}" | ";" | ":" | "let" => self.ifs = 0,
            _ => {}
        }
        if self.ifs > MAX_BRACKETS {
            self.too_deep(index, "conditions");
        }
        match token.kind {
            Kind::Open => {
                self.open.push(index);
                if self.open.len() > MAX_BRACKETS {
                    self.too_deep(index, "brackets");
                }
            }
            Kind::Close => self.close(index),
            Kind::Word | Kind::Number | Kind::Text | Kind::Doc | Kind::FileDoc | Kind::Mark => {}
        }
    }

    fn text_of(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| &self.text[token.start..token.end])
    }

    fn span(&self, index: usize) -> Span {
        let token = self.tokens[index];
        Span { file: self.file, start: token.start as u32, end: token.end as u32 }
    }

    /// Says an error of the present piece, unless it is broken already.
    fn report(&mut self, error: Diagnostic) {
        if let Some(piece) = self.out.pieces.last_mut() {
            if !piece.broken {
                self.out.errors.push(error);
            }
            piece.broken = true;
        }
    }

    fn too_deep(&mut self, index: usize, what: &str) {
        let sentence = format!("{what} nest more than {MAX_BRACKETS} deep here");
        let error = Diagnostic::new(Code::NestedTooDeep, self.span(index), sentence);
        self.report(error.help("give parts a name with `let`"));
    }

    fn opens_item(&self, index: usize) -> bool {
        let word = self.text_of(index);
        if !ITEM_WORDS.contains(&word) {
            return false;
        }
        // `type: name = "model_type"` inside brackets is a misuse of the word, no item.
        let (next, after) = (self.text_of(index + 1), self.text_of(index + 2));
        self.open.is_empty()
            || match word {
                "family" => after == "for",
                "type" => after == "=" && is_name(next),
                "op" | "processor" => after == "(" && is_name(next),
                "block" => matches!(after, "(" | "{") && is_name(next),
                "model" => matches!(next, "{" | "as"),
                _ => next == "{",
            }
    }

    /// A word after the closing brace of an item: no item contains one there.
    fn is_stray(&self, index: usize) -> bool {
        let previous = self.out.pieces.last().map_or(0, |piece| piece.tokens.end.saturating_sub(1));
        self.open.is_empty()
            && !self.out.pieces.is_empty()
            && self.text_of(previous) == "}"
            && !RESERVED.contains(&self.text_of(index))
    }

    fn begin(&mut self, index: usize) {
        let docs = self.tokens[..index].iter().rev().take_while(|token| token.kind == Kind::Doc).count();
        let doc = doc_text(self.text, &self.tokens[index - docs..index], Kind::Doc);
        self.crooked = None;
        self.out.pieces.push(Piece { tokens: index..index + 1, doc, broken: false });
    }

    fn stray(&mut self, index: usize) {
        let found = self.text_of(index).to_string();
        let error =
            Diagnostic::new(Code::UnexpectedToken, self.span(index), format!("expected an item, found `{found}`"));
        let help = match suggest(&found, ITEM_WORDS.iter().copied()) {
            Some(word) => format!("did you mean `{word}`?"),
            None => {
                let words: Vec<_> = ITEM_WORDS.iter().map(|word| format!("`{word}`")).collect();
                format!("an item begins with one of {}", words.join(", "))
            }
        };
        self.report(error.help(help));
    }

    fn close(&mut self, index: usize) {
        let found = self.text_of(index).to_string();
        let Some(open) = self.open.pop() else {
            let error = Diagnostic::new(
                Code::UnmatchedBracket,
                self.span(index),
                format!("no bracket is open that `{found}` could close"),
            );
            return self.report(error);
        };
        let opened = self.text_of(open);
        let wanted = match opened {
            "(" => ")",
            "[" => "]",
            _ => "}",
        };
        if found != wanted {
            let error = Diagnostic::new(
                Code::UnmatchedBracket,
                self.span(index),
                format!("`{opened}` is closed by `{wanted}`, found `{found}`"),
            );
            let error = error.label(format!("expected `{wanted}`")).also(self.span(open), "opened here");
            self.report(error);
        } else if found == "}" && self.crooked.is_none() && self.closes_crookedly(open, index) {
            self.crooked = Some((open, index));
        }
    }

    /// A brace that begins its line stands below the beginning of the line that opened it.
    fn closes_crookedly(&self, open: usize, close: usize) -> bool {
        let before = |index: usize| &self.text[..self.tokens[index].start];
        let line = before(close).trim_end_matches([' ', '\t']);
        let begins_line = line.is_empty() || line.ends_with('\n');
        begins_line && {
            let opening = before(open).rsplit('\n').next().unwrap_or_default();
            opening.len() - opening.trim_start().len() != before(close).len() - line.len()
        }
    }

    /// The item that begins at `next`, or the file, ends: nothing may be open.
    fn end_of_brackets(&mut self, next: Option<usize>) {
        let open = std::mem::take(&mut self.open);
        let Some(&innermost) = open.last() else { return };
        let (bracket, closed_by) = match self.crooked {
            Some((open, close)) => (open, Some(close)),
            None => (innermost, None),
        };
        let opened = self.text_of(bracket).to_string();
        let sentence = match closed_by {
            Some(_) => format!("this `{opened}` is probably not closed: its item never ends"),
            None => format!("this `{opened}` is never closed"),
        };
        let mut error = Diagnostic::new(Code::UnclosedBracket, self.span(bracket), sentence).label("opened here");
        if let Some(close) = closed_by {
            error = error.also(self.span(close), "this closes it, but is indented for another");
        }
        if let Some(next) = next {
            error = error.also(self.span(next), "the next item begins before the end of this one");
        }
        self.report(error);
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && !RESERVED.contains(&text)
}

/// The text of doc comments of one kind, without marks, line by line.
pub fn doc_text(text: &str, tokens: &[Token], kind: Kind) -> String {
    let lines: Vec<_> = tokens
        .iter()
        .filter(|token| token.kind == kind)
        .map(|token| {
            // Both marks, `///` and `//!`, are three bytes.
            let line = text[token.start + 3..token.end].trim_end();
            line.strip_prefix(' ').unwrap_or(line)
        })
        .collect();
    lines.join("\n")
}
