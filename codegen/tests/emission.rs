//! The text that the emitters write: it parses, it is the same every time, and a folder of families becomes a registry, or
//! an error with places.

use std::{fs, path::Path};

use mgraph_codegen::{Options, build, emit, emit_pair, format};
use mgraph_dsl::ir::Program;

fn llama() -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/families/llama.mgraph");
    let program = mgraph_dsl::compile_file(&path).expect("reads");
    program.unwrap_or_else(|failed| panic!("{failed}"))
}

fn text(program: &Program) -> String {
    format(emit(program, &Options::default()).expect("emits")).expect("parses")
}

#[test]
fn the_same_program_gives_the_same_text() {
    let text = text(&llama());
    assert_eq!(text, self::text(&llama()));
    syn::parse_file(&text).expect("is a Rust file");
}

/// Both emissions of every family are Rust; that they compile, `mgraph-models` and `mgraph-tests` show.
#[test]
fn every_family_is_emitted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders =
        ["models/families", "tests/families"].map(|folder| fs::read_dir(root.join(folder)).expect("a folder"));
    let paths = folders.into_iter().flatten().map(|entry| entry.expect("an entry").path());
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "mgraph")) {
        let program = mgraph_dsl::compile_file(&path).expect("reads").unwrap_or_else(|failed| panic!("{failed}"));
        syn::parse_file(&text(&program)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

#[test]
fn the_text_reads_like_the_source() {
    let text = text(&llama());
    for line in [
        "/// `block Layer`, llama.mgraph:",
        "pub struct Config {",
        "for layer in &self.layers {",
        "if cfg.tied {",
        "pub fn silu(cx: &mut Call<'_>, x: &Array) -> Result<Array> {",
        "pub fn silu(cx: &mut Call<'_>, x: V) -> Result<V> {",
        "cx.probe(format_args!(\"layer.{}.attn\", self.i), ",
        "return kernels::rms_norm(x, weight, eps);",
        "cx.update_state(&self.k, new_k, positions, -2)",
        "pub static FAMILY: Family = Family {",
    ] {
        assert!(text.contains(line), "no line with `{line}` in\n{text}");
    }
}

/// What a module of generated code names: its items, and what it imports.
fn named(items: &[syn::Item]) -> Vec<String> {
    fn imported(tree: &syn::UseTree, names: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                let before = names.len();
                imported(&path.tree, names);
                let own = names[before..].iter_mut().filter(|name| *name == "self");
                own.for_each(|name| *name = path.ident.to_string());
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| imported(tree, names)),
            syn::UseTree::Name(name) => names.push(name.ident.to_string()),
            syn::UseTree::Rename(_) | syn::UseTree::Glob(_) => {}
        }
    }
    let mut names = Vec::new();
    for item in items {
        match item {
            syn::Item::Use(import) => imported(&import.tree, &mut names),
            syn::Item::Struct(item) => names.push(item.ident.to_string()),
            syn::Item::Type(item) => names.push(item.ident.to_string()),
            syn::Item::Mod(item) => names.push(item.ident.to_string()),
            _ => {}
        }
    }
    names
}

fn modules(text: &str) -> Vec<Vec<String>> {
    let file = syn::parse_file(text).expect("is a Rust file");
    let modules = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) => module.content.as_ref().map(|(_, items)| named(items)),
        _ => None,
    });
    modules.collect()
}

#[test]
fn a_block_may_be_called_what_generated_code_calls_something_else() {
    let toy = |block: &str| {
        let text = format!(
            "family toy for \"toy\"
             config {{ vocab: dim = \"vocab\"  hidden: dim = \"hidden\" }}
             block {block} {{ scale: F[hidden]  fn (x: F[B, S, hidden]) -> F[B, S, hidden] {{ x * scale }} }}
             model {{
                 table: Embedding(vocab, hidden)
                 last:  {block}
                 graph embed(tokens: i32[B, S]) -> F[B, S, hidden] {{ table(tokens) }}
                 graph forward(x: F[B, S, hidden], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {{
                     table.logits(rows_at(last(x), wanted))
                 }}
             }}"
        );
        mgraph_dsl::compile_text("toy.mgraph", &text).unwrap_or_else(|failed| panic!("{failed}"))
    };
    let known = modules(&text(&toy("Last"))).concat();
    let modules_of_ours = ["generated", "kernels", "load", "ops", "prelude"];
    assert!(modules_of_ours.iter().all(|name| known.iter().any(|known| known == name)), "{known:?}");
    let types = known.iter().map(String::as_str).filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()));
    let types = types.chain(modules_of_ours);
    for name in types.chain(["Self", "Vec", "Option", "String", "Box"]).filter(|name| *name != "Embedding") {
        for mut names in modules(&text(&toy(name))) {
            names.sort();
            let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
            assert_eq!(twice, None, "block {name}");
            let hidden = ["Self", "Vec", "Option", "String", "Box"].iter().find(|std| names.iter().any(|n| n == *std));
            assert_eq!(hidden, None, "block {name}");
        }
    }
}

const LISTS: &str = r#"
family lists for "lists"
config {
    vocab: dim = "vocab_size"
    hidden: dim = "hidden_size"
    depth: dim = "depth"
    taps: [index(depth)] = "taps"
}
type Hidden = F[B, S, hidden]
op total(parts: [F[.., N]; K]) -> F[.., N] {
    let mut all = parts[0] / K;
    for i, part in parts { all = all + part * i; }
    all
}
op before(x: F[.., N]) -> [F[.., N]; 3] {
    let mut x = x;
    let mut seen = [];
    for _ in 0..3 { seen.push(x);  x = tanh(x); }
    seen
}
block Step(at: name) {
    gain: F[hidden]
    fn (x: Hidden) -> Hidden { (x * gain) @ "{at}.out" }
    fn quiet(x: Hidden) -> Hidden { x * gain }
}
block Stack(at: name) {
    steps: [Step("{at}.{i}") for i in 0..depth]
    fn (mut x: Hidden) -> [Hidden; depth] {
        let mut seen = [];
        for step in steps { x = step(x);  seen.push(x); }
        seen
    }
}
model {
    embed_tokens: Embedding(vocab, hidden)
    stack: Stack("stack")
    graph embed(tokens: i32[B, S]) -> Hidden { embed_tokens(tokens) }
    graph forward(x: Hidden, positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {
        let seen = stack(x);
        let wide = concat([seen[t] @ "tap.{n}" for n, t in taps], axis = -1);
        let mut y = total([x, seen[depth - 1]]) + total(before(x));
        for step in stack.steps { y = y * step.quiet(y); }
        embed_tokens.logits(rows_at(y + wide[.., 0..hidden], wanted))
    }
}
"#;

#[test]
fn lists_read_like_the_source() {
    let program = mgraph_dsl::compile_text("lists.mgraph", LISTS).unwrap_or_else(|failed| panic!("{failed}"));
    let text = text(&program);
    for line in [
        "pub fn total(cx: &mut Call<'_>, parts: &[Array]) -> Result<Array> {",
        "let K = parts.len() as i64;",
        "for (i, part) in (0i64..).zip(parts.iter()) {",
        "pub fn before(cx: &mut Call<'_>, x: &Array) -> Result<Vec<Array>> {",
        "seen.push(x.clone());",
        "for step in &self.steps {",
        "&format!(\"{}.{}\", at_, i)",
        "for (n, t) in (0i64..).zip(cfg.taps.iter().copied()) {",
        "ops::concat(&list, -1)?",
        "vec![x.clone(), t1]",
        "for step in &self.stack.steps {",
        "pub fn total(cx: &mut Call<'_>, parts: &[V]) -> Result<V> {",
        "for (i, part) in (0i64..).zip(parts.iter().copied()) {",
        "seen.push(x);",
        "cx.concat(&list, -1)",
    ] {
        assert!(text.contains(line), "no line with `{line}` in\n{text}");
    }
}

/// A crate with these families: its folder, and where generated files go.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for inner in ["families", "out"] {
        fs::create_dir(folder.path().join(inner)).expect("a folder");
    }
    for (name, text) in files {
        fs::write(folder.path().join("families").join(name), text).expect("a file");
    }
    folder
}

fn generate(folder: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    build::generate(&folder.join("families"), folder, &folder.join("out"))
}

const TINY: &str = r#"
family tiny for "tiny"
config { vocab: dim = "vocab_size"  hidden: dim = "hidden_size" }
model {
    embed_tokens: Embedding(vocab, hidden)
    graph embed(tokens: i32[B, S]) -> F[B, S, hidden] { embed_tokens(tokens) }
    graph forward(x: F[B, S, hidden], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {
        embed_tokens.logits(rows_at(x, wanted))
    }
}
"#;

#[test]
fn a_folder_becomes_a_registry_and_an_unchanged_one_writes_nothing() {
    let folder = folder(&[("tiny.mgraph", TINY), ("notes.txt", "not a family")]);
    let files = generate(folder.path()).expect("generates");
    assert_eq!(files, [folder.path().join("families/tiny.mgraph")]);
    let module = folder.path().join("out/tiny.rs");
    let text = fs::read_to_string(&module).expect("a module");
    assert!(text.starts_with("// Generated from families/tiny.mgraph (digest "), "{text}");
    let registry = fs::read_to_string(folder.path().join("out/families.rs")).expect("a registry");
    assert!(registry.contains("pub mod tiny {") && registry.contains("    &tiny::FAMILY,\n"), "{registry}");

    let written = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).expect("a time");
    let before = written(&module);
    generate(folder.path()).expect("generates again");
    assert_eq!(written(&module), before);
}

#[test]
fn a_mistake_is_told_with_file_line_caret_and_sentence() {
    let broken = TINY.replace("embed_tokens(tokens) }", "embed_token(tokens) }");
    let folder = folder(&[("tiny.mgraph", &broken), ("other.mgraph", "family other for")]);
    let message = generate(folder.path()).expect_err("is refused");
    for part in [
        "families/tiny.mgraph:6:",
        "embed_token(tokens)",
        "┬",
        "there is no op or field `embed_token`",
        "did you mean `embed_tokens`?",
        "families/other.mgraph:1:",
    ] {
        assert!(message.contains(part), "no `{part}` in\n{message}");
    }
    assert!(!folder.path().join("out/families.rs").exists(), "nothing is generated from a broken folder");
}

/// Two families may serve one `model_type` where each says which `architectures` are its own.
#[test]
fn who_serves_what_is_told_apart_when_the_registry_is_made() {
    let told = |one: &str, two: &str| {
        let family = |header: &str| TINY.replace("family tiny for \"tiny\"", &format!("family {header}"));
        generate(folder(&[("one.mgraph", &family(one)), ("two.mgraph", &family(two))]).path())
    };
    assert!(told("one for \"x\" as \"OneLM\"", "two for \"x\" as \"TwoLM\"").is_ok());
    let message = told("one for \"x\" as \"OneLM\"", "two for \"y\" | \"x\"").expect_err("both serve x");
    assert!(message.contains("families/one.mgraph and families/two.mgraph both serve model_type \"x\""), "{message}");
    assert!(message.contains("`family two for \"x\" as \"..\"`"), "{message}");
    let message = told("one for \"x\" as \"LM\"", "two for \"y\" as \"LM\"").expect_err("both serve LM");
    assert!(message.contains("both serve architecture \"LM\""), "{message}");
}

#[test]
fn the_backends_may_come_from_two_programs() {
    let plain = llama();
    let text = |mlx: &Program, hlo: &Program| {
        format(emit_pair(mlx, hlo, &Options::default()).expect("emits")).expect("parses")
    };
    let source = plain.sources.get(plain.block(plain.model).span.file).text.clone();
    let changed = mgraph_dsl::compile_text("llama.mgraph", &source.replace("x @ \"layer.{i}\"", "x @ \"after.{i}\""));
    let changed = changed.unwrap_or_else(|failed| panic!("{failed}"));
    let mixed = text(&plain, &changed);
    assert!(mixed.contains("format_args!(\"layer.{}\", self.i)") && mixed.contains("&format!(\"after.{}\", self.i)"));
}
