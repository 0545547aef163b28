//! The search: single ops first, then slices of several, then fewer and fewer of the first that diverged.

use std::cell::Cell;

use mgraph_dsl::{
    interpret::Operand,
    ir::Program,
    trace::{Node, NodeId, What},
};

use super::{
    AT_MOST, Subject, bound,
    cone::{cone, without},
    text::{Slice, compiled},
};
use crate::{
    backend::Backend,
    direct::{Many, Settings},
    error::{Context, Result, anyhow},
    model::Model,
    parity::compare::{Bound, Difference, compare},
    session::Numerics,
    tensor::Tensor,
};

/// Slices compiled and run together.
const BATCH: usize = 64;

/// Two executors, and by how much they may differ.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    pub a: Backend,
    pub b: Backend,
    pub settings: Settings,
    /// Of every slice; else each op's own, and of several ops the family's `contract` for the stage.
    pub bound: Option<Bound>,
}

impl Pair {
    fn executors(&self) -> [Backend; 2] {
        [self.a, self.b]
    }
}

/// Some ops whose result differs.
pub struct Found {
    /// The last gives the result.
    pub computed: Vec<NodeId>,
    /// Of `a` and `b`.
    pub results: [Tensor; 2],
    pub bound: Bound,
    pub difference: Difference,
}

/// Runs slices of one call on both executors.
pub struct Slices<'a> {
    pub model: &'a Model,
    pub subject: &'a Subject,
    pub pair: Pair,
    pub progress: &'a dyn Fn(&str),
    /// Slices that an executor could not run, and so are not judged.
    pub not_run: &'a Cell<usize>,
}

/// The first op, or else the fewest ops together, that diverge. `wanted`: only those of the stage of this name, which are the ops that lead to
/// it from the stages before.
pub fn search(slices: &Slices<'_>, wanted: Option<&str>) -> Result<Option<Found>> {
    let subject = slices.subject;
    let Some(ops) = slices.ops(wanted) else { return Ok(None) };
    for (done, some) in ops.chunks(BATCH).enumerate() {
        let (graph, of, from) = (&subject.graph, ops.len(), done * BATCH);
        (slices.progress)(&format!("graph {graph}: each op alone, {from} of {of} ({})", slices.names()));
        let alone: Vec<Vec<NodeId>> = some.iter().map(|id| vec![*id]).collect();
        if let Some(found) = slices.judged(&alone)?.into_iter().flatten().next() {
            return Ok(Some(found));
        }
    }
    // Whole stages, then all that leads to them: these are few.
    let stages: Vec<NodeId> = ops.iter().copied().filter(|id| slices.ends_stage(*id)).collect();
    let between = |id: NodeId| subject.node(id).probes.is_empty();
    let everywhere = |_: NodeId| true;
    type Within<'a> = &'a dyn Fn(NodeId) -> bool;
    let tries: [(&[NodeId], usize, Within<'_>); 3] =
        [(&ops, AT_MOST, &everywhere), (&stages, usize::MAX, &between), (&stages, usize::MAX, &everywhere)];
    for (results, size, within) in tries {
        for (done, some) in results.chunks(BATCH).enumerate() {
            let (graph, of, from) = (&subject.graph, results.len(), done * BATCH);
            (slices.progress)(&format!("graph {graph}: ops together, {from} of {of} ({})", slices.names()));
            let several = some.iter().map(|id| cone(subject, *id, size, within)).filter(|cone| cone.len() > 1);
            if let Some(found) = slices.judged(&several.collect::<Vec<_>>())?.into_iter().flatten().next() {
                return slices.smaller(found).map(Some);
            }
        }
    }
    Ok(None)
}

impl Slices<'_> {
    fn names(&self) -> String {
        format!("{} beside {}", self.pair.a, self.pair.b)
    }

    /// What may be guilty, in order of evaluation; `None` where this call has not the stage.
    fn ops(&self, wanted: Option<&str>) -> Option<Vec<NodeId>> {
        let subject = self.subject;
        let all = (0..subject.trace.nodes.len()).map(NodeId);
        let ops: Vec<NodeId> =
            all.filter(|id| subject.is_computed(*id) && !subject.node(*id).shape.contains(&0)).collect();
        let Some(stage) = wanted else { return Some(ops) };
        let has = |id: &NodeId| subject.node(*id).probes.iter().any(|probe| probe == stage);
        let last = ops.into_iter().find(has)?;
        Some(cone(subject, last, usize::MAX, &|id| subject.node(id).probes.is_empty()))
    }

    /// Whether a stage or the call ends here.
    fn ends_stage(&self, id: NodeId) -> bool {
        !self.subject.node(id).probes.is_empty() || self.subject.trace.results.contains(&id)
    }

    /// The first stage at or after an op.
    pub fn stage(&self, id: NodeId) -> Option<&str> {
        self.subject.trace.nodes.iter().skip(id.0).find_map(|node| node.probes.first()).map(String::as_str)
    }

    /// Of the same result: fewer ops before it, and ops whose value is given instead, as long as it still diverges.
    fn smaller(&self, mut found: Found) -> Result<Found> {
        while found.computed.len() > 1 {
            let size = found.computed.len();
            (self.progress)(&format!("graph {}: {size} ops diverge; trying fewer", self.subject.graph));
            let Some(result) = found.computed.last().copied() else { break };
            let inside = |id: NodeId| found.computed.contains(&id);
            let sizes = if size <= AT_MOST {
                (1..size).collect()
            } else {
                vec![2, 4, 7, AT_MOST, size / 4, size / 2, size * 3 / 4]
            };
            let mut tries: Vec<Vec<NodeId>> = sizes
                .into_iter()
                .filter(|fewer| (1..size).contains(fewer))
                .map(|fewer| cone(self.subject, result, fewer, &inside))
                .collect();
            let others = found.computed.iter().rev().skip(1).take(BATCH);
            tries.extend(others.map(|left_out| without(self.subject, &found.computed, *left_out)));
            tries.sort_by_key(Vec::len);
            tries.dedup();
            match self.judged(&tries)?.into_iter().flatten().next() {
                Some(fewer) => found = fewer,
                None => break,
            }
        }
        Ok(found)
    }

    /// Those that diverge. What an executor cannot run is told and left out.
    fn judged(&self, tries: &[Vec<NodeId>]) -> Result<Vec<Option<Found>>> {
        let slices: Vec<Slice<'_>> =
            tries.iter().map(|computed| Slice::new(&self.subject.trace, computed.clone())).collect();
        let mut source = String::new();
        for (at, slice) in slices.iter().enumerate() {
            source += &format!("op slice{at}{}\n", slice.text(&|_| None)?);
        }
        let program = compiled(&source, self.model.program.numerics.tf32)?;
        let mut results = self.pair.executors().map(|backend| self.results(backend, &program, &slices));
        let terms = self.terms(&program, &slices)?;
        let mut found = Vec::with_capacity(slices.len());
        for (at, (slice, terms)) in slices.into_iter().zip(&terms).enumerate() {
            let [a, b] = &mut results;
            let taken =
                |all: &mut Vec<Result<Tensor>>, backend| match std::mem::replace(&mut all[at], Err(anyhow!("taken"))) {
                    Ok(tensor) => Some(tensor),
                    Err(error) => {
                        self.not_run.set(self.not_run.get() + 1);
                        (self.progress)(&format!(
                            "{} could not be run on {backend}: {error:#}",
                            self.shown(&slice.computed)
                        ));
                        None
                    }
                };
            let (a, b) = (taken(a, self.pair.a), taken(b, self.pair.b));
            found.push(match (a, b, self.bound(&slice, terms.as_ref())?) {
                (Some(a), Some(b), Some(bound)) => {
                    let difference =
                        compare(&a, &b, bound).map_err(|said| anyhow!("{}: {said}", self.shown(&slice.computed)))?;
                    let diverged = !difference.within();
                    diverged.then_some(Found { computed: slice.computed, results: [a, b], bound, difference })
                }
                (Some(_) | None, Some(_) | None, Some(_) | None) => None,
            });
        }
        Ok(found)
    }

    fn results(&self, backend: Backend, program: &Program, slices: &[Slice<'_>]) -> Vec<Result<Tensor>> {
        // What the interpreter gives is known, unless a file's numbers stand in its place.
        if backend == Backend::Reference && self.subject.replaced.is_empty() {
            return slices.iter().map(|slice| Ok(self.subject.values[slice.result()?.0].clone())).collect();
        }
        let mut many = Many::new(backend, self.pair.settings);
        for (at, slice) in slices.iter().enumerate() {
            many.add(program, &format!("slice{at}"), self.operands(slice));
        }
        let results = many.run().into_iter();
        results.map(|results| results?.pop().context("an op has a result")).collect()
    }

    fn operands(&self, slice: &Slice<'_>) -> Vec<Operand<Tensor>> {
        slice.inputs.iter().map(|id| Operand::Tensor(self.subject.values[id.0].clone())).collect()
    }

    /// Of each slice that is a sum: what its terms without their signs add up to.
    fn terms(&self, program: &Program, slices: &[Slice<'_>]) -> Result<Vec<Option<Tensor>>> {
        let mut terms: Vec<Option<Tensor>> = vec![None; slices.len()];
        if self.pair.bound.is_some() {
            return Ok(terms);
        }
        let settings = Settings { numerics: Numerics::Pinned, ..self.pair.settings };
        let (mut many, mut places) = (Many::new(Backend::Reference, settings), Vec::new());
        for (at, slice) in slices.iter().enumerate() {
            if let [only] = slice.computed[..]
                && let What::Primitive(primitive) = &self.subject.node(only).what
                && bound::counts_terms(primitive)
            {
                let magnitudes = slice.inputs.iter().map(|id| Operand::Tensor(magnitudes(&self.subject.values[id.0])));
                many.add(program, &format!("slice{at}"), magnitudes.collect());
                places.push(at);
            }
        }
        for (at, result) in places.into_iter().zip(many.run()) {
            terms[at] = result?.pop();
        }
        Ok(terms)
    }

    /// `None`: nothing says by how much this may differ.
    fn bound(&self, slice: &Slice<'_>, terms: Option<&Tensor>) -> Result<Option<Bound>> {
        let result = slice.result()?;
        let value = &self.subject.values[result.0];
        if !value.dtype.is_float() {
            return Ok(Some(bound::exact()));
        }
        if let Some(given) = self.pair.bound {
            return Ok(Some(given));
        }
        let node = self.subject.node(result);
        if let ([_], What::Primitive(primitive)) = (&slice.computed[..], &node.what) {
            let operand = node.operands.first().map_or(value.dtype, |id| self.subject.values[id.0].dtype);
            return Ok(Some(bound::of(primitive, self.pair.executors(), operand, value.dtype, terms)));
        }
        let line = self.stage(result).and_then(|stage| self.model.program.contract_for(stage));
        Ok(line.map(|line| Bound { max_abs: line.max_abs, rtol: line.rtol, rms: line.rms }))
    }

    fn shown(&self, computed: &[NodeId]) -> String {
        let name = |id: &NodeId| shown(self.subject.node(*id));
        match computed {
            [one] => name(one),
            several => format!("{} ops up to {}", several.len(), several.last().map(name).unwrap_or_default()),
        }
    }
}

/// An op for people: `tanh of f32[2, 3]`.
pub(super) fn shown(node: &Node) -> String {
    let name = match &node.what {
        What::Primitive(primitive) => primitive.name(),
        What::Kernel { path, .. } => path,
        What::Input(_) | What::Weight { .. } | What::State(_) => "a value",
    };
    format!("{name} to {}{:?}", node.dtype.name(), node.shape)
}

fn magnitudes(x: &Tensor) -> Tensor {
    if !x.dtype.is_float() {
        return x.clone();
    }
    let bytes = x.to_f64().into_iter().flat_map(|x| x.abs().to_le_bytes()).collect();
    Tensor { dtype: crate::tensor::DType::F64, shape: x.shape.clone(), bytes }.to_float(x.dtype)
}
