//! `mlxcel` with the families of mgraph and ours.

use std::process::ExitCode;

fn main() -> ExitCode {
    let families = [mgraph_models::FAMILIES, own_family::FAMILIES].concat();
    mgraph_runtime::cli::main(families.leak())
}
