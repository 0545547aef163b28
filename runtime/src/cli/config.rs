//! `mlxcel config`: what a checkpoint's `config.json` means to its family, value by value, and which stored tensors the family
//! ignores. Of weights it reads names and shapes.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Write},
    path::PathBuf,
};

use mgraph_dsl::{
    config::{self, Fate, Origin, Outcome, Row},
    load::Val,
};
use serde_json::{Value, json};

use super::{Verdict, limits::Limits};
use crate::{
    checkpoint::read_object,
    error::{Context, Result, anyhow, bail},
    family::Family,
    model::{self, Model},
    quantization::Quantization,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Checkpoint directory, or a config.json
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    limits: Limits,
}

pub fn run(families: &'static [&'static Family], arguments: Arguments) -> Result<Verdict> {
    let dir = arguments.dir.is_dir().then(|| arguments.dir.clone());
    let path = dir.as_ref().map_or(arguments.dir, |dir| dir.join("config.json"));
    let file = path.display().to_string();
    let Some(config) = read_object(&path)? else { bail!("{file}: there is no such file") };
    let config = Value::Object(config);
    let (family, program) = model::family_of(&config, families, &file)?;
    let limits = arguments.limits.given()?;
    let resolved = config::resolve(&program, &config, limits).map_err(|faults| {
        let shown: Vec<String> = faults.iter().map(|fault| format!("  {}", fault.display(&file))).collect();
        anyhow!("{file} does not fit family {}:\n{}", family.name, shown.join("\n"))
    })?;
    Quantization::from_config(&config).map_err(|fault| anyhow!("{file}: {fault}"))?;
    let rows = config::report(&program, &config, &resolved);
    let unread = config::unread(&config, &resolved, model::OWN_KEYS);
    // What is wrong with the weights is told in full where they are loaded.
    let opened = dir.map(|dir| Model::open_with(&dir, families, limits)).transpose();
    let ignored = opened.map(|model| model.map(|model| model.bindings.ignored.clone()));
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = if arguments.json {
        let object = json!({
            "family": family.name, "file": file, "settings": rows.iter().map(as_json).collect::<Vec<_>>(),
            "unread": unread, "ignored": ignored.ok().flatten(),
        });
        writeln!(out, "{object:#}")
    } else {
        writeln!(out, "family {} ({}) reads {file}", family.name, family.file)
            .and_then(|()| table(&mut out, &rows))
            .and_then(|()| left_over(&mut out, &unread))
            .and_then(|()| match &ignored {
                Ok(ignored) => ignored.iter().try_for_each(|ignored| excused(&mut out, ignored)),
                Err(error) => {
                    let why = format!("{error:#}");
                    writeln!(out, "  weights do not open: {}", why.lines().next().unwrap_or_default())
                }
            })
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("writing to standard output"),
        _ => Ok(Verdict::Done),
    }
}

/// Longer values are shortened; `--json` has all of them.
const WIDEST: usize = 40;

fn table(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    let name = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let values = rows.iter().filter_map(|row| match &row.outcome {
        Outcome::Value { value, .. } => Some(shortened(value).chars().count()),
        Outcome::Absent { .. } | Outcome::Section { .. } => None,
    });
    let wide = values.max().unwrap_or(0);
    for row in rows {
        let source = source(&row.outcome);
        match &row.outcome {
            Outcome::Value { value, .. } => {
                writeln!(out, "  {:name$}  {:wide$}  {source}", row.name, shortened(value))?
            }
            Outcome::Absent { .. } => writeln!(out, "  {:name$}  {:wide$}  {source}", row.name, "-")?,
            Outcome::Section { .. } => writeln!(out, "  {:name$}  {source}", row.name)?,
        }
    }
    Ok(())
}

/// Columns of the lines that list keys.
const WIDTH: usize = 120;

/// The keys that changed nothing, faint on a terminal.
fn left_over(out: &mut impl Write, unread: &[String]) -> io::Result<()> {
    if unread.is_empty() {
        return Ok(());
    }
    let faint = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (on, off) = if faint { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
    let mut line = String::from("  not read:");
    for (i, key) in unread.iter().enumerate() {
        let end = if i + 1 == unread.len() { "" } else { "," };
        if line.chars().count() + key.chars().count() + 2 > WIDTH {
            writeln!(out, "{on}{line}{off}")?;
            line = String::from("   ");
        }
        line += &format!(" {key}{end}");
    }
    writeln!(out, "{on}{line}{off}")
}

/// Stored tensors that are no weights, counted by the pattern of the family that says so; one line for all items of an array.
fn excused(out: &mut impl Write, ignored: &BTreeMap<String, Vec<String>>) -> io::Result<()> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (pattern, names) in ignored {
        let steps = pattern.split('.').map(|step| if step.parse::<u64>().is_ok() { "*" } else { step });
        *counts.entry(steps.collect::<Vec<_>>().join(".")).or_default() += names.len();
    }
    for (pattern, count) in counts {
        writeln!(out, "  stored and ignored: {pattern} ({count})")?;
    }
    Ok(())
}

fn source(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Value { origin, written, .. } => match written {
            Some(written) => format!("{origin}, {written}"),
            None => origin.to_string(),
        },
        Outcome::Absent { condition } => format!("absent: {condition} does not hold"),
        Outcome::Section { keys } => {
            let keys: Vec<String> = keys.iter().map(|(key, fate)| format!("{key:?} {fate}")).collect();
            format!("section: {}", keys.join("; "))
        }
    }
}

fn shortened(value: &Val) -> String {
    let text = value.to_string();
    if text.chars().count() <= WIDEST {
        return text;
    }
    let kept: String = text.chars().take(WIDEST - 16).collect();
    match value {
        Val::List(items) => {
            let kept = kept.rsplit_once(", ").map_or(&kept[..], |(whole, _)| whole);
            format!("{kept}, .. {} in all]", items.len())
        }
        Val::Int(_) | Val::Float(_) | Val::Bool(_) | Val::Text(_) => format!("{kept} .."),
    }
}

fn as_json(row: &Row) -> Value {
    match &row.outcome {
        Outcome::Value { value, origin, written } => {
            let key = match origin {
                Origin::Key(key) => Some(key),
                Origin::Otherwise | Origin::Let | Origin::LimitDefault | Origin::LimitGiven => None,
            };
            json!({
                "name": row.name, "value": plain(value), "source": origin.to_string(), "key": key, "written": written,
            })
        }
        Outcome::Absent { condition } => json!({ "name": row.name, "absent": condition }),
        Outcome::Section { keys } => {
            let chosen = keys.iter().find(|(_, fate)| *fate == Fate::Chosen).map(|(key, _)| key);
            let keys: Vec<Value> =
                keys.iter().map(|(key, fate)| json!({ "key": key, "fate": fate.to_string() })).collect();
            json!({ "name": row.name, "section": chosen, "keys": keys })
        }
    }
}

fn plain(value: &Val) -> Value {
    match value {
        Val::Int(n) => json!(n),
        Val::Float(x) => json!(x),
        Val::Bool(b) => json!(b),
        Val::Text(text) => json!(text),
        Val::List(items) => Value::Array(items.iter().map(plain).collect()),
    }
}
