//! A place where the grammar gave up, said in the language's words.

use pest::error::{Error, ErrorVariant, InputLocation};

use super::build::Builder;
use super::scan::Kind;
use super::split::Piece;
use super::words::{RESERVED, Rule, begins_expression, follows_expression, is_operator, thing, token};
use crate::diagnostic::{Code, Diagnostic, suggest};

/// `base` is where the text that was parsed begins in the file.
pub fn explain(error: &Error<Rule>, base: usize, piece: &Piece, builder: &Builder<'_>) -> Diagnostic {
    let at = base + offset(error);
    let expected = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives.as_slice(),
        ErrorVariant::CustomError { .. } => &[],
    };
    let found = Found::at(at, piece, builder);
    if found.reserved && found.names_something(expected) {
        let sentence = format!("`{}` is a reserved word, and cannot be a name", found.text);
        return Diagnostic::new(Code::ReservedWord, found.span(builder), sentence).help("choose another name");
    }
    let sentence = format!("expected {}, found {}", list(expected), found.shown());
    let diagnostic = Diagnostic::new(Code::UnexpectedToken, found.span(builder), sentence);
    match hint(expected, &found) {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
}

/// Where the grammar gave up, in the text that it was given.
pub fn offset(error: &Error<Rule>) -> usize {
    let (InputLocation::Pos(at) | InputLocation::Span((at, _))) = error.location;
    at
}

/// The token at a place, and those around it.
struct Found<'a> {
    text: &'a str,
    /// The nearer one first.
    before: [&'a str; 2],
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
            before: [1, 2].map(|back| if index >= piece.tokens.start + back { text_of(index - back) } else { "" }),
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

    /// Whether the author meant the word as a name.
    fn names_something(&self, expected: &[Rule]) -> bool {
        let begins = expected.iter().any(|rule| begins_expression(*rule) && *rule != Rule::name);
        let has = |rules: &[Rule]| rules.iter().any(|rule| expected.contains(rule));
        !begins && has(&[Rule::name, Rule::pattern, Rule::each_names])
            || self.after == ":" && has(&[Rule::setting, Rule::member, Rule::parameter])
    }

    fn shown(&self) -> String {
        if self.at_end_of_file { "the end of the file".into() } else { format!("`{}`", self.text) }
    }
}

/// `a, b or c`
fn list(expected: &[Rule]) -> String {
    let after_expression = expected.iter().any(|rule| is_operator(*rule));
    let before_expression = expected.contains(&Rule::truth) && expected.contains(&Rule::name);
    // After a whole expression the missing `;` is the news, not that another statement could follow it.
    let ends_statement = expected.contains(&Rule::semi);
    let mut words: Vec<String> = Vec::new();
    for &rule in expected {
        let word = match token(rule) {
            _ if after_expression && follows_expression(rule) || ends_statement && rule == Rule::statement => continue,
            _ if before_expression && begins_expression(rule) => "an expression".to_string(),
            Some(text) => format!("`{text}`"),
            None => match thing(rule) {
                Some(thing) => thing.to_string(),
                None => continue,
            },
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    match words.as_slice() {
        [] => "an operator".into(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// What people write who come from other languages.
fn hint(expected: &[Rule], found: &Found<'_>) -> Option<String> {
    let has = |rule| expected.contains(&rule);
    let after_expression = expected.iter().any(|rule| is_operator(*rule));
    let begins_with_digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let help = match (found.before, found.text) {
        (["&", _], "&") => "`&` serves load booleans and boolean tensors alike; there is no `&&`",
        (["|", _], "|") => "`|` serves load booleans and boolean tensors alike; there is no `||`",
        (_, ";" | ",") if has(Rule::setting) || has(Rule::member) => "declarations need no separator",
        (["+" | "-" | "*" | "/" | "%" | "|" | "&", _], "=") => {
            "there is no assignment with an operator: write `name = name + value;`"
        }
        (["*", _], "*") => {
            "there is no power operator: `x * x` is a square, and `pow(x, y)` takes numbers known at load"
        }
        (_, "{") if has(Rule::ended) || has(Rule::semi) => {
            "statements in braces stand behind `if`, `else` and `for`; there is no `while`"
        }
        (_, "as") if after_expression => "a cast is a call, `f32(x)`",
        (_, "=") if has(Rule::statement) => "only a whole variable is assigned, `name = value;`; equality is `==`",
        (_, "=") if after_expression => "equality is `==`",
        (_, ":") if has(Rule::equals) => "a `let` has no type: it has that of its value",
        (
            ["}", _],
            "@" | "." | "+" | "*" | "/" | "%" | "|" | "&" | "==" | "!=" | "<" | "<=" | ">" | ">=" | "<<" | ">>",
        ) if has(Rule::statement) => {
            "an `if` that begins a statement ends at its `}`; put it into parentheses to go on with its value"
        }
        ([".", number], _) if begins_with_digit(number) => "a number has digits on both sides of its dot",
        ([".", _], index) if begins_with_digit(index) => "elements are counted in brackets, `x[0]`",
        (_, ".") if begins_with_digit(found.after) => "a number has digits on both sides of its dot",
        ([word, _], "(") if has(Rule::equals) => {
            return suggest(word, ["one_of", "index"]).map(|near| format!("did you mean `{near}`?"));
        }
        _ if found.reserved && has(Rule::truth) => "this word is reserved",
        _ => return None,
    };
    Some(help.into())
}

impl super::scan::Token {
    pub fn is_doc(&self) -> bool {
        matches!(self.kind, Kind::Doc | Kind::FileDoc)
    }
}
