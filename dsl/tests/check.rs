//! What the checker proves and lowers: the whole prelude, the families, and single rules as one-line families.

use std::path::Path;

use mgraph_dsl::{
    Failed, compile_text, compile_whole_prelude,
    ir::{Program, Statement},
    prelude_sources, print,
};

const GRAPHS: &str = r#"
    graph embed(tokens: i32[B, S]) -> F[B, S, hidden] { table(tokens) @ "embed" }
    graph forward(x: F[B, S, hidden], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {
        table.logits(rows_at(x, wanted))
    }
"#;

/// A family with `items` and a model that has only what the runtime needs, and `members`.
fn family(config: &str, items: &str, members: &str) -> Result<Program, Failed> {
    let text = format!(
        "family toy for \"toy\"\n\
         config {{\n    vocab: dim = \"vocab\"\n    hidden: dim = \"hidden\"\n    depth: dim = \"depth\"\n{config}\n}}\n\
         {items}\n\
         model {{\n    table: Embedding(vocab, hidden)\n{members}{GRAPHS}}}\n"
    );
    compile_text("toy.mgraph", &text)
}

#[track_caller]
fn fine(config: &str, items: &str, members: &str) -> Program {
    family(config, items, members).unwrap_or_else(|failed| panic!("{failed}"))
}

#[track_caller]
fn op(text: &str) {
    fine("", text, "");
}

/// The message of the only mistake.
#[track_caller]
fn mistake(config: &str, items: &str, members: &str) -> String {
    let failed = family(config, items, members).expect_err("a mistake");
    assert_eq!(failed.diagnostics.len(), 1, "{failed}");
    format!("{}: {}", failed.diagnostics[0].code, failed.diagnostics[0].message)
}

#[track_caller]
fn wrong_op(text: &str, code: &str) {
    let said = mistake("", text, "");
    assert!(said.starts_with(code), "{said}");
}

#[test]
fn every_prelude_item_is_checked() {
    let mut sources = prelude_sources();
    let text = std::fs::read_to_string(folder("../models/families/llama.mgraph")).expect("part of the repository");
    let llama = sources.add("llama.mgraph", text);
    if let Err(failed) = compile_whole_prelude(sources, llama) {
        panic!("{failed}");
    }
}

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn family_texts() -> Vec<(String, String)> {
    texts_in("../models/families")
}

fn texts_in(place: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder(place)).expect("part of the repository");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let families = paths.filter(|path| path.extension().is_some_and(|end| end == "mgraph"));
    families.map(|path| (path.display().to_string(), std::fs::read_to_string(path).expect("a readable file"))).collect()
}

#[test]
fn every_family_is_right() {
    let mut families = family_texts();
    assert!(families.len() >= 6);
    families.extend(["../tests/families", "../examples/own-family/families"].into_iter().flat_map(texts_in));
    for (name, text) in families {
        if let Err(failed) = compile_text(&name, &text) {
            panic!("{failed}");
        }
    }
}

#[test]
fn only_what_is_reached_is_in_the_program() {
    let program = fine("", "op unused(x: F[..]) -> F[..] { x * x }", "");
    assert!(program.ops.iter().all(|op| op.name != "unused" && op.name != "rope"));
    // The twins of `linear` are reached through it alone.
    assert!(program.ops.iter().any(|op| op.name.starts_with("linear_by_")));
    assert_eq!(program.blocks.len(), 2);
}

#[test]
fn compiling_twice_gives_the_same() {
    let texts = [(); 2].map(|()| print::program(&fine("", "", "")));
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn digest_depends_on_the_text() {
    let digest = |items| fine("", items, "").digest;
    assert_ne!(digest(""), digest("// a comment"));
    assert_eq!(digest("").len(), 64);
}

#[test]
fn compound_dims_are_checked_after_binding() {
    op("op halves(x: F[N, 2 * W], w: F[W]) -> F[N, W] { x[_, 0..W] * w }");
    op(
        "op order(x: F[N, 2 * W], w: F[W]) -> F[N, W] { halves(x, w) }\nop halves(x: F[N, 2 * W], w: F[W]) -> F[N, W] { x[_, W..2 * W] * w }",
    );
    wrong_op("op bad(x: F[N, 2 * W], w: F[W]) -> F[N, W] { x * w }", "mg0301");
    wrong_op("op unbound(x: F[N, 2 * W]) -> F[N] { x[_, 0] }", "mg0305");
}

#[test]
fn an_equation_of_the_config_is_believed() {
    let config = "    out: dim = \"out\"\n    require out == hidden\n";
    fine(config, "op same(x: F[N, out], y: F[N, hidden]) -> F[N, out] { x + y }", "");
    let said = mistake("    out: dim = \"out\"\n", "op same(x: F[N, out], y: F[N, hidden]) -> F[N, out] { x + y }", "");
    assert!(said.starts_with("mg0301"), "{said}");
}

#[test]
fn an_equation_of_a_section_is_believed_where_the_section_exists() {
    let config = r#"
        partial: float = "partial_rotary_factor" else 1.0
        scaling: one_of("default", "longrope") = "rope_scaling.rope_type" else "default"
        let turned = int(hidden * partial)
        section longrope = "rope_scaling" if scaling != "default" {
            short: [float] = "short_factor"
            long: [float] = "long_factor"
            require len(short) == turned / 2
            require len(long) == turned / 2
        }
    "#;
    let op = |condition: &str| {
        format!(
            "op frequencies(width: dim) -> [float; turned / 2] {{
                let plain = rope_frequencies(turned, 10000.0);
                if {condition} {{ rope_longrope(plain, longrope.long) }} else {{ plain }}
            }}"
        )
    };
    fine(config, &op("scaling != \"default\""), "");
    fine(config, &op("!(scaling == \"default\")"), "");
    let without = config.replace("require len(long) == turned / 2", "");
    let said = mistake(&without, &op("scaling != \"default\""), "");
    assert_eq!(
        said,
        "mg0301: `factors` of `rope_longrope` has `W` (here `int(hidden * partial) / 2`) items, this list has `len(longrope.long)`"
    );
}

#[test]
fn an_equation_of_an_if_is_believed_inside() {
    op("op whole(x: F[N, D], w: F[W]) -> F[N, D] { if 2 * W == D { twice(x, w) } else { x } }\n\
        op twice(x: F[N, 2 * W], w: F[W]) -> F[N, 2 * W] { x }");
    wrong_op(
        "op whole(x: F[N, D], w: F[W]) -> F[N, D] { if 2 * W == D { x } else { twice(x, w) } }\n\
         op twice(x: F[N, 2 * W], w: F[W]) -> F[N, 2 * W] { x }",
        "mg0301",
    );
}

#[test]
fn polynomial_lets_are_opened() {
    fine("    let both = 2 * hidden", "op pair(x: F[N, both]) -> F[N, 2, hidden] { reshape(x, [N, 2, hidden]) }", "");
    op("op pair(x: F[N, K]) -> F[N, 4, K / 4] { let part = K / 4;  reshape(x, [N, 4, part]) }");
}

#[test]
fn reshape_splits_or_merges() {
    op("op cut(x: F[B, K]) -> F[B, 6, K / 6] { reshape(x, [B, 6, K / 6]) }");
    op("op merge(x: F[B, A, C]) -> F[B * A, C] { reshape(x, [B * A, C]) }");
    op("op ones(x: F[B, A]) -> F[1, B, 1, A] { reshape(x, [1, B, 1, A]) }");
    op("op twice(x: F[B, H, S, D], g: dim) -> F[B, g, H / g * S, D] {\n\
            reshape(reshape(x, [B, g, H / g, S, D]), [B, g, H / g * S, D])\n}");
    wrong_op("op regroup(x: F[H, S, D], g: dim) -> F[g, H / g * S, D] { reshape(x, [g, H / g * S, D]) }", "mg0303");
    wrong_op("op swap(x: F[A, C]) -> F[C, A] { reshape(x, [C, A]) }", "mg0303");
    wrong_op("op lose(x: F[A, C]) -> F[A] { reshape(x, [A]) }", "mg0301");
}

#[test]
fn broadcasting_takes_only_a_literal_one() {
    op("op rows(x: F[N, M], y: F[N, 1]) -> F[N, M] { x * y }");
    op("op ends(x: F[.., M], y: F[M]) -> F[.., M] { x * y }");
    wrong_op("op symbol(x: F[N, M], y: F[N, K]) -> F[N, M] { x * y }", "mg0301");
    wrong_op("op hidden_axes(x: F[.., M], y: F[A, C, M]) -> F[.., M] { x * y }", "mg0302");
}

#[test]
fn lists_bring_their_length() {
    let config = "    theta: float = \"theta\"\n    let frequencies = rope_frequencies(hidden, theta)";
    fine(config, "op turn(x: f32[N, hidden / 2]) -> f32[N, hidden / 2] { x * f32(frequencies) }", "");
    let said = mistake(config, "op turn(x: f32[N, hidden]) -> f32[N, hidden] { x * f32(frequencies) }", "");
    assert!(said.starts_with("mg0301"), "{said}");
}

#[test]
fn a_load_number_takes_the_dtype_of_the_tensor() {
    op("op half(x: F[N], y: i32[N]) -> F[N] { 0.5 * x + F(y * 2) }");
    op("op count(x: f32[.., N]) -> f32[.., 1] { sum(x, axis = -1) / N }");
    wrong_op("op half(y: i32[N]) -> i32[N] { y * 0.5 }", "mg0203");
}

#[test]
fn f_is_the_float_of_the_arguments() {
    op("op wide(x: F[N]) -> f32[N] { silu(f32(x)) }");
    wrong_op("op wide(x: F[N]) -> F[N] { silu(f32(x)) }", "mg0202");
    wrong_op("op whole(x: i32[N]) -> i32[N] { silu(x) }", "mg0202");
    wrong_op("op two(x: F[N], y: f32[N]) -> F[N] { x + y }", "mg0202");
}

#[test]
fn a_cast_to_the_same_dtype_is_no_op() {
    let program = fine("", "", "    fn same(x: F[N]) -> F[N] { F(x) }\n");
    let model = program.block(program.model);
    let same = model.functions.iter().find(|f| f.name == "same").expect("declared above");
    assert!(same.body.statements.is_empty());
}

#[test]
fn conditions_are_known_where_they_hold() {
    let config = "    gated: bool = \"gated\"\n    kind: one_of(\"a\", \"b\") = \"kind\"\n    extra: dim = \"extra\" if gated & kind == \"a\"\n    let use_extra = gated & kind == \"a\"";
    fine(config, "op f(x: F[N]) -> F[N] { if use_extra { x * extra } else { x } }", "");
    fine(config, "op f(x: F[N]) -> F[N] { if !(!gated | kind != \"a\") { x * extra } else { x } }", "");
    let said = mistake(config, "op f(x: F[N]) -> F[N] { if gated { x * extra } else { x } }", "");
    assert!(said.starts_with("mg0401"), "{said}");
}

#[test]
fn two_fields_share_a_path_when_they_exclude_each_other() {
    let items = |second: &str| {
        format!(
            "block Layer(i: int) {{\n    wide: Linear(hidden, 2 * hidden) as \"mlp\" if i < 2\n    flat: Linear(hidden, hidden) as \"mlp\" {second}\n}}"
        )
    };
    fine("", &items("if i >= 2"), "");
    let said = mistake("", &items("if i > 2"), "");
    assert!(said.starts_with("mg0501"), "{said}");
}

#[test]
fn assigned_variables_are_carried() {
    let text = "op power(x: F[N], n: int) -> F[N] {\n    let mut y = x;\n    for i in 0..n { if i > 0 { y = y * x; } }\n    y\n}";
    let program = fine(
        "",
        &format!("{text}\nop user(x: F[N]) -> F[N] {{ power(x, 3) }}"),
        "    fn f(x: F[N]) -> F[N] { user(x) }\n",
    );
    let power = program.ops.iter().find(|o| o.name == "power").expect("reached");
    let text = print::op(&program, power);
    assert!(text.contains("for #") && text.contains("with y"), "{text}");
}

#[test]
fn statements_keep_the_order_of_the_text() {
    let program = fine("", "", "    fn f(x: F[N]) -> F[N] { let a = exp(x);  let b = sin(x);  b * a }\n");
    let function = program.block(program.model).functions.iter().find(|f| f.name == "f").expect("declared above");
    let ops: Vec<String> = function
        .body
        .statements
        .iter()
        .filter_map(|s| if let Statement::Prim { op, .. } = s { Some(format!("{op:?}")) } else { None })
        .collect();
    assert_eq!(ops, ["Unary(Exp)", "Unary(Sin)", "Binary(Multiply)"]);
}

#[test]
fn a_push_and_a_comprehension_are_one_loop() {
    let printed = |body: &str| {
        let text = format!("    fn f(x: F[N]) -> [F[N]; 3] {{ {body} }}\n");
        let text = print::program(&fine("", "", &text));
        let from = text.find("fn f(").expect("declared above");
        text[from..].split("graph").next().unwrap_or_default().to_string()
    };
    let comprehension = printed("let seen = [x * i for i in 0..3];  seen");
    assert_eq!(printed("let mut seen = [];  for i in 0..3 { seen.push(x * i); }  seen"), comprehension);
    for line in ["seen%3: [F[N]; 3] = for #", " in 0..3 {", "push %2 to seen%3", "return seen%3"] {
        assert!(comprehension.contains(line), "no `{line}` in\n{comprehension}");
    }
}

/// Families with a piece cut out, doubled or exchanged: an answer or mistakes, never a panic.
#[test]
fn damaged_families_never_panic() {
    let mut seed = 1u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below.max(1)
    };
    for (_, text) in family_texts() {
        let words: Vec<&str> = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        for _ in 0..60 {
            let mut damaged = words.clone();
            for _ in 0..=random(2) {
                let (at, other) = (random(damaged.len()), random(damaged.len()));
                match random(3) {
                    0 => drop(damaged.remove(at)),
                    1 => damaged.insert(at, words[other % words.len()]),
                    _ => damaged.swap(at, other),
                }
            }
            if let Err(failed) = compile_text("damaged.mgraph", &damaged.concat()) {
                assert!(!failed.diagnostics.is_empty());
                assert!(failed.diagnostics.iter().all(|d| d.message != "an item was not lowered"), "{failed}");
            }
        }
    }
}
