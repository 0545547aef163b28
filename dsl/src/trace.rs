//! The op list of one call: the IR unrolled for a config, sizes and a family dtype into a flat graph of primitives, in order of
//! evaluation. What a backend really executes is compared with this.

mod kernel;
mod reduce;

use std::collections::BTreeSet;

use crate::{
    bind::{Bindings, StateDim, StateId, WeightId, WeightKind},
    config::Resolved,
    interpret::{Application, Domain, Fault, Operand, Primitive, Store, Typed, Walk, Walked},
    ir::{DType, Program, TwinBackend},
    source::Span,
};

/// Index into [`Trace::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub usize);

#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Operands come before what uses them.
    pub nodes: Vec<Node>,
    pub results: Vec<NodeId>,
    /// State paths and what the call leaves there, in the canonical order of states.
    pub writes: Vec<(String, NodeId)>,
    /// Every probe of the call and where it stands in the text, in order.
    pub probes: Vec<(String, Span)>,
    /// Where the conditions stand of the branches that the call came by, and which arms it took.
    pub branches: BTreeSet<(Span, bool)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub what: What,
    pub operands: Vec<NodeId>,
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// The names under which this value can be exported.
    pub probes: Vec<String>,
    /// The op or block function whose text this is: `rms_norm`, `Attention.fn`. Empty for what is not computed.
    pub origin: String,
    pub span: Option<Span>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    Input(String),
    /// By field path.
    Weight {
        path: String,
        part: WeightPart,
    },
    /// What a state holds when the call begins, by field path.
    State(String),
    Primitive(Primitive),
    /// Of [`crate::kernels`], in the place of an op. The operands are the tensors among its arguments, a packed matrix as codes,
    /// scales and biases. `numbers`, in the order of the parameters: a load value; bits and group of a matrix, 0 and 0 of
    /// a dense one; of what may be left out, whether it is there.
    Kernel {
        path: &'static str,
        numbers: Vec<f64>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightPart {
    Dense,
    Codes,
    Bytes,
    Scales,
    Biases,
}

/// The sizes of a call and what `F` is in it.
#[derive(Debug, Clone)]
pub struct Sizes<'a> {
    /// Every input of the graph: name, dtype (`F` for the family's), shape.
    pub inputs: &'a [(&'a str, DType, &'a [usize])],
    pub rows: usize,
    pub positions: usize,
    pub family: DType,
    /// The backend whose twins are taken; `None` in mode `pinned`.
    pub twins: Option<TwinBackend>,
}

/// Everything the graph computes, dead values and repetitions included; see [`Trace::live`] and [`Trace::shared`].
pub fn trace(
    program: &Program,
    resolved: &Resolved,
    bindings: &Bindings,
    graph: &str,
    sizes: &Sizes<'_>,
) -> Result<Trace, Fault> {
    let family = if sizes.family == DType::F { DType::F32 } else { sizes.family };
    let mut tracer = Tracer {
        bindings,
        family,
        rows: sizes.rows,
        positions: sizes.positions,
        nodes: Vec::new(),
        weights: vec![None; bindings.weights.len()],
        states: vec![None; bindings.states.len()],
        written: vec![false; bindings.states.len()],
        probes: Vec::new(),
        branches: BTreeSet::new(),
    };
    let inputs: Vec<(&str, Traced)> = sizes
        .inputs
        .iter()
        .map(|(name, dtype, shape)| (*name, tracer.leaf(What::Input((*name).to_owned()), *dtype, shape.to_vec())))
        .collect();
    let mut walk = Walk::new(Walked { program, resolved, bindings }, &mut tracer, sizes.positions);
    walk.twins = sizes.twins;
    let results = walk.graph(graph, &inputs)?.iter().map(|t| t.id).collect();
    let written = tracer.written.iter().zip(&tracer.states).zip(&bindings.states);
    let writes = written.filter(|((written, _), _)| **written).filter_map(|((_, value), state)| {
        let value = value.as_ref()?;
        Some((state.path.clone(), value.id))
    });
    let writes = writes.collect();
    Ok(Trace { nodes: tracer.nodes, results, writes, probes: tracer.probes, branches: tracer.branches })
}

#[derive(Debug, Clone)]
struct Traced {
    id: NodeId,
    dtype: DType,
    shape: Vec<usize>,
}

impl Typed for Traced {
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.shape
    }
}

struct Tracer<'a> {
    bindings: &'a Bindings,
    family: DType,
    rows: usize,
    positions: usize,
    nodes: Vec<Node>,
    weights: Vec<Option<Store<Traced>>>,
    states: Vec<Option<Traced>>,
    written: Vec<bool>,
    probes: Vec<(String, Span)>,
    branches: BTreeSet<(Span, bool)>,
}

impl Tracer<'_> {
    fn node(&mut self, node: Node) -> Traced {
        let traced = Traced { id: NodeId(self.nodes.len()), dtype: node.dtype, shape: node.shape.clone() };
        self.nodes.push(node);
        traced
    }

    fn leaf(&mut self, what: What, dtype: DType, shape: Vec<usize>) -> Traced {
        let dtype = if dtype == DType::F { self.family } else { dtype };
        let (operands, probes) = (Vec::new(), Vec::new());
        self.node(Node { what, operands, dtype, shape, probes, origin: String::new(), span: None })
    }
}

impl Domain for Tracer<'_> {
    type Tensor = Traced;

    fn family_dtype(&self) -> DType {
        self.family
    }

    fn apply(&mut self, application: &Application<'_>, operands: &[&Traced]) -> Result<Traced, String> {
        Ok(self.node(Node {
            what: What::Primitive(application.primitive.clone()),
            operands: operands.iter().map(|t| t.id).collect(),
            dtype: application.dtype,
            shape: application.shape.to_vec(),
            probes: Vec::new(),
            origin: application.origin.to_owned(),
            span: Some(application.span),
        }))
    }

    fn weight(&mut self, _over: Walked<'_>, id: WeightId) -> Result<Store<Traced>, String> {
        let weight = self.bindings.weights.get(id.0).ok_or_else(|| format!("there is no weight {}", id.0))?;
        if let Some(Some(store)) = self.weights.get(id.0) {
            return Ok(store.clone());
        }
        let shape: Vec<usize> = weight.shape.iter().map(|n| *n as usize).collect();
        let with_last = |last: usize| {
            let mut shape = shape.clone();
            if let Some(columns) = shape.last_mut() {
                *columns = last;
            }
            shape
        };
        let columns = shape.last().copied().unwrap_or(0);
        let mut leaf = |part, dtype, shape| self.leaf(What::Weight { path: weight.path.clone(), part }, dtype, shape);
        let store = match weight.kind {
            WeightKind::Tensor | WeightKind::Matrix | WeightKind::Derived => {
                Store::Dense(leaf(WeightPart::Dense, weight.dtype, shape.clone()))
            }
            WeightKind::Packed { bits, group } => Store::Packed {
                codes: leaf(WeightPart::Codes, DType::U32, with_last(columns * bits as usize / 32)),
                bytes: leaf(WeightPart::Bytes, DType::U8, with_last(columns * bits as usize / 8)),
                scales: leaf(WeightPart::Scales, weight.dtype, with_last(columns / group as usize)),
                biases: leaf(WeightPart::Biases, weight.dtype, with_last(columns / group as usize)),
                bits,
                group,
            },
        };
        self.weights[id.0] = Some(store.clone());
        Ok(store)
    }

    fn read(&mut self, id: StateId) -> Result<Traced, String> {
        let state = self.bindings.states.get(id.0).ok_or_else(|| format!("there is no state {}", id.0))?;
        if let Some(Some(value)) = self.states.get(id.0) {
            return Ok(value.clone());
        }
        let shape = state.dims.iter().map(|d| match d {
            StateDim::Rows => self.rows,
            StateDim::Positions => self.positions,
            StateDim::Size(n) => *n as usize,
        });
        let shape = shape.collect();
        let value = self.leaf(What::State(state.path.clone()), state.dtype, shape);
        self.states[id.0] = Some(value.clone());
        Ok(value)
    }

    fn write(&mut self, id: StateId, value: Traced) -> Result<(), String> {
        let slot = self.states.get_mut(id.0).ok_or_else(|| format!("there is no state {}", id.0))?;
        *slot = Some(value);
        self.written[id.0] = true;
        Ok(())
    }

    fn probe(&mut self, name: String, value: &Traced) -> Result<Option<Traced>, String> {
        if self.nodes.iter().any(|node| node.probes.contains(&name)) {
            return Err(format!("the probe name {name:?} occurs twice in this call"));
        }
        self.nodes[value.id.0].probes.push(name);
        Ok(None)
    }

    fn probed_at(&mut self, name: &str, span: Span) {
        self.probes.push((name.to_owned(), span));
    }

    fn branched(&mut self, span: Span, holds: bool) {
        self.branches.insert((span, holds));
    }

    fn kernel(&mut self, path: &str, arguments: &[Option<Operand<Traced>>]) -> Option<Result<Traced, String>> {
        Some(self.kernel_node(path, arguments))
    }
}
