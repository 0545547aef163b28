//! For build scripts: turn a folder of `.mgraph` files into modules and a registry.
//!
//! ```no_run
//! // build.rs
//! mgraph_codegen::build::families("families");
//! ```
//!
//! and `include!(concat!(env!("OUT_DIR"), "/families.rs"));` in the library, which then has one module per family and
//! `pub static FAMILIES`. Nothing is written that did not change, so an unchanged folder compiles nothing anew.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use mgraph_dsl::ir::Program;
use syn::ext::IdentExt;

use crate::{Options, emit, format, names};

/// Generates for every `*.mgraph` file of `directory` (relative to the crate) and tells Cargo what to watch. Mistakes are
/// printed as the compiler prints its own, and end the build script with status 1.
pub fn families(directory: impl AsRef<Path>) {
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from);
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let Some(out) = out else {
        fail("OUT_DIR is not set: mgraph_codegen::build is for build scripts");
    };
    let directory = here.join(directory);
    println!("cargo::rerun-if-changed={}", directory.display());
    match generate(&directory, &here, &out) {
        Ok(files) => files.iter().for_each(|file| println!("cargo::rerun-if-changed={}", file.display())),
        Err(message) => fail(&message),
    }
}

fn fail(message: &str) -> ! {
    // Cargo shows what a failed build script wrote here.
    eprintln!("{message}");
    std::process::exit(1)
}

/// [`families`] without Cargo: writes into `out`, shows files relative to `base`, returns the inputs.
///
/// # Errors
/// Everything that is wrong in any of the files, rendered with places; or a folder that cannot be read or written.
pub fn generate(directory: &Path, base: &Path, out: &Path) -> Result<Vec<PathBuf>, String> {
    let told = |path: &Path, e: io::Error| format!("{}: {e}", path.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(|e| told(directory, e))? {
        let path = entry.map_err(|e| told(directory, e))?.path();
        if path.extension().is_some_and(|e| e == "mgraph") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(format!("{}: there is no .mgraph file here", directory.display()));
    }
    let mut wrong = Vec::new();
    let mut modules = Vec::new();
    let mut served = Served::default();
    for path in &files {
        match family(path, base) {
            Ok((program, text)) => {
                wrong.extend(served.add(&program, &shown(path, base)));
                let name = program.name;
                let earlier =
                    modules.iter().find(|(other, _, _)| *other == name).map(|(_, path, _): &(_, &PathBuf, _)| path);
                if let Some(earlier) = earlier {
                    wrong.push(format!("{} and {} both define family `{name}`", earlier.display(), path.display()));
                    continue;
                }
                modules.push((name, path, text));
            }
            Err(message) => wrong.push(message),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    for (name, _, text) in &modules {
        write_changed(&out.join(format!("{}.rs", names::family(name).unraw())), text).map_err(|e| told(out, e))?;
    }
    let registry = registry(modules.iter().map(|(name, path, _)| (name.as_str(), shown(path, base))));
    write_changed(&out.join("families.rs"), &registry).map_err(|e| told(out, e))?;
    Ok(files)
}

/// By what checkpoints say of themselves, who serves them.
#[derive(Default)]
struct Served {
    /// `model_type`, the file of a family, whether it names `architectures`.
    types: Vec<(String, String, bool)>,
    architectures: Vec<(String, String)>,
}

impl Served {
    /// What leaves it open which of two families serves a checkpoint.
    fn add(&mut self, program: &Program, file: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        let told = !program.architectures.is_empty();
        for name in &program.model_types {
            let shared = self.types.iter().find(|(known, _, too)| known == name && !(told && *too));
            if let Some((_, other, _)) = shared {
                wrong.push(format!(
                    "{other} and {file} both serve model_type {name:?}; say in each which `architectures` are its own: \
                     `family {} for {name:?} as \"..\"`",
                    program.name
                ));
            }
            self.types.push((name.clone(), file.to_owned(), told));
        }
        for name in &program.architectures {
            if let Some((_, other)) = self.architectures.iter().find(|(known, _)| known == name) {
                wrong
                    .push(format!("{other} and {file} both serve architecture {name:?}; it can be that of one family"));
            }
            self.architectures.push((name.clone(), file.to_owned()));
        }
        wrong
    }
}

/// One family, and the text of its module.
fn family(path: &Path, base: &Path) -> Result<(Program, String), String> {
    let shown = shown(path, base);
    let text = fs::read_to_string(path).map_err(|e| format!("{shown}: {e}"))?;
    let program = mgraph_dsl::compile_text(&shown, &text).map_err(|failed| failed.to_string())?;
    let options = Options { path: Some(path.to_path_buf()) };
    let module = emit(&program, &options).and_then(format).map_err(|e| format!("{shown}: {e}"))?;
    let header = format!("// Generated from {shown} (digest {}); do not edit.\n\n", program.digest);
    Ok((program, header + &module))
}

fn shown(path: &Path, base: &Path) -> String {
    path.strip_prefix(base).unwrap_or(path).display().to_string()
}

fn registry<'a>(modules: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut text = String::from("// Generated; do not edit.\n");
    let mut entries = String::new();
    for (name, file) in modules {
        let module = names::family(name);
        let name = module.unraw();
        text += &format!(
            "\n/// {file}\npub mod {module} {{\n    include!(concat!(env!(\"OUT_DIR\"), \"/{name}.rs\"));\n}}\n"
        );
        entries += &format!("    &{module}::FAMILY,\n");
    }
    text += &format!(
        "\n/// Every family of this crate.\npub static FAMILIES: &[&::mgraph_runtime::family::Family] = &[\n{entries}];\n"
    );
    text
}

/// So that Cargo sees a new file only where something is new.
fn write_changed(path: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text)
}
