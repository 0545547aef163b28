//! What generated MLX code works in: mode, dtype, states, probes.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    ops::Range,
};

use mlx_rs::{Array, transforms};

use super::{array::upload, ops, record, update};
use crate::{
    error::{Context, Result},
    probes::Probes,
    tensor::DType,
    windows::Window,
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

/// What a call sees of the states with one window.
#[derive(Debug)]
pub(super) struct Sight {
    /// By row of the call, the first position that the states hold.
    pub firsts: Vec<i32>,
    /// Positions from there on.
    pub count: i32,
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
    /// By path, the states that do not hold every position.
    pub(super) windows: BTreeMap<String, Window>,
    pub(super) sights: BTreeMap<Window, Sight>,
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
            windows: BTreeMap::new(),
            sights: BTreeMap::new(),
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
        self.seen(path, held)
    }

    fn sight(&self, path: &str) -> Option<&Sight> {
        self.sights.get(self.windows.get(path)?)
    }

    /// `start..end` per axis of a state; `None` for all of it.
    fn bounds(&self, path: &str, held: &Held) -> Option<(Vec<i32>, Vec<i32>)> {
        let sight = self.sight(path);
        if self.part.is_none() && sight.is_none() {
            return None;
        }
        let mut end = held.array.shape().to_vec();
        let mut start = vec![0; end.len()];
        if let Some(part) = &self.part {
            // Rows are the first axis of every state.
            (start[0], end[0]) = (part.rows.start, part.rows.end);
        }
        if let Some(axis) = held.positions {
            end[axis] = match (sight, &self.part) {
                (Some(sight), _) => sight.count,
                (None, Some(part)) => part.positions,
                (None, None) => end[axis],
            };
        }
        Some((start, end))
    }

    /// MLX cuts rows and positions out without a copy.
    fn seen(&self, path: &str, held: &Held) -> Result<Array> {
        match self.bounds(path, held) {
            None => Ok(held.array.clone()),
            Some((start, end)) => update::cut(&held.array, &start, &end),
        }
    }

    /// A value over all positions that the call sees, one of its axes, cut to those that a state holds.
    pub fn held_part(&self, path: &str, value: &Array, axis: i32) -> Result<Array> {
        let Some(Sight { firsts, count }) = self.sight(path) else { return Ok(value.clone()) };
        let shape = value.shape().to_vec();
        let at = usize::try_from(i64::from(axis) + shape.len() as i64).ok().filter(|at| 0 < *at && *at < shape.len());
        let at = at.with_context(|| format!("a value of {} axes has no positions at {axis}", shape.len()))?;
        let part = |rows: Range<i32>, first: i32| {
            let (mut start, mut end) = (vec![0; shape.len()], shape.clone());
            (start[0], end[0]) = (rows.start, rows.end);
            (start[at], end[at]) = (first, first + count);
            update::cut(value, &start, &end)
        };
        let first = firsts.first().copied().unwrap_or(0);
        if firsts.iter().all(|other| *other == first) {
            return part(0..shape[0], first);
        }
        let parts = (0..).zip(firsts).map(|(row, first)| part(row..row + 1, *first)).collect::<Result<Vec<_>>>()?;
        Ok(mlx_rs::ops::concatenate(&parts, 0)?)
    }

    pub fn set_state(&mut self, path: &str, value: &Array) -> Result<()> {
        let old = self.states.remove(path).with_context(|| format!("there is no state {path}"))?;
        let array = match self.bounds(path, &old) {
            None => value.clone(),
            Some((start, end)) => update::write(&old.array, value, &start, &end)?,
        };
        self.states.insert(path.to_string(), Held { array, positions: old.positions });
        Ok(())
    }

    /// `state = update(state, x, positions, axis)`. The old state is let go first, so MLX writes into its buffer.
    pub fn update_state(&mut self, path: &str, x: &Array, positions: &Array, axis: i32) -> Result<Array> {
        let old = self.states.remove(path).with_context(|| format!("there is no state {path}"))?;
        let rows = self.part.as_ref().map_or(0..old.array.shape()[0], |part| part.rows.clone());
        let firsts = self.sight(path).map(|sight| &sight.firsts[..]);
        let array =
            update::rows(old.array, x, positions, axis, rows, firsts).with_context(|| format!("state {path}"))?;
        let new = Held { array, positions: old.positions };
        let seen = self.seen(path, &new);
        self.states.insert(path.to_string(), new);
        seen
    }
}
