//! What all tree builders share: places, children by rule, depth, and the errors met on the way.
//!
//! A builder never fails. It notes a mistake that the grammar cannot see, puts something harmless in its place, and goes on;
//! the tree is thrown away if there was one.

use std::cell::{Cell, RefCell};
use std::iter::Peekable;

use pest::iterators::{Pair, Pairs};

use super::scan::Token;
use super::words::{Rule, token};
use crate::ast::{Name, Number, NumberValue, Spanned, Text};
use crate::diagnostic::{Code, Diagnostic};
use crate::source::{FileId, Span};

/// Chained operators nest the tree as brackets do. This many may stand around one leaf.
const MAX_DEPTH: usize = 256;

pub struct Builder<'a> {
    pub file: FileId,
    pub text: &'a str,
    pub tokens: &'a [Token],
    /// Where the item that is being built begins in the text.
    base: Cell<usize>,
    pub doc: RefCell<String>,
    depth: Cell<usize>,
    errors: RefCell<Vec<Diagnostic>>,
}

impl<'a> Builder<'a> {
    pub fn new(file: FileId, text: &'a str, tokens: &'a [Token]) -> Self {
        Builder {
            file,
            text,
            tokens,
            base: Cell::new(0),
            doc: RefCell::default(),
            depth: Cell::new(0),
            errors: RefCell::default(),
        }
    }

    pub fn enter_piece(&self, base: usize, doc: &str) {
        self.base.set(base);
        self.doc.replace(doc.to_string());
    }

    pub fn into_errors(self) -> Vec<Diagnostic> {
        self.errors.into_inner()
    }

    pub fn error(&self, error: Diagnostic) {
        self.errors.borrow_mut().push(error);
    }

    pub fn span(&self, start: usize, end: usize) -> Span {
        Span { file: self.file, start: start as u32, end: end as u32 }
    }

    /// The place of a pair, without the blanks and comments that the grammar skipped at its end.
    pub fn place(&self, pair: &Pair<'_, Rule>) -> Span {
        let (start, end) = (self.base.get() + pair.as_span().start(), self.base.get() + pair.as_span().end());
        let after = self.tokens.partition_point(|token| token.start < end);
        let tight = self.tokens[..after].iter().rev().find(|token| !token.is_doc()).map_or(end, |token| token.end);
        self.span(start, tight.clamp(start, end))
    }

    /// Runs `inside` with `levels` more levels around it, or notes that it is too deep.
    pub fn deeper<T>(&self, levels: usize, span: Span, otherwise: T, inside: impl FnOnce() -> T) -> T {
        let before = self.depth.get();
        if before + levels > MAX_DEPTH {
            let sentence = format!("operators and branches nest more than {MAX_DEPTH} deep here");
            self.error(Diagnostic::new(Code::NestedTooDeep, span, sentence).help("give parts a name with `let`"));
            return otherwise;
        }
        self.depth.set(before + levels);
        let value = inside();
        self.depth.set(before);
        value
    }

    pub fn name(&self, pair: Pair<'_, Rule>) -> Name {
        Spanned { node: pair.as_str().to_string(), span: self.place(&pair) }
    }

    pub fn string(&self, pair: Pair<'_, Rule>) -> Text {
        let span = self.place(&pair);
        let raw = pair.as_str();
        // The rule `string` includes its quotes.
        let inner = raw.get(1..raw.len() - 1).unwrap_or_default();
        let mut node = String::with_capacity(inner.len());
        let mut characters = inner.char_indices();
        while let Some((at, character)) = characters.next() {
            if character != '\\' {
                node.push(character);
                continue;
            }
            match characters.next() {
                Some((_, escaped @ ('"' | '\\'))) => node.push(escaped),
                other => {
                    let shown = other.map_or(String::new(), |(_, c)| c.to_string());
                    let start = span.start as usize + 1 + at;
                    let place = self.span(start, start + 1 + shown.len());
                    let error = Diagnostic::new(Code::BadEscape, place, format!("there is no escape `\\{shown}`"));
                    self.error(error.help("strings know `\\\"` and `\\\\`"));
                }
            }
        }
        Spanned { node, span }
    }

    pub fn number(&self, pair: Pair<'_, Rule>) -> Number {
        let span = self.place(&pair);
        let digits = pair.as_str().replace('_', "");
        let value = if digits.contains(['.', 'e', 'E']) {
            digits.parse().ok().filter(|value: &f64| value.is_finite()).map(NumberValue::Float)
        } else {
            digits.parse().ok().map(NumberValue::Int)
        };
        let value = value.unwrap_or_else(|| {
            let sentence = format!("`{}` is too large", pair.as_str());
            let help = "integers end at 9223372036854775807, fractions near 1.8e308";
            self.error(Diagnostic::new(Code::BadNumber, span, sentence).help(help));
            NumberValue::Int(0)
        });
        Number { value, span }
    }
}

/// The parts of a pair that mean something, in order.
pub struct Children<'i> {
    pairs: Peekable<Box<dyn Iterator<Item = Pair<'i, Rule>> + 'i>>,
}

impl<'i> Children<'i> {
    pub fn of(pair: Pair<'i, Rule>) -> Self {
        Children::among(pair.into_inner())
    }

    fn among(pairs: Pairs<'i, Rule>) -> Self {
        let meaning: Box<dyn Iterator<Item = _>> = Box::new(pairs.filter(|pair| token(pair.as_rule()).is_none()));
        Children { pairs: meaning.peekable() }
    }

    pub fn any(&mut self) -> Option<Pair<'i, Rule>> {
        self.pairs.next()
    }

    pub fn maybe(&mut self, rule: Rule) -> Option<Pair<'i, Rule>> {
        self.pairs.next_if(|pair| pair.as_rule() == rule)
    }

    pub fn one(&mut self, rule: Rule) -> Pair<'i, Rule> {
        match self.maybe(rule) {
            Some(pair) => pair,
            None => outside_grammar(rule),
        }
    }

    /// The next part, where every alternative of the grammar has one.
    pub fn first(&mut self) -> Pair<'i, Rule> {
        match self.any() {
            Some(pair) => pair,
            None => outside_grammar(Rule::EOI),
        }
    }

    pub fn all<T>(&mut self, rule: Rule, build: impl Fn(Pair<'i, Rule>) -> T) -> Vec<T> {
        std::iter::from_fn(|| self.maybe(rule)).map(build).collect()
    }
}

/// A builder and `mgraph.pest` disagree about the parts of a rule. No text can cause that: which parts a rule has is fixed
/// by the grammar, and each alternative is built in `tests/parse.rs` from the prelude, the families and token soup.
pub fn outside_grammar(rule: Rule) -> ! {
    unreachable!("the tree builders do not follow mgraph.pest at {rule:?}")
}
