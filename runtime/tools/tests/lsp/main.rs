//! An editor's session with the server, over a connection in memory: what is asked, and what is answered.

mod client;

use std::thread;

use client::{Client, TEXT, TOY, at, edited, marked_by, position, text_of};
use serde_json::{Value, json};

#[test]
fn hover_says_what_the_checker_found() {
    let mut client = Client::start();
    client.open(TOY, TEXT);
    assert_eq!(client.diagnostics(), (TOY.into(), vec![]));
    let norm = "norm: RmsNorm(hidden, 1e-5)\nblock RmsNorm(width: dim, eps: float)\n\
                fn (x: F[.., width]) -> F[.., width]\n// here: F[B, S, hidden]";
    let scale = "let scale = if kind == \"long\" { long.factor } else { 1.0 }\n// scale: float";
    for (place, expected, doc) in [
        ("let ^y =", "let y: F[B, S, hidden]", ""),
        ("twice(y^ *", "let y: F[B, S, hidden]", ""),
        ("y ^* scale", "F[B, S, hidden]", ""),
        ("F[B, S, hid^den]", "hidden: dim = \"hidden\"", "Width of the stream."),
        ("y * sca^le", scale, ""),
        ("= no^rm(x)", norm, ""),
        ("twi^ce(y", "op twice(x: F[.., N]) -> F[.., N]\n// here: F[B, S, hidden]", "Twice."),
        ("depth:  di^m", "dim", "a positive integer, usable in shapes"),
        ("tokens: i^32[B", "i32", "32-bit integer"),
        ("norm(x^);", "x: Hidden\n// x: F[B, S, hidden]", ""),
    ] {
        let hover = client.at("textDocument/hover", TEXT, place, json!({}));
        let doc = if doc.is_empty() { String::new() } else { format!("\n\n{doc}") };
        assert_eq!(text_of(&hover["contents"]["value"]), format!("```mgraph\n{expected}\n```{doc}"), "{place}");
    }
    let nothing = client.at("textDocument/hover", TEXT, "type ^Hidden = ", json!({}));
    assert_eq!(marked_by(TEXT, &nothing["range"]), "Hidden");
    let nothing = client.at("textDocument/hover", TEXT, "fam^ily toy", json!({}));
    assert_eq!(nothing, Value::Null);
    assert!(client.finish());
}

#[test]
fn definitions_lie_in_the_text_and_in_the_prelude() {
    let mut client = Client::start();
    client.open(TOY, TEXT);
    for (place, file, line) in [
        ("norm(x^);", "toy", "fn (x: Hidden) -> Hidden {"),
        ("twice(y * sca^le)", "toy", "let scale = if kind == \"long\" { long.factor } else { 1.0 }"),
        ("layer.{i^}", "toy", "block Layer(i: int) {"),
        ("{ long.fac^tor", "toy", "factor: float = \"factor\""),
        ("tokens.log^its(", "prelude", "fn logits(x: F[.., width]) -> F[.., count]"),
        ("norm: Rms^Norm", "prelude", "block RmsNorm(width: dim, eps: float) {"),
        ("rows^_at(", "prelude", "op rows_at("),
    ] {
        let found = client.at("textDocument/definition", TEXT, place, json!({}));
        let uri = text_of(&found["uri"]);
        assert!(uri.ends_with(&format!("/{file}.mgraph")), "{place}: {uri}");
        let text = match uri.strip_prefix("file://") {
            Some(path) if file == "prelude" => std::fs::read_to_string(path).expect("the prelude lies there"),
            _ => TEXT.to_string(),
        };
        let line_found = found["range"]["start"]["line"].as_u64().and_then(|n| text.lines().nth(n as usize));
        assert!(line_found.is_some_and(|l| l.trim().starts_with(line)), "{place}: {line_found:?}");
    }
    let nothing = client.at("textDocument/definition", TEXT, "1e^-5", json!({}));
    assert_eq!(nothing, Value::Null);
    assert!(client.finish());
}

#[test]
fn names_are_found_and_renamed() {
    let mut client = Client::start();
    client.open(TOY, TEXT);
    let context = json!({ "context": { "includeDeclaration": true } });
    let found = client.at("textDocument/references", TEXT, "Layer(i^: int)", context);
    let found: Vec<&str> = found.as_array().unwrap().iter().map(|l| marked_by(TEXT, &l["range"])).collect();
    assert_eq!(found, ["i", "i"]);
    let edits = client.at("textDocument/rename", TEXT, "op twi^ce", json!({ "newName": "doubled" }));
    let edits = edits["changes"][TOY].as_array().unwrap();
    assert_eq!(edits.iter().map(|e| marked_by(TEXT, &e["range"])).collect::<Vec<_>>(), ["twice", "twice"]);
    assert!(edits.iter().all(|e| e["newText"] == "doubled"));
    for (place, name, expected) in [
        ("op twi^ce", "in", "`in` cannot be a name"),
        ("op twi^ce", "softmax", "then `softmax` is defined twice"),
        ("norm: Rms^Norm", "Norm", "`RmsNorm` is defined in the prelude"),
        ("nor^m: RmsNorm", "ln", "`norm` is also the stored name: give that with `as \"norm\"` first"),
        ("graph emb^ed", "begin", "the runtime calls the graph `embed` by this name"),
    ] {
        let (_, said) = client.refusal("textDocument/rename", at(TEXT, place, json!({ "newName": name })));
        assert_eq!(said, expected, "{place}");
    }
    assert!(client.finish());
}

/// The text while one types at `^`, names that are offered there, and names that are not.
#[test]
fn completion_knows_the_place() {
    let mut client = Client::start();
    let typed: &[(&str, &[&str], &[&str])] = &[
        (
            "let y = norm(^x);",
            &["hidden", "scale", "long", "x", "i", "norm", "twice", "linear", "reshape", "sqrt"],
            &["y", "factor", "Layer"],
        ),
        ("let y = norm(long.^);", &["factor"], &["hidden", "x"]),
        ("let y = norm(hid^", &["hidden", "x"], &["y"]),
        ("let y = long.f^", &["factor"], &["hidden"]),
        ("let y = \"^hid", &[], &["hidden"]),
        ("let y = norm(x); // hid^", &[], &["hidden"]),
        ("let y = norm(x) @ \"at.{^}\";", &["i", "hidden"], &["twice", "reshape"]),
    ];
    let placed: &[(&str, &[&str], &[&str])] = &[
        ("tokens.^logits(", &["logits"], &["weight", "hidden"]),
        ("depth:  ^dim", &["dim", "one_of", "index"], &["F", "hidden"]),
        ("Hidden) -> ^Hidden {\n        /*", &["F", "Hidden", "bool"], &["scale", "twice"]),
        ("norm: ^RmsNorm", &["Linear", "RmsNorm", "Q"], &["hidden"]),
        (
            "{ long.factor } else { ^1.0",
            &["hidden", "long", "rope_frequencies", "sqrt"],
            &["twice", "x", "reshape", "linear"],
        ),
        ("\"layer.{^i}\"", &["i", "hidden"], &["twice", "reshape"]),
    ];
    let typed = typed
        .iter()
        .map(|&(marked, yes, no)| (TEXT.replace("let y = norm(x);", &marked.replace('^', "")), marked, yes, no));
    let placed = placed.iter().map(|&(marked, yes, no)| (TEXT.to_string(), marked, yes, no));
    for (text, marked, yes, no) in typed.chain(placed) {
        client.open(TOY, &text);
        let items = client.at("textDocument/completion", &text, marked, json!({}));
        let labels: Vec<String> = items.as_array().unwrap().iter().map(|i| text_of(&i["label"])).collect();
        for name in yes {
            assert!(labels.iter().any(|l| l == name), "{marked}: {name} in {labels:?}");
        }
        for name in no {
            assert!(labels.iter().all(|l| l != name), "{marked}: {name} not in {labels:?}");
        }
    }
    let items = client.at("textDocument/completion", TEXT, "norm(^x)", json!({}));
    let hidden = items.as_array().unwrap().iter().find(|i| i["label"] == "hidden").unwrap();
    assert_eq!(hidden["detail"], "hidden: dim = \"hidden\"");
    assert_eq!(hidden["documentation"]["value"], "Width of the stream.");
    assert!(client.finish());
}

#[test]
fn diagnostics_follow_the_text() {
    let mut client = Client::start();
    client.open(TOY, TEXT);
    assert_eq!(client.diagnostics(), (TOY.into(), vec![]));
    // Behind a letter that takes two UTF-16 units.
    let from = position(TEXT, TEXT.find("norm(x)").unwrap() + "norm(".len());
    let (line, character) = (from["line"].as_u64().unwrap(), from["character"].as_u64().unwrap());
    let to = json!({ "line": line, "character": character + 1 });
    client.change(TOY, json!([{ "range": { "start": from, "end": to }, "text": "z" }]));
    let expected = format!("{line}:{character} mg0101 there is no `z` here");
    assert_eq!(client.diagnostics(), (TOY.into(), vec![expected]));
    let other = "file:///families/other.mgraph";
    client.open(other, "family other for \"other\"\nmodel {");
    let (uri, said) = client.diagnostics();
    assert_eq!((uri.as_str(), said.len()), (other, 1));
    client.change(TOY, json!([{ "text": TEXT }]));
    assert_eq!(client.diagnostics(), (TOY.into(), vec![]));
    client.tell("textDocument/didClose", json!({ "textDocument": { "uri": other } }));
    assert_eq!(client.diagnostics(), (other.into(), vec![]));
    assert!(client.finish());
}

#[test]
fn the_outline_has_items_and_members() {
    let mut client = Client::start();
    client.open(TOY, TEXT);
    let outline = client.ask("textDocument/documentSymbol", json!({ "textDocument": { "uri": TOY } }));
    let names = |list: &Value| list.as_array().unwrap().iter().map(|s| text_of(&s["name"])).collect::<Vec<_>>();
    assert_eq!(
        names(&outline),
        ["toy", "vocab", "hidden", "depth", "kind", "long", "scale", "Hidden", "twice", "Layer", "model"]
    );
    let layer = &outline[9];
    assert_eq!(names(&layer["children"]), ["norm", "fn"]);
    assert!(marked_by(TEXT, &layer["range"]).starts_with("block Layer(i: int) {\n    norm"));
    assert!(marked_by(TEXT, &layer["range"]).ends_with("\"layer.{i}\"\n    }\n}"));
    assert_eq!(marked_by(TEXT, &layer["children"][0]["range"]), "norm: RmsNorm(hidden, 1e-5)");
    assert!(client.finish());
}

#[test]
fn the_prelude_can_be_read_and_mistakes_in_it_are_shown() {
    let mut client = Client::start();
    client.open(TOY, TEXT);
    client.diagnostics();
    let found = client.at("textDocument/definition", TEXT, "norm: Rms^Norm", json!({}));
    let uri = text_of(&found["uri"]);
    let text = std::fs::read_to_string(uri.strip_prefix("file://").unwrap()).unwrap();
    client.open(&uri, &text);
    assert_eq!(client.diagnostics(), (uri.clone(), vec![]));
    client.change(&uri, json!([{ "text": text.replacen("x * sigmoid(x)", "x * sigmoid(y)", 1) }]));
    let (_, said) = client.diagnostics();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].ends_with("mg0101 there is no `y` here"), "{said:?}");
    assert!(client.finish());
}

/// What is wrong is answered with an error, or dropped; the session goes on.
#[test]
fn wrong_messages_are_survived() {
    let mut client = Client::before_initialize();
    assert_eq!(client.refusal("textDocument/hover", json!({})).0, -32002);
    client.initialize();
    client.tell("textDocument/didOpen", json!({ "textDocument": 1 }));
    client.tell("textDocument/didChange", json!([]));
    client.tell("no/such", Value::Null);
    client.change("file:///never/opened", json!([{ "text": "" }]));
    assert_eq!(client.refusal("textDocument/hover", json!({ "position": 7 })).0, -32602);
    assert_eq!(client.refusal("textDocument/hover", at(TEXT, "norm(x^);", json!({}))).0, -32602);
    assert_eq!(client.refusal("no/such", Value::Null).0, -32601);
    client.open(TOY, TEXT);
    assert_eq!(client.diagnostics(), (TOY.into(), vec![]));
    for place in [json!({ "line": 9999, "character": 9999 }), json!({ "line": 0, "character": 9999 })] {
        for method in ["textDocument/hover", "textDocument/completion", "textDocument/definition"] {
            client.ask(method, json!({ "textDocument": { "uri": TOY }, "position": place }));
        }
    }
    let backwards = json!({ "start": { "line": 99, "character": 9 }, "end": { "line": 0, "character": 1 } });
    client.change(TOY, json!([{ "range": backwards, "text": "é" }]));
    assert!(!client.diagnostics().1.is_empty());
    assert!(client.finish());
}

/// `exit` without `shutdown`, and a client that is gone.
#[test]
fn the_end_is_noticed() {
    let client = Client::start();
    client.tell("exit", Value::Null);
    assert!(!client.server.join().unwrap());
    let Client { connection, server, .. } = Client::start();
    drop(connection);
    assert!(!server.join().unwrap());
    thread::yield_now();
}

/// A text near the limit is answered, and one beyond it refused.
#[test]
fn large_texts_do_not_hang() {
    let mut client = Client::start();
    let op = "op name(x: F[.., N]) -> F[.., N] { let y = x * x + F(softmax(f32(x))); y @ \"a.{N}\" }\n";
    for (bytes, code) in [(100_000, None), (1 << 20, Some("mg0011"))] {
        let mut text = TEXT.to_string();
        for i in 0..bytes / op.len() + 1 {
            text += &op.replace("name", &format!("name{i}"));
        }
        client.open(TOY, &text);
        let (_, said) = client.diagnostics();
        assert_eq!(said.len(), usize::from(code.is_some()), "{said:?}");
        assert!(code.is_none_or(|code| said[0].contains(code)), "{said:?}");
        client.at("textDocument/hover", &text, "let ^y = norm", json!({}));
        client.at("textDocument/completion", &text, "let y = ^norm", json!({}));
    }
    assert!(client.finish());
}

/// One edit gives the canonical layout; a text that is broken stays as it is.
#[test]
fn formatting_is_one_edit() {
    let mut client = Client::start();
    let params = json!({ "textDocument": { "uri": TOY }, "options": { "tabSize": 4, "insertSpaces": true } });
    let canonical = mgraph_dsl::format::format("toy.mgraph", TEXT).unwrap();
    for (wrong, right) in [("norm(x);", "norm( x ) ;"), ("depth:  dim", "depth: dim"), ("}\n\nmodel", "}\n\n\n\nmodel")]
    {
        let text = canonical.replacen(wrong, right, 1);
        assert_ne!(text, canonical, "{wrong}");
        client.open(TOY, &text);
        let edits = client.ask("textDocument/formatting", params.clone());
        let [edit] = edits.as_array().unwrap().as_slice() else { panic!("{edits}") };
        let old = marked_by(&text, &edit["range"]);
        assert!(old.lines().count() <= 4, "{old}");
        assert_eq!(edited(&text, edit), canonical, "{right}");
    }
    client.open(TOY, &canonical);
    assert_eq!(client.ask("textDocument/formatting", params.clone()), json!([]));
    client.open(TOY, &canonical.replacen("norm(x)", "norm(x", 1));
    assert_eq!(client.ask("textDocument/formatting", params), Value::Null);
    assert!(client.finish());
}
