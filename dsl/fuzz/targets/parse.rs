//! Any text parses to a tree or to mistakes, and every mistake can be shown.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use mgraph_dsl::{diagnostic, parser, prelude_sources};
use mgraph_dsl_fuzz::{mutate::mutate, stack};

fuzz_target!(init: stack::report_overflow(), |data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut sources = prelude_sources();
    let file = sources.add("fuzz.mgraph", text);
    if let Err(errors) = parser::parse(&sources, file) {
        assert!(!errors.is_empty());
        for error in &errors {
            assert!(!error.message.is_empty());
            diagnostic::render_plain(error, &sources);
        }
        // Pictures are slow, so only some are drawn.
        if data.len().is_multiple_of(16) {
            diagnostic::render(&errors[..1], &sources, false);
        }
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { mutate(data, size, max_size, seed) });
