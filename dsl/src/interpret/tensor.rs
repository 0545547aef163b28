//! Dense tensors in row order. The dtype is what the family declares; floats are held in f32 or, in an f64 run, in f64.

use std::sync::Arc;

use super::domain::Typed;
use crate::ir::DType;

#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Data,
}

/// The elements. `f16` and `bf16` are f32 values that those dtypes have.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    F64(Arc<Vec<f64>>),
    F32(Arc<Vec<f32>>),
    I32(Arc<Vec<i32>>),
    U32(Arc<Vec<u32>>),
    U8(Arc<Vec<u8>>),
    Bool(Arc<Vec<bool>>),
}

/// A Rust type of elements.
pub(super) trait Element: Copy + Send + Sync + 'static {
    fn data(elements: Vec<Self>) -> Data;
}

macro_rules! elements {
    ($($ty:ty => $variant:ident),*) => { $(
        impl Element for $ty {
            fn data(elements: Vec<Self>) -> Data {
                Data::$variant(Arc::new(elements))
            }
        }
        impl From<Vec<$ty>> for Data {
            fn from(elements: Vec<$ty>) -> Data {
                <$ty as Element>::data(elements)
            }
        }
    )* };
}

elements!(f64 => F64, f32 => F32, i32 => I32, u32 => U32, u8 => U8, bool => Bool);

impl Data {
    pub fn len(&self) -> usize {
        match self {
            Data::F64(v) => v.len(),
            Data::F32(v) => v.len(),
            Data::I32(v) => v.len(),
            Data::U32(v) => v.len(),
            Data::U8(v) => v.len(),
            Data::Bool(v) => v.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn holds(&self, dtype: DType) -> bool {
        match self {
            Data::F64(_) => matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16),
            Data::F32(_) => matches!(dtype, DType::F32 | DType::F16 | DType::BF16),
            Data::I32(_) => dtype == DType::I32,
            Data::U32(_) => dtype == DType::U32,
            Data::U8(_) => dtype == DType::U8,
            Data::Bool(_) => dtype == DType::Bool,
        }
    }
}

impl Tensor {
    /// `None` where the number of elements is not the shape's, or the data cannot have the dtype (`F` is none).
    pub fn new(dtype: DType, shape: Vec<usize>, data: impl Into<Data>) -> Option<Tensor> {
        let data = data.into();
        let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
        (count == data.len() && data.holds(dtype)).then_some(Tensor { dtype, shape, data })
    }

    pub fn f32(shape: Vec<usize>, elements: Vec<f32>) -> Option<Tensor> {
        Tensor::new(DType::F32, shape, elements)
    }

    pub fn i32(shape: Vec<usize>, elements: Vec<i32>) -> Option<Tensor> {
        Tensor::new(DType::I32, shape, elements)
    }

    pub fn data(&self) -> &Data {
        &self.data
    }

    pub fn len(&self) -> usize {
        self.data.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same elements in the same order.
    pub(super) fn reshaped(&self, shape: &[usize]) -> Result<Tensor, String> {
        Tensor::new(self.dtype, shape.to_vec(), self.data.clone())
            .ok_or_else(|| format!("{:?} has not as many elements as {shape:?}", self.shape))
    }

    /// u32 words as their little-endian bytes, the last axis four times as long. `None` for another dtype.
    pub fn to_bytes(&self) -> Option<Tensor> {
        let Data::U32(words) = &self.data else { return None };
        let mut shape = self.shape.clone();
        *shape.last_mut()? *= 4;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Tensor::new(DType::U8, shape, bytes)
    }

    /// Every element as f64, which holds all of them exactly.
    pub fn to_f64(&self) -> Vec<f64> {
        match &self.data {
            Data::F64(v) => v.to_vec(),
            Data::F32(v) => v.iter().map(|x| f64::from(*x)).collect(),
            Data::I32(v) => v.iter().map(|x| f64::from(*x)).collect(),
            Data::U32(v) => v.iter().map(|x| f64::from(*x)).collect(),
            Data::U8(v) => v.iter().map(|x| f64::from(*x)).collect(),
            Data::Bool(v) => v.iter().map(|x| f64::from(u8::from(*x))).collect(),
        }
    }

    /// Every element rounded to f32.
    pub fn to_f32(&self) -> Vec<f32> {
        match &self.data {
            Data::F32(v) => v.to_vec(),
            Data::F64(_) | Data::I32(_) | Data::U32(_) | Data::U8(_) | Data::Bool(_) => {
                self.to_f64().into_iter().map(|x| x as f32).collect()
            }
        }
    }
}

impl Typed for Tensor {
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
}
