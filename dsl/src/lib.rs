//! The mgraph language: text -> tree -> typed graph IR, and what may be done with the IR without a backend.

pub mod ast;
pub mod bind;
pub mod config;
pub mod diagnostic;
pub mod dim;
pub mod interpret;
pub mod ir;
pub mod load;
pub mod parser;
pub mod source;
pub mod trace;

#[cfg(test)]
mod testing;
