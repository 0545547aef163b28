//! The tree of a `.mgraph` file, as written. It knows words and places, no meaning: names are unresolved, types
//! unchecked, operators already nested by precedence. Every node that an error may point at carries a [`Span`].

use crate::source::Span;

#[derive(Debug, Clone, PartialEq)]
pub struct Spanned<T> {
    pub node: T,
    pub span: Span,
}

pub type Name = Spanned<String>;
/// A string literal with its escapes resolved.
pub type Text = Spanned<String>;

#[derive(Debug, Clone, PartialEq)]
pub struct File {
    pub header: Option<Header>,
    pub items: Vec<Item>,
}

/// `family llama for "llama" | "other" as "LlamaForCausalLM"`
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    pub name: Name,
    pub model_types: Vec<Text>,
    pub architectures: Vec<Text>,
    /// The `//!` lines of the file, joined, without the marks.
    pub doc: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Config(Vec<Setting>),
    Processor(Processor),
    Numerics(Vec<(Name, Name)>),
    Contract(Vec<ContractLine>),
    Type(TypeAlias),
    Op(Op),
    Block(Block),
    Model(Model),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Processor {
    pub name: Name,
    pub arguments: Vec<Argument>,
}

/// `"adapter.*" max_abs 0.05 rtol 1e-5`
#[derive(Debug, Clone, PartialEq)]
pub struct ContractLine {
    pub pattern: Text,
    pub bounds: Vec<(Name, Spanned<f64>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    Section { name: Name, keys: Vec<Text>, condition: Option<Expr>, settings: Vec<Setting> },
    Field { name: Name, ty: ValueType, keys: Vec<Text>, otherwise: Option<Expr>, condition: Option<Expr> },
    Limit { name: Name, ty: ValueType, value: Expr },
    Require { condition: Expr },
    Let { name: Name, value: Expr, condition: Option<Expr> },
}

#[derive(Debug, Clone, PartialEq)]
pub struct ValueType {
    pub kind: ValueTypeKind,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ValueTypeKind {
    /// `dim int float bool name`
    Named(String),
    OneOf(Vec<Constant>),
    Index(Box<Expr>),
    List(Box<ValueType>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Constant {
    Text(Text),
    Bool(Spanned<bool>),
    Number(Number),
}

/// `12` is an integer, `12.0` and `1e3` are not.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    pub value: NumberValue,
    pub span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NumberValue {
    Int(i64),
    Float(f64),
}

#[derive(Debug, Clone, PartialEq)]
pub struct TypeAlias {
    pub name: Name,
    pub ty: Type,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Type {
    pub kind: TypeKind,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub enum TypeKind {
    Tuple(Vec<Type>),
    /// `[float; W]`
    List {
        item: Box<Type>,
        length: Option<Box<Expr>>,
    },
    /// `F[B, S, hidden]`, `float`, `Hidden`, `Linear`
    Named {
        name: Name,
        shape: Option<Vec<DimExpr>>,
    },
}

/// One place of a shape or of a list of dims: `..` or an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum DimExpr {
    Rest(Span),
    Dim(Expr),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    pub name: Name,
    pub parameters: Vec<Parameter>,
    pub result: Type,
    pub twins: Vec<Twin>,
    pub body: Body,
    /// The `///` lines before it, joined, without the marks.
    pub doc: String,
}

/// `fused mlx fast::rms_norm(x, weight, eps) when .. within 4 ulp`
#[derive(Debug, Clone, PartialEq)]
pub struct Twin {
    pub backend: Name,
    pub path: Vec<Name>,
    pub arguments: Vec<Argument>,
    pub when: Option<Expr>,
    pub within: Spanned<Within>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Within {
    Ulp(f64),
    OfSum(f64),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    pub mutable: bool,
    pub name: Name,
    pub ty: Type,
    pub default: Option<Expr>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub name: Name,
    pub parameters: Vec<Parameter>,
    pub members: Vec<Member>,
    pub doc: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub span: Span,
    pub source: Option<StoredAs>,
    pub members: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "a tree has a few hundred of these and is walked once")]
pub enum Member {
    State {
        name: Name,
        ty: Type,
    },
    Ignore {
        pattern: Text,
    },
    Let {
        name: Name,
        value: Expr,
        condition: Option<Expr>,
    },
    Graph {
        name: Name,
        signature: Signature,
    },
    /// `fn (..)` has no name.
    Function {
        name: Option<Name>,
        span: Span,
        signature: Signature,
    },
    Field {
        name: Name,
        ty: FieldType,
        source: Option<StoredAs>,
        condition: Option<Expr>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Signature {
    pub parameters: Vec<Parameter>,
    pub result: Option<Type>,
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "a tree has a few hundred of these and is walked once")]
pub enum FieldType {
    /// `[Layer(i) for i in 0..depth]`
    Array { child: Child, variable: Name, low: Expr, high: Expr },
    /// `Linear(hidden, inner)`
    Child(Child),
    /// `F[width]`, `Q[n, k]`, or the bare name of a block without parameters.
    Type(Type),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Child {
    pub block: Name,
    pub arguments: Vec<Argument>,
}

/// `as place | place`
#[derive(Debug, Clone, PartialEq)]
pub struct StoredAs {
    pub places: Vec<Vec<PlacePart>>,
}

/// One term of `"a" + "b"[0..n]`.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacePart {
    pub path: Text,
    pub rows: Option<(Expr, Expr)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Body {
    pub statements: Vec<Statement>,
    pub value: Option<Box<Expr>>,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "a tree has a few hundred of these and is walked once")]
pub enum Statement {
    Let {
        mutable: bool,
        names: Vec<Name>,
        value: Expr,
    },
    For {
        index: Option<Name>,
        item: Name,
        iterable: Iterable,
        body: Body,
    },
    Push {
        list: Name,
        value: Expr,
    },
    Assign {
        name: Name,
        value: Expr,
    },
    /// An `if` whose value is not used.
    If(Expr),
    /// `expr;`
    Effect(Expr),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Iterable {
    Range(Expr, Expr),
    List(Expr),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    Number(NumberValue),
    Text(String),
    Bool(bool),
    Name(String),
    /// `(a, b)`; `(a)` is just `a`.
    Tuple(Vec<Expr>),
    /// `[a, .., b]`
    List(Vec<DimExpr>),
    Comprehension {
        item: Box<Expr>,
        each: Vec<Each>,
    },
    Unary {
        op: UnaryOp,
        value: Box<Expr>,
    },
    Binary {
        op: Spanned<BinaryOp>,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    If {
        condition: Box<Expr>,
        then: Body,
        otherwise: Option<Body>,
    },
    Call {
        callee: Box<Expr>,
        arguments: Vec<Argument>,
    },
    /// `x[.., 0..n, _, 3]`
    Subscript {
        value: Box<Expr>,
        slots: Vec<Slot>,
    },
    /// `vit.depth`, `w.packed`, `layer.logits`
    MemberOf {
        value: Box<Expr>,
        name: Name,
    },
    /// `x @ "layer.{i}"`
    Probe {
        value: Box<Expr>,
        name: Text,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    pub name: Option<Name>,
    pub value: Expr,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Each {
    pub index: Option<Name>,
    pub item: Name,
    pub iterable: Iterable,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Slot {
    Rest(Span),
    Whole(Span),
    Range(Expr, Expr),
    At(Expr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnaryOp {
    Negate,
    Not,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}
