//! Which states need not be kept whole: a proof that a query never looks further back than a window.
//!
//! A sliding window is a mask, and the mask is all that a family says. Here the op list of a call is walked with, for every
//! value, what stands at the positions before the window: for a state all of them are read together with a mask that hides them
//! (`windows/flow.rs`), what was there cannot matter, and a backend may drop it. That holds for finite numbers: a hidden score is
//! replaced, but a hidden value is multiplied by zero.
//!
//! What is dropped leaves fewer positions than `T`, so everything with an axis of positions that meets such a state must be cut
//! to them. That happens where a block's function is called that has the cache as its child (`windows/cuts.rs`).

mod cuts;
mod flow;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    bind::Bindings,
    config::Resolved,
    ir::{BlockId, DType, Function, ParameterKind, Program, Statement, Type},
    load::{Environment, Val, extent},
    trace::{Sizes, Trace, trace},
};

pub use cuts::{Cut, cut};

/// By the path of a state: a query at position `p` reads nothing of it before `p - window + 1`. A state that is not there may be
/// read from its first position on, or nothing is known of it.
pub type Windows = BTreeMap<String, u64>;

/// Of a family with one config. Empty where nothing can be proved.
pub fn windows(program: &Program, resolved: &Resolved, bindings: &Bindings) -> Windows {
    let held = |state: &&crate::bind::State| state.positions().is_some();
    let kept: BTreeSet<&str> = bindings.states.iter().filter(held).map(|state| state.path.as_str()).collect();
    let cuttable = cuts::cuttable(program, &bindings.root);
    if kept.is_empty() || cuttable.is_empty() {
        return Windows::new();
    }
    let Some(mut windows) = of_graph(program, resolved, bindings, "forward") else { return Windows::new() };
    windows.retain(|path, _| cuttable.iter().any(|states| states.contains(path)));
    // One cut is for all states that it feeds.
    for states in &cuttable {
        let mut found = states.iter().map(|path| windows.get(path));
        let first = found.next().flatten().copied();
        if first.is_none() || found.any(|other| other.copied() != first) {
            windows.retain(|path, _| !states.contains(path));
        }
    }
    // Another graph that reads a state may read all of it.
    let others = program.block(program.model).functions.iter().filter(|f| f.graph && f.name != "forward");
    for other in others {
        if !windows.is_empty() && touches_positions(program, program.model, other, &mut BTreeSet::new()) {
            return Windows::new();
        }
    }
    windows
}

/// The op lists of one call over two numbers of positions tell which axes are positions, and that no number is computed from
/// how many there are.
fn of_graph(program: &Program, resolved: &Resolved, bindings: &Bindings, graph: &str) -> Option<Windows> {
    let [short, long] = [1009, 2027].map(|positions| traced(program, resolved, bindings, graph, positions));
    flow::windows(&short?, &long?, &cuts::ops_within(program))
}

fn traced(program: &Program, resolved: &Resolved, bindings: &Bindings, graph: &str, positions: usize) -> Option<Trace> {
    let function = program.graph(graph)?;
    let names = Names { program, resolved };
    let mut inputs: Vec<(&str, DType, Vec<usize>)> = Vec::new();
    for parameter in &function.parameters {
        let ParameterKind::Value(value) = parameter.kind else { return None };
        let Type::Tensor(ty) = &function.value(value).ty else { return None };
        let shape = ty.shape.dims.iter().map(|dim| extent(dim, function.span, &names).ok()).collect::<Option<_>>()?;
        inputs.push((&parameter.name, ty.dtype, shape));
    }
    let inputs: Vec<(&str, DType, &[usize])> =
        inputs.iter().map(|(n, dtype, shape)| (*n, *dtype, &shape[..])).collect();
    let sizes = Sizes { inputs: &inputs, rows: ROWS, positions, family: DType::F32, twins: None };
    trace(program, resolved, bindings, graph, &sizes).ok()
}

const ROWS: usize = 1;
const TOKENS: usize = 5;

/// A config, and sizes of a call.
struct Names<'a> {
    program: &'a Program,
    resolved: &'a Resolved,
}

impl Environment for Names<'_> {
    fn program(&self) -> &Program {
        self.program
    }
    fn config(&self, path: &[String]) -> Option<Val> {
        self.resolved.get(path).cloned()
    }
    fn free(&self, name: &str) -> Option<i64> {
        let size = match name {
            "B" => ROWS,
            "S" => TOKENS,
            _ => 1,
        };
        Some(size as i64)
    }
}

/// Whether a function, or one that it calls, names a state with positions.
fn touches_positions(
    program: &Program,
    block: BlockId,
    function: &Function,
    seen: &mut BTreeSet<(BlockId, String)>,
) -> bool {
    if !seen.insert((block, function.name.clone())) {
        return false;
    }
    let mut touches = false;
    function.body.for_each(&mut |statement| match statement {
        Statement::StateRead { field, .. } | Statement::StateWrite { field, .. } => {
            touches |= cuts::has_positions(program.block(block).field(*field));
        }
        Statement::CallBlock { block, function, .. } => {
            touches |= touches_positions(program, *block, program.block(*block).function(*function), seen);
        }
        Statement::Prim { .. }
        | Statement::Let { .. }
        | Statement::Weight { .. }
        | Statement::CallOp { .. }
        | Statement::Probe { .. }
        | Statement::If { .. }
        | Statement::List { .. }
        | Statement::For { .. } => {}
    });
    touches
}
