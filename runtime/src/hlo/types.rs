//! What the builder knows of a value: its dtype and its static shape, and the rules by which shapes combine.

use std::fmt;

pub use crate::tensor::DType;

/// A tensor of the graph being built. A plain handle: its type is asked of the [`Build`](super::Build) that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct V(pub(super) u32);

impl V {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Dtype and static shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Type {
    pub dtype: DType,
    pub shape: Vec<i64>,
}

impl Type {
    pub fn new(dtype: DType, shape: &[i64]) -> Type {
        Type { dtype, shape: shape.to_vec() }
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    pub fn elements(&self) -> i64 {
        self.shape.iter().product()
    }

    /// The shape as the host counts.
    pub fn sizes(&self) -> Vec<usize> {
        self.shape.iter().map(|d| *d as usize).collect()
    }

    /// `tensor<2x3xf32>`
    pub fn mlir(&self) -> String {
        let mut text = String::from("tensor<");
        for dim in &self.shape {
            text.push_str(&format!("{dim}x"));
        }
        text.push_str(element(self.dtype));
        text.push('>');
        text
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", element(self.dtype), self.shape)
    }
}

/// StableHLO's name of an element type.
pub fn element(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::I32 => "i32",
        DType::U32 => "ui32",
        DType::U8 => "ui8",
        DType::Bool => "i1",
    }
}

/// Floats that a sum of products may not be kept in.
pub(super) fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// The shape two shapes broadcast to, aligned from the right; `None` where a pair differs and neither is 1.
pub(super) fn broadcast(x: &[i64], y: &[i64]) -> Option<Vec<i64>> {
    let rank = x.len().max(y.len());
    let at = |shape: &[i64], i: usize| if i + shape.len() < rank { 1 } else { shape[i + shape.len() - rank] };
    (0..rank)
        .map(|i| match (at(x, i), at(y, i)) {
            (a, b) if a == b => Some(a),
            (1, b) => Some(b),
            (a, 1) => Some(a),
            _ => None,
        })
        .collect()
}

/// An axis counted from the front, or from the back where negative.
pub(super) fn axis(axis: i32, rank: usize) -> Option<usize> {
    let at = if axis < 0 { axis as i64 + rank as i64 } else { axis as i64 };
    (0..rank as i64).contains(&at).then_some(at as usize)
}

/// The bit pattern of a number in `dtype`: rounded once from f64, toward zero where the dtype is an integer.
pub(super) fn bits_of_number(value: f64, dtype: DType) -> u64 {
    match dtype {
        DType::F64 => value.to_bits(),
        DType::F32 => u64::from((value as f32).to_bits()),
        DType::F16 => u64::from(half::f16::from_f64(value).to_bits()),
        DType::BF16 => u64::from(half::bf16::from_f64(value).to_bits()),
        DType::I32 => u64::from((value as i32) as u32),
        DType::U32 => u64::from(value as u32),
        DType::U8 => u64::from(value as u8),
        DType::Bool => u64::from(value != 0.0),
    }
}

/// The bit pattern of an integer in `dtype`; `None` where it does not fit.
pub(super) fn bits_of_integer(value: i64, dtype: DType) -> Option<u64> {
    match dtype {
        DType::I32 => i32::try_from(value).ok().map(|v| u64::from(v as u32)),
        DType::U32 => u32::try_from(value).ok().map(u64::from),
        DType::U8 => u8::try_from(value).ok().map(u64::from),
        DType::Bool => matches!(value, 0 | 1).then_some(value as u64),
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => Some(bits_of_number(value as f64, dtype)),
    }
}
