//! The `mlxcel` binary: the commands over models, with the families of this repository, and those over family files.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mgraph_runtime::cli;

#[derive(Parser)]
#[command(
    name = "mlxcel",
    version,
    about = "Runs model families written in .mgraph on MLX and on IREE, and helps to write them.",
    after_help = cli::EXIT_CODES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Model(cli::Command),
    /// Serve a model over HTTP, in the form that OpenAI's clients speak
    Serve(Box<mgraph_serve::Arguments>),
    #[command(flatten)]
    Family(mgraph_tools::Command),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Model(command) => cli::run(mgraph_models::FAMILIES, command),
        Command::Serve(arguments) => mgraph_serve::main(mgraph_models::FAMILIES, *arguments),
        Command::Family(command) => mgraph_tools::main(command),
    }
}
