//! Operators and functions of the load stage.

use mgraph_dsl::ir::{Load, LoadBinary, LoadFunction, LoadKind, LoadType};
use proc_macro2::TokenStream;
use quote::quote;

use super::to_float;
use crate::{
    code::{Code, Level},
    error::{Error, Result},
    scope::Scope,
};

impl Scope<'_> {
    pub(super) fn binary(&self, op: LoadBinary, x: &Load, y: &Load) -> Result<Code> {
        let compared = matches!(x.ty, LoadType::Text | LoadType::List(_));
        if op == LoadBinary::In {
            let (list, x) = (self.borrowed(y)?, self.argument(x)?);
            let list = Code::new(Level::Prefix, list).at(Level::Atom);
            return Ok(Code::atom(quote!(#list.iter().any(|known| *known == #x))));
        }
        if compared && !matches!(x.kind, LoadKind::Text(_)) && !matches!(y.kind, LoadKind::Text(_)) {
            let (x, y) = (self.borrowed(x)?, self.borrowed(y)?);
            let sign = if op == LoadBinary::NotEqual { quote!(!=) } else { quote!(==) };
            return Ok(Code::new(Level::Compare, quote!(#x #sign #y)));
        }
        let integers = x.ty == LoadType::Int;
        let (x, y) = (self.scalar(x)?, self.scalar(y)?);
        let (a, b) = (&x.tokens, &y.tokens);
        let (level, sign) = match op {
            LoadBinary::Divide if integers => return Ok(Code::atom(quote!(exact(#a, #b)?))),
            LoadBinary::Remainder if integers => return Ok(Code::atom(quote!(remainder(#a, #b)?))),
            LoadBinary::ShiftLeft => return Ok(Code::atom(quote!(shift_left(#a, #b)?))),
            LoadBinary::Add => (Level::Sum, quote!(+)),
            LoadBinary::Subtract => (Level::Sum, quote!(-)),
            LoadBinary::Multiply => (Level::Product, quote!(*)),
            LoadBinary::Divide => (Level::Product, quote!(/)),
            LoadBinary::Remainder => (Level::Product, quote!(%)),
            LoadBinary::Equal => (Level::Compare, quote!(==)),
            LoadBinary::NotEqual => (Level::Compare, quote!(!=)),
            LoadBinary::Less => (Level::Compare, quote!(<)),
            LoadBinary::LessEqual => (Level::Compare, quote!(<=)),
            LoadBinary::Greater => (Level::Compare, quote!(>)),
            LoadBinary::GreaterEqual => (Level::Compare, quote!(>=)),
            LoadBinary::And => (Level::And, quote!(&&)),
            LoadBinary::Or => (Level::Or, quote!(||)),
            LoadBinary::In => return Err(Error::Ir("`in` without a list".into())),
        };
        Ok(Code::binary(level, &x, sign, &y))
    }

    pub(super) fn call(&self, function: LoadFunction, arguments: &[Load]) -> Result<Code> {
        let kind = match arguments.first().map(|a| &a.ty) {
            Some(LoadType::Int) => quote!(i64),
            _ => quote!(f64),
        };
        let plain = |path: TokenStream| -> Result<Code> {
            let arguments = self.arguments(arguments)?;
            Ok(Code::atom(quote!(#path(#(#arguments),*))))
        };
        let fold = |path: TokenStream| -> Result<Code> {
            let mut arguments = self.arguments(arguments)?.into_iter();
            let first = arguments.next().unwrap_or_default();
            Ok(Code::atom(arguments.fold(first, |so_far, next| quote!(#path(#so_far, #next)))))
        };
        match function {
            LoadFunction::Pow => plain(quote!(f64::powf)),
            LoadFunction::Sqrt => plain(quote!(f64::sqrt)),
            LoadFunction::Exp => plain(quote!(f64::exp)),
            LoadFunction::Ln => plain(quote!(f64::ln)),
            LoadFunction::Sin => plain(quote!(f64::sin)),
            LoadFunction::Cos => plain(quote!(f64::cos)),
            LoadFunction::Abs => plain(quote!(#kind::abs)),
            LoadFunction::Min => fold(quote!(#kind::min)),
            LoadFunction::Max => fold(quote!(#kind::max)),
            LoadFunction::Floor => plain(quote!(f64::floor)),
            LoadFunction::Ceil => plain(quote!(f64::ceil)),
            LoadFunction::Clamp => {
                let arguments = self.arguments(arguments)?;
                let [x, low, high] = &arguments[..] else {
                    return Err(Error::Ir("`clamp` takes three numbers".into()));
                };
                Ok(Code::atom(quote!(#kind::min(#kind::max(#x, #low), #high))))
            }
            LoadFunction::Int => {
                let floor = plain(quote!(f64::floor))?.tokens;
                Ok(Code::new(Level::Cast, quote!(#floor as i64)))
            }
            LoadFunction::Float => {
                let x = arguments.first().ok_or_else(|| Error::Ir("`float` takes a number".into()))?;
                let code = self.scalar(x)?;
                Ok(if x.ty == LoadType::Int { to_float(&code) } else { code })
            }
            LoadFunction::Len => {
                let list = self.list_place(arguments)?;
                Ok(Code::new(Level::Cast, quote!(#list.len() as i64)))
            }
            LoadFunction::Sum => {
                let list = self.list_place(arguments)?;
                let kind = element(arguments);
                Ok(Code::atom(quote!(#list.iter().sum::<#kind>())))
            }
            LoadFunction::Maximum => plain(quote!(largest)).map(|code| {
                let tokens = code.tokens;
                Code::atom(quote!(#tokens?))
            }),
        }
    }

    fn list_place(&self, arguments: &[Load]) -> Result<TokenStream> {
        let list = arguments.first().ok_or_else(|| Error::Ir("a list function without a list".into()))?;
        Ok(self.scalar(list)?.at(Level::Atom))
    }
}

fn element(arguments: &[Load]) -> TokenStream {
    match arguments.first().map(|a| &a.ty) {
        Some(LoadType::List(inner)) if **inner == LoadType::Int => quote!(i64),
        _ => quote!(f64),
    }
}
