//! The kernels of MLX that a family's `fused mlx` may name. `mgraph_dsl::kernels` names the same parameters, and a recording notes
//! each call by them.

use std::ffi::CStr;

use mgraph_kernels::packed::Packed;
use mlx_rs::{Array, Dtype, fast, ops};

use super::{Matrix, raw, record};
use crate::error::{Result, bail};

/// `precise` computes in f32 whatever the dtype.
pub fn softmax(x: &Array, axis: i64, precise: bool) -> Result<Array> {
    let y = ops::softmax_axes(x, &[axis as i32], precise)?;
    record::kernel("softmax", &[x], &[axis as f64, f64::from(u8::from(precise))], &y);
    Ok(y)
}

pub fn rms_norm(x: &Array, weight: &Array, eps: f64) -> Result<Array> {
    let y = fast::rms_norm(x, Some(weight), eps as f32)?;
    record::kernel("fast::rms_norm", &[x, weight], &[eps], &y);
    Ok(y)
}

pub fn layer_norm(x: &Array, weight: &Array, bias: &Array, eps: f64) -> Result<Array> {
    let y = fast::layer_norm(x, weight, bias, eps as f32)?;
    record::kernel("fast::layer_norm", &[x, weight, bias], &[eps], &y);
    Ok(y)
}

/// `mask`: bool `[rows, queries, keys]`, true where a query sees a key. `sinks`: one score per head of `q`, in its dtype.
pub fn scaled_dot_product_attention(
    q: &Array,
    k: &Array,
    v: &Array,
    scale: f64,
    mask: Option<&Array>,
    sinks: Option<&Array>,
) -> Result<Array> {
    let y = match mask {
        None => fast::scaled_dot_product_attention(q, k, v, scale as f32, None, sinks)?,
        Some(mask) => fast::scaled_dot_product_attention(q, k, v, scale as f32, &mask.expand_dims(1)?, sinks)?,
    };
    let operands: Vec<&Array> = [q, k, v].into_iter().chain(mask).chain(sinks).collect();
    let given = |operand: Option<&Array>| f64::from(u8::from(operand.is_some()));
    record::kernel("fast::scaled_dot_product_attention", &operands, &[scale, given(mask), given(sinks)], &y);
    Ok(y)
}

/// The dense form of a packed matrix.
pub fn dequantize(w: &Matrix) -> Result<Array> {
    match w {
        Matrix::Packed { codes, scales, biases, bits, group } => {
            let dense = ops::dequantize(codes, scales, biases, *group, *bits)?;
            record::kernel("dequantize", &[codes, scales, biases], &[f64::from(*bits), f64::from(*group)], &dense);
            Ok(dense)
        }
        Matrix::Dense(_) => bail!("a dense matrix cannot be dequantized"),
    }
}

/// `x` times the transpose of a packed matrix.
///
/// MLX's own kernel, but for x86 and its like, where that is a scalar loop on one core: there [`mgraph_kernels`] computes it, at once
/// instead of lazily.
pub fn quantized_matmul(x: &Array, w: &Matrix) -> Result<Array> {
    let Matrix::Packed { codes, scales, biases, bits, group } = w else {
        bail!("quantized_matmul needs a packed matrix");
    };
    let f32s = [x, scales, biases].iter().all(|a| a.dtype() == Dtype::Float32);
    if cfg!(target_arch = "x86_64") && f32s && codes.ndim() == 2 && !record::recording() {
        let x = x.contiguous()?;
        let packed = Packed {
            codes: codes.try_as_slice::<u32>()?,
            scales: scales.try_as_slice::<f32>()?,
            biases: biases.try_as_slice::<f32>()?,
            columns: x.shape().last().map_or(0, |n| *n as usize),
            bits: *bits as usize,
            group: *group as usize,
        };
        if packed.is_supported()
            && let Some(y) = packed.times(x.try_as_slice::<f32>()?)
        {
            let mut shape = x.shape().to_vec();
            if let Some(last) = shape.last_mut() {
                *last = packed.rows() as i32;
            }
            return Ok(Array::from_slice(&y, &shape));
        }
    }
    let y = ops::quantized_matmul(x, codes, scales, biases, true, *group, *bits)?;
    record::kernel("quantized_matmul", &[x, codes, scales, biases], &[f64::from(*bits), f64::from(*group)], &y);
    Ok(y)
}

const AFFINE: &CStr = c"affine";

/// Slot `k` of `x: [.., K, I]` meets the packed matrix `chosen[.., k]` of `[E, O, I]`.
pub fn gather_qmm(x: &Array, w: &Matrix, chosen: &Array) -> Result<Array> {
    let Matrix::Packed { codes, scales, biases, bits, group } = w else {
        bail!("gather_qmm needs a packed matrix");
    };
    let wide = x.expand_dims(-2)?;
    let some = |value: i32| mlx_sys::mlx_optional_int { value, has_value: true };
    // SAFETY: all handles are live for the call; the empty left index is freed after it.
    let y = raw::array("gather_qmm", &[&wide, codes, chosen], |out, stream| unsafe {
        let none = mlx_sys::mlx_array_new();
        let status = mlx_sys::mlx_gather_qmm(
            out,
            wide.as_ptr(),
            codes.as_ptr(),
            scales.as_ptr(),
            biases.as_ptr(),
            none,
            chosen.as_ptr(),
            true,
            some(*group),
            some(*bits),
            AFFINE.as_ptr(),
            false,
            stream,
        );
        mlx_sys::mlx_array_free(none);
        status
    })?;
    let y = y.squeeze_axes(&[-2])?;
    let numbers = [f64::from(*bits), f64::from(*group)];
    record::kernel("gather_qmm", &[x, codes, scales, biases, chosen], &numbers, &y);
    Ok(y)
}

/// As [`gather_qmm`] for dense matrices.
pub fn gather_mm(x: &Array, w: &Matrix, chosen: &Array) -> Result<Array> {
    let Matrix::Dense(w) = w else {
        bail!("gather_mm needs a dense matrix");
    };
    let y = ops::gather_mm(x.expand_dims(-2)?, w.swap_axes(-1, -2)?, None, chosen, None)?;
    let y = y.squeeze_axes(&[-2])?;
    record::kernel("gather_mm", &[x, w, chosen], &[0.0, 0.0], &y);
    Ok(y)
}
