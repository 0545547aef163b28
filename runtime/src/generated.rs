//! What generated code of both backends uses besides tensors: config values, exact integers, field paths, and the context
//! that every generated function is given.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

pub use mgraph_dsl::config::Resolved;
use mgraph_dsl::load::Val;

use crate::error::{Context, Error, Result, anyhow, bail};

/// What a generated function works in: the config, and the backend's own context, to which it derefs.
pub struct Call<'a, C, B> {
    pub cfg: &'a C,
    backend: &'a mut B,
}

impl<'a, C, B> Call<'a, C, B> {
    pub fn new(cfg: &'a C, backend: &'a mut B) -> Self {
        Call { cfg, backend }
    }
}

impl<C, B> Deref for Call<'_, C, B> {
    type Target = B;

    fn deref(&self) -> &B {
        self.backend
    }
}

impl<C, B> DerefMut for Call<'_, C, B> {
    fn deref_mut(&mut self) -> &mut B {
        self.backend
    }
}

/// What a slice keeps of one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    Whole,
    /// From the first to below the second.
    Range(i64, i64),
    /// One index; the axis is dropped.
    At(i64),
}

/// Where a field lies in the tree of blocks: `layers.3.self_attn.q_proj.weight`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath(String);

impl FieldPath {
    pub fn root() -> FieldPath {
        FieldPath(String::new())
    }

    pub fn field(&self, name: &str) -> FieldPath {
        if self.0.is_empty() { FieldPath(name.to_string()) } else { FieldPath(format!("{}.{name}", self.0)) }
    }

    pub fn item(&self, array: &str, index: i64) -> FieldPath {
        FieldPath(format!("{}.{index}", self.field(array).0))
    }
}

impl Deref for FieldPath {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A Rust type that a config value becomes.
pub trait FromVal: Sized {
    fn from_val(value: &Val) -> Option<Self>;
}

impl FromVal for i64 {
    fn from_val(value: &Val) -> Option<i64> {
        value.as_int()
    }
}

impl FromVal for f64 {
    fn from_val(value: &Val) -> Option<f64> {
        value.as_float()
    }
}

impl FromVal for bool {
    fn from_val(value: &Val) -> Option<bool> {
        value.as_bool()
    }
}

impl FromVal for String {
    fn from_val(value: &Val) -> Option<String> {
        value.as_text().map(str::to_string)
    }
}

impl<T: FromVal> FromVal for Vec<T> {
    fn from_val(value: &Val) -> Option<Vec<T>> {
        value.as_list()?.iter().map(T::from_val).collect()
    }
}

/// A config value that may be absent.
pub fn optional<T: FromVal>(resolved: &Resolved, path: &[&str]) -> Result<Option<T>> {
    let path: Vec<String> = path.iter().map(|step| (*step).to_string()).collect();
    match resolved.get(&path) {
        None => Ok(None),
        Some(value) => match T::from_val(value) {
            Some(value) => Ok(Some(value)),
            None => bail!("config value `{}` is {value}, which is not of the type it was compiled for", path.join(".")),
        },
    }
}

/// A config value that every config has.
pub fn required<T: FromVal>(resolved: &Resolved, path: &[&str]) -> Result<T> {
    optional(resolved, path)?.with_context(|| format!("config value `{}` is missing", path.join(".")))
}

/// A part of a block or config that exists only under a condition.
pub fn present<'a, T>(part: &'a Option<T>, name: &str) -> Result<&'a T> {
    part.as_ref().with_context(|| format!("`{name}` is used, but its condition does not hold for this config"))
}

/// Integer division that must leave no remainder.
pub fn exact(above: i64, below: i64) -> Result<i64> {
    match (above.checked_rem(below), above.checked_div(below)) {
        (Some(0), Some(quotient)) => Ok(quotient),
        _ => bail!("{above} / {below} is not a whole number, and division of integers must be exact"),
    }
}

pub fn remainder(above: i64, below: i64) -> Result<i64> {
    above.checked_rem(below).with_context(|| format!("{above} % {below} has no value"))
}

pub fn shift_left(number: i64, by: i64) -> Result<i64> {
    let by_u32 = u32::try_from(by).ok().filter(|by| *by < 63);
    by_u32.map(|by| number << by).with_context(|| format!("{number} << {by} does not fit into 64 bits"))
}

pub fn item<T>(list: &[T], index: i64) -> Result<&T> {
    let found = usize::try_from(index).ok().and_then(|i| list.get(i));
    found.with_context(|| format!("index {index} lies outside a list of {}", list.len()))
}

pub fn largest<T: Copy + PartialOrd>(list: &[T]) -> Result<T> {
    let larger = |a: T, b: T| if b > a { b } else { a };
    list.iter().copied().reduce(larger).context("`maximum` of an empty list has no value")
}

/// Leading dims and what follows them.
pub fn shape(lead: &[i64], dims: &[i64]) -> Vec<i64> {
    [lead, dims].concat()
}

/// All but the last `trailing` dims.
pub fn lead(shape: &[i64], trailing: usize) -> Result<Vec<i64>> {
    let kept = shape.len().checked_sub(trailing);
    kept.map(|n| shape[..n].to_vec()).with_context(|| format!("{shape:?} has fewer than {trailing} axes"))
}

/// The size of an axis, counted from the back when negative.
pub fn dim(shape: &[i64], axis: i32) -> Result<i64> {
    let index = if axis < 0 { axis as i64 + shape.len() as i64 } else { i64::from(axis) };
    item(shape, index).copied()
}

/// The inputs of a graph, by position.
pub fn arguments<'a, T, const N: usize>(graph: &str, inputs: &'a [T]) -> Result<&'a [T; N]> {
    inputs.try_into().map_err(|_| anyhow!("graph `{graph}` takes {N} inputs, but was given {}", inputs.len()))
}

pub fn unknown_graph(name: &str) -> Error {
    anyhow!("the family has no graph `{name}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_exact_or_errors() {
        assert_eq!(exact(12, 4).ok(), Some(3));
        for (a, b) in [(13, 4), (1, 0), (i64::MIN, -1)] {
            assert!(exact(a, b).is_err(), "{a} / {b}");
        }
        assert_eq!(shift_left(1, 8).ok(), Some(256));
        assert!(shift_left(1, 64).is_err() && shift_left(1, -1).is_err());
    }

    #[test]
    fn paths_join_with_dots() {
        let layer = FieldPath::root().item("layers", 3);
        assert_eq!(&*layer.field("norm").field("weight"), "layers.3.norm.weight");
    }

    #[test]
    fn axes_count_from_the_back() {
        assert_eq!(dim(&[2, 3, 5], -1).ok(), Some(5));
        assert!(dim(&[2], -2).is_err());
        assert_eq!(lead(&[2, 3, 5], 1).ok(), Some(vec![2, 3]));
    }
}
