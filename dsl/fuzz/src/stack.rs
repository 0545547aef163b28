//! libFuzzer's own handler runs on the stack that has just overflowed, and the input is lost. This one has a stack of its
//! own and aborts, which libFuzzer does see.

use std::ptr;

const ALTERNATE: usize = 256 << 10;

/// Call once, before the first input.
pub fn report_overflow() {
    let memory = Box::leak(vec![0u8; ALTERNATE].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: ALTERNATE };
    // SAFETY: the stack lives as long as the process, and the handler only aborts.
    unsafe {
        libc::sigaltstack(&stack, ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_ONSTACK;
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

extern "C" fn on_fault(_signal: libc::c_int) {
    // SAFETY: abort is async-signal-safe.
    unsafe { libc::abort() }
}
