//! A first look at a text: its tokens with their places, and what is wrong with single characters, strings and comments.
//! The grammar reads the text itself; tokens serve splitting, doc comments, and pointing at what was found.

use crate::diagnostic::{Code, Diagnostic};
use crate::source::{FileId, Span};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Word,
    Number,
    Text,
    /// `///`
    Doc,
    /// `//!`
    FileDoc,
    Open,
    Close,
    Mark,
}

#[derive(Debug, Clone, Copy)]
pub struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
}

/// Block comments nest at most this deep.
const MAX_COMMENT_DEPTH: usize = 16;

const LONG_MARKS: &[&str] = &["->", "::", "..", "==", "!=", "<=", ">=", "<<", ">>"];

pub fn scan(file: FileId, text: &str) -> (Vec<Token>, Vec<Diagnostic>) {
    let mut scanner = Scanner { file, text, at: 0, unknown_until: 0, tokens: Vec::new(), errors: Vec::new() };
    while scanner.at < text.len() {
        scanner.step();
    }
    (scanner.tokens, scanner.errors)
}

struct Scanner<'a> {
    file: FileId,
    text: &'a str,
    at: usize,
    /// The end of a line whose unknown characters were told.
    unknown_until: usize,
    tokens: Vec<Token>,
    errors: Vec<Diagnostic>,
}

impl Scanner<'_> {
    fn step(&mut self) {
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else { return };
        match first {
            ' ' | '\t' | '\r' | '\n' => self.at += 1,
            '/' if rest.starts_with("//") => self.line_comment(rest),
            '/' if rest.starts_with("/*") => self.block_comment(rest),
            '"' => self.string(rest),
            '0'..='9' => self.number(rest),
            'a'..='z' | 'A'..='Z' | '_' => self.take(Kind::Word, word_length(rest)),
            '(' | '[' | '{' => self.take(Kind::Open, 1),
            ')' | ']' | '}' => self.take(Kind::Close, 1),
            ',' | ':' | ';' | '.' | '=' | '|' | '&' | '!' | '<' | '>' | '+' | '-' | '*' | '/' | '%' | '@' => {
                let length = if LONG_MARKS.iter().any(|mark| rest.starts_with(mark)) { 2 } else { 1 };
                self.take(Kind::Mark, length);
            }
            // A byte order mark at the start of a file is no part of its text.
            '\u{feff}' if self.at == 0 => self.at += first.len_utf8(),
            other => self.unknown(other),
        }
    }

    fn take(&mut self, kind: Kind, length: usize) {
        self.tokens.push(Token { kind, start: self.at, end: self.at + length });
        self.at += length;
    }

    fn error(&mut self, code: Code, length: usize, message: impl Into<String>) -> &mut Diagnostic {
        let span = Span { file: self.file, start: self.at as u32, end: (self.at + length) as u32 };
        self.errors.push(Diagnostic::new(code, span, message));
        let last = self.errors.len() - 1;
        &mut self.errors[last]
    }

    fn line_comment(&mut self, rest: &str) {
        let length = rest.find('\n').unwrap_or(rest.len());
        if rest.starts_with("//!") {
            self.take(Kind::FileDoc, length);
        } else if rest.starts_with("///") && !rest.starts_with("////") {
            self.take(Kind::Doc, length);
        } else {
            self.at += length;
        }
    }

    fn block_comment(&mut self, rest: &str) {
        let mut depth = 0;
        let mut length = 0;
        while let Some(offset) = rest[length..].find(['*', '/']) {
            length += offset;
            let here = &rest[length..];
            if here.starts_with("/*") {
                depth += 1;
                length += 2;
            } else if here.starts_with("*/") {
                depth -= 1;
                length += 2;
            } else {
                length += 1;
            }
            if depth == 0 {
                self.at += length;
                return;
            }
            if depth > MAX_COMMENT_DEPTH {
                let sentence = format!("comments nest more than {MAX_COMMENT_DEPTH} deep here");
                self.error(Code::NestedTooDeep, 2, sentence);
                self.at = self.text.len();
                return;
            }
        }
        self.error(Code::UnterminatedText, 2, "this comment never ends").help = Some("end it with `*/`".into());
        self.at = self.text.len();
    }

    fn string(&mut self, rest: &str) {
        let mut characters = rest.char_indices().skip(1);
        while let Some((offset, character)) = characters.next() {
            match character {
                '"' => return self.take(Kind::Text, offset + 1),
                '\n' => break,
                '\\' => {
                    // The character after a backslash cannot end the string; a line break still does.
                    if rest[offset + 1..].starts_with('\n') {
                        break;
                    }
                    characters.next();
                }
                _ => {}
            }
        }
        let length = rest.find('\n').unwrap_or(rest.len());
        self.error(Code::UnterminatedText, length, "this string does not end on its line").help =
            Some("end it with `\"`; inside a string a quote is written `\\\"`".into());
        self.take(Kind::Text, length);
    }

    fn number(&mut self, rest: &str) {
        let digits = |text: &str| text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'_').count();
        let mut length = digits(rest);
        let starts_with_digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        if let Some(fraction) = rest[length..].strip_prefix('.')
            && starts_with_digit(fraction)
        {
            length += 1 + digits(fraction);
        }
        if let Some(exponent) = rest[length..].strip_prefix(['e', 'E']) {
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if starts_with_digit(unsigned) {
                let plain = unsigned.bytes().take_while(u8::is_ascii_digit).count();
                length += 1 + (exponent.len() - unsigned.len()) + plain;
            }
        }
        let suffix = word_length(&rest[length..]);
        if suffix > 0 {
            let sentence = format!("`{}` is no number", &rest[..length + suffix]);
            self.error(Code::BadNumber, length + suffix, sentence).help =
                Some("a number has no suffix; a name begins with a letter".into());
        }
        self.take(Kind::Number, length + suffix);
    }

    fn unknown(&mut self, character: char) {
        // One mistake, such as a string in the wrong quotes, is said once a line.
        let is_known = self.at < self.unknown_until;
        let same = self.text[self.at..].chars().take_while(|c| *c == character).count() * character.len_utf8();
        let help = match character {
            '\'' => Some("strings are written with `\"`"),
            '^' => Some("powers are products, or `pow(x, y)` of load numbers"),
            '?' => Some("a choice is `if c { a } else { b }`, or `select(c, a, b)` by a bool tensor"),
            '~' => Some("negation is `!`"),
            '#' => Some("comments begin with `//`"),
            _ if character.is_alphabetic() => Some("names are ASCII"),
            _ => None,
        };
        if is_known {
            self.at += same;
            return;
        }
        self.unknown_until = self.text[self.at..].find('\n').map_or(self.text.len(), |length| self.at + length);
        let shown = if character.is_control() { character.escape_unicode().to_string() } else { character.to_string() };
        self.error(Code::UnknownCharacter, same, format!("the language has no character `{shown}`")).help =
            help.map(String::from);
        self.at += same;
    }
}

fn word_length(text: &str) -> usize {
    text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count()
}
