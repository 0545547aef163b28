//! A directory that appears whole or not at all. Files are written beside the target, flushed to disk, and renamed into
//! place together; a lock keeps two imports apart, and what an interrupted one left is cleared by the next.

use std::cell::{Cell, RefCell};
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{ImportError, Output, RECORD};

const LOCK: &str = "lock";

/// Whether `dir` was made from `source` and still has all its files at their recorded sizes. An absent or empty `dir`
/// is free; anything else is refused.
pub(super) fn is_import_of(dir: &Path, source: &Value) -> Result<bool, ImportError> {
    match fs::read_dir(dir) {
        Ok(entries) => {
            if entries.count() == 0 {
                return Ok(false);
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(super::read_error(dir, &error)),
    }
    let record: Option<Value> = fs::read(dir.join(RECORD)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let intact = record.is_some_and(|record| {
        let same = |key: &str| record.get(key).is_some() && record.get(key) == source.get(key);
        let files = record.get("files").and_then(Value::as_object);
        let whole = |(name, size): (&String, &Value)| {
            fs::metadata(dir.join(name)).is_ok_and(|found| Some(found.len()) == size.as_u64())
        };
        ["importer", "bytes", "blake3"].into_iter().all(same) && files.is_some_and(|files| files.iter().all(whole))
    });
    if intact { Ok(true) } else { Err(ImportError::Occupied(dir.to_path_buf())) }
}

/// The directory being filled. Dropped without [`Staging::publish`], it takes its files with it.
pub(super) struct Staging {
    out: PathBuf,
    dir: PathBuf,
    _lock: File,
    published: Cell<bool>,
}

impl Staging {
    pub(super) fn new(out: &Path) -> Result<Staging, ImportError> {
        let out = std::path::absolute(out).map_err(ImportError::write(out))?;
        let (Some(parent), Some(name)) = (out.parent(), out.file_name()) else {
            let error = "it is no name for a new directory".to_owned();
            return Err(ImportError::Write { path: out, error });
        };
        let dir = parent.join(format!(".{}.importing", name.to_string_lossy()));
        fs::create_dir_all(&dir).map_err(ImportError::write(&dir))?;
        let path = dir.join(LOCK);
        let lock = File::create(&path).map_err(ImportError::write(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ImportError::Busy(out)),
            Err(TryLockError::Error(error)) => return Err(ImportError::write(&path)(error)),
        }
        let staging = Staging { out, dir, _lock: lock, published: Cell::new(false) };
        for entry in fs::read_dir(&staging.dir).map_err(ImportError::write(&staging.dir))?.flatten() {
            if entry.file_name() != LOCK {
                fs::remove_file(entry.path()).map_err(ImportError::write(&entry.path()))?;
            }
        }
        Ok(staging)
    }

    pub(super) fn json(&self, name: &str, value: &Value) -> Result<(), ImportError> {
        let path = self.dir.join(name);
        // Writing a `Value` to memory fails only on keys that are no strings, which a `Value` cannot hold.
        let text = serde_json::to_vec_pretty(value).map_err(|error| ImportError::write(&path)(error.into()))?;
        fs::write(&path, text).map_err(ImportError::write(&path))
    }

    pub(super) fn weights(
        &self,
        name: &str,
        tensors: &[Output<'_>],
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), ImportError> {
        let path = self.dir.join(name);
        let total: u64 = tensors.iter().map(Output::byte_len).sum();
        let (done, progress) = (Cell::new(0), RefCell::new(progress));
        let views = tensors.iter().map(|tensor| {
            let advance = |bytes: u64| {
                let tenth = |bytes: u64| bytes * 10 / total.max(1);
                let before = done.replace(done.get() + bytes);
                if before == 0 || tenth(before) < tenth(done.get()) {
                    progress.borrow_mut()(&format!("writing weights, {}%", 10 * tenth(done.get())));
                }
            };
            (tensor.name(), tensor.counted(advance))
        });
        // The marker `mlx-lm` writes, and reads as "nothing to rename or transpose".
        let format = [("format".to_owned(), "mlx".to_owned())].into();
        safetensors::serialize_to_file(views, Some(format), &path)
            .map_err(|error| ImportError::Write { path: path.clone(), error: error.to_string() })
    }

    /// Records the source, flushes everything to disk and moves the directory to its name.
    pub(super) fn publish(&self, source: Value) -> Result<(), ImportError> {
        let write = ImportError::write(&self.dir);
        let mut files = Map::new();
        for entry in fs::read_dir(&self.dir).map_err(&write)? {
            let entry = entry.map_err(&write)?;
            if entry.file_name() != LOCK {
                let size = entry.metadata().map_err(&write)?.len();
                files.insert(entry.file_name().to_string_lossy().into_owned(), size.into());
            }
        }
        let mut record = source;
        if let Value::Object(record) = &mut record {
            record.insert("files".into(), files.clone().into());
        }
        self.json(RECORD, &record)?;
        for name in files.keys().map(String::as_str).chain([RECORD]) {
            File::open(self.dir.join(name)).and_then(|file| file.sync_all()).map_err(&write)?;
        }
        fs::remove_file(self.dir.join(LOCK)).map_err(&write)?;
        sync_directory(&self.dir).map_err(&write)?;
        // Fails where a non-empty directory has appeared meanwhile; an empty one is replaced.
        fs::rename(&self.dir, &self.out).map_err(ImportError::write(&self.out))?;
        self.published.set(true);
        self.out.parent().map_or(Ok(()), sync_directory).map_err(ImportError::write(&self.out))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.published.get() {
            // Nothing to do about a failure here; the next import into this directory clears it.
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Makes the names in a directory durable. Only Unix can open a directory to flush it.
fn sync_directory(dir: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}
