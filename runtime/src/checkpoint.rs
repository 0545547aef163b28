//! A model directory in Hugging Face layout: `config.json` kept raw, and safetensors shards by mmap.
//!
//! Tensors are found by name, never by position. An index (`model.safetensors.index.json`) is a claim that is checked
//! against the headers of the shards it names, because a stale one is the classic way to load half of another model.
//! Opening reads headers only and reports everything that is wrong at once. What the names mean is not known here.

mod problem;
mod shard;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
pub use safetensors::Dtype;
use serde_json::{Map, Value};

pub use problem::{CheckpointError, Problem};
use shard::Shard;
pub(crate) use shard::release;

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// An open checkpoint. Holds one mapping per shard; tensor bytes are read when touched.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    config: Value,
    shards: Vec<Shard>,
    tensors: BTreeMap<String, StoredTensor>,
}

/// Where a tensor lies. `shape` is in elements, outermost axis first; `range` is in bytes of the shard's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTensor {
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    /// Index into [`Checkpoint::shard_files`].
    pub shard: usize,
    range: std::ops::Range<usize>,
}

impl StoredTensor {
    pub fn byte_len(&self) -> usize {
        self.range.len()
    }
}

impl Checkpoint {
    /// Opens `dir`, reading the config and every shard's header. The error lists all problems found, with file paths.
    pub fn open(dir: &Path) -> Result<Checkpoint, CheckpointError> {
        if dir.is_file() {
            return Err(CheckpointError::new(dir, vec![Problem::not_a_directory(dir)]));
        }
        let mut problems = Vec::new();
        let config = match read_object(&dir.join("config.json")) {
            Ok(Some(config)) => Value::Object(config),
            Ok(None) => {
                problems.push(Problem::NoConfig(dir.to_path_buf()));
                Value::Null
            }
            Err(problem) => {
                problems.push(problem);
                Value::Null
            }
        };

        let mut shards = Vec::new();
        let mut tensors = BTreeMap::new();
        match Layout::of(dir) {
            Ok(layout) => {
                for name in layout.files() {
                    match Shard::open(&dir.join(&name)) {
                        Ok(opened) => shards.push((name, opened)),
                        Err(problem) => problems.push(problem),
                    }
                }
                collect(&shards, &mut tensors, &mut problems);
                layout.check(dir, &shards, &mut problems);
            }
            Err(found) => problems.extend(found),
        }
        if !problems.is_empty() {
            return Err(CheckpointError::new(dir, problems));
        }
        let shards = shards.into_iter().map(|(_, (shard, _))| shard).collect();
        Ok(Checkpoint { dir: dir.to_path_buf(), config, shards, tensors })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `config.json` as it stands, key order kept.
    pub fn config(&self) -> &Value {
        &self.config
    }

    pub fn tensors(&self) -> &BTreeMap<String, StoredTensor> {
        &self.tensors
    }

    pub fn shard_files(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.shards.iter().map(Shard::path)
    }

    /// The sum of all tensors, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.tensors.values().map(|tensor| tensor.range.len() as u64).sum()
    }

    /// The stored bytes, little-endian, borrowed from the mapping. They may lie at any alignment.
    pub fn bytes(&self, name: &str) -> Result<&[u8], CheckpointError> {
        let tensor = self.find(name)?;
        // `collect` took the range from the header that `Shard::open` checked against the file's length.
        Ok(&self.shards[tensor.shard].bytes()[tensor.range.clone()])
    }

    /// The values in f32; f16 and bf16 widen exactly, f64 rounds. Refuses integers and codes.
    pub fn to_f32(&self, name: &str) -> Result<Vec<f32>, CheckpointError> {
        let (dtype, bytes) = (self.find(name)?.dtype, self.bytes(name)?);
        floats(dtype, bytes, |x| x as f32, |x| x).ok_or_else(|| self.not_float(name, dtype))
    }

    /// The values in f64; every float dtype widens exactly. Refuses integers and codes.
    pub fn to_f64(&self, name: &str) -> Result<Vec<f64>, CheckpointError> {
        let (dtype, bytes) = (self.find(name)?.dtype, self.bytes(name)?);
        floats(dtype, bytes, |x| x, f64::from).ok_or_else(|| self.not_float(name, dtype))
    }

    /// Tells the kernel that this tensor's pages are no longer needed: they leave the process's resident memory and come
    /// back from the file if touched again. Without it, peak memory counts the checkpoint beside its copy on the device.
    pub fn release(&self, name: &str) -> Result<(), CheckpointError> {
        let tensor = self.find(name)?;
        self.shards[tensor.shard].release(tensor.range.clone());
        Ok(())
    }

    /// As [`Checkpoint::release`] for everything: also the pages at the edges of tensors, and those that the kernel maps around
    /// a page that is read (measured: 12 of 98 MB are left behind tensor by tensor).
    pub fn release_all(&self) {
        for shard in &self.shards {
            shard.release(0..shard.bytes().len());
        }
    }

    fn find(&self, name: &str) -> Result<&StoredTensor, CheckpointError> {
        let missing = || CheckpointError::new(&self.dir, vec![Problem::NoSuchTensor(name.to_owned())]);
        self.tensors.get(name).ok_or_else(missing)
    }

    fn not_float(&self, name: &str, dtype: Dtype) -> CheckpointError {
        CheckpointError::new(&self.dir, vec![Problem::NotFloat { name: name.to_owned(), dtype }])
    }
}

/// Which files hold the weights, and what the index (if any) says of them.
enum Layout {
    Single,
    Indexed(BTreeMap<String, String>),
}

impl Layout {
    fn of(dir: &Path) -> Result<Layout, Vec<Problem>> {
        let index = dir.join(INDEX);
        let Some(object) = read_object(&index).map_err(|problem| vec![problem])? else {
            let single = dir.join(WEIGHTS).is_file();
            return if single { Ok(Layout::Single) } else { Err(vec![Problem::no_weights(dir)]) };
        };
        let Some(Value::Object(map)) = object.get("weight_map") else {
            return Err(vec![Problem::BadIndex { path: index, why: "it has no object `weight_map`".into() }]);
        };
        let mut problems = Vec::new();
        let mut weight_map = BTreeMap::new();
        for (tensor, file) in map {
            match file.as_str() {
                // A shard outside the directory would make a checkpoint read files it does not own.
                Some(file) if Path::new(file).file_name().is_some_and(|name| name == file) => {
                    weight_map.insert(tensor.clone(), file.to_owned());
                }
                Some(_) | None => problems.push(Problem::BadIndex {
                    path: index.clone(),
                    why: format!("`weight_map` gives `{tensor}` the value {file}, which is no plain file name"),
                }),
            }
        }
        if weight_map.is_empty() && problems.is_empty() {
            problems.push(Problem::BadIndex { path: index.clone(), why: "`weight_map` names no tensor".into() });
        }
        if dir.join(WEIGHTS).is_file() && !weight_map.values().any(|file| file == WEIGHTS) {
            problems.push(Problem::Ambiguous { weights: dir.join(WEIGHTS), index });
        }
        if problems.is_empty() { Ok(Layout::Indexed(weight_map)) } else { Err(problems) }
    }

    fn files(&self) -> BTreeSet<String> {
        match self {
            Layout::Single => BTreeSet::from([WEIGHTS.to_owned()]),
            Layout::Indexed(map) => map.values().cloned().collect(),
        }
    }

    /// Compares the index with the headers, both ways. Shards that did not open are reported elsewhere and left out here.
    fn check(&self, dir: &Path, shards: &[(String, Opened)], problems: &mut Vec<Problem>) {
        let Layout::Indexed(map) = self else { return };
        let held: BTreeMap<&str, BTreeSet<&str>> = shards
            .iter()
            .map(|(file, (_, entries))| (file.as_str(), entries.iter().map(|entry| entry.0.as_str()).collect()))
            .collect();
        let mut stale = Vec::new();
        for (tensor, file) in map {
            if held.get(file.as_str()).is_some_and(|names| !names.contains(tensor.as_str())) {
                stale.push(format!("`{tensor}` is listed for {file}, which does not hold it"));
            }
        }
        for (file, names) in &held {
            for &tensor in names {
                match map.get(tensor) {
                    Some(listed) if listed == file => {}
                    Some(listed) => stale.push(format!("`{tensor}` is held by {file} but listed for {listed}")),
                    None => stale.push(format!("`{tensor}` is held by {file} but not listed")),
                }
            }
        }
        if !stale.is_empty() {
            problems.push(Problem::StaleIndex { path: dir.join(INDEX), mismatches: stale });
        }
    }
}

type Entry = (String, Dtype, Vec<u64>, std::ops::Range<usize>);
type Opened = (Shard, Vec<Entry>);

fn collect(shards: &[(String, Opened)], tensors: &mut BTreeMap<String, StoredTensor>, problems: &mut Vec<Problem>) {
    for (shard, (file, (_, entries))) in shards.iter().enumerate() {
        for (name, dtype, shape, range) in entries {
            let tensor = StoredTensor { dtype: *dtype, shape: shape.clone(), shard, range: range.clone() };
            if let Some(first) = tensors.insert(name.clone(), tensor) {
                problems.push(Problem::Duplicate {
                    name: name.clone(),
                    files: [shards[first.shard].0.clone(), file.clone()],
                });
            }
        }
    }
}

/// Reads a JSON object; `None` when the file does not exist.
/// A byte order mark in front, as some editors write it, is no part of the text.
pub(crate) fn read_object(path: &Path) -> Result<Option<Map<String, Value>>, Problem> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Problem::Io { path: path.to_path_buf(), error: error.to_string() }),
    };
    match serde_json::from_slice(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text)) {
        Ok(object) => Ok(Some(object)),
        Err(error) => Err(Problem::NotJson { path: path.to_path_buf(), error: error.to_string() }),
    }
}

/// Decodes little-endian floats; `None` when `dtype` is no float of 16, 32 or 64 bits.
fn floats<T>(dtype: Dtype, bytes: &[u8], wide: fn(f64) -> T, plain: fn(f32) -> T) -> Option<Vec<T>> {
    let read = match dtype {
        Dtype::F32 => words(bytes, |word| plain(f32::from_le_bytes(word))),
        Dtype::F16 => words(bytes, |word| plain(f16::from_le_bytes(word).to_f32())),
        Dtype::BF16 => words(bytes, |word| plain(bf16::from_le_bytes(word).to_f32())),
        Dtype::F64 => words(bytes, |word| wide(f64::from_le_bytes(word))),
        _ => return None,
    };
    Some(read)
}

fn words<const N: usize, T>(bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|word| read(*word)).collect()
}
