//! Ops and the functions of blocks: statements in order, loops and branches as written, twins beside their op.

use super::{BlockId, FieldId, FunctionId, Load, LoadParameter, LoadType, LocalId, OpId, Prim, Type, ValueId};
use crate::source::Span;

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
    ///
    /// [`LoadKind::Size`]: super::LoadKind::Size
    /// [`LoadKind::Matrix`]: super::LoadKind::Matrix
    pub when: Option<Load>,
    pub within: Within,
    pub span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TwinBackend {
    Mlx,
    Hlo,
}

impl TwinBackend {
    /// As a family writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TwinBackend::Mlx => "mlx",
            TwinBackend::Hlo => "hlo",
        }
    }
}

#[derive(Debug, Clone)]
pub enum TwinTarget {
    /// A kernel of the backend (`fast::rms_norm`), of [`crate::kernels`]. `arguments` are evaluated by `setup` first
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
    /// Tensor, matrix or list of tensors: its value inside the function.
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
    /// Axis `axis` of parameter number `parameter`, counted from the back (-1 is the last). Matrices: of the dense shape;
    /// lists of tensors: of their first item.
    Axis { parameter: usize, axis: i32 },
    /// The length of a list parameter, of load values or of tensors.
    Length { parameter: usize },
    /// `T`: the positions that the state shows in this call.
    Positions,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackSource {
    pub parameter: usize,
    pub trailing: usize,
}

/// Whose dtype [`DType::F`](super::DType::F) is inside the function.
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
    /// `value @ "layer.{i}"`; `out` is what goes on from there.
    Probe {
        out: ValueId,
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
    /// A literal list as a value; all items have one type.
    List {
        out: ValueId,
        items: Vec<ValueId>,
    },
    For {
        outs: Vec<ValueId>,
        over: LoopOver,
        index: Option<LocalId>,
        carried: Vec<Carried>,
        collected: Vec<Collected>,
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

/// A list that the loop fills: each turn adds `item`, a value of its body, to `out`.
#[derive(Debug, Clone)]
pub struct Collected {
    pub item: ValueId,
    pub out: ValueId,
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
    /// An array of children, the last field of `array`; inside, [`Receiver::Item`] with the same `item` is the current one.
    Children {
        item: LocalId,
        array: Receiver,
    },
    /// A list of tensors; inside, `item` is the current one.
    Values {
        item: ValueId,
        list: ValueId,
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

impl Region {
    /// Visits every statement, those in arms and loops too, in the order of the text.
    pub fn for_each(&self, visit: &mut dyn FnMut(&Statement)) {
        self.statements.iter().for_each(|statement| statement.for_each(visit));
    }
}

impl Statement {
    /// Visits this statement, then those in it, in the order of the text.
    pub fn for_each(&self, visit: &mut dyn FnMut(&Statement)) {
        visit(self);
        match self {
            Statement::If { then, otherwise, .. } => {
                then.for_each(visit);
                otherwise.for_each(visit);
            }
            Statement::For { body, .. } => body.for_each(visit),
            Statement::Prim { .. }
            | Statement::List { .. }
            | Statement::Let { .. }
            | Statement::Weight { .. }
            | Statement::StateRead { .. }
            | Statement::StateWrite { .. }
            | Statement::CallOp { .. }
            | Statement::CallBlock { .. }
            | Statement::Probe { .. } => {}
        }
    }
}

impl Function {
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }
}
