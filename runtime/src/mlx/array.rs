//! Host tensors to MLX arrays and back.

use std::ffi::c_void;

use mlx_rs::{Array, Dtype};

use crate::{
    error::{Context, Result, bail},
    tensor::{DType, Tensor},
};

pub(super) fn to_mlx(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::Float64,
        DType::F32 => Dtype::Float32,
        DType::F16 => Dtype::Float16,
        DType::BF16 => Dtype::Bfloat16,
        DType::I32 => Dtype::Int32,
        DType::U32 => Dtype::Uint32,
        DType::U8 => Dtype::Uint8,
        DType::Bool => Dtype::Bool,
    }
}

pub(super) fn from_mlx(dtype: Dtype) -> Result<DType> {
    Ok(match dtype {
        Dtype::Float64 => DType::F64,
        Dtype::Float32 => DType::F32,
        Dtype::Float16 => DType::F16,
        Dtype::Bfloat16 => DType::BF16,
        Dtype::Int32 => DType::I32,
        Dtype::Uint32 => DType::U32,
        Dtype::Uint8 => DType::U8,
        Dtype::Bool => DType::Bool,
        other => bail!("MLX made an array of {other:?}, which is no dtype of the language"),
    })
}

/// Sizes as MLX takes them.
pub(super) fn sizes(shape: impl IntoIterator<Item = i64>) -> Result<Vec<i32>> {
    shape.into_iter().map(|n| i32::try_from(n).with_context(|| format!("a dim of {n} is too large for MLX"))).collect()
}

/// Copies.
pub(crate) fn upload(tensor: &Tensor) -> Result<Array> {
    let shape = sizes(tensor.shape.iter().map(|n| *n as i64))?;
    let wanted = tensor.len() * tensor.dtype.size();
    if tensor.bytes.len() != wanted {
        bail!("a tensor of shape {:?} has {} bytes instead of {wanted}", tensor.shape, tensor.bytes.len());
    }
    // SAFETY: the buffer holds exactly the shape's elements (just checked) and is copied before this returns; MLX reads it bytewise.
    Ok(unsafe { Array::from_raw_data(tensor.bytes.as_ptr().cast::<c_void>(), &shape, to_mlx(tensor.dtype)) })
}

/// Evaluates and copies, in row-major order whatever the array's strides are.
pub(crate) fn download(array: &Array) -> Result<Tensor> {
    let dtype = from_mlx(array.dtype())?;
    let shape: Vec<usize> = array.shape().iter().map(|n| *n as usize).collect();
    if array.size() == 0 {
        return Ok(Tensor { dtype, shape, bytes: Vec::new() });
    }
    let dense = array.contiguous()?;
    dense.eval()?;
    let bytes = dense.nbytes();
    // SAFETY: `dense` is evaluated and row-contiguous, so its data pointer covers `nbytes` initialised bytes for as long as it lives.
    let data = unsafe {
        let data = match dtype {
            DType::F64 => mlx_sys::mlx_array_data_float64(dense.as_ptr()).cast::<u8>(),
            DType::F32 => mlx_sys::mlx_array_data_float32(dense.as_ptr()).cast::<u8>(),
            DType::F16 => mlx_sys::mlx_array_data_float16(dense.as_ptr()).cast::<u8>(),
            DType::BF16 => mlx_sys::mlx_array_data_bfloat16(dense.as_ptr()).cast::<u8>(),
            DType::I32 => mlx_sys::mlx_array_data_int32(dense.as_ptr()).cast::<u8>(),
            DType::U32 => mlx_sys::mlx_array_data_uint32(dense.as_ptr()).cast::<u8>(),
            DType::U8 => mlx_sys::mlx_array_data_uint8(dense.as_ptr()),
            DType::Bool => mlx_sys::mlx_array_data_bool(dense.as_ptr()).cast::<u8>(),
        };
        if data.is_null() {
            bail!("MLX has no data for an evaluated array");
        }
        std::slice::from_raw_parts(data, bytes).to_vec()
    };
    Ok(Tensor { dtype, shape, bytes: data })
}
