//! How long the front end takes for a family as long as they get: parsing, checking and formatting molmo2.
//!
//! `make bench` runs it in release. Each line is the best of many rounds, because noise only ever slows a run down, beside
//! the mark it must keep.

use std::{
    hint::black_box,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use mgraph_dsl::{compile_text, format::format, parser, prelude_sources, source::PRELUDE};

/// What an editor may take between a key and its answer.
const MARK: Duration = Duration::from_millis(20);
const ROUNDS: usize = 200;

fn main() -> ExitCode {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/families/molmo2.mgraph");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    };
    println!("molmo2.mgraph, {} lines, best of {ROUNDS}:", text.lines().count());
    let parse = || {
        let mut sources = prelude_sources();
        let file = sources.add("molmo2.mgraph", &*text);
        drop(black_box(parser::parse(&sources, file)));
    };
    let check = || drop(black_box(compile_text("molmo2.mgraph", &text)));
    let layout = || drop(black_box(format("molmo2.mgraph", &text)));
    let prelude = || drop(black_box(parser::parse(&prelude_sources(), PRELUDE)));
    let kept = [held("parse", parse), held("check", check), held("format", layout), held("prelude", prelude)];
    if kept.iter().all(|kept| *kept) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints one line, and tells whether the mark is kept.
fn held(what: &str, work: impl Fn()) -> bool {
    let once = || {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    // The first round also parses the prelude, which stays parsed.
    let first = once();
    let best = (0..ROUNDS).map(|_| once()).min().unwrap_or(first);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let verdict = if best <= MARK { "ok" } else { "TOO SLOW" };
    println!("{what:8}{:8.2} ms, first {:.2} ms, mark {:.0} ms: {verdict}", ms(best), ms(first), ms(MARK));
    best <= MARK
}
