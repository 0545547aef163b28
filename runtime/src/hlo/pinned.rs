//! Numerics `pinned` down to machine code: what the emitter writes so that IREE rounds after every op of the source.
//!
//! IREE's LLVM back end marks each multiplication, addition and subtraction as one that may be contracted: on a CPU with FMA
//! a quarter of the elements of `a * b + c` come out with one rounding instead of two, and no flag forbids it. And it computes
//! bf16 in f32, and leaves out each rounding to bf16 that ends in f32 again (its pass `iree-convert-bf16-arith-to-f32`). So
//!
//! - a product `a * b` is written `math.fma(a, b, -0.0)`. That is the same number, sign of zero included, rounded once; LLVM
//!   makes a plain multiplication of it, and this one is not marked;
//! - an op of narrow floats that rounds is written in f32, between `arith.extf` and `arith.truncf`. f32 has more than twice
//!   the bits, so the second rounding alone counts (Figueroa, "When is double rounding innocuous?", 1995);
//! - what such an op, or a conversion, gives in bf16 is rounded to its bits by `stablehlo.reduce_precision`, which IREE does in
//!   integers. What it then leaves out changes nothing.
//!
//! None of them is an op of the source. `math`, `arith` and `reduce_precision` appear in the text for these only, so
//! [`super::readback`] reads them as the op that they guard. Numerics `fused` writes none of them. The tests `pinned` hold
//! both halves.
//!
//! Inside `dot` and `matmul` nothing is guarded: the order of their additions is the backend's, FMA included, and their bound
//! is one of error.

use melior::ir::{Block, Value};

use super::{
    emit::{Emit, constant},
    graph::Elementwise,
    types::{DType, Type, bits_of_number, is_narrow},
};
use crate::error::Result;

/// Names in the text.
pub(super) const PRODUCT: &str = "math.fma";
pub(super) const WIDEN: &str = "arith.extf";
pub(super) const NARROW: &str = "arith.truncf";
pub(super) const ROUND: &str = "stablehlo.reduce_precision";
pub(super) const GUARDS: [&str; 4] = [PRODUCT, WIDEN, NARROW, ROUND];
/// Bits of bf16.
pub(super) const EXPONENT: (&str, i64) = ("exponent_bits", 8);
pub(super) const MANTISSA: (&str, i64) = ("mantissa_bits", 7);

/// Whether the op, from that type to that, is written in another way than in numerics `fused`.
pub(super) fn is_guarded(op: Elementwise, from: &Type, ty: &Type) -> bool {
    if !ty.dtype.is_float() || ty.elements() == 0 {
        return false;
    }
    match op {
        Elementwise::Multiply => true,
        Elementwise::Add
        | Elementwise::Subtract
        | Elementwise::Divide
        | Elementwise::Remainder
        | Elementwise::Exponential
        | Elementwise::Log
        | Elementwise::Sqrt
        | Elementwise::Rsqrt
        | Elementwise::Tanh
        | Elementwise::Logistic
        | Elementwise::Erf => is_narrow(ty.dtype),
        Elementwise::Convert => ty.dtype == DType::BF16 && !matches!(from.dtype, DType::Bool | DType::U8),
        // They are computed in f32 in both modes.
        Elementwise::Sine | Elementwise::Cosine => false,
        // These round nothing.
        Elementwise::Minimum
        | Elementwise::Maximum
        | Elementwise::And
        | Elementwise::Or
        | Elementwise::ShiftLeft
        | Elementwise::ShiftRight
        | Elementwise::Negate
        | Elementwise::Abs
        | Elementwise::Not
        | Elementwise::Select => false,
    }
}

impl<'c> Emit<'c> {
    /// A guarded op.
    pub(super) fn rounded<'a>(
        &mut self,
        block: &'a Block<'c>,
        op: Elementwise,
        operands: &[Value<'c, 'a>],
        from: DType,
        ty: &Type,
    ) -> Result<Value<'c, 'a>> {
        if op == Elementwise::Convert && from == DType::F32 {
            return self.narrowed(block, op.mlir(), operands[0], ty);
        }
        let mut one = |name: &str, operands: &[Value<'c, '_>], ty: &Type, attributes: &[(&str, String)]| {
            Ok::<_, crate::error::Error>(self.op(block, name, operands, std::slice::from_ref(ty), attributes, None)?[0])
        };
        let wide = Type::new(DType::F32, &ty.shape);
        if op == Elementwise::Convert {
            let value = one(if is_narrow(from) { WIDEN } else { op.mlir() }, operands, &wide, &[])?;
            return self.narrowed(block, NARROW, value, ty);
        }
        if is_narrow(ty.dtype) {
            let operands = operands.iter().map(|x| one(WIDEN, &[*x], &wide, &[])).collect::<Result<Vec<_>>>()?;
            let value = one(op.mlir(), &operands, &wide, &[])?;
            return self.narrowed(block, NARROW, value, ty);
        }
        let nothing = constant(&[bits_of_number(-0.0, ty.dtype)], ty);
        let nothing = one("stablehlo.constant", &[], ty, &[("value", nothing)])?;
        one(PRODUCT, &[operands, &[nothing]].concat(), ty, &[])
    }

    /// A value of f32 as a narrow float, by the op `name`.
    pub(super) fn narrowed<'a>(
        &mut self,
        block: &'a Block<'c>,
        name: &str,
        value: Value<'c, 'a>,
        ty: &Type,
    ) -> Result<Value<'c, 'a>> {
        let mut value = value;
        if !self.fused && ty.dtype == DType::BF16 {
            let bits = [EXPONENT, MANTISSA].map(|(name, bits)| (name, format!("{bits} : i32")));
            let wide = Type::new(DType::F32, &ty.shape);
            value = self.op(block, ROUND, &[value], &[wide], &bits, None)?[0];
        }
        Ok(self.op(block, name, &[value], std::slice::from_ref(ty), &[], None)?[0])
    }
}
