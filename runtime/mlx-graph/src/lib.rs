//! The graph behind MLX arrays that were not evaluated yet, as text: one line per array, operands first. `graph.cpp` says what a
//! line holds; whoever reads it is `mgraph_runtime::mlx::readback`.
//!
//! mlx-c has no way to look into an array, and MLX's own export writes a file. On Apple targets there is nothing here, see
//! `build.rs`.
#![cfg(not(target_vendor = "apple"))]

use std::ffi::{CStr, c_char};

use mlx_sys::mlx_array;

unsafe extern "C" {
    fn mgraph_mlx_id(array: mlx_array) -> usize;
    fn mgraph_mlx_graph(
        results: *const mlx_array,
        result_count: usize,
        leaves: *const mlx_array,
        leaf_count: usize,
    ) -> *mut c_char;
    fn mgraph_mlx_free(text: *mut c_char);
}

/// Names the array in the text, for as long as it lives.
///
/// # Safety
/// The handle is of a live array.
pub unsafe fn id(array: mlx_array) -> usize {
    // SAFETY: as the caller promises.
    unsafe { mgraph_mlx_id(array) }
}

/// Everything that `results` are computed from; what `leaves` are computed from is left out. `None` where memory ends.
///
/// # Safety
/// All handles are of live arrays, none of which is evaluated by another thread meanwhile.
pub unsafe fn text(results: &[mlx_array], leaves: &[mlx_array]) -> Option<String> {
    // SAFETY: both slices are live for the call, and the text is ours until it is freed.
    unsafe {
        let text = mgraph_mlx_graph(results.as_ptr(), results.len(), leaves.as_ptr(), leaves.len());
        if text.is_null() {
            return None;
        }
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        mgraph_mlx_free(text);
        Some(copy)
    }
}
