//! A Rust expression with what its surroundings must know: how tightly it binds, and whether it is a `Result`.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

/// From loosest to tightest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// `if` and blocks.
    Block,
    Or,
    And,
    Compare,
    Shift,
    Sum,
    Product,
    /// `x as f64`
    Cast,
    Prefix,
    Atom,
}

#[derive(Debug, Clone)]
pub(crate) struct Code {
    pub tokens: TokenStream,
    pub level: Level,
}

impl Code {
    pub fn new(level: Level, tokens: TokenStream) -> Code {
        Code { tokens, level }
    }

    pub fn atom(tokens: TokenStream) -> Code {
        Code::new(Level::Atom, tokens)
    }

    pub fn int(value: i64) -> Code {
        let literal = Literal::i64_unsuffixed(value);
        Code::new(if value < 0 { Level::Prefix } else { Level::Atom }, quote!(#literal))
    }

    pub fn float(value: f64) -> Code {
        if value.is_nan() {
            return Code::atom(quote!(f64::NAN));
        }
        let size = if value.is_infinite() {
            quote!(f64::INFINITY)
        } else {
            // As `{:?}` writes it: an exponent where digits alone would be long.
            let literal = syn::LitFloat::new(&format!("{:?}", value.abs()), proc_macro2::Span::call_site());
            quote!(#literal)
        };
        if value.is_sign_negative() { Code::new(Level::Prefix, quote!(-#size)) } else { Code::atom(size) }
    }

    /// In parentheses unless it binds at least as tightly as `level`.
    pub fn at(&self, level: Level) -> TokenStream {
        let tokens = &self.tokens;
        if self.level >= level { quote!(#tokens) } else { quote!((#tokens)) }
    }

    pub fn binary(level: Level, left: &Code, sign: TokenStream, right: &Code) -> Code {
        // The right side of a left-associative operator must bind tighter; comparisons do not associate at all.
        let tighter = match level {
            Level::Block | Level::Or => Level::And,
            Level::And => Level::Compare,
            Level::Compare => Level::Shift,
            Level::Shift => Level::Sum,
            Level::Sum => Level::Product,
            Level::Product => Level::Cast,
            Level::Cast => Level::Prefix,
            Level::Prefix | Level::Atom => Level::Atom,
        };
        // `a as i64 < b` and `a as i64 << b` would begin type arguments.
        let cast = left.level == Level::Cast && matches!(level, Level::Compare | Level::Shift);
        let left = match (level, cast) {
            (_, true) => left.at(Level::Prefix),
            (Level::Compare, _) => left.at(Level::Shift),
            _ => left.at(level),
        };
        let right = right.at(tighter);
        Code::new(level, quote!(#left #sign #right))
    }
}

/// The expression of one statement. `fallible`: a `Result`, to be followed by `?`.
#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub tokens: TokenStream,
    pub fallible: bool,
}

impl Expr {
    pub fn fallible(tokens: TokenStream) -> Expr {
        Expr { tokens, fallible: true }
    }

    pub fn plain(tokens: TokenStream) -> Expr {
        Expr { tokens, fallible: false }
    }

    /// As a value.
    pub fn value(&self) -> TokenStream {
        let tokens = &self.tokens;
        if self.fallible { quote!(#tokens?) } else { quote!(#tokens) }
    }

    /// As the `Result` a function ends with.
    pub fn result(&self) -> TokenStream {
        let tokens = &self.tokens;
        if self.fallible { quote!(#tokens) } else { quote!(Ok(#tokens)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parentheses_where_rust_needs_them() {
        let (a, b, c) = (Code::atom(quote!(a)), Code::atom(quote!(b)), Code::atom(quote!(c)));
        let sum = Code::binary(Level::Sum, &b, quote!(-), &c);
        assert_eq!(Code::binary(Level::Sum, &a, quote!(-), &sum).tokens.to_string(), "a - (b - c)");
        assert_eq!(Code::binary(Level::Product, &sum, quote!(*), &a).tokens.to_string(), "(b - c) * a");
        assert_eq!(Code::binary(Level::Sum, &sum, quote!(+), &a).tokens.to_string(), "b - c + a");
        let cast = Code::new(Level::Cast, quote!(a as f64));
        assert_eq!(Code::binary(Level::Compare, &cast, quote!(<), &b).tokens.to_string(), "(a as f64) < b");
        assert_eq!(Code::binary(Level::Product, &cast, quote!(*), &b).tokens.to_string(), "a as f64 * b");
        assert_eq!(Code::float(-2.0).at(Level::Atom).to_string(), "(- 2.0)");
    }
}
