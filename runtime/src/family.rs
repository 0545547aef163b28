//! What `cargo build` generates for one family: the registry entry through which the runtime reaches it.

use mgraph_dsl::config::Resolved;

use crate::{error::Result, hlo, mlx};

/// An entry of the generated registry.
pub struct Family {
    /// As after `family`.
    pub name: &'static str,
    /// Values of `model_type` in config.json that this family serves.
    pub model_types: &'static [&'static str],
    /// Path of the source, as diagnostics show it.
    pub file: &'static str,
    /// The source itself: config, binding and the reference interpreter run from it.
    pub source: &'static str,
    /// [`mgraph_dsl::ir::Program::digest`] of what the code was generated from.
    pub digest: &'static str,
    /// Build the eager MLX module over bound weights.
    pub mlx: MlxLoader,
    /// Emit one graph as StableHLO.
    pub hlo: HloEmitter,
}

pub type MlxLoader = fn(&Resolved, &mut mlx::Weights<'_>) -> Result<Box<dyn mlx::Module>>;

/// Config, recorder, name of the graph, its parameters in order; the graph's results in order.
pub type HloEmitter = fn(&Resolved, &mut hlo::Build, &str, &[hlo::V]) -> Result<Vec<hlo::V>>;
