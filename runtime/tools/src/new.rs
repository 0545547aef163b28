//! `mlxcel new family`: a crate to begin a port in, which builds as it is. Within a clone of mgraph a family needs no crate, only
//! its file in `models/families`; this is for everywhere else.
//!
//! The texts lie in `new/template` and say `my_family` where the name goes and `CHECKOUT` where mgraph lies. Compiler and
//! libraries come from that clone: its `Cargo.lock`, its profiles and the variables of its `.cargo/config.toml` are taken over.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{Console, Verdict};

#[derive(Debug, clap::Subcommand)]
pub enum New {
    /// Make a crate with a small decoder to change, a test of it, and an mlxcel that knows it
    Family(Arguments),
}

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of the family: small letters, digits and `_`
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Directory to make [default: NAME, here]
    #[arg(long, value_name = "DIR")]
    pub at: Option<PathBuf>,
    /// A clone of mgraph [default: the one around the current directory]
    #[arg(long, value_name = "PATH")]
    pub mgraph: Option<PathBuf>,
}

const NAME: &str = "my_family";
const CHECKOUT: &str = "CHECKOUT";
const PROFILES: &str = "PROFILES\n";

/// The family, whose text the name is tried on before anything is written.
const FAMILY: &str = include_str!("new/template/families/my_family.mgraph");

const FILES: [(&str, &str); 8] = [
    ("Cargo.toml", include_str!("new/template/Cargo.toml.in")),
    ("build.rs", include_str!("new/template/build.rs.in")),
    ("src/lib.rs", include_str!("new/template/src/lib.rs.in")),
    ("src/main.rs", include_str!("new/template/src/main.rs.in")),
    ("tests/agree.rs", include_str!("new/template/tests/agree.rs.in")),
    ("README.md", include_str!("new/template/README.md.in")),
    (".gitignore", "/target\n"),
    ("families/my_family.mgraph", FAMILY),
];

/// What a directory has that is a clone of mgraph.
const SIGNS: [&str; 3] = ["Cargo.toml", "dsl/src/mgraph.pest", "runtime/mlx-sys/Cargo.toml"];

/// Makes the crate.
///
/// # Errors
/// A name that cannot be a family's, a directory that exists or cannot be made, no clone of mgraph.
pub fn run(new: &New, console: &mut Console<'_>) -> Result<Verdict> {
    let New::Family(Arguments { name, at, mgraph }) = new;
    check_name(name)?;
    let checkout = checkout(mgraph.as_deref())?;
    let dir = at.clone().unwrap_or_else(|| PathBuf::from(name));
    if dir.exists() {
        bail!("{}: this exists already; name another directory with --at", dir.display());
    }
    let profiles = profiles(&checkout)?;
    for (path, text) in FILES {
        let text = filled(text, name, &checkout).replace(PROFILES, &profiles);
        write(&dir.join(path.replace(NAME, name)), &text)?;
    }
    let environment = environment(&checkout)?;
    write(&dir.join(".cargo/config.toml"), &environment)?;
    let lock = checkout.join("Cargo.lock");
    // So that versions are those that mgraph is tested with; Cargo drops what is not needed.
    fs::copy(&lock, dir.join("Cargo.lock")).with_context(|| format!("{}: copying it", lock.display()))?;
    let shown = dir.display();
    console.say(format!(
        "{shown}/families/{name}.mgraph is the family, {shown}/README.md says what comes next. First:\n  cd {shown} && cargo test\n"
    ))?;
    Ok(Verdict::Done)
}

fn write(path: &Path, text: &str) -> Result<()> {
    let told = || format!("{}: this file cannot be written", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(told)?;
    }
    fs::write(path, text).with_context(told)
}

fn filled(text: &str, name: &str, checkout: &Path) -> String {
    text.replace(CHECKOUT, &checkout.display().to_string()).replace(NAME, name)
}

/// A name is a module, part of a crate's name, and a name of the language: the last is asked of the front end.
fn check_name(name: &str) -> Result<()> {
    let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(small) {
        bail!("{name:?} cannot name a family: a name has small letters, digits and `_`, and begins with a letter");
    }
    if name.len() > 48 {
        bail!("{name:?} is too long for a name: 48 letters at most");
    }
    if syn::parse_str::<syn::Ident>(name).is_err() {
        bail!("`{name}` cannot name a family: it is a word of Rust, and the family becomes a module of its name");
    }
    if mgraph_dsl::parser::RESERVED.contains(&name) {
        bail!("`{name}` cannot name a family: it is a word of the language, and reserved");
    }
    if let Err(failed) = mgraph_dsl::compile_text("", &FAMILY.replace(NAME, name)) {
        let why = failed.diagnostics.first().map(|d| d.message.clone()).unwrap_or_default();
        bail!("`{name}` cannot name a family: {why}");
    }
    Ok(())
}

fn checkout(given: Option<&Path>) -> Result<PathBuf> {
    let is_one = |dir: &Path| SIGNS.iter().all(|sign| dir.join(sign).is_file());
    let found = match given {
        Some(dir) if is_one(dir) => dir.to_owned(),
        Some(dir) => bail!("{}: this is no clone of mgraph: it has not {}", dir.display(), SIGNS.join(", ")),
        None => {
            let here = env::current_dir().context("asking for the current directory")?;
            let Some(dir) = here.ancestors().find(|dir| is_one(dir)) else {
                bail!(
                    "there is no clone of mgraph around {}; the crate builds against one: name it with --mgraph PATH",
                    here.display()
                );
            };
            dir.to_owned()
        }
    };
    fs::canonicalize(&found).with_context(|| format!("{}: finding its whole path", found.display()))
}

/// From the clone's `Cargo.toml`, where they stand last.
fn profiles(checkout: &Path) -> Result<String> {
    let path = checkout.join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("{}: this file cannot be read", path.display()))?;
    Ok(text.find("[profile.").map_or_else(String::new, |start| text[start..].to_owned()))
}

/// The clone's variables, with paths that lead there from anywhere.
fn environment(checkout: &Path) -> Result<String> {
    let path = checkout.join(".cargo/config.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("{}: this file cannot be read", path.display()))?;
    let mut out = format!("# From {}, with whole paths.\n", path.display());
    for line in text.lines() {
        let relative = line.split_once("= { value = \"").zip(line.strip_suffix("\", relative = true }"));
        match relative {
            Some(((variable, _), start)) => {
                let value = start.rsplit('"').next().unwrap_or_default();
                out += &format!("{variable}= \"{}\"\n", checkout.join(value).display());
            }
            None => out += &format!("{line}\n"),
        }
    }
    Ok(out)
}
