//! Formatting changes no tree, loses no comment, and has nothing more to do the second time.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use mgraph_dsl::format::format;
use mgraph_dsl::parser::parse;
use mgraph_dsl::source::Sources;
use proptest::prelude::*;

/// The `.mgraph` files below a folder of the repository.
fn files_below(folder: &str) -> Vec<PathBuf> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("the folder is part of the repository") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|end| end == "mgraph") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    found.sort();
    found
}

/// Files that are to be read as they are; those below `tests/ui` are wrong on purpose and carry marks.
fn files() -> Vec<PathBuf> {
    ["src", "../models/families", "../tests/families", "../examples"].map(files_below).concat()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a readable file")
}

/// The tree without its places, or `None` if the text has none.
fn tree(text: &str) -> Option<String> {
    let mut sources = Sources::default();
    let file = sources.add("test.mgraph", text);
    let shown = format!("{:#?}", parse(&sources, file).ok()?);
    let mut depth_of_span = None;
    let mut out = String::new();
    for line in shown.lines() {
        let depth = line.len() - line.trim_start().len();
        match depth_of_span {
            Some(span) if depth > span => {}
            Some(_) => depth_of_span = None,
            None if line.ends_with("Span {") => depth_of_span = Some(depth),
            None => {
                out += line;
                out.push('\n');
            }
        }
    }
    Some(out)
}

/// The text cut at strings and comments: what it is, and whether it is a comment.
fn parts(text: &str) -> Vec<(&str, bool)> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(['"', '/']) {
        let from = &rest[start..];
        let (length, is_comment) = if from.starts_with("//") {
            (from.find('\n').unwrap_or(from.len()), true)
        } else if from.starts_with("/*") {
            (from.find("*/").expect("comments of these tests end, and hold no other") + 2, true)
        } else if let Some(string) = from.strip_prefix('"') {
            (string.replace("\\\"", "__").find('"').expect("strings end") + 2, false)
        } else {
            (1, false)
        };
        parts.extend([(&rest[..start], false), (&from[..length], is_comment)]);
        rest = &from[length..];
    }
    parts.push((rest, false));
    parts
}

fn comments(text: &str) -> Vec<String> {
    let comments = parts(text).into_iter().filter(|(_, is_comment)| *is_comment);
    comments.map(|(comment, _)| comment.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")).collect()
}

fn without_comments(text: &str) -> String {
    parts(text).into_iter().map(|(part, is_comment)| if is_comment { " " } else { part }).collect()
}

/// Formats a text that has a tree, and holds the promises of this file.
fn formatted(text: &str) -> String {
    let once = format("test.mgraph", text).unwrap_or_else(|failed| panic!("{failed}\n{text}"));
    assert_eq!(tree(&once), tree(text), "the tree changed:\n{text}\n---- became\n{once}");
    assert_eq!(comments(&once), comments(text), "comments changed:\n{text}\n---- became\n{once}");
    let twice = format("test.mgraph", &once).unwrap_or_else(|failed| panic!("{failed}\n{once}"));
    for (first, second) in once.lines().zip(twice.lines()) {
        assert_eq!(second, first, "the second time changes more:\n{once}\n---- from\n{text}");
    }
    assert_eq!(twice, once);
    once
}

#[test]
fn the_files_of_the_repository_are_formatted() {
    let files = files();
    assert!(files.len() >= 8, "found only {files:?}");
    let bless = std::env::var_os("MGRAPH_BLESS").is_some();
    let mut wrong = Vec::new();
    for path in files {
        let text = read(&path);
        let formatted = formatted(&text);
        if bless && formatted != text {
            std::fs::write(&path, formatted).expect("a writable file");
        } else if formatted != text {
            wrong.push(path);
        }
    }
    assert!(wrong.is_empty(), "not formatted: {wrong:?}\nMGRAPH_BLESS=1 formats them");
}

#[test]
fn every_text_keeps_its_tree() {
    let mut count = 0;
    for path in [files(), files_below("tests/ui")].concat() {
        let text = read(&path);
        if tree(&text).is_some() {
            formatted(&text);
            count += 1;
        }
    }
    assert!(count > 50, "only {count} files have a tree");
}

/// As a macro sees it: on one line, without comments.
#[test]
fn a_text_on_one_line_becomes_readable() {
    for path in files() {
        let text = without_comments(&read(&path));
        let tokens = proc_macro2::TokenStream::from_str(&text).expect("Rust tokens").to_string();
        let out = formatted(&tokens.replace('\n', " "));
        // Docs are part of the tree, and comments here.
        assert_eq!(tree(&out), tree(&text), "{}", path.display());
        let longest = out.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(120), "{} has a line of {longest:?} columns:\n{out}", path.display());
    }
}

#[test]
fn mistakes_are_reported_and_nothing_is_written() {
    let failed = format("broken.mgraph", "config { hidden dim = \"hidden_size\" }\n").expect_err("it is broken");
    assert!(failed.to_string().contains("broken.mgraph:1:17"), "{failed}");
}

#[test]
fn deep_texts_are_formatted() {
    for (open, inside, close, count) in [
        ("(", "a", ")", 60),
        ("f(", "a", ")", 60),
        ("x[", "a", "]", 60),
        ("[a, ", "a", "]", 60),
        ("f(b, ", "a", ", c)", 60),
        ("if a { ", "b", " } else { c }", 60),
        ("a + ", "a", "", 100),
        ("!", "a", "", 200),
    ] {
        formatted(&format!("op f() -> F {{ {}{inside}{} }}", open.repeat(count), close.repeat(count)));
    }
}

/// Text before, and after.
const CASES: &[(&str, &str)] = &[
    // Columns: names and short types of config, types and places of blocks.
    (
        "config { a: dim=\"a\"\nlonger : float = \"b\"|\"c\" else 1e-5 if  a>1\nkind: one_of(\"x\",\"y\",) = \"k\"}",
        "config {\n    a:      dim   = \"a\"\n    longer: float = \"b\" | \"c\" else 1e-5 if a > 1\n    kind:   one_of(\"x\", \"y\") = \"k\"\n}\n",
    ),
    (
        "block B { a: F[n] as \"x\" + \"y\"[0 .. n] if c\n bc: Linear(n,m) as \"z\" if c\n d: [L(i) for i in 0..n]\n e: F[n] if c }",
        "block B {\n    a:  F[n]         as \"x\" + \"y\"[0..n] if c\n    bc: Linear(n, m) as \"z\"             if c\n    d:  [L(i) for i in 0..n]\n    e:  F[n]         if c\n}\n",
    ),
    (
        "type A=F[..]\ntype Long = (F[n], [float; 2])\n\ntype B = F",
        "type A    = F[..]\ntype Long = (F[n], [float; 2])\n\ntype B = F\n",
    ),
    // Short bodies stay on their line where the author wrote them so.
    ("op f(x: F) -> F {\nx }", "op f(x: F) -> F {\n    x\n}\n"),
    ("op f(x: F) -> F {x}op g() -> F{let y=1;y}", "op f(x: F) -> F { x }\nop g() -> F { let y = 1; y }\n"),
    (
        "op f(x: F) -> F { if a { b } else if c { d } else {\ne } }",
        "op f(x: F) -> F {\n    if a { b } else if c { d } else {\n        e\n    }\n}\n",
    ),
    ("block A {}\nblock B { state x: F[B] }", "block A {}\nblock B { state x: F[B] }\n"),
    // A definition of several lines stands apart.
    (
        "block A { w: F[n]\n/// Doc.\nfn (x: F) -> F {\nx }\nfn g() {} }\nop f() -> F { 1 }",
        "block A {\n    w: F[n]\n\n    /// Doc.\n    fn (x: F) -> F {\n        x\n    }\n\n    fn g() {}\n}\n\nop f() -> F { 1 }\n",
    ),
    // Twins, and the brace below them.
    (
        "op f(x: F) -> F fused mlx fast::f(x,eps=1) when a&b within 1e-5 of sum fused hlo g(x) within 4 ulp { x }",
        "op f(x: F) -> F\n    fused mlx fast::f(x, eps = 1) when a & b within 1e-5 of sum\n    fused hlo g(x) within 4 ulp\n{\n    x\n}\n",
    ),
    // Comments stay beside or above what they are about; those beside stand below each other.
    (
        "// top\n\n\n\nop f() -> F { // why\n\n  // first\n  let a = 1; // one\n  let bb = a; /* two */\n\n\n  bb /* value */ + 1\n  // last\n}\n// end",
        "// top\n\nop f() -> F {  // why\n    // first\n    let a = 1;   // one\n    let bb = a;  /* two */\n\n    bb /* value */ + 1\n    // last\n}\n\n// end\n",
    ),
    (
        "op f() -> F { g(a, // one\n b, // two\n) }",
        "op f() -> F {\n    g(\n        a,  // one\n        b,  // two\n    )\n}\n",
    ),
    ("config { /* a\n     b */ require a }", "config {\n    /* a\n     b */\n    require a\n}\n"),
    // Spelling stays.
    (
        "config { let x = ((a)) * 1_000 + 1e-5 - -b @ \"p\" + c[.., 0 .. n, _] << !d.e(f = (1, 2,)) }",
        "config { let x = ((a)) * 1_000 + 1e-5 - -b @ \"p\" + c[.., 0..n, _] << !d.e(f = (1, 2)) }\n",
    ),
    (
        "family f for\"f\"|\"g\" numerics { tf32 forbid contraction forbid }\ncontract { \"a.*\" rms 1\n\"*\" rms 2 max_abs 3 }\nprocessor p(a=\"b\")\nmodel as \"\"|\"m\" {ignore\"x\"}",
        "family f for \"f\" | \"g\"\nnumerics { tf32 forbid contraction forbid }\ncontract {\n    \"a.*\" rms 1\n    \"*\"   rms 2 max_abs 3\n}\nprocessor p(a = \"b\")\nmodel as \"\" | \"m\" { ignore \"x\" }\n",
    ),
];

#[test]
fn says_what_the_style_is() {
    for (before, after) in CASES {
        assert_eq!(formatted(before), *after, "\n{before}");
    }
}

#[test]
fn long_lines_break() {
    let long = "a_rather_long_name_of_something";
    for (text, expected) in [
        (
            format!("op f() -> F {{ let x = g({long}, {long}, {long}, {long}) * 2; x }}"),
            format!(
                "op f() -> F {{\n    let x = g(\n        {long},\n        {long},\n        {long},\n        {long},\n    )\n        * 2;\n    x\n}}\n"
            ),
        ),
        (
            format!("op f() -> F {{ let x = g(h({long}, {long}, {long}, 1, 2, 3)); x }}"),
            format!("op f() -> F {{\n    let x = g(h(\n        {long}, {long}, {long}, 1, 2, 3\n    ));\n    x\n}}\n"),
        ),
        (
            format!("op f() -> F {{ {long} * {long} + {long} * {long} }}"),
            format!("op f() -> F {{\n    {long} * {long}\n        + {long} * {long}\n}}\n"),
        ),
        (
            format!("op f(x: F) -> F {{ x = if {long} {{ {long}(x) }} else {{ {long}({long}) }}; }}"),
            format!("op f(x: F) -> F {{\n    x = if {long} {{ {long}(x) }}\n        else {{ {long}({long}) }};\n}}\n"),
        ),
        (
            format!("op f({long}: F[B, S], {long}_too: F[B, S]) -> (F[B, S], F[B, S], F[B, S]) {{ x }}"),
            format!("op f({long}: F[B, S], {long}_too: F[B, S])\n    -> (F[B, S], F[B, S], F[B, S])\n{{\n    x\n}}\n"),
        ),
    ] {
        assert_eq!(formatted(&text), expected, "\n{text}");
    }
}

/// The items of the families, without comments.
fn items() -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    for path in files() {
        for line in without_comments(&read(&path)).lines() {
            match items.last_mut() {
                Some(item) if !line.starts_with(|first: char| first.is_ascii_lowercase()) => {
                    *item += &format!("\n{line}")
                }
                Some(_) | None => items.push(line.to_string()),
            }
        }
    }
    items.retain(|item| tree(item).is_some());
    items
}

/// What may stand between two tokens.
const BETWEEN: &[&str] = &[
    " ",
    "  ",
    "\n",
    "\n\n\n",
    " // beside\n",
    "\n// above\n",
    "\n\n/// doc\n",
    " /* in */ ",
    "\n/* own */\n",
    " /* a\n  b */ ",
];

/// An expression of every form.
fn expressions() -> impl Strategy<Value = String> {
    let leaf =
        prop::sample::select(&["a", "b.c", "1", "0.5", "\"s\"", "true", "long_name_of_a_value", "f()", "[]"][..]);
    leaf.prop_map(String::from).prop_recursive(5, 60, 4, |inner| {
        let operators = &["|", "&", "==", "<", "in", "<<", "+", "-", "*", "%"][..];
        prop_oneof![
            (inner.clone(), prop::sample::select(operators), inner.clone())
                .prop_map(|(a, op, b)| format!("({a}) {op} {b}")),
            inner.clone().prop_map(|a| format!("-({a})")),
            inner.clone().prop_map(|a| format!("({a}) @ \"layer.{{i}}\"")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}, {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("f({a}, axis = {b},)")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("x[.., 0..{a}, _, {b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a} for i, x in {b} for _ in 0..2]")),
            prop::collection::vec(inner.clone(), 1..6).prop_map(|all| format!("[{}]", all.join(", "))),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("if {a} {{ {b} }} else if q {{ let y = {c}; y }} else {{ {c} }}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_layout_of_an_item(
        item in prop::sample::select(items()),
        seed in 0usize..100,
        between in prop::collection::vec(prop::sample::select(BETWEEN), 1..40),
    ) {
        let mut between = between.iter().cycle();
        let mut out = String::new();
        for (index, part) in parts(&item).into_iter().enumerate() {
            // Blanks between tokens, but not those inside of strings.
            for word in part.0.split_inclusive(char::is_whitespace) {
                let is_mixed = !part.0.starts_with('"') && (index * 7 + word.len() + seed) % 5 < 2;
                match word.strip_suffix(char::is_whitespace) {
                    Some(word) if is_mixed => out += &format!("{word}{}", between.next().expect("a cycle")),
                    Some(_) | None => out += word,
                }
            }
        }
        formatted(&out);
    }

    #[test]
    fn any_expression(value in expressions(), indent in 0usize..3) {
        let (open, close) = ("for i in 0..n { ".repeat(indent), " }".repeat(indent));
        let text = format!("op f(x: F) -> F {{ {open}let y = {value}; if c {{ y }} else {{ {value} }}{close} }}");
        prop_assume!(tree(&text).is_some());
        formatted(&text);
    }
}
