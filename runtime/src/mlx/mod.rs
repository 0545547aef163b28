//! The MLX backend: what generated eager code calls, and a session over it.
//!
//! Arrays are lazy: code builds a graph, and [`MlxSession`] evaluates it, on the one thread that owns everything of MLX
//! (an array cannot be evaluated on a thread other than the one that made it).

mod array;
mod core;
pub mod kernels;
mod matrix;
pub mod ops;
mod policy;
mod raw;
pub mod readback;
pub mod record;
mod session;
mod streams;
#[cfg(test)]
mod tests;
mod update;
mod weights;

pub(crate) use self::{
    array::{download, upload},
    policy::hold,
    raw::prepare,
};
pub use self::{
    core::{Core, Module},
    matrix::Matrix,
    policy::VARIABLE as TF32_VARIABLE,
    raw::{C_VERSION, version},
    session::MlxSession,
    streams::threads,
    weights::Weights,
};
pub use mlx_rs::Array;
