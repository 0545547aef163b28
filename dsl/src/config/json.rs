//! JSON values against the types of config fields.

use serde_json::Value;

use super::listed;
use crate::{diagnostic::suggest, load::Val};

/// A field type with its sizes known.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Accepted {
    Dim,
    Int,
    Float,
    Bool,
    Text,
    OneOf(Vec<Val>),
    Index(i64),
    List(Box<Accepted>),
}

/// A value that a field does not take.
#[derive(Debug, Clone, PartialEq)]
pub struct Mismatch {
    pub found: String,
    pub expected: String,
    pub near: Option<String>,
    /// Which item of a list.
    pub item: Option<usize>,
}

/// JSON as shown in a message: whole when short.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    let start: String = text.chars().take(57).collect();
    format!("{start}...")
}

impl Accepted {
    fn expected(&self) -> String {
        match self {
            Accepted::Dim => "a positive integer".into(),
            Accepted::Int => "an integer".into(),
            Accepted::Float => "a number".into(),
            Accepted::Bool => "true or false".into(),
            Accepted::Text => "a string".into(),
            Accepted::OneOf(accepted) => listed(accepted),
            Accepted::Index(n) => format!("an index from -{n} to {}", n - 1),
            Accepted::List(item) => format!("a list, each item {}", item.expected()),
        }
    }

    fn mismatch(&self, found: String) -> Mismatch {
        Mismatch { found, expected: self.expected(), near: None, item: None }
    }
}

pub(super) fn read(ty: &Accepted, value: &Value) -> Result<Val, Mismatch> {
    let wrong = || ty.mismatch(shown(value));
    let plain = match (ty, value) {
        (Accepted::List(item), Value::Array(values)) => {
            let read = |(i, v)| read(item, v).map_err(|m| Mismatch { item: m.item.or(Some(i)), ..m });
            return values.iter().enumerate().map(read).collect::<Result<_, _>>().map(Val::List);
        }
        (Accepted::Float, Value::Number(n)) => Val::Float(n.as_f64().ok_or_else(wrong)?),
        (_, Value::Number(n)) => match n.as_i64() {
            Some(n) => Val::Int(n),
            None => Val::Float(n.as_f64().ok_or_else(wrong)?),
        },
        (_, Value::Bool(b)) => Val::Bool(*b),
        (_, Value::String(text)) => Val::Text(text.clone()),
        (_, Value::Null | Value::Array(_) | Value::Object(_)) => return Err(wrong()),
    };
    accept(ty, plain).map_err(|m| Mismatch { found: shown(value), ..m })
}

/// A value of the right kind, checked against the field's set; the way of `else` values and limits.
pub(super) fn accept(ty: &Accepted, value: Val) -> Result<Val, Mismatch> {
    let wrong = |value: &Val| Err(ty.mismatch(value.to_string()));
    match (ty, value) {
        (Accepted::Dim, Val::Int(n)) if n > 0 => Ok(Val::Int(n)),
        (Accepted::Int, Val::Int(n)) => Ok(Val::Int(n)),
        (Accepted::Float, value @ (Val::Int(_) | Val::Float(_))) => {
            value.as_float().map(Val::Float).ok_or_else(|| ty.mismatch(value.to_string()))
        }
        (Accepted::Bool, Val::Bool(b)) => Ok(Val::Bool(b)),
        (Accepted::Text, Val::Text(t)) => Ok(Val::Text(t)),
        (Accepted::OneOf(accepted), value) => {
            let same = |a: &&Val| match (a, &value) {
                (Val::Int(_) | Val::Float(_), Val::Int(_) | Val::Float(_)) => a.as_float() == value.as_float(),
                (a, value) => *a == value,
            };
            if let Some(found) = accepted.iter().find(same) {
                return Ok(found.clone());
            }
            let texts: Vec<&str> = accepted.iter().filter_map(Val::as_text).collect();
            let near = value.as_text().and_then(|text| suggest(text, texts)).map(|near| format!("{near:?}"));
            Err(Mismatch { near, ..ty.mismatch(value.to_string()) })
        }
        (Accepted::Index(n), Val::Int(i)) if -n <= i && i < *n => Ok(Val::Int(if i < 0 { i + n } else { i })),
        (Accepted::List(item), Val::List(values)) => {
            let accept = |(i, v)| accept(item, v).map_err(|m| Mismatch { item: m.item.or(Some(i)), ..m });
            values.into_iter().enumerate().map(accept).collect::<Result<_, _>>().map(Val::List)
        }
        (
            Accepted::Dim
            | Accepted::Int
            | Accepted::Float
            | Accepted::Bool
            | Accepted::Text
            | Accepted::Index(_)
            | Accepted::List(_),
            value,
        ) => wrong(&value),
    }
}
