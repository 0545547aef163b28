//! `mlxcel reduce` and `replay` on a divergence that is there: a function of two libraries.

use std::{fs, path::Path, process::ExitCode};

use clap::Parser;
use mgraph_runtime::cli;

#[derive(Parser)]
struct Mlxcel {
    #[command(subcommand)]
    command: cli::Command,
}

/// The exit code; what is said goes where the test's own words go.
fn mlxcel(arguments: &[&str]) -> u8 {
    let command = Mlxcel::try_parse_from([&["mlxcel"], arguments].concat()).unwrap().command;
    let code = cli::run(&[], command);
    [0, 1, 2].into_iter().find(|known| code == ExitCode::from(*known)).unwrap()
}

/// On the text of the family: nothing that is generated from it takes part.
fn reduce(out: &Path, more: &[&str]) -> u8 {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (golden, family) = (root.join("tests/goldens/llama"), root.join("models/families/llama.mgraph"));
    let paths = [golden.to_str().unwrap(), "--family", family.to_str().unwrap(), "--out", out.to_str().unwrap()];
    mlxcel(&[&["reduce", "--model"], &paths[..], more].concat())
}

const PROMPT: [&str; 2] = ["--input", "3,14,15,92"];

/// Statements of the op in the file, which is without a mistake.
fn ops(case: &Path) -> usize {
    let file = case.join("case.mgraph");
    mgraph_dsl::compile_file(&file).unwrap().unwrap();
    let text = fs::read_to_string(file).unwrap();
    text.lines().filter(|line| line.starts_with("    let ")).count()
}

#[test]
fn a_function_of_two_libraries_is_one_op() {
    let dir = tempfile::tempdir().unwrap();
    let case = dir.path().join("case");
    for b in ["reference", "iree"] {
        let code = reduce(&case, &[&PROMPT[..], &["--a", "mlx", "--b", b, "--bound", "0"]].concat());
        assert_eq!((code, ops(&case)), (1, 1), "{b}");
        let place = case.to_str().unwrap();
        assert_eq!(mlxcel(&["replay", place]), 1, "{b}");
        assert_eq!(mlxcel(&["replay", place, "--b", "mlx"]), 0, "one executor agrees with itself");
        assert_eq!(mlxcel(&["replay", place, "--bound", "1"]), 0);
    }
}

#[test]
fn within_the_bounds_of_the_ops_nothing_diverges() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(reduce(dir.path(), &[&PROMPT[..], &["--a", "mlx"]].concat()), 0);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_run_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let refused: [(&str, &[&str]); 4] = [
        ("itself", &["--a", "reference", "--input", "3"]),
        ("nothing to run", &["--a", "mlx"]),
        ("no such stage", &["--a", "mlx", "--input", "3", "--stage", "nowhere"]),
        ("no distance", &["--a", "mlx", "--input", "3", "--bound=-1"]),
    ];
    for (what, arguments) in refused {
        assert_eq!(reduce(dir.path(), arguments), 2, "{what}");
    }
    let place = dir.path().to_str().unwrap();
    assert_eq!(mlxcel(&["replay", place]), 2, "no case");
    fs::write(dir.path().join("case.mgraph"), "family").unwrap();
    fs::write(dir.path().join("case.safetensors"), "no tensors").unwrap();
    assert_eq!(mlxcel(&["replay", place]), 2, "a broken case");
}
