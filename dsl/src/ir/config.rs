//! What `config.json` means: sections, fields, `let`s and requirements, in file order.

use super::Load;
use crate::source::Span;

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
