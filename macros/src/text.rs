//! Tokens back to text, and places in the text back to tokens.

use std::ops::Range;

use mgraph_dsl::source;
use proc_macro2::{Delimiter, Group, Spacing, Span, TokenStream, TokenTree};

/// The text of a token stream. Lines and columns are kept, so it reads as it was written, without its comments.
#[derive(Debug)]
pub struct Rebuilt {
    pub text: String,
    /// Where each token went, in order.
    places: Vec<(Range<usize>, Span)>,
    line: usize,
    /// The last token was a mark that the next may continue, as in `->`.
    joint: bool,
}

impl Rebuilt {
    pub fn from(tokens: TokenStream) -> Self {
        let line = tokens.clone().into_iter().next().map_or(1, |token| token.span().start().line);
        let mut rebuilt = Rebuilt { text: String::new(), places: Vec::new(), line, joint: true };
        rebuilt.stream(tokens);
        rebuilt
    }

    /// The first and last token that a place in the text covers. Beyond the last token it is the last one.
    pub fn spans(&self, place: source::Span) -> (Span, Span) {
        let (start, end) = (place.start as usize, place.end as usize);
        let covered = |index: &usize| self.places.get(*index).is_some_and(|(range, _)| range.start < end);
        let first =
            self.places.partition_point(|(range, _)| range.end <= start).min(self.places.len().saturating_sub(1));
        let last = (first..self.places.len()).take_while(covered).last().unwrap_or(first);
        let span = |index: usize| self.places.get(index).map_or_else(Span::call_site, |(_, span)| *span);
        (span(first), span(last))
    }

    fn stream(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(group) => self.group(&group),
                TokenTree::Ident(ident) => self.token(&ident.to_string(), ident.span(), false),
                TokenTree::Literal(literal) => self.token(&literal.to_string(), literal.span(), false),
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    // A doc comment arrives as `#[doc = ".."]` or `#![doc = ".."]`.
                    let inner = tokens.next_if(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == '!'));
                    let doc = match tokens.peek() {
                        Some(TokenTree::Group(group)) => doc_line(group),
                        _ => None,
                    };
                    match doc {
                        Some(line) => {
                            tokens.next();
                            let marks = if inner.is_some() { "//!" } else { "///" };
                            self.doc(marks, &line, mark.span());
                        }
                        None => {
                            self.token("#", mark.span(), false);
                            if let Some(inner) = inner {
                                self.token("!", inner.span(), false);
                            }
                        }
                    }
                }
                TokenTree::Punct(mark) => {
                    self.token(&mark.as_char().to_string(), mark.span(), mark.spacing() == Spacing::Joint);
                }
            }
        }
    }

    fn group(&mut self, group: &Group) {
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::None => return self.stream(group.stream()),
        };
        self.token(open, group.span_open(), false);
        self.stream(group.stream());
        self.token(close, group.span_close(), false);
    }

    fn token(&mut self, text: &str, span: Span, joint: bool) {
        self.advance(span);
        let start = self.text.len();
        self.text += text;
        self.places.push((start..self.text.len(), span));
        self.joint = joint;
    }

    fn doc(&mut self, marks: &str, text: &str, span: Span) {
        for line in text.split('\n') {
            self.advance(span);
            self.text += marks;
            self.text += line;
            self.text.push('\n');
            self.line += 1;
            self.joint = true;
        }
    }

    /// Goes to the line and column of `span`, or writes a blank.
    fn advance(&mut self, span: Span) {
        let at = span.start();
        if at.line > self.line {
            self.text.extend(std::iter::repeat_n('\n', at.line - self.line));
            self.line = at.line;
            self.joint = true;
        }
        if self.joint && (self.text.is_empty() || self.text.ends_with('\n')) {
            self.text.extend(std::iter::repeat_n(' ', at.column));
        } else if !self.joint {
            self.text.push(' ');
        }
    }
}

/// The text of `[doc = ".."]`.
fn doc_line(group: &Group) -> Option<String> {
    let attribute: syn::MetaNameValue = syn::parse2(group.stream()).ok()?;
    match attribute.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) if attribute.path.is_ident("doc") => {
            Some(text.value())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use mgraph_dsl::{ast, parser, source::Sources};

    use super::*;

    fn files() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = vec![root.join("dsl/src/prelude.mgraph")];
        let entries = std::fs::read_dir(root.join("models/families")).expect("a folder of the repository");
        files.extend(entries.map(|entry| entry.expect("a readable folder").path()));
        files.retain(|path| path.extension().is_some_and(|end| end == "mgraph"));
        files
    }

    fn tree(text: &str) -> ast::File {
        let mut sources = Sources::default();
        let file = sources.add("test.mgraph", text);
        parser::parse(&sources, file).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"))
    }

    /// The tree as text, without its places.
    fn shape(tree: &ast::File) -> String {
        let text = format!("{tree:?}");
        let mut parts = text.split("Span { ");
        let first = parts.next().unwrap_or_default().to_string();
        parts.fold(first, |all, part| all + part.split_once('}').map_or(part, |(_, rest)| rest))
    }

    #[test]
    fn tokens_of_every_file_say_the_same() {
        for path in files() {
            let text = std::fs::read_to_string(&path).expect("a readable file");
            let tokens: TokenStream = text.parse().expect("every token of the language is a Rust token");
            assert_eq!(shape(&tree(&Rebuilt::from(tokens).text)), shape(&tree(&text)), "{}", path.display());
        }
    }

    #[test]
    fn lines_and_columns_are_kept() {
        let text = "family toy for \"toy\"\n\nop twice(x: F[..]) -> F[..] {\n    x + x\n}";
        let rebuilt = Rebuilt::from(text.parse().expect("Rust tokens"));
        let lines: Vec<_> = rebuilt.text.lines().collect();
        assert_eq!(lines[3], "    x + x");
        let at = rebuilt.text.find("x + x").expect("it is there") as u32;
        let (first, last) = rebuilt.spans(source::Span { file: source::FileId(1), start: at, end: at + 5 });
        assert_eq!((first.start().line, first.start().column, last.end().column), (4, 4, 9));
    }
}
