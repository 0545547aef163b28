//! Load-stage expressions as Rust over `i64`, `f64`, `bool`, text and lists. Integer division is exact or an error, through a
//! helper of the runtime; everything else is the plain Rust operator or `std` function.

mod loops;
mod operators;

use mgraph_dsl::ir::{Load, LoadKind, LoadType, LoadUnary, LocalId, MatrixAttribute, PatternPart};
use proc_macro2::TokenStream;
use quote::quote;

use crate::{
    code::{Code, Level},
    error::{Error, Result},
    names,
    scope::Scope,
};

impl Scope<'_> {
    /// A number, truth value, or the place of a text or list.
    pub fn scalar(&self, load: &Load) -> Result<Code> {
        if let Some((code, _)) = self.place(load)? {
            return Ok(code);
        }
        Ok(match &load.kind {
            LoadKind::Int(value) => Code::int(*value),
            LoadKind::Float(value) => Code::float(*value),
            LoadKind::Bool(value) => Code::atom(quote!(#value)),
            LoadKind::Text(value) => Code::atom(quote!(#value)),
            LoadKind::Format(parts) => {
                let (pattern, holes) = self.pattern(parts)?;
                Code::atom(quote!(format!(#pattern #(, #holes)*)))
            }
            LoadKind::Pi => Code::atom(quote!(std::f64::consts::PI)),
            LoadKind::Free(name) => {
                self.used.free.borrow_mut().insert(name.clone());
                let ident = names::ident(name);
                Code::atom(quote!(#ident))
            }
            LoadKind::Dim(dim) => self.dim(dim)?,
            LoadKind::Size(value) => {
                let value = self.value(*value)?.pass();
                Code::atom(quote!(cx.size(#value)))
            }
            LoadKind::Matrix(value, attribute) => {
                let value = self.value(*value)?.place;
                Code::atom(match attribute {
                    MatrixAttribute::Packed => quote!(#value.packed()),
                    MatrixAttribute::Bits => quote!(#value.bits()),
                    MatrixAttribute::Group => quote!(#value.group()),
                })
            }
            LoadKind::Unary(op, x) => {
                let x = self.scalar(x)?;
                match op {
                    LoadUnary::Negate => {
                        let x = x.at(Level::Prefix);
                        Code::new(Level::Prefix, quote!(-#x))
                    }
                    LoadUnary::Not => {
                        let x = x.at(Level::Prefix);
                        Code::new(Level::Prefix, quote!(!#x))
                    }
                    LoadUnary::ToFloat => to_float(&x),
                }
            }
            LoadKind::Binary(op, x, y) => self.binary(*op, x, y)?,
            LoadKind::Call(function, arguments) => self.call(*function, arguments)?,
            LoadKind::Op(op, arguments) => {
                self.configs.call(*op);
                let name = names::ident(&self.program.op(*op).name);
                let arguments = self.arguments(arguments)?;
                Code::atom(quote!(load::#name(#(#arguments),*)?))
            }
            LoadKind::If(condition, then, otherwise) => {
                let condition = self.scalar(condition)?.tokens;
                let then = self.owned(then)?;
                let otherwise = match &bare(otherwise).kind {
                    LoadKind::If(..) => self.scalar(bare(otherwise))?.tokens,
                    _ => {
                        let otherwise = self.owned(otherwise)?;
                        quote!({ #otherwise })
                    }
                };
                Code::new(Level::Block, quote!(if #condition { #then } else #otherwise))
            }
            LoadKind::List(items) => {
                let items = items.iter().map(|item| self.owned(item)).collect::<Result<Vec<_>>>()?;
                Code::atom(quote!([#(#items),*]))
            }
            LoadKind::Comprehension { item, each } => self.comprehension(item, each)?,
            LoadKind::Block { lets, value } if lets.is_empty() => self.scalar(value)?,
            LoadKind::Block { lets, value } => {
                let (lets, value) = self.block_body(lets, value)?;
                Code::new(Level::Block, quote!({ #lets #value }))
            }
            LoadKind::Config(_)
            | LoadKind::Parameter(_)
            | LoadKind::Member(_)
            | LoadKind::Local(_)
            | LoadKind::Index(..) => return Err(Error::Ir("a place that is none".into())),
        })
    }

    /// A pattern of `format!`, and what stands in its holes.
    pub fn pattern(&self, parts: &[PatternPart]) -> Result<(String, Vec<TokenStream>)> {
        let mut pattern = String::new();
        let mut holes = Vec::new();
        for part in parts {
            match part {
                PatternPart::Text(text) => pattern += &text.replace('{', "{{").replace('}', "}}"),
                PatternPart::Hole(load) => {
                    pattern += "{}";
                    holes.push(self.scalar(load)?.tokens);
                }
            }
        }
        Ok((pattern, holes))
    }

    /// `let`s, and the value.
    pub fn block_body(&self, lets: &[(LocalId, Load)], value: &Load) -> Result<(TokenStream, TokenStream)> {
        let mut statements = TokenStream::new();
        for (local, load) in lets {
            let load = self.owned(load)?;
            let ident = self.variable(*local);
            statements.extend(quote!(let #ident = #load;));
            self.bind_local(*local, ident, false);
        }
        let value = self.owned(value)?;
        lets.iter().for_each(|(local, _)| self.release(*local));
        Ok((statements, value))
    }

    /// As an argument of a Rust function: numbers by value, text as `&str`, lists as slices.
    pub fn argument(&self, load: &Load) -> Result<TokenStream> {
        match load.ty {
            LoadType::Int | LoadType::Float | LoadType::Bool => Ok(self.scalar(load)?.tokens),
            LoadType::Text | LoadType::List(_) => self.borrowed(load),
        }
    }

    pub fn arguments(&self, loads: &[Load]) -> Result<Vec<TokenStream>> {
        loads.iter().map(|load| self.argument(load)).collect()
    }

    pub fn borrowed(&self, load: &Load) -> Result<TokenStream> {
        if let Some((code, reference)) = self.place(load)? {
            let place = code.at(Level::Prefix);
            return Ok(if reference { place } else { quote!(&#place) });
        }
        if let LoadKind::Text(text) = &load.kind {
            return Ok(quote!(#text));
        }
        let value = self.scalar(load)?.at(Level::Prefix);
        Ok(quote!(&#value))
    }

    pub fn owned(&self, load: &Load) -> Result<TokenStream> {
        let fresh = self.place(load)?.is_none() && !matches!(load.kind, LoadKind::Text(_) | LoadKind::List(_));
        match &load.ty {
            LoadType::Int | LoadType::Float | LoadType::Bool => Ok(self.scalar(load)?.tokens),
            LoadType::Text | LoadType::List(_) if fresh => Ok(self.scalar(load)?.tokens),
            LoadType::Text => {
                let text = self.scalar(load)?.at(Level::Atom);
                Ok(quote!(#text.to_string()))
            }
            LoadType::List(_) => {
                let list = self.scalar(load)?.at(Level::Atom);
                Ok(quote!(#list.to_vec()))
            }
        }
    }
}

/// Without blocks that bind nothing.
fn bare(load: &Load) -> &Load {
    match &load.kind {
        LoadKind::Block { lets, value } if lets.is_empty() => bare(value),
        _ => load,
    }
}

fn to_float(x: &Code) -> Code {
    let inner = x.tokens.to_string();
    if x.level == Level::Atom && inner.parse::<i64>().is_ok() {
        return Code::float(inner.parse::<i64>().unwrap_or_default() as f64);
    }
    let x = x.at(Level::Cast);
    Code::new(Level::Cast, quote!(#x as f64))
}

/// The Rust type of a load value that is kept.
pub(crate) fn owned_type(ty: &LoadType) -> TokenStream {
    match ty {
        LoadType::Int => quote!(i64),
        LoadType::Float => quote!(f64),
        LoadType::Bool => quote!(bool),
        LoadType::Text => quote!(String),
        LoadType::List(inner) => {
            let inner = owned_type(inner);
            quote!(Vec<#inner>)
        }
    }
}

/// The Rust type of a load value that is passed.
pub(crate) fn borrowed_type(ty: &LoadType) -> TokenStream {
    match ty {
        LoadType::Int | LoadType::Float | LoadType::Bool => owned_type(ty),
        LoadType::Text => quote!(&str),
        LoadType::List(inner) => {
            let inner = owned_type(inner);
            quote!(&[#inner])
        }
    }
}
