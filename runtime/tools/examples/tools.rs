//! The commands of this crate alone, in a binary that links no backend: `cargo run -p mgraph-tools --example tools -- check FILE`.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: mgraph_tools::Command,
}

fn main() -> ExitCode {
    mgraph_tools::main(Cli::parse().command)
}
