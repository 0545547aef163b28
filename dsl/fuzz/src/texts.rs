//! Every `.mgraph` text of the repository: what mutations borrow lines and words from.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use crate::mutate::groups;

const FOLDERS: &[&str] = &["../src", "../tests", "../../models/families", "../../examples"];

pub struct Donors {
    pub texts: Vec<String>,
    pub lines: Vec<String>,
    pub words: Vec<String>,
    /// Bracketed parts.
    pub groups: Vec<String>,
}

pub static DONORS: LazyLock<Donors> = LazyLock::new(|| {
    let mut files = Vec::new();
    for folder in FOLDERS {
        find(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut files);
    }
    files.sort();
    let texts: Vec<String> = files.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    let lines: BTreeSet<&str> = texts.iter().flat_map(|text| text.lines()).filter(|line| wanted(line)).collect();
    let words = texts.iter().flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let words: BTreeSet<&str> = words.filter(|word| word.starts_with(|c: char| !c.is_ascii_digit())).collect();
    let groups: BTreeSet<&str> = texts.iter().flat_map(|text| groups(text)).collect();
    Donors {
        lines: lines.into_iter().map(str::to_owned).collect(),
        words: words.into_iter().map(str::to_owned).collect(),
        groups: groups.into_iter().map(str::to_owned).collect(),
        texts,
    }
});

/// Comments teach a fuzzer nothing.
fn wanted(line: &str) -> bool {
    !line.trim().is_empty() && !line.trim_start().starts_with("//")
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, found);
        } else if path.extension().is_some_and(|end| end == "mgraph") {
            found.push(path);
        }
    }
}
