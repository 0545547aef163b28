//! A session on MLX. One thread owns the module, the states and every array; calls are sent to it and answered.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use mgraph_dsl::{
    bind::{State, StateDim},
    config::Resolved,
    ir::Program,
};
use mlx_rs::{Array, ops, transforms};

use super::{
    array::{download, sizes, to_mlx, upload},
    core::{Core, Held, Module, Part, Sight},
    policy, streams, update,
    weights::Weights,
};
use crate::{
    error::{Context, Error, Result, anyhow, bail, ensure},
    inputs::{self, Given},
    memory,
    model::Model,
    probes::Probes,
    session::{Batch, Float, Numerics, ProbeSink, Session, SessionOptions, within},
    tensor::{DType, Tensor},
    windows::{self, Firsts, Move, Window},
};

/// States grow by this many positions at a time: attention reads what is held, so a short conversation does not pay for
/// the whole context, and a copy of the cache every 64 tokens is nothing beside 64 steps.
const GROWTH: usize = 64;

pub struct MlxSession {
    work: Option<mpsc::Sender<Job>>,
    worker: Option<JoinHandle<()>>,
    options: SessionOptions,
    program: Arc<Program>,
    resolved: Arc<Resolved>,
}

/// Probes of a call on their way to whoever looks at them, in the order of execution.
type Probed = mpsc::SyncSender<(String, Tensor)>;

/// Probes that the cores work on while one is copied and looked at. Each holds its numbers until then.
const AHEAD: usize = 2;

type Job = Box<dyn FnOnce(&mut Worker) + Send>;

/// Lives on the MLX thread.
struct Worker {
    module: Box<dyn Module>,
    core: Core,
    declared: Vec<State>,
    float: DType,
    rows: usize,
    capacity: usize,
    /// Positions that states have room for at present.
    held: usize,
    /// By row, the positions that its calls see: as many as a session would hold that served this row alone, so that no row's
    /// numbers depend on how long another one is.
    seen: Vec<usize>,
    firsts: Firsts,
}

impl MlxSession {
    /// Loads the weights of `model` onto MLX.
    ///
    /// Errors: a narrow dtype where MLX cannot compute in it; weights that cannot be read.
    pub fn open(model: &Arc<Model>, options: SessionOptions) -> Result<MlxSession> {
        if cfg!(not(target_vendor = "apple")) && options.dtype != Float::F32 {
            bail!(
                "the mlx backend computes wrongly in bf16 and f16 on this processor: MLX's CPU kernels sum in the narrow \
                 dtype (4096 ones make 256). Use --dtype f32, which keeps packed weights packed, or --backend iree"
            );
        }
        policy::hold(model.family.name, model.program.numerics.tf32)?;
        memory::keep_freed();
        let (work, jobs) = mpsc::channel::<Job>();
        let (ready, opened) = mpsc::channel();
        let (program, resolved) = (Arc::clone(&model.program), Arc::clone(&model.resolved));
        let (model, wanted) = (Arc::clone(model), options.clone());
        let worker = thread::Builder::new()
            .name("mlx".into())
            .spawn(move || {
                let mut worker = match Worker::open(&model, &wanted) {
                    Ok(worker) => worker,
                    Err(error) => {
                        // Whoever waits for the answer is the only one to tell.
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                drop(model);
                let _ = ready.send(Ok(()));
                while let Ok(job) = jobs.recv() {
                    job(&mut worker);
                }
            })
            .context("starting the MLX thread")?;
        opened.recv().map_err(|_| anyhow!("the MLX thread ended while it loaded the weights"))??;
        Ok(MlxSession { work: Some(work), worker: Some(worker), options, program, resolved })
    }

    fn run<R: Send + 'static>(&self, call: impl FnOnce(&mut Worker) -> Result<R> + Send + 'static) -> Result<R> {
        self.begin(call)?.recv().map_err(|_| gone())?
    }

    /// The answer comes through the channel.
    fn begin<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Worker) -> Result<R> + Send + 'static,
    ) -> Result<mpsc::Receiver<Result<R>>> {
        let (answer, answered) = mpsc::channel();
        let job: Job = Box::new(move |worker| {
            // Nobody waits any more only where the session itself is gone.
            let _ = answer.send(call(worker));
        });
        self.work.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
        Ok(answered)
    }

    /// One graph, `step` among them.
    fn work(&self, graph: &str, given: Given, probes: Option<ProbeSink<'_>>) -> Result<Vec<Tensor>> {
        let probing = if probes.is_some() { self.options.probes.clone() } else { Probes::Unread };
        let graph = graph.to_owned();
        let (tell, told) = mpsc::sync_channel(1);
        let answer = self.begin(move |worker| worker.call(&graph, &given, probing, &tell))?;
        if let Some(sink) = probes {
            // Whoever refuses one drops `told`, and the call ends at its next probe.
            told.into_iter().try_for_each(|(name, value)| sink(&name, value))?;
        }
        answer.recv().map_err(|_| gone())?
    }
}

fn gone() -> Error {
    anyhow!("the MLX thread has ended")
}

impl Drop for MlxSession {
    fn drop(&mut self) {
        self.work = None;
        if let Some(worker) = self.worker.take() {
            // A panic there was reported where it happened.
            let _ = worker.join();
        }
    }
}

impl Session for MlxSession {
    fn call(
        &mut self,
        graph: &str,
        inputs: &[(&str, Tensor)],
        first_row: usize,
        probes: Option<ProbeSink<'_>>,
    ) -> Result<Vec<Tensor>> {
        let float = self.options.dtype.dtype();
        let given = inputs::of_graph(&self.program, &self.resolved, graph, inputs, first_row, float)?;
        self.work(graph, given, probes)
    }

    fn step(&mut self, batch: &Batch, probes: Option<ProbeSink<'_>>) -> Result<Tensor> {
        batch.check(&self.options)?;
        let given = inputs::of_batch(&self.program, &self.resolved, batch, self.options.dtype.dtype())?;
        let results = self.work("step", given, probes)?;
        let [logits] = <[Tensor; 1]>::try_from(results)
            .map_err(|results| anyhow!("`step` returned {} results instead of the logits alone", results.len()))?;
        Ok(logits)
    }

    /// Exact: MLX compiles nothing, so there is nothing to fill up.
    fn width(&self, tokens: usize) -> usize {
        tokens.clamp(1, self.options.max_chunk.max(1))
    }

    fn width_of_all(&self, tokens: usize) -> usize {
        tokens.max(1)
    }

    fn capacity(&self) -> usize {
        self.options.capacity
    }

    fn reset(&mut self) -> Result<()> {
        self.run(|worker| worker.reset())
    }

    fn forget(&mut self, row: usize, kept: usize) -> Result<()> {
        within(&(row..row.saturating_add(1)), self.options.rows)?;
        self.run(move |worker| worker.forget(row, kept))
    }

    fn least_kept(&self, row: usize) -> usize {
        self.run(move |worker| Ok(worker.firsts.least(row))).unwrap_or(usize::MAX)
    }

    fn state(&mut self, path: &str) -> Result<Tensor> {
        let path = path.to_string();
        self.run(move |worker| worker.state(&path))
    }

    fn prepare(&mut self, _: &[(usize, usize)], _: &mut dyn FnMut(&str)) -> Result<()> {
        Ok(())
    }
}

impl Worker {
    fn open(model: &Model, options: &SessionOptions) -> Result<Worker> {
        let float = options.dtype.dtype();
        // Any call of mlx-rs installs its error handler, without which an error in MLX ends the process.
        ops::zeros::<f32>(&[1])?.eval()?;
        streams::one_blas_thread();
        let reader = model.weights();
        let mut weights = Weights::new(&reader, float);
        let module = (model.family.mlx)(&model.resolved, &mut weights)?;
        let mut worker = Worker {
            module,
            core: Core::new(float, options.numerics == Numerics::Fused),
            declared: model.bindings.states.clone(),
            float,
            rows: options.rows,
            capacity: options.capacity,
            held: 0,
            seen: Vec::new(),
            firsts: Firsts::default(),
        };
        worker.core.windows = windows::of(model, options, options.capacity);
        worker.reset()?;
        Ok(worker)
    }

    fn reset(&mut self) -> Result<()> {
        self.core.states.clear();
        self.held = 0;
        self.firsts = Firsts::new(&self.core.windows, self.rows);
        self.grow(1)?;
        self.seen = vec![self.held; self.rows];
        Ok(())
    }

    fn forget(&mut self, row: usize, kept: usize) -> Result<()> {
        let kept = kept.min(self.held);
        let before = self.firsts.clone();
        self.firsts.forget(row, kept)?;
        let rows = row as i32..row as i32 + 1;
        for state in &self.declared {
            let missing = || format!("there is no state {}", state.path);
            let Held { array, positions } = self.core.states.remove(&state.path).with_context(missing)?;
            let (mut start, mut end) = (vec![0; array.ndim()], array.shape().to_vec());
            (start[0], end[0]) = (rows.start, rows.end);
            if let Some(axis) = positions {
                let first = self.core.windows.get(&state.path).map_or(0, |window| before.of(*window, row));
                start[axis] = end[axis].min(kept.saturating_sub(first) as i32);
            }
            let gone: Vec<i32> = start.iter().zip(&end).map(|(start, end)| end - start).collect();
            let array = if gone.contains(&0) || (positions.is_none() && kept > 0) {
                array
            } else {
                update::write(&array, &ops::zeros_dtype(&gone, array.dtype())?, &start, &end)?
            };
            self.core.states.insert(state.path.clone(), Held { array, positions });
        }
        self.seen[row] = self.room(kept.max(1));
        Ok(transforms::eval(self.core.states.values().map(|held| &held.array))?)
    }

    fn state(&mut self, path: &str) -> Result<Tensor> {
        download(&self.core.states.get(path).with_context(|| format!("there is no state {path}"))?.array)
    }

    /// The room that states make for so many positions.
    fn room(&self, reach: usize) -> usize {
        reach.next_multiple_of(GROWTH).min(self.capacity).max(reach)
    }

    /// What a call of these rows sees. What is held of sliding-window layers moves down first, and room is made for all of it.
    fn part(&mut self, rows: &Range<usize>, given: &Given) -> Result<Option<Part>> {
        let room = self.room(given.reach);
        for seen in &mut self.seen[rows.clone()] {
            *seen = room.max(*seen);
        }
        self.core.sights.clear();
        for Move { window, row, by } in self.firsts.advance(rows.start, &given.starts, given.width)? {
            self.move_down(window, row, by)?;
        }
        let mut positions = self.seen[rows.clone()].iter().copied().max().unwrap_or(self.held);
        for window in self.firsts.windows() {
            let firsts: Vec<usize> = rows.clone().map(|row| self.firsts.of(*window, row)).collect();
            let ends = self.seen[rows.clone()].iter().zip(&firsts);
            let count = ends.map(|(seen, first)| seen.saturating_sub(*first)).max().unwrap_or(0).min(window.room);
            positions = firsts.iter().map(|first| first + count).max().unwrap_or(0).max(positions);
            let sight = Sight { firsts: sizes(firsts.iter().map(|n| *n as i64))?, count: count as i32 };
            self.core.sights.insert(*window, sight);
        }
        self.grow(positions)?;
        self.core.positions = positions as i64;
        if *rows == (0..self.rows) && positions == self.held {
            return Ok(None);
        }
        let [start, end, positions] = [rows.start, rows.end, positions].map(|n| n as i64);
        let sizes = sizes([start, end, positions])?;
        Ok(Some(Part { rows: sizes[0]..sizes[1], positions: sizes[2] }))
    }

    /// Makes room for `reach` positions; what is held stays, new places are zero.
    fn grow(&mut self, reach: usize) -> Result<()> {
        if reach <= self.held {
            return Ok(());
        }
        let wanted = self.room(reach);
        for state in &self.declared {
            let dtype = to_mlx(crate::weights::concrete(state.dtype, self.float));
            let zeros = |positions: usize| -> Result<Array> {
                let shape = sizes(state.dims.iter().map(|dim| match dim {
                    StateDim::Rows => self.rows as i64,
                    StateDim::Positions => positions as i64,
                    StateDim::Size(size) => *size as i64,
                }))?;
                Ok(ops::zeros_dtype(&shape, dtype)?)
            };
            let axis = state.positions();
            let most = self.core.windows.get(&state.path).map_or(wanted, |window| window.room.min(wanted));
            let old = self.core.states.remove(&state.path).map(|held| held.array);
            let more = |old: &Array, axis: usize| most.saturating_sub(old.shape()[axis] as usize);
            let grown = match (old, axis) {
                (None, _) => zeros(most)?,
                (Some(old), Some(axis)) if more(&old, axis) > 0 => {
                    ops::concatenate(&[&old, &zeros(more(&old, axis))?], axis as i32)?
                }
                (Some(old), Some(_) | None) => old,
            };
            self.core.states.insert(state.path.clone(), Held { array: grown, positions: axis });
        }
        self.held = wanted;
        Ok(())
    }

    /// A row of the states with this window lets go of its first positions.
    fn move_down(&mut self, window: Window, row: usize, by: usize) -> Result<()> {
        for (path, _) in self.core.windows.iter().filter(|(_, other)| **other == window) {
            let missing = || format!("there is no state {path}");
            let Held { array, positions } = self.core.states.remove(path).with_context(missing)?;
            let axis = positions.with_context(missing)?;
            let (mut start, mut end) = (vec![0; array.ndim()], array.shape().to_vec());
            (start[0], end[0]) = (row as i32, row as i32 + 1);
            let to = start.clone();
            start[axis] = end[axis].min(by as i32);
            let kept = update::cut(&array, &start, &end)?;
            let mut gone = end.clone();
            (gone[0], gone[axis]) = (1, start[axis]);
            let moved = ops::concatenate(&[&kept, &ops::zeros_dtype(&gone, array.dtype())?], axis as i32)?;
            let array = update::write(&array, &moved, &to, &end)?;
            // One after another, so that there is never room for more than one of them twice.
            transforms::eval([&array])?;
            self.core.states.insert(path.clone(), Held { array, positions });
        }
        Ok(())
    }

    fn call(&mut self, graph: &str, given: &Given, probing: Probes, tell: &Probed) -> Result<Vec<Tensor>> {
        ensure!(
            given.reach <= self.capacity,
            "position {} lies beyond the context of {} positions; raise --ctx-size",
            given.reach.saturating_sub(1),
            self.capacity
        );
        let rows = given.covered(self.rows)?;
        self.grow(given.reach)?;
        self.core.part = self.part(&rows, given)?;
        let upload = |(name, value): &(String, Tensor)| upload(value).with_context(|| format!("input {name}"));
        let inputs: Vec<Array> = given.inputs.iter().map(upload).collect::<Result<_>>()?;
        self.core.set_probing(probing);
        let results = self.module.graph(&mut self.core, graph, &inputs)?;
        let mut probes: VecDeque<(String, Array)> = std::mem::take(&mut self.core.probes).into();
        while let Some((name, value)) = probes.pop_front() {
            transforms::async_eval([&value].into_iter().chain(probes.iter().take(AHEAD).map(|(_, next)| next)))?;
            let sent = tell.send((name, download(&value)?));
            ensure!(sent.is_ok(), "whoever looked at the probes of {graph} has ended");
        }
        transforms::eval(self.core.states.values().map(|held| &held.array).chain(&results))?;
        results.iter().map(download).collect()
    }
}
