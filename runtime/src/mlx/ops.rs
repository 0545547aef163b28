//! One function per primitive, named as in the language. Scalars are made in the dtype of their neighbour, so nothing here
//! promotes a dtype.

use half::{bf16, f16};
use mlx_rs::{Array, Dtype, ops, ops::indexing};

use super::{
    array::{from_mlx, sizes, to_mlx, upload},
    raw, streams, update as state,
};
use crate::{
    error::{Context, Result, ensure},
    generated::{self, Cut},
    tensor::{DType, Tensor},
};

macro_rules! unary {
    ($($name:ident: $of:expr;)*) => { $(
        pub fn $name(x: &Array) -> Result<Array> {
            Ok($of(x)?)
        }
    )* };
}

macro_rules! binary {
    ($($name:ident: $of:expr;)*) => { $(
        pub fn $name(x: &Array, y: &Array) -> Result<Array> {
            Ok($of(x, y)?)
        }
    )* };
}

unary! {
    negate: ops::negative;
    abs: ops::abs;
    exp: ops::exp;
    log: ops::log;
    sqrt: ops::sqrt;
    rsqrt: ops::rsqrt;
    tanh: ops::tanh;
    sin: ops::sin;
    cos: ops::cos;
    sigmoid: ops::sigmoid;
    erf: ops::erf;
}

binary! {
    add: ops::add;
    subtract: ops::subtract;
    multiply: ops::multiply;
    remainder: ops::remainder;
    minimum: ops::minimum;
    maximum: ops::maximum;
    equal: ops::eq;
    not_equal: ops::ne;
    less: ops::lt;
    less_equal: ops::le;
    greater: ops::gt;
    greater_equal: ops::ge;
    matmul: ops::matmul;
}

/// Of integers, which are never negative here: rounded down.
pub fn divide(x: &Array, y: &Array) -> Result<Array> {
    let float = matches!(x.dtype(), Dtype::Float64 | Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16);
    Ok(if float { ops::divide(x, y)? } else { ops::floor_divide(x, y)? })
}

pub fn not(x: &Array) -> Result<Array> {
    if x.dtype() == Dtype::Bool {
        return Ok(ops::logical_not(x)?);
    }
    raw::one("!", mlx_sys::mlx_bitwise_invert, x)
}

pub fn and(x: &Array, y: &Array) -> Result<Array> {
    if x.dtype() == Dtype::Bool {
        return Ok(ops::logical_and(x, y)?);
    }
    raw::two("&", mlx_sys::mlx_bitwise_and, x, y)
}

pub fn or(x: &Array, y: &Array) -> Result<Array> {
    if x.dtype() == Dtype::Bool {
        return Ok(ops::logical_or(x, y)?);
    }
    raw::two("|", mlx_sys::mlx_bitwise_or, x, y)
}

pub fn shift_left(x: &Array, y: &Array) -> Result<Array> {
    raw::two("<<", mlx_sys::mlx_left_shift, x, y)
}

pub fn shift_right(x: &Array, y: &Array) -> Result<Array> {
    raw::two(">>", mlx_sys::mlx_right_shift, x, y)
}

pub fn select(c: &Array, x: &Array, y: &Array) -> Result<Array> {
    Ok(ops::select(c, x, y)?)
}

pub fn convert(x: &Array, dtype: DType) -> Result<Array> {
    Ok(x.as_dtype(to_mlx(dtype))?)
}

/// A scalar, rounded once from f64.
pub fn number(value: f64, dtype: DType) -> Result<Array> {
    numbers_of(&[], &[value], dtype)
}

pub fn integer(value: i64, dtype: DType) -> Result<Array> {
    integers_of(&[], &[value], dtype)
}

pub fn numbers(values: &[f64], dtype: DType) -> Result<Array> {
    numbers_of(&[values.len()], values, dtype)
}

pub fn integers(values: &[i64], dtype: DType) -> Result<Array> {
    integers_of(&[values.len()], values, dtype)
}

fn numbers_of(shape: &[usize], values: &[f64], dtype: DType) -> Result<Array> {
    let bytes: Vec<u8> = match dtype {
        DType::F64 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::F32 => values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|v| f16::from_f64(*v).to_le_bytes()).collect(),
        DType::BF16 => values.iter().flat_map(|v| bf16::from_f64(*v).to_le_bytes()).collect(),
        DType::I32 | DType::U32 | DType::U8 | DType::Bool => {
            return integers_of(shape, &values.iter().map(|v| *v as i64).collect::<Vec<_>>(), dtype);
        }
    };
    upload(&Tensor { dtype, shape: shape.to_vec(), bytes })
}

fn integers_of(shape: &[usize], values: &[i64], dtype: DType) -> Result<Array> {
    let fits = |low: i64, high: i64| {
        let outside = values.iter().find(|v| !(low..=high).contains(*v));
        ensure!(outside.is_none(), "the constant {} does not fit into {dtype:?}", outside.copied().unwrap_or_default());
        Ok(())
    };
    let bytes: Vec<u8> = match dtype {
        DType::I32 => {
            fits(i64::from(i32::MIN), i64::from(i32::MAX))?;
            values.iter().flat_map(|v| (*v as i32).to_le_bytes()).collect()
        }
        DType::U32 => {
            fits(0, i64::from(u32::MAX))?;
            values.iter().flat_map(|v| (*v as u32).to_le_bytes()).collect()
        }
        DType::U8 => {
            fits(0, i64::from(u8::MAX))?;
            values.iter().map(|v| *v as u8).collect()
        }
        DType::Bool => values.iter().map(|v| u8::from(*v != 0)).collect(),
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => {
            return numbers_of(shape, &values.iter().map(|v| *v as f64).collect::<Vec<_>>(), dtype);
        }
    };
    upload(&Tensor { dtype, shape: shape.to_vec(), bytes })
}

/// i32, 0 to `n` - 1.
pub fn iota(n: i64) -> Result<Array> {
    let n = i32::try_from(n).with_context(|| format!("a dim of {n} is too large for MLX"))?;
    Ok(Array::arange::<i32, i32>(0, n, None)?)
}

pub fn reshape(x: &Array, shape: &[i64]) -> Result<Array> {
    Ok(x.reshape(&sizes(shape.iter().copied())?)?)
}

/// Permutes the trailing axes, one per entry; leading ones stay.
pub fn transpose(x: &Array, permutation: &[usize]) -> Result<Array> {
    let leading = x.ndim().saturating_sub(permutation.len());
    let axes: Vec<i32> = (0..leading).chain(permutation.iter().map(|a| leading + a)).map(|axis| axis as i32).collect();
    Ok(x.transpose_axes(&axes)?)
}

pub fn broadcast(x: &Array, shape: &[i64]) -> Result<Array> {
    Ok(ops::broadcast_to(x, &sizes(shape.iter().copied())?)?)
}

pub fn concat(parts: &[impl AsRef<Array>], axis: i32) -> Result<Array> {
    Ok(ops::concatenate(parts, axis)?)
}

/// u32 words as their little-endian bytes, the last axis four times as long.
pub fn bytes(words: &Array) -> Result<Array> {
    raw::array("view", &[words], |out, stream| {
        // SAFETY: the handle is live for the call, and `out` is writable.
        unsafe { mlx_sys::mlx_view(out, words.as_ptr(), mlx_sys::mlx_dtype__MLX_UINT8, stream) }
    })
}

/// Slices the trailing axes, one cut each; the leading ones stay whole.
pub fn cut(x: &Array, cuts: &[Cut]) -> Result<Array> {
    let shape = x.shape();
    let leading = shape.len().saturating_sub(cuts.len());
    let mut start = vec![0; shape.len()];
    let mut stop = shape.to_vec();
    let mut dropped = Vec::new();
    for (axis, cut) in (leading..shape.len()).zip(cuts) {
        let (low, high) = match cut {
            Cut::Whole => continue,
            Cut::Range(low, high) => (*low, *high),
            Cut::At(index) => {
                dropped.push(axis as i32);
                (*index, *index + 1)
            }
        };
        let size = i64::from(shape[axis]);
        ensure!(0 <= low && low <= high && high <= size, "a slice {low}..{high} lies outside an axis of {size}");
        (start[axis], stop[axis]) = (low as i32, high as i32);
    }
    let strides = vec![1; shape.len()];
    let n = shape.len();
    // SAFETY: all handles are live for the call; the three vectors have `n` elements each.
    let cut = raw::array("slice", &[x], |out, stream| unsafe {
        mlx_sys::mlx_slice(out, x.as_ptr(), start.as_ptr(), n, stop.as_ptr(), n, strides.as_ptr(), n, stream)
    })?;
    if dropped.is_empty() { Ok(cut) } else { Ok(cut.squeeze_axes(&dropped)?) }
}

pub fn sum(x: &Array, axes: &[i32]) -> Result<Array> {
    Ok(x.sum_axes(axes, true)?)
}

/// Of nothing, which MLX refuses: the least of the dtype.
pub fn maximum_along(x: &Array, axes: &[i32]) -> Result<Array> {
    let mut shape = shape(x);
    let mut empty = false;
    for axis in axes {
        let at = if *axis < 0 { i64::from(*axis) + shape.len() as i64 } else { i64::from(*axis) };
        if let Some(size) = usize::try_from(at).ok().and_then(|at| shape.get_mut(at)) {
            empty |= *size == 0;
            *size = 1;
        }
    }
    if !empty {
        return Ok(x.max_axes(axes, true)?);
    }
    let dtype = dtype(x)?;
    let least = match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => number(f64::NEG_INFINITY, dtype)?,
        DType::I32 => integer(i64::from(i32::MIN), dtype)?,
        DType::U32 | DType::U8 | DType::Bool => integer(0, dtype)?,
    };
    broadcast(&least, &shape)
}

pub fn any_along(x: &Array, axes: &[i32]) -> Result<Array> {
    Ok(x.any_axes(axes, true)?)
}

/// Last axis against last axis.
pub fn dot(x: &Array, w: &Array) -> Result<Array> {
    let work = x.size() as i64 * dim(w, -2)?;
    streams::by_rows(w, work, |w| Ok(x.matmul(w.swap_axes(-1, -2)?)?))
}

/// `ids` replace the axis.
pub fn take(x: &Array, ids: &Array, axis: i32) -> Result<Array> {
    Ok(indexing::take_axis(x, ids, axis)?)
}

/// One index per element.
pub fn take_along(x: &Array, ids: &Array, axis: i32) -> Result<Array> {
    Ok(indexing::take_along_axis(x, ids, axis)?)
}

/// Descending, ties to the lower index: MLX's argsort on the CPU is stable.
pub fn top_k_indices(x: &Array, k: i64) -> Result<Array> {
    let order = ops::argsort_axis(negate(x)?, -1)?;
    convert(&cut(&order, &[Cut::Range(0, k)])?, DType::I32)
}

pub fn top_k_values(x: &Array, k: i64) -> Result<Array> {
    take_along(x, &top_k_indices(x, k)?, -1)
}

/// Token `s` of row `b` at `positions[b, s]` along `axis`.
pub fn update(old: &Array, x: &Array, positions: &Array, axis: i32) -> Result<Array> {
    state::rows(old.clone(), x, positions, axis, 0..old.shape().first().copied().unwrap_or(0), None)
}

pub fn shape(x: &Array) -> Vec<i64> {
    x.shape().iter().map(|n| i64::from(*n)).collect()
}

pub fn dim(x: &Array, axis: i32) -> Result<i64> {
    generated::dim(&shape(x), axis)
}

pub fn dtype(x: &Array) -> Result<DType> {
    from_mlx(x.dtype())
}
