//! Several mistakes of one item in one run: the smallest statement or declaration around a mistake is blanked out, and the item is
//! read again, until the grammar accepts it.
//!
//! Only tokens decide where statements and declarations begin, so a wrong guess costs a mistake that is found in the next run, and
//! never makes one up: what was blanked out is not judged.

use std::ops::Range;

use super::scan::{Kind, Token};
use super::words::RESERVED;

/// So many mistakes of one item are said.
pub const MAX_MISTAKES: usize = 20;

/// An item with parts blanked out.
pub struct Recovery {
    /// The whole file.
    pub text: String,
    /// Without those that are blanked out.
    pub tokens: Vec<Token>,
    /// The item's tokens.
    pub piece: Range<usize>,
    /// Tokens, by their places in the text, at which a mistake was met.
    met: Vec<usize>,
}

impl Recovery {
    pub fn new(text: &str, tokens: &[Token], piece: Range<usize>) -> Self {
        Recovery { text: text.to_string(), tokens: tokens.to_vec(), piece, met: Vec::new() }
    }

    /// Whether a mistake at this place of the text was met before.
    pub fn is_known(&self, at: usize) -> bool {
        self.met.contains(&self.place(self.token_at(at)))
    }

    /// Blanks out what holds the mistake at this place, or the entry before it, if that is what misses something. Returns
    /// whether there was such a thing.
    pub fn blank_out(&mut self, at: usize) -> bool {
        let mistake = self.token_at(at);
        let known = self.is_known(at);
        self.met.push(self.place(mistake));
        let Some(list) = self.list_around(mistake) else { return false };
        let entries = self.entries(&list);
        let own = entries.iter().rposition(|entry| entry.start <= mistake);
        let Some(mut own) = own.or((!entries.is_empty()).then_some(0)) else { return false };
        if entries[own].start == mistake && own > 0 && !known && !(list.is_body && self.has_ended(&entries[own - 1])) {
            own -= 1;
        }
        self.remove(entries[own].clone());
        true
    }

    fn word(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| &self.text[token.start..token.end])
    }

    fn place(&self, index: usize) -> usize {
        self.tokens.get(index).map_or(self.text.len(), |token| token.start)
    }

    fn token_at(&self, at: usize) -> usize {
        let mut index = self.tokens.partition_point(|token| token.end <= at);
        while self.tokens.get(index).is_some_and(Token::is_doc) {
            index += 1;
        }
        index
    }

    fn remove(&mut self, tokens: Range<usize>) {
        let (start, end) = (self.tokens[tokens.start].start, self.tokens[tokens.end - 1].end);
        let blank: String = self.text[start..end].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
        self.text.replace_range(start..end, &blank);
        self.piece.end -= tokens.len();
        self.tokens.drain(tokens);
    }

    /// The braces that hold a token most closely.
    fn list_around(&self, mistake: usize) -> Option<List> {
        let mut open: Vec<List> = Vec::new();
        // What opens the brackets around, braces or not.
        let mut brackets: Vec<bool> = Vec::new();
        for index in self.piece.start..mistake.min(self.piece.end) {
            match (self.tokens[index].kind, self.word(index)) {
                (Kind::Open, "{") => {
                    let is_body = match open.last() {
                        None => !matches!(self.word(self.piece.start), "config" | "block" | "model" | "contract"),
                        Some(list) => list.is_body || !self.begins_section(list, index),
                    };
                    open.push(List { start: index + 1, end: 0, is_body });
                    brackets.push(true);
                }
                (Kind::Open, _) => brackets.push(false),
                (Kind::Close, _) => {
                    if brackets.pop() == Some(true) {
                        open.pop();
                    }
                }
                (Kind::Word | Kind::Number | Kind::Text | Kind::Doc | Kind::FileDoc | Kind::Mark, _) => {}
            }
        }
        let list = open.pop()?;
        Some(List { end: self.close_of(list.start), ..list })
    }

    /// Whether the brace at `index` is that of a section of the declarations `list`.
    fn begins_section(&self, list: &List, index: usize) -> bool {
        let list = List { start: list.start, end: index, is_body: false };
        self.entries(&list).last().is_some_and(|entry| self.word(entry.start) == "section")
    }

    /// The bracket that closes what was opened before `start`.
    fn close_of(&self, start: usize) -> usize {
        let mut depth = 0;
        for index in start..self.piece.end {
            match self.tokens[index].kind {
                Kind::Open => depth += 1,
                Kind::Close if depth == 0 => return index,
                Kind::Close => depth -= 1,
                Kind::Word | Kind::Number | Kind::Text | Kind::Doc | Kind::FileDoc | Kind::Mark => {}
            }
        }
        self.piece.end
    }

    /// The statements or declarations of a list, as far as their tokens tell.
    fn entries(&self, list: &List) -> Vec<Range<usize>> {
        let mut starts: Vec<usize> = Vec::new();
        let mut depth = 0;
        let mut previous = None;
        for index in list.start..list.end {
            if self.tokens[index].is_doc() {
                continue;
            }
            if depth == 0 {
                let begins = match previous {
                    None => true,
                    Some(previous) if list.is_body => {
                        let first = starts.last().map_or("", |start| self.word(*start));
                        self.begins_statement(first, previous, index)
                    }
                    Some(previous) => self.begins_declaration(previous, index),
                };
                if begins {
                    starts.push(index);
                }
            }
            match self.tokens[index].kind {
                Kind::Open => depth += 1,
                Kind::Close => depth -= 1,
                Kind::Word | Kind::Number | Kind::Text | Kind::Doc | Kind::FileDoc | Kind::Mark => {}
            }
            previous = Some(index);
        }
        let ends = starts.iter().copied().skip(1).chain([list.end]).collect::<Vec<_>>();
        starts.into_iter().zip(ends).map(|(start, end)| start..end).collect()
    }

    /// `first` is the word that begins the statement so far.
    fn begins_statement(&self, first: &str, previous: usize, index: usize) -> bool {
        match (self.word(previous), self.word(index)) {
            (";", _) => true,
            ("}", "else") => false,
            ("}", _) if matches!(first, "for" | "if") => true,
            (_, "let" | "for") => true,
            _ => false,
        }
    }

    fn has_ended(&self, statement: &Range<usize>) -> bool {
        match self.word(statement.end - 1) {
            ";" => true,
            "}" => matches!(self.word(statement.start), "for" | "if"),
            _ => false,
        }
    }

    fn begins_declaration(&self, previous: usize, index: usize) -> bool {
        let (before, word) = (self.word(previous), self.word(index));
        match self.tokens[index].kind {
            Kind::Text => self.word(self.piece.start) == "contract",
            Kind::Word => match word {
                "state" | "ignore" | "let" | "graph" | "fn" | "section" | "limit" | "require" => true,
                _ if RESERVED.contains(&word) => false,
                _ => {
                    let is_value = match self.tokens[previous].kind {
                        Kind::Word => !RESERVED.contains(&before),
                        Kind::Number | Kind::Text | Kind::Close => true,
                        Kind::Doc | Kind::FileDoc | Kind::Open | Kind::Mark => false,
                    };
                    let begins_line = self.text[self.tokens[previous].end..self.tokens[index].start].contains('\n');
                    self.word(index + 1) == ":" && !matches!(before, "state" | "limit" | "let")
                        || is_value && begins_line
                }
            },
            Kind::Number | Kind::Doc | Kind::FileDoc | Kind::Open | Kind::Close | Kind::Mark => false,
        }
    }
}

/// The tokens between two braces.
struct List {
    start: usize,
    end: usize,
    /// Statements, and not declarations.
    is_body: bool,
}
