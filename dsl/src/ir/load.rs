//! Load-stage expressions: what is known when a checkpoint is opened, and the sizes of a call.

use super::{ConfigPath, FieldId, LocalId, OpId, PatternPart, ValueId};
use crate::{dim::Dim, source::Span};

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
    /// `"{at}.{i}"`: see [`Load::text`].
    Format(Vec<PatternPart>),
    Pi,
    Config(ConfigPath),
    /// A load parameter of the enclosing op, function, or block, by name.
    Parameter(String),
    /// A load-stage `let` of the enclosing block.
    Member(FieldId),
    Local(LocalId),
    /// A free dim of the enclosing function (`B`, `S`, `T`, `N`, ..): see [`Function::free`](super::Function::free).
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

impl Load {
    /// Text with holes, in its simplest form: holes that hold a literal are filled, and text without holes is a literal.
    pub fn text(parts: Vec<PatternPart>, span: Span) -> Load {
        let mut whole: Vec<PatternPart> = Vec::new();
        let mut add = |part| match (whole.last_mut(), part) {
            (Some(PatternPart::Text(before)), PatternPart::Text(more)) => before.push_str(&more),
            (_, part) => whole.push(part),
        };
        for part in parts {
            match part {
                PatternPart::Hole(Load { kind: LoadKind::Text(text), .. }) => add(PatternPart::Text(text)),
                PatternPart::Hole(Load { kind: LoadKind::Int(n), .. }) => add(PatternPart::Text(n.to_string())),
                PatternPart::Hole(Load { kind: LoadKind::Format(inner), .. }) => inner.into_iter().for_each(&mut add),
                part @ (PatternPart::Text(_) | PatternPart::Hole(_)) => add(part),
            }
        }
        let kind = match whole.as_slice() {
            [] => LoadKind::Text(String::new()),
            [PatternPart::Text(text)] => LoadKind::Text(text.clone()),
            _ => LoadKind::Format(whole),
        };
        Load { kind, ty: LoadType::Text, span }
    }

    /// Visits every expression that stands directly in this one, those of a dim included.
    pub fn for_each_part(&self, visit: &mut dyn FnMut(&Load)) {
        match &self.kind {
            LoadKind::Int(_)
            | LoadKind::Float(_)
            | LoadKind::Bool(_)
            | LoadKind::Text(_)
            | LoadKind::Pi
            | LoadKind::Config(_)
            | LoadKind::Parameter(_)
            | LoadKind::Member(_)
            | LoadKind::Local(_)
            | LoadKind::Free(_)
            | LoadKind::Size(_)
            | LoadKind::Matrix(..) => {}
            LoadKind::Format(parts) => parts.iter().for_each(|part| match part {
                PatternPart::Text(_) => {}
                PatternPart::Hole(value) => visit(value),
            }),
            LoadKind::Dim(dim) => dim.atoms().for_each(|atom| visit(&atom.load)),
            LoadKind::Unary(_, x) => visit(x),
            LoadKind::Binary(_, x, y) | LoadKind::Index(x, y) => [x, y].into_iter().for_each(|part| visit(part)),
            LoadKind::If(c, x, y) => [c, x, y].into_iter().for_each(|part| visit(part)),
            LoadKind::Call(_, items) | LoadKind::Op(_, items) | LoadKind::List(items) => items.iter().for_each(visit),
            LoadKind::Comprehension { item, each } => {
                for Each { over, .. } in each {
                    match over {
                        Over::Range(low, high) => [low, high].into_iter().for_each(&mut *visit),
                        Over::List(list) => visit(list),
                    }
                }
                visit(item);
            }
            LoadKind::Block { lets, value } => {
                lets.iter().for_each(|(_, load)| visit(load));
                visit(value);
            }
        }
    }
}
