//! Every file below `ui/` is wrong, and says in `//~` lines what the front end must say about it; `ui/load` has families that
//! are right and checkpoints that are wrong for them. See `ui/README.md`.

#[path = "ui/load.rs"]
mod load;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use mgraph_dsl::diagnostic::{Code, Diagnostic, render_plain};
use mgraph_dsl::source::Sources;
use mgraph_dsl::{compile, prelude_sources};

const MARK: &str = "//~";

fn cases(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder is part of the repository") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "load") {
            cases(&path, found);
        } else if path.extension().is_some_and(|end| end == "mgraph") {
            found.push(path);
        }
    }
    found.sort();
}

/// The text with what is said about it between its lines.
fn annotate(text: &str, name: &str) -> String {
    let mut sources = prelude_sources();
    let file = sources.add(name, text);
    let Err(failed) = compile(sources, file) else { return text.to_string() };
    let (sources, said) = (failed.sources, failed.diagnostics);
    let (here, elsewhere): (Vec<_>, Vec<_>) = said.iter().partition(|diagnostic| diagnostic.span.file == file);
    let mut out = String::new();
    for (index, line) in text.lines().enumerate() {
        out += line;
        out += "\n";
        for diagnostic in here.iter().filter(|diagnostic| sources.line_column(diagnostic.span).0 == index + 1) {
            out += &comment(diagnostic, line, &sources);
        }
    }
    let lines = text.lines().count();
    for diagnostic in here.iter().filter(|diagnostic| sources.line_column(diagnostic.span).0 > lines) {
        out += &comment(diagnostic, "", &sources);
    }
    for diagnostic in elsewhere {
        out += &format!("{MARK} {}\n", render_plain(diagnostic, &sources));
    }
    out
}

fn comment(diagnostic: &Diagnostic, line: &str, sources: &Sources) -> String {
    let column = sources.line_column(diagnostic.span).1;
    let left = line.chars().count() + 1 - column.min(line.chars().count() + 1);
    let length = sources.text(diagnostic.span).chars().count().min(left).max(1);
    let carets = "^".repeat(length);
    let place = match (column - 1).checked_sub(MARK.len()) {
        Some(blanks) => format!("{MARK}{}{carets}", " ".repeat(blanks)),
        // Carets cannot stand under the mark itself.
        None => format!("{MARK} {column}{carets}"),
    };
    let mut out = format!("{place} {}: {}\n", diagnostic.code, diagnostic.message);
    if !diagnostic.label.is_empty() {
        out += &format!("{MARK}   label: {}\n", diagnostic.label);
    }
    if let Some(help) = &diagnostic.help {
        out += &format!("{MARK}   help: {help}\n");
    }
    for (span, text) in &diagnostic.related {
        out += &format!("{MARK}   also `{}`: {text}\n", sources.text(*span).lines().next().unwrap_or_default());
    }
    out
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui")
}

fn bless() -> bool {
    std::env::var_os("MGRAPH_BLESS").is_some()
}

/// A file as it is, and as it should be.
struct Case {
    path: PathBuf,
    written: String,
    actual: String,
}

fn annotated() -> Vec<Case> {
    let mut files = Vec::new();
    cases(&folder(), &mut files);
    let case = |path: PathBuf| {
        let written = std::fs::read_to_string(&path).expect("a readable file");
        let text: String =
            written.lines().filter(|line| !line.starts_with(MARK)).map(|line| format!("{line}\n")).collect();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Case { actual: annotate(&text, &name), path, written }
    };
    files.into_iter().map(case).collect()
}

/// Compares, or writes under `MGRAPH_BLESS=1`.
#[track_caller]
fn settle(cases: &[Case]) {
    let mut wrong = Vec::new();
    for case in cases.iter().filter(|case| case.actual != case.written) {
        if bless() {
            std::fs::write(&case.path, &case.actual).expect("a writable file");
        } else {
            wrong.push(format!("---- {}, as it is now:\n{}", case.path.display(), case.actual));
        }
    }
    assert!(wrong.is_empty(), "{}\nMGRAPH_BLESS=1 writes what is said now into the files", wrong.join("\n"));
}

#[test]
fn says_what_the_files_expect() {
    let cases = annotated();
    for case in &cases {
        assert!(case.actual.contains(MARK), "{} has no mistake, so it is no case", case.path.display());
    }
    settle(&cases);
}

/// The codes of what is expected below `ui/`, one for each mistake.
fn codes(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| {
            let at = line.find("mg0")?;
            let (code, rest) = (line.get(at..at + 6)?, line.get(at + 6..)?);
            rest.starts_with(": ").then_some(code)
        })
        .collect()
}

#[test]
fn every_code_has_a_case() {
    let mut texts: Vec<String> = annotated().into_iter().map(|case| case.actual).collect();
    texts.extend(load::cases().into_iter().map(|case| case.actual));
    // A megabyte is no file to keep.
    texts.push(annotate(&"// a page or two\n".repeat(100_000), "large.mgraph"));
    let said: Vec<&str> = texts.iter().flat_map(|text| codes(text)).collect();
    let seen: BTreeSet<&str> = said.iter().copied().collect();
    let missing: Vec<String> =
        Code::ALL.iter().map(ToString::to_string).filter(|code| !seen.contains(code.as_str())).collect();
    assert!(missing.is_empty(), "no case below ui/ has {missing:?}");
    assert!(texts.len() > 120 && said.len() > 300, "{} files with {} mistakes", texts.len(), said.len());
}
