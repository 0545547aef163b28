//! The recorder that generated code calls: one method per primitive, a copyable handle per value. Types are checked as ops
//! are recorded; the first impossible one is kept and reported by [`Build::finish`], so generated code needs no `?`.
//! Equal ops on equal operands are recorded once and unread ones dropped: no other rewrite happens here.
//!
//! This file has what is not an op: arguments, states, probes, the end. `ops.rs` has the primitives.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use super::{
    graph::{Argument, ArgumentKind, Graph, GraphResult, Node, Op, Part, ResultKind},
    types::{DType, Type, V, axis},
};
use crate::{
    error::{Result, bail},
    probes::Probes,
};

/// A weight as the checkpoint's binding gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightType {
    Dense(Type),
    /// `shape` is that of the dense matrix, `[.., n, k]`. `scales` is the dtype in which scales and biases are passed; a graph
    /// widens them to `F` where it reads them.
    Packed {
        shape: Vec<i64>,
        bits: i64,
        group: i64,
        scales: DType,
    },
}

/// What a graph is built for.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// The dtype of `F`.
    pub float: DType,
    /// Declared twins may stand in, and the compiler may merge roundings.
    pub fused: bool,
    /// Reported ones become results; what a call goes on from instead becomes an argument.
    pub probes: Probes,
    /// `T`.
    pub positions: i64,
    /// By field path.
    pub weights: Arc<BTreeMap<String, WeightType>>,
    /// By field path, for the rows and positions of this graph.
    pub states: Arc<BTreeMap<String, Type>>,
    /// By field path, the states that hold some positions, from a first one of each row on, which an input `[B]` of i32 tells.
    pub windows: Arc<BTreeMap<String, Windowed>>,
}

/// A state that does not hold every position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windowed {
    /// Which of the inputs behind those of the graph tells the first ones.
    pub number: usize,
    /// How many it holds.
    pub room: i64,
}

/// A matrix that may be packed. A packed one is never expanded here: the prelude says how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    /// Of the dense matrix, `[.., n, k]`.
    shape: Vec<i64>,
    stored: StoredMatrix,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoredMatrix {
    Dense(V),
    /// `codes`: u32 `[.., n, k * bits / 32]`; `bytes`: u8 `[.., n, k * bits / 8]`; `scales` and `biases`: `F[.., n, k / group]`.
    Packed {
        codes: V,
        bytes: V,
        scales: V,
        biases: V,
        bits: i64,
        group: i64,
    },
}

impl Matrix {
    pub(super) fn new(shape: Vec<i64>, stored: StoredMatrix) -> Matrix {
        Matrix { shape, stored }
    }

    /// Of the dense matrix.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    pub fn packed(&self) -> bool {
        matches!(self.stored, StoredMatrix::Packed { .. })
    }

    /// Bits of a code; 0 for a dense matrix.
    pub fn bits(&self) -> i64 {
        match self.stored {
            StoredMatrix::Dense(_) => 0,
            StoredMatrix::Packed { bits, .. } => bits,
        }
    }

    /// Columns that share a scale; 0 for a dense matrix.
    pub fn group(&self) -> i64 {
        match self.stored {
            StoredMatrix::Dense(_) => 0,
            StoredMatrix::Packed { group, .. } => group,
        }
    }

    pub(super) fn stored(&self) -> StoredMatrix {
        self.stored
    }
}

pub struct Build {
    options: BuildOptions,
    pub(super) nodes: Vec<Node>,
    known: HashMap<Node, V>,
    arguments: Vec<Argument>,
    declared: HashMap<ArgumentKind, V>,
    /// Present value of every state that was named, and whether it was assigned.
    states: BTreeMap<String, (V, bool)>,
    /// By number, the first position that each row holds.
    firsts: Vec<V>,
    /// Values of states that do not hold every position, by the number of their first ones.
    windowed: HashMap<V, usize>,
    probes: Vec<(String, V)>,
    fault: Option<String>,
}

impl Build {
    pub fn new(options: BuildOptions) -> Build {
        let mut build = Build {
            options,
            nodes: Vec::new(),
            known: HashMap::new(),
            arguments: Vec::new(),
            declared: HashMap::new(),
            states: BTreeMap::new(),
            firsts: Vec::new(),
            windowed: HashMap::new(),
            probes: Vec::new(),
            fault: None,
        };
        // Value 0 stands for whatever has no type, once a fault is recorded.
        build.record(Op::Constant(vec![0]), Vec::new(), Type::new(DType::F32, &[]));
        build
    }

    /// The dtype of `F`.
    pub fn f(&self) -> DType {
        self.options.float
    }

    /// Whether declared twins may stand in.
    pub fn fused(&self) -> bool {
        self.options.fused
    }

    /// Whether probes are results of this graph.
    pub fn probes(&self) -> bool {
        self.options.probes.reported()
    }

    /// `T`, the positions that states show.
    pub fn positions(&self) -> i64 {
        self.options.positions
    }

    pub fn ty(&self, x: V) -> &Type {
        &self.nodes[x.index()].ty
    }

    pub fn dtype(&self, x: V) -> DType {
        self.ty(x).dtype
    }

    pub fn shape(&self, x: V) -> Vec<i64> {
        self.ty(x).shape.clone()
    }

    /// Size of an axis, counted from the front, or from the back where negative.
    pub fn dim(&mut self, x: V, at: i32) -> i64 {
        match axis(at, self.ty(x).rank()) {
            Some(at) => self.ty(x).shape[at],
            None => {
                let ty = self.ty(x).clone();
                self.fail(format_args!("axis {at} of {ty} does not exist"));
                1
            }
        }
    }

    /// Elements of a value.
    pub fn size(&self, x: V) -> i64 {
        self.ty(x).elements()
    }

    /// The next parameter of the graph.
    pub fn input(&mut self, dtype: DType, shape: &[i64]) -> V {
        let at = self.arguments.iter().filter(|a| matches!(a.kind, ArgumentKind::Input(_))).count();
        self.argument(ArgumentKind::Input(at), Type::new(dtype, shape))
    }

    /// The inputs behind those of the graph, which tell the first positions that rows hold.
    pub(super) fn inputs_of_windows(&mut self, rows: i64) {
        let count = self.options.windows.values().map(|windowed| windowed.number + 1).max().unwrap_or(0);
        self.firsts = (0..count).map(|_| self.input(DType::I32, &[rows])).collect();
    }

    /// For each row, the first position that a value of a state holds; `None` where that is 0.
    pub(super) fn first_of(&self, state: V) -> Option<V> {
        self.windowed.get(&state).and_then(|number| self.firsts.get(*number)).copied()
    }

    /// `new` holds the positions that `old` holds.
    pub(super) fn holds_as(&mut self, new: V, old: V) {
        if let Some(number) = self.windowed.get(&old) {
            self.windowed.insert(new, *number);
        }
    }

    /// A value over all positions, one of its axes, cut to those that a state holds.
    pub fn held_part(&mut self, path: &str, value: V, at: i32) -> V {
        let Some(Windowed { number, room }) = self.options.windows.get(path).copied() else { return value };
        let whole = self.ty(value).clone();
        let (Some(at), Some(first)) = (axis(at, whole.rank()).filter(|at| *at > 0), self.firsts.get(number).copied())
        else {
            return self.fail(format_args!("{whole} at axis {at}: nothing tells which positions state {path} holds"));
        };
        let rows = whole.shape[0];
        let first = self.reshape(first, &[rows, 1]);
        let places = self.iota(room);
        let places = self.add(first, places);
        let mut shape = vec![1; whole.rank()];
        (shape[0], shape[at]) = (rows, room);
        let places = self.reshape(places, &shape);
        self.take_along(value, places, at as i32)
    }

    /// A dense weight, by field path.
    pub fn weight(&mut self, path: &str) -> V {
        match self.options.weights.get(path).cloned() {
            Some(WeightType::Dense(ty)) => self.argument(ArgumentKind::Weight(path.into()), ty),
            Some(WeightType::Packed { .. }) => self.fail(format_args!("weight {path} is packed and used as a tensor")),
            None => self.fail(format_args!("weight {path} is not bound")),
        }
    }

    /// A matrix, by field path.
    pub fn matrix(&mut self, path: &str) -> Matrix {
        let Some(WeightType::Packed { shape, bits, group, scales }) = self.options.weights.get(path).cloned() else {
            let dense = self.weight(path);
            return Matrix::new(self.shape(dense), StoredMatrix::Dense(dense));
        };
        let columns = shape.last().copied().unwrap_or(0);
        if bits <= 0 || group <= 0 || columns * bits % 32 != 0 || columns % group != 0 {
            let what = format_args!("matrix {path} {shape:?} cannot be packed with {bits} bits in groups of {group}");
            let stored = StoredMatrix::Dense(self.fail(what));
            return Matrix::new(shape, stored);
        }
        let leading = &shape[..shape.len() - 1];
        let with = |last: i64| [leading, &[last]].concat();
        let (words, bytes) = (with(columns * bits / 32), with(columns * bits / 8));
        let groups = with(columns / group);
        let mut part = |part, dtype, shape: &[i64]| {
            self.argument(ArgumentKind::Packed(path.into(), part), Type::new(dtype, shape))
        };
        let (codes, bytes) = (part(Part::Codes, DType::U32, &words), part(Part::Bytes, DType::U8, &bytes));
        let (scales, biases) = (part(Part::Scales, scales, &groups), part(Part::Biases, scales, &groups));
        let (scales, biases) = (self.convert(scales, self.f()), self.convert(biases, self.f()));
        let stored = StoredMatrix::Packed { codes, bytes, scales, biases, bits, group };
        Matrix::new(shape, stored)
    }

    fn argument(&mut self, kind: ArgumentKind, ty: Type) -> V {
        if let Some(known) = self.declared.get(&kind) {
            return *known;
        }
        let at = self.arguments.len();
        self.arguments.push(Argument { kind: kind.clone(), ty: ty.clone() });
        let v = self.record(Op::Argument(at), Vec::new(), ty);
        self.declared.insert(kind, v);
        v
    }

    /// The present value of a state, by field path.
    pub fn state(&mut self, path: &str) -> V {
        if let Some((v, _)) = self.states.get(path) {
            return *v;
        }
        let Some(ty) = self.options.states.get(path).cloned() else {
            return self.fail(format_args!("state {path} is not declared"));
        };
        let v = self.argument(ArgumentKind::State(path.into()), ty);
        self.states.insert(path.into(), (v, false));
        if let Some(windowed) = self.options.windows.get(path) {
            self.windowed.insert(v, windowed.number);
        }
        v
    }

    /// Replace the value of a state.
    pub fn set_state(&mut self, path: &str, value: V) {
        let present = self.state(path);
        if self.ty(present) != self.ty(value) {
            let (is, becomes) = (self.ty(present).clone(), self.ty(value).clone());
            self.fail(format_args!("state {path} is {is} and cannot become {becomes}"));
            return;
        }
        self.states.insert(path.into(), (value, true));
    }

    /// Name a value; gives what the call goes on from. Nothing happens when probes are off.
    pub fn probe(&mut self, name: &str, value: V) -> V {
        if !self.options.probes.reported() {
            return value;
        }
        if self.probes.iter().any(|(known, _)| known == name) {
            return self.fail(format_args!("probe {name} occurs twice in one call"));
        }
        self.probes.push((name.into(), value));
        let ty = self.ty(value).clone();
        match self.options.probes.instead(name, ty.dtype, &ty.sizes()) {
            Some(_) => self.argument(ArgumentKind::Probe(name.into()), ty),
            None => value,
        }
    }

    pub(super) fn record(&mut self, op: Op, operands: Vec<V>, ty: Type) -> V {
        let node = Node { op, operands, ty };
        if let Some(known) = self.known.get(&node) {
            return *known;
        }
        let v = V(self.nodes.len() as u32);
        self.known.insert(node.clone(), v);
        self.nodes.push(node);
        v
    }

    /// Keep the first fault.
    pub(super) fn fail(&mut self, what: fmt::Arguments<'_>) -> V {
        self.fault.get_or_insert_with(|| what.to_string());
        V(0)
    }

    /// The first impossible type so far, which [`Build::finish`] will report.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Close the graph with its results.
    ///
    /// Errors: the first impossible type met while recording, which is a fault of the emitter or of the binding.
    pub fn finish(self, outputs: &[V]) -> Result<Graph> {
        if let Some(fault) = self.fault {
            bail!("the graph has no valid types: {fault}");
        }
        let outputs = outputs.iter().enumerate().map(|(i, v)| (ResultKind::Output(i), *v));
        let states = self.states.into_iter().filter(|(_, (_, assigned))| *assigned);
        let states = states.map(|(path, (v, _))| (ResultKind::State(path), v));
        let probes = self.probes.into_iter().map(|(name, v)| (ResultKind::Probe(name), v));
        let results: Vec<(ResultKind, V)> = outputs.chain(states).chain(probes).collect();
        let assigned: BTreeSet<&str> = results
            .iter()
            .filter_map(|(kind, _)| if let ResultKind::State(path) = kind { Some(path.as_str()) } else { None })
            .collect();

        // An argument is passed where something reads it; a parameter always, and an assigned state for its buffer.
        let mut read = vec![false; self.nodes.len()];
        for (kind, v) in &self.declared {
            read[v.index()] = match kind {
                ArgumentKind::Input(_) => true,
                ArgumentKind::State(path) => assigned.contains(path.as_str()),
                ArgumentKind::Weight(_) | ArgumentKind::Packed(..) | ArgumentKind::Probe(_) => false,
            };
        }
        for (_, v) in &results {
            read[v.index()] = true;
        }
        for at in (0..self.nodes.len()).rev() {
            if read[at] {
                for operand in &self.nodes[at].operands {
                    read[operand.index()] = true;
                }
            }
        }

        let mut renamed = vec![V(0); self.nodes.len()];
        let mut nodes: Vec<Node> = Vec::new();
        let mut arguments = Vec::new();
        for (at, node) in self.nodes.into_iter().enumerate() {
            if !read[at] {
                continue;
            }
            renamed[at] = V(nodes.len() as u32);
            let op = match node.op {
                Op::Argument(argument) => {
                    arguments.push(self.arguments[argument].clone());
                    Op::Argument(arguments.len() - 1)
                }
                op => op,
            };
            let operands = node.operands.iter().map(|v| renamed[v.index()]).collect();
            nodes.push(Node { op, operands, ty: node.ty });
        }
        let results = results.into_iter().map(|(kind, v)| GraphResult { kind, value: renamed[v.index()] }).collect();
        Ok(Graph { nodes, arguments, results, fused: self.options.fused })
    }
}
