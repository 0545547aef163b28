//! Where IREE's compiler must not fuse, because what it makes of it is slow. Each such value is written through a barrier, which
//! is no op of the source ([`super::readback`] looks through it) and changes no number of an elementwise op.
//!
//! Measured on the attention of Molmo2's tower, 16 heads over 729 patches of 2 crops, on a CPU with AVX-512:
//!
//! - exponentials that are summed. IREE finds a softmax in them, computes them twice, and takes maximum and sum one element at a
//!   time: 35 ns for an element; as separate passes 3 ns.
//! - a product in batches whose result is transposed. The transpose becomes part of the product, which then is none that the
//!   compiler has good code for: 9 instead of 80 billion operations a second and core.

use mgraph_dsl::ir::Reduce;

use super::graph::{Elementwise, Graph, Op};

/// Of fewer elements a pass of its own costs more than it saves: a decode step has some thousands.
const WORTH: i64 = 1 << 18;

/// For each node whether its value is kept from being fused with what reads it.
pub fn kept_apart(graph: &Graph) -> Vec<bool> {
    let mut apart = vec![false; graph.nodes.len()];
    for node in &graph.nodes {
        let Some(operand) = node.operands.first() else { continue };
        let mut at = operand.index();
        match &node.op {
            Op::Reduce(Reduce::Sum, _) => {
                apart[at] |= matches!(graph.nodes[at].op, Op::Elementwise(Elementwise::Exponential));
            }
            Op::Transpose(_) => {
                while let (Op::Reshape, Some(before)) = (&graph.nodes[at].op, graph.nodes[at].operands.first()) {
                    at = before.index();
                }
                apart[at] |= matches!(graph.nodes[at].op, Op::Dot { batch: 1.., .. });
            }
            Op::Argument(_)
            | Op::Constant(_)
            | Op::Elementwise(_)
            | Op::Compare(_)
            | Op::Iota
            | Op::Reshape
            | Op::Broadcast(_)
            | Op::Concatenate(_)
            | Op::Slice(_)
            | Op::Reduce(Reduce::Maximum | Reduce::Any, _)
            | Op::Dot { .. }
            | Op::Take(_)
            | Op::TakeAlong { .. }
            | Op::TopKValues(_)
            | Op::TopKIndices(_)
            | Op::Write => {}
        }
    }
    for (apart, node) in apart.iter_mut().zip(&graph.nodes) {
        *apart &= node.ty.elements() >= WORTH;
    }
    apart
}
