//! From the typed graph IR to Rust source: an eager MLX module and a StableHLO emitter, which read like the family they
//! come from. Called by build scripts ([`build`]) and by the macro; knows no checkpoint and touches no tensor.
//!
//! The two backends share the structure of the text: functions, loops, branches, names (`body`, `block`). What differs is one
//! exhaustive match over the primitives each (`mlx`, `hlo`). Every operation is one statement, so the order of the
//! program is the order of the source. Code for values that only a probe reads is emitted like any other: MLX is lazy and
//! StableHLO drops what nobody reads, so such values are computed only when probes are on.

mod backend;
mod block;
mod body;
pub mod build;
mod code;
mod config;
mod dims;
mod error;
mod hlo;
mod load;
mod mlx;
mod module;
pub mod names;
mod reach;
mod scope;
mod uses;

pub use error::{Error, Result};
pub use module::{Options, emit, emit_pair, format};
