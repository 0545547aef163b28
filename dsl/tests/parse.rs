//! The parser reads every `.mgraph` file of the repository, nests as the reference says, and survives any text.

use std::path::{Path, PathBuf};

use mgraph_dsl::ast::{BinaryOp, Expr, ExprKind, FieldType, File, Item, Member, Setting, Slot, Statement};
use mgraph_dsl::diagnostic::{Code, Diagnostic, render, render_plain};
use mgraph_dsl::parser::{RESERVED, parse};
use mgraph_dsl::source::Sources;
use proptest::prelude::*;

fn parse_text(text: &str) -> (Sources, Result<File, Vec<Diagnostic>>) {
    let mut sources = Sources::default();
    let file = sources.add("test.mgraph", text);
    let tree = parse(&sources, file);
    (sources, tree)
}

fn families() -> Vec<PathBuf> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![crate_dir.join("src/prelude.mgraph")];
    for entry in std::fs::read_dir(crate_dir.join("../models/families")).expect("part of the repository") {
        let path = entry.expect("a readable folder").path();
        if path.extension().is_some_and(|end| end == "mgraph") {
            files.push(path);
        }
    }
    files
}

#[test]
fn reads_every_file_of_the_repository() {
    let files = families();
    assert!(files.len() >= 7, "found only {files:?}");
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        let (sources, tree) = parse_text(&text);
        let tree = tree.unwrap_or_else(|errors| panic!("{}:\n{}", path.display(), render(&errors, &sources, false)));
        let is_prelude = path.ends_with("prelude.mgraph");
        assert_eq!(tree.header.is_none(), is_prelude, "{}", path.display());
        assert!(tree.items.len() > 4, "{}", path.display());
    }
}

#[test]
fn line_breaks_mean_nothing() {
    for path in families() {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        let without_comments: Vec<_> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
        let (sources, tree) = parse_text(&without_comments.join(" "));
        assert!(tree.is_ok(), "{}", tree.map_or_else(|errors| render(&errors, &sources, false), |_| String::new()));
    }
}

#[test]
fn keeps_docs_and_names() {
    let (_, tree) = parse_text(
        "//! Toy.\n//!  Indented.\n\nfamily toy for \"toy\" | \"old \\\"toy\\\"\"\n    as \"ToyLM\" | \"OldToy\"\n\n/// Twice\n/// `x`.\nop twice(x: F[..]) -> F[..] { x + x }\n\n/// Empty.\nblock Nothing {}\n",
    );
    let tree = tree.expect("it parses");
    let header = tree.header.expect("it has a header");
    assert_eq!(header.doc, "Toy.\n Indented.");
    assert_eq!(header.model_types[1].node, "old \"toy\"");
    let architectures: Vec<&str> = header.architectures.iter().map(|name| &name.node[..]).collect();
    assert_eq!(architectures, ["ToyLM", "OldToy"]);
    let [Item::Op(op), Item::Block(block)] = tree.items.as_slice() else { panic!("{:?}", tree.items) };
    assert_eq!(op.doc, "Twice\n`x`.");
    assert_eq!(block.doc, "Empty.");
}

/// The tree of an expression, fully parenthesised.
fn shape(text: &str) -> String {
    let (sources, tree) = parse_text(&format!("config {{ let it = {text} }}"));
    let tree = tree.unwrap_or_else(|errors| panic!("{}", render(&errors, &sources, false)));
    let [Item::Config(settings)] = tree.items.as_slice() else { panic!("one config") };
    let [Setting::Let { value, .. }] = settings.as_slice() else { panic!("one let") };
    show(value)
}

fn show(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Name(name) => name.clone(),
        ExprKind::Number(value) => format!("{value:?}"),
        ExprKind::Unary { op, value } => format!("({op:?} {})", show(value)),
        ExprKind::Binary { op, left, right } => format!("({} {:?} {})", show(left), op.node, show(right)),
        ExprKind::MemberOf { value, name } => format!("{}.{}", show(value), name.node),
        ExprKind::Probe { value, name } => format!("({} @ {})", show(value), name.node),
        ExprKind::Call { callee, arguments } => {
            let arguments: Vec<_> = arguments.iter().map(|argument| show(&argument.value)).collect();
            format!("{}({})", show(callee), arguments.join(", "))
        }
        ExprKind::Tuple(values) => format!("tuple({})", values.iter().map(show).collect::<Vec<_>>().join(", ")),
        other => format!("{other:?}"),
    }
}

#[test]
fn nests_by_precedence() {
    for (text, tree) in [
        ("a - b - c", "((a Subtract b) Subtract c)"),
        ("a / b * c", "((a Divide b) Multiply c)"),
        ("a + b * c", "(a Add (b Multiply c))"),
        ("a << b + c", "(a ShiftLeft (b Add c))"),
        ("a & b == c | d", "((a And (b Equal c)) Or d)"),
        ("x in a & !b", "((x In a) And (Not b))"),
        ("-x.y(a, b)", "(Negate x.y(a, b))"),
        ("x + f(y) @ \"p\"", "(x Add (f(y) @ p))"),
        ("(a + b) * (c, d)", "((a Add b) Multiply tuple(c, d))"),
        ("inside + in_b", "(inside Add in_b)"),
    ] {
        assert_eq!(shape(text), tree, "{text}");
    }
    assert_eq!(shape("1_000"), "Int(1000)");
    assert_eq!(shape("1e3"), "Float(1000.0)");
}

#[test]
fn spans_are_tight() {
    let text = "config { let it = ( a  +  b /* c */ ) * d /* e */\n if f }";
    let (sources, tree) = parse_text(text);
    let tree = tree.expect("it parses");
    let [Item::Config(settings)] = tree.items.as_slice() else { panic!("one config") };
    let [Setting::Let { value, condition: Some(condition), .. }] = settings.as_slice() else { panic!("one let") };
    assert_eq!(sources.text(value.span), "( a  +  b /* c */ ) * d");
    assert_eq!(sources.text(condition.span), "f");
}

#[test]
fn tells_statements_apart() {
    let (sources, tree) = parse_text(
        "block B { layers: [L(i) for i in 0..n] fn (x: H) { if c { x = y; } seen.push(x); for i, l in layers { l(x); } let (a, _) = x[.., 0..n, _, 3]; if c { a } else { b } } }",
    );
    let tree = tree.unwrap_or_else(|errors| panic!("{}", render(&errors, &sources, false)));
    let [Item::Block(block)] = tree.items.as_slice() else { panic!("one block") };
    let [Member::Field { ty: FieldType::Array { .. }, .. }, Member::Function { signature, span, .. }] =
        block.members.as_slice()
    else {
        panic!("{:?}", block.members)
    };
    assert_eq!(sources.text(*span), "fn");
    let [Statement::If(_), Statement::Push { .. }, Statement::For { index: Some(_), .. }, Statement::Let { value, .. }] =
        signature.body.statements.as_slice()
    else {
        panic!("{:?}", signature.body.statements)
    };
    let ExprKind::Subscript { slots, .. } = &value.kind else { panic!("{value:?}") };
    assert!(matches!(slots.as_slice(), [Slot::Rest(_), Slot::Range(..), Slot::Whole(_), Slot::At(_)]));
    assert!(matches!(signature.body.value.as_deref().map(|value| &value.kind), Some(ExprKind::If { .. })));
}

#[test]
fn nesting_is_bounded_and_linear() {
    let nested = |open: &str, inside: &str, close: &str, n: usize| {
        format!("op f() -> F {{ {}{inside}{} }}", open.repeat(n), close.repeat(n))
    };
    let forms: &[(&str, &str, &str)] = &[
        ("(", "a", ")"),
        ("[", "a", "]"),
        ("x[", "a", "]"),
        ("f(", "a", ")"),
        ("f(a = ", "a", ")"),
        ("if a { ", "b", " } else { c }"),
        ("if ", "a", "{ b } else { c }"),
        ("if a + if ", "a", "{ b } else { c } { d } else { e }"),
        ("[", "a", " for i in [0..1]]"),
        ("for i in 0..n { ", "a;", " }"),
    ];
    for (open, inside, close) in forms {
        for n in [20, 30, 60, 1000] {
            // Broken texts in the middle are where a grammar that reads twice would take for ever.
            for inside in [inside, "let", "a a", ""] {
                let _ = parse_text(&nested(open, inside, close, n));
            }
        }
        let errors = parse_text(&nested(open, inside, close, 1000)).1.expect_err("too deep");
        assert_eq!(errors[0].code, Code::NestedTooDeep, "{open}");
    }
    for n in [1000, 8000] {
        for text in [
            nested("!", "a", "", n),
            nested("-", "a", "", n),
            nested("a + ", "a", "", n),
            nested("", "a", ".b", n),
            nested("", "a", "(b)", n),
            nested("if a { b } else ", "{ c }", "", n),
        ] {
            let errors = parse_text(&text).1.expect_err("too deep");
            assert_eq!(errors[0].code, Code::NestedTooDeep);
        }
    }
    assert!(parse_text(&nested("/*", "", "*/", 100_000)).1.is_err());
    assert!(parse_text(&nested("(", "a", ")", 60)).1.is_ok());
    assert!(parse_text(&nested("a + ", "a", "", 100)).1.is_ok());
}

#[test]
fn every_broken_item_is_reported() {
    let (_, tree) = parse_text("op a() -> { }\nblock B { x }\ntype C = F[\nop d() -> F { 1 }\nblok E {}\n");
    let errors = tree.expect_err("it is broken");
    assert_eq!(
        errors.iter().map(|error| error.code).collect::<Vec<_>>(),
        [Code::UnexpectedToken, Code::UnexpectedToken, Code::UnclosedBracket, Code::UnexpectedToken]
    );
}

#[test]
fn reserved_words_name_nothing() {
    for word in RESERVED {
        let errors = parse_text(&format!("op {word}() -> F {{ 1 }}")).1.expect_err(word);
        assert!(matches!(errors[0].code, Code::ReservedWord | Code::UnexpectedToken), "{word}: {errors:?}");
    }
    for word in ["ulp", "of", "sum", "lets", "in_", "push"] {
        assert!(parse_text(&format!("op {word}() -> F {{ {word} }}")).1.is_ok(), "{word}");
    }
}

/// Parsing, and showing what is wrong, must end without a panic.
fn survives(text: &str) {
    let (sources, tree) = parse_text(text);
    if let Err(errors) = tree {
        assert!(!errors.is_empty());
        for error in &errors {
            assert!(!error.message.is_empty());
            render_plain(error, &sources);
        }
        render(&errors[..errors.len().min(3)], &sources, false);
    }
}

#[test]
fn survives_truncation_and_missing_tokens() {
    for path in families() {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        for at in (0..text.len()).step_by(701).filter(|at| text.is_char_boundary(*at)) {
            survives(&text[..at]);
            let next = text[at..].find([' ', '\n']).map_or(text.len(), |length| at + length);
            survives(&format!("{}{}", &text[..at], &text[next..]));
        }
    }
}

const WORDS: &[&str] = &[
    "family",
    "config",
    "section",
    "limit",
    "require",
    "processor",
    "numerics",
    "contract",
    "type",
    "op",
    "block",
    "model",
    "state",
    "graph",
    "fn",
    "let",
    "mut",
    "for",
    "in",
    "if",
    "else",
    "as",
    "ignore",
    "fused",
    "when",
    "within",
    "true",
    "one_of",
    "index",
    "x",
    "y",
    "F",
    "_",
    "push",
    "ulp",
    "of",
    "sum",
    "1",
    "0.5",
    "1e400",
    "99999999999999999999",
    "\"s\"",
    "\"\\q\"",
    "\"",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    ";",
    ".",
    "..",
    "=",
    "==",
    "->",
    "::",
    "|",
    "&",
    "+",
    "-",
    "*",
    "/",
    "@",
    "!",
    "<<",
    "/*",
    "*/",
    "//",
    "///",
    "\n",
    "é",
    "#",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn survives_any_text(text in "\\PC{0,200}") {
        survives(&text);
    }

    #[test]
    fn survives_token_soup(words in prop::collection::vec(prop::sample::select(WORDS), 0..80)) {
        survives(&words.join(" "));
    }

    #[test]
    fn survives_soup_inside_items(
        frame in prop::sample::select(&["op f(@) -> F { 1 }", "op f() -> F { @ }", "block B { @ }", "config { @ }", "type T = @"][..]),
        words in prop::collection::vec(prop::sample::select(WORDS), 0..30),
    ) {
        survives(&frame.replace('@', &words.join(" ")));
    }
}

#[test]
fn operators_know_their_place() {
    let (sources, tree) = parse_text("config { require a % b == 0 }");
    let tree = tree.expect("it parses");
    let [Item::Config(settings)] = tree.items.as_slice() else { panic!("one config") };
    let [Setting::Require { condition }] = settings.as_slice() else { panic!("one require") };
    let ExprKind::Binary { op, .. } = &condition.kind else { panic!("{condition:?}") };
    assert_eq!((op.node, sources.text(op.span)), (BinaryOp::Equal, "=="));
}

/// A recovery that guesses wrong blanks out what a mistake needs, and may never make one up or go on for ever.
#[test]
fn one_mistake_is_said_once() {
    for path in families() {
        let text = std::fs::read_to_string(&path).expect("a readable file");
        let places: Vec<_> = text.match_indices([';', ',', '=', ':']).map(|(at, _)| at).collect();
        for at in places.into_iter().step_by(41) {
            let broken = format!("{}{}", &text[..at], &text[at + 1..]);
            if let Err(errors) = parse_text(&broken).1 {
                assert!(errors.len() <= 2, "{}: without the mark at {at}: {errors:?}", path.display());
            }
        }
    }
}

#[test]
fn many_mistakes_end() {
    let (_, tree) = parse_text(&format!("block B {{ {} }}", "let x = + \n".repeat(10_000)));
    assert_eq!(tree.expect_err("it is broken").len(), 21);
}
