//! The family files that a command line names: files, folders with `*.mgraph` somewhere below, `-` for standard input.

use std::{
    collections::HashSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use mgraph_dsl::{diagnostic::render, ir::Program};

use crate::{Console, check::counted};

/// A text and the name under which people know it.
#[derive(Debug, Clone)]
pub struct Text {
    pub name: String,
    /// `None` is standard input.
    pub path: Option<PathBuf>,
    pub text: String,
}

/// One argument, and what it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Input,
    File(PathBuf),
}

/// Folders replaced by the files below them, in order of names; what is named twice is there once. Links to folders are not followed, so there is an end.
///
/// # Errors
/// A folder that cannot be read or that has no `.mgraph` file.
pub fn places(arguments: &[PathBuf]) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    for argument in arguments {
        if argument.as_os_str() == "-" {
            places.push(Place::Input);
        } else if argument.is_dir() {
            let mut found = Vec::new();
            walk(argument, &mut found)?;
            if found.is_empty() {
                bail!("{}: there is no .mgraph file in this folder or below", argument.display());
            }
            found.sort();
            places.extend(found.into_iter().map(Place::File));
        } else {
            places.push(Place::File(argument.clone()));
        }
    }
    let mut seen = HashSet::new();
    places.retain(|place| match place {
        Place::Input => seen.insert(None),
        Place::File(path) => seen.insert(Some(fs::canonicalize(path).unwrap_or_else(|_| path.clone()))),
    });
    Ok(places)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let read = || format!("{}: this folder cannot be read", folder.display());
    for entry in fs::read_dir(folder).with_context(read)? {
        let entry = entry.with_context(read)?;
        let path = entry.path();
        if entry.file_type().with_context(read)?.is_dir() {
            walk(&path, found)?;
        } else if path.extension().is_some_and(|end| end == "mgraph") {
            found.push(path);
        }
    }
    Ok(())
}

/// The text at `place`.
///
/// # Errors
/// There is no such file, it cannot be read, or it is no UTF-8.
pub fn read(place: &Place, console: &mut Console<'_>) -> Result<Text> {
    let (name, path, bytes) = match place {
        Place::Input => {
            let mut bytes = Vec::new();
            console.input.read_to_end(&mut bytes).context("reading standard input")?;
            ("<stdin>".to_owned(), None, bytes)
        }
        Place::File(path) => {
            let name = path.display().to_string();
            let bytes = fs::read(path).with_context(|| format!("{name}: this file cannot be read"))?;
            (name, Some(path.clone()), bytes)
        }
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1;
        anyhow::anyhow!("{name}:{line}: this is no UTF-8 text (byte {at}); a family file is plain text")
    })?;
    Ok(Text { name, path, text })
}

/// The family of `text`, for commands that need a right one.
///
/// # Errors
/// Its mistakes, rendered.
pub fn compile(text: &Text, color: bool) -> Result<Program> {
    mgraph_dsl::compile_text(&text.name, &text.text).map_err(|failed| {
        let said = render(&failed.diagnostics, &failed.sources, color);
        anyhow::anyhow!("{} has {}\n\n{said}", text.name, counted(failed.diagnostics.len(), "mistake"))
    })
}

/// The one text of a command that takes one file.
///
/// # Errors
/// As [`read`]; a folder is none.
pub fn read_one(argument: &Path, console: &mut Console<'_>) -> Result<Text> {
    if argument.as_os_str() == "-" {
        return read(&Place::Input, console);
    }
    if argument.is_dir() {
        bail!("{}: this is a folder; name one .mgraph file", argument.display());
    }
    read(&Place::File(argument.to_owned()), console)
}

/// Replaces the file at once: a reader sees the old bytes or the new ones, and a failure leaves the old. A link stays a link,
/// and the file keeps its permissions.
///
/// # Errors
/// The folder cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let told = || format!("{}: this file cannot be written", path.display());
    let Ok(path) = fs::canonicalize(path) else { return fs::write(path, bytes).with_context(told) };
    let old = fs::metadata(&path).with_context(told)?;
    if old.is_file() && old.permissions().readonly() {
        bail!("{}: this file is read-only, and stays as it is", path.display());
    }
    if !old.is_file() {
        // A device, such as `/dev/stdout`, is written to and not replaced.
        return fs::write(path, bytes).with_context(told);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(told)?;
    file.write_all(bytes).with_context(told)?;
    fs::set_permissions(file.path(), old.permissions()).with_context(told)?;
    file.persist(&path).map_err(|error| error.error).with_context(told)?;
    Ok(())
}
