//! Any text, as an editor holds it between two keys: its analysis answers every question at every place.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use mgraph_dsl::analysis::analyze;
use mgraph_dsl_fuzz::{mutate::mutate, stack};

/// Places asked about, spread over the text.
const PLACES: usize = 24;

fuzz_target!(init: stack::report_overflow(), |data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let analysis = analyze("fuzz.mgraph", text);
    for place in 0..=PLACES {
        let offset = text.floor_char_boundary(text.len() * place / PLACES) as u32;
        if let Some((span, symbol)) = analysis.name_at(offset) {
            analysis.places(symbol);
            analysis.members(symbol).count();
            analysis.type_of(span);
            analysis.call_at(span);
        }
        analysis.type_at(offset);
        analysis.item_at(offset);
        analysis.place_of(offset);
        analysis.visible_at(offset);
    }
    for id in analysis.ids() {
        analysis.symbol(id);
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { mutate(data, size, max_size, seed) });
