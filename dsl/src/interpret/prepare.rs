//! A primitive of the IR with its attributes evaluated, for operands of known shape.

use super::{
    domain::{Cut, Number, Primitive, Typed},
    frame::Frame,
};
use crate::{
    ir::{Load, Prim, SliceSlot},
    load::{self, LoadError, LoadErrorKind, Val},
};

/// Why a primitive cannot be set up: its load expressions, or its operands.
pub(super) enum Unprepared {
    Load(LoadError),
    Operands(String),
}

impl From<LoadError> for Unprepared {
    fn from(error: LoadError) -> Self {
        Unprepared::Load(error)
    }
}

/// Primitives of matrices and the items of lists are `None`: they choose among values and compute nothing. The operands of
/// a concatenated list are its items.
pub(super) fn prepare<T: Typed>(
    prim: &Prim,
    operands: &[&[usize]],
    frame: &Frame<'_, T>,
) -> Result<Option<Primitive>, Unprepared> {
    let first = || operands.first().copied().ok_or_else(|| Unprepared::Operands(format!("{prim:?} has no operand")));
    let axis = |axis: i32| front(axis, first()?.len());
    Ok(Some(match prim {
        Prim::Unary(op) => Primitive::Unary(*op),
        Prim::Binary(op) => Primitive::Binary(*op),
        Prim::Compare(op) => Primitive::Compare(*op),
        Prim::Select => Primitive::Select,
        Prim::Convert => Primitive::Convert,
        Prim::Constant(load) => Primitive::Constant(number(load::evaluate(load, frame)?, load)?),
        Prim::ConstantList(load) => match load::evaluate(load, frame)? {
            Val::List(items) => {
                Primitive::ConstantList(items.into_iter().map(|v| number(v, load)).collect::<Result<_, _>>()?)
            }
            other => return Err(kind("a list", other, load).into()),
        },
        Prim::Iota => Primitive::Iota,
        Prim::Reshape => Primitive::Reshape,
        Prim::Transpose(permutation) => {
            let rank = first()?.len();
            let leading = rank.checked_sub(permutation.len());
            let leading = leading.ok_or_else(|| Unprepared::Operands(format!("{permutation:?} of {rank} axes")))?;
            Primitive::Transpose((0..leading).chain(permutation.iter().map(|axis| leading + axis)).collect())
        }
        Prim::Broadcast => Primitive::Broadcast,
        Prim::Concat { axis: a } => Primitive::Concat { axis: axis(*a)? },
        Prim::ConcatList { axis: a } => Primitive::Concat { axis: axis(*a)? },
        Prim::Slice(slots) => Primitive::Slice(cuts(slots, first()?, frame)?),
        Prim::Reduce { op, axes } => {
            let axes = axes.iter().map(|a| axis(*a)).collect::<Result<_, _>>()?;
            Primitive::Reduce { op: *op, axes }
        }
        Prim::Dot => Primitive::Dot,
        Prim::Matmul => Primitive::Matmul,
        Prim::Take { axis: a } => Primitive::Take { axis: axis(*a)? },
        Prim::TakeAlong { axis: a } => Primitive::TakeAlong { axis: axis(*a)? },
        Prim::TopKValues(k) => Primitive::TopKValues(size(k, frame)?),
        Prim::TopKIndices(k) => Primitive::TopKIndices(size(k, frame)?),
        Prim::Update { axis: a } => Primitive::Update { axis: axis(*a)? },
        Prim::MatrixDense
        | Prim::MatrixCodes
        | Prim::MatrixBytes
        | Prim::MatrixScales
        | Prim::MatrixBiases
        | Prim::MatrixRows
        | Prim::Item(_) => {
            return Ok(None);
        }
    }))
}

fn front(axis: i32, rank: usize) -> Result<usize, Unprepared> {
    let counted = if axis < 0 { i64::from(axis) + rank as i64 } else { i64::from(axis) };
    let found = usize::try_from(counted).ok().filter(|a| *a < rank);
    found.ok_or_else(|| Unprepared::Operands(format!("axis {axis} of a tensor with {rank} axes")))
}

fn kind(expected: &'static str, found: Val, load: &Load) -> LoadError {
    LoadError::new(load.span, LoadErrorKind::Kind { expected, found: found.to_string() })
}

fn number(value: Val, load: &Load) -> Result<Number, LoadError> {
    match value {
        Val::Int(n) => Ok(Number::Int(n)),
        Val::Float(x) => Ok(Number::Float(x)),
        Val::Bool(b) => Ok(Number::Bool(b)),
        Val::Text(_) | Val::List(_) => Err(kind("a number", value, load)),
    }
}

fn size<T: Typed>(load: &Load, frame: &Frame<'_, T>) -> Result<usize, LoadError> {
    match load::evaluate(load, frame)? {
        Val::Int(n) => usize::try_from(n)
            .map_err(|_| LoadError::new(load.span, LoadErrorKind::Negative { dim: "index".into(), size: n })),
        other => Err(kind("an integer", other, load)),
    }
}

fn cuts<T: Typed>(slots: &[SliceSlot], shape: &[usize], frame: &Frame<'_, T>) -> Result<Vec<Cut>, Unprepared> {
    let Some(whole) = shape.len().checked_sub(slots.len()) else {
        return Err(Unprepared::Operands(format!("{} slots for {} axes", slots.len(), shape.len())));
    };
    let mut cuts: Vec<Cut> = shape[..whole].iter().map(|n| Cut { start: 0, end: *n, keep: true }).collect();
    for (slot, length) in slots.iter().zip(&shape[whole..]) {
        let cut = match slot {
            SliceSlot::Whole => Cut { start: 0, end: *length, keep: true },
            SliceSlot::Range(low, high) => Cut { start: size(low, frame)?, end: size(high, frame)?, keep: true },
            SliceSlot::At(at) => {
                let start = size(at, frame)?;
                Cut { start, end: start + 1, keep: false }
            }
        };
        if cut.start > cut.end || cut.end > *length {
            let message = format!("{}..{} does not lie within an axis of {length}", cut.start, cut.end);
            return Err(Unprepared::Operands(message));
        }
        cuts.push(cut);
    }
    Ok(cuts)
}
