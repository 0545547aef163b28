//! What differs between MLX and StableHLO below the structure of the text, and how values are held and passed.

use mgraph_dsl::ir::{DType, Prim, TwinBackend, Type};
use proc_macro2::{Ident, TokenStream};
use quote::quote;

use crate::{code::Expr, dims::tensor, error::Result, scope::Scope};

/// What differs between MLX and StableHLO below the structure of the text.
pub(crate) trait Backend {
    fn twin(&self) -> TwinBackend;
    /// The type of a tensor that a function returns.
    fn tensor(&self) -> TokenStream;
    fn matrix(&self) -> TokenStream;
    /// Tensors are `Copy` handles; otherwise they are passed by reference.
    fn copies(&self) -> bool;
    /// One primitive; `arguments` are ready to be passed.
    fn prim(&self, scope: &Scope<'_>, op: &Prim, arguments: &[TokenStream], out: &Type) -> Result<Expr>;
    fn dim(&self, tensor: &TokenStream, axis: i32) -> TokenStream;
    /// Its `Vec<i64>` or slice.
    fn shape(&self, tensor: &TokenStream) -> TokenStream;
    fn dtype(&self, tensor: &TokenStream) -> TokenStream;
    /// `value` is given away; the expression is what goes on in its place.
    fn probe(&self, pattern: &str, holes: &[TokenStream], value: &TokenStream) -> Expr;
    /// How a weight held in the field `place` of the block enters a function; `None` where the field is the weight.
    fn weight(&self, place: &TokenStream, matrix: bool) -> Option<Expr>;
    fn state_read(&self, place: &TokenStream) -> Expr;
    fn state_write(&self, place: &TokenStream, value: &TokenStream) -> TokenStream;
    /// `state = update(state, x, positions)` in one piece, where the backend gains by it.
    fn state_update(&self, place: &TokenStream, x: &TokenStream, positions: &TokenStream, axis: i32) -> Option<Expr>;
    /// A value over positions, cut to those that the state at `place` holds.
    fn held_part(&self, place: &TokenStream, value: &TokenStream, axis: i32) -> TokenStream;
    /// What ends a turn of a loop over children, given the variables it carries.
    fn turn(&self, carried: &[Ident]) -> TokenStream;
}

/// Where a tensor, matrix or list is.
#[derive(Debug, Clone)]
pub(crate) struct Operand {
    pub place: TokenStream,
    pub form: Form,
    pub copies: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A variable of the region at this depth.
    Owned(usize),
    /// A field of `self`.
    Field,
    /// A reference, such as a parameter.
    Reference,
    /// A slice of tensors: a list that is a parameter.
    Slice,
}

impl Operand {
    /// As an argument.
    pub fn pass(&self) -> TokenStream {
        let place = &self.place;
        match self.form {
            _ if self.copies => quote!(#place),
            Form::Owned(_) | Form::Field => quote!(&#place),
            Form::Reference | Form::Slice => quote!(#place),
        }
    }

    /// As a value to keep; a variable of `depth` may be moved out.
    pub fn take(&self, depth: usize) -> TokenStream {
        let place = &self.place;
        match self.form {
            _ if self.copies => quote!(#place),
            Form::Owned(own) if own == depth => quote!(#place),
            Form::Owned(_) | Form::Field | Form::Reference => quote!(#place.clone()),
            Form::Slice => quote!(#place.to_vec()),
        }
    }
}

/// The dtype of a tensor in Rust; marks `F` as used.
pub(crate) fn dtype(scope: &Scope<'_>, dtype: DType) -> TokenStream {
    let variant = match dtype {
        DType::F => {
            scope.used.float.set(true);
            return quote!(F);
        }
        DType::F64 => quote!(F64),
        DType::F32 => quote!(F32),
        DType::F16 => quote!(F16),
        DType::BF16 => quote!(BF16),
        DType::I32 => quote!(I32),
        DType::U32 => quote!(U32),
        DType::U8 => quote!(U8),
        DType::Bool => quote!(Bool),
    };
    quote!(DType::#variant)
}

pub(crate) fn out_dtype(scope: &Scope<'_>, out: &Type) -> Result<TokenStream> {
    Ok(dtype(scope, tensor(out)?.dtype))
}
