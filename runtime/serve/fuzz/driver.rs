//! libFuzzer with a `main` of Rust: MLIR's archives have one of their own, which the linker would take instead of libFuzzer's.

use std::{
    env,
    ffi::{CString, c_char, c_int},
    ptr,
};

unsafe extern "C" {
    fn LLVMFuzzerRunDriver(
        count: *mut c_int,
        arguments: *mut *mut *mut c_char,
        run: unsafe extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
    fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> c_int;
}

/// Runs what `fuzz_target!` defines; libFuzzer's status.
pub fn main() -> ! {
    let owned: Vec<CString> =
        env::args().map(|argument| CString::new(argument).expect("no argument has a zero")).collect();
    let mut arguments: Vec<*mut c_char> = owned.iter().map(|argument| argument.as_ptr().cast_mut()).collect();
    let mut count = arguments.len() as c_int;
    arguments.push(ptr::null_mut());
    let mut first = arguments.as_mut_ptr();
    // SAFETY: arguments as C's `main` has them, alive until the end; libFuzzer copies them before it changes any.
    let status = unsafe { LLVMFuzzerRunDriver(&mut count, &mut first, LLVMFuzzerTestOneInput) };
    std::process::exit(status)
}
