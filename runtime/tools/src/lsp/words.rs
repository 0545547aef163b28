//! The words that are types, with what they mean: where a config says what a value is, and everywhere else.

use mgraph_dsl::analysis::Analysis;

pub const CONFIG_TYPES: &[(&str, &str)] = &[
    ("dim", "a positive integer, usable in shapes"),
    ("int", "an integer"),
    ("float", "a number; an integer is accepted"),
    ("bool", "true or false"),
    ("name", "a string"),
    ("one_of", "one of a closed set: one_of(\"silu\", \"gelu\")"),
    ("index", "an index into so many things, made non-negative: index(depth)"),
];

pub const VALUE_TYPES: &[(&str, &str)] = &[
    ("F", "the family's float dtype: F[B, S, hidden]"),
    ("Q", "a matrix that may be packed: Q[outputs, inputs]"),
    ("f64", "64-bit float"),
    ("f32", "32-bit float"),
    ("f16", "16-bit float"),
    ("bf16", "brain float"),
    ("i32", "32-bit integer"),
    ("u32", "32-bit unsigned integer"),
    ("u8", "byte"),
    ("bool", "true or false"),
    ("dim", "a positive integer known at load"),
    ("int", "an integer known at load"),
    ("float", "a float known at load"),
    ("name", "a string known at load"),
];

/// Whether `offset` is in a `config` item.
pub fn in_config(analysis: &Analysis, offset: u32) -> bool {
    analysis.item_at(offset).is_some_and(|item| {
        analysis.sources.text(item).strip_prefix("config").is_some_and(|rest| rest.trim_start().starts_with('{'))
    })
}

/// What a type word means.
pub fn meaning(word: &str, in_config: bool) -> Option<&'static str> {
    let (first, second) = if in_config { (CONFIG_TYPES, VALUE_TYPES) } else { (VALUE_TYPES, CONFIG_TYPES) };
    first.iter().chain(second).find(|(name, _)| *name == word).map(|(_, meaning)| *meaning)
}
