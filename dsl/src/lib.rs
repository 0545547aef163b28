//! The mgraph language: text -> tree -> typed graph IR, and what may be done with the IR without a backend.

pub mod analysis;
pub mod ast;
pub mod bind;
mod check;
pub mod config;
pub mod diagnostic;
pub mod dim;
pub mod format;
pub mod graphs;
pub mod interpret;
pub mod ir;
pub mod kernels;
pub mod load;
pub mod ops;
pub mod parser;
pub mod pattern;
pub mod print;
pub mod source;
pub mod trace;
pub mod windows;

pub use check::{
    Failed, LANGUAGE_VERSION, compile, compile_file, compile_text, compile_whole_prelude, prelude_sources,
};

#[cfg(test)]
mod testing;
