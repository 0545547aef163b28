//! `mlxcel import`: a GGUF file becomes a checkpoint directory.

use std::path::PathBuf;

use super::{
    Verdict,
    progress::{Progress, note},
};
use crate::{error::Result, import};

#[derive(clap::Args)]
pub struct Arguments {
    /// The GGUF file (tensors F32, F16, Q8_0, Q4_0 or Q4_1)
    #[arg(value_name = "MODEL.gguf")]
    gguf: PathBuf,
    /// Directory to make; an earlier import of the same file is left as it is
    dir: PathBuf,
}

pub fn run(arguments: Arguments) -> Result<Verdict> {
    let progress = Progress::start();
    let summary = import::gguf(&arguments.gguf, &arguments.dir, &mut |step| progress.step(step))?;
    progress.finish();
    note(summary);
    Ok(Verdict::Done)
}
