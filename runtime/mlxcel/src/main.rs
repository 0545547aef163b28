//! The `mlxcel` binary over the families of this repository.

use std::process::ExitCode;

fn main() -> ExitCode {
    mgraph_runtime::cli::main(mgraph_models::FAMILIES)
}
