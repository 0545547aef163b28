//! `mgraph! { family .. }`: a family written inside a Rust file, for tests, experiments and documentation; and
//! `include_mgraph!("..")`, one in a file, for a crate without a build script.
//!
//! Every token of the language is a Rust token, so there is no second grammar: the macro writes its tokens back as text,
//! runs the front end of `.mgraph` files on it, and shows each mistake at the Rust tokens it is about.

mod expand;
mod text;

/// A family, as the module that a build script would generate for it: named after the family, with `FAMILY` inside.
///
/// The crate that uses it depends on `mgraph-runtime`, which the generated code calls.
#[proc_macro]
pub fn mgraph(tokens: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand::written(tokens.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// `include_mgraph!("families/toy.mgraph")`: as [`mgraph!`], with the family in a file, whose path is relative to the crate's
/// `Cargo.toml`. Mistakes are shown at the path, with file, line and column in the message.
#[proc_macro]
pub fn include_mgraph(tokens: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let base = std::env::var_os("CARGO_MANIFEST_DIR").map(std::path::PathBuf::from).unwrap_or_default();
    expand::included(tokens.into(), &base).unwrap_or_else(|error| error.to_compile_error()).into()
}
