//! Random well-typed graphs: what a test of any executor needs. Included by path.
//!
//! A recipe is a list of numbers that proptest draws and shrinks; `build` makes a program of it that the checker must take, with
//! operands whose arithmetic is exact in every dtype that occurs, so that all executors owe the same numbers.

pub mod build;
pub mod calls;
pub mod dims;
pub mod pool;
pub mod recipe;
pub mod steps;
