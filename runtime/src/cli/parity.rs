//! `mlxcel parity`: a table of stages, flushed line by line.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use super::{Verdict, limits::Limits};
use crate::{
    backend::Backend,
    error::{Context, Result},
    family::Family,
    model::Model,
    parity::{self, Golden, Outcome, Row},
    session::{Float, Numerics},
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Checkpoint directory
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// The backend to judge
    #[arg(long, value_enum)]
    a: Backend,
    /// Reference numbers: inputs as `input.*`, stages by probe name; bounds from the .json beside it, else the family's contract
    #[arg(long = "ref", value_name = "FILE.safetensors")]
    reference: PathBuf,
    /// A variant that FILE holds, as `NAME/..`: the same checkpoint on other inputs
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// `pinned`: op order exactly as written; `fused`: declared twins may stand in
    #[arg(long, value_enum, default_value_t = Numerics::Pinned)]
    numerics: Numerics,
    /// Activation dtype
    #[arg(long, value_enum, default_value_t = Float::F32)]
    dtype: Float,
    #[command(flatten)]
    limits: Limits,
}

pub fn run(families: &'static [&'static Family], arguments: Arguments) -> Result<Verdict> {
    let golden = Golden::open(&arguments.reference)?;
    let golden = match &arguments.variant {
        Some(name) => golden.variant(name)?,
        None => golden,
    };
    let model = Model::open_with(&arguments.model, families, arguments.limits.given()?)?;
    let settings = parity::Settings { backend: arguments.a, numerics: arguments.numerics, dtype: arguments.dtype };
    let mut out = std::io::stdout().lock();
    let mut written =
        writeln!(out, "{:24} {:>18} {:>10} {:>10} {:>8}  verdict", "stage", "shape", "max_abs", "rms", "outside");
    let passed = parity::run(&model, &golden, settings, &mut |row| {
        if written.is_ok() {
            written = write_row(&mut out, row);
        }
    })?;
    written.context("writing the table to standard output")?;
    Ok(if passed { Verdict::Done } else { Verdict::Diverged })
}

fn write_row(out: &mut impl Write, row: &Row) -> io::Result<()> {
    let verdict = if row.passed() { "ok" } else { "DIVERGED" };
    match &row.outcome {
        Outcome::Compared { shape, difference: d } => {
            let shape = format!("{shape:?}");
            write!(
                out,
                "{:24} {shape:>18} {:>10.2e} {:>10.2e} {:>8}  {verdict}",
                row.stage, d.max_abs, d.rms, d.outside
            )?;
            match &d.worst {
                Some(worst) if !row.passed() => {
                    writeln!(out, " at {:?}: {:e}, reference {:e}", worst.index, worst.a, worst.b)
                }
                _ => writeln!(out),
            }
        }
        Outcome::Mismatch(reason) => writeln!(out, "{:24} {verdict}: {reason}", row.stage),
        Outcome::NotProbed => writeln!(out, "{:24} {verdict}: the family has no probe of this name", row.stage),
    }
}
