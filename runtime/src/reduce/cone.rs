//! Which ops belong together: an op with those that lead to it.

use std::collections::{BTreeSet, BinaryHeap};

use mgraph_dsl::trace::NodeId;

use super::Subject;

/// The op and the latest of the ops before it that lead to it, up to `size` in all. `within` tells which may be among them.
pub fn cone(subject: &Subject, result: NodeId, size: usize, within: &dyn Fn(NodeId) -> bool) -> Vec<NodeId> {
    let (mut found, mut next) = (BTreeSet::new(), BinaryHeap::from([result]));
    while let Some(id) = next.pop() {
        if found.len() == size {
            break;
        }
        let joins = id == result || (subject.is_computed(id) && !subject.node(id).shape.contains(&0) && within(id));
        if joins && found.insert(id) {
            next.extend(&subject.node(id).operands);
        }
    }
    found.into_iter().collect()
}

/// The ops of a slice that still lead to its result when `left_out` is given instead.
pub fn without(subject: &Subject, slice: &[NodeId], left_out: NodeId) -> Vec<NodeId> {
    match slice.last() {
        Some(result) => cone(subject, *result, slice.len(), &|id| id != left_out && slice.contains(&id)),
        None => Vec::new(),
    }
}
