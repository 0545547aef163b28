//! `mlxcel import model.gguf DIR`: a GGUF file becomes a model directory in Hugging Face layout, without loss.
//!
//! The numbers do not change: blocks of 32 become MLX affine groups whose dequantization equals ggml's in f32, bit for bit
//! (`tests/import.rs` holds the line; only the sign of a zero may differ where a Q4_0 scale is negative). [`Plan`] decides
//! everything from the file's directory and scales, so all complaints come before anything is written.

mod directory;
mod llama;
mod rope;
mod tensors;
mod vocabulary;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thiserror::Error;

use crate::gguf::{Format, Gguf, GgufError};
use directory::Staging;
pub use tensors::Output;

/// Raised whenever the same file would be imported differently.
const IMPORTER: &str = "mgraph-import-1";
/// The architecture that can be imported, and the `model_type` that it has then.
pub const MODEL_TYPE: &str = "llama";
const RECORD: &str = "import.json";

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub dir: PathBuf,
    /// The directory was already there, made from this very file; nothing was written.
    pub unchanged: bool,
    pub tensors: usize,
    /// How many of the file's tensors became packed matrices.
    pub packed: usize,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { dir, unchanged, tensors, packed, bytes_read, bytes_written } = self;
        let dir = dir.display();
        if *unchanged {
            return write!(f, "{dir} is an import of this very file already; nothing to do");
        }
        let mib = |bytes: &u64| *bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "{dir}: {tensors} tensors, {packed} matrices packed, {:.1} MiB of weights from a file of {:.1} MiB",
            mib(bytes_written),
            mib(bytes_read)
        )
    }
}

#[derive(Debug, Error)]
pub enum ImportError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error(
        "{} holds tensors in formats that cannot be imported without loss; accepted are {}. Choose another file of this \
         model, or requantize it. The tensors are:{}",
        path.display(), Listed(&Format::READ), Offenders(tensors)
    )]
    Formats { path: PathBuf, tensors: Vec<(String, Format)> },
    #[error("{} is a model of architecture `{found}`; `llama` is what can be imported", path.display())]
    Architecture { path: PathBuf, found: String },
    #[error("{} cannot be imported:{}", path.display(), Bullets(problems))]
    Model { path: PathBuf, problems: Vec<String> },
    #[error("the tokenizer of {} cannot be imported: {why}", path.display())]
    Tokenizer { path: PathBuf, why: String },
    #[error(
        "{} is not empty and is no import of this very file; choose another directory, or remove it first", .0.display()
    )]
    Occupied(PathBuf),
    #[error("another import into {} is running; wait for it to end", .0.display())]
    Busy(PathBuf),
    #[error("{} cannot be written: {error}", path.display())]
    Write { path: PathBuf, error: String },
    #[error("{} cannot be read: {error}", path.display())]
    Read { path: PathBuf, error: String },
}

impl ImportError {
    fn write(path: &Path) -> impl Fn(std::io::Error) -> ImportError + '_ {
        |error| ImportError::Write { path: path.to_path_buf(), error: error.to_string() }
    }
}

/// Imports the file at `path` into the new directory `out`. The directory appears complete or not at all; importing the
/// same file again finds it and changes nothing. `progress` is told each step as it begins.
pub fn gguf(path: &Path, out: &Path, progress: &mut dyn FnMut(&str)) -> Result<Summary, ImportError> {
    progress(&format!("reading {}", path.display()));
    let gguf = Gguf::open(path)?;
    let bytes_read = std::fs::metadata(path).map_err(|error| read_error(path, &error))?.len();
    let source = json!({
        "importer": IMPORTER,
        "file": path.file_name().map(|name| name.to_string_lossy()),
        "bytes": bytes_read,
        "blake3": digest(path)?,
    });
    let plan = Plan::new(&gguf)?;
    let summary = Summary {
        dir: out.to_path_buf(),
        unchanged: false,
        tensors: plan.tensors.len(),
        packed: plan.tensors.iter().filter(|tensor| tensor.is_codes()).count(),
        bytes_read,
        bytes_written: plan.tensors.iter().map(Output::byte_len).sum(),
    };
    if directory::is_import_of(out, &source)? {
        return Ok(Summary { unchanged: true, bytes_written: 0, ..summary });
    }
    let staging = Staging::new(out)?;
    plan.write(&staging, progress)?;
    progress(&format!("flushing {} to disk", out.display()));
    staging.publish(source)?;
    Ok(summary)
}

/// Everything an import will write, decided from the file alone.
pub struct Plan<'a> {
    pub tensors: Vec<Output<'a>>,
    pub config: Value,
    pub generation_config: Value,
    pub tokenizer: Value,
    pub tokenizer_config: Value,
}

impl<'a> Plan<'a> {
    pub fn new(gguf: &'a Gguf) -> Result<Plan<'a>, ImportError> {
        let path = || gguf.path().to_path_buf();
        let architecture = gguf.require("general.architecture", gguf.string("general.architecture")?)?;
        if architecture != MODEL_TYPE {
            return Err(ImportError::Architecture { path: path(), found: architecture.to_owned() });
        }
        if gguf.integer("split.count")?.is_some_and(|count| count > 1) {
            let why =
                "it is one part of a split model; merge the parts with `llama-gguf-split --merge` first".to_owned();
            return Err(ImportError::Model { path: path(), problems: vec![why] });
        }
        let foreign: Vec<_> = gguf
            .tensors()
            .iter()
            .filter(|(_, info)| !Format::READ.contains(&info.format))
            .map(|(name, info)| (name.clone(), info.format))
            .collect();
        if !foreign.is_empty() {
            return Err(ImportError::Formats { path: path(), tensors: foreign });
        }
        let model = llama::Model::read(gguf)?;
        let vocabulary = vocabulary::read(gguf, model.vocab)?;
        let tensors = tensors::outputs(gguf, &model.sources)?;
        let config = model.config(&vocabulary);
        Ok(Plan {
            tensors,
            config,
            generation_config: vocabulary.generation_config(),
            tokenizer: vocabulary.tokenizer,
            tokenizer_config: vocabulary.tokenizer_config,
        })
    }

    fn write(&self, staging: &Staging, progress: &mut dyn FnMut(&str)) -> Result<(), ImportError> {
        staging.json("config.json", &self.config)?;
        staging.json("generation_config.json", &self.generation_config)?;
        staging.json("tokenizer.json", &self.tokenizer)?;
        staging.json("tokenizer_config.json", &self.tokenizer_config)?;
        staging.weights("model.safetensors", &self.tensors, progress)
    }
}

fn read_error(path: &Path, error: &std::io::Error) -> ImportError {
    ImportError::Read { path: path.to_path_buf(), error: error.to_string() }
}

fn digest(path: &Path) -> Result<String, ImportError> {
    let mut hasher = blake3::Hasher::new();
    File::open(path).and_then(|file| hasher.update_reader(file).map(drop)).map_err(|error| read_error(path, &error))?;
    Ok(hasher.finalize().to_hex().to_string())
}

struct Listed<'a>(&'a [Format]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(Format::to_string).collect();
        f.write_str(&names.join(", "))
    }
}

struct Offenders<'a>(&'a [(String, Format)]);

impl fmt::Display for Offenders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, format)| write!(f, "\n  - {name} ({format})"))
    }
}

struct Bullets<'a>(&'a [String]);

impl fmt::Display for Bullets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [only] => write!(f, " {only}"),
            many => many.iter().try_for_each(|line| write!(f, "\n  - {line}")),
        }
    }
}
