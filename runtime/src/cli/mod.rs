//! The `mlxcel` command line. One file per command; this one has the table of commands, exit codes and progress.

mod config;
mod family;
mod generate;
mod import;
mod input;
mod limits;
mod parity;
mod progress;
mod reduce;
mod replay;
mod whole;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{error::Result, family::Family, memory};

/// Exit codes, the same for every command of every binary.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done; for `parity`, `reduce` and `replay`: nothing diverged; for `check`: no mistake
  1  found something: `parity`, `reduce` and `replay` what diverged, `check` a mistake, `fmt --check` a file it would change
  2  could not run: wrong arguments, unreadable input, a model that cannot be served";

#[derive(Parser)]
#[command(name = "mlxcel", version, about = "Runs model families written in .mgraph on MLX and on IREE.", after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The commands over models. A binary with more of its own flattens them into its table and calls [`run`].
#[derive(Subcommand)]
pub enum Command {
    /// Show what a checkpoint's config.json means to its family
    Config(config::Arguments),
    /// Generate text from a prompt
    Generate(generate::Arguments),
    /// Turn a GGUF file into a checkpoint directory
    Import(import::Arguments),
    /// Compare executors with reference numbers or with each other, stage by stage
    Parity(parity::Arguments),
    /// Make a divergence small: the one op, or the few, that two executors compute differently, as a file with its tensors
    Reduce(reduce::Arguments),
    /// Run what `reduce` wrote again
    Replay(replay::Arguments),
}

/// What a command found out, where that is not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Done,
    Diverged,
}

/// Runs the command of this process's arguments over `families`: the whole of a binary's `main`.
pub fn main(families: &'static [&'static Family]) -> ExitCode {
    run(families, Cli::parse().command)
}

/// Runs one command over `families`.
pub fn run(families: &'static [&'static Family], command: Command) -> ExitCode {
    memory::keep_freed();
    let verdict = match command {
        Command::Config(arguments) => config::run(families, arguments),
        Command::Generate(arguments) => generate::run(families, arguments),
        Command::Import(arguments) => import::run(arguments),
        Command::Parity(arguments) => parity::run(families, arguments),
        Command::Reduce(arguments) => reduce::run(families, arguments),
        Command::Replay(arguments) => replay::run(arguments),
    };
    exit_code(verdict)
}

fn exit_code(verdict: Result<Verdict>) -> ExitCode {
    match verdict {
        Ok(Verdict::Done) => ExitCode::SUCCESS,
        Ok(Verdict::Diverged) => ExitCode::from(1),
        Err(error) => {
            progress::note(format_args!("error: {error:#}"));
            ExitCode::from(2)
        }
    }
}
