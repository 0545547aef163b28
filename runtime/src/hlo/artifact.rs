//! Compiled modules, kept between runs: one file per content of text, flags, compiler and CPU.
//!
//! Files appear whole (written beside and renamed), are written by one process at a time, and end with a checksum: one
//! that does not match is compiled again. A cache that cannot be written is no error, only slow.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    time::Instant,
};

use super::compile;
use crate::error::{Context as _, Result};

/// Overrides where compiled modules are kept.
pub const CACHE_VARIABLE: &str = "MLXCEL_CACHE";

const CHECKSUM: usize = blake3::OUT_LEN;

/// A folder of compiled modules.
#[derive(Debug, Clone)]
pub struct Artifacts {
    /// `None`: nothing is kept. Never a folder that another user could have made: what lies here is run.
    folder: Option<PathBuf>,
}

impl Default for Artifacts {
    /// `$MLXCEL_CACHE`, else `mlxcel/artifacts` in the user's cache folder, else none.
    fn default() -> Artifacts {
        let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let home =
            || set("HOME").map(|home| home.join(if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" }));
        let folder =
            set(CACHE_VARIABLE).or_else(|| Some(set("XDG_CACHE_HOME").or_else(home)?.join("mlxcel").join("artifacts")));
        Artifacts { folder }
    }
}

impl Artifacts {
    pub fn in_folder(folder: impl Into<PathBuf>) -> Artifacts {
        Artifacts { folder: Some(folder.into()) }
    }

    /// The module of `text`, from the cache or compiled now. `what` names the graph where work is reported.
    pub fn get(&self, text: &str, flags: &[&str], what: &str, progress: &mut dyn FnMut(&str)) -> Result<Vec<u8>> {
        let Some(folder) = &self.folder else { return compiled(text, flags, what, progress) };
        let path = folder.join(format!("{}.vmfb", key(text, flags)?));
        if let Some(module) = read(&path) {
            return Ok(module);
        }
        // Held until the module is in place, so that a second process waits for it instead of compiling too. The folder
        // may be read-only; then nothing is shared.
        let lock = lock(folder, &path);
        if lock.is_ok()
            && let Some(module) = read(&path)
        {
            return Ok(module);
        }
        let module = compiled(text, flags, what, progress)?;
        if let Err(error) = lock.and_then(|lock| write(&path, &module).map(|()| lock)) {
            progress(&format!("the compiled {what} is not kept: {error:#}"));
        }
        Ok(module)
    }
}

fn compiled(text: &str, flags: &[&str], what: &str, progress: &mut dyn FnMut(&str)) -> Result<Vec<u8>> {
    progress(&format!("compiling {what}"));
    let start = Instant::now();
    let module = compile::compile(text, flags).with_context(|| format!("compiling {what}"))?;
    progress(&format!("compiled {what} in {:.1} s", start.elapsed().as_secs_f64()));
    Ok(module)
}

fn lock(folder: &Path, path: &Path) -> Result<File> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let path = path.with_extension("lock");
    let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = open.with_context(|| format!("opening {}", path.display()))?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

/// What a compiled module depends on.
fn key(text: &str, flags: &[&str]) -> Result<String> {
    let mut hash = blake3::Hasher::new();
    let compiler = compile::identity(&compile::library()?)?;
    for part in [text, &flags.join(" "), &compiler, &cpu()] {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    Ok(hash.finalize().to_hex().to_string())
}

/// Names the instruction set that `target-cpu=host` compiles for.
fn cpu() -> String {
    let lines = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of = |name: &str| lines.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    [std::env::consts::ARCH.to_owned(), of("model name"), of("flags"), of("Features")].join("\n")
}

/// The module, if the file is there and whole.
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = fs::read(path).ok()?;
    let end = bytes.len().checked_sub(CHECKSUM)?;
    if blake3::hash(&bytes[..end]).as_bytes()[..] != bytes[end..] {
        return None;
    }
    bytes.truncate(end);
    Some(bytes)
}

fn write(path: &Path, module: &[u8]) -> Result<()> {
    let beside = path.with_extension(format!("{}.part", std::process::id()));
    let put = || {
        let mut file = File::create(&beside)?;
        file.write_all(module)?;
        file.write_all(blake3::hash(module).as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    put().inspect_err(|_| drop(fs::remove_file(&beside))).with_context(|| format!("writing {}", path.display()))
}
