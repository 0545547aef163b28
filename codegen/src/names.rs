//! Rust identifiers for the names of a family: keywords, the names generated code uses itself, and shadowing.

use std::collections::HashMap;

use proc_macro2::{Ident, Span};
use quote::format_ident;

/// Names that every generated function may use for itself.
const OWN: &[&str] = &[
    "cx",
    "cfg",
    "at",
    "reader",
    "lead",
    "F",
    "exact",
    "remainder",
    "shift_left",
    "present",
    "shape",
    "dim",
    "item",
    "items",
    "largest",
];

/// Types that a generated module has already, beside its blocks.
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
];

/// The identifier for a name; a keyword becomes raw, a name that generated code needs itself gets a `_`.
pub(crate) fn ident(name: &str) -> Ident {
    if OWN.contains(&name) || matches!(name, "self" | "Self" | "crate" | "super" | "_" | "Ok" | "Err" | "Some" | "None")
    {
        return format_ident!("{name}_");
    }
    if syn::parse_str::<Ident>(name).is_ok() {
        Ident::new(name, Span::call_site())
    } else {
        Ident::new_raw(name, Span::call_site())
    }
}

/// The type of a block.
pub(crate) fn block(name: &str) -> Ident {
    if OWN_TYPES.contains(&name) { format_ident!("{name}_") } else { ident(name) }
}

/// A method for the function `name`; `""` is the one that makes a field callable.
pub(crate) fn method(name: &str) -> Ident {
    match name {
        "" => Ident::new("call", Span::call_site()),
        "call" | "load" | "declare" => format_ident!("{name}_"),
        _ => ident(name),
    }
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
    }

    #[test]
    fn shadows_only_what_is_done_with() {
        let mut names = Namespace::default();
        assert_eq!(names.bind("x", 0, 5).to_string(), "x");
        assert_eq!(names.bind("x", 3, 9).to_string(), "x_2");
        assert_eq!(names.bind("x", 5, 9).to_string(), "x");
    }
}
