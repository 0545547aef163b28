//! `mgraph! { family .. }`: a family written inside a Rust file, for tests, experiments and documentation.
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
    expand::expand(tokens.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}
