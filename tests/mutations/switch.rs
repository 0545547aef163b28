//! Which mutant runs on this thread, which were passed by, and the changes that generated code computes.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
};

thread_local! {
    static ACTIVE: Cell<u32> = const { Cell::new(0) };
    static REACHED: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) };
}

/// At a place that those mutants change: the one that runs; 0 for none.
pub fn at(mutants: &[u32]) -> u32 {
    REACHED.with_borrow_mut(|reached| reached.extend(mutants));
    ACTIVE.get()
}

/// Run with one mutant.
pub fn with<T>(mutant: u32, run: impl FnOnce() -> T) -> T {
    ACTIVE.set(mutant);
    let result = run();
    ACTIVE.set(0);
    result
}

/// The mutants whose places were reached since this was last asked.
pub fn take_reached() -> BTreeSet<u32> {
    REACHED.take()
}

/// Another number, by 2^-7 of it: also in bf16.
pub fn off(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { x * 1.0078125 }
}

pub fn reversed<T: Copy>(list: &[T]) -> Vec<T> {
    list.iter().rev().copied().collect()
}

/// The axis behind, or before the last.
pub fn axis(axis: i32) -> i32 {
    if axis == -1 { -2 } else { axis + 1 }
}

/// Each one before.
pub fn axes(of: &[i32]) -> Vec<i32> {
    of.iter().map(|axis| axis - 1).collect()
}

/// The last two swapped.
pub fn permutation<T: Copy>(of: &[T]) -> Vec<T> {
    let mut of = of.to_vec();
    let last = of.len() - 1;
    of.swap(last - 1, last);
    of
}
