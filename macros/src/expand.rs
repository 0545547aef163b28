//! Tokens to a generated module, or to errors at their tokens.

use mgraph_codegen::Options;
use mgraph_dsl::diagnostic::{Diagnostic, render_plain};
use mgraph_dsl::source::PRELUDE;
use mgraph_dsl::{Failed, compile_text};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

use crate::text::Rebuilt;

pub fn expand(tokens: TokenStream) -> syn::Result<TokenStream> {
    let rebuilt = Rebuilt::from(tokens);
    let program = compile_text("mgraph!", &rebuilt.text).map_err(|failed| errors(&failed, &rebuilt))?;
    let module = mgraph_codegen::emit(&program, &Options::default())
        .map_err(|error| syn::Error::new(Span::call_site(), error.to_string()))?;
    let name = syn::parse_str::<Ident>(&program.name).map_err(|_| {
        let sentence = format!("the module of a family has its name, and `{}` is a Rust keyword", program.name);
        syn::Error::new(Span::call_site(), sentence)
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
        let error = expand(tokens).expect_err("it is wrong");
        error.into_iter().map(|e| (e.to_string(), e.span().start().line, e.span().start().column)).collect()
    }

    #[test]
    fn a_family_becomes_a_module_of_its_name() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/families/llama.mgraph");
        let tokens = std::fs::read_to_string(path).expect("a family of the repository").parse().expect("Rust tokens");
        let module = mgraph_codegen::format(expand(tokens).expect("it compiles")).expect("Rust");
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
}
