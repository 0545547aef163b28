//! Reads GGUF files, versions 2 and 3 (the layout of ggml's `docs/gguf.md`): metadata, tensor directory, tensor bytes.
//!
//! A GGUF file comes from strangers. Every length in it is checked against what is left of the file before anything is
//! read or allocated, arrays stay in the mapping until asked for, and an error says where in the file it happened. What
//! the metadata means, and which tensors a model needs, is `import`'s business.

mod blocks;
mod reader;
mod value;

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::{Advice, Mmap};
use thiserror::Error;

pub use blocks::{Format, dequantize};
use reader::Reader;
pub use value::{Array, Value, ValueType};

const MAGIC: &[u8; 4] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 20;
const MAX_DIMS: u32 = 4;

/// An open file: its directory in memory, its tensors in the mapping.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    bytes: Bytes,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
}

/// One entry of the tensor directory. `dims` is ggml's order: the contiguous axis first, so a matrix of `rows` rows reads
/// `[columns, rows]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub format: Format,
    pub dims: Vec<u64>,
    /// Bytes in the file; `None` for a format whose size is not known here.
    range: Option<Range<usize>>,
}

#[derive(Debug)]
enum Bytes {
    Map(Mmap),
    Owned(Vec<u8>),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Map(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

/// What is wrong with a GGUF file, and at which byte.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GgufError {
    #[error("{} cannot be read: {error}", path.display())]
    Io { path: PathBuf, error: String },
    #[error("{} is not a usable GGUF file: at byte {offset}, {what}", path.display())]
    Malformed { path: PathBuf, offset: usize, what: String },
    #[error("{} has no metadata `{key}`, which is needed", path.display())]
    MissingKey { path: PathBuf, key: String },
    #[error("{}: metadata `{key}` is {found}; expected {expected}", path.display())]
    WrongType { path: PathBuf, key: String, found: String, expected: &'static str },
}

impl Gguf {
    /// Maps the file and reads its directory.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        let io = |error: std::io::Error| GgufError::Io { path: path.to_path_buf(), error: error.to_string() };
        let file = File::open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(GgufError::Io { path: path.to_path_buf(), error: "it is not a file".into() });
        }
        // SAFETY: a read-only mapping. As with every mmap, truncating the file meanwhile would end the process.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        // Advice is a hint: where the kernel refuses it, reading still works.
        #[cfg(unix)]
        let _ = map.advise(Advice::Sequential);
        Gguf::parse(path, Bytes::Map(map))
    }

    /// Reads a file that is already in memory; `path` serves the messages.
    pub fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<Gguf, GgufError> {
        Gguf::parse(path, Bytes::Owned(bytes))
    }

    fn parse(path: &Path, bytes: Bytes) -> Result<Gguf, GgufError> {
        let mut reader = Reader::new(bytes.get());
        let read = directory(&mut reader);
        let (metadata, tensors) =
            read.map_err(|(offset, what)| GgufError::Malformed { path: path.to_path_buf(), offset, what })?;
        Ok(Gguf { path: path.to_path_buf(), bytes, metadata, tensors })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn metadata(&self) -> &BTreeMap<String, Value> {
        &self.metadata
    }

    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// The tensor's bytes as stored; `None` for a name the file lacks or a format of unknown size.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        // `directory` checked the range against the file's length.
        let range = self.tensors.get(name)?.range.clone()?;
        self.bytes.get().get(range)
    }

    /// Tells the kernel that the tensor's pages are no longer needed.
    pub fn release(&self, name: &str) {
        if let (Bytes::Map(map), Some(range)) = (&self.bytes, self.tensors.get(name).and_then(|t| t.range.clone())) {
            crate::checkpoint::release(map, range);
        }
    }

    /// Metadata that may be absent, as a string.
    pub fn string(&self, key: &str) -> Result<Option<&str>, GgufError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, other, "a string")),
        }
    }

    /// Metadata that may be absent, as a non-negative integer of any width.
    pub fn integer(&self, key: &str) -> Result<Option<u64>, GgufError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Unsigned(value)) => Ok(Some(*value)),
            Some(other) => {
                let Value::Signed(value) = other else { return Err(self.wrong(key, other, "an integer")) };
                u64::try_from(*value).map(Some).map_err(|_| self.wrong(key, other, "a non-negative integer"))
            }
        }
    }

    /// Metadata that may be absent, as a finite float.
    pub fn float(&self, key: &str) -> Result<Option<f64>, GgufError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::F32(value)) if value.is_finite() => Ok(Some(shortest(*value))),
            Some(Value::F64(value)) if value.is_finite() => Ok(Some(*value)),
            Some(other) => Err(self.wrong(key, other, "a finite float")),
        }
    }

    /// Metadata that may be absent, as a bool.
    pub fn boolean(&self, key: &str) -> Result<Option<bool>, GgufError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(self.wrong(key, other, "a bool")),
        }
    }

    /// Metadata that may be absent, as strings borrowed from the mapping.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&str>>, GgufError> {
        let Some(array) = self.array(key, ValueType::String, "an array of strings")? else { return Ok(None) };
        let mut reader = Reader::at(self.bytes.get(), array.offset);
        let mut strings = Vec::new();
        for _ in 0..array.len {
            let text = reader.string().map_err(|(offset, what)| self.malformed(offset, what))?;
            strings.push(text);
        }
        Ok(Some(strings))
    }

    /// Metadata that may be absent, as 32-bit signed integers.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i32>>, GgufError> {
        let array = self.array(key, ValueType::I32, "an array of 32-bit integers")?;
        array.map(|array| self.words(array, i32::from_le_bytes)).transpose()
    }

    /// Metadata that may be absent, as 32-bit floats.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        let array = self.array(key, ValueType::F32, "an array of 32-bit floats")?;
        array.map(|array| self.words(array, f32::from_le_bytes)).transpose()
    }

    /// The value of a key that must be there.
    pub fn require<T>(&self, key: &str, value: Option<T>) -> Result<T, GgufError> {
        value.ok_or_else(|| GgufError::MissingKey { path: self.path.clone(), key: key.to_owned() })
    }

    fn array(&self, key: &str, item: ValueType, expected: &'static str) -> Result<Option<&Array>, GgufError> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Array(array)) if array.item == item => Ok(Some(array)),
            Some(other) => Err(self.wrong(key, other, expected)),
        }
    }

    fn words<T>(&self, array: &Array, read: fn([u8; 4]) -> T) -> Result<Vec<T>, GgufError> {
        let mut reader = Reader::at(self.bytes.get(), array.offset);
        let bytes = reader.items(array.len, 4).map_err(|(offset, what)| self.malformed(offset, what))?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|word| read(*word)).collect())
    }

    fn malformed(&self, offset: usize, what: String) -> GgufError {
        GgufError::Malformed { path: self.path.clone(), offset, what }
    }

    fn wrong(&self, key: &str, found: &Value, expected: &'static str) -> GgufError {
        GgufError::WrongType { path: self.path.clone(), key: key.to_owned(), found: found.to_string(), expected }
    }
}

/// The f64 that prints like the f32: `1e-5` stored as f32 means 1e-5, not 9.999999747378752e-06.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

type Directory = (BTreeMap<String, Value>, BTreeMap<String, TensorInfo>);

fn directory(reader: &mut Reader<'_>) -> reader::Result<Directory> {
    let magic = reader.take(4)?;
    if magic != MAGIC {
        return Err((0, format!("the magic is {:?}; expected \"GGUF\"", String::from_utf8_lossy(magic))));
    }
    match reader.u32()? {
        2 | 3 => {}
        version if version.swap_bytes() <= 3 => {
            return Err((4, "the file is big-endian; only little-endian files are read".into()));
        }
        version => return Err((4, format!("the version is {version}; versions 2 and 3 are read"))),
    }
    let tensor_count = reader.u64()?;
    let key_count = reader.u64()?;

    let mut metadata = BTreeMap::new();
    for _ in 0..key_count {
        let at = reader.offset();
        let key = reader.string()?.to_owned();
        let value = Value::read(reader)?;
        if metadata.insert(key.clone(), value).is_some() {
            return Err((at, format!("the metadata key `{key}` is there a second time")));
        }
    }

    let mut entries = BTreeMap::new();
    for _ in 0..tensor_count {
        let at = reader.offset();
        let name = reader.string()?.to_owned();
        if entries.insert(name.clone(), entry(reader, &name)?).is_some() {
            return Err((at, format!("the tensor `{name}` is there a second time")));
        }
    }

    let alignment = match metadata.get("general.alignment") {
        None => DEFAULT_ALIGNMENT,
        Some(Value::Unsigned(n)) if n.is_power_of_two() && *n <= MAX_ALIGNMENT => *n,
        Some(other) => {
            return Err((
                reader.offset(),
                format!("`general.alignment` is {other}; expected a power of two up to 2^20"),
            ));
        }
    };
    let tensors = place(entries, reader, alignment)?;
    Ok((metadata, tensors))
}

struct Entry {
    at: usize,
    format: Format,
    dims: Vec<u64>,
    offset: u64,
    size: Option<u64>,
}

fn entry(reader: &mut Reader<'_>, name: &str) -> reader::Result<Entry> {
    let at = reader.offset();
    let rank = reader.u32()?;
    if rank > MAX_DIMS {
        return Err((at, format!("`{name}` has {rank} dimensions; expected at most {MAX_DIMS}")));
    }
    let dims = (0..rank).map(|_| reader.u64()).collect::<reader::Result<Vec<_>>>()?;
    let format = Format::from_id(reader.u32()?);
    let offset = reader.u64()?;
    let size = match format.block() {
        None => None,
        Some((elements, bytes)) => {
            let columns = dims.first().copied().unwrap_or(1);
            if columns % elements != 0 {
                let what = format!("rows of `{name}` have {columns} elements; {format} needs a multiple of {elements}");
                return Err((at, what));
            }
            let count = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
            let size = count.and_then(|count| (count / elements).checked_mul(bytes));
            Some(size.ok_or_else(|| (at, format!("the size of `{name}`, {dims:?}, does not fit 64 bits")))?)
        }
    };
    Ok(Entry { at, format, dims, offset, size })
}

/// Turns offsets into ranges of the file, which must be aligned, inside the file and disjoint.
fn place(
    entries: BTreeMap<String, Entry>,
    reader: &Reader<'_>,
    alignment: u64,
) -> reader::Result<BTreeMap<String, TensorInfo>> {
    let start = (reader.offset() as u64).next_multiple_of(alignment);
    let file = reader.len() as u64;
    let mut placed = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        if entry.offset % alignment != 0 {
            return Err((entry.at, format!("`{name}` lies at {}, which is not aligned to {alignment}", entry.offset)));
        }
        let range = match entry.size {
            None => None,
            Some(size) => {
                let from = start.checked_add(entry.offset);
                let to = from.and_then(|from| from.checked_add(size)).filter(|&to| to <= file);
                let (Some(from), Some(to)) = (from, to) else {
                    let what = format!(
                        "`{name}` needs {size} bytes at {} of the tensor data, but the file ends at byte {file}: \
                         it is truncated, fetch it again",
                        entry.offset
                    );
                    return Err((entry.at, what));
                };
                // Both are at most the length of a mapped file, so they fit usize.
                Some(from as usize..to as usize)
            }
        };
        placed.push((name, entry.at, TensorInfo { format: entry.format, dims: entry.dims, range }));
    }
    placed.sort_by_key(|(_, _, info)| info.range.as_ref().map_or((0, 0), |range| (range.start, range.end)));
    for pair in placed.windows(2) {
        if let [(first, _, TensorInfo { range: Some(a), .. }), (second, at, TensorInfo { range: Some(b), .. })] = pair
            && b.start < a.end
        {
            return Err((*at, format!("`{second}` overlaps `{first}`")));
        }
    }
    Ok(placed.into_iter().map(|(name, _, info)| (name, info)).collect())
}
