//! A value of the load stage.

use std::fmt;

use crate::ir::Scalar;

#[derive(Debug, Clone, PartialEq)]
pub enum Val {
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    List(Vec<Val>),
}

impl Val {
    pub fn as_int(&self) -> Option<i64> {
        if let Val::Int(n) = self { Some(*n) } else { None }
    }

    /// Floats, and integers as floats.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Val::Float(x) => Some(*x),
            Val::Int(n) => Some(*n as f64),
            Val::Bool(_) | Val::Text(_) | Val::List(_) => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Val::Bool(b) = self { Some(*b) } else { None }
    }

    pub fn as_text(&self) -> Option<&str> {
        if let Val::Text(t) = self { Some(t) } else { None }
    }

    pub fn as_list(&self) -> Option<&[Val]> {
        if let Val::List(items) = self { Some(items) } else { None }
    }

    /// What a hole of a name pattern shows: text bare, everything else as [`fmt::Display`].
    pub fn in_name(&self) -> String {
        match self {
            Val::Text(t) => t.clone(),
            Val::Int(_) | Val::Float(_) | Val::Bool(_) | Val::List(_) => self.to_string(),
        }
    }
}

impl From<&Scalar> for Val {
    fn from(scalar: &Scalar) -> Val {
        match scalar {
            Scalar::Int(n) => Val::Int(*n),
            Scalar::Float(x) => Val::Float(*x),
            Scalar::Bool(b) => Val::Bool(*b),
            Scalar::Text(t) => Val::Text(t.clone()),
        }
    }
}

/// As written in a family: text in quotes, floats with a dot or an exponent.
impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Val::Int(n) => write!(f, "{n}"),
            Val::Float(x) => write!(f, "{x:?}"),
            Val::Bool(b) => write!(f, "{b}"),
            Val::Text(t) => write!(f, "{t:?}"),
            Val::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        }
    }
}
