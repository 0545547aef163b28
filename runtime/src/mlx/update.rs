//! Writing new tokens into a state, and cutting rows out of it.

use std::ops::Range;

use mlx_rs::Array;

use super::{array::sizes, raw};
use crate::error::{Result, ensure};

/// Token `s` of row `b` at `positions[b, s]` along `axis` (from the back), where the call's rows are `covered` of the state. Positions
/// of a row are consecutive, so each row is one slice; rows that begin at the same position are one slice together. `firsts`: the
/// positions that lie first in the rows of the call, where that is not 0.
///
/// Takes the state by value: where nobody else holds it, MLX writes into its buffer instead of copying it.
pub(super) fn rows(
    state: Array,
    x: &Array,
    positions: &Array,
    axis: i32,
    covered: Range<i32>,
    firsts: Option<&[i32]>,
) -> Result<Array> {
    let rank = state.ndim();
    let axis = if axis < 0 { axis + rank as i32 } else { axis } as usize;
    ensure!(0 < axis && axis < rank, "a state of {rank} axes cannot be updated along axis {axis}");
    // Nothing to write, and MLX gives no pointer to no positions.
    if x.size() == 0 || positions.size() == 0 {
        return Ok(state);
    }
    let (held, new) = (state.shape().to_vec(), x.shape().to_vec());
    let width = new.get(axis).copied().unwrap_or_default();
    // Positions come from the host, so there is nothing to compute here.
    let positions = positions.contiguous()?;
    let mut starts: Vec<i32> =
        positions.try_as_slice::<i32>()?.iter().step_by(width.max(1) as usize).copied().collect();
    let count = covered.len();
    ensure!(starts.len() == count, "{} rows of positions for {count} rows of a state", starts.len());
    if let Some(firsts) = firsts {
        ensure!(firsts.len() == count, "{} first positions for {count} rows of a state", firsts.len());
        starts.iter_mut().zip(firsts).for_each(|(start, first)| *start -= first);
    }
    for start in &starts {
        let end = i64::from(*start) + i64::from(width);
        ensure!(
            *start >= 0 && end <= i64::from(held[axis]),
            "positions {start}..{end} lie outside a state of {} positions",
            held[axis]
        );
    }
    if starts.iter().all(|start| *start == starts[0]) {
        return slice(&state, x, axis, starts[0], covered);
    }
    let mut state = state;
    for (row, start) in starts.iter().enumerate() {
        let index = Array::from_slice(&[row as i32], &sizes([1])?);
        let one = super::ops::take(x, &index, 0)?;
        let row = covered.start + row as i32;
        state = slice(&state, &one, axis, *start, row..row + 1)?;
    }
    Ok(state)
}

fn slice(state: &Array, x: &Array, axis: usize, start: i32, rows: Range<i32>) -> Result<Array> {
    let mut from = vec![0; state.ndim()];
    let mut to = state.shape().to_vec();
    (from[0], to[0]) = (rows.start, rows.end);
    (from[axis], to[axis]) = (start, start + x.shape()[axis]);
    write(state, x, &from, &to)
}

/// `state` with `x` at `from..to`, one bound per axis each.
pub(super) fn write(state: &Array, x: &Array, from: &[i32], to: &[i32]) -> Result<Array> {
    let n = state.ndim();
    ensure!(from.len() == n && to.len() == n, "bounds of {} and {} axes for a state of {n}", from.len(), to.len());
    let strides = vec![1; n];
    // SAFETY: all handles are live for the call; the three slices have `n` elements each.
    raw::array("update", &[state, x], |out, stream| unsafe {
        mlx_sys::mlx_slice_update(
            out,
            state.as_ptr(),
            x.as_ptr(),
            from.as_ptr(),
            n,
            to.as_ptr(),
            n,
            strides.as_ptr(),
            n,
            stream,
        )
    })
}

/// `from..to` of a state, one bound per axis each.
pub(super) fn cut(state: &Array, from: &[i32], to: &[i32]) -> Result<Array> {
    let n = state.ndim();
    ensure!(from.len() == n && to.len() == n, "bounds of {} and {} axes for a state of {n}", from.len(), to.len());
    let strides = vec![1; n];
    // SAFETY: all handles are live for the call; the three slices have `n` elements each.
    raw::array("slice", &[state], |out, stream| unsafe {
        mlx_sys::mlx_slice(out, state.as_ptr(), from.as_ptr(), n, to.as_ptr(), n, strides.as_ptr(), n, stream)
    })
}
