//! Rust identifiers for the names of a family: keywords, the names generated code uses itself, and shadowing.

use std::collections::HashMap;

use proc_macro2::{Ident, Span};
use quote::format_ident;

/// Names that generated functions use for themselves, those of values that no pattern may hide, and those that Rust takes
/// in no form.
const OWN: &[&str] = &[
    "", // `_`
    "Array",
    "Build",
    "Config",
    "Core",
    "Err",
    "F",
    "FieldPath",
    "Matrix",
    "None",
    "Ok",
    "Resolved",
    "Self",
    "Some",
    "Weights",
    "at",
    "cfg",
    "crate",
    "cx",
    "dim",
    "exact",
    "item",
    "items",
    "largest",
    "lead",
    "present",
    "reader",
    "remainder",
    "self",
    "shape",
    "shift_left",
    "super",
];

/// Types and modules that a generated module has already, beside its blocks.
const OWN_TYPES: &[&str] = &[
    "Array",
    "Box",
    "Build",
    "Call",
    "Compare",
    "Config",
    "Core",
    "Cut",
    "DType",
    "FieldPath",
    "Loaded",
    "Matrix",
    "Model",
    "Module",
    "Option",
    "Resolved",
    "Result",
    "String",
    "V",
    "Vec",
    "Weights",
    "bool",
    "f64",
    "generated",
    "i32",
    "i64",
    "kernels",
    "load",
    "ops",
    "prelude",
    "std",
    "str",
    "usize",
];

/// Methods that a block has anyway, or that a trait of the standard library would be asked for first: one that takes its
/// receiver by value is found before ours, which borrow it.
const OWN_METHODS: &[&str] = &["call", "declare", "into", "into_future", "into_iter", "load", "try_into"];

/// `name`, with one `_` more if it is one of `own` but for those it ends in. No two names become the same: `self` and
/// `self_` are `self_` and `self__`.
fn apart(name: &str, own: &[&[&str]]) -> Ident {
    let bare = name.trim_end_matches('_');
    if own.iter().any(|names| names.contains(&bare)) {
        return format_ident!("{name}_");
    }
    // `syn` does not know the keyword of edition 2024 yet.
    if name != "gen" && syn::parse_str::<Ident>(name).is_ok() {
        Ident::new(name, Span::call_site())
    } else {
        Ident::new_raw(name, Span::call_site())
    }
}

/// The identifier for a name; a keyword becomes raw, a name that generated code needs itself gets a `_`.
#[must_use]
pub fn ident(name: &str) -> Ident {
    apart(name, &[OWN])
}

/// The type of a block.
#[must_use]
pub fn block(name: &str) -> Ident {
    apart(name, &[OWN, OWN_TYPES])
}

/// A method for the function `name`; `""` is the one that makes a field callable.
#[must_use]
pub fn method(name: &str) -> Ident {
    match name {
        "" => Ident::new("call", Span::call_site()),
        _ => apart(name, &[OWN, OWN_METHODS]),
    }
}

/// The module of a family.
pub(crate) fn family(name: &str) -> Ident {
    apart(name, &[OWN, &["families"]])
}

/// `llama3` -> `Llama3Section`; numbered where `taken` has that already.
pub(crate) fn section(name: &str, taken: &[Ident]) -> Ident {
    let words = name.split('_').map(|word| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    });
    let words = words.collect::<String>() + "Section";
    let wanted = if words.starts_with(|c: char| c.is_ascii_digit()) { format!("_{words}") } else { words };
    let mut found = ident(&wanted);
    let mut number = 2;
    while taken.contains(&found) {
        found = format_ident!("{wanted}{number}");
        number += 1;
    }
    found
}

/// Which identifiers are taken, and until when: a later binding may shadow one only after its last use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Namespace {
    until: HashMap<String, usize>,
}

impl Namespace {
    /// Binds `name` from point `now` until `last`, as itself or, where that would hide something still needed, numbered.
    pub fn bind(&mut self, name: &str, now: usize, last: usize) -> Ident {
        let wanted = ident(name);
        let mut found = wanted.clone();
        let mut number = 2;
        while self.until.get(&found.to_string()).is_some_and(|until| *until > now) {
            found = format_ident!("{wanted}_{number}");
            number += 1;
        }
        self.until.insert(found.to_string(), last);
        found
    }

    /// The binding `ident` is needed until `last`.
    pub fn extend(&mut self, ident: &Ident, last: usize) {
        self.until.insert(ident.to_string(), last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_and_own_names() {
        assert_eq!(ident("type").to_string(), "r#type");
        assert_eq!(ident("cx").to_string(), "cx_");
        assert_eq!(ident("hidden").to_string(), "hidden");
        assert_eq!(method("").to_string(), "call");
        assert_eq!(method("load").to_string(), "load_");
        assert_eq!(ident("gen").to_string(), "r#gen");
    }

    #[test]
    fn names_stay_different() {
        for names in [["self", "self_", "self__"], ["_", "__", "___"], ["Some", "Some_", "Some__"]] {
            let idents = names.map(|name| ident(name).to_string());
            assert!(idents[0] != idents[1] && idents[1] != idents[2] && idents[0] != idents[2], "{idents:?}");
        }
        let mut taken = Vec::new();
        for name in ["a_b", "aB", "a_b_", "_1", "1", "self"] {
            taken.push(section(name, &taken));
        }
        let taken: Vec<String> = taken.iter().map(Ident::to_string).collect();
        assert_eq!(taken, ["ABSection", "ABSection2", "ABSection3", "_1Section", "_1Section2", "SelfSection"]);
    }

    #[test]
    fn shadows_only_what_is_done_with() {
        let mut names = Namespace::default();
        assert_eq!(names.bind("x", 0, 5).to_string(), "x");
        assert_eq!(names.bind("x", 3, 9).to_string(), "x_2");
        assert_eq!(names.bind("x", 5, 9).to_string(), "x");
    }
}
