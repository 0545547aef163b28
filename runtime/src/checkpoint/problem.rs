//! What can be wrong with a model directory, each as one sentence with the path and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use thiserror::Error;

/// Everything that kept a checkpoint from being opened or read, collected in one go.
#[derive(Debug)]
pub struct CheckpointError {
    pub dir: PathBuf,
    pub problems: Vec<Problem>,
}

impl CheckpointError {
    pub(super) fn new(dir: &Path, problems: Vec<Problem>) -> CheckpointError {
        CheckpointError { dir: dir.to_path_buf(), problems }
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [only] => write!(f, "the checkpoint {} cannot be used: {only}", self.dir.display()),
            many => {
                write!(f, "the checkpoint {} cannot be used, for {} reasons:", self.dir.display(), many.len())?;
                many.iter().try_for_each(|problem| write!(f, "\n  - {problem}"))
            }
        }
    }
}

impl std::error::Error for CheckpointError {}

#[derive(Debug, Clone, PartialEq, Error)]
pub enum Problem {
    #[error("{} has no config.json; expected a model directory in Hugging Face layout", .0.display())]
    NoConfig(PathBuf),
    #[error("it is a file, and a model directory in Hugging Face layout was expected; {hint}")]
    NotDirectory { hint: String },
    #[error("{} is not a JSON object: {error}", path.display())]
    NotJson { path: PathBuf, error: String },
    #[error("{dir} holds neither model.safetensors nor model.safetensors.index.json; {hint}")]
    NoWeights { dir: String, hint: String },
    #[error("{} is unusable: {why}", path.display())]
    BadIndex { path: PathBuf, why: String },
    #[error(
        "{} does not mention {}, so it is unclear which of them holds the weights; remove the one that is out of date",
        index.display(), weights.display()
    )]
    Ambiguous { weights: PathBuf, index: PathBuf },
    #[error("{} is named by the index but does not exist; fetch it, or the download is incomplete", .0.display())]
    MissingShard(PathBuf),
    #[error("{} is truncated: its header needs {need} bytes, the file has {have}; fetch it again", path.display())]
    Truncated { path: PathBuf, need: u64, have: u64 },
    #[error("{} is not a valid safetensors file: {why}", path.display())]
    BadHeader { path: PathBuf, why: String },
    #[error(
        "{} is stale, it disagrees with the shards; fetch index and shards from the same revision:{}",
        path.display(), bullets(mismatches)
    )]
    StaleIndex { path: PathBuf, mismatches: Vec<String> },
    #[error("the tensor `{name}` is stored twice, in {} and in {}", files[0], files[1])]
    Duplicate { name: String, files: [String; 2] },
    #[error("it holds no tensor `{0}`")]
    NoSuchTensor(String),
    #[error("the tensor `{name}` is stored as {dtype}; expected a float (F16, BF16, F32 or F64)")]
    NotFloat { name: String, dtype: Dtype },
    #[error("{} cannot be read: {error}", path.display())]
    Io { path: PathBuf, error: String },
}

impl Problem {
    pub(super) fn not_a_directory(file: &Path) -> Problem {
        let hint = if file.extension().is_some_and(|end| end == "gguf") {
            format!("run `mlxcel import {} DIR` and use DIR", file.display())
        } else {
            "give the directory that holds config.json".to_owned()
        };
        Problem::NotDirectory { hint }
    }

    /// Looks at what else the directory holds, because that usually names the mistake.
    pub(super) fn no_weights(dir: &Path) -> Problem {
        let files: Vec<String> = std::fs::read_dir(dir)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        let other = |ends: &[&str]| files.iter().find(|file| ends.iter().any(|end| file.ends_with(end)));
        let hint = if let Some(gguf) = other(&[".gguf"]) {
            format!("for {gguf}, run `mlxcel import {gguf} DIR` and use DIR")
        } else if let Some(pickle) = other(&[".bin", ".pt", ".pth"]) {
            format!("{pickle} is a pickle, which is not read: convert it to safetensors")
        } else {
            "fetch the weights as well as the config".to_owned()
        };
        Problem::NoWeights { dir: dir.display().to_string(), hint }
    }
}

fn bullets(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n      {line}")).collect()
}
