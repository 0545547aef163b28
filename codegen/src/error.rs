//! Why a program that checks could not be turned into Rust. Most are defects of the checker, told instead of a panic.

use mgraph_dsl::dim::DimError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("the dim `{dim}` has no Rust form: {reason}")]
    Dim { dim: String, reason: &'static str },
    #[error("the generated code does not parse: {0}; this is a defect of the emitter")]
    Syntax(String),
    #[error("{0}; this is a defect of the checker")]
    Ir(String),
}

impl Error {
    pub(crate) fn dim(dim: &mgraph_dsl::dim::Dim, error: DimError) -> Error {
        let reason = match error {
            DimError::DivisionBySum => "it divides by a sum",
            DimError::DivisionByZero => "it divides by zero",
            DimError::Overflow => "a coefficient needs more than 64 bits",
        };
        Error::Dim { dim: dim.to_string(), reason }
    }
}
