//! Values that no checkpoint can change: literals, and what is made of them alone.

use super::{
    LoadError, LoadErrorKind, Val,
    evaluate::{combine, item_at, unary},
    functions,
};
use crate::ir::{Load, LoadKind};

/// Parts of an expression that are looked at. Each part is asked for its value where it is written, so this bounds the work
/// on a page of literals.
const MAX_PARTS: u32 = 64;

/// Why there is no value.
enum Unknown {
    /// It depends on a name, or is larger than anybody writes by hand.
    Open,
    Fails(LoadError),
}

impl From<LoadError> for Unknown {
    fn from(error: LoadError) -> Self {
        Unknown::Fails(error)
    }
}

/// The value of `load` where that is known without a checkpoint; the error where it is known that there is none.
pub(crate) fn constant(load: &Load) -> Result<Option<Val>, LoadError> {
    match value(load, &mut MAX_PARTS.clone()) {
        Ok(value) => Ok(Some(value)),
        Err(Unknown::Open) => Ok(None),
        Err(Unknown::Fails(error)) => Err(error),
    }
}

fn value(load: &Load, left: &mut u32) -> Result<Val, Unknown> {
    *left = left.checked_sub(1).ok_or(Unknown::Open)?;
    let span = load.span;
    Ok(match &load.kind {
        LoadKind::Int(n) => Val::Int(*n),
        LoadKind::Float(x) => Val::Float(*x),
        LoadKind::Bool(b) => Val::Bool(*b),
        LoadKind::Text(text) => Val::Text(text.clone()),
        LoadKind::Pi => Val::Float(std::f64::consts::PI),
        LoadKind::Unary(op, operand) => unary(*op, value(operand, left)?, span)?,
        LoadKind::Binary(op, a, b) => {
            let (x, y) = (value(a, left)?, value(b, left)?);
            combine(*op, (x, a.span), (y, b.span), span)?
        }
        LoadKind::Call(function, arguments) => functions::call(*function, values(arguments, left)?, span)?,
        LoadKind::List(items) => Val::List(values(items, left)?),
        LoadKind::Index(list, at) => {
            let items = value(list, left)?.items(list.span)?;
            item_at(&items, value(at, left)?.int(at.span)?, span)?
        }
        LoadKind::Format(_)
        | LoadKind::Config(_)
        | LoadKind::Parameter(_)
        | LoadKind::Member(_)
        | LoadKind::Local(_)
        | LoadKind::Free(_)
        | LoadKind::Dim(_)
        | LoadKind::Size(_)
        | LoadKind::Matrix(..)
        | LoadKind::Op(..)
        | LoadKind::If(..)
        | LoadKind::Comprehension { .. }
        | LoadKind::Block { .. } => return Err(Unknown::Open),
    })
}

fn values(loads: &[Load], left: &mut u32) -> Result<Vec<Val>, Unknown> {
    loads.iter().map(|load| value(load, left)).collect()
}

impl LoadErrorKind {
    /// What to write instead, for who reads it in a family.
    pub(crate) fn help(&self) -> Option<&'static str> {
        match self {
            LoadErrorKind::Inexact(..) => Some("`float(a) / b` has a fraction, `int(float(a) / b)` rounds it down"),
            LoadErrorKind::InexactDim { .. }
            | LoadErrorKind::DivisionByZero
            | LoadErrorKind::Remainder(..)
            | LoadErrorKind::Overflow(_)
            | LoadErrorKind::NotFinite(_)
            | LoadErrorKind::Unusable(_)
            | LoadErrorKind::Index { .. }
            | LoadErrorKind::Rows { .. }
            | LoadErrorKind::Empty(_)
            | LoadErrorKind::TooLong(_)
            | LoadErrorKind::Negative { .. }
            | LoadErrorKind::Absent(_)
            | LoadErrorKind::Kind { .. } => None,
        }
    }
}
