//! Tokens to a generated module, or to errors at their tokens.

use std::path::Path;

use mgraph_codegen::Options;
use mgraph_dsl::diagnostic::{Diagnostic, render_plain};
use mgraph_dsl::ir::Program;
use mgraph_dsl::source::PRELUDE;
use mgraph_dsl::{Failed, compile_text};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

use crate::text::Rebuilt;

/// A family written in the tokens themselves.
pub fn written(tokens: TokenStream) -> syn::Result<TokenStream> {
    let rebuilt = Rebuilt::from(tokens);
    let program = compile_text("mgraph!", &rebuilt.text).map_err(|failed| errors(&failed, &rebuilt))?;
    module(&program, &Options::default(), Span::call_site())
}

/// A family in a file, whose path from `base` is the one token.
pub fn included(tokens: TokenStream, base: &Path) -> syn::Result<TokenStream> {
    let literal: syn::LitStr = syn::parse2(tokens)
        .map_err(|error| syn::Error::new(error.span(), "expected the path of a .mgraph file, as a string"))?;
    let (shown, path) = (literal.value(), base.join(literal.value()));
    let refused = |message: String| syn::Error::new(literal.span(), message);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| refused(format!("{} cannot be read: {error}", path.display())))?;
    let program = compile_text(&shown, &text).map_err(|failed| {
        let said = failed.diagnostics.iter().map(|diagnostic| {
            let help = diagnostic.help.iter().map(|help| format!("\nhelp: {help}")).collect::<String>();
            render_plain(diagnostic, &failed.sources) + &help
        });
        refused(said.collect::<Vec<_>>().join("\n"))
    })?;
    // The module includes the file, so the crate is built anew when it changes.
    module(&program, &Options { path: Some(path) }, literal.span())
}

fn module(program: &Program, options: &Options, place: Span) -> syn::Result<TokenStream> {
    let module = mgraph_codegen::emit(program, options).map_err(|error| syn::Error::new(place, error.to_string()))?;
    let name = syn::parse_str::<Ident>(&program.name).map_err(|_| {
        let sentence = format!("the module of a family has its name, and `{}` is a Rust keyword", program.name);
        syn::Error::new(place, sentence)
    })?;
    Ok(quote! { pub mod #name { #module } })
}

fn errors(failed: &Failed, rebuilt: &Rebuilt) -> syn::Error {
    let mut said = failed.diagnostics.iter().map(|diagnostic| {
        let (first, last) = rebuilt.spans(diagnostic.span);
        // An error over tokens reaches from the first to the last of them.
        let ends = [first, last].map(|span| Ident::new("_place", span));
        syn::Error::new_spanned(quote!(#(#ends)*), sentence(diagnostic, failed))
    });
    let first = said.next().unwrap_or_else(|| syn::Error::new(Span::call_site(), "this family does not compile"));
    said.fold(first, |mut all, next| {
        all.combine(next);
        all
    })
}

fn sentence(diagnostic: &Diagnostic, failed: &Failed) -> String {
    if diagnostic.span.file == PRELUDE {
        return render_plain(diagnostic, &failed.sources);
    }
    let mut text = format!("{}: {}", diagnostic.code, diagnostic.message);
    if let Some(help) = &diagnostic.help {
        text += "\nhelp: ";
        text += help;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<(String, usize, usize)> {
        let tokens: TokenStream = text.parse().expect("Rust tokens");
        let error = written(tokens).expect_err("it is wrong");
        error.into_iter().map(|e| (e.to_string(), e.span().start().line, e.span().start().column)).collect()
    }

    #[test]
    fn a_family_becomes_a_module_of_its_name() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/families/llama.mgraph");
        let tokens = std::fs::read_to_string(path).expect("a family of the repository").parse().expect("Rust tokens");
        let module = mgraph_codegen::format(written(tokens).expect("it compiles")).expect("Rust");
        assert!(module.starts_with("pub mod llama {"), "{module:.200}");
        assert!(module.contains("pub static FAMILY: Family"));
    }

    #[test]
    fn mistakes_are_shown_at_their_tokens() {
        let said = messages(
            "family toy for \"toy\"\n\nop a(x: F[..]) -> F[..] { x && x }\n/// Doc.\nblock B {\n    weight F[a]\n}\n",
        );
        let places: Vec<_> = said.iter().map(|(_, line, column)| (*line, *column)).collect();
        assert_eq!(places, [(3, 29), (6, 11)], "{said:?}");
        assert!(said[0].0.starts_with("mg0001: expected an expression, found `&`\nhelp: "), "{said:?}");
    }

    fn include(tokens: TokenStream) -> syn::Result<TokenStream> {
        included(tokens, &Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
    }

    #[test]
    fn a_file_becomes_a_module_that_includes_it() {
        let module = include(quote!("models/families/llama.mgraph")).expect("it compiles");
        let module = mgraph_codegen::format(module).expect("Rust");
        assert!(module.starts_with("pub mod llama {"), "{module:.200}");
        assert!(module.contains("include_str!("), "changes of the file are seen");
    }

    #[test]
    fn mistakes_in_a_file_are_shown_at_its_path_with_their_places() {
        let error = include(quote!("dsl/tests/ui/names/unknown.mgraph")).expect_err("it is wrong").to_string();
        assert!(
            error.starts_with("dsl/tests/ui/names/unknown.mgraph:10:29: error[mg0101]: there is no `weigth`"),
            "{error}"
        );
        assert!(error.contains("\nhelp: did you mean `weight`?"), "{error}");
    }

    #[test]
    fn what_is_no_path_of_a_file_is_refused() {
        let said = |tokens| include(tokens).expect_err("nothing to include").to_string();
        assert!(said(quote!("no/such.mgraph")).contains("no/such.mgraph cannot be read"));
        assert_eq!(said(quote!(llama)), "expected the path of a .mgraph file, as a string");
    }
}
