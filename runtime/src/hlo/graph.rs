//! A finished graph: the ops in order, what each argument of the call is, and what each result is.

use mgraph_dsl::ir::{Compare, Reduce};

use super::types::{Type, V};

/// One op and its type. The pair of an op and its operands determines the value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    pub op: Op,
    pub operands: Vec<V>,
    pub ty: Type,
}

/// What a node computes, close to one StableHLO op each. Axes count from the front.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// Index into [`Graph::arguments`].
    Argument(usize),
    /// Bit patterns of the elements, one per element; rank 0 or 1.
    Constant(Vec<u64>),
    Elementwise(Elementwise),
    Compare(Compare),
    Iota,
    Reshape,
    Transpose(Vec<usize>),
    /// For each axis of the operand, the axis of the result it becomes.
    Broadcast(Vec<usize>),
    Concatenate(usize),
    /// `start..end` per axis.
    Slice(Vec<(i64, i64)>),
    /// The axes are dropped; the builder puts them back with a reshape.
    Reduce(Reduce, Vec<usize>),
    /// `batch` leading axes in common, one axis of each contracted. Accumulates in the result's dtype.
    Dot {
        batch: usize,
        contract: (usize, usize),
    },
    Take(usize),
    /// The ids have a last axis of size 1, and lack the axes that are taken whole.
    TakeAlong {
        axis: usize,
        whole: Vec<usize>,
    },
    TopKValues(i64),
    TopKIndices(i64),
    /// Operands: the whole, the part, one i32 start per axis.
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Elementwise {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Minimum,
    Maximum,
    And,
    Or,
    ShiftLeft,
    ShiftRight,
    Negate,
    Abs,
    Exponential,
    Log,
    Sqrt,
    Rsqrt,
    Tanh,
    Sine,
    Cosine,
    Logistic,
    Erf,
    Not,
    Select,
    Convert,
}

impl Elementwise {
    /// Name in MLIR, dialect included.
    pub fn mlir(self) -> &'static str {
        match self {
            Elementwise::Add => "stablehlo.add",
            Elementwise::Subtract => "stablehlo.subtract",
            Elementwise::Multiply => "stablehlo.multiply",
            Elementwise::Divide => "stablehlo.divide",
            Elementwise::Remainder => "stablehlo.remainder",
            Elementwise::Minimum => "stablehlo.minimum",
            Elementwise::Maximum => "stablehlo.maximum",
            Elementwise::And => "stablehlo.and",
            Elementwise::Or => "stablehlo.or",
            Elementwise::ShiftLeft => "stablehlo.shift_left",
            Elementwise::ShiftRight => "stablehlo.shift_right_logical",
            Elementwise::Negate => "stablehlo.negate",
            Elementwise::Abs => "stablehlo.abs",
            Elementwise::Exponential => "stablehlo.exponential",
            Elementwise::Log => "stablehlo.log",
            Elementwise::Sqrt => "stablehlo.sqrt",
            Elementwise::Rsqrt => "stablehlo.rsqrt",
            Elementwise::Tanh => "stablehlo.tanh",
            Elementwise::Sine => "stablehlo.sine",
            Elementwise::Cosine => "stablehlo.cosine",
            Elementwise::Logistic => "stablehlo.logistic",
            Elementwise::Erf => "chlo.erf",
            Elementwise::Not => "stablehlo.not",
            Elementwise::Select => "stablehlo.select",
            Elementwise::Convert => "stablehlo.convert",
        }
    }
}

/// What the caller must pass.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ArgumentKind {
    /// Parameter of the graph, by position.
    Input(usize),
    /// A dense weight, or a matrix that is stored dense, by field path.
    Weight(String),
    /// A part of a packed matrix, by field path.
    Packed(String, Part),
    /// A state, by field path. Where a result carries the same path, the buffer is consumed by the call.
    State(String),
    /// The reference's value of a probe, by name; it stands for the value that the probe reports.
    Probe(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// As stored: little-endian words.
    Codes,
    /// The same memory, byte by byte.
    Bytes,
    Scales,
    Biases,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    pub kind: ArgumentKind,
    pub ty: Type,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultKind {
    /// Result of the graph, by position.
    Output(usize),
    /// New value of a state, by field path.
    State(String),
    /// A probe, by name.
    Probe(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphResult {
    pub kind: ResultKind,
    pub value: V,
}

/// Ops in an order in which operands come first; nothing in it is unread. Results: outputs, states, probes in order of
/// execution.
#[derive(Debug, Clone)]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub arguments: Vec<Argument>,
    pub results: Vec<GraphResult>,
    /// Numerics `fused`: the compiler may merge roundings. Else every op rounds on its own (`hlo/pinned.rs`).
    pub fused: bool,
}

impl Graph {
    pub fn ty(&self, value: V) -> &Type {
        &self.nodes[value.index()].ty
    }

    /// The result that takes over the buffer of argument `argument`.
    pub fn alias(&self, argument: usize) -> Option<usize> {
        let ArgumentKind::State(path) = &self.arguments[argument].kind else { return None };
        self.results.iter().position(|r| matches!(&r.kind, ResultKind::State(p) if p == path))
    }
}
