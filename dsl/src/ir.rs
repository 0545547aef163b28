//! The typed graph IR: what a family means, after every name is resolved and every shape and dtype proved.
//!
//! Structured, not flat: one [`Function`] per `op` and per block `fn`, with the author's loops and branches on load
//! values kept. Within a function values are in single-assignment form. Consumers (interpreter, tracer, the two
//! emitters) walk it in order; nobody below the checker re-derives a type.

mod config;
mod function;
mod load;
mod primitive;
mod probe;
mod processor;

use std::sync::Arc;

use crate::{
    dim::Dim,
    pattern,
    source::{Sources, Span},
};
pub use {config::*, function::*, load::*, primitive::*, processor::*};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
    )* };
}

ids! {
    /// Index into [`Program::ops`].
    OpId,
    /// Index into [`Program::blocks`].
    BlockId,
    /// Index into [`Block::fields`].
    FieldId,
    /// Index into [`Block::functions`].
    FunctionId,
    /// Index into [`Function::values`]: a tensor, a matrix, or a list of tensors.
    ValueId,
    /// A load-stage local of a function or of one load expression (`let scale`, loop variables). Index into
    /// [`Program::locals`].
    LocalId,
}

/// One family with the part of the prelude that it reaches.
#[derive(Debug, Clone)]
pub struct Program {
    pub name: String,
    /// Values of `model_type` in config.json.
    pub model_types: Vec<String>,
    /// Values of `architectures` there, which tell where `model_type` does not.
    pub architectures: Vec<String>,
    pub doc: String,
    /// blake3 of the language version, the prelude and the family's text, in hex.
    pub digest: String,
    pub sources: Sources,
    pub config: Vec<Setting>,
    pub ops: Vec<Op>,
    pub blocks: Vec<Block>,
    /// What the author calls each load-stage local.
    pub locals: Vec<String>,
    /// The root block. Its [`Block::functions`] with `graph = true` are what the runtime calls.
    pub model: BlockId,
    /// `model as "" | "language_model"`: the places below which every stored name lies; `[""]` when not written.
    pub roots: Vec<String>,
    /// Where a family sees pictures.
    pub processor: Option<Processor>,
    pub numerics: Numerics,
    pub contract: Vec<ContractLine>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numerics {
    pub tf32: bool,
    pub contraction: bool,
}

/// Bounds for the probes that match `pattern` (`*` is any run of characters). The first match holds.
#[derive(Debug, Clone, PartialEq)]
pub struct ContractLine {
    pub pattern: String,
    pub max_abs: Option<f64>,
    pub rtol: Option<f64>,
    pub rms: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// In a block: the family's activation dtype. In an op: the float dtype of its arguments ([`Function::float`]).
    F,
    F64,
    F32,
    F16,
    BF16,
    I32,
    U32,
    U8,
    Bool,
}

impl DType {
    /// As families write it.
    pub fn name(self) -> &'static str {
        match self {
            DType::F => "F",
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct TensorType {
    pub dtype: DType,
    pub shape: Shape,
}

/// `[.., dims]` when `pack`, else `[dims]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    pub pack: bool,
    pub dims: Vec<Dim>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    Tensor(TensorType),
    /// `Q[.., n, k]`: the shape of the dense matrix.
    Matrix(Shape),
    /// `[F[n]; length]`: tensors of one type.
    List {
        item: TensorType,
        length: Dim,
    },
}

impl Type {
    /// Of a tensor, of the dense matrix, or of each item of a list.
    pub fn shape(&self) -> &Shape {
        match self {
            Type::Tensor(tensor) => &tensor.shape,
            Type::Matrix(shape) => shape,
            Type::List { item, .. } => &item.shape,
        }
    }

    /// `None` for a matrix, whose dtype the checkpoint tells.
    pub fn dtype(&self) -> Option<DType> {
        match self {
            Type::Tensor(tensor) => Some(tensor.dtype),
            Type::Matrix(_) => None,
            Type::List { item, .. } => Some(item.dtype),
        }
    }

    /// Every dim that the type mentions, the length of a list included.
    pub fn dims(&self) -> impl Iterator<Item = &Dim> {
        let length = match self {
            Type::List { length, .. } => Some(length),
            Type::Tensor(_) | Type::Matrix(_) => None,
        };
        self.shape().dims.iter().chain(length)
    }
}

#[derive(Debug, Clone)]
pub struct Block {
    pub name: String,
    pub doc: String,
    pub parameters: Vec<LoadParameter>,
    /// In file order.
    pub fields: Vec<Field>,
    /// `ignore` patterns, relative to the block's stored path.
    pub ignores: Vec<String>,
    pub functions: Vec<Function>,
    pub span: Span,
}

#[derive(Debug, Clone)]
pub struct LoadParameter {
    pub name: String,
    pub ty: LoadType,
}

#[derive(Debug, Clone)]
pub struct Field {
    pub name: String,
    pub kind: FieldKind,
    /// The field exists only where this holds.
    pub condition: Option<Load>,
    pub stored: Stored,
    pub span: Span,
}

#[derive(Debug, Clone)]
pub enum FieldKind {
    /// A dense weight, kept in its dtype (`F` or an explicit one).
    Tensor(TensorType),
    /// A matrix that may be stored packed.
    Matrix(Shape),
    /// One argument per parameter of the block (defaults filled in by the checker).
    Child { block: BlockId, arguments: Vec<Load> },
    /// `[Child(i) for i in low..high]`; `arguments` may use `variable`.
    Children { block: BlockId, arguments: Vec<Load>, variable: LocalId, low: Load, high: Load },
    /// `state k: F[B, heads, T, width]`; first dim is `B`; `T`, if present, names the axis of positions.
    State(TensorType),
    /// A load-stage `let`.
    Let(Load),
    /// A `let` whose value is a tensor: computed once after the weights are bound, from load values, dense weights and
    /// earlier such `let`s of the same block. `body` has no parameters and one result, of type `ty`.
    Derived { ty: TensorType, body: Arc<Function> },
}

/// Where a field's bytes lie: alternatives, each a concatenation of parts along the first axis.
/// Not written: one place, one part, the field's name.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    pub places: Vec<Vec<StoredPart>>,
}

#[derive(Debug, Clone)]
pub struct StoredPart {
    /// Dotted; `""` adds nothing; `{}` is the hole of a stacked field.
    pub path: String,
    pub rows: Option<(Load, Load)>,
}

impl PartialEq for StoredPart {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.rows.is_none() && other.rows.is_none()
    }
}

impl Program {
    pub fn op(&self, id: OpId) -> &Op {
        &self.ops[id.0 as usize]
    }

    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    pub fn local(&self, id: LocalId) -> &str {
        self.locals.get(id.0 as usize).map_or("i", String::as_str)
    }

    /// The bound that `contract` sets for a probe.
    pub fn contract_for(&self, probe: &str) -> Option<&ContractLine> {
        self.contract.iter().find(|line| pattern::matches(&line.pattern, probe))
    }

    pub fn graph(&self, name: &str) -> Option<&Function> {
        self.block(self.model).functions.iter().find(|f| f.graph && f.name == name)
    }
}

impl Block {
    pub fn field(&self, id: FieldId) -> &Field {
        &self.fields[id.0 as usize]
    }

    pub fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id.0 as usize]
    }
}
