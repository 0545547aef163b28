//! Any text compiles to a program that can be printed, or to mistakes that can be shown.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use mgraph_dsl::{compile_text, diagnostic, print};
use mgraph_dsl_fuzz::{mutate::mutate, stack};

fuzz_target!(init: stack::report_overflow(), |data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match compile_text("fuzz.mgraph", text) {
        Ok(program) => drop(print::program(&program)),
        Err(failed) => {
            assert!(!failed.diagnostics.is_empty());
            for diagnostic in &failed.diagnostics {
                assert_ne!(diagnostic.message, "an item was not lowered");
                diagnostic::render_plain(diagnostic, &failed.sources);
            }
            // Pictures are slow, so only some are drawn.
            if data.len().is_multiple_of(16) {
                diagnostic::render(&failed.diagnostics[..1], &failed.sources, false);
            }
        }
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { mutate(data, size, max_size, seed) });
