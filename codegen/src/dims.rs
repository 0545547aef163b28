//! Dims as Rust integers: the sum of products in normal form, with one exact division last.

use mgraph_dsl::{
    dim::{Dim, Monomial, Ratio},
    ir::{Shape, SliceSlot, TensorType, Type},
};
use proc_macro2::TokenStream;
use quote::quote;

use crate::{
    code::{Code, Level},
    error::{Error, Result},
    scope::Scope,
};

impl Scope<'_> {
    pub fn dim(&self, dim: &Dim) -> Result<Code> {
        let (above, below) = dim.as_fraction().map_err(|e| Error::dim(dim, e))?;
        let above = self.sum(&above)?;
        if below.as_int() == Some(1) {
            return Ok(above);
        }
        let (above, below) = (above.tokens, self.sum(&below)?.tokens);
        Ok(Code::atom(quote!(exact(#above, #below)?)))
    }

    fn sum(&self, dim: &Dim) -> Result<Code> {
        let mut sum: Option<Code> = None;
        // A term with a plus sign first: `hidden - 1`, not `-1 + hidden`.
        let (minus, plus): (Vec<_>, Vec<_>) = dim.terms().partition(|(_, ratio)| ratio.numerator() < 0);
        for (monomial, ratio) in plus.into_iter().chain(minus) {
            let size = self.product(monomial, ratio)?;
            sum = Some(match (sum, ratio.numerator() < 0) {
                (None, false) => size,
                (None, true) => {
                    let size = size.at(Level::Prefix);
                    Code::new(Level::Prefix, quote!(-#size))
                }
                (Some(so_far), false) => Code::binary(Level::Sum, &so_far, quote!(+), &size),
                (Some(so_far), true) => Code::binary(Level::Sum, &so_far, quote!(-), &size),
            });
        }
        Ok(sum.unwrap_or_else(|| Code::int(0)))
    }

    /// Without the sign; the ratio is whole in a fraction's numerator and denominator.
    fn product(&self, monomial: &Monomial, ratio: Ratio) -> Result<Code> {
        let number = ratio.numerator().abs();
        let mut product: Option<Code> = (number != 1).then(|| Code::int(number));
        for (atom, power) in monomial.powers() {
            let factor = self.scalar(&atom.load)?;
            for _ in 0..power {
                product = Some(match product {
                    None => factor.clone(),
                    Some(so_far) => Code::binary(Level::Product, &so_far, quote!(*), &factor),
                });
            }
        }
        Ok(product.unwrap_or_else(|| Code::int(number)))
    }

    /// The slots of a slice.
    pub fn cuts(&self, slots: &[SliceSlot]) -> Result<Vec<TokenStream>> {
        let cut = |slot: &SliceSlot| {
            Ok(match slot {
                SliceSlot::Whole => quote!(Cut::Whole),
                SliceSlot::Range(low, high) => {
                    let (low, high) = (self.scalar(low)?.tokens, self.scalar(high)?.tokens);
                    quote!(Cut::Range(#low, #high))
                }
                SliceSlot::At(index) => {
                    let index = self.scalar(index)?.tokens;
                    quote!(Cut::At(#index))
                }
            })
        };
        slots.iter().map(cut).collect()
    }

    /// `&[B, S, hidden]`, or with leading dims `&shape(&lead, &[hidden])`.
    pub fn shape(&self, shape: &Shape) -> Result<TokenStream> {
        let dims = shape.dims.iter().map(|d| Ok(self.dim(d)?.tokens)).collect::<Result<Vec<_>>>()?;
        if !shape.pack {
            return Ok(quote!(&[#(#dims),*]));
        }
        self.used.lead.set(true);
        Ok(quote!(&shape(&lead, &[#(#dims),*])))
    }
}

pub(crate) fn tensor(ty: &Type) -> Result<&TensorType> {
    match ty {
        Type::Tensor(tensor) => Ok(tensor),
        Type::Matrix(_) => Err(Error::Ir("a matrix where a tensor belongs".into())),
        Type::List { .. } => Err(Error::Ir("a list where a tensor belongs".into())),
    }
}
