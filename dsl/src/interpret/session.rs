//! A family with one checkpoint's config and weights, called graph by graph, as a backend's session is.

use std::sync::Arc;

use super::{
    domain::{Domain, Matrix, Store, Typed},
    fault::Fault,
    numeric::{Call, Feed, Numeric, Precision, range},
    tensor::Tensor,
    walk::{Operand, Walk, Walked},
};
use crate::{
    bind::{Bindings, StateId, WeightId},
    config::Resolved,
    ir::{DType, Program, TwinBackend},
};

pub use super::weights::ReadWeight;

pub struct Interpreter {
    program: Arc<Program>,
    resolved: Arc<Resolved>,
    bindings: Arc<Bindings>,
    numeric: Numeric,
}

/// What a call gives.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub results: Vec<Tensor>,
    /// In order of evaluation.
    pub probes: Vec<(String, Tensor)>,
}

impl Outcome {
    pub fn probe(&self, name: &str) -> Option<&Tensor> {
        self.probes.iter().find(|(n, _)| n == name).map(|(_, tensor)| tensor)
    }
}

impl Interpreter {
    /// `family` is what `F` is: f32, f16 or bf16. Weights are read when a call first needs them.
    pub fn new(
        program: Arc<Program>,
        resolved: Arc<Resolved>,
        bindings: Arc<Bindings>,
        family: DType,
        precision: Precision,
        read: ReadWeight,
    ) -> Interpreter {
        let numeric = Numeric::new(bindings.clone(), family, precision, read);
        Interpreter { program, resolved, bindings, numeric }
    }

    /// From now on calls go on from what `feed` gives for a probe; the probes of an [`Outcome`] are still the values computed.
    pub fn feed(&mut self, feed: Feed) {
        self.numeric.feed = Some(feed);
    }

    /// Run a graph. Row `b` of the call is the request in slot `slots[b]`; states show `positions` positions. When the
    /// call fails, no state has changed.
    pub fn call(
        &mut self,
        graph: &str,
        inputs: &[(&str, Tensor)],
        slots: &[usize],
        positions: usize,
    ) -> Result<Outcome, Fault> {
        let program = self.program.clone();
        let here = program.block(program.model).span;
        let fault = |message: String| Fault::new(&program.sources, here, message);
        if slots.iter().enumerate().any(|(i, slot)| slots[..i].contains(slot)) {
            return Err(fault(format!("a slot stands for two rows of one call: {slots:?}")));
        }
        self.numeric.call = Call { slots: slots.to_vec(), positions, ..Call::default() };
        let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (*n, self.numeric.input(t.clone()))).collect();
        let over = Walked { program: &self.program, resolved: &self.resolved, bindings: &self.bindings };
        let mut walk = Walk::new(over, &mut self.numeric, positions);
        let results = walk.graph(graph, &inputs)?;
        let probes = std::mem::take(&mut self.numeric.call.probes);
        self.numeric.commit().map_err(fault)?;
        Ok(Outcome { results, probes })
    }

    /// A new request begins in this slot: all its state is zero.
    pub fn reset(&mut self, slot: usize) {
        self.numeric.held.retain(|(_, held), _| *held != slot);
    }

    /// The request in this slot keeps its first `kept` positions, and with none of them nothing at all; what it does not keep is
    /// zero.
    pub fn forget(&mut self, slot: usize, kept: usize) -> Result<(), String> {
        if kept == 0 {
            self.reset(slot);
        }
        for ((id, _), held) in self.numeric.held.iter_mut().filter(|((_, held), _)| *held == slot) {
            let axis = self.bindings.states.get(id.0).and_then(|state| state.positions());
            // What is held has no axis of rows.
            if let Some(axis) = axis.and_then(|axis| axis.checked_sub(1))
                && held.shape()[axis] > kept
            {
                *held = range(held, axis, 0, kept)?;
            }
        }
        Ok(())
    }

    /// The state at a field path (`layers.0.self_attn.cache.k`) of the request in a slot, without the axis of rows and with
    /// the positions shown so far. `None` where nothing was written.
    pub fn state(&self, path: &str, slot: usize) -> Option<&Tensor> {
        let at = self.bindings.states.iter().position(|s| s.path == path)?;
        self.numeric.held.get(&(StateId(at), slot))
    }
}

/// A derived weight by its field path, in f32 where it is declared `F`: computed from the weights that `read` gives, none
/// of which is kept.
pub fn derived_weight(
    program: &Program,
    resolved: &Resolved,
    bindings: &Arc<Bindings>,
    path: &str,
    read: ReadWeight,
) -> Result<Tensor, Fault> {
    let at = bindings.weights.iter().position(|w| w.path == path);
    let id = at.map(WeightId).ok_or_else(|| {
        Fault::new(&program.sources, program.block(program.model).span, format!("no weight is bound to `{path}`"))
    })?;
    let mut numeric = Numeric::new(bindings.clone(), DType::F32, Precision::Single, read);
    Walk::new(Walked { program, resolved, bindings }, &mut numeric, 0).derived(id)
}

/// A weight as its binding says, of the stored tensors that `read` gives; a derived one is computed. `family` is what `F` is.
pub fn stored_weight(
    program: &Program,
    resolved: &Resolved,
    bindings: &Arc<Bindings>,
    id: WeightId,
    family: DType,
    read: ReadWeight,
) -> Result<Store<Tensor>, String> {
    let mut numeric = Numeric::new(bindings.clone(), family, Precision::Single, read);
    numeric.weight(Walked { program, resolved, bindings }, id)
}

/// One op of a program on given operands, outside any model; with `twins`, the op that this backend takes for it.
pub fn run_op(
    program: &Program,
    name: &str,
    operands: Vec<Operand<Tensor>>,
    family: DType,
    precision: Precision,
    twins: Option<TwinBackend>,
) -> Result<Vec<Tensor>, Fault> {
    let bindings = Arc::new(Bindings::none(program));
    let read = |name: &str| Err(format!("an op reads no weight, not even `{name}`"));
    let mut numeric = Numeric::new(bindings.clone(), family, precision, Box::new(read));
    let held = |operand| match operand {
        Operand::Tensor(tensor) => Operand::Tensor(numeric.input(tensor)),
        Operand::Matrix(Matrix { shape, store, weight }) => {
            let store = match store {
                Store::Dense(dense) => Store::Dense(numeric.input(dense)),
                Store::Packed { codes, bytes, scales, biases, bits, group } => {
                    let (scales, biases) = (numeric.input(scales), numeric.input(biases));
                    Store::Packed { codes, bytes, scales, biases, bits, group }
                }
            };
            Operand::Matrix(Matrix { shape, store, weight })
        }
        Operand::List(items) => Operand::List(items.into_iter().map(|item| numeric.input(item)).collect()),
        Operand::Load(value) => Operand::Load(value),
    };
    let operands = operands.into_iter().map(held).collect();
    let resolved = Resolved::default();
    let mut walk = Walk::new(Walked { program, resolved: &resolved, bindings: &bindings }, &mut numeric, 0);
    walk.twins = twins;
    walk.named_op(name, operands)
}
