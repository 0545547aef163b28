//! One safetensors file: its mapping and its header. The header is parsed by the `safetensors` crate; this file adds
//! the sentence that says how the file and its header disagree.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::{Advice, Mmap};
use safetensors::tensor::Metadata;

use super::{Entry, Opened, Problem};

/// The limit of the `safetensors` format, which keeps a corrupt length from being believed.
const MAX_HEADER: u64 = 100_000_000;

#[derive(Debug)]
pub(super) struct Shard {
    path: PathBuf,
    map: Mmap,
}

impl Shard {
    pub(super) fn open(path: &Path) -> Result<Opened, Problem> {
        let io = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => Problem::MissingShard(path.to_path_buf()),
            _ => Problem::Io { path: path.to_path_buf(), error: error.to_string() },
        };
        let file = File::open(path).map_err(io)?;
        // SAFETY: the mapping is read-only and private to this process's view. As with every mmap, a file that another
        // process truncates while it is mapped ends this process with SIGBUS; checkpoints are not edited in use.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        // Advice is a hint: where the kernel refuses it, reading still works.
        #[cfg(unix)]
        let _ = map.advise(Advice::Sequential);
        let entries = entries(path, &map)?;
        Ok((Shard { path: path.to_path_buf(), map }, entries))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.map
    }

    pub(super) fn release(&self, range: Range<usize>) {
        release(&self.map, range);
    }
}

/// `madvise(MADV_DONTNEED)` on a read-only file mapping; a hint, and nothing where the system has no such call.
pub(crate) fn release(map: &Mmap, range: Range<usize>) {
    #[cfg(unix)]
    if !range.is_empty() && range.end <= map.len() {
        // SAFETY: dropping pages of a read-only file mapping loses nothing: the next access reads them from the file.
        let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) };
    }
}

fn entries(path: &Path, bytes: &[u8]) -> Result<Vec<Entry>, Problem> {
    let bad = |why: String| Problem::BadHeader { path: path.to_path_buf(), why };
    let truncated = |need: u64| Problem::Truncated { path: path.to_path_buf(), need, have: bytes.len() as u64 };

    let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| truncated(8))?;
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return Err(bad(format!("it claims a header of {length} bytes, more than the {MAX_HEADER} the format allows")));
    }
    // In range of usize: at most MAX_HEADER.
    let Some((header, data)) = rest.split_at_checked(length as usize) else {
        return Err(truncated(8 + length));
    };
    let metadata: Metadata = serde_json::from_slice(header).map_err(|error| bad(error.to_string()))?;
    if data.len() < metadata.data_len() {
        return Err(truncated(8 + length + metadata.data_len() as u64));
    }
    if data.len() > metadata.data_len() {
        let extra = data.len() - metadata.data_len();
        return Err(bad(format!("{extra} bytes at its end belong to no tensor")));
    }
    let start = bytes.len() - data.len();
    Ok(metadata
        .tensors()
        .into_iter()
        .map(|(name, info)| {
            let shape = info.shape.iter().map(|&dim| dim as u64).collect();
            let (from, to) = info.data_offsets;
            (name, info.dtype, shape, start + from..start + to)
        })
        .collect())
}
