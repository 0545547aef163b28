//! The StableHLO backend: generated code records a graph with [`Build`], [`emit`] writes it as MLIR, IREE compiles and runs
//! it. [`readback`] reads the MLIR again and says what is in it, for the certificate.
//!
//! Nothing here knows a family, a checkpoint's layout, or a model.

pub mod artifact;
mod build;
pub mod compile;
pub mod emit;
mod fusion;
pub mod graph;
mod in_place;
pub mod iree;
mod ops;
mod pinned;
pub mod readback;
mod session;
mod states;
mod types;

pub use build::{Build, BuildOptions, Matrix, WeightType};
pub use graph::Graph;
pub use mgraph_dsl::ir::Compare;
pub use session::{FILL_UP, HloSession};
pub use types::{DType, Type, V};

#[cfg(test)]
mod tests;
