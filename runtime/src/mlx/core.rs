//! What generated MLX code works in: mode, dtype, states, probes.

use std::{collections::HashMap, fmt, ops::Range};

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

/// A state, over all rows and all positions there is room for.
#[derive(Debug)]
pub(super) struct Held {
    pub array: Array,
    /// The axis of positions.
    pub positions: Option<usize>,
}

/// What a call sees of the states, where that is not all: some rows, over their first positions.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub rows: Range<i32>,
    pub positions: i32,
}

impl Part {
    /// `start..end` per axis of a state.
    fn bounds(&self, held: &Held) -> (Vec<i32>, Vec<i32>) {
        let mut end = held.array.shape().to_vec();
        let mut start = vec![0; end.len()];
        // Rows are the first axis of every state.
        (start[0], end[0]) = (self.rows.start, self.rows.end);
        if let Some(axis) = held.positions {
            end[axis] = self.positions;
        }
        (start, end)
    }
}

#[derive(Debug)]
pub struct Core {
    float: DType,
    fused: bool,
    probing: Probes,
    /// Positions that states show in this call.
    pub(super) positions: i64,
    /// By field path.
    pub(super) states: HashMap<String, Held>,
    pub(super) part: Option<Part>,
    /// Of this call, in the order of execution.
    pub(super) probes: Vec<(String, Array)>,
}

impl Core {
    /// Without states.
    pub fn new(float: DType, fused: bool) -> Core {
        Core {
            float,
            fused,
            probing: Probes::Unread,
            positions: 0,
            states: HashMap::new(),
            part: None,
            probes: Vec::new(),
        }
    }

    /// What [`Core::probe`] does in the next call. What a failed one has left is dropped.
    pub(super) fn set_probing(&mut self, probing: Probes) {
        self.probing = probing;
        self.probes.clear();
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

    /// Starts computing `values`, so that the cores work while the graph of the next layer is built. Not where probes are
    /// reported: those are computed one after another, so that each can be let go before the next.
    pub fn begin(&self, values: &[&Array]) -> Result<()> {
        if record::recording() || self.probing.reported() {
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

    /// A state as the call sees it.
    pub fn state(&mut self, path: &str) -> Result<Array> {
        let held = self.states.get(path).with_context(|| format!("there is no state {path}"))?;
        self.seen(held)
    }

    /// MLX cuts rows and positions out without a copy.
    fn seen(&self, held: &Held) -> Result<Array> {
        let Some(part) = &self.part else { return Ok(held.array.clone()) };
        let (start, end) = part.bounds(held);
        update::cut(&held.array, &start, &end)
    }

    pub fn set_state(&mut self, path: &str, value: &Array) -> Result<()> {
        let old = self.states.remove(path).with_context(|| format!("there is no state {path}"))?;
        let array = match &self.part {
            None => value.clone(),
            Some(part) => {
                let (start, end) = part.bounds(&old);
                update::write(&old.array, value, &start, &end)?
            }
        };
        self.states.insert(path.to_string(), Held { array, positions: old.positions });
        Ok(())
    }

    /// `state = update(state, x, positions, axis)`. The old state is let go first, so MLX writes into its buffer.
    pub fn update_state(&mut self, path: &str, x: &Array, positions: &Array, axis: i32) -> Result<Array> {
        let old = self.states.remove(path).with_context(|| format!("there is no state {path}"))?;
        let rows = self.part.as_ref().map_or(0..old.array.shape()[0], |part| part.rows.clone());
        let array = update::rows(old.array, x, positions, axis, rows).with_context(|| format!("state {path}"))?;
        let new = Held { array, positions: old.positions };
        let seen = self.seen(&new);
        self.states.insert(path.to_string(), new);
        seen
    }
}
