//! What generated MLX code works in: mode, dtype, states, probes.

use std::{collections::HashMap, fmt};

use mlx_rs::{Array, transforms};

use super::{array::upload, ops, record, update};
use crate::{
    error::{Context, Result},
    probes::Probes,
    tensor::DType,
};

/// A loaded family, generated.
pub trait Module {
    /// One graph by name (`step` is `forward` after `embed`), inputs in the order of its parameters. Results are lazy.
    fn graph(&self, core: &mut Core, name: &str, inputs: &[Array]) -> Result<Vec<Array>>;
}

#[derive(Debug)]
pub struct Core {
    float: DType,
    fused: bool,
    probing: Probes,
    /// Positions that states show in this call.
    pub(super) positions: i64,
    /// By field path.
    pub(super) states: HashMap<String, Array>,
    /// Of this call, in the order of execution.
    pub(super) probes: Vec<(String, Array)>,
}

impl Core {
    /// Without states.
    pub fn new(float: DType, fused: bool) -> Core {
        Core { float, fused, probing: Probes::Unread, positions: 0, states: HashMap::new(), probes: Vec::new() }
    }

    /// What [`Core::probe`] does.
    pub(super) fn set_probing(&mut self, probing: Probes) {
        self.probing = probing;
    }

    /// The dtype of `F`.
    pub fn f(&self) -> DType {
        self.float
    }

    /// `T`
    pub fn positions(&self) -> i64 {
        self.positions
    }

    /// Whether twins stand in for definitions.
    pub fn fused(&self) -> bool {
        self.fused
    }

    /// Number of elements.
    pub fn size(&self, x: &Array) -> i64 {
        x.size() as i64
    }

    /// Starts computing `values`, so that the cores work while the graph of the next layer is built.
    pub fn begin(&self, values: &[&Array]) -> Result<()> {
        if record::recording() {
            return Ok(());
        }
        Ok(transforms::async_eval(values.iter().copied())?)
    }

    /// Names a value, and gives what the call goes on from.
    pub fn probe(&mut self, name: fmt::Arguments<'_>, value: Array) -> Result<Array> {
        if !self.probing.reported() {
            return Ok(value);
        }
        let name = name.to_string();
        let shape: Vec<usize> = value.shape().iter().map(|n| *n as usize).collect();
        let instead = self.probing.instead(&name, ops::dtype(&value)?, &shape);
        self.probes.push((name, value.clone()));
        instead.map_or(Ok(value), |instead| upload(&instead))
    }

    pub fn state(&mut self, path: &str) -> Result<Array> {
        self.states.get(path).cloned().with_context(|| format!("there is no state {path}"))
    }

    pub fn set_state(&mut self, path: &str, value: &Array) -> Result<()> {
        self.states.insert(path.to_string(), value.clone());
        Ok(())
    }

    /// `state = update(state, x, positions, axis)`. The old state is let go first, so MLX writes into its buffer.
    pub fn update_state(&mut self, path: &str, x: &Array, positions: &Array, axis: i32) -> Result<Array> {
        let old = self.states.remove(path).with_context(|| format!("there is no state {path}"))?;
        let new = update::rows(old, x, positions, axis).with_context(|| format!("state {path}"))?;
        self.states.insert(path.to_string(), new.clone());
        Ok(new)
    }
}
