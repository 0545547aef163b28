//! A family with one checkpoint's config and weights, called graph by graph, as a backend's session is.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    domain::Typed,
    fault::Fault,
    numeric::{Call, Numeric, Precision},
    tensor::Tensor,
    walk::{Walk, Walked},
};
use crate::{
    bind::{Bindings, StateId},
    config::Resolved,
    ir::{DType, Program, TwinBackend},
};

pub use super::weights::ReadWeight;

pub struct Interpreter {
    program: Arc<Program>,
    resolved: Arc<Resolved>,
    bindings: Arc<Bindings>,
    numeric: Numeric,
    twins: Option<TwinBackend>,
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
        let numeric = Numeric {
            precision,
            family: if family == DType::F { DType::F32 } else { family },
            bindings: bindings.clone(),
            read,
            weights: BTreeMap::new(),
            kept: BTreeMap::new(),
            held: BTreeMap::new(),
            call: Call::default(),
        };
        Interpreter { program, resolved, bindings, numeric, twins: None }
    }

    /// Take, where a backend's mode `fused` would take another op, that op.
    pub fn set_twins(&mut self, backend: Option<TwinBackend>) {
        self.twins = backend;
    }

    /// What a float input must be held as: in an f64 run f32 values are f64. Other dtypes are as they are.
    pub fn input(&self, tensor: Tensor) -> Tensor {
        let float = matches!(tensor.dtype(), DType::F64 | DType::F32 | DType::F16 | DType::BF16);
        match self.numeric.precision {
            Precision::Double if float => {
                let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
                Tensor::new(dtype, shape, tensor.to_f64()).unwrap_or(tensor)
            }
            Precision::Double | Precision::Single => tensor,
        }
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
        let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(n, t)| (*n, self.input(t.clone()))).collect();
        let over = Walked { program: &self.program, resolved: &self.resolved, bindings: &self.bindings };
        let mut walk = Walk::new(over, &mut self.numeric, positions);
        walk.twins = self.twins;
        let results = walk.graph(graph, &inputs)?;
        let probes = std::mem::take(&mut self.numeric.call.probes);
        self.numeric.commit().map_err(fault)?;
        Ok(Outcome { results, probes })
    }

    /// A new request begins in this slot: all its state is zero.
    pub fn reset(&mut self, slot: usize) {
        self.numeric.held.retain(|(_, held), _| *held != slot);
    }

    /// The state at a field path (`layers.0.self_attn.cache.k`) of the request in a slot, without the axis of rows and with
    /// the positions shown so far. `None` where nothing was written.
    pub fn state(&self, path: &str, slot: usize) -> Option<&Tensor> {
        let at = self.bindings.states.iter().position(|s| s.path == path)?;
        self.numeric.held.get(&(StateId(at), slot))
    }
}
