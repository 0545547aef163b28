//! The graph that MLX executes, read back from its lazy arrays: the certificate compares it with the IR.
//!
//! Nothing is interpreted here. Primitives have MLX's own names and numbers, see `runtime/mlx-graph/graph.cpp`; what they mean is the
//! reader's business.

use std::collections::HashMap;

use mlx_rs::Array;

use super::record::Noted;
use crate::{
    error::{Context, Result, bail, ensure},
    tensor::{DType, Tensor},
};

/// Results, states and probes, and what they are computed from.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// Operands before what uses them; what nothing needs is left out.
    pub nodes: Vec<Node>,
    pub results: Vec<NodeId>,
    /// Every state and what it holds after the call, by path.
    pub states: Vec<(String, NodeId)>,
    /// In the order of execution.
    pub probes: Vec<(String, NodeId)>,
}

/// Index into [`Graph::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub usize);

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub what: What,
    pub operands: Vec<NodeId>,
    pub dtype: DType,
    pub shape: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    Input(String),
    /// By field path.
    Weight {
        path: String,
        part: Part,
    },
    /// What a state holds when the call begins, by field path.
    State(String),
    /// An array that the call made from numbers, in row-major order.
    Constant(Vec<f64>),
    /// As [`mgraph_dsl::trace::What::Kernel`] describes it.
    Kernel {
        path: &'static str,
        numbers: Vec<f64>,
    },
    /// Of MLX: `Matmul`, `Slice`. `numbers` are its attributes, lists one after another.
    Primitive {
        name: String,
        numbers: Vec<f64>,
    },
}

/// Of a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Dense,
    Codes,
    Scales,
    Biases,
}

/// One line of the text.
struct Line {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    numbers: Vec<f64>,
    operands: Vec<usize>,
    bytes: Vec<u8>,
}

pub(super) fn read(
    results: &[Array],
    states: &[(String, Array)],
    probes: &[(String, Array)],
    leaves: Vec<(What, Array)>,
    noted: Vec<Noted>,
) -> Result<Graph> {
    let mut known: HashMap<usize, (What, Vec<usize>)> = HashMap::new();
    let mut stops: Vec<&Array> = Vec::new();
    for (what, array) in &leaves {
        known.insert(id(array)?, (what.clone(), Vec::new()));
        stops.push(array);
    }
    let mut roots: Vec<&Array> = results.iter().chain(states.iter().chain(probes).map(|(_, array)| array)).collect();
    for Noted { path, numbers, operands, result } in &noted {
        let what = What::Kernel { path, numbers: numbers.clone() };
        known.insert(id(result)?, (what, operands.iter().map(id).collect::<Result<_>>()?));
        roots.extend(operands);
        stops.push(result);
    }
    let text = text(&roots, &stops)?;
    let mut lines: HashMap<usize, Line> = HashMap::new();
    for line in text.lines() {
        let (id, line) = parse(line).with_context(|| format!("the line {line:?} of MLX's graph"))?;
        lines.insert(id, line);
    }
    let mut builder = Builder { lines, known, nodes: Vec::new(), placed: HashMap::new() };
    let mut place = |array: &Array| builder.place(id(array)?);
    let results = results.iter().map(&mut place).collect::<Result<_>>()?;
    let states = states.iter().map(|(path, a)| Ok((path.clone(), place(a)?))).collect::<Result<_>>()?;
    let probes = probes.iter().map(|(name, a)| Ok((name.clone(), place(a)?))).collect::<Result<_>>()?;
    Ok(Graph { nodes: builder.nodes, results, states, probes })
}

struct Builder {
    lines: HashMap<usize, Line>,
    known: HashMap<usize, (What, Vec<usize>)>,
    nodes: Vec<Node>,
    placed: HashMap<usize, NodeId>,
}

impl Builder {
    /// Places an array after what it is computed from.
    fn place(&mut self, root: usize) -> Result<NodeId> {
        let mut path = vec![root];
        while let Some(&id) = path.last() {
            if self.placed.contains_key(&id) {
                path.pop();
                continue;
            }
            let line = self.lines.get(&id).context("MLX's graph lacks an operand")?;
            let (what, operands) = match self.known.get(&id) {
                Some((what, operands)) => (what.clone(), operands),
                None => (primitive(line)?, &line.operands),
            };
            let missing: Vec<usize> = operands.iter().rev().filter(|o| !self.placed.contains_key(o)).copied().collect();
            if missing.is_empty() {
                let operands = operands.iter().map(|o| self.placed[o]).collect();
                let (dtype, shape) = (dtype(&line.dtype)?, line.shape.clone());
                self.placed.insert(id, NodeId(self.nodes.len()));
                self.nodes.push(Node { what, operands, dtype, shape });
                path.pop();
            } else {
                path.extend(missing);
            }
        }
        Ok(self.placed[&root])
    }
}

fn primitive(line: &Line) -> Result<What> {
    if line.name != "constant" {
        let (name, numbers) = (line.name.clone(), line.numbers.clone());
        ensure!(!name.ends_with('?'), "MLX uses its primitive {name}, whose attributes are not read");
        return Ok(What::Primitive { name, numbers });
    }
    let (dtype, shape) = (dtype(&line.dtype)?, line.shape.clone());
    let wanted = shape.iter().product::<usize>() * dtype.size();
    ensure!(
        line.bytes.len() == wanted,
        "an array of shape {shape:?} was computed while the graph was built, so what it is computed from is gone"
    );
    Ok(What::Constant(Tensor { dtype, shape, bytes: line.bytes.clone() }.to_f64()))
}

fn parse(line: &str) -> Result<(usize, Line)> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [id, name, place, dtype, shape, numbers, operands, bytes] = fields[..] else {
        bail!("has {} fields", fields.len());
    };
    ensure!(place == "0", "a primitive with several results");
    let list = |text: &'static str, field: &str| -> Result<Vec<f64>> {
        let parse = |n: &str| n.parse().with_context(|| format!("{n:?} in its {text}"));
        field.split(',').filter(|n| !n.is_empty()).map(parse).collect()
    };
    let operands = operands.split(',').filter(|n| !n.is_empty()).map(|n| Ok(n.parse()?)).collect::<Result<_>>()?;
    let byte = |pair: &[u8]| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
    Ok((
        id.parse()?,
        Line {
            name: name.to_owned(),
            dtype: dtype.to_owned(),
            shape: list("shape", shape)?.iter().map(|n| *n as usize).collect(),
            numbers: list("numbers", numbers)?,
            operands,
            bytes: bytes.as_bytes().chunks(2).map(byte).collect::<Result<_>>()?,
        },
    ))
}

fn dtype(name: &str) -> Result<DType> {
    Ok(match name {
        "float64" => DType::F64,
        "float32" => DType::F32,
        "float16" => DType::F16,
        "bfloat16" => DType::BF16,
        "int32" => DType::I32,
        "uint32" => DType::U32,
        "uint8" => DType::U8,
        "bool" => DType::Bool,
        other => bail!("an array of dtype {other}, which is none of the language"),
    })
}

#[cfg(not(target_vendor = "apple"))]
fn id(array: &Array) -> Result<usize> {
    // SAFETY: the array is live.
    Ok(unsafe { mgraph_mlx_graph::id(array.as_ptr()) })
}

#[cfg(not(target_vendor = "apple"))]
fn text(roots: &[&Array], stops: &[&Array]) -> Result<String> {
    let handles = |arrays: &[&Array]| arrays.iter().map(|array| array.as_ptr()).collect::<Vec<_>>();
    // SAFETY: all arrays are live, and nothing of them is evaluated elsewhere: they belong to this thread.
    unsafe { mgraph_mlx_graph::text(&handles(roots), &handles(stops)) }.context("no memory for the text of MLX's graph")
}

#[cfg(target_vendor = "apple")]
fn id(_: &Array) -> Result<usize> {
    bail!("the graph of MLX cannot be read back on Apple targets; build on Linux")
}

#[cfg(target_vendor = "apple")]
fn text(_: &[&Array], _: &[&Array]) -> Result<String> {
    bail!("the graph of MLX cannot be read back on Apple targets; build on Linux")
}
