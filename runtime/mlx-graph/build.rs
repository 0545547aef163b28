//! Compiles `graph.cpp` against the headers of the MLX that `mlx-sys` links. It only calls what the headers define, and one function of
//! mlx-c, so there is nothing to link here. On Apple targets the headers lie inside upstream's build, and nothing is compiled.

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

fn main() -> ExitCode {
    println!("cargo:rerun-if-env-changed=MLX_DIR");
    println!("cargo:rerun-if-changed=graph.cpp");
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_VENDOR").as_deref() == Ok("apple") {
        return ExitCode::SUCCESS;
    }
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let Some(mlx) = mlx(&here) else {
        eprintln!(
            "\nmgraph-mlx-graph: no headers of MLX found. Run `make setup` in the workspace root, or set MLX_DIR\n"
        );
        return ExitCode::FAILURE;
    };
    println!("cargo:rerun-if-changed={}", mlx.join("include/mlx/version.h").display());
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++20")
        .opt_level(1)
        .debug(false)
        .warnings(false)
        .flag("-isystem")
        .flag(mlx.join("include"))
        .flag("-include")
        .flag(here.join("../mlx-sys/compat/std_format.h"))
        .file("graph.cpp");
    match build.try_compile("mgraph_mlx_graph") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nmgraph-mlx-graph: compiling graph.cpp: {error}\n");
            ExitCode::FAILURE
        }
    }
}

/// Where `mlx-sys` looks for it, too.
fn mlx(here: &Path) -> Option<PathBuf> {
    let given = env::var_os("MLX_DIR").map(PathBuf::from);
    let found = || here.ancestors().map(|dir| dir.join(".toolchain/mlx"));
    given.into_iter().chain(found()).find(|dir| dir.join("include/mlx/primitives.h").is_file())
}
