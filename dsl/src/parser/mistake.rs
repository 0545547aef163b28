//! A place where the grammar gave up, said in the language's words.

use pest::error::{Error, ErrorVariant, InputLocation};

use super::build::Builder;
use super::scan::Kind;
use super::split::Piece;
use super::words::{RESERVED, Rule, is_operator, thing, token};
use crate::diagnostic::{Code, Diagnostic};

/// `base` is where the text that was parsed begins in the file.
pub fn explain(error: &Error<Rule>, base: usize, piece: &Piece, builder: &Builder<'_>) -> Diagnostic {
    let (InputLocation::Pos(at) | InputLocation::Span((at, _))) = error.location;
    let at = base + at;
    let expected = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives.as_slice(),
        ErrorVariant::CustomError { .. } => &[],
    };
    let found = Found::at(at, piece, builder);
    let sentence = format!("expected {}, found {}", list(expected), found.shown());
    if found.reserved && expected.contains(&Rule::name) {
        let sentence = format!("`{}` is a reserved word, expected {}", found.text, list(expected));
        return Diagnostic::new(Code::ReservedWord, found.span(builder), sentence).help("choose another name");
    }
    let diagnostic = Diagnostic::new(Code::UnexpectedToken, found.span(builder), sentence);
    match hint(expected, &found) {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
}

/// The token at a place, and those around it.
struct Found<'a> {
    text: &'a str,
    before: &'a str,
    after: &'a str,
    reserved: bool,
    /// Bytes; empty at the end of the item.
    place: (usize, usize),
    at_end_of_file: bool,
}

impl<'a> Found<'a> {
    fn at(at: usize, piece: &Piece, builder: &Builder<'a>) -> Self {
        let text_of =
            |index: usize| builder.tokens.get(index).map_or("", |token| &builder.text[token.start..token.end]);
        let mut index = builder.tokens.partition_point(|token| token.end <= at);
        while builder.tokens.get(index).is_some_and(|token| token.is_doc()) {
            index += 1;
        }
        let inside = piece.tokens.contains(&index);
        let end = builder.tokens[piece.tokens.end - 1].end;
        let text = text_of(index);
        Found {
            text,
            before: if index > piece.tokens.start { text_of(index - 1) } else { "" },
            after: text_of(index + 1),
            reserved: inside && RESERVED.contains(&text),
            place: match builder.tokens.get(index) {
                Some(token) if inside => (token.start, token.end),
                _ => (end, end),
            },
            at_end_of_file: index >= builder.tokens.len(),
        }
    }

    fn span(&self, builder: &Builder<'_>) -> crate::source::Span {
        builder.span(self.place.0, self.place.1)
    }

    fn shown(&self) -> String {
        if self.at_end_of_file { "the end of the file".into() } else { format!("`{}`", self.text) }
    }
}

/// `a, b or c`
fn list(expected: &[Rule]) -> String {
    let useful = expected.iter().filter(|rule| !is_operator(**rule));
    // After a whole expression the missing `;` is the news, not that another statement could follow it.
    let ended = expected.contains(&Rule::ended);
    let mut words: Vec<String> = useful
        .filter(|rule| !(ended && **rule == Rule::statement))
        .filter_map(|rule| token(*rule).map(|text| format!("`{text}`")).or_else(|| thing(*rule).map(String::from)))
        .collect();
    let mut seen = Vec::new();
    words.retain(|word| {
        let is_new = !seen.contains(word);
        seen.push(word.clone());
        is_new
    });
    match words.as_slice() {
        [] => "an operator".into(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// What people write who come from other languages.
fn hint(expected: &[Rule], found: &Found<'_>) -> Option<String> {
    let awaits_member = expected.iter().any(|rule| matches!(rule, Rule::setting | Rule::member));
    let help = match (found.before, found.text) {
        ("&", "&") => "`&` serves load booleans and boolean tensors alike; there is no `&&`",
        ("|", "|") => "`|` serves load booleans and boolean tensors alike; there is no `||`",
        (_, ";" | ",") if awaits_member => "declarations need no separator",
        (_, "=") if expected.contains(&Rule::ended) => {
            "only a whole variable is assigned, `name = value;`; equality is `==`"
        }
        (_, "=") if expected.iter().any(|rule| is_operator(*rule)) => "equality is `==`",
        (_, ":") if expected.contains(&Rule::equals) => "a `let` has no type: it has that of its value",
        ("}", "@" | "." | "+" | "*" | "/" | "%" | "|" | "&" | "==" | "!=" | "<" | "<=" | ">" | ">=" | "<<" | ">>")
            if expected.contains(&Rule::statement) =>
        {
            "an `if` that begins a statement ends at its `}`; put it into parentheses to go on with its value"
        }
        (".", _) if expected == [Rule::name] => "a number has digits on both sides of its dot",
        (_, ".") if found.after.starts_with(|c: char| c.is_ascii_digit()) => {
            "a number has digits on both sides of its dot"
        }
        ("return", _) => "the last expression of a body, without `;`, is its value",
        _ => return None,
    };
    Some(help.into())
}

impl super::scan::Token {
    pub fn is_doc(&self) -> bool {
        matches!(self.kind, Kind::Doc | Kind::FileDoc)
    }
}
