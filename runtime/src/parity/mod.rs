//! Parity: a session beside reference numbers, probe by probe in execution order.

pub mod compare;
mod golden;
mod routed;

use std::sync::Arc;

use mgraph_dsl::ir::{PatternPart, Program, Statement};

use crate::{
    backend::{self, Backend},
    error::{Context, Result, bail, ensure},
    model::Model,
    sampler::greedy,
    session::{Batch, Float, Numerics, Session, SessionOptions},
    tensor::Tensor,
};
use compare::{Bound, Difference, compare};
pub use golden::Golden;

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Row {
    pub stage: String,
    pub outcome: Outcome,
}

#[derive(Debug, Clone)]
pub enum Outcome {
    Compared {
        shape: Vec<usize>,
        difference: Difference,
    },
    /// Shapes disagree, or greedy tokens do.
    Mismatch(String),
    /// The reference has the stage, the family gave no probe of that name.
    NotProbed,
}

impl Row {
    pub fn passed(&self) -> bool {
        match &self.outcome {
            Outcome::Compared { difference, .. } => difference.within(),
            Outcome::Mismatch(_) | Outcome::NotProbed => false,
        }
    }
}

/// What is compared and how.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub backend: Backend,
    pub numerics: Numerics,
    pub dtype: Float,
}

/// Runs what the reference holds: the prompt's stages, the caches after it, the greedy steps, the padded batch.
/// Every row goes to `on_row` as soon as it is known. `Ok(false)`: some stage diverged.
pub fn run(model: &Arc<Model>, golden: &Golden, settings: Settings, on_row: &mut dyn FnMut(&Row)) -> Result<bool> {
    if let Some(input) = golden.of_pictures() {
        bail!(
            "{} was made with {input}: no backend is shown pictures yet. Of words alone are its variants: {}",
            golden.path(),
            golden.variants()
        );
    }
    let mut run = Run { model, golden, settings, judged: 0, all_passed: true, on_row };
    run.prompt()?;
    run.padded_batch()?;
    ensure!(run.judged > 0, "{} holds inputs, but no numbers to compare with", golden.path());
    Ok(run.all_passed)
}

struct Run<'a> {
    model: &'a Arc<Model>,
    golden: &'a Golden,
    settings: Settings,
    /// Rows reported so far.
    judged: usize,
    all_passed: bool,
    on_row: &'a mut dyn FnMut(&Row),
}

impl Run<'_> {
    fn report(&mut self, stage: &str, outcome: Outcome) {
        let row = Row { stage: stage.to_owned(), outcome };
        self.judged += 1;
        self.all_passed &= row.passed();
        (self.on_row)(&row);
    }

    fn judge(&mut self, stage: &str, ours: &Tensor, reference: &Tensor, bound: Bound) {
        let outcome = match compare(ours, reference, bound) {
            Ok(difference) => Outcome::Compared { shape: reference.shape.clone(), difference },
            Err(mismatch) => Outcome::Mismatch(mismatch),
        };
        self.report(stage, outcome);
    }

    /// Integers and masks are equal or wrong; floats may differ by the reference's noise, or else by the contract.
    fn bound(&self, stage: &str, reference: &Tensor) -> Result<Bound> {
        if !reference.dtype.is_float() {
            return Ok(Bound { max_abs: Some(0.0), ..Bound::default() });
        }
        let contract = || {
            let line = self.model.program.contract_for(stage)?;
            Some(Bound { max_abs: line.max_abs, rtol: line.rtol, rms: line.rms })
        };
        self.golden.bound(stage).or_else(contract).with_context(|| {
            format!(
                "nothing says what {stage} may differ by: {} has no noise for it, and family {} declares no contract",
                self.golden.notes_file(),
                self.model.family.name
            )
        })
    }

    fn open(&self, rows: usize, capacity: usize, probes: bool) -> Result<Box<dyn Session>> {
        let options = SessionOptions {
            rows,
            capacity,
            max_chunk: capacity,
            dtype: self.settings.dtype,
            numerics: self.settings.numerics,
            probes,
        };
        backend::open(self.settings.backend, self.model, options)
    }

    fn prompt(&mut self) -> Result<()> {
        let ids = self.golden.require("input.input_ids")?;
        let (rows, width) = matrix(ids, "input.input_ids")?;
        let steps = self.golden.get("decode.input_tokens").map(integers).unwrap_or_default();
        let mut session = self.open(rows, width + steps.len(), true)?;
        let batch = every_logit(rows, width, integers(ids), |_| (0..width).collect());
        let mut seen = Vec::new();
        session.step(
            &batch,
            Some(&mut |name, tensor| {
                seen.push((name.to_owned(), tensor));
                Ok(())
            }),
        )?;
        let golden = self.golden;
        for (name, ours) in &seen {
            if let Some(reference) = golden.get(name) {
                let probed = |name: &str| seen.iter().find(|(n, _)| n == name).map(|(_, tensor)| tensor);
                let ordered = routed::by_expert(name, ours, probed);
                let expected = routed::by_expert(name, reference, |name| golden.get(name));
                let (ours, reference) = (ordered.as_ref().unwrap_or(ours), expected.as_ref().unwrap_or(reference));
                self.judge(name, ours, reference, self.bound(name, reference)?);
            }
        }
        for stage in self.golden.stages() {
            if !seen.iter().any(|(name, _)| *name == stage) && !is_merged(&self.model.program, &stage) {
                self.report(&stage, Outcome::NotProbed);
            }
        }
        self.caches(session.as_mut(), width)?;
        self.greedy(session.as_mut(), width, &steps)
    }

    /// `cache.layer.N.k`: the state named `k` whose field path holds the number N.
    fn caches(&mut self, session: &mut dyn Session, width: usize) -> Result<()> {
        for (name, reference) in self.golden.with_prefix("cache.layer.") {
            let mut parts = name["cache.layer.".len()..].split('.');
            let (Some(layer), Some(kind)) = (parts.next(), parts.next()) else { continue };
            let wanted = |path: &&String| path.split('.').any(|p| p == layer) && path.rsplit('.').next() == Some(kind);
            let Some(path) = self.model.states().iter().find(wanted).cloned() else {
                self.report(&name, Outcome::NotProbed);
                continue;
            };
            let state = session.state(&path)?;
            // `[B, heads, T, width]`
            let positions =
                state.shape.len().checked_sub(2).with_context(|| format!("state {path} has no positions"))?;
            let ours = state.prefix(positions, width);
            let bound = self.bound(&name, &reference)?;
            self.judge(&name, &ours, &reference, bound);
        }
        Ok(())
    }

    fn greedy(&mut self, session: &mut dyn Session, width: usize, steps: &[i32]) -> Result<()> {
        let Some(reference) = self.golden.get("decode.logits").cloned() else { return Ok(()) };
        let expected = integers(self.golden.require("decode.output_tokens")?);
        let mut logits = Vec::new();
        let mut tokens = Vec::new();
        for (k, token) in steps.iter().enumerate() {
            let row = session.step(&Batch::row(&[*token], width + k, 1), None)?.to_f32();
            tokens.push(greedy(&row).map_or(-1, |token| token as i32));
            logits.extend(row);
        }
        let ours = Tensor::from_f32(&[steps.len(), logits.len() / steps.len().max(1)], &logits);
        let bound = self.bound("decode.logits", &reference)?;
        self.judge("decode.logits", &ours, &reference, bound);
        if tokens != expected {
            self.report("decode.tokens", Outcome::Mismatch(format!("greedy tokens {tokens:?}, expected {expected:?}")));
        }
        Ok(())
    }

    /// The reference pads on the left; here a row begins at position 0 and fill-up tokens come last. Real tokens compare.
    fn padded_batch(&mut self) -> Result<()> {
        let Some(ids) = self.golden.get("batch.input_ids") else { return Ok(()) };
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
        let mut session = self.open(rows, width, false)?;
        let logits = session.step(&every_logit(rows, width, tokens, |_| (0..width).collect()), None)?;
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
        let bound = self.bound("batch.logits", &reference)?;
        self.judge("batch.logits", &Tensor::from_f32(&shape, &left), &Tensor::from_f32(&shape, &right), bound);
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

fn every_logit(rows: usize, width: usize, tokens: Vec<i32>, positions: impl Fn(usize) -> Vec<usize>) -> Batch {
    let per_row = |f: &dyn Fn(usize) -> Vec<usize>| (0..rows).flat_map(f).map(|p| p as i32).collect();
    Batch { rows, width, tokens, positions: per_row(&positions), wanted: per_row(&|_| (0..width).collect()) }
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
