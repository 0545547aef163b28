//! What a call of a generated module would compute on MLX, recorded instead of computed: nothing is evaluated but the positions, which
//! the host reads, and no weight is loaded.
//!
//! A kernel is one node: MLX writes some of them as several primitives where the CPU has no code of its own, and one of ours computes at
//! once. While a thread records, `kernel` notes each call, and whoever would evaluate asks `recording` first.

use std::cell::RefCell;

use mgraph_dsl::{
    bind::{Bindings, StateDim},
    config::Resolved,
};
use mlx_rs::{Array, ops};

use super::{
    Core, Weights,
    array::{sizes, to_mlx, upload},
    core::Held,
    readback::{self, Graph, What},
};
use crate::{
    error::{Context, Result},
    family::MlxLoader,
    probes::Probes,
    tensor::{DType, Tensor},
    weights::concrete,
};

/// One call of a graph.
pub struct Call<'a> {
    pub loader: MlxLoader,
    pub resolved: &'a Resolved,
    pub bindings: &'a Bindings,
    pub graph: &'a str,
    /// In the order of the graph's parameters. Positions must be ones that a session could give.
    pub inputs: &'a [(&'a str, Tensor)],
    pub rows: usize,
    pub positions: usize,
    /// What `F` is.
    pub float: DType,
    pub fused: bool,
}

/// A call of a kernel.
pub(super) struct Noted {
    pub path: &'static str,
    pub numbers: Vec<f64>,
    pub operands: Vec<Array>,
    pub result: Array,
}

thread_local! {
    static NOTED: RefCell<Option<Vec<Noted>>> = const { RefCell::new(None) };
}

/// Whether this thread records: then nothing may be evaluated.
pub(super) fn recording() -> bool {
    NOTED.with_borrow(Option::is_some)
}

/// Notes a call of a kernel where this thread records. Operands and numbers are those of [`mgraph_dsl::trace::What::Kernel`].
pub(super) fn kernel(path: &'static str, operands: &[&Array], numbers: &[f64], result: &Array) {
    NOTED.with_borrow_mut(|noted| {
        if let Some(noted) = noted {
            let operands = operands.iter().map(|array| (*array).clone()).collect();
            noted.push(Noted { path, numbers: numbers.to_vec(), operands, result: result.clone() });
        }
    });
}

/// Ends the recording of its thread, also where a call fails.
struct Recording;

impl Recording {
    fn begin() -> Recording {
        NOTED.set(Some(Vec::new()));
        Recording
    }

    fn noted(&self) -> Vec<Noted> {
        NOTED.with_borrow_mut(|noted| noted.as_mut().map(std::mem::take)).unwrap_or_default()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        NOTED.set(None);
    }
}

/// The graph that MLX would execute for a call whose states hold anything.
///
/// Errors: what the call itself says; on Apple targets, where MLX's graph is out of reach.
pub fn record(call: &Call<'_>) -> Result<Graph> {
    let recording = Recording::begin();
    let mut weights = Weights::unread(call.bindings, call.float);
    let module = (call.loader)(call.resolved, &mut weights)?;
    let mut leaves = weights.named();

    let mut core = Core::new(call.float, call.fused);
    core.set_probing(Probes::Reported);
    core.positions = call.positions as i64;
    for state in &call.bindings.states {
        let shape = sizes(state.dims.iter().map(|dim| match dim {
            StateDim::Rows => call.rows as i64,
            StateDim::Positions => call.positions as i64,
            StateDim::Size(size) => *size as i64,
        }))?;
        let held = ops::zeros_dtype(&shape, to_mlx(concrete(state.dtype, call.float)))?;
        leaves.push((What::State(state.path.clone()), held.clone()));
        core.states.insert(state.path.clone(), Held { array: held, positions: state.positions() });
    }
    let mut inputs = Vec::new();
    for (name, value) in call.inputs {
        let input = upload(value).with_context(|| format!("input {name}"))?;
        leaves.push((What::Input((*name).to_owned()), input.clone()));
        inputs.push(input);
    }

    let results = module.graph(&mut core, call.graph, &inputs)?;
    let probes = std::mem::take(&mut core.probes);
    let states = std::mem::take(&mut core.states).into_iter();
    let mut states: Vec<(String, Array)> = states.map(|(path, held)| (path, held.array)).collect();
    states.sort_by(|(a, _), (b, _)| a.cmp(b));
    readback::read(&results, &states, &probes, leaves, recording.noted())
}
