//! Tables of the book that are printed from the code.

use std::{fmt::Write, fs};

use mgraph_dsl::{
    analysis::{SymbolKind, analyze_prelude},
    compile_text, compile_whole_prelude,
    diagnostic::Code,
    graphs::{GRAPHS, Gives, INPUTS, Input},
    ir::{OpKind, ProcessorKind, ProcessorOutput, Program, Twin, TwinBackend, TwinTarget, Within},
    kernels::KERNELS,
    load::FUNCTIONS,
    ops::primitives,
    parser::RESERVED,
    prelude_sources,
    source::PRELUDE,
};

use super::root;

pub fn parts() -> Vec<(&'static str, String)> {
    vec![
        ("reserved words", reserved()),
        ("load functions", load_functions()),
        ("primitives", primitive_table()),
        ("kernels", kernels()),
        ("graphs", graphs()),
        ("inputs", inputs()),
        ("processors", processors()),
        ("prelude", prelude()),
        ("codes", codes()),
        ("families", families()),
    ]
}

/// Lines of the file for the same models in mlx-lm 0.32.2, `mlx_lm/models/NAME.py`; it serves Mistral with `llama.py`, and has no
/// files for families with pictures that read them.
const IN_MLX_LM: &[(&str, usize)] = &[
    ("bailing_moe", 402),
    ("gemma2", 205),
    ("gemma3_text", 257),
    ("llama", 274),
    ("mistral", 274),
    ("phi3", 213),
    ("qwen2", 239),
    ("qwen3", 234),
    ("qwen3_moe", 336),
];

/// What a family is says the first line of its file.
fn families() -> String {
    let folder = root().join("models/families");
    let mut files: Vec<_> = fs::read_dir(folder).expect("part of the repository").map(|e| e.unwrap().path()).collect();
    files.sort();
    let rows = files.iter().map(|path| {
        let text = fs::read_to_string(path).expect("a readable family");
        let program = compile_text(&path.display().to_string(), &text).unwrap_or_else(|failed| panic!("{failed}"));
        let what = text.lines().next().and_then(|line| line.strip_prefix("//! ")).expect("a family says what it is");
        let types: Vec<String> = program.model_types.iter().map(|name| format!("`{name}`")).collect();
        let theirs = IN_MLX_LM.iter().find(|(name, _)| *name == program.name);
        vec![
            format!("`{}`", program.name),
            what.split_once(':').map_or(what, |(name, _)| name).to_owned(),
            types.join(", "),
            if program.graph("vision").is_some() { "yes" } else { "" }.into(),
            text.lines().count().to_string(),
            theirs.map_or(String::new(), |(_, lines)| lines.to_string()),
        ]
    });
    table(&["family", "what it is", "`model_type`", "pictures", "lines", "lines in mlx-lm 0.32.2"], rows)
}

/// A cell of a table: the bar would end it.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn table(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut out = format!("| {} |\n|{}\n", heads.join(" | "), " --- |".repeat(heads.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|text| cell(text)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

fn reserved() -> String {
    let words: Vec<String> = RESERVED.iter().map(|word| format!("`{word}`")).collect();
    format!("{}.\n", words.join(", "))
}

fn load_functions() -> String {
    table(
        &["function", "value"],
        FUNCTIONS.iter().map(|f| {
            let arguments = ["x", "y", "z"][..f.arguments].join(", ");
            vec![format!("`{}({arguments})`", f.name), f.doc.to_string()]
        }),
    )
}

fn kernels() -> String {
    table(
        &["kernel", "takes"],
        KERNELS.iter().map(|kernel| {
            let takes = kernel.parameters.iter().map(|parameter| {
                let may = if parameter.optional { ", may be left out" } else { "" };
                format!("`{}`: {}{may}", parameter.name, parameter.kind.text())
            });
            vec![format!("`{} {}`", kernel.backend.name(), kernel.path), takes.collect::<Vec<_>>().join("; ")]
        }),
    )
}

/// Neighbours that say the same share a row.
fn primitive_table() -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for p in primitives() {
        let (usage, rest) = (format!("`{}`", p.usage), [p.doc.to_string(), p.stablehlo.into(), p.mlx.into()]);
        match rows.last_mut() {
            Some(row) if row[1..] == rest => row[0] += &format!(", {usage}"),
            Some(_) | None => rows.push([vec![usage], rest.to_vec()].concat()),
        }
    }
    table(&["primitive", "meaning", "StableHLO", "MLX"], rows)
}

fn graphs() -> String {
    table(
        &["graph", "required", "inputs it must have", "called", "gives"],
        GRAPHS.iter().map(|graph| {
            let needs: Vec<String> = graph.needs.iter().map(|input| format!("`{input}`")).collect();
            let gives = match graph.gives {
                Gives::Embeddings => "`F[B, S, width]`",
                Gives::Logits => "`F[B, R, vocab]`",
                Gives::Features => "one tensor of `F`",
                Gives::Nothing => "nothing: it writes state",
            };
            let required = if graph.required { "yes" } else { "" };
            vec![format!("`{}`", graph.name), required.into(), needs.join(", "), graph.called.into(), gives.into()]
        }),
    )
}

fn inputs() -> String {
    table(
        &["input", "what it is"],
        INPUTS.iter().map(|Input { name, dtype, rank, dims, doc }| {
            let rest = std::iter::repeat_n("_", rank.saturating_sub(dims.len()));
            let shape: Vec<&str> = dims.iter().copied().chain(rest).collect();
            vec![format!("`{name}: {}[{}]`", dtype.name(), shape.join(", ")), doc.to_string()]
        }),
    )
}

fn processors() -> String {
    table(
        &["processor", "gives `vision`", "gives tokens"],
        ProcessorKind::ALL.into_iter().map(|kind| {
            let outputs = kind.outputs().iter().map(|ProcessorOutput { name, dtype, rank, axes }| {
                let shape = vec!["_"; *rank].join(", ");
                format!("`{name}: {}[{shape}]` ({axes})", dtype.name())
            });
            let outputs: Vec<String> = outputs.collect();
            vec![format!("`{}`", kind.name()), outputs.join("; "), format!("`{}`", kind.of_tokens())]
        }),
    )
}

fn codes() -> String {
    let mut out = String::new();
    for code in Code::ALL {
        let _ = writeln!(out, "## {code}: {}\n\n{}\n", code.title(), code.explanation());
        for example in code.examples() {
            let _ = writeln!(out, "```mgraph,wrong\n{}```\n", example.wrong.shown());
            if let Some(right) = example.right {
                let _ = writeln!(out, "Right:\n\n```mgraph,right\n{}```\n", right.shown());
            }
        }
    }
    out.trim_end().to_string() + "\n"
}

const SMALLEST: &str = r#"family smallest for "smallest"
model {
    table: Embedding(2, 2)
    graph embed(tokens: i32[B, S]) -> F[B, S, 2] { table(tokens) }
    graph forward(x: F[B, S, 2], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, 2] { rows_at(x, wanted) }
}"#;

/// Ops and blocks as they are declared, under the headings of the prelude.
fn prelude() -> String {
    let mut sources = prelude_sources();
    let family = sources.add("smallest.mgraph", SMALLEST);
    let program = compile_whole_prelude(sources, family).unwrap_or_else(|failed| panic!("{failed}"));
    let analysis = analyze_prelude(&prelude_sources().get(PRELUDE).text);
    let text = analysis.text();
    let mut headings = headings(text).into_iter().peekable();
    let mut out = String::new();
    for id in analysis.ids() {
        let symbol = analysis.symbol(id);
        if !matches!(symbol.kind, SymbolKind::Op | SymbolKind::Block) {
            continue;
        }
        while let Some((_, heading)) = headings.next_if(|(at, _)| *at < symbol.extent.start as usize) {
            let _ = writeln!(out, "{}## {heading}\n", if out.is_empty() { "" } else { "\n" });
        }
        let _ = writeln!(out, "- `{}`  ", signature(&symbol.declaration));
        let doc = if symbol.doc.is_empty() { String::new() } else { format!("{} ", symbol.doc.replace('\n', " ")) };
        let _ = writeln!(out, "  {}", (doc + &twins(&program, &symbol.name)).trim_end());
    }
    out
}

/// Comments that stand alone between items, with their place.
fn headings(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    for block in text.split("\n\n") {
        let lines: Vec<&str> = block.lines().collect();
        if !lines.is_empty() && lines.iter().all(|line| line.starts_with("// ")) {
            let said: Vec<&str> = lines.iter().map(|line| line.trim_start_matches("// ")).collect();
            found.push((at, said.join(" ").trim_end_matches('.').to_string()));
        }
        at += block.len() + 2;
    }
    found
}

/// Without the twins, which are told in words.
fn signature(declaration: &str) -> &str {
    declaration.split(" fused ").next().unwrap_or(declaration)
}

fn twins(program: &Program, name: &str) -> String {
    let Some(op) = program.ops.iter().find(|op| op.name == name) else { return String::new() };
    match &op.kind {
        OpKind::Load { .. } => "Runs at load.".into(),
        OpKind::Tensor { twins, .. } if twins.is_empty() => String::new(),
        OpKind::Tensor { twins, .. } => {
            let said: Vec<String> = twins.iter().map(|twin| one_twin(program, twin)).collect();
            format!("Twins: {}.", said.join("; "))
        }
    }
}

fn one_twin(program: &Program, twin: &Twin) -> String {
    let backend = match twin.backend {
        TwinBackend::Mlx => "MLX",
        TwinBackend::Hlo => "StableHLO",
    };
    let name = match &twin.target {
        TwinTarget::Op(id) => &program.op(*id).name,
        TwinTarget::Kernel { path, .. } => path,
    };
    let within = match twin.within {
        Within::Ulp(n) => format!("{n} ulp"),
        Within::OfSum(x) => format!("{x:e} of sum"),
    };
    format!("{backend} `{name}` within {within}")
}
