//! The commands of `mlxcel` over family files: what needs the language and the emitters, and no model.
//!
//! One file per command, each with its arguments and a `run` that writes to a [`Console`], so that tests call them as the
//! binary does. This file has the table of commands and the meaning of their exit codes.

pub mod check;
pub mod console;
pub mod expand;
pub mod explain;
mod files;
pub mod fmt;
pub mod graph;
pub mod lsp;
pub mod new;

use std::{io::Write, process::ExitCode};

use clap::Subcommand;
use mgraph_dsl::{ir::LoadParameter, print};

pub use console::Console;

/// What a command found out, where that is not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Exit code 0.
    Done,
    /// Exit code 1: the command works, and what it looked at is wrong.
    Found,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Report every mistake in family files
    Check(check::Arguments),
    /// Put family files into the one canonical layout
    Fmt(fmt::Arguments),
    /// Show what a family becomes: its IR, or the code generated from it
    Expand(expand::Arguments),
    /// Draw a family: its graphs and blocks, with shapes on the edges
    Graph(graph::Arguments),
    /// Explain an error code, or list them all
    Explain(explain::Arguments),
    /// Begin a family of your own
    #[command(subcommand)]
    New(new::New),
    /// Serve an editor over standard input and output (Language Server Protocol)
    Lsp(lsp::Arguments),
}

/// `(i: int)`, or nothing.
fn print_parameters(parameters: &[LoadParameter]) -> String {
    if parameters.is_empty() {
        return String::new();
    }
    let parameters = parameters.iter().map(|p| format!("{}: {}", p.name, print::load_type(&p.ty)));
    format!("({})", parameters.collect::<Vec<_>>().join(", "))
}

/// Runs one command on the streams of this process: the whole of a binary's `main` behind the command line.
pub fn main(command: Command) -> ExitCode {
    match Console::of_process(|console| run(command, console)) {
        Ok(Verdict::Done) => ExitCode::SUCCESS,
        Ok(Verdict::Found) => ExitCode::from(1),
        Err(error) => {
            // That nobody reads it is no reason to fail otherwise.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs one command.
///
/// # Errors
/// What kept it from running: exit code 2. A reader of standard output who has left is none.
pub fn run(command: Command, console: &mut Console<'_>) -> anyhow::Result<Verdict> {
    let verdict = match command {
        Command::Check(arguments) => check::run(&arguments, console),
        Command::Fmt(arguments) => fmt::run(&arguments, console),
        Command::Expand(arguments) => expand::run(&arguments, console),
        Command::Graph(arguments) => graph::run(&arguments, console),
        Command::Explain(arguments) => explain::run(&arguments, console),
        Command::New(arguments) => new::run(&arguments, console),
        Command::Lsp(arguments) => lsp::run(&arguments),
    };
    match verdict {
        Err(error) if console::reader_has_left(&error) => Ok(Verdict::Done),
        verdict => verdict,
    }
}
