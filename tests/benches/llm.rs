//! Prefill and decode speed and peak memory, ours beside others, measured in one run: the real model, a Qwen3 of random weights, and
//! mixtures of experts.
//!
//! `make bench` prepares the model and the peers. Every measurement is a process of its own, so that its peak memory is
//! its own; rounds are interleaved, and the best of each is reported, because noise only ever slows a run down.
//! Peers live in `benches/peers/`: programs that print what [`contender::Measured`] reads. `cargo bench .. --bench llm -- experts` runs
//! one part alone.

mod contender;
mod expand;
mod experts;
mod qwen3;
mod random;
mod real;

use std::{env, path::PathBuf};

use mgraph_runtime::error::{Result, bail};

/// A part of the bench: its name on the command line, and what it runs in the repository.
type Part = (&'static str, fn(&std::path::Path) -> Result<()>);

const PARTS: [Part; 3] = [("real", real::run), ("qwen3", qwen3::run), ("experts", experts::run)];

fn main() -> Result<()> {
    if let Some(child) = contender::child() {
        return child;
    }
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    // Cargo itself adds `--bench`.
    let wanted: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let Some(unknown) = wanted.iter().find(|name| !PARTS.iter().any(|(part, _)| part == name)) {
        bail!("the bench has no part {unknown}; it has real, qwen3 and experts");
    }
    for (name, run) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|one| one == name) {
            run(&root)?;
        }
    }
    Ok(())
}
