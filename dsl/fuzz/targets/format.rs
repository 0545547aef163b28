//! What parses can be formatted: the tree stays, and a second time changes nothing.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use mgraph_dsl::{format::format, parser::parse, source::Sources};
use mgraph_dsl_fuzz::{mutate::mutate, stack};

fuzz_target!(init: stack::report_overflow(), |data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(tree) = tree(text) else { return };
    let once = format("fuzz.mgraph", text).expect("what parses is formatted");
    assert_eq!(self::tree(&once), Some(tree), "the tree changed");
    let twice = format("fuzz.mgraph", &once).expect("what was formatted parses");
    assert_eq!(once, twice, "a second time changes more");
});

/// The tree without its places.
fn tree(text: &str) -> Option<String> {
    let mut sources = Sources::default();
    let file = sources.add("fuzz.mgraph", text);
    let shown = format!("{:?}", parse(&sources, file).ok()?);
    let mut parts = shown.split("Span { ");
    let mut out = parts.next()?.to_string();
    for part in parts {
        out += part.split_once('}').map_or(part, |(_, rest)| rest);
    }
    Some(out)
}

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { mutate(data, size, max_size, seed) });
