//! The certificate: the ops of a graph as the IR says, and as a backend has them: read back from the StableHLO that its emitter wrote, or
//! from the graph that MLX would execute. Two listings that must be equal line by line; constants stand inline, and a broadcast is no op
//! where it only repeats an operand.

mod ir_terms;
mod mlx;
pub mod terms;

use std::{collections::BTreeMap, fmt, sync::Arc};

use mgraph_dsl::{
    bind::{Bindings, StateDim, WeightKind},
    config::Resolved,
    interpret::{Number, Primitive},
    ir::{self, ParameterKind, Program, TwinBackend, Type},
    load::{Environment, Val, extent},
    trace::{self, Sizes, WeightPart, What, trace},
};
use mgraph_runtime::{
    error::{Context, Result, anyhow, bail, ensure},
    family::{HloEmitter, MlxLoader},
    hlo::{
        self, Build, BuildOptions, WeightType, emit,
        graph::{ArgumentKind, Part, ResultKind},
        readback::{self, Operand, Read},
    },
    probes::Probes,
    weights,
};

/// A config with its weights, and the sizes of a call.
pub struct Case<'a> {
    pub program: &'a Program,
    pub resolved: &'a Resolved,
    pub bindings: &'a Bindings,
    pub graph: &'a str,
    /// `B`, `S`, `R`, `T`.
    pub sizes: [usize; 4],
    /// What `F` is.
    pub float: ir::DType,
    pub fused: bool,
}

/// What generated code has for a backend.
#[derive(Clone, Copy)]
pub enum Emitted {
    Mlx(MlxLoader),
    Hlo(HloEmitter),
}

impl Case<'_> {
    /// What the IR says, with the twins of one backend in mode `fused`.
    pub fn of_ir(&self, backend: TwinBackend) -> Result<Vec<String>> {
        let inputs = inputs(self)?;
        match backend {
            TwinBackend::Hlo => of_ir(self, &inputs),
            // A store of its own: on one, a term of the other side could hide that a rewrite depends on the order.
            TwinBackend::Mlx => {
                let mut terms = terms::Terms::default();
                let ends = ir_terms::terms(self, &inputs, &mut terms)?;
                Ok(terms.listing(&ends))
            }
        }
    }

    /// What the backend has.
    ///
    /// Errors: there is no listing. That is a drift too: something is no primitive of the language.
    pub fn of_backend(&self, emitted: Emitted) -> Result<Vec<String>> {
        match emitted {
            Emitted::Hlo(emitter) => self.emission(emitter)?.listing(),
            Emitted::Mlx(loader) => {
                let mut terms = terms::Terms::default();
                let ends = mlx::terms(self, &inputs(self)?, loader, &mut terms)?;
                Ok(terms.listing(&ends))
            }
        }
    }

    pub fn emission(&self, emitter: HloEmitter) -> Result<Emission> {
        Emission::of(self, emitter)
    }
}

impl Emitted {
    pub fn backend(self) -> TwinBackend {
        match self {
            Emitted::Mlx(_) => TwinBackend::Mlx,
            Emitted::Hlo(_) => TwinBackend::Hlo,
        }
    }
}

/// The first line that differs, as both sides have it; `None` where they agree.
///
/// Errors: a side has no listing.
pub fn first_difference(case: &Case<'_>, emitted: Emitted) -> Result<Option<String>> {
    let difference = difference(&case.of_ir(emitted.backend())?, &case.of_backend(emitted)?)?;
    let Case { graph, sizes, float, fused, .. } = case;
    Ok(difference.map(|lines| format!("{graph} {sizes:?} {float:?} fused {fused}, {lines}")))
}

/// Where two listings differ first.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub at: usize,
    pub ir: String,
    pub emitted: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}:\n  IR       {}\n  emitted  {}", self.at, self.ir, self.emitted)
    }
}

/// As [`first_difference`], of the two listings.
pub fn difference(ir: &[String], emitted: &[String]) -> Result<Option<Difference>> {
    ensure!(ir.len() >= 3, "a certificate over nothing");
    let Some(at) = (0..ir.len().max(emitted.len())).find(|i| ir.get(*i) != emitted.get(*i)) else { return Ok(None) };
    let side = |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "(ends)".into());
    Ok(Some(Difference { at, ir: side(ir), emitted: side(emitted) }))
}

struct Input {
    name: String,
    dtype: ir::DType,
    shape: Vec<usize>,
}

/// The config, and the free dims of a call.
struct Names<'a>(&'a Case<'a>);

impl Environment for Names<'_> {
    fn program(&self) -> &Program {
        self.0.program
    }
    fn config(&self, path: &[String]) -> Option<Val> {
        self.0.resolved.get(path).cloned()
    }
    fn free(&self, name: &str) -> Option<i64> {
        let [b, s, r, t] = self.0.sizes;
        let size = match name {
            "B" => b,
            "S" => s,
            "R" => r,
            "T" => t,
            // Of graph `vision`: crops, patches or pictures; features; patches that one is pooled from.
            "N" => 8,
            "M" => 6,
            "K" => 4,
            _ => return None,
        };
        i64::try_from(size).ok()
    }
}

/// Shapes of the graph's parameters: free dims from the case, the rest from the config.
fn inputs(case: &Case<'_>) -> Result<Vec<Input>> {
    let function = case.program.graph(case.graph).context("no such graph")?;
    let mut inputs = Vec::new();
    for parameter in &function.parameters {
        let ParameterKind::Value(id) = parameter.kind else { bail!("a graph with a load parameter") };
        let Type::Tensor(ty) = &function.value(id).ty else { bail!("a graph with a matrix parameter") };
        let dim = |d| extent(d, function.span, &Names(case)).map_err(|e| anyhow!("{d} of {}: {e}", parameter.name));
        let shape = ty.shape.dims.iter().map(dim).collect::<Result<_>>()?;
        inputs.push(Input { name: parameter.name.clone(), dtype: ty.dtype, shape });
    }
    Ok(inputs)
}

/// Lines, with values renamed in order; constants and broadcasts take none.
struct Listing {
    lines: Vec<String>,
    counted: usize,
}

impl Listing {
    fn op(&mut self, name: &str, operands: &[String], numbers: &[f64], shape: &[i64], dtype: hlo::DType) -> String {
        let value = format!("%{}", self.counted);
        self.counted += 1;
        let numbers = if numbers.is_empty() { String::new() } else { format!("{numbers:?}") };
        self.lines.push(format!("{value} = {name}{numbers}({}): {dtype:?}{shape:?}", operands.join(", ")));
        value
    }
}

fn constant(numbers: &[f64], dtype: hlo::DType) -> String {
    format!("{numbers:?}: {dtype:?}")
}

/// What the IR computes, with the twins of one backend in mode `fused`; each value once.
fn traced(case: &Case<'_>, inputs: &[Input], backend: TwinBackend) -> Result<trace::Trace> {
    let shapes: Vec<(&str, ir::DType, &[usize])> =
        inputs.iter().map(|i| (i.name.as_str(), i.dtype, i.shape.as_slice())).collect();
    let [rows, _, _, positions] = case.sizes;
    let twins = case.fused.then_some(backend);
    let sizes = Sizes { inputs: &shapes, rows, positions, family: case.float, twins };
    let traced = trace(case.program, case.resolved, case.bindings, case.graph, &sizes).map_err(|f| anyhow!("{f}"))?;
    Ok(traced.shared().live(true))
}

fn of_ir(case: &Case<'_>, inputs: &[Input]) -> Result<Vec<String>> {
    let traced = traced(case, inputs, TwinBackend::Hlo)?;
    let mut listing = Listing { lines: Vec::new(), counted: 0 };
    let mut known: Vec<String> = Vec::new();
    for node in &traced.nodes {
        let operands: Vec<String> = node.operands.iter().map(|id| known[id.0].clone()).collect();
        let dtype = concrete(node.dtype, case.float);
        let shape: Vec<i64> = node.shape.iter().map(|d| *d as i64).collect();
        let name = match &node.what {
            What::Input(name) => format!("input {name}"),
            What::State(path) => format!("state {path}"),
            What::Weight { path, part } => weight(path, *part).to_string(),
            What::Kernel { path, numbers } => listing.op(path, &operands, numbers, &shape, dtype),
            What::Primitive(primitive) => ir_op(&mut listing, primitive, &operands, node, &shape, dtype, &traced)?,
        };
        known.push(name);
    }
    let mut lines = listing.lines;
    lines.extend(traced.results.iter().enumerate().map(|(i, id)| format!("result {i} = {}", known[id.0])));
    let mut writes: Vec<String> = traced.writes.iter().map(|(p, id)| format!("state {p} = {}", known[id.0])).collect();
    let probes =
        traced.nodes.iter().zip(&known).flat_map(|(n, v)| n.probes.iter().map(move |p| format!("probe {p} = {v}")));
    writes.extend(probes);
    writes.sort();
    lines.extend(writes);
    Ok(lines)
}

/// Adds the lines of one primitive and gives the name of its value.
fn ir_op(
    listing: &mut Listing,
    primitive: &Primitive,
    operands: &[String],
    node: &trace::Node,
    shape: &[i64],
    dtype: hlo::DType,
    traced: &trace::Trace,
) -> Result<String> {
    let axes = |axes: &[usize]| axes.iter().map(|a| *a as f64).collect::<Vec<f64>>();
    let numbers = match primitive {
        Primitive::Constant(number) => return Ok(constant(&[rounded(*number, dtype)], dtype)),
        Primitive::ConstantList(numbers) => {
            let mut numbers: Vec<f64> = numbers.iter().map(|n| rounded(*n, dtype)).collect();
            if numbers.iter().all(|n| *n == numbers[0]) {
                numbers.truncate(1);
            }
            return Ok(constant(&numbers, dtype));
        }
        Primitive::Broadcast => return Ok(operands[0].clone()),
        Primitive::Convert if traced.nodes[node.operands[0].0].dtype == node.dtype => return Ok(operands[0].clone()),
        Primitive::Reshape if traced.nodes[node.operands[0].0].shape == node.shape => return Ok(operands[0].clone()),
        Primitive::Slice(cuts) => {
            let kept: Vec<i64> = cuts.iter().map(|c| (c.end - c.start) as i64).collect();
            let whole =
                traced.nodes[node.operands[0].0].shape.iter().zip(cuts).all(|(d, c)| c.start == 0 && c.end == *d);
            let numbers: Vec<f64> = cuts.iter().flat_map(|c| [c.start as f64, c.end as f64]).collect();
            let cut = if whole { operands[0].clone() } else { listing.op("slice", operands, &numbers, &kept, dtype) };
            let drops = cuts.iter().any(|c| !c.keep);
            return Ok(if drops { listing.op("reshape", &[cut], &[], shape, dtype) } else { cut });
        }
        Primitive::Transpose(permutation) => axes(permutation),
        Primitive::Reduce { axes: reduced, .. } => axes(reduced),
        Primitive::Concat { axis }
        | Primitive::Take { axis }
        | Primitive::TakeAlong { axis }
        | Primitive::Update { axis } => axes(&[*axis]),
        Primitive::Unary(_)
        | Primitive::Binary(_)
        | Primitive::Compare(_)
        | Primitive::Select
        | Primitive::Convert
        | Primitive::Iota
        | Primitive::Reshape
        | Primitive::Dot
        | Primitive::Matmul
        | Primitive::TopKValues(_)
        | Primitive::TopKIndices(_) => Vec::new(),
    };
    Ok(listing.op(primitive.name(), operands, &numbers, shape, dtype))
}

/// What a StableHLO emitter wrote.
pub struct Emission {
    pub text: String,
    arguments: Vec<String>,
    results: Vec<ResultKind>,
}

impl Emission {
    fn of(case: &Case<'_>, emitter: HloEmitter) -> Result<Emission> {
        let inputs = inputs(case)?;
        let mut build = Build::new(options(case)?);
        let shape = |input: &Input| input.shape.iter().map(|d| *d as i64).collect::<Vec<_>>();
        let values: Vec<hlo::V> =
            inputs.iter().map(|i| build.input(concrete(i.dtype, case.float), &shape(i))).collect();
        let results = emitter(case.resolved, &mut build, case.graph, &values)?;
        let graph = build.finish(&results)?;
        Ok(Emission {
            text: emit::text(&graph)?,
            arguments: graph.arguments.iter().map(|a| argument(&a.kind, &inputs)).collect::<Result<_>>()?,
            results: graph.results.iter().map(|r| r.kind.clone()).collect(),
        })
    }

    /// What its text says.
    pub fn listing(&self) -> Result<Vec<String>> {
        self.listing_of(&self.text)
    }

    /// What another text with the same signature says.
    pub fn listing_of(&self, text: &str) -> Result<Vec<String>> {
        let read = readback::read(text)?;
        self.aliases(&read)?;
        let mut listing = Listing { lines: Vec::new(), counted: 0 };
        let mut known: Vec<String> = Vec::new();
        for op in &read.ops {
            let operands: Vec<String> = op.operands.iter().map(|o| name(*o, &self.arguments, &known)).collect();
            let value = match op.name {
                "constant" | "constant_list" => constant(&op.numbers, op.ty.dtype),
                other => listing.op(other, &operands, &op.numbers, &op.ty.shape, op.ty.dtype),
            };
            known.push(value);
        }
        let mut lines = listing.lines;
        lines.extend(ends(&self.results, &read, &self.arguments, &known));
        Ok(lines)
    }

    /// A state is written where it was read, and nothing else is written into an argument.
    fn aliases(&self, read: &Read) -> Result<()> {
        let mut expected = Vec::new();
        for (argument, name) in self.arguments.iter().enumerate() {
            let written = |kind: &ResultKind| match kind {
                ResultKind::State(path) => *name == format!("state {path}"),
                ResultKind::Output(_) | ResultKind::Probe(_) => false,
            };
            expected.extend(self.results.iter().position(written).map(|result| (argument, result)));
        }
        ensure!(read.aliases == expected, "results alias arguments {:?}, not {expected:?}", read.aliases);
        Ok(())
    }
}

fn ends(kinds: &[ResultKind], read: &Read, arguments: &[String], known: &[String]) -> Vec<String> {
    let mut results = Vec::new();
    let mut others = Vec::new();
    for (kind, operand) in kinds.iter().zip(&read.results) {
        let value = name(*operand, arguments, known);
        match kind {
            ResultKind::Output(i) => results.push(format!("result {i} = {value}")),
            ResultKind::State(path) => others.push(format!("state {path} = {value}")),
            ResultKind::Probe(probe) => others.push(format!("probe {probe} = {value}")),
        }
    }
    others.sort();
    results.extend(others);
    results
}

fn name(operand: Operand, arguments: &[String], known: &[String]) -> String {
    match operand {
        Operand::Argument(i) => arguments[i].clone(),
        Operand::Op(i) => known[i].clone(),
    }
}

fn argument(kind: &ArgumentKind, inputs: &[Input]) -> Result<String> {
    Ok(match kind {
        ArgumentKind::Input(i) => format!("input {}", inputs.get(*i).context("an input too many")?.name),
        ArgumentKind::Weight(path) => weight(path, WeightPart::Dense),
        ArgumentKind::Packed(path, Part::Codes) => weight(path, WeightPart::Codes),
        ArgumentKind::Packed(path, Part::Bytes) => weight(path, WeightPart::Bytes),
        ArgumentKind::Packed(path, Part::Scales) => weight(path, WeightPart::Scales),
        ArgumentKind::Packed(path, Part::Biases) => weight(path, WeightPart::Biases),
        ArgumentKind::State(path) => format!("state {path}"),
        ArgumentKind::Probe(name) => format!("probe {name}"),
    })
}

fn weight(path: &str, part: WeightPart) -> String {
    format!("weight {path} {part:?}")
}

/// As the checkpoint's binding tells a session.
fn options(case: &Case<'_>) -> Result<BuildOptions> {
    let mut weights = BTreeMap::new();
    for w in &case.bindings.weights {
        let shape: Vec<i64> = w.shape.iter().map(|d| *d as i64).collect();
        let ty = match w.kind {
            WeightKind::Tensor | WeightKind::Matrix | WeightKind::Derived => {
                WeightType::Dense(hlo::Type::new(concrete(w.dtype, case.float), &shape))
            }
            WeightKind::Packed { bits, group } => WeightType::Packed {
                shape,
                bits: bits.into(),
                group: group.into(),
                scales: concrete(w.dtype, case.float),
            },
        };
        weights.insert(w.path.clone(), ty);
    }
    let [rows, _, _, positions] = case.sizes;
    let mut states = BTreeMap::new();
    for s in &case.bindings.states {
        let dim = |d: &StateDim| match d {
            StateDim::Rows => rows as i64,
            StateDim::Positions => positions as i64,
            StateDim::Size(n) => *n as i64,
        };
        let shape: Vec<i64> = s.dims.iter().map(dim).collect();
        states.insert(s.path.clone(), hlo::Type::new(concrete(s.dtype, case.float), &shape));
    }
    Ok(BuildOptions {
        float: concrete(case.float, case.float),
        fused: case.fused,
        probes: Probes::Reported,
        positions: positions as i64,
        weights: Arc::new(weights),
        windows: Default::default(),
        states: Arc::new(states),
    })
}

fn concrete(dtype: ir::DType, float: ir::DType) -> hlo::DType {
    weights::concrete(dtype, weights::concrete(float, hlo::DType::F32))
}

fn rounded(number: Number, dtype: hlo::DType) -> f64 {
    let exact = match number {
        Number::Int(n) => n as f64,
        Number::Float(x) => x,
        Number::Bool(b) => f64::from(u8::from(b)),
    };
    match dtype {
        hlo::DType::F32 => f64::from(exact as f32),
        hlo::DType::F16 => half::f16::from_f64(exact).to_f64(),
        hlo::DType::BF16 => half::bf16::from_f64(exact).to_f64(),
        hlo::DType::F64 | hlo::DType::I32 | hlo::DType::U32 | hlo::DType::U8 | hlo::DType::Bool => exact,
    }
}
