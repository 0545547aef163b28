//! The primitives as statements name them.

use super::Load;

/// The closed table of primitives. Operands are the statement's arguments; the result type is the out value's, which is
/// where `Reshape`, `Broadcast`, `Iota` and constants read their shape and dtype. Axes count from the back (-1 is the last).
#[derive(Debug, Clone)]
pub enum Prim {
    Unary(Unary),
    /// Operands broadcast from the right; same dtype.
    Binary(Binary),
    /// To bool.
    Compare(Compare),
    /// `c, x, y`, all broadcast.
    Select,
    /// To the out value's dtype; no op where it is the same.
    Convert,
    /// A scalar, rounded once from f64 (or exact from i64) to the out dtype.
    Constant(Load),
    /// A 1-D constant from a load list.
    ConstantList(Load),
    /// i32, 0 to n - 1, n the out value's only dim.
    Iota,
    Reshape,
    /// `permutation[i]` is the axis that becomes axis i, of as many trailing axes as there are entries, counted from the first
    /// of them; leading ones stay.
    Transpose(Vec<usize>),
    Broadcast,
    Concat {
        axis: i32,
    },
    /// Of the items of a list value, its only operand.
    ConcatList {
        axis: i32,
    },
    /// One slot per trailing axis (all axes when the operand has no `..`); `..` in front is left whole.
    Slice(Vec<SliceSlot>),
    /// The reduced axes stay with size 1.
    Reduce {
        op: Reduce,
        axes: Vec<i32>,
    },
    /// Last axis against last axis; `w` 2-D or with equal leading axes.
    Dot,
    /// Last against last but one; equal leading axes.
    Matmul,
    /// `x, ids`: the ids' shape replaces the axis.
    Take {
        axis: i32,
    },
    /// `x, ids`: one index per element; other axes equal, or 1 in `ids`.
    TakeAlong {
        axis: i32,
    },
    /// The `k` largest along the last axis, descending, ties to the lower index: the values, and (a second primitive on the
    /// same operand) their i32 indices.
    TopKValues(Load),
    TopKIndices(Load),
    /// `state, x, positions`: token `s` of row `b` is written at `positions[b, s]` along `axis`. Positions of a row are
    /// consecutive. Axis from the back.
    Update {
        axis: i32,
    },
    /// A matrix as a dense tensor; only where it is known not to be packed.
    MatrixDense,
    /// u32, `[.., k * bits / 32]`; only where the matrix is known to be packed, as the next three.
    MatrixCodes,
    /// The same words as little-endian bytes: u8, `[.., k * bits / 8]`.
    MatrixBytes,
    MatrixScales,
    MatrixBiases,
    /// `w, ids` -> matrix: the rows (first axis) of a matrix.
    MatrixRows,
    /// One tensor of a list value; computes nothing. An index outside the list is a fault of the call.
    Item(Load),
}

#[derive(Debug, Clone)]
pub enum SliceSlot {
    /// `_`
    Whole,
    Range(Load, Load),
    /// An integer: the axis is dropped.
    At(Load),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unary {
    Negate,
    Abs,
    Exp,
    Log,
    Sqrt,
    Rsqrt,
    Tanh,
    Sin,
    Cos,
    Sigmoid,
    Erf,
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Min,
    Max,
    And,
    Or,
    ShiftLeft,
    ShiftRight,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compare {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduce {
    Sum,
    Maximum,
    Any,
}

impl Unary {
    /// The language's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Unary::Negate => "negate",
            Unary::Abs => "abs",
            Unary::Exp => "exp",
            Unary::Log => "log",
            Unary::Sqrt => "sqrt",
            Unary::Rsqrt => "rsqrt",
            Unary::Tanh => "tanh",
            Unary::Sin => "sin",
            Unary::Cos => "cos",
            Unary::Sigmoid => "sigmoid",
            Unary::Erf => "erf",
            Unary::Not => "not",
        }
    }
}

impl Reduce {
    /// The language's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Reduce::Sum => "sum",
            Reduce::Maximum => "maximum",
            Reduce::Any => "any",
        }
    }
}
