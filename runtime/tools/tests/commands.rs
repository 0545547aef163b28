//! The commands as the binary runs them, with what they write in hand.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Parser;
use mgraph_tools::{Command, Console, Verdict, run};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn family(name: &str) -> String {
    root().join("models/families").join(name).display().to_string()
}

/// What a command line gives: the verdict or the error, and standard output.
fn tried(line: &[&str], input: &str) -> (anyhow::Result<Verdict>, String) {
    let cli = Cli::try_parse_from([&["mlxcel"], line].concat()).unwrap_or_else(|error| panic!("{error}"));
    let mut out = Vec::new();
    let verdict = run(cli.command, &mut Console { input: &mut input.as_bytes(), out: &mut out, color: false });
    (verdict, String::from_utf8(out).expect("text"))
}

fn done(line: &[&str]) -> String {
    let (verdict, out) = tried(line, "");
    assert_eq!(verdict.unwrap_or_else(|error| panic!("{error:#}")), Verdict::Done, "{out}");
    out
}

#[track_caller]
fn refused(line: &[&str], says: &[&str]) {
    let error = format!("{:#}", tried(line, "").0.expect_err("an error"));
    for part in says {
        assert!(error.contains(part), "expected {part:?} in:\n{error}");
    }
}

const WRONG: &str = "family toy for \"toy\"\n\nop a(x: F[N], weight: F[N]) -> F[N] { x * weigth }\n";

#[test]
fn check_says_what_a_right_family_is() {
    let out = done(&["check", &family("llama.mgraph")]);
    for part in ["family llama for \"llama\"", "graph embed(tokens: i32[B, S]) -> F[B, S, hidden]", "twins (mlx "] {
        assert!(out.contains(part), "{out}");
    }
}

#[test]
fn check_walks_folders() {
    let out = done(&["check", &family("")]);
    assert!(out.contains("llama.mgraph") && out.contains("family files, no mistake"), "{out}");
}

#[test]
fn check_reports_every_mistake_of_standard_input() {
    let (verdict, out) = tried(&["check", "-"], WRONG);
    assert_eq!(verdict.expect("it ran"), Verdict::Found);
    for part in ["<stdin>:3:43", "there is no `weigth` here", "did you mean `weight`?", "mistakes; `mlxcel explain"] {
        assert!(out.contains(part), "{out}");
    }
}

#[test]
fn check_speaks_json() {
    let (verdict, out) = tried(&["check", "--json", "-"], WRONG);
    assert_eq!(verdict.expect("it ran"), Verdict::Found);
    let object: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let unknown =
        object["mistakes"].as_array().expect("a list").iter().find(|m| m["code"] == "mg0101").expect("reported");
    assert_eq!(unknown["file"], "<stdin>");
    assert_eq!((&unknown["line"], &unknown["column"]), (&3.into(), &43.into()));
    assert_eq!((&unknown["end"]["line"], &unknown["end"]["column"]), (&3.into(), &49.into()));
    assert_eq!(unknown["help"], "did you mean `weight`?");
    let (_, out) = tried(&["check", "--json", &family("llama.mgraph")], "");
    let object: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&object["files"], &object["mistakes"]), (&1.into(), &serde_json::json!([])));
}

#[test]
fn files_that_cannot_be_read_are_named() {
    refused(&["check", "no/such.mgraph"], &["no/such.mgraph", "cannot be read"]);
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    refused(&["check", &at("")], &["no .mgraph file"]);
    fs::write(dir.path().join("latin.mgraph"), b"//! fine\n// caf\xe9\n").expect("a file");
    refused(&["check", &at("latin.mgraph")], &["latin.mgraph:2", "no UTF-8"]);
    refused(&["expand", &at(""), "--backend", "ir"], &["this is a folder"]);
}

#[test]
fn fmt_checks_then_writes_then_has_nothing_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let canonical = fs::read_to_string(family("llama.mgraph")).expect("part of the repository");
    let path = dir.path().join("llama.mgraph");
    fs::write(&path, canonical.replace("    ", "  ")).expect("a file");
    let name = path.display().to_string();

    let (verdict, out) = tried(&["fmt", "--check", &name], "");
    assert_eq!(verdict.expect("it ran"), Verdict::Found);
    assert!(out.contains("@@") && out.contains("1 of 1 file would change"), "{out}");

    done(&["fmt", &name]);
    assert_eq!(fs::read_to_string(&path).expect("the file"), canonical);
    let written = fs::metadata(&path).and_then(|m| m.modified()).expect("a time");
    done(&["fmt", &name]);
    assert_eq!(
        fs::metadata(&path).and_then(|m| m.modified()).expect("a time"),
        written,
        "an unchanged file is not touched"
    );
    assert_eq!(done(&["fmt", "--check", &name]), "");

    let (_, out) = tried(&["fmt", "-"], &canonical.replace("    ", "  "));
    assert_eq!(out, canonical);
    fs::write(&path, "op a(").expect("a file");
    refused(&["fmt", &name], &["does not parse", "mg0002"]);
    assert_eq!(fs::read_to_string(&path).expect("the file"), "op a(");
}

#[cfg(unix)]
#[test]
fn fmt_keeps_links_and_permissions() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().expect("a directory");
    let (path, link) = (dir.path().join("toy.mgraph"), dir.path().join("link.mgraph"));
    fs::write(&path, "family   toy for \"toy\"\n").expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("permissions");
    symlink("toy.mgraph", &link).expect("a link");
    done(&["fmt", &link.display().to_string()]);
    assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
    assert_eq!(fs::read_to_string(&path).expect("the file"), "family toy for \"toy\"\n");
    assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read_dir(dir.path()).expect("the directory").count(), 2, "nothing is left behind");
}

#[test]
fn expand_shows_ir_and_the_code_of_each_backend() {
    let llama = family("llama.mgraph");
    let expand = |backend: &str, more: &[&str]| done(&[&["expand", &llama, "--backend", backend], more].concat());
    assert!(expand("ir", &[]).contains("graph forward("));
    let mlx = expand("mlx", &[]);
    assert!(mlx.contains("pub mod mlx") && !mlx.contains("pub mod hlo"));
    assert!(expand("stablehlo", &[]).contains("pub mod hlo"));
    let norm = expand("mlx", &["--op", "rms_norm"]);
    assert!(norm.contains("pub fn rms_norm(") && !norm.contains("pub fn rope("), "{norm}");
    assert!(expand("ir", &["--graph", "embed"]).starts_with("graph embed(tokens"));
    assert!(expand("stablehlo", &["--block", "Layer"]).contains("pub struct Layer"));
    assert!(expand("mlx", &["--graph", "forward"]).contains("pub fn forward("));
    refused(&["expand", &llama, "--backend", "mlx", "--op", "rope_frequencies"], &["when a checkpoint is opened"]);
    refused(&["expand", &llama, "--backend", "ir", "--op", "rmsnorm"], &["did you mean `rms_norm`?"]);
}

#[test]
fn graph_draws_calls_shapes_stacks_and_probes() {
    let dot = done(&["graph", &family("llama.mgraph"), "-o", "-"]);
    for part in
        ["graph forward", "block Layer(i: int)", "F[B, S, hidden]", "box3d", "× depth", "@ layer.{i}.attn", "if tied"]
    {
        assert!(dot.contains(part), "{part} is missing in\n{dot}");
    }
    let rope = done(&["graph", &family("llama.mgraph"), "-o", "-", "--op", "rope"]);
    assert!(rope.contains("op rope") && !rope.contains("graph forward"), "{rope}");
    refused(&["graph", &family("llama.mgraph"), "-o", "x.jpg"], &["x.jpg", ".svg"]);
    refused(&["graph", &family("llama.mgraph"), "-o", "no/such/x.dot"], &["no/such/x.dot", "cannot be written"]);
    refused(&["graph", &family("llama.mgraph"), "-o", "-", "--op", "rope_frequencies"], &["no flow of tensors"]);
}

#[test]
fn graphviz_takes_what_is_drawn() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in fs::read_dir(root().join("models/families")).expect("the folder") {
        let path = name.expect("an entry").path();
        if path.extension().is_some_and(|end| end == "mgraph") {
            let svg = dir.path().join("x.svg");
            done(&["graph", &path.display().to_string(), "-o", &svg.display().to_string()]);
            assert!(fs::read_to_string(&svg).expect("a picture").contains("</svg>"), "{}", path.display());
        }
    }
}

#[test]
fn explain_takes_every_spelling_of_a_code() {
    let page = done(&["explain", "mg0301"]);
    for part in ["mg0301: dims that are not provably equal", "Wrong:", "`+` meets [B, N] and [B, M]", "Right:"] {
        assert!(page.contains(part), "{page}");
    }
    for spelling in ["301", "mg301", "MG0301"] {
        assert_eq!(done(&["explain", spelling]), page);
    }
    refused(&["explain", "mg0399"], &["no error code mg0399", "mg0301"]);
    refused(&["explain", "dims"], &["\"dims\" is no error code"]);
}

#[test]
fn explain_alone_lists_all_codes() {
    let list = done(&["explain"]);
    for code in mgraph_dsl::diagnostic::Code::ALL {
        assert!(list.contains(&format!("{code}  {}", code.title())), "{list}");
    }
}

#[test]
fn new_family_makes_a_crate_whose_family_is_right_and_formatted() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().join("made").display().to_string();
    let checkout = root().display().to_string();
    let make = |name: &'static str| ["new", "family", name, "--at", &at, "--mgraph", &checkout].map(str::to_owned);
    let line = make("pocket");
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    done(&line);
    assert_eq!(done(&["fmt", "--check", &at]), "");
    assert!(done(&["check", &at]).contains("family pocket for \"pocket\""));
    for file in
        ["Cargo.toml", "Cargo.lock", "build.rs", "src/main.rs", "tests/agree.rs", ".cargo/config.toml", "README.md"]
    {
        let text = fs::read_to_string(Path::new(&at).join(file)).expect(file);
        assert!(
            !text.contains("my_family") && !text.contains("CHECKOUT") && !text.contains("relative = true"),
            "{file}"
        );
    }
    let manifest = fs::read_to_string(Path::new(&at).join("Cargo.toml")).expect("a manifest");
    assert!(manifest.contains("[profile.dev]") && !manifest.contains("PROFILES"), "{manifest}");
    refused(&line, &["exists already", "--at"]);
}

#[test]
fn new_family_refuses_names_that_cannot_be_one() {
    for (name, says) in [
        ("Pocket", "small letters"),
        ("1st", "begins with a letter"),
        ("a-b", "small letters"),
        ("", "small letters"),
        ("try", "a word of Rust"),
        ("config", "a word of the language"),
        ("model", "a word of the language"),
    ] {
        refused(&["new", "family", name, "--mgraph", &root().display().to_string()], &[says]);
    }
    refused(&["new", "family", "pocket", "--at", "/nowhere/x", "--mgraph", "/"], &["no clone of mgraph"]);
}

#[test]
fn a_file_named_twice_is_checked_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.mgraph");
    let ops: String = (0..150).map(|n| format!("op same{n}(x: F[N]) -> F[N] {{ y }}\n")).collect();
    fs::write(&path, format!("family bad for \"bad\"\n{ops}")).unwrap();
    let (file, folder) = (path.display().to_string(), folder.path().display().to_string());
    let (verdict, out) = tried(&["check", &file, &folder, &file], "");
    assert_eq!(verdict.unwrap(), Verdict::Found);
    assert_eq!(out.matches("mg0").count(), 100, "{out}");
    assert!(out.contains(".. and 51 more mistakes in") && out.contains("\n151 mistakes; "), "{out}");
}

#[test]
fn a_read_only_file_is_not_formatted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.mgraph");
    fs::write(&path, "family   my for \"my\"\n").unwrap();
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    refused(&["fmt", &path.display().to_string()], &["this file is read-only"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "family   my for \"my\"\n");
}

/// What `head` does to `mlxcel expand .. | head`.
#[test]
fn a_reader_that_leaves_is_no_error() {
    struct Gone;
    impl std::io::Write for Gone {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let llama = family("llama.mgraph");
    for line in
        [&["explain"][..], &["check", &llama], &["expand", &llama, "--backend", "ir"], &["graph", &llama, "-o", "-"]]
    {
        let cli = Cli::try_parse_from([&["mlxcel"], line].concat()).unwrap_or_else(|error| panic!("{error}"));
        let console = &mut Console { input: &mut std::io::empty(), out: &mut Gone, color: false };
        assert_eq!(run(cli.command, console).unwrap_or_else(|error| panic!("{error:#}")), Verdict::Done);
    }
}
