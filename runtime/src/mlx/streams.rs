//! Both cores for large products. A CPU stream of MLX is one thread, so a product with many rows of a matrix is cut into row
//! ranges, one stream each; no sum is cut.
//!
//! OpenBLAS could share the work itself, but its threads wait for each other by spinning: with another busy process on the machine
//! a prefill of 256 tokens took 2.4 to 7 s, and 1.2 s on one thread. MLX's streams sleep while they wait.

use mlx_rs::{Array, Device, Stream, ops, with_stream};

use super::ops as own;
use crate::{error::Result, generated::Cut};

/// A part of fewer multiplications (some 60 us) costs more than it saves.
const WORTH: i64 = 1 << 21;
/// Reading a weight from memory takes as long as this many multiplications.
const READ: i64 = 16;
const MOST: usize = 8;

thread_local! {
    /// Streams besides the default one, each with a thread of its own for as long as the process lives.
    static OTHERS: Vec<Stream> = {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (1..cores.min(MOST)).map(|_| Stream::new_with_device(&Device::cpu())).collect()
    };
}

/// `product` of a matrix `[N, K]`, whose results are joined along their last axis; `work` multiplications in all.
pub(super) fn by_rows(w: &Array, work: i64, product: impl Fn(&Array) -> Result<Array>) -> Result<Array> {
    let rows = own::dim(w, -2)?;
    OTHERS.with(|others| {
        let others = if cfg!(target_vendor = "apple") { &[] } else { &others[..] };
        let parts = (others.len() as i64 + 1).min((work + READ * w.size() as i64) / WORTH).min(rows);
        if w.ndim() != 2 || parts < 2 {
            return product(w);
        }
        let part = |number: i64| {
            let range = Cut::Range(rows * number / parts, rows * (number + 1) / parts);
            product(&own::cut(w, &[range, Cut::Whole])?)
        };
        let mut results = vec![part(0)?];
        for (number, stream) in (1..parts).zip(others) {
            results.push(with_stream(stream, || part(number))?);
        }
        Ok(ops::concatenate(&results, -1)?)
    })
}

/// CPU streams that a large product is cut over.
pub fn threads() -> usize {
    if cfg!(target_vendor = "apple") {
        1
    } else {
        std::thread::available_parallelism().map_or(1, usize::from).min(MOST)
    }
}

/// Leaves the cores to MLX's streams. Nothing where MLX's BLAS is another.
pub(super) fn one_blas_thread() {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the name is a C string; a null pointer is the answer where no loaded library has it.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"scipy_openblas_set_num_threads".as_ptr()) };
        if !symbol.is_null() {
            // SAFETY: OpenBLAS declares `void openblas_set_num_threads(int)`, and scipy-openblas only adds the prefix.
            let set: extern "C" fn(std::ffi::c_int) = unsafe { std::mem::transmute(symbol) };
            set(1);
        }
    }
}
