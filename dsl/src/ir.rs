//! The typed graph IR: what a family means, after every name is resolved and every shape and dtype proved.
//!
//! Structured, not flat: one [`Function`] per `op` and per block `fn`, with the author's loops and branches on load
//! values kept. Within a function values are in single-assignment form. Consumers (interpreter, tracer, the two
//! emitters) walk it in order; nobody below the checker re-derives a type.

use crate::{
    dim::Dim,
    source::{Sources, Span},
};

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
    /// Index into [`Function::values`]: a tensor or a matrix.
    ValueId,
    /// A load-stage local of a function or of one load expression (`let scale`, loop variables). Unique in its function,
    /// or in its config or member expression.
    LocalId,
}

/// One family with the part of the prelude that it reaches.
#[derive(Debug, Clone)]
pub struct Program {
    pub name: String,
    pub model_types: Vec<String>,
    pub doc: String,
    /// blake3 of the language version, the prelude and the family's text, in hex.
    pub digest: String,
    pub sources: Sources,
    pub config: Vec<Setting>,
    pub ops: Vec<Op>,
    pub blocks: Vec<Block>,
    /// The root block. Its [`Block::functions`] with `graph = true` are what the runtime calls.
    pub model: BlockId,
    /// `model as "" | "language_model"`: the places below which every stored name lies; `[""]` when not written.
    pub roots: Vec<String>,
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

// ---- config ---------------------------------------------------------------------------------------------------

/// In file order, which is the order of evaluation.
#[derive(Debug, Clone)]
pub enum Setting {
    Section(Section),
    Field(ConfigField),
    /// A deployment knob with its default.
    Limit {
        path: ConfigPath,
        value: Load,
    },
    Let {
        path: ConfigPath,
        value: Load,
        condition: Option<Load>,
    },
    Require(Require),
}

/// `["llama3", "factor"]`, or `["hidden"]` for a root field.
pub type ConfigPath = Vec<String>;

#[derive(Debug, Clone)]
pub struct Section {
    pub name: String,
    /// Dotted paths from the root of config.json; the first that is an object and not empty wins.
    pub keys: Vec<String>,
    pub condition: Option<Load>,
    pub settings: Vec<Setting>,
}

#[derive(Debug, Clone)]
pub struct ConfigField {
    pub path: ConfigPath,
    pub ty: FieldType,
    /// Dotted paths from the section's object.
    pub keys: Vec<String>,
    pub otherwise: Option<Load>,
    pub condition: Option<Load>,
    pub span: Span,
}

#[derive(Debug, Clone)]
pub enum FieldType {
    /// A positive integer.
    Dim,
    Int,
    Float,
    Bool,
    Text,
    OneOf(Vec<Scalar>),
    /// `index(n)`: -n..n, made non-negative.
    Index(Load),
    List(Box<FieldType>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
}

/// Checked at load. `text` is the condition as written, for the message, which prints both sides of a comparison.
#[derive(Debug, Clone)]
pub struct Require {
    pub condition: Load,
    pub text: String,
    pub span: Span,
}

// ---- load-stage expressions -------------------------------------------------------------------------------------

/// A value known when a checkpoint is opened, or (through [`LoadKind::Free`] and [`LoadKind::Size`]) the sizes of a call.
#[derive(Debug, Clone)]
pub struct Load {
    pub kind: LoadKind,
    pub ty: LoadType,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadType {
    /// i64. Dims are integers.
    Int,
    /// f64.
    Float,
    Bool,
    Text,
    List(Box<LoadType>),
}

#[derive(Debug, Clone)]
pub enum LoadKind {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Pi,
    Config(ConfigPath),
    /// A load parameter of the enclosing op, function, or block, by name.
    Parameter(String),
    /// A load-stage `let` of the enclosing block.
    Member(FieldId),
    Local(LocalId),
    /// A free dim of the enclosing function (`B`, `S`, `T`, `N`, ..): see [`Function::free`].
    Free(String),
    /// A dim used as a number, in its normal form.
    Dim(Dim),
    /// `size(x)`: number of elements.
    Size(ValueId),
    /// `w.packed`, `w.bits`, `w.group` of a matrix value.
    Matrix(ValueId, MatrixAttribute),
    Unary(LoadUnary, Box<Load>),
    Binary(LoadBinary, Box<Load>, Box<Load>),
    Call(LoadFunction, Vec<Load>),
    /// A call of an op all of whose parameters are load values.
    Op(OpId, Vec<Load>),
    /// Lazy: only the chosen arm is evaluated.
    If(Box<Load>, Box<Load>, Box<Load>),
    List(Vec<Load>),
    /// `[item for i, x in xs for j in a..b]`
    Comprehension {
        item: Box<Load>,
        each: Vec<Each>,
    },
    Index(Box<Load>, Box<Load>),
    /// A body of an all-load op or `if` arm: `let`s, then a value.
    Block {
        lets: Vec<(LocalId, Load)>,
        value: Box<Load>,
    },
}

#[derive(Debug, Clone)]
pub struct Each {
    pub index: Option<LocalId>,
    pub item: LocalId,
    pub over: Over,
}

#[derive(Debug, Clone)]
pub enum Over {
    Range(Load, Load),
    List(Load),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixAttribute {
    Packed,
    Bits,
    Group,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadUnary {
    Negate,
    Not,
    /// Inserted where an integer meets a float.
    ToFloat,
}

/// Both sides have one type (the checker inserts [`LoadUnary::ToFloat`]), but for `In`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadBinary {
    Add,
    Subtract,
    Multiply,
    /// Integers: exact, or an error at load.
    Divide,
    Remainder,
    ShiftLeft,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    /// Booleans, short-circuit.
    And,
    Or,
    In,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadFunction {
    Pow,
    Sqrt,
    Exp,
    Ln,
    Sin,
    Cos,
    Abs,
    Min,
    Max,
    Floor,
    Ceil,
    Clamp,
    /// Float to integer, rounding down.
    Int,
    Float,
    Len,
    Sum,
    Maximum,
}

// ---- types ------------------------------------------------------------------------------------------------------

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
}

// ---- blocks -----------------------------------------------------------------------------------------------------

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

// ---- functions --------------------------------------------------------------------------------------------------

#[derive(Debug, Clone)]
pub struct Op {
    pub name: String,
    pub doc: String,
    pub kind: OpKind,
    pub span: Span,
}

#[derive(Debug, Clone)]
pub enum OpKind {
    /// Every parameter and the result are load values: runs at load, in f64.
    Load {
        parameters: Vec<LoadParameter>,
        dims: Vec<LoadDim>,
        body: Load,
    },
    Tensor {
        function: Function,
        twins: Vec<Twin>,
    },
}

/// A free dim of an all-load op: the length of list parameter number `parameter`.
#[derive(Debug, Clone)]
pub struct LoadDim {
    pub name: String,
    pub parameter: usize,
}

/// Something that may stand in for the op in mode `fused`. The first whose condition holds is taken.
#[derive(Debug, Clone)]
pub struct Twin {
    pub backend: TwinBackend,
    pub target: TwinTarget,
    /// Over the op's parameters; [`LoadKind::Size`] and [`LoadKind::Matrix`] name parameter values.
    pub when: Option<Load>,
    pub within: Within,
    pub span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TwinBackend {
    Mlx,
    Hlo,
}

#[derive(Debug, Clone)]
pub enum TwinTarget {
    /// A kernel of the backend (`fast::rms_norm`), from the emitter's list. `arguments` are evaluated by `setup` first
    /// (`1.0 + weight`), which is empty when they are plain parameters.
    Kernel { path: String, setup: Vec<Statement>, arguments: Vec<(Option<String>, TwinArgument)> },
    /// Another op of the same signature.
    Op(OpId),
}

#[derive(Debug, Clone)]
pub enum TwinArgument {
    Value(ValueId),
    Load(Load),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Within {
    Ulp(f64),
    OfSum(f64),
}

#[derive(Debug, Clone)]
pub struct Function {
    /// `""` for the unnamed `fn` that makes a field callable.
    pub name: String,
    pub doc: String,
    /// `graph embed(..)`: called by the runtime.
    pub graph: bool,
    pub parameters: Vec<Parameter>,
    pub results: Vec<Type>,
    /// Every free dim that the body or a result mentions, and where its value is read. `B`, `S` and others from a parameter;
    /// `T` in a block `fn` that no parameter binds from the runtime.
    pub free: Vec<FreeDim>,
    /// Which parameter tells what `..` stands for, and how many trailing dims follow it there.
    pub pack: Option<PackSource>,
    pub float: FloatSource,
    pub values: Vec<Value>,
    pub body: Region,
    pub span: Span,
}

#[derive(Debug, Clone)]
pub struct Parameter {
    pub name: String,
    pub kind: ParameterKind,
}

#[derive(Debug, Clone)]
pub enum ParameterKind {
    /// Tensor or matrix: its value inside the function.
    Value(ValueId),
    Load(LoadType),
}

#[derive(Debug, Clone)]
pub struct FreeDim {
    pub name: String,
    pub source: DimSource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DimSource {
    /// Axis `axis` of parameter number `parameter`, counted from the back (-1 is the last). Matrices: of the dense shape.
    Axis { parameter: usize, axis: i32 },
    /// The length of a load list parameter.
    Length { parameter: usize },
    /// `T`: the positions that the state shows in this call.
    Positions,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackSource {
    pub parameter: usize,
    pub trailing: usize,
}

/// Whose dtype [`DType::F`] is inside the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatSource {
    Family,
    /// The dtype of this parameter. A matrix has the family's dtype.
    Parameter(usize),
}

#[derive(Debug, Clone)]
pub struct Value {
    pub ty: Type,
    /// The `let` or parameter that names it. Not unique.
    pub name: Option<String>,
    pub span: Span,
}

/// Statements in order of evaluation, then the values the region yields.
#[derive(Debug, Clone, Default)]
pub struct Region {
    pub statements: Vec<Statement>,
    pub results: Vec<ValueId>,
}

#[derive(Debug, Clone)]
pub enum Statement {
    Prim {
        out: ValueId,
        op: Prim,
        arguments: Vec<ValueId>,
        span: Span,
    },
    /// A load-stage `let`.
    Let {
        local: LocalId,
        name: String,
        value: Load,
    },
    /// A weight of the enclosing block.
    Weight {
        out: ValueId,
        field: FieldId,
    },
    StateRead {
        out: ValueId,
        field: FieldId,
    },
    StateWrite {
        field: FieldId,
        value: ValueId,
    },
    CallOp {
        outs: Vec<ValueId>,
        op: OpId,
        arguments: Vec<Argument>,
        span: Span,
    },
    CallBlock {
        outs: Vec<ValueId>,
        receiver: Receiver,
        block: BlockId,
        function: FunctionId,
        arguments: Vec<Argument>,
        span: Span,
    },
    /// `value @ "layer.{i}"`
    Probe {
        value: ValueId,
        name: Vec<PatternPart>,
        span: Span,
    },
    /// Branch on a load condition. Without `else`, `otherwise` yields the values as they were.
    If {
        outs: Vec<ValueId>,
        condition: Load,
        then: Region,
        otherwise: Region,
    },
    For {
        outs: Vec<ValueId>,
        over: LoopOver,
        index: Option<LocalId>,
        carried: Vec<Carried>,
        body: Region,
    },
}

/// A loop-carried variable: `initial` before the first turn, `inner` inside; the body's region yields the next ones in
/// this order, and the last are the `outs`.
#[derive(Debug, Clone)]
pub struct Carried {
    pub initial: ValueId,
    pub inner: ValueId,
}

#[derive(Debug, Clone)]
pub enum LoopOver {
    Range {
        variable: LocalId,
        low: Load,
        high: Load,
    },
    List {
        variable: LocalId,
        list: Load,
    },
    /// An array of children; inside, [`Receiver::Item`] with the same `item` is the current one.
    Children {
        item: LocalId,
        field: FieldId,
    },
}

#[derive(Debug, Clone)]
pub enum Argument {
    Value(ValueId),
    Load(Load),
}

/// Whose function is called: fields from the enclosing block (or from the item of a loop) inwards.
#[derive(Debug, Clone)]
pub enum Receiver {
    /// `self_attn(..)`, `vision.projector(..)`: a path of single children.
    Field(Vec<FieldId>),
    /// `layer(..)`, `layer.norm(..)` within `for layer in layers`.
    Item { item: LocalId, path: Vec<FieldId> },
}

#[derive(Debug, Clone)]
pub enum PatternPart {
    Text(String),
    Hole(Load),
}

// ---- primitives -------------------------------------------------------------------------------------------------

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

impl Program {
    pub fn op(&self, id: OpId) -> &Op {
        &self.ops[id.0 as usize]
    }

    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
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

impl Function {
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }
}
