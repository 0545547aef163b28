//! A family on IREE: weights resident in device memory, one compiled graph per shape of a call, states that the calls
//! write into.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    rc::Rc,
    sync::Arc,
};

use mgraph_dsl::bind::{StateDim, StoredDtype, Weight, WeightKind};

use super::{
    artifact::Artifacts,
    build::{Build, BuildOptions, WeightType, Windowed},
    compile, emit,
    graph::{Argument, ArgumentKind, Graph, Part, ResultKind},
    iree::{Buffer, Program, Runtime},
    states::{States, forgetting, moving},
    types::{DType, Type, V},
};
use crate::{
    error::{Context as _, Result, anyhow, ensure},
    inputs::{self, CallSizes, Given, Input},
    model::Model,
    session::{Batch, Numerics, Prepared, ProbeSink, Progress, Session, SessionOptions, again, within},
    spent::Clock,
    tensor::Tensor,
    weights::{MatrixData, concrete},
    windows::{self, Firsts, Move, Window},
};

/// Tokens per row that graphs are compiled for; a call is filled up to the next. Few, because each costs seconds once; and
/// beyond 128 tokens a wider call is no faster per token.
const WIDTHS: [usize; 4] = [1, 16, 64, 128];

/// Most tokens that fill a call up.
pub const FILL_UP: usize = WIDTHS[WIDTHS.len() - 1] - 1;

/// States hold a multiple of this many positions, so that runs of similar length share their compiled graphs. Few, because
/// attention reads all of them at every step.
const POSITIONS: usize = 128;

/// From so many rows on, a step over packed weights that are large expands them whole: 123 ms of a core, where a row alone takes 19
/// (SmolLM2-135M, Q4_1, `tests/rows_real.rs`).
const ROWS_TO_EXPAND_FOR: usize = 7;

/// Whether few rows share the unpacking of a matrix, as the prelude's `linear` does on IREE: it has to stay in the cache, whole or in
/// pieces.
fn is_shared(shape: &[i64]) -> bool {
    matches!(*shape, [n, k] if n * k <= 1 << 22 || n <= 1 << 16 && n % 512 == 0 && k <= 1024)
}

/// Names the graph that forgets a row; no graph of a family has such a name.
const FORGET: &str = "forget a row";
/// And the one that moves a row down.
const MOVE: &str = "move a row down";

pub struct HloSession {
    model: Arc<Model>,
    options: SessionOptions,
    /// `T`.
    positions: usize,
    /// By row, one past the largest position written since the row was forgotten; `None` where nothing was.
    reached: Vec<Option<usize>>,
    windows: BTreeMap<String, Window>,
    firsts: Firsts,
    artifacts: Artifacts,
    build: BuildOptions,
    runtime: Runtime,
    /// Weights and their parts.
    weights: HashMap<ArgumentKind, Buffer>,
    states: States,
    /// A call failed that writes into states.
    lost: bool,
    compiled: HashMap<Key, Compiled>,
    progress: Progress,
    prepared: Prepared,
}

/// What a graph of one model depends on from call to call: its name, and the shapes of its inputs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    graph: String,
    shapes: Vec<Vec<usize>>,
}

impl Key {
    fn new<'a>(graph: &str, shapes: impl IntoIterator<Item = &'a Vec<usize>>) -> Key {
        Key { graph: graph.to_owned(), shapes: shapes.into_iter().cloned().collect() }
    }
}

struct Compiled {
    arguments: Vec<Passed>,
    results: Vec<ResultKind>,
    program: Program,
}

impl Compiled {
    /// Whether it writes into states.
    fn assigns(&self) -> bool {
        self.results.iter().any(|kind| matches!(kind, ResultKind::State(_)))
    }
}

/// An argument of a compiled graph, so that a call need not look anything up.
enum Passed {
    /// A parameter of the graph, by position.
    Input(usize),
    /// A weight, or what the call goes on from at a probe.
    Resident(Buffer),
    /// A state; where the call assigns it, it writes into the buffer.
    State(String),
}

impl HloSession {
    /// Graphs are compiled, and the weights they read loaded, when a call or [`Session::prepare`] needs them.
    pub fn open(model: &Arc<Model>, options: SessionOptions) -> Result<HloSession> {
        HloSession::with_artifacts(model, options, Artifacts::default())
    }

    /// As [`HloSession::open`], with compiled graphs kept in a folder of one's own.
    pub fn with_artifacts(model: &Arc<Model>, options: SessionOptions, artifacts: Artifacts) -> Result<HloSession> {
        let positions = positions(&options);
        let windows = windows::of(model, &options, positions);
        let firsts = Firsts::new(&windows, options.rows);
        let build = build_options(model, &options, positions, &windows, &firsts)?;
        let rows = options.rows;
        let runtime = Runtime::new()?;
        let mut session = HloSession {
            model: model.clone(),
            options,
            positions,
            reached: Vec::new(),
            windows,
            firsts,
            artifacts,
            states: States::new(build.states.clone(), rows),
            lost: false,
            build,
            runtime,
            weights: HashMap::new(),
            compiled: HashMap::new(),
            progress: Rc::new(|_| ()),
            prepared: Prepared::default(),
        };
        session.reset()?;
        Ok(session)
    }

    /// A graph for calls that cover so many rows.
    fn compile(&mut self, name: &str, inputs: &[Input], rows: usize, progress: &mut dyn FnMut(&str)) -> Result<()> {
        let key = Key::new(name, inputs.iter().map(|input| &input.shape));
        if self.compiled.contains_key(&key) {
            return Ok(());
        }
        let graph = built(&self.model, self.build_for(rows), name, inputs, rows)?;
        let tokens = inputs.first().map_or(1, places);
        let what = self.described(name, inputs);
        self.keep(key, graph, tokens, &what, progress)
    }

    /// The graph that forgets a row.
    fn forgetting(&mut self, progress: &mut dyn FnMut(&str)) -> Result<Key> {
        let key = Key::new(FORGET, [&vec![1]]);
        if !self.compiled.contains_key(&key) {
            let graph = forgetting(self.build_for(1), &|path| axis_of(&self.model, path))?;
            self.keep(key.clone(), graph, 1, "what forgets a row", progress)?;
        }
        Ok(key)
    }

    /// The graph that moves a row down in the states that have this number.
    fn moving(&mut self, number: usize, progress: &mut dyn FnMut(&str)) -> Result<Key> {
        let key = Key::new(MOVE, [&vec![number]]);
        if !self.compiled.contains_key(&key) {
            let graph = moving(self.build_for(1), number, &|path| axis_of(&self.model, path))?;
            self.keep(key.clone(), graph, 1, "what moves a row of sliding-window layers down", progress)?;
        }
        Ok(key)
    }

    /// Rows of sliding-window layers that begin at `starts` let go of what they need no more.
    fn move_down(&mut self, rows: &Range<usize>, given: &Given) -> Result<()> {
        for Move { window, row, by } in self.firsts.advance(rows.start, &given.starts, given.width)? {
            let number = self.firsts.windows().iter().position(|known| *known == window);
            let number = number.context("a row moves in a window that there is not")?;
            let progress = Rc::clone(&self.progress);
            let key = self.moving(number, &mut |message| progress(message))?;
            let by = i32::try_from(by.min(window.room)).context("a row moves too far")?;
            self.invoke(&key, &[("by".to_owned(), Tensor::from_i32(&[1], &[by]))], &(row..row + 1), None)?;
        }
        Ok(())
    }

    /// The inputs behind those of a graph: for each window, the first position that each of the rows holds.
    fn first_positions(&self, rows: &Range<usize>) -> Vec<(String, Tensor)> {
        let of = |window: &Window| {
            let firsts: Vec<i32> = rows.clone().map(|row| self.firsts.of(*window, row) as i32).collect();
            ("first positions".to_owned(), Tensor::from_i32(&[firsts.len()], &firsts))
        };
        self.firsts.windows().iter().map(of).collect()
    }

    fn build_for(&self, rows: usize) -> BuildOptions {
        BuildOptions { states: self.states.types(rows), ..self.build.clone() }
    }

    /// Compiles a graph, loads what it reads, and keeps it. `what` names it for people.
    fn keep(
        &mut self,
        key: Key,
        graph: Graph,
        tokens: usize,
        what: &str,
        progress: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let clock = Clock::start();
        let text = emit::text(&graph)?;
        let packed = graph.arguments.iter().any(|a| matches!(a.kind, ArgumentKind::Packed(..)));
        let module = self.artifacts.get(&text, &compile::flags(tokens, packed), what, progress)?;
        let results = graph.results.iter().map(|r| graph.ty(r.value).clone()).collect();
        let program = self.runtime.load(&module, results)?;
        self.prepared.compile += clock.spent();
        (self.progress)(&format!("loading the weights of {what}"));
        let clock = Clock::start();
        self.load(&graph)?;
        self.prepared.load += clock.spent();
        let passed = |argument: &Argument| {
            Ok(match &argument.kind {
                ArgumentKind::Input(i) => Passed::Input(*i),
                ArgumentKind::Weight(path) | ArgumentKind::Packed(path, _) => {
                    let buffer = self.weights.get(&argument.kind);
                    Passed::Resident(buffer.cloned().with_context(|| format!("weight {path} is not loaded"))?)
                }
                ArgumentKind::State(path) => Passed::State(path.clone()),
                ArgumentKind::Probe(name) => {
                    let (dtype, shape) = (argument.ty.dtype, argument.ty.sizes());
                    let value = self.build.probes.instead(name, dtype, &shape);
                    let value = value.with_context(|| format!("nothing stands for the probe {name}"))?;
                    Passed::Resident(self.runtime.upload(&value)?)
                }
            })
        };
        let arguments = graph.arguments.iter().map(passed).collect::<Result<_>>()?;
        let results = graph.results.into_iter().map(|r| r.kind).collect();
        self.compiled.insert(key, Compiled { arguments, results, program });
        Ok(())
    }

    /// The weights that `graph` reads and no graph before it did, one at a time: the host copy of each is gone before the next
    /// is read.
    fn load(&mut self, graph: &Graph) -> Result<()> {
        let mut missing: BTreeMap<&str, Vec<Option<Part>>> = BTreeMap::new();
        for argument in graph.arguments.iter().filter(|a| !self.weights.contains_key(&a.kind)) {
            match &argument.kind {
                ArgumentKind::Weight(path) => missing.entry(path).or_default().push(None),
                ArgumentKind::Packed(path, part) => missing.entry(path).or_default().push(Some(*part)),
                ArgumentKind::Input(_) | ArgumentKind::State(_) | ArgumentKind::Probe(_) => {}
            }
        }
        let (model, float) = (self.model.clone(), self.build.float);
        let reader = model.weights();
        for (path, parts) in missing {
            // The dtype of the scales, where there are scales.
            let float = match self.build.weights.get(path) {
                Some(WeightType::Packed { scales, .. }) => *scales,
                Some(WeightType::Dense(_)) | None => float,
            };
            let data = reader.matrix(path, float)?;
            for part in parts {
                let (ty, bytes) = stored(&data, part)
                    .with_context(|| format!("weight {path} is bound and stored in different forms"))?;
                let kind = match part {
                    Some(part) => ArgumentKind::Packed(path.into(), part),
                    None => ArgumentKind::Weight(path.into()),
                };
                self.weights.insert(kind, self.runtime.buffer(ty, bytes)?);
            }
        }
        model.checkpoint.release_all();
        Ok(())
    }

    /// For people: `step of 1 x 16 tokens over 128 positions`, `vision of 5 x 25 x 48`.
    fn described(&self, graph: &str, inputs: &[Input]) -> String {
        let sizes = |input: &Input| input.shape.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
        let first = inputs.first().map(sizes).unwrap_or_default();
        let tokens = if inputs.first().is_some_and(|input| input.name == "tokens") { " tokens" } else { "" };
        let over = match inputs.iter().any(|input| input.name == "positions") {
            true => format!(" over {} positions", self.positions),
            false => String::new(),
        };
        format!("{graph} of {first}{tokens}{over}")
    }

    /// One call of a graph; its positions fit the states.
    fn run(&mut self, graph: &str, given: &Given, probes: Option<ProbeSink<'_>>) -> Result<Vec<Tensor>> {
        let rows = given.covered(self.options.rows)?;
        self.move_down(&rows, given)?;
        let key = Key::new(graph, given.inputs.iter().map(|(_, tensor)| &tensor.shape));
        if !self.compiled.contains_key(&key) {
            let input = |(name, tensor): &(String, Tensor)| Input {
                name: name.clone(),
                dtype: tensor.dtype,
                shape: tensor.shape.clone(),
            };
            let inputs: Vec<Input> = given.inputs.iter().map(input).collect();
            let progress = Rc::clone(&self.progress);
            self.compile(graph, &inputs, rows.len(), &mut |message| progress(message))?;
            progress(&format!("running {}", self.described(graph, &inputs)));
        }
        let assigns = self.compiled.get(&key).is_some_and(Compiled::assigns);
        if assigns || given.rows.is_some() {
            // Before the call: states are written in place, also by one that fails.
            for reached in &mut self.reached[rows.clone()] {
                *reached = Some(given.reach.max(reached.unwrap_or(0)));
            }
        }
        let firsts = self.first_positions(&rows);
        if firsts.is_empty() {
            return self.invoke(&key, &given.inputs, &rows, probes);
        }
        self.invoke(&key, &[&given.inputs[..], &firsts].concat(), &rows, probes)
    }

    /// One call of a compiled graph for these rows.
    fn invoke(
        &mut self,
        key: &Key,
        inputs: &[(String, Tensor)],
        rows: &Range<usize>,
        mut probes: Option<ProbeSink<'_>>,
    ) -> Result<Vec<Tensor>> {
        let compiled = self.compiled.get(key).with_context(|| format!("graph {} was not compiled", key.graph))?;
        let mut arguments = Vec::with_capacity(compiled.arguments.len());
        for argument in &compiled.arguments {
            arguments.push(match argument {
                Passed::Input(i) => {
                    let (name, tensor) = inputs.get(*i).context("the graph has more parameters than were passed")?;
                    self.runtime.upload(tensor).with_context(|| format!("input {name}"))?
                }
                Passed::Resident(buffer) => buffer.clone(),
                Passed::State(path) => {
                    ensure!(!self.lost, "the states were lost in a failed call; the session must be reset");
                    let progress = Rc::clone(&self.progress);
                    self.states.cut(rows, &self.runtime, &self.artifacts, &mut |message| progress(message))?;
                    self.states.piece(path, rows, &self.runtime)?
                }
            });
        }
        let results = compiled.program.call(arguments);
        self.lost |= results.is_err() && compiled.assigns();
        let results = results?;
        // All states first: whoever takes a probe may end the call.
        for (result, buffer) in compiled.results.iter().zip(&results) {
            if let ResultKind::State(path) = result {
                let assigned = self.states.assigned(path, rows, buffer, &self.runtime);
                self.lost |= assigned.is_err();
                assigned?;
            }
        }
        let mut outputs = Vec::new();
        for (result, buffer) in compiled.results.iter().zip(results) {
            match result {
                ResultKind::Output(_) => outputs.push(self.runtime.download(&buffer)?),
                ResultKind::State(_) => {}
                ResultKind::Probe(name) => {
                    if let Some(sink) = probes.as_mut() {
                        sink(name, self.runtime.download(&buffer)?)?;
                    }
                }
            }
        }
        Ok(outputs)
    }

    /// A whole batch that fits the states.
    fn step_at_once(&mut self, batch: &Batch, probes: Option<ProbeSink<'_>>) -> Result<Tensor> {
        let given = inputs::of_batch(&self.model.program, &self.model.resolved, batch, self.build.float)?;
        self.run("step", &given, probes)?.into_iter().next().context("the step has no result")
    }

    /// Single tokens of few rows over packed weights, as `fused` runs them: the row alone has a product that unpacks as it goes. Rows that
    /// share the unpacking ([`is_shared`]) gain from the second on; else every matrix is expanded, which costs as much as
    /// [`ROWS_TO_EXPAND_FOR`] rows alone.
    fn is_row_by_row(&self, rows: usize, width: usize) -> bool {
        let alone = || {
            let mut weights = self.build.weights.values();
            weights.any(|weight| matches!(weight, WeightType::Packed { shape, .. } if !is_shared(shape)))
        };
        (2..ROWS_TO_EXPAND_FOR).contains(&rows)
            && width == 1
            && self.build.fused
            && !self.options.probes.reported()
            && alone()
    }

    fn step_row_by_row(&mut self, batch: &Batch) -> Result<Tensor> {
        let wanted = batch.wanted_per_row();
        let mut all: Option<Tensor> = None;
        for row in 0..batch.rows {
            let one = Batch {
                first_row: batch.first_row + row,
                rows: 1,
                width: batch.width,
                tokens: batch.tokens[row * batch.width..(row + 1) * batch.width].to_vec(),
                positions: batch.positions[row * batch.width..(row + 1) * batch.width].to_vec(),
                wanted: batch.wanted[row * wanted..(row + 1) * wanted].to_vec(),
                of_tokens: batch.of_tokens.get(row).cloned().into_iter().collect(),
            };
            let logits = self.step_at_once(&one, None)?;
            match &mut all {
                None => all = Some(logits),
                Some(all) => {
                    all.shape[0] += 1;
                    all.bytes.extend(logits.bytes);
                }
            }
        }
        all.context("a call has rows")
    }

    /// A row whose last tokens would lie past the end of the states. They are fill-up, for no request is longer than the
    /// states: only what fits is run, in narrower calls.
    fn step_in_parts(&mut self, batch: &Batch, mut probes: Option<ProbeSink<'_>>) -> Result<Tensor> {
        let start = batch.positions.first().copied().unwrap_or(0) as usize;
        let fits = self.positions.saturating_sub(start);
        ensure!(
            batch.rows == 1 && batch.wanted.iter().all(|w| (*w as usize) < fits),
            "positions up to {} are asked for, but {} fit. Raise --ctx-size",
            batch.reach(),
            self.positions
        );
        let mut logits: Vec<Option<Tensor>> = vec![None; batch.wanted.len()];
        let mut done = 0;
        while done < fits {
            let left = fits - done;
            let width = WIDTHS.iter().rev().copied().find(|w| *w <= left.min(self.options.max_chunk)).unwrap_or(1);
            let here = done..done + width;
            let within = |w: &i32| here.contains(&(*w as usize));
            let part = Batch {
                first_row: batch.first_row,
                rows: 1,
                width,
                tokens: batch.tokens[here.clone()].to_vec(),
                positions: batch.positions[here.clone()].to_vec(),
                wanted: batch.wanted.iter().map(|w| if within(w) { *w - done as i32 } else { 0 }).collect(),
                of_tokens: batch.of_tokens.clone(),
            };
            let result = self.step_at_once(&part, again(&mut probes))?;
            let row = result.bytes.len() / batch.wanted.len().max(1);
            for (i, _) in batch.wanted.iter().enumerate().filter(|(_, w)| within(w)) {
                let bytes = result.bytes[i * row..(i + 1) * row].to_vec();
                logits[i] = Some(Tensor { dtype: result.dtype, shape: result.shape[2..].to_vec(), bytes });
            }
            done += width;
        }
        let rows = logits.into_iter().collect::<Option<Vec<_>>>().context("a wanted token was not run")?;
        let first = rows.first().context("no logits were wanted")?;
        Ok(Tensor {
            dtype: first.dtype,
            shape: [&[1, rows.len()], &first.shape[..]].concat(),
            bytes: rows.iter().flat_map(|r| r.bytes.iter().copied()).collect(),
        })
    }
}

impl Session for HloSession {
    fn call(
        &mut self,
        graph: &str,
        inputs: &[(&str, Tensor)],
        first_row: usize,
        probes: Option<ProbeSink<'_>>,
    ) -> Result<Vec<Tensor>> {
        let (program, resolved) = (&self.model.program, &self.model.resolved);
        let given = inputs::of_graph(program, resolved, graph, inputs, first_row, self.build.float)?;
        ensure!(
            given.reach <= self.positions,
            "positions up to {} are asked for, but {} fit. Raise --ctx-size",
            given.reach,
            self.positions
        );
        self.run(graph, &given, probes)
    }

    fn step(&mut self, batch: &Batch, probes: Option<ProbeSink<'_>>) -> Result<Tensor> {
        batch.check(&self.options)?;
        if batch.reach() > self.positions {
            self.step_in_parts(batch, probes)
        } else if self.is_row_by_row(batch.rows, batch.width) {
            self.step_row_by_row(batch)
        } else {
            self.step_at_once(batch, probes)
        }
    }

    fn width(&self, tokens: usize) -> usize {
        let limit = self.options.max_chunk.max(1);
        if self.options.probes.reported() {
            return tokens.clamp(1, limit);
        }
        let widest = WIDTHS[WIDTHS.len() - 1];
        WIDTHS.into_iter().find(|w| *w >= tokens).unwrap_or(widest).min(limit)
    }

    fn width_of_all(&self, tokens: usize) -> usize {
        let width = self.width(tokens);
        if width >= tokens { width } else { tokens.next_multiple_of(WIDTHS[WIDTHS.len() - 1]) }
    }

    fn capacity(&self) -> usize {
        self.options.capacity
    }

    fn reset(&mut self) -> Result<()> {
        self.reached = vec![None; self.options.rows];
        self.firsts = Firsts::new(&self.windows, self.options.rows);
        self.states.reset(&self.runtime)?;
        self.lost = false;
        Ok(())
    }

    fn forget(&mut self, row: usize, kept: usize) -> Result<()> {
        within(&(row..row.saturating_add(1)), self.options.rows)?;
        match self.reached[row] {
            None => return Ok(()),
            Some(reached) if kept > 0 && reached <= kept => return Ok(()),
            Some(_) => {}
        }
        if self.options.rows == 1 && kept == 0 {
            return self.reset();
        }
        let progress = Rc::clone(&self.progress);
        let key = self.forgetting(&mut |message| progress(message))?;
        let kept = kept.min(self.positions);
        let mut inputs = vec![("kept".to_owned(), Tensor::from_i32(&[1], &[kept as i32]))];
        inputs.extend(self.first_positions(&(row..row + 1)));
        self.firsts.forget(row, kept)?;
        self.invoke(&key, &inputs, &(row..row + 1), None)?;
        self.reached[row] = (kept > 0).then_some(kept);
        Ok(())
    }

    fn least_kept(&self, row: usize) -> usize {
        self.firsts.least(row)
    }

    fn state(&mut self, path: &str) -> Result<Tensor> {
        let state = self.model.bindings.states.iter().find(|s| s.path == path);
        let state = state.with_context(|| format!("family {} has no state {path}", self.model.family.name))?;
        ensure!(!self.lost, "the states were lost in a failed call; the session must be reset");
        let whole = self.states.whole(path, &self.runtime)?;
        Ok(match state.positions() {
            Some(axis) => {
                let reached = self.reached.iter().flatten().copied().max().unwrap_or(0);
                whole.prefix(axis, self.windows.get(path).map_or(reached, |window| reached.min(window.room)))
            }
            None => whole,
        })
    }

    fn tell(&mut self, progress: Progress) {
        self.progress = progress;
    }

    fn prepared(&self) -> Prepared {
        self.prepared
    }

    fn prepare(&mut self, shapes: &[(usize, usize)], progress: &mut dyn FnMut(&str)) -> Result<()> {
        for (rows, width) in shapes {
            let rows = if self.is_row_by_row(*rows, *width) { 1 } else { *rows };
            let sizes = CallSizes { rows, width: *width, wanted: 1 };
            let inputs = inputs::of_step(&self.model.program, &self.model.resolved, sizes, self.build.float)?;
            self.compile("step", &inputs, rows, progress)?;
        }
        if self.options.rows > 1 {
            self.states.prepare(&self.runtime, &self.artifacts, progress)?;
            self.forgetting(progress)?;
        }
        for number in 0..self.firsts.windows().len() {
            self.moving(number, progress)?;
        }
        Ok(())
    }
}

/// `T`. Rows that start anywhere need room for the fill-up of one chunk; a single one does without
/// ([`HloSession::step_in_parts`]).
fn positions(options: &SessionOptions) -> usize {
    let room = if options.rows > 1 && !options.probes.reported() { options.max_chunk.saturating_sub(1) } else { 0 };
    (options.capacity + room).max(1).next_multiple_of(POSITIONS)
}

/// Record a graph; `step` is `forward` after `embed`.
fn built(model: &Model, options: BuildOptions, graph: &str, inputs: &[Input], rows: usize) -> Result<Graph> {
    let mut build = Build::new(options);
    let mut values = Vec::new();
    for Input { dtype, shape, .. } in inputs {
        let shape: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
        values.push(build.input(*dtype, &shape));
    }
    build.inputs_of_windows(rows as i64);
    let results: Vec<V> = (model.family.hlo)(&model.resolved, &mut build, graph, &values)?;
    build.finish(&results).with_context(|| format!("family {}, graph {graph}", model.family.name))
}

/// Tokens, patches or pictures: how many rows of numbers a graph works on.
fn places(first: &Input) -> usize {
    let axes = if first.dtype.is_float() { first.shape.len().saturating_sub(1) } else { first.shape.len() };
    first.shape[..axes].iter().product()
}

fn axis_of(model: &Model, state: &str) -> Option<usize> {
    model.bindings.states.iter().find(|known| known.path == state)?.positions()
}

fn build_options(
    model: &Model,
    options: &SessionOptions,
    positions: usize,
    windows: &BTreeMap<String, Window>,
    firsts: &Firsts,
) -> Result<BuildOptions> {
    let float = options.dtype.dtype();
    let size = |n: u64| i64::try_from(n).map_err(|_| anyhow!("a dim of {n} is too large"));
    let mut weights = BTreeMap::new();
    for weight in &model.bindings.weights {
        let shape = weight.shape.iter().map(|n| size(*n)).collect::<Result<Vec<_>>>()?;
        let ty = match weight.kind {
            WeightKind::Tensor | WeightKind::Matrix | WeightKind::Derived => {
                WeightType::Dense(Type::new(concrete(weight.dtype, float), &shape))
            }
            WeightKind::Packed { bits, group } => {
                let scales = scales_dtype(weight, concrete(weight.dtype, float));
                WeightType::Packed { shape, bits: i64::from(bits), group: i64::from(group), scales }
            }
        };
        weights.insert(weight.path.clone(), ty);
    }
    let mut states = BTreeMap::new();
    for state in &model.bindings.states {
        let dim = |dim: &StateDim| match dim {
            StateDim::Rows => Ok(options.rows as i64),
            StateDim::Positions => Ok(windows.get(&state.path).map_or(positions, |window| window.room) as i64),
            StateDim::Size(n) => size(*n),
        };
        let shape = state.dims.iter().map(dim).collect::<Result<Vec<_>>>()?;
        states.insert(state.path.clone(), Type::new(concrete(state.dtype, float), &shape));
    }
    let numbered = windows.iter().filter_map(|(path, window)| {
        let number = firsts.windows().iter().position(|known| known == window)?;
        Some((path.clone(), Windowed { number, room: window.room as i64 }))
    });
    Ok(BuildOptions {
        windows: Arc::new(numbered.collect()),
        float,
        fused: options.numerics == Numerics::Fused,
        probes: options.probes.clone(),
        positions: positions as i64,
        weights: Arc::new(weights),
        states: Arc::new(states),
    })
}

/// Scales and biases stay as narrow as they are stored where `F` holds all their values: half the memory of f32, which is a
/// third of a matrix of 4 bits in groups of 32.
fn scales_dtype(weight: &Weight, float: DType) -> DType {
    let pieces = || weight.parts.iter().flat_map(|part| part.source.pieces());
    let all = |dtype| pieces().all(|piece| piece.scales.as_ref().is_some_and(|side| side.dtype == dtype));
    match float {
        DType::F32 | DType::F64 if all(StoredDtype::F16) => DType::F16,
        DType::F32 | DType::F64 if all(StoredDtype::BF16) => DType::BF16,
        _ => float,
    }
}

/// One argument's share of a weight; `None` stands for all of a dense one.
fn stored(data: &MatrixData, part: Option<Part>) -> Option<(Type, &[u8])> {
    let tensor = match (data, part) {
        (MatrixData::Dense(tensor), None) => tensor,
        (MatrixData::Packed { codes, .. }, Some(Part::Codes | Part::Bytes)) => codes,
        (MatrixData::Packed { scales, .. }, Some(Part::Scales)) => scales,
        (MatrixData::Packed { biases, .. }, Some(Part::Biases)) => biases,
        (MatrixData::Dense(_), Some(_)) | (MatrixData::Packed { .. }, None) => return None,
    };
    let mut ty = Type::new(tensor.dtype, &tensor.shape.iter().map(|d| *d as i64).collect::<Vec<_>>());
    if part == Some(Part::Bytes) {
        ty.dtype = DType::U8;
        if let Some(last) = ty.shape.last_mut() {
            *last *= tensor.dtype.size() as i64;
        }
    }
    Some((ty, &tensor.bytes))
}
