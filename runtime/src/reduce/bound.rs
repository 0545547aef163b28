//! How far two executors may be from each other in one op: the bounds that the conformance tests hold them to.

use mgraph_dsl::{
    interpret::Primitive,
    ir::{Reduce, Unary},
};

use crate::{
    backend::Backend,
    parity::compare::Bound,
    tensor::{DType, Tensor},
};

/// Units of the interpreter and of a backend from what an op means (`book/src/conformance.md`), and what a unit is.
enum Units {
    Exact,
    /// In the last place of each element.
    Ulp(f64, f64),
    /// Distances of 1 from the next number, times the op on the magnitudes of its operands.
    Sum(f64, f64),
    /// Distances of 1 from the next number.
    One(f64, f64),
}

fn units(primitive: &Primitive) -> Units {
    match primitive {
        Primitive::Unary(op) => match op {
            Unary::Exp | Unary::Log => Units::Ulp(1.0, 4.0),
            Unary::Rsqrt => Units::Ulp(1.5, 1.5),
            Unary::Tanh | Unary::Erf => Units::Ulp(1.5, 4.0),
            Unary::Sin | Unary::Cos => Units::One(1.0, 2.0),
            Unary::Sigmoid => Units::Ulp(2.0, 8.0),
            Unary::Negate | Unary::Abs | Unary::Sqrt | Unary::Not => Units::Exact,
        },
        Primitive::Reduce { op: Reduce::Sum, .. } | Primitive::Dot | Primitive::Matmul => Units::Sum(1.0, 4.0),
        Primitive::Reduce { op: Reduce::Maximum | Reduce::Any, .. }
        | Primitive::Binary(_)
        | Primitive::Compare(_)
        | Primitive::Select
        | Primitive::Convert
        | Primitive::Constant(_)
        | Primitive::ConstantList(_)
        | Primitive::Iota
        | Primitive::Reshape
        | Primitive::Transpose(_)
        | Primitive::Broadcast
        | Primitive::Concat { .. }
        | Primitive::Slice(_)
        | Primitive::Take { .. }
        | Primitive::TakeAlong { .. }
        | Primitive::TopKValues(_)
        | Primitive::TopKIndices(_)
        | Primitive::Update { .. } => Units::Exact,
    }
}

/// Whether [`of`] wants the op's result on the magnitudes of its operands.
pub fn counts_terms(primitive: &Primitive) -> bool {
    matches!(units(primitive), Units::Sum(..))
}

/// What `a` and `b` may differ by together. `operand` is the dtype that terms have.
pub fn of(primitive: &Primitive, pair: [Backend; 2], operand: DType, result: DType, terms: Option<&Tensor>) -> Bound {
    if !result.is_float() {
        return exact();
    }
    let both = |interpreter: f64, backend: f64| -> f64 {
        pair.iter().map(|one| if *one == Backend::Reference { interpreter } else { backend }).sum()
    };
    // What is below the least normal number may count as 0.
    let least = normal(result);
    match units(primitive) {
        Units::Exact => Bound { max_abs: Some(least), ..Bound::default() },
        Units::Ulp(x, y) => Bound { max_abs: Some(least), rtol: Some(both(x, y) * epsilon(result)), rms: None },
        Units::One(x, y) => Bound { max_abs: Some(both(x, y) * epsilon(result)), ..Bound::default() },
        Units::Sum(x, y) => {
            let largest = terms.map(|terms| terms.to_f64()).into_iter().flatten().filter(|x| x.is_finite());
            let narrowest = if operand.is_float() { epsilon(operand).max(epsilon(result)) } else { epsilon(result) };
            let max_abs = both(x, y) * narrowest * largest.fold(0.0, f64::max);
            Bound { max_abs: Some(max_abs.max(least)), ..Bound::default() }
        }
    }
}

/// Of integers and bools.
pub fn exact() -> Bound {
    Bound { max_abs: Some(0.0), ..Bound::default() }
}

/// The distance of 1 from the next number.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F16 => half::f16::EPSILON.to_f64(),
        DType::BF16 => half::bf16::EPSILON.to_f64(),
        DType::F32 | DType::I32 | DType::U32 | DType::U8 | DType::Bool => f64::from(f32::EPSILON),
    }
}

fn normal(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::MIN_POSITIVE,
        DType::F16 => half::f16::MIN_POSITIVE.to_f64(),
        DType::BF16 => half::bf16::MIN_POSITIVE.to_f64(),
        DType::F32 | DType::I32 | DType::U32 | DType::U8 | DType::Bool => f64::from(f32::MIN_POSITIVE),
    }
}
