//! Snippets: fences that begin with `mgraph`. Words behind it say what the text is:
//!
//! | fence | the text is |
//! | --- | --- |
//! | `mgraph` | a whole family |
//! | `mgraph,config` | what stands in `config { .. }` |
//! | `mgraph,items` | ops, blocks, types of a family |
//! | `mgraph,members` | members of the model |
//! | `mgraph,body` | statements of an `fn (x: F[B, S, hidden], positions: i32[B, S])` of a block |
//! | `.. fails=mg0303` | wrong, with exactly this code |
//! | `.. in=PATH` | items that stand instead of those of the same name in that family |
//!
//! A comment `<!-- context .. -->` holds items that the snippets after it need, until the next one. What a family needs besides
//! (header, config, model) is added.

use std::{collections::BTreeSet, path::Path};

use mgraph_dsl::{
    analysis::{SymbolKind, analyze},
    compile_text,
    diagnostic::Code,
};

use crate::{END, pages, root};

const CONFIG: &str = "config {\n    vocab:  dim = \"vocab_size\"\n    hidden: dim = \"hidden_size\"\n}\n";

#[derive(Debug)]
struct Snippet {
    line: usize,
    words: Vec<String>,
    text: String,
    context: String,
}

/// The fences of a page; what is included is read, what is printed is left to the tests of its source.
fn snippets(page: &Path) -> Vec<Snippet> {
    let text = std::fs::read_to_string(page).expect("a readable page");
    let mut found = Vec::new();
    let mut context = String::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if line.starts_with("<!-- printed:") {
            lines.by_ref().find(|(_, line)| *line == END.trim_end());
        } else if line == "<!-- context" {
            context =
                lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "-->").fold(String::new(), joined);
        } else if let Some(info) = line.trim_start().strip_prefix("```mgraph") {
            let indent = line.len() - line.trim_start().len();
            let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim_start() != "```");
            let text = inside.map(|line| line.get(indent..).unwrap_or_default()).fold(String::new(), joined);
            let words = info.split(',').skip(1).map(str::to_string).collect();
            found.push(Snippet { line: at + 1, words, text: included(page, &text), context: context.clone() });
        }
    }
    found
}

fn joined(text: String, line: &str) -> String {
    text + line + "\n"
}

/// With `{{#include PATH}}` read.
fn included(page: &Path, text: &str) -> String {
    let Some(path) = text.trim().strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}")) else {
        return text.to_string();
    };
    let path = page.parent().expect("a page lies in a folder").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The family that a snippet is part of.
fn whole(snippet: &Snippet) -> Result<String, String> {
    let mut text = snippet.text.clone();
    let mut model = String::new();
    let mut base = None;
    for word in &snippet.words {
        match word.as_str() {
            "config" => text = format!("config {{\n{text}}}\n"),
            "items" => {}
            "members" => model = std::mem::take(&mut text),
            "body" => {
                let signature = "fn (x: F[B, S, hidden], positions: i32[B, S]) -> F[B, S, hidden]";
                text = format!("block Snippet {{\n{signature} {{\n{text}\nx\n}}\n}}\n");
            }
            word => match word.split_once('=') {
                Some(("fails", _)) => {}
                Some(("in", path)) => base = Some(path),
                Some(_) | None => return Err(format!("`{word}` is no word for a fence")),
            },
        }
    }
    if let Some(path) = base {
        return within(path, &text);
    }
    if snippet.words.iter().all(|word| word.starts_with("fails=")) {
        return Ok(text);
    }
    let text = format!("family snippet for \"snippet\"\n{}{text}", snippet.context);

    let config = if snippet.context.is_empty() { CONFIG } else { "" };
    let written = text.lines().any(|line| line.starts_with("model "));
    let model = if written { String::new() } else { default_model(&model) };
    Ok(format!("{text}{config}{model}"))
}

fn default_model(members: &str) -> String {
    format!(
        "model {{\n    snippet_table: Embedding(vocab, hidden)\n{members}
    graph embed(tokens: i32[B, S]) -> F[B, S, hidden] {{ snippet_table(tokens) }}
    graph forward(x: F[B, S, hidden], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {{
        snippet_table.logits(rows_at(x, wanted))
    }}
}}
"
    )
}

/// The family at `path`, in which the items of `text` replace those of the same name.
fn within(path: &str, text: &str) -> Result<String, String> {
    let mut family = std::fs::read_to_string(root().join(path)).map_err(|e| format!("{path}: {e}"))?;
    let parts = analyze("snippet.mgraph", &format!("family snippet for \"snippet\"\n{text}"));
    let named = |kind| matches!(kind, SymbolKind::Op | SymbolKind::Block | SymbolKind::TypeAlias);
    let own = |symbol: &&mgraph_dsl::analysis::Symbol| symbol.span.file == parts.file && named(symbol.kind);
    for part in parts.symbols.iter().filter(own) {
        let there = analyze(path, &family);
        let old =
            there.symbols.iter().find(|s| s.span.file == there.file && s.kind == part.kind && s.name == part.name);
        let extent = old.ok_or_else(|| format!("{path} has no {}", part.name))?.extent;
        family.replace_range(extent.start as usize..extent.end as usize, "");
    }
    Ok(family + text)
}

#[test]
fn snippets_compile_or_fail_as_they_say() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        for snippet in snippets(&page) {
            count += 1;
            let place = format!("{}:{}", page.display(), snippet.line);
            let text = match whole(&snippet) {
                Ok(text) => text,
                Err(said) => {
                    wrong.push(format!("{place}: {said}"));
                    continue;
                }
            };
            let codes: BTreeSet<&str> = snippet.words.iter().filter_map(|w| w.strip_prefix("fails=")).collect();
            match compile_text(&place, &text) {
                Ok(_) if codes.is_empty() => {}
                Ok(_) => wrong.push(format!("{place} compiles")),
                Err(failed) => {
                    let found: BTreeSet<Code> = failed.diagnostics.iter().map(|d| d.code).collect();
                    let found: BTreeSet<String> = found.iter().map(Code::to_string).collect();
                    if found.iter().map(String::as_str).ne(codes.iter().copied()) {
                        wrong.push(format!("{place}\n{failed}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 20, "the book has snippets");
}
