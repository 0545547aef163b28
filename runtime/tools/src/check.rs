//! `mlxcel check`: every mistake of every file, and for a file without one, what the family is.

use std::{fmt::Write, path::PathBuf};

use anyhow::{Result, bail};
use mgraph_dsl::{
    diagnostic::{Diagnostic, extent, render},
    ir::{Block, Field, FieldKind, Function, OpKind, ParameterKind, Program, TwinBackend},
    print,
    source::Sources,
};
use serde_json::{Value, json};

use crate::{Console, Verdict, files};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Family files, folders with .mgraph files below them, or `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// One JSON object on standard output, for editors and scripts
    #[arg(long)]
    pub json: bool,
}

/// So many mistakes of one file are shown; `--json` has them all.
const SHOWN: usize = 100;

/// Checks the files, and those behind an unreadable one too.
///
/// # Errors
/// A file or folder that cannot be read; or standard output.
pub fn run(arguments: &Arguments, console: &mut Console<'_>) -> Result<Verdict> {
    let mut mistakes = Vec::new();
    let mut unread = Vec::new();
    let (mut count, mut wrong) = (0, 0);
    for place in files::places(&arguments.files)? {
        let text = match files::read(&place, console) {
            Ok(text) => text,
            Err(error) => {
                unread.push(format!("{error:#}"));
                continue;
            }
        };
        count += 1;
        match mgraph_dsl::compile_text(&text.name, &text.text) {
            Ok(program) if arguments.json => drop(program),
            Ok(program) => console.say(summary(&text.name, &program))?,
            Err(failed) => {
                wrong += 1;
                if !arguments.json {
                    let shown = &failed.diagnostics[..failed.diagnostics.len().min(SHOWN)];
                    let rest = failed.diagnostics.len() - shown.len();
                    let rest = if rest > 0 {
                        format!("\n.. and {} in {}\n", counted(rest, "more mistake"), text.name)
                    } else {
                        String::new()
                    };
                    console.say(render(shown, &failed.sources, console.color) + &rest + "\n")?;
                }
                mistakes.extend(failed.diagnostics.iter().map(|d| as_json(d, &failed.sources)));
            }
        }
    }
    if arguments.json {
        let object = json!({ "files": count, "mistakes": mistakes });
        console.say(format!("{object:#}\n"))?;
    } else if wrong > 0 {
        let (mistakes, of) = (counted(mistakes.len(), "mistake"), counted(count, "file"));
        let pages = "`mlxcel explain CODE` says more about a code";
        console.say(if count == 1 {
            format!("{mistakes}; {pages}\n")
        } else {
            format!("{mistakes} in {wrong} of {of}; {pages}\n")
        })?;
    } else if count > 1 {
        console.say(format!("{}, no mistake\n", counted(count, "family file")))?;
    }
    if !unread.is_empty() {
        bail!("{}", unread.join("\nerror: "));
    }
    Ok(if wrong > 0 { Verdict::Found } else { Verdict::Done })
}

fn as_json(diagnostic: &Diagnostic, sources: &Sources) -> Value {
    let place = |span| {
        let ((line, column), (end_line, end_column)) = extent(span, sources);
        let end = json!({ "line": end_line, "column": end_column });
        json!({ "file": sources.get(span.file).name, "line": line, "column": column, "end": end })
    };
    let related: Vec<Value> = diagnostic
        .related
        .iter()
        .map(|(span, message)| {
            let mut related = place(*span);
            related["message"] = json!(message);
            related
        })
        .collect();
    let mut object = place(diagnostic.span);
    object["code"] = json!(diagnostic.code.to_string());
    object["message"] = json!(diagnostic.message);
    object["label"] = json!(diagnostic.label);
    object["help"] = json!(diagnostic.help);
    object["related"] = json!(related);
    object
}

pub(crate) fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn summary(file: &str, program: &Program) -> String {
    let types: Vec<String> = program.model_types.iter().map(|t| format!("{t:?}")).collect();
    let mut text = format!("{file}: family {} for {}\n", program.name, types.join(" | "));
    for graph in program.block(program.model).functions.iter().filter(|f| f.graph) {
        // A `String` takes everything that is written to it.
        let _ = writeln!(text, "  graph {}", signature(graph));
    }
    let fields = |is: fn(&FieldKind) -> bool| {
        let all = program.blocks.iter().flat_map(|block: &Block| &block.fields);
        all.filter(|field: &&Field| is(&field.kind)).count()
    };
    let weights = fields(|kind| matches!(kind, FieldKind::Tensor(_) | FieldKind::Matrix(_)));
    let states = fields(|kind| matches!(kind, FieldKind::State(_)));
    let tensor_ops = program.ops.iter().filter(|op| matches!(op.kind, OpKind::Tensor { .. })).count();
    let _ = writeln!(
        text,
        "  {} with {} and {}, {}{}",
        counted(program.blocks.len(), "block"),
        counted(weights, "weight"),
        counted(states, "state"),
        counted(tensor_ops, "op"),
        twins(program)
    );
    text
}

fn signature(graph: &Function) -> String {
    let inputs = graph.parameters.iter().map(|parameter| match &parameter.kind {
        ParameterKind::Value(value) => format!("{}: {}", parameter.name, print::ty(&graph.value(*value).ty)),
        ParameterKind::Load(ty) => format!("{}: {}", parameter.name, print::load_type(ty)),
    });
    let results: Vec<String> = graph.results.iter().map(print::ty).collect();
    let results = match &results[..] {
        [] => String::new(),
        [one] => format!(" -> {one}"),
        several => format!(" -> ({})", several.join(", ")),
    };
    format!("{}({}){results}", graph.name, inputs.collect::<Vec<_>>().join(", "))
}

/// `, twins: 3 mlx, 2 hlo`
fn twins(program: &Program) -> String {
    let (mut mlx, mut hlo) = (0, 0);
    for op in &program.ops {
        let OpKind::Tensor { twins, .. } = &op.kind else { continue };
        for twin in twins {
            match twin.backend {
                TwinBackend::Mlx => mlx += 1,
                TwinBackend::Hlo => hlo += 1,
            }
        }
    }
    format!(", {} (mlx {mlx}, hlo {hlo})", counted(mlx + hlo, "twin"))
}
