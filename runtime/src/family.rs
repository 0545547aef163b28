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
    pub mlx: fn(&Resolved, &mut mlx::Weights<'_>) -> Result<Box<dyn mlx::Module>>,
    /// Emit one graph: `inputs` in the order of its parameters, results in order.
    pub hlo: fn(&Resolved, &mut hlo::Build, graph: &str, inputs: &[hlo::V]) -> Result<Vec<hlo::V>>,
}
