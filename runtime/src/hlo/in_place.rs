//! Where a state must not be written while it is read. A call writes a state where it lies ([`Graph::alias`]). IREE lets one piece of
//! code read the old one and write the new one, which is right for what is read at the very place that is written; of a value that
//! moves, one thread reads what another has written (the test `a_state_moves_within_its_memory`). Such a value is written
//! through a barrier, to memory of its own first.

use super::graph::{ArgumentKind, Graph, Op};

/// How a value depends on the old state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reads {
    Nothing,
    /// Of each place, what lies there.
    InPlace,
    Elsewhere,
}

/// For each node whether it is a state's new value and reads the old one at other places.
pub fn moved(graph: &Graph) -> Vec<bool> {
    let mut moved = vec![false; graph.nodes.len()];
    for at in 0..graph.arguments.len() {
        if let Some(result) = graph.alias(at) {
            let new = graph.results[result].value.index();
            moved[new] |= reads(graph, at)[new] == Reads::Elsewhere;
        }
    }
    moved
}

/// What each node reads of the state that is an argument.
fn reads(graph: &Graph, argument: usize) -> Vec<Reads> {
    debug_assert!(matches!(graph.arguments[argument].kind, ArgumentKind::State(_)));
    let mut all: Vec<Reads> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let anywhere = |reads: Reads| if reads == Reads::Nothing { reads } else { Reads::Elsewhere };
        let mut operands = node.operands.iter().map(|operand| all[operand.index()]);
        let reads = match &node.op {
            Op::Argument(at) if *at == argument => Reads::InPlace,
            Op::Elementwise(_) | Op::Compare(_) | Op::Reshape => operands.max().unwrap_or(Reads::Nothing),
            Op::Write => {
                let whole = operands.next().unwrap_or(Reads::Nothing);
                operands.map(anywhere).fold(whole, Reads::max)
            }
            Op::Argument(_)
            | Op::Constant(_)
            | Op::Iota
            | Op::Transpose(_)
            | Op::Broadcast(_)
            | Op::Concatenate(_)
            | Op::Slice(_)
            | Op::Reduce(..)
            | Op::Dot { .. }
            | Op::Take(_)
            | Op::TakeAlong { .. }
            | Op::TopKValues(_)
            | Op::TopKIndices(_) => operands.map(anywhere).max().unwrap_or(Reads::Nothing),
        };
        all.push(reads);
    }
    all
}
