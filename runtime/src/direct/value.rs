//! A backend's tensor as the walk sees it, and dtypes on both sides.

use mgraph_dsl::{interpret::Typed, ir};

use crate::tensor::DType;

#[derive(Debug, Clone)]
pub(super) struct Value<T> {
    pub held: T,
    dtype: ir::DType,
    shape: Vec<usize>,
}

impl<T> Value<T> {
    pub fn new(held: T, dtype: DType, shape: &[i64]) -> Value<T> {
        Value { held, dtype: declared(dtype), shape: shape.iter().map(|n| *n as usize).collect() }
    }
}

impl<T> Typed for Value<T> {
    fn dtype(&self) -> ir::DType {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
}

/// As a family writes it.
pub(crate) fn declared(dtype: DType) -> ir::DType {
    match dtype {
        DType::F64 => ir::DType::F64,
        DType::F32 => ir::DType::F32,
        DType::F16 => ir::DType::F16,
        DType::BF16 => ir::DType::BF16,
        DType::I32 => ir::DType::I32,
        DType::U32 => ir::DType::U32,
        DType::U8 => ir::DType::U8,
        DType::Bool => ir::DType::Bool,
    }
}

pub(super) fn sizes(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|n| *n as i64).collect()
}
