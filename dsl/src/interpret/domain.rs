//! What a walk over the IR needs of the values it moves: [`Domain`], and primitives with their attributes as numbers.

use std::fmt;

use super::walk::{Operand, Walked};
use crate::{
    bind::{StateId, WeightId},
    ir::{Binary, Compare, DType, OpId, Reduce, Unary},
    source::Span,
};

/// A primitive whose load expressions are evaluated and whose axes count from the front.
#[derive(Debug, Clone, PartialEq)]
pub enum Primitive {
    Unary(Unary),
    Binary(Binary),
    Compare(Compare),
    Select,
    Convert,
    Constant(Number),
    ConstantList(Vec<Number>),
    Iota,
    Reshape,
    /// Entry `i` is the operand's axis that becomes axis `i`.
    Transpose(Vec<usize>),
    Broadcast,
    Concat {
        axis: usize,
    },
    /// One per axis of the operand.
    Slice(Vec<Cut>),
    Reduce {
        op: Reduce,
        axes: Vec<usize>,
    },
    Dot,
    Matmul,
    Take {
        axis: usize,
    },
    TakeAlong {
        axis: usize,
    },
    TopKValues(usize),
    TopKIndices(usize),
    Update {
        axis: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Int(i64),
    Float(f64),
    Bool(bool),
}

/// `start..end` of an axis; without `keep` (then of length 1) the axis is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    pub start: usize,
    pub end: usize,
    pub keep: bool,
}

impl Primitive {
    /// The language's word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Primitive::Unary(op) => op.name(),
            Primitive::Binary(op) => match op {
                Binary::Add => "add",
                Binary::Subtract => "subtract",
                Binary::Multiply => "multiply",
                Binary::Divide => "divide",
                Binary::Remainder => "remainder",
                Binary::Min => "min",
                Binary::Max => "max",
                Binary::And => "and",
                Binary::Or => "or",
                Binary::ShiftLeft => "shift_left",
                Binary::ShiftRight => "shift_right",
            },
            Primitive::Compare(op) => match op {
                Compare::Equal => "equal",
                Compare::NotEqual => "not_equal",
                Compare::Less => "less",
                Compare::LessEqual => "less_equal",
                Compare::Greater => "greater",
                Compare::GreaterEqual => "greater_equal",
            },
            Primitive::Select => "select",
            Primitive::Convert => "convert",
            Primitive::Constant(_) => "constant",
            Primitive::ConstantList(_) => "constant_list",
            Primitive::Iota => "iota",
            Primitive::Reshape => "reshape",
            Primitive::Transpose(_) => "transpose",
            Primitive::Broadcast => "broadcast",
            Primitive::Concat { .. } => "concat",
            Primitive::Slice(_) => "slice",
            Primitive::Reduce { op, .. } => op.name(),
            Primitive::Dot => "dot",
            Primitive::Matmul => "matmul",
            Primitive::Take { .. } => "take",
            Primitive::TakeAlong { .. } => "take_along",
            Primitive::TopKValues(_) => "top_k_values",
            Primitive::TopKIndices(_) => "top_k_indices",
            Primitive::Update { .. } => "update",
        }
    }
}

/// The name and, in brackets, the attributes that shapes do not tell.
impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Primitive::Constant(Number::Int(n)) => write!(f, "[{n}]"),
            Primitive::Constant(Number::Float(x)) => write!(f, "[{x:?}]"),
            Primitive::Constant(Number::Bool(b)) => write!(f, "[{b}]"),
            Primitive::ConstantList(items) => write!(f, "[{} numbers]", items.len()),
            Primitive::Transpose(permutation) => write!(f, "{permutation:?}"),
            Primitive::Concat { axis }
            | Primitive::Take { axis }
            | Primitive::TakeAlong { axis }
            | Primitive::Update { axis } => write!(f, "[{axis}]"),
            Primitive::Reduce { axes, .. } => write!(f, "{axes:?}"),
            Primitive::TopKValues(k) | Primitive::TopKIndices(k) => write!(f, "[{k}]"),
            Primitive::Slice(cuts) => {
                f.write_str("[")?;
                for (i, cut) in cuts.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    match cut.keep {
                        true => write!(f, "{comma}{}..{}", cut.start, cut.end)?,
                        false => write!(f, "{comma}{}", cut.start)?,
                    }
                }
                f.write_str("]")
            }
            Primitive::Unary(_)
            | Primitive::Binary(_)
            | Primitive::Compare(_)
            | Primitive::Select
            | Primitive::Convert
            | Primitive::Iota
            | Primitive::Reshape
            | Primitive::Broadcast
            | Primitive::Dot
            | Primitive::Matmul => Ok(()),
        }
    }
}

/// One use of a primitive: what the declaration says of its result, and where it stands.
#[derive(Debug)]
pub struct Application<'a> {
    pub primitive: &'a Primitive,
    /// Never `F`.
    pub dtype: DType,
    pub shape: &'a [usize],
    pub span: Span,
    /// The op or block function that the statement belongs to: `rms_norm`, `Attention.fn`.
    pub origin: &'a str,
}

/// What every domain's tensors tell. The dtype is never `F`.
pub trait Typed {
    fn dtype(&self) -> DType;
    fn shape(&self) -> &[usize];
}

/// A weight matrix, or rows of one.
#[derive(Debug, Clone)]
pub struct Matrix<T> {
    /// Of the dense matrix.
    pub shape: Vec<usize>,
    pub store: Store<T>,
    /// The weight this is, when it is a whole one: what is computed from it alone need be computed only once.
    pub weight: Option<WeightId>,
}

#[derive(Debug, Clone)]
pub enum Store<T> {
    Dense(T),
    /// `bytes` are those of `codes`, for who reads a code within one.
    Packed {
        codes: T,
        bytes: T,
        scales: T,
        biases: T,
        bits: u32,
        group: u32,
    },
}

/// Values that the IR can be walked over. Errors are sentences; the walk adds the place.
pub trait Domain {
    type Tensor: Clone + Typed;

    /// What `F` is in this run.
    fn family_dtype(&self) -> DType;

    fn apply(&mut self, application: &Application<'_>, operands: &[&Self::Tensor]) -> Result<Self::Tensor, String>;

    fn weight(&mut self, over: Walked<'_>, id: WeightId) -> Result<Store<Self::Tensor>, String>;

    fn read(&mut self, id: StateId) -> Result<Self::Tensor, String>;

    fn write(&mut self, id: StateId, value: Self::Tensor) -> Result<(), String>;

    /// What stands for `value` from here on, of its dtype and shape; `None` for itself.
    fn probe(&mut self, name: String, value: &Self::Tensor) -> Result<Option<Self::Tensor>, String>;

    /// Where in the text the probe stands that comes next.
    fn probed_at(&mut self, _name: &str, _span: Span) {}

    /// That the branch whose condition stands at `span` takes its first arm, or the other.
    fn branched(&mut self, _span: Span, _holds: bool) {}

    /// The results of an op on whole weights alone, if [`Domain::keep`] was told them.
    fn recall(&self, _op: OpId, _weights: &[WeightId]) -> Option<Vec<Self::Tensor>> {
        None
    }

    fn keep(&mut self, _op: OpId, _weights: &[WeightId], _results: &[Self::Tensor]) {}

    /// Runs a kernel of [`crate::kernels`] in the place of an op whose twin it is, its arguments in the order of the
    /// parameters. `None` where the domain has no kernels: then the definition stands.
    fn kernel(
        &mut self,
        _path: &str,
        _arguments: &[Option<Operand<Self::Tensor>>],
    ) -> Option<Result<Self::Tensor, String>> {
        None
    }
}
