//! The few MLX operations that mlx-rs does not wrap, through mlx-sys.

use std::ffi::CStr;

use mlx_rs::{Array, Stream};
use mlx_sys::{mlx_array, mlx_stream};

use crate::error::{Result, bail};

/// Runs one C function that writes an array. `name` and `operands` are for the error, as MLX's own sentence stays inside mlx-rs.
///
/// Whoever calls this has called mlx-rs before, which then has installed its error handler: without one MLX ends the process.
pub(super) fn array(
    name: &str,
    operands: &[&Array],
    call: impl FnOnce(*mut mlx_array, mlx_stream) -> i32,
) -> Result<Array> {
    let stream = Stream::thread_local_or_default();
    // SAFETY: a fresh empty handle, owned here until it is wrapped or freed.
    let mut out = unsafe { mlx_sys::mlx_array_new() };
    if call(&mut out, stream.as_ptr()) == 0 {
        // SAFETY: `out` is a valid handle that nobody else owns.
        return Ok(unsafe { Array::from_ptr(out) });
    }
    // SAFETY: as above.
    unsafe { mlx_sys::mlx_array_free(out) };
    let operands: Vec<String> = operands.iter().map(|x| format!("{:?}{:?}", x.dtype(), x.shape())).collect();
    bail!("MLX cannot do `{name}` on {}", operands.join(", "))
}

/// Has mlx-rs install its error handler, for whoever may begin with an operation of this file.
pub(crate) fn prepare() -> Result<()> {
    Array::from_slice(&[0i32], &[1]).as_dtype(mlx_rs::Dtype::Int32)?;
    Ok(())
}

type Two = unsafe extern "C" fn(*mut mlx_array, mlx_array, mlx_array, mlx_stream) -> i32;
type One = unsafe extern "C" fn(*mut mlx_array, mlx_array, mlx_stream) -> i32;

pub(super) fn two(name: &str, f: Two, x: &Array, y: &Array) -> Result<Array> {
    // SAFETY: all handles are live for the call, and `out` is writable.
    array(name, &[x, y], |out, stream| unsafe { f(out, x.as_ptr(), y.as_ptr(), stream) })
}

pub(super) fn one(name: &str, f: One, x: &Array) -> Result<Array> {
    // SAFETY: as in `two`.
    array(name, &[x], |out, stream| unsafe { f(out, x.as_ptr(), stream) })
}

/// Of mlx-c, whose sources the crate mlx-sys of the same number brings.
pub const C_VERSION: &str = "0.7.0";

/// Of the MLX library that is linked.
pub fn version() -> Option<String> {
    // SAFETY: `text` is ours until it is freed; what it holds ends with a zero and is copied before.
    unsafe {
        let mut text = mlx_sys::mlx_string_new();
        let told = mlx_sys::mlx_version(&mut text) == 0;
        let version = told.then(|| CStr::from_ptr(mlx_sys::mlx_string_data(text)).to_string_lossy().into_owned());
        mlx_sys::mlx_string_free(text);
        version
    }
}
