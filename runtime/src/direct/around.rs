//! What both backends' walks share: operands and weights brought in, states that begin at zero, probes kept.

use std::collections::BTreeMap;

use mgraph_dsl::{
    bind::{Bindings, StateDim, StateId, WeightId},
    config::Resolved,
    interpret::{Domain, Matrix, Operand, Store, Walk, Walked, stored_weight},
    ir::TwinBackend,
};

use super::{GraphCall, Work, reference, value::declared};
use crate::{
    error::{Context, Result, anyhow},
    tensor::{DType, Tensor},
    weights::concrete,
};

/// A backend that host tensors can be brought to.
pub(super) trait Backend: Domain {
    fn bring(&mut self, tensor: &Tensor) -> Result<Self::Tensor>;

    fn around(&mut self) -> &mut Around<Self::Tensor>;
}

/// What lasts for one walk.
pub(super) struct Around<T> {
    pub weights: BTreeMap<WeightId, Store<T>>,
    pub states: BTreeMap<StateId, T>,
    pub probes: Vec<(String, T)>,
}

impl<T> Around<T> {
    pub fn new() -> Around<T> {
        Around { weights: BTreeMap::new(), states: BTreeMap::new(), probes: Vec::new() }
    }
}

/// Walks over `work`. The results are the backend's; probes wait in [`Around`].
pub(super) fn walk<B: Backend>(domain: &mut B, work: &Work<'_>, twins: Option<TwinBackend>) -> Result<Vec<B::Tensor>> {
    match work {
        Work::Op { program, name, operands } => {
            let operands = operands.iter().map(|operand| enter(domain, operand)).collect::<Result<_>>()?;
            let (resolved, bindings) = (Resolved::default(), Bindings::none(program));
            let mut walk = Walk::new(Walked { program, resolved: &resolved, bindings: &bindings }, domain, 0);
            walk.twins = twins;
            walk.named_op(name, operands).map_err(|fault| anyhow!("{fault}"))
        }
        Work::Graph(call) => {
            let inputs = call.inputs.iter().map(|(name, tensor)| Ok((*name, domain.bring(tensor)?)));
            let inputs: Vec<(&str, B::Tensor)> = inputs.collect::<Result<_>>()?;
            let over = Walked { program: call.program, resolved: call.resolved, bindings: call.bindings };
            let mut walk = Walk::new(over, domain, call.positions);
            walk.twins = twins;
            walk.graph(call.graph, &inputs).map_err(|fault| anyhow!("{fault}"))
        }
    }
}

fn enter<B: Backend>(domain: &mut B, operand: &Operand<Tensor>) -> Result<Operand<B::Tensor>> {
    Ok(match operand {
        Operand::Tensor(tensor) => Operand::Tensor(domain.bring(tensor)?),
        Operand::List(items) => Operand::List(items.iter().map(|item| domain.bring(item)).collect::<Result<_>>()?),
        Operand::Load(value) => Operand::Load(value.clone()),
        Operand::Matrix(Matrix { shape, store, weight }) => {
            Operand::Matrix(Matrix { shape: shape.clone(), store: bring(domain, store)?, weight: *weight })
        }
    })
}

fn bring<B: Backend>(domain: &mut B, store: &Store<Tensor>) -> Result<Store<B::Tensor>> {
    Ok(match store {
        Store::Dense(dense) => Store::Dense(domain.bring(dense)?),
        Store::Packed { codes, bytes, scales, biases, bits, group } => Store::Packed {
            codes: domain.bring(codes)?,
            bytes: domain.bring(bytes)?,
            scales: domain.bring(scales)?,
            biases: domain.bring(biases)?,
            bits: *bits,
            group: *group,
        },
    })
}

/// What [`Domain::weight`] is on every backend.
pub(super) fn weight<B: Backend>(
    domain: &mut B,
    call: Option<&GraphCall<'_>>,
    id: WeightId,
) -> Result<Store<B::Tensor>, String> {
    if let Some(store) = domain.around().weights.get(&id) {
        return Ok(store.clone());
    }
    let call = call.ok_or("an op reads no weights")?;
    let family = domain.family_dtype();
    let read = call.stored.clone();
    let read = Box::new(move |name: &str| read(name));
    let stored = stored_weight(call.program, call.resolved, call.bindings, id, family, read)?;
    let stored = match stored {
        Store::Dense(dense) => Store::Dense(reference::host(&dense)),
        Store::Packed { codes, bytes, scales, biases, bits, group } => Store::Packed {
            codes: reference::host(&codes),
            bytes: reference::host(&bytes),
            scales: reference::host(&scales),
            biases: reference::host(&biases),
            bits,
            group,
        },
    };
    let store = bring(domain, &stored).map_err(|e| format!("{e:#}"))?;
    domain.around().weights.insert(id, store.clone());
    Ok(store)
}

/// What [`Domain::read`] is on every backend.
pub(super) fn read<B: Backend>(
    domain: &mut B,
    call: Option<&GraphCall<'_>>,
    float: DType,
    id: StateId,
) -> Result<B::Tensor, String> {
    if let Some(state) = domain.around().states.get(&id) {
        return Ok(state.clone());
    }
    let zeros = || {
        let call = call.context("an op reads no state")?;
        let state = call.bindings.states.get(id.0).with_context(|| format!("there is no state {}", id.0))?;
        let shape: Vec<usize> = state
            .dims
            .iter()
            .map(|dim| match dim {
                StateDim::Rows => call.rows,
                StateDim::Positions => call.positions,
                StateDim::Size(size) => *size as usize,
            })
            .collect();
        let dtype = concrete(state.dtype, float);
        let bytes = vec![0; shape.iter().product::<usize>() * dtype.size()];
        Ok::<_, crate::error::Error>(Tensor { dtype, shape, bytes })
    };
    let state = zeros().and_then(|zeros| domain.bring(&zeros)).map_err(|e| format!("{e:#}"))?;
    domain.around().states.insert(id, state.clone());
    Ok(state)
}

/// What [`Domain::probe`] is on every backend.
pub(super) fn probe<B: Backend>(domain: &mut B, name: String, value: &B::Tensor) -> Result<(), String> {
    let probes = &mut domain.around().probes;
    if probes.iter().any(|(known, _)| *known == name) {
        return Err(format!("the probe name {name:?} occurs twice in this call"));
    }
    probes.push((name, value.clone()));
    Ok(())
}

/// The operands of a primitive, as many as it takes.
pub(super) fn exactly<'a, T, const N: usize>(operands: &[&'a T]) -> Result<[&'a T; N], String> {
    operands.try_into().map_err(|_| format!("takes {N} operands, not {}", operands.len()))
}

/// `F` as the walk knows it.
pub(super) fn family(float: DType) -> mgraph_dsl::ir::DType {
    declared(float)
}
