//! `mlxcel replay`: a case of `mlxcel reduce` once more, on the same executors or others.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use super::{Verdict, progress::Progress};
use crate::{
    backend::Backend,
    error::{Context, Result, ensure},
    parity::compare::Bound,
    reduce::{Case, measured, told},
};

#[derive(clap::Args)]
pub struct Arguments {
    /// The folder that `mlxcel reduce` wrote
    #[arg(value_name = "DIR")]
    case: PathBuf,
    /// [default: as it was found]
    #[arg(long, value_enum)]
    a: Option<Backend>,
    /// [default: as it was found]
    #[arg(long, value_enum)]
    b: Option<Backend>,
    /// The largest difference allowed of any element [default: as it was found]
    #[arg(long, value_name = "MAX_ABS")]
    bound: Option<f64>,
}

pub fn run(arguments: Arguments) -> Result<Verdict> {
    ensure!(arguments.bound.is_none_or(|bound| bound >= 0.0), "--bound is no distance: give 0 or more");
    let case = Case::read(&arguments.case)?;
    let [(a, _), (b, _)] = &case.results;
    let (a, b) = (arguments.a.unwrap_or(*a), arguments.b.unwrap_or(*b));
    let bound = arguments.bound.map_or(case.bound, |max_abs| Bound { max_abs: Some(max_abs), ..Bound::default() });
    let progress = Progress::start();
    progress.step(&format!("running {} on {a} and {b}", arguments.case.display()));
    let difference = case.replay(a, b, Some(bound))?;
    progress.finish();
    let verdict = if difference.within() { "within" } else { "diverged" };
    writeln!(io::stdout(), "{a} beside {b}: {}; allowed: {}; {verdict}", measured(&difference), told(bound))
        .context("writing to standard output")?;
    Ok(if difference.within() { Verdict::Done } else { Verdict::Diverged })
}
