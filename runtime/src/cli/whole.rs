//! Files that a command writes: whole or not at all.
//!
//! They are opened before the work begins, so that a folder that takes none is found at once and not after an hour.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::error::{Context, Result};

/// A file to be. Dropped unwritten, it leaves what was there before.
#[derive(Debug)]
pub struct Whole {
    path: PathBuf,
    held: Held,
}

#[derive(Debug)]
enum Held {
    /// Becomes the file when it is complete.
    Beside(NamedTempFile),
    /// A device or a pipe, which nothing can take the place of.
    Stream(File),
}

impl Whole {
    /// Errors: `path` is a folder, or its folder is missing or takes no file.
    pub fn open(path: &Path) -> Result<Whole> {
        let open = || {
            match fs::metadata(path) {
                Ok(found) if !found.is_file() => {
                    return Ok((path.to_owned(), Held::Stream(File::options().write(true).open(path)?)));
                }
                Ok(_) | Err(_) => {}
            }
            // Where `path` is a link, the file it leads to is replaced, and the link stays.
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let mut beside = tempfile::Builder::new();
            beside.prefix(".mlxcel-").suffix(".part");
            #[cfg(unix)]
            beside.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
            let beside = beside.tempfile_in(folder)?;
            std::io::Result::Ok((path, Held::Beside(beside)))
        };
        let (path, held) = open().with_context(|| format!("writing {}", path.display()))?;
        Ok(Whole { path, held })
    }

    pub fn write(self, text: &str) -> Result<()> {
        let written = match self.held {
            Held::Beside(mut file) => {
                let filled = file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all());
                filled.and_then(|()| {
                    file.persist(&self.path)?;
                    Ok(())
                })
            }
            Held::Stream(mut file) => file.write_all(text.as_bytes()),
        };
        written.with_context(|| format!("writing {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Whole;

    #[test]
    fn what_was_there_stays_until_the_new_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        fs::write(&path, "old").unwrap();
        drop(Whole::open(&path).unwrap());
        let pending = Whole::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        pending.write("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_folder_that_takes_no_file_is_found_when_it_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("missing/report.json")] {
            let error = format!("{:#}", Whole::open(&path).unwrap_err());
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_device_is_written_to_and_stays_a_device() {
        Whole::open("/dev/null".as_ref()).unwrap().write("text").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let full = Whole::open("/dev/full".as_ref()).unwrap().write("text");
        assert!(format!("{:#}", full.unwrap_err()).contains("/dev/full"));
    }
}
