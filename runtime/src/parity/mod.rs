//! Parity: a session beside reference numbers, from a file or from another executor, probe by probe in execution order.

pub mod compare;
mod fed;
mod golden;
mod isolated;
mod made;
mod map;
mod parts;
mod places;
mod routed;
mod row;
mod ulp;

use std::{ops::ControlFlow, rc::Rc, sync::Arc};

use mgraph_dsl::ir::{PatternPart, Program, Statement};

use crate::{
    backend::{self, Backend},
    error::{Context, Result, bail, ensure},
    model::Model,
    pictures::{Pictures, Seen},
    probes::Probes,
    sampler::greedy,
    session::{Batch, Float, Numerics, ProbeSink, Progress, Session, SessionOptions},
    spent::{Clock, Spent},
    tensor::Tensor,
};
use compare::{Bound, compare};
use places::Places;
use routed::Lists;
pub use {
    fed::Fed,
    golden::Golden,
    made::{made_by, made_in_parts},
    map::Map,
    parts::{Part, Parts},
    row::{Basis, Outcome, Row, Tally, Verdict},
    ulp::Ulps,
};

/// What is compared and how.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub backend: Backend,
    pub numerics: Numerics,
    pub dtype: Float,
}

/// Who follows a run.
pub struct Watch<'a> {
    /// Whether the stage of this name is compared.
    pub wanted: &'a dyn Fn(&str) -> bool,
    /// A line for people before each piece of work.
    pub progress: Progress,
    /// Sees every row as soon as it is known, and may end the run.
    pub on_row: &'a mut dyn FnMut(&Row) -> ControlFlow<()>,
    /// Where the time goes is added here.
    pub parts: &'a mut Parts,
}

/// Runs what the reference holds: the prompt's stages, the caches after it, the greedy steps, the padded batch.
/// Every row goes to `on_row` as soon as it is known. `Ok(false)`: some stage diverged, or nothing says how far it may be off.
pub fn run(model: &Arc<Model>, golden: &Golden, settings: Settings, on_row: &mut dyn FnMut(&Row)) -> Result<bool> {
    let mut to_the_end = |row: &Row| {
        on_row(row);
        ControlFlow::Continue(())
    };
    let mut parts = Parts::start();
    let watch = Watch { wanted: &|_| true, progress: Rc::new(|_| ()), on_row: &mut to_the_end, parts: &mut parts };
    let tally = watched(model, golden, settings, watch)?;
    Ok(tally.diverged == 0 && tally.unjudged == 0)
}

/// As [`run`], followed: it may leave out stages and end early.
pub fn watched(model: &Arc<Model>, golden: &Golden, settings: Settings, watch: Watch<'_>) -> Result<Tally> {
    let mut run = Run::new(model, golden, settings, Probes::Reported, watch);
    run.prompt()?;
    run.padded_batch()?;
    run.finished()
}

/// As [`watched`], but every stage is computed from what the reference has at the stages before it, so that what is wrong
/// stands alone. Of the prompt's call only: the greedy steps and the padded batch are left out.
pub fn isolated(model: &Arc<Model>, golden: &Golden, settings: Settings, watch: Watch<'_>) -> Result<Tally> {
    let probes = Probes::Isolated(Arc::new(isolated::stages(golden)));
    let mut run = Run::new(model, golden, settings, probes, watch);
    run.prompt()?;
    run.finished()
}

struct Run<'a, 'w> {
    model: &'a Arc<Model>,
    golden: &'a Golden,
    settings: Settings,
    /// Of the prompt's call.
    probes: Probes,
    places: Places<'a>,
    tally: Tally,
    /// For comparing, so far.
    compared: Spent,
    /// Whoever watches wants no more.
    ended: bool,
    watch: Watch<'w>,
}

impl<'a, 'w> Run<'a, 'w> {
    fn new(
        model: &'a Arc<Model>,
        golden: &'a Golden,
        settings: Settings,
        probes: Probes,
        watch: Watch<'w>,
    ) -> Run<'a, 'w> {
        let places = Places::of_text(&model.program);
        let (tally, compared) = (Tally::default(), Spent::default());
        Run { model, golden, settings, probes, places, tally, compared, ended: false, watch }
    }

    fn finished(self) -> Result<Tally> {
        ensure!(self.tally.rows() > 0, "{} holds inputs, but no numbers to compare with", self.golden.path());
        Ok(self.tally)
    }

    fn is_isolated(&self) -> bool {
        matches!(self.probes, Probes::Isolated(_))
    }

    fn report(&mut self, stage: &str, outcome: Outcome, kept: Option<String>) {
        let row = Row { stage: stage.to_owned(), source: self.places.of(stage), outcome, kept };
        self.tally.add(row.verdict());
        self.ended |= (self.watch.on_row)(&row).is_break();
    }

    /// Whether this one is still to be compared.
    fn wants(&self, stage: &str) -> bool {
        !self.ended && (self.watch.wanted)(stage)
    }

    fn judge(&mut self, stage: &str, ours: &Tensor, reference: &Tensor) {
        let clock = Clock::start();
        let (bound, basis) = self.bound(stage, reference);
        let outcome = match compare(ours, reference, bound) {
            Ok(difference) => {
                let difference = Box::new(difference);
                Outcome::Compared { shape: reference.shape.clone(), difference, bound, basis }
            }
            Err(mismatch) => Outcome::Mismatch(mismatch),
        };
        let kept = isolated::kept(&self.probes, stage, ours);
        let spent = clock.spent();
        self.compared += spent;
        self.watch.parts.add(Part::Compare, spent);
        self.report(stage, outcome, kept);
    }

    /// A stage of the call that runs, as soon as the executor gives it: its numbers are not kept.
    fn stage(&mut self, lists: &mut Lists, name: &str, ours: Tensor) {
        if self.golden.get(name).is_none() || !self.wants(name) && !routed::is_list(name) {
            return;
        }
        for (name, ours) in lists.came(name, ours) {
            self.judge_list(lists, &name, &ours);
        }
    }

    /// As [`Run::judge`], where the stage is wanted; experts of routed layers stand by id.
    fn judge_list(&mut self, lists: &Lists, name: &str, ours: &Tensor) {
        let golden = self.golden;
        let Some(reference) = golden.get(name).filter(|_| self.wants(name)) else { return };
        let ordered = routed::by_expert(name, ours, |name| lists.experts(name));
        let expected = routed::by_expert(name, reference, |name| golden.get(name));
        self.judge(name, ordered.as_ref().unwrap_or(ours), expected.as_ref().unwrap_or(reference));
    }

    /// Integers and masks are equal or wrong; floats may differ by the reference's noise, or else by the contract.
    fn bound(&self, stage: &str, reference: &Tensor) -> (Bound, Basis) {
        if !reference.dtype.is_float() {
            return (Bound { max_abs: Some(0.0), ..Bound::default() }, Basis::Exact);
        }
        if let Some(bound) = self.noise(stage) {
            return (bound, Basis::Noise);
        }
        match self.model.program.contract_for(stage) {
            Some(line) => {
                let bound = Bound { max_abs: line.max_abs, rtol: line.rtol, rms: line.rms };
                (bound, Basis::Contract(line.pattern.clone()))
            }
            None => (Bound::default(), Basis::Absent),
        }
    }

    /// Of the reference at a stage; of a state, what the notes say of the cache that it is.
    fn noise(&self, stage: &str) -> Option<Bound> {
        self.golden.bound(stage).or_else(|| {
            let path = stage.strip_prefix(STATE)?;
            let is_it = |name: &&str| cached(self.model, name).is_some_and(|state| state == path);
            self.golden.bound(self.golden.noted().find(is_it)?)
        })
    }

    fn open(&mut self, rows: usize, capacity: usize, probes: Probes) -> Result<Box<dyn Session>> {
        let options = SessionOptions {
            rows,
            capacity,
            max_chunk: capacity,
            dtype: self.settings.dtype,
            numerics: self.settings.numerics,
            probes,
        };
        (self.watch.progress)(&format!("loading weights ({})", self.settings.backend));
        let clock = Clock::start();
        let mut session = backend::open(self.settings.backend, self.model, options)?;
        self.watch.parts.add(Part::Load(self.settings.backend), clock.spent());
        session.tell(Rc::clone(&self.watch.progress));
        Ok(session)
    }

    /// Calls of a session, whose time is told from that of comparing what they give.
    fn calls<R>(
        &mut self,
        session: &mut dyn Session,
        work: impl FnOnce(&mut Self, &mut dyn Session) -> Result<R>,
    ) -> Result<R> {
        let (clock, before, compared) = (Clock::start(), session.prepared(), self.compared);
        let result = work(self, session);
        let spent = clock.spent() - (self.compared - compared);
        self.watch.parts.ran(self.settings.backend, spent, session.prepared() - before);
        result
    }

    fn prompt(&mut self) -> Result<()> {
        let Fed { rows, width, tokens, pictures } = Fed::of(self.model, self.golden)?;
        let steps = self.golden.get("decode.input_tokens").filter(|_| !self.is_isolated());
        let steps = steps.map(integers).unwrap_or_default();
        let mut session = self.open(rows, width + steps.len(), self.probes.clone())?;
        let batch = every_logit(rows, width, tokens);
        self.places.of_call(self.model, (&batch).into());
        (self.watch.progress)(&format!("running {rows} x {width} tokens ({})", self.settings.backend));
        let model = self.model;
        let (mut names, mut lists) = (Vec::new(), Lists::default());
        let request = self.calls(session.as_mut(), |run, session| {
            let mut sink = |name: &str, ours| {
                names.push(name.to_owned());
                run.stage(&mut lists, name, ours);
                ensure!(!run.ended, "the run ended at {name}");
                Ok(())
            };
            stages(session, model, &pictures, &batch, &mut sink)
        });
        // The call ends with whoever watches it.
        let request = match request {
            Err(_) if self.ended => return Ok(()),
            request => request?,
        };
        for (name, ours) in lists.left() {
            self.judge_list(&lists, &name, &ours);
        }
        if let Some((name, chosen)) = self.chosen(&request, &names) {
            self.stage(&mut lists, &name, chosen);
            names.push(name);
        }
        for stage in self.golden.stages() {
            if self.wants(&stage) && !names.contains(&stage) && (request.merges() || !is_merged(&model.program, &stage))
            {
                self.report(&stage, Outcome::NotProbed, None);
            }
        }
        self.caches(session.as_mut(), width)?;
        self.states(session.as_mut(), width)?;
        if self.is_isolated() {
            return Ok(());
        }
        self.greedy(session.as_mut(), &request, width, &steps)
    }

    /// The reference may hold the rows of features that tokens stand for, which the host chooses, as a stage.
    fn chosen(&self, request: &Seen, probed: &[String]) -> Option<(String, Tensor)> {
        let is_chosen = |stage: &String| stage.rsplit('.').next() == Some(CHOSEN) && !probed.contains(stage);
        let stage = self.golden.stages().into_iter().find(is_chosen)?;
        Some((stage, request.chosen()?))
    }

    /// Under the names that files of reference numbers have for them.
    fn caches(&mut self, session: &mut dyn Session, width: usize) -> Result<()> {
        for (name, reference) in self.golden.with_prefix(CACHE) {
            if !self.wants(&name) {
                continue;
            }
            let Some(path) = cached(self.model, &name).map(str::to_owned) else {
                self.report(&name, Outcome::NotProbed, None);
                continue;
            };
            let mut ours = held(self.model, session, &path, width)?;
            // A state of pictures has room for more than this request has.
            if self.model.program.graph("attach").is_some() && ours.shape.len() == reference.shape.len() {
                for (axis, size) in reference.shape.iter().enumerate() {
                    if *size > 0 && ours.shape[axis] > *size && ours.shape[axis] % size == 0 {
                        ours = ours.prefix(axis, *size);
                    }
                }
            }
            self.judge(&name, &ours, &reference);
        }
        Ok(())
    }

    /// `state.PATH`, as an executor's numbers have them.
    fn states(&mut self, session: &mut dyn Session, width: usize) -> Result<()> {
        for path in self.model.states() {
            let name = format!("{STATE}{path}");
            if let Some(reference) = self.golden.get(&name).filter(|_| self.wants(&name)).cloned() {
                let ours = held(self.model, session, path, width)?;
                self.judge(&name, &ours, &reference);
            }
        }
        Ok(())
    }

    fn greedy(&mut self, session: &mut dyn Session, request: &Seen, width: usize, steps: &[i32]) -> Result<()> {
        let Some(reference) = self.golden.get(LOGITS).filter(|_| self.wants(LOGITS)).cloned() else {
            return Ok(());
        };
        (self.watch.progress)(&format!("running {} greedy steps ({})", steps.len(), self.settings.backend));
        let expected = integers(self.golden.require("decode.output_tokens")?);
        let mut logits = Vec::new();
        let mut tokens = Vec::new();
        self.calls(session, |_, session| {
            for (k, token) in steps.iter().enumerate() {
                let row = request.step(session, &Batch::row(&[*token], width + k, 1), None)?.to_f32();
                tokens.push(greedy(&row).map_or(-1, |token| token as i32));
                logits.extend(row);
            }
            Ok(())
        })?;
        let ours = Tensor::from_f32(&[steps.len(), logits.len() / steps.len().max(1)], &logits);
        self.judge(LOGITS, &ours, &reference);
        if tokens != expected && !self.ended {
            let told = format!("greedy tokens {tokens:?}, expected {expected:?}");
            self.report("decode.tokens", Outcome::Mismatch(told), None);
        }
        Ok(())
    }

    /// The reference pads on the left; here a row begins at position 0 and fill-up tokens come last. Real tokens compare.
    fn padded_batch(&mut self) -> Result<()> {
        let Some(ids) = self.golden.get("batch.input_ids").filter(|_| self.wants("batch.logits")) else {
            return Ok(());
        };
        let (rows, width) = matrix(ids, "batch.input_ids")?;
        let ids = integers(ids);
        let mask = integers(self.golden.require("batch.attention_mask")?);
        ensure!(mask.len() == ids.len(), "batch.attention_mask and batch.input_ids have different shapes");
        let reference = self.golden.require("batch.logits")?.clone();
        let mut tokens = Vec::new();
        let mut lengths = Vec::new();
        for row in 0..rows {
            let at = row * width..(row + 1) * width;
            let real: Vec<i32> =
                ids[at.clone()].iter().zip(&mask[at]).filter(|(_, m)| **m != 0).map(|(t, _)| *t).collect();
            lengths.push(real.len());
            tokens.extend(real.iter().copied().chain(std::iter::repeat_n(0, width - real.len())));
        }
        ensure!(lengths.iter().all(|n| *n > 0), "batch.attention_mask leaves a row without tokens");
        let mut session = self.open(rows, width, Probes::Unread)?;
        (self.watch.progress)(&format!("running the padded batch ({})", self.settings.backend));
        let logits =
            self.calls(session.as_mut(), |_, session| session.step(&every_logit(rows, width, tokens), None))?;
        let vocab = *logits.shape.last().context("logits without axes")?;
        let (ours, theirs) = (logits.to_f32(), reference.to_f32());
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (row, length) in lengths.iter().enumerate() {
            let begin = row * width * vocab;
            left.extend_from_slice(&ours[begin..begin + length * vocab]);
            let padding = (width - length) * vocab;
            right.extend_from_slice(
                theirs.get(begin + padding..begin + width * vocab).context("batch.logits is too short")?,
            );
        }
        let shape = [lengths.iter().sum::<usize>(), vocab];
        self.judge("batch.logits", &Tensor::from_f32(&shape, &left), &Tensor::from_f32(&shape, &right));
        Ok(())
    }
}

/// Whether a stage is what graph `merge` gives: a request of words alone does not run it.
fn is_merged(program: &Program, stage: &str) -> bool {
    let statements = program.graph("merge").into_iter().flat_map(|merge| &merge.body.statements);
    let mut probes = statements
        .into_iter()
        .filter_map(|statement| if let Statement::Probe { name, .. } = statement { Some(&name[..]) } else { None });
    probes.any(|name| matches!(name, [PatternPart::Text(text)] if text == stage))
}

const LOGITS: &str = "decode.logits";
const STATE: &str = "state.";
const CACHE: &str = "cache.layer.";

/// `cache.layer.N.k`: the state named `k` whose field path holds the number N.
fn cached<'m>(model: &'m Model, cache: &str) -> Option<&'m str> {
    let (layer, kind) = cache.strip_prefix(CACHE)?.split_once('.')?;
    let is_it = |path: &&str| path.split('.').any(|part| part == layer) && path.rsplit('.').next() == Some(kind);
    model.states().iter().map(String::as_str).find(is_it)
}

/// The last part of the name of a stage that is the rows of features that tokens stand for, in their order.
const CHOSEN: &str = "image_features";

/// A request begun: its pictures looked at, its tokens run. `sink` sees the probes in execution order, and last the logits, where
/// they are no probe.
pub(crate) fn stages(
    session: &mut dyn Session,
    model: &Arc<Model>,
    pictures: &Pictures,
    batch: &Batch,
    sink: ProbeSink<'_>,
) -> Result<Seen> {
    let mut probed = false;
    let mut passed = |name: &str, tensor| {
        probed |= name == "logits";
        sink(name, tensor)
    };
    let request = Seen::look(session, model, pictures, 0, Some(&mut passed))?;
    let logits = request.step(session, batch, Some(&mut passed))?;
    if !probed {
        sink("logits", logits)?;
    }
    Ok(request)
}

/// A state, over its first `width` positions where it has positions: backends hold room for different numbers of them.
fn held(model: &Model, session: &mut dyn Session, path: &str, width: usize) -> Result<Tensor> {
    let state = session.state(path)?;
    let declared = model.bindings.states.iter().find(|state| state.path == path);
    Ok(match declared.and_then(|state| state.positions()) {
        Some(axis) => {
            ensure!(axis < state.shape.len(), "state {path} came back as {:?}", state.shape);
            state.prefix(axis, width)
        }
        None => state,
    })
}

pub(crate) fn every_logit(rows: usize, width: usize, tokens: Vec<i32>) -> Batch {
    let places: Vec<i32> = (0..rows).flat_map(|_| 0..width as i32).collect();
    Batch { rows, width, tokens, positions: places.clone(), wanted: places, ..Batch::default() }
}

fn matrix(tensor: &Tensor, name: &str) -> Result<(usize, usize)> {
    match tensor.shape[..] {
        [rows, width] if rows > 0 && width > 0 => Ok((rows, width)),
        [_, _] => bail!("{name} has shape {:?}, which holds no token", tensor.shape),
        _ => bail!("{name} has shape {:?}; expected two axes, rows and tokens", tensor.shape),
    }
}

fn integers(tensor: &Tensor) -> Vec<i32> {
    tensor.to_f64().into_iter().map(|v| v as i32).collect()
}
