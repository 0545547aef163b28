//! The book tells the truth: every snippet of mgraph in it compiles, or fails as it says (`snippets.rs`), and what can be printed
//! from the code is (`tables.rs`, `grammar.rs`). `MGRAPH_BLESS=1` writes the printed parts.

mod grammar;
mod snippets;
mod tables;

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every page of the book, the README and the changelog.
fn pages() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("part of the repository") {
            let path = entry.expect("a readable folder").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    let mut found = vec![root().join("README.md"), root().join("CHANGELOG.md")];
    walk(&root().join("book/src"), &mut found);
    found.sort();
    found
}

/// A printed part stands between these two lines.
const END: &str = "<!-- end -->\n";

fn begin(name: &str) -> String {
    format!("<!-- printed: {name} -->\n")
}

#[test]
fn printed_parts_are_fresh() {
    let parts = tables::parts().into_iter().chain([("grammar", grammar::rules())]);
    let parts: Vec<(&str, String)> = parts.collect();
    let bless = std::env::var_os("MGRAPH_BLESS").is_some();
    let mut seen = Vec::new();
    let mut stale = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a readable page");
        let mut fresh = text.clone();
        for (name, part) in &parts {
            let Some((before, rest)) = fresh.split_once(&begin(name)) else { continue };
            let (_, after) = rest.split_once(END).unwrap_or_else(|| panic!("{name} has no end in {}", page.display()));
            seen.push(*name);
            fresh = format!("{before}{}\n{part}\n{END}{after}", begin(name));
        }
        if fresh != text && bless {
            std::fs::write(&page, fresh).expect("a writable page");
        } else if fresh != text {
            stale.push(page.display().to_string());
        }
    }
    for (name, _) in &parts {
        assert!(seen.contains(name), "no page prints `{name}`");
    }
    assert!(stale.is_empty(), "stale: {}; MGRAPH_BLESS=1 prints them again", stale.join(", "));
}
