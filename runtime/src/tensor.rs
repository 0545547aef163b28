//! A tensor in host memory: what goes into a backend and what comes back (inputs, logits, probes, states, weights).

use mgraph_kernels::{
    apart::{Allowed, Apart, apart},
    numbers::{Kind, Numbers},
};
use safetensors::{Dtype, tensor::TensorView};

/// Element types that cross the seam between host and backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    I32,
    U32,
    U8,
    Bool,
}

impl DType {
    /// The dtype of a stored tensor; `None` where the language has none of that kind.
    pub fn of_stored(dtype: Dtype) -> Option<DType> {
        Some(match dtype {
            Dtype::F64 => DType::F64,
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            Dtype::I32 => DType::I32,
            Dtype::U32 => DType::U32,
            Dtype::U8 => DType::U8,
            Dtype::BOOL => DType::Bool,
            _ => return None,
        })
    }

    /// As it is stored.
    pub fn stored(self) -> Dtype {
        match self {
            DType::F64 => Dtype::F64,
            DType::F32 => Dtype::F32,
            DType::F16 => Dtype::F16,
            DType::BF16 => Dtype::BF16,
            DType::I32 => Dtype::I32,
            DType::U32 => Dtype::U32,
            DType::U8 => Dtype::U8,
            DType::Bool => Dtype::BOOL,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }

    /// Bytes of one element; a bool is one byte.
    pub fn size(self) -> usize {
        self.kind().size()
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            DType::F64 => Kind::F64,
            DType::F32 => Kind::F32,
            DType::F16 => Kind::F16,
            DType::BF16 => Kind::BF16,
            DType::I32 => Kind::I32,
            DType::U32 => Kind::U32,
            DType::U8 | DType::Bool => Kind::U8,
        }
    }
}

/// Row-major, little-endian, tightly packed.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// Whether two shapes are the same but for axes of size 1, which implementations keep or drop as they like.
pub fn agree(a: &[usize], b: &[usize]) -> bool {
    a.iter().filter(|d| **d != 1).eq(b.iter().filter(|d| **d != 1))
}

impl Tensor {
    pub fn from_i32(shape: &[usize], values: &[i32]) -> Tensor {
        Tensor::of(DType::I32, shape, bytemuck::cast_slice(values))
    }

    pub fn zeros(dtype: DType, shape: &[usize]) -> Tensor {
        Tensor { dtype, shape: shape.to_vec(), bytes: vec![0; shape.iter().product::<usize>() * dtype.size()] }
    }

    pub fn from_f32(shape: &[usize], values: &[f32]) -> Tensor {
        Tensor::of(DType::F32, shape, bytemuck::cast_slice(values))
    }

    /// `bytes` must hold `shape`'s elements; checked where debug assertions are.
    pub fn of(dtype: DType, shape: &[usize], bytes: &[u8]) -> Tensor {
        debug_assert_eq!(shape.iter().product::<usize>() * dtype.size(), bytes.len());
        Tensor { dtype, shape: shape.to_vec(), bytes: bytes.to_vec() }
    }

    /// A copy of a stored tensor; `None` where the language has no such dtype.
    pub fn of_stored(view: &TensorView<'_>) -> Option<Tensor> {
        Some(Tensor::of(DType::of_stored(view.dtype())?, view.shape(), view.data()))
    }

    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `length` places along an axis, or all where there are fewer.
    pub fn prefix(&self, axis: usize, length: usize) -> Tensor {
        let size = self.shape[axis];
        let length = length.min(size);
        let inner = self.shape[axis + 1..].iter().product::<usize>() * self.dtype.size();
        let mut shape = self.shape.clone();
        shape[axis] = length;
        let bytes = match inner * size {
            0 => Vec::new(),
            outer => self.bytes.chunks_exact(outer).flat_map(|part| part[..inner * length].iter().copied()).collect(),
        };
        Tensor { dtype: self.dtype, shape, bytes }
    }

    /// The same, zeros behind it along an axis up to `length`.
    pub fn filled(&self, axis: usize, length: usize) -> Tensor {
        let size = self.shape[axis];
        let (length, inner) = (length.max(size), self.shape[axis + 1..].iter().product::<usize>() * self.dtype.size());
        let outer = self.shape[..axis].iter().product::<usize>();
        let mut shape = self.shape.clone();
        shape[axis] = length;
        let mut bytes = vec![0; outer * length * inner];
        for part in 0..outer {
            let from = part * size * inner;
            let to = part * length * inner;
            bytes[to..to + size * inner].copy_from_slice(&self.bytes[from..from + size * inner]);
        }
        Tensor { dtype: self.dtype, shape, bytes }
    }

    fn numbers(&self) -> Numbers<'_> {
        Numbers { kind: self.dtype.kind(), bytes: &self.bytes }
    }

    /// The elements as f64, exact for every dtype here.
    pub fn to_f64(&self) -> Vec<f64> {
        self.numbers().to_f64()
    }

    /// The elements as f32, rounded to nearest even where f32 is narrower.
    pub fn to_f32(&self) -> Vec<f32> {
        self.numbers().to_f32()
    }

    /// The same numbers in another float dtype; in another dtype that is none, f32.
    pub fn to_float(&self, dtype: DType) -> Tensor {
        if dtype == self.dtype {
            return self.clone();
        }
        match self.numbers().to_float(dtype.kind()) {
            Some(bytes) => Tensor { dtype, shape: self.shape.clone(), bytes },
            None => Tensor::from_f32(&self.shape, &self.to_f32()),
        }
    }

    /// How far this tensor is from a reference of as many elements. `places`: the dtype whose floats are counted.
    pub(crate) fn apart(&self, reference: &Tensor, allowed: Allowed, places: Option<DType>) -> Apart {
        apart(self.numbers(), reference.numbers(), allowed, places.map(DType::kind))
    }
}

#[cfg(test)]
mod tests {
    use super::Tensor;

    #[test]
    fn a_prefix_cuts_one_axis() {
        let x = Tensor::from_i32(&[2, 3, 1], &[0, 1, 2, 3, 4, 5]);
        assert_eq!(x.prefix(1, 2), Tensor::from_i32(&[2, 2, 1], &[0, 1, 3, 4]));
        assert_eq!(x.prefix(1, 9), x);
        assert_eq!(x.prefix(0, 0), Tensor::from_i32(&[0, 3, 1], &[]));
    }
}
