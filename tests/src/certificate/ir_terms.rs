//! The terms of a graph as the IR says.

use mgraph_dsl::{
    interpret::Primitive,
    ir::TwinBackend,
    trace::{Node, Trace, What},
};
use mgraph_runtime::{
    error::{Result, bail},
    hlo::DType,
};

use super::{
    Case, Input, concrete, rounded,
    terms::{Ends, Id, Terms},
    traced, weight,
};

pub fn terms(case: &Case<'_>, inputs: &[Input], terms: &mut Terms) -> Result<Ends> {
    let trace = traced(case, inputs, TwinBackend::Mlx)?;
    let mut known: Vec<Id> = Vec::new();
    for node in &trace.nodes {
        let operands: Vec<Id> = node.operands.iter().map(|id| known[id.0]).collect();
        let dtype = concrete(node.dtype, case.float);
        known.push(match &node.what {
            What::Input(name) => terms.leaf(format!("input {name}"), dtype, &node.shape),
            What::State(path) => terms.leaf(format!("state {path}"), dtype, &node.shape),
            What::Weight { path, part } => terms.leaf(weight(path, *part), dtype, &node.shape),
            What::Kernel { path, numbers } => terms.add(path, numbers, &operands, dtype, &node.shape),
            What::Primitive(primitive) => op(terms, &trace, node, primitive, &operands, dtype)?,
        });
    }
    let mut ends = Ends {
        results: trace.results.iter().map(|id| known[id.0]).collect(),
        states: trace.writes.iter().map(|(path, id)| (path.clone(), known[id.0])).collect(),
        probes: Vec::new(),
    };
    for (node, id) in trace.nodes.iter().zip(&known) {
        ends.probes.extend(node.probes.iter().map(|name| (name.clone(), *id)));
    }
    Ok(ends)
}

fn op(
    terms: &mut Terms,
    trace: &Trace,
    node: &Node,
    primitive: &Primitive,
    operands: &[Id],
    dtype: DType,
) -> Result<Id> {
    let axes = |axes: &[usize]| axes.iter().map(|a| *a as f64).collect::<Vec<f64>>();
    let numbers = match primitive {
        Primitive::Constant(number) => return Ok(terms.constant(&[rounded(*number, dtype)], dtype)),
        Primitive::ConstantList(numbers) => {
            let numbers: Vec<f64> = numbers.iter().map(|n| rounded(*n, dtype)).collect();
            return Ok(terms.constant(&numbers, dtype));
        }
        Primitive::Slice(cuts) => {
            let kept: Vec<usize> = cuts.iter().map(|c| c.end - c.start).collect();
            let numbers: Vec<f64> = cuts.iter().flat_map(|c| [c.start as f64, c.end as f64]).collect();
            if trace.nodes[node.operands[0].0].shape.len() != cuts.len() {
                bail!("a slice with {} cuts", cuts.len());
            }
            let cut = terms.add("slice", &numbers, operands, dtype, &kept);
            return Ok(terms.add("reshape", &[], &[cut], dtype, &node.shape));
        }
        Primitive::Transpose(permutation) => axes(permutation),
        Primitive::Reduce { axes: reduced, .. } => {
            let mut reduced = axes(reduced);
            reduced.sort_by(f64::total_cmp);
            reduced
        }
        Primitive::Concat { axis }
        | Primitive::Take { axis }
        | Primitive::TakeAlong { axis }
        | Primitive::Update { axis } => axes(&[*axis]),
        Primitive::Unary(_)
        | Primitive::Binary(_)
        | Primitive::Compare(_)
        | Primitive::Select
        | Primitive::Convert
        | Primitive::Broadcast
        | Primitive::Iota
        | Primitive::Reshape
        | Primitive::Dot
        | Primitive::Matmul
        | Primitive::TopKValues(_)
        | Primitive::TopKIndices(_) => Vec::new(),
    };
    Ok(terms.add(primitive.name(), &numbers, operands, dtype, &node.shape))
}
