//! The book's list of mutations, `book/src/mutations.md`.

use std::{env, fs, path::Path};

use mgraph_tests::certificate::Difference;

use crate::{By, Caught, table::Emitter};

/// One mutant and how it was caught.
pub struct Row<'a> {
    pub emitter: Emitter,
    pub name: String,
    /// The functions of the emitted Rust that it changes.
    pub functions: String,
    pub caught: Caught<'a>,
}

const PAGE: &str = "../book/src/mutations.md";
const BEGIN: &str = "<!-- printed: mutations -->\n";
const END: &str = "<!-- end -->\n";

/// The page has these rows, and for each emitter the number of small changes and how many of them did not build;
/// `MGRAPH_BLESS=1` writes them there.
pub fn is_fresh(rows: &[Row<'_>], counts: &[(Emitter, usize, usize)]) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let fresh = format!("{before}{BEGIN}\n{}\n{END}{after}", printed(rows, counts));
    if fresh != text {
        assert!(env::var_os("MGRAPH_BLESS").is_some(), "{PAGE} is stale; MGRAPH_BLESS=1 prints it again");
        fs::write(&page, fresh).unwrap();
    }
}

fn printed(rows: &[Row<'_>], counts: &[(Emitter, usize, usize)]) -> String {
    let mut out = String::new();
    for (emitter, changes, refused) in counts {
        let read = changes - refused;
        out += &format!(
            "- {}: {changes} small changes, all caught: {read} by a line that differs, {refused} because nothing is built.\n",
            told(*emitter)
        );
    }
    out += "\n| | emitter | mutation | in | first caught in | the IR says | the mutant says |\n|---|---|---|---|---|---|---|\n";
    for (at, Row { emitter, name, functions, caught }) in rows.iter().enumerate() {
        let (ir, mutant) = match &caught.by {
            By::Line(Difference { ir, emitted, .. }) => (format!("`{ir}`"), format!("`{emitted}`")),
            By::Refusal(error) => (String::new(), format!("does not build: {error}")),
        };
        let cells = [told(*emitter), name, &format!("`{functions}`"), &caught.subject.name, &ir, &mutant];
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        out += &format!("| {} | {} |\n", at + 1, cells.join(" | "));
    }
    out
}

fn told(emitter: Emitter) -> &'static str {
    match emitter {
        Emitter::Mlx => "MLX",
        Emitter::Hlo => "StableHLO",
    }
}
