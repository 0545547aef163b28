//! More than one core for kernels that MLX runs on one: a CPU stream is one thread, so a large product is cut into row
//! ranges, one stream each. No sum is cut, so every result is the same bit for bit.

use mlx_rs::{Array, Stream, ops, with_stream};

use super::ops as own;
use crate::{error::Result, generated::Cut};

/// A part of fewer multiplications gains less than waking another thread costs (1.2e9 a second and tens of microseconds measured).
const WORTH: i64 = 1 << 17;
const MOST: usize = 4;

thread_local! {
    /// Streams besides the default one. A stream is bound to the thread that uses it, and its own thread lives on.
    static OTHERS: Vec<Stream> = {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (1..cores.min(MOST)).map(|_| Stream::new_with_device(&mlx_rs::Device::cpu())).collect()
    };
}

/// How many parts a product of `work` multiplications with `rows` rows of the matrix is worth cutting into.
fn parts(work: i64, rows: i64) -> i64 {
    if cfg!(target_vendor = "apple") {
        return 1;
    }
    let streams = OTHERS.with(|others| others.len() as i64 + 1);
    streams.min(work / WORTH).min(rows).max(1)
}

/// `product` over the rows `low..high` of a matrix of `rows` rows, joined along the last axis of the result.
pub(super) fn by_rows(work: i64, rows: i64, product: impl Fn(Cut) -> Result<Array>) -> Result<Array> {
    let parts = parts(work, rows);
    if parts == 1 {
        return product(Cut::Whole);
    }
    let mut results = Vec::with_capacity(parts as usize);
    for part in 0..parts {
        let cut = Cut::Range(rows * part / parts, rows * (part + 1) / parts);
        results.push(match part {
            0 => product(cut)?,
            _ => OTHERS.with(|others| with_stream(&others[part as usize - 1], || product(cut)))?,
        });
    }
    Ok(ops::concatenate(&results, -1)?)
}

/// Rows of a matrix stored with any number of columns.
pub(super) fn rows(matrix: &Array, cut: Cut) -> Result<Array> {
    match cut {
        Cut::Whole => Ok(matrix.clone()),
        Cut::Range(..) | Cut::At(_) => own::cut(matrix, &[cut, Cut::Whole]),
    }
}
