//! Dims as numbers: a polynomial with rational coefficients, whose division must come out even.

use super::{
    LoadError, LoadErrorKind,
    evaluate::{Environment, Evaluation},
};
use crate::{dim::Dim, source::Span};

/// The integer a dim is. `span` is told when something is wrong with it.
pub fn dim(dim: &Dim, span: Span, names: &dyn Environment) -> Result<i64, LoadError> {
    with(dim, span, &mut Evaluation::new(names))
}

/// A dim as the length of an axis.
pub fn extent(d: &Dim, span: Span, names: &dyn Environment) -> Result<usize, LoadError> {
    let size = dim(d, span, names)?;
    let negative = || LoadError::new(span, LoadErrorKind::Negative { dim: d.to_string(), size });
    usize::try_from(size).map_err(|_| negative())
}

pub(super) fn with(dim: &Dim, span: Span, evaluation: &mut Evaluation<'_>) -> Result<i64, LoadError> {
    if let Some(n) = dim.as_int() {
        return Ok(n);
    }
    let overflow = || LoadError::new(span, LoadErrorKind::Overflow(dim.to_string()));
    // The sum so far, as a fraction that is not reduced; 128 bits hold it for any dims that fit into memory.
    let (mut above, mut below) = (0i128, 1i128);
    for (monomial, ratio) in dim.terms() {
        let (mut numerator, mut denominator) = (i128::from(ratio.numerator()), i128::from(ratio.denominator()));
        for (atom, power) in monomial.powers() {
            let value = i128::from(evaluation.value(&atom.load)?.int(atom.load.span)?);
            let side = if power > 0 { &mut numerator } else { &mut denominator };
            for _ in 0..power.unsigned_abs() {
                *side = side.checked_mul(value).ok_or_else(overflow)?;
            }
        }
        let left = above.checked_mul(denominator).ok_or_else(overflow)?;
        let right = numerator.checked_mul(below).ok_or_else(overflow)?;
        above = left.checked_add(right).ok_or_else(overflow)?;
        below = below.checked_mul(denominator).ok_or_else(overflow)?;
    }
    match (above.checked_rem(below), above.checked_div(below)) {
        (Some(0), Some(whole)) => i64::try_from(whole).map_err(|_| overflow()),
        (None, _) => Err(LoadError::new(span, LoadErrorKind::DivisionByZero)),
        _ => {
            let kind = LoadErrorKind::InexactDim { dim: dim.to_string(), numerator: above, denominator: below };
            Err(LoadError::new(span, kind))
        }
    }
}
