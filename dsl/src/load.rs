//! Load-stage expressions, evaluated: config values, lists, block parameters, dims. Integers are i64 and checked, floats
//! are f64. Knows the IR and nothing of tensors; sizes of a call come in through [`Environment`].

mod constant;
mod evaluate;
mod functions;
mod size;
mod value;

pub(crate) use constant::constant;
pub use evaluate::{Environment, evaluate, truth};
pub use functions::{FUNCTIONS, Function};
pub use size::{dim, extent};
pub use value::Val;

use crate::source::{Sources, Span};

/// Why a load expression has no value, and where it stands.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{kind}")]
pub struct LoadError {
    pub span: Span,
    pub kind: LoadErrorKind,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LoadErrorKind {
    #[error("{0} / {1} leaves a remainder of {r}; division of integers must be exact", r = .0 % .1)]
    Inexact(i64, i64),
    #[error("`{dim}` comes to {numerator} / {denominator}, which is not a whole number")]
    InexactDim { dim: String, numerator: i128, denominator: i128 },
    #[error("division by zero")]
    DivisionByZero,
    #[error("{0} % {1}: a remainder needs a left side of at least 0 and a right side of at least 1")]
    Remainder(i64, i64),
    #[error("the result of `{0}` does not fit into 64 bits")]
    Overflow(String),
    #[error("{0} is not finite, so it is no integer")]
    NotFinite(f64),
    #[error("it comes to {0}, and a model computes with finite numbers")]
    Unusable(f64),
    #[error("index {index} lies outside a list of {length}")]
    Index { index: i64, length: usize },
    #[error("rows {low}..{high} do not lie within the {length} rows that the field around them takes")]
    Rows { low: u64, high: u64, length: u64 },
    #[error("`{0}` of an empty list has no value")]
    Empty(&'static str),
    #[error("this takes more than {0} steps to compute; no family needs so many")]
    TooLong(u32),
    #[error("`{dim}` comes to {size}; a size cannot be negative")]
    Negative { dim: String, size: i64 },
    /// A name without a value here: its condition does not hold, or what it depends on is at fault.
    #[error("`{0}` has no value here")]
    Absent(String),
    /// The checker proved otherwise: a fault of this crate, told instead of a panic.
    #[error("expected {expected}, found {found}; this is a defect of the checker")]
    Kind { expected: &'static str, found: String },
}

impl LoadError {
    pub fn new(span: Span, kind: LoadErrorKind) -> Self {
        LoadError { span, kind }
    }

    /// With the file, line and column of the expression in front.
    pub fn located(&self, sources: &Sources) -> String {
        let (line, column) = sources.line_column(self.span);
        format!("{}:{line}:{column}: {}", sources.get(self.span.file).name, self.kind)
    }
}

#[cfg(test)]
mod tests;
