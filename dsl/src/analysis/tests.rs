//! What an editor is told about a text: names, types, what is visible, also while the text is broken.

use super::*;

const TEXT: &str = r#"//! A toy.
family toy for "toy"

config {
    vocab:  dim = "vocab"
    /// Width of the stream.
    hidden: dim = "hidden"
    heads:  dim = "heads"            // per layer
    depth:  dim = "depth"
    kind:   one_of("plain", "long") = "kind"
    section long = "rope" if kind == "long" {
        factor: float = "factor"
    }
    let width = hidden / heads
    let scale = if kind == "long" { long.factor } else { 1.0 }
    let table = rope_frequencies(width, scale)
}

type Hidden = F[B, S, hidden]

/// Twice.
op twice(x: F[.., N], times: float = 2.0) -> F[.., N] { F(N) * x * F(times) }

block Layer(i: int) {
    norm: RmsNorm(hidden, 1e-5)
    fn (x: Hidden) -> Hidden {
        let y = norm(x);
        let mut sum = y + twice(y, times = 3.0);
        for turn in 0..i {
            sum = sum + y;
        }
        sum @ "layer.{i}"
    }
}

model {
    embed_tokens: Embedding(vocab, hidden)
    layers: [Layer(i) for i in 0..depth]
    graph embed(tokens: i32[B, S]) -> Hidden { embed_tokens(tokens) @ "embed" }
    graph forward(mut x: Hidden, positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {
        for layer in layers { x = layer(x); }
        embed_tokens.logits(rows_at(x, wanted))
    }
}
"#;

/// The offset of `^` in the one place of the text where `marked` stands without it.
#[track_caller]
fn offset(text: &str, marked: &str) -> u32 {
    let (before, after) = marked.split_once('^').expect("a marker");
    let whole = format!("{before}{after}");
    assert_eq!(text.matches(&whole).count(), 1, "{whole:?} stands once");
    (text.find(&whole).unwrap() + before.len()) as u32
}

#[test]
fn names_mean_their_definitions() {
    let toy = analyze("toy.mgraph", TEXT);
    assert_eq!(toy.diagnostics, []);
    for (place, expected) in [
        ("hidden / h^eads", "heads:  dim = \"heads\" · per layer"),
        ("let width = hid^den", "hidden: dim = \"hidden\" · Width of the stream."),
        ("{ long.f^actor", "factor: float = \"factor\""),
        ("{ lo^ng.factor", "section long = \"rope\" if kind == \"long\""),
        ("= rope_freq^uencies(", "op rope_frequencies(width: dim, theta: float) -> [float; width / 2]"),
        ("x: Hid^den) -> Hidden {\n        let", "type Hidden = F[B, S, hidden]"),
        ("norm: Rms^Norm", "block RmsNorm(width: dim, eps: float)"),
        ("y = no^rm(x)", "norm: RmsNorm(hidden, 1e-5)"),
        ("norm(x^);", "x: Hidden"),
        ("+ twi^ce(y", "op twice(x: F[.., N], times: float = 2.0) -> F[.., N] · Twice."),
        ("twice(y, ti^mes", "times: float = 2.0"),
        ("{ F(N^) * x", "N"),
        ("sum = su^m + y", "sum"),
        ("layer.{i^}", "i: int"),
        ("= lay^er(x)", "layer"),
        ("embed_tokens.log^its", "fn logits(x: F[.., width]) -> F[.., count]"),
        ("in lay^ers {", "layers: [Layer(i) for i in 0..depth]"),
    ] {
        let (_, id) = toy.name_at(offset(TEXT, place)).unwrap_or_else(|| panic!("{place}: no name"));
        let symbol = toy.symbol(id);
        let said = if symbol.declaration.is_empty() { &symbol.name } else { &symbol.declaration };
        let ours = symbol.span.file == toy.file;
        let said = if symbol.doc.is_empty() || !ours { said.clone() } else { format!("{said} · {}", symbol.doc) };
        assert_eq!(said, expected, "{place}");
    }
}

#[test]
fn expressions_have_types() {
    let toy = analyze("toy.mgraph", TEXT);
    for (place, expected) in [
        ("hidden ^/ heads", "int"),
        ("let wid^th", "int = hidden / heads"),
        ("let ta^ble", "[float; hidden / heads / 2]"),
        ("let sc^ale", "float"),
        ("if kind =^= \"long\" { long.factor", "bool"),
        ("let y^ = norm", "F[B, S, hidden]"),
        ("y ^+ twice", "F[B, S, hidden]"),
        ("for la^yer in", "block Layer"),
        ("{ F(N) ^* x", "F[.., N]"),
        ("twice(y, times = 3^.0)", "float"),
        ("rows_at(x,^ wanted)", "F[B, R, hidden]"),
    ] {
        let found = toy.type_at(offset(TEXT, place)).map(|(_, text)| text);
        assert_eq!(found, Some(expected), "{place}");
    }
}

#[test]
fn what_is_visible_depends_on_the_place() {
    let toy = analyze("toy.mgraph", TEXT);
    let visible = |place: &str| -> Vec<String> {
        let names = toy.visible_at(offset(TEXT, place)).into_iter().map(|id| toy.symbol(id).name.clone());
        names.collect()
    };
    let inside = visible("sum @^ \"layer");
    for name in ["hidden", "long", "twice", "linear", "norm", "i", "x", "y", "sum"] {
        assert!(inside.iter().any(|n| n == name), "{name}");
    }
    for name in ["factor", "turn", "embed_tokens", "tokens", "times", "N"] {
        assert!(inside.iter().all(|n| n != name), "{name}");
    }
    assert!(visible("sum = sum ^+ y;").iter().any(|n| n == "turn"));
}

#[test]
fn places_of_a_name() {
    let toy = analyze("toy.mgraph", TEXT);
    let (_, id) = toy.name_at(offset(TEXT, "Layer(i^: int)")).unwrap();
    let places: Vec<&str> = toy.places(id).iter().map(|s| &TEXT[s.start as usize - 1..s.end as usize + 1]).collect();
    assert_eq!(places, ["(i:", ".i ", "{i}"]);
}

/// A text that is being written: what is whole is known.
#[test]
fn broken_texts_are_read_as_far_as_they_go() {
    for (marked, instead) in [
        ("let y = norm(x);", "let y = norm(x;"),
        ("hidden / heads", "hidden / "),
        ("{ long.factor", "{ long. "),
        ("turn in 0..i {\n            sum = sum + y;", "turn in 0..i {\n            sum = f(sum +"),
        ("}\n\nmodel", "model"),
    ] {
        let text = TEXT.replacen(marked, instead, 1);
        assert_ne!(text, TEXT);
        let broken = analyze("toy.mgraph", &text);
        assert!(!broken.diagnostics.is_empty(), "{instead}");
        let (_, id) = broken.name_at(offset(&text, "Embedding(vo^cab")).unwrap_or_else(|| panic!("{instead}"));
        assert_eq!(broken.symbol(id).name, "vocab");
    }
    let mistake = analyze("toy.mgraph", &TEXT.replacen("norm(x)", "norm(z)", 1));
    assert_eq!(mistake.diagnostics.len(), 1);
    assert!(mistake.type_at(offset(TEXT, "rows_at(x,^ wanted)")).is_some());
    analyze("toy.mgraph", "");
    analyze("toy.mgraph", "model");
}

#[test]
fn the_prelude_is_read_alone() {
    let text = check::prelude_sources().get(PRELUDE).text.clone();
    let prelude = analyze_prelude(&text);
    assert_eq!(prelude.diagnostics, []);
    let found = prelude.type_at(offset(&text, "let e^ = exp(x - maximum(x, axis = -1));\n    e / sum(e, axis = -1)"));
    assert_eq!(found.map(|(_, text)| text), Some("f32[.., N]"));
}

#[test]
fn places_are_code_comments_strings_or_holes() {
    for (before, expected) in [
        ("let x = ", Place::Code),
        ("x // a \"b", Place::Comment),
        ("x // a\n", Place::Code),
        ("x /* a /* b */ c", Place::Comment),
        ("x /* a /* b */ c */", Place::Code),
        ("x /*/", Place::Comment),
        ("\"a // b", Place::Text),
        ("\"a \\\" b", Place::Text),
        ("\"a.{", Place::Hole),
        ("\"a.{i}", Place::Text),
        ("\"a.{i}\"", Place::Code),
        ("\"a\n", Place::Code),
        ("a / b", Place::Code),
    ] {
        assert_eq!(place::at(before, before.len()), expected, "{before}");
    }
}

#[test]
fn a_declaration_has_its_strings_and_no_comments() {
    let text = "family toy for \"toy\"\nconfig {\n    // the name\n    kind: name = \"a//b\" /* or */ | \"c\"   // of what\n        else \"d\"\n}\n";
    let analysis = analyze("toy.mgraph", text);
    let kind = analysis.symbols.iter().find(|s| s.name == "kind").expect("a symbol");
    assert_eq!(kind.declaration, "kind: name = \"a//b\" | \"c\" else \"d\"");
}
