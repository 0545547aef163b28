//! The reference's run of a call, op by op, with every value on the way.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use mgraph_dsl::{
    bind::WeightId,
    interpret::{Number, Operand, Primitive, Store, stored_weight},
    trace::{Node, NodeId, Sizes, Trace, WeightPart, What, trace},
};

use super::text::{Slice, compiled};
use crate::{
    backend::Backend,
    direct::{self, Settings, declared, host},
    error::{Context, Result, anyhow, bail, ensure},
    model::Model,
    parity::{self, Fed, Golden},
    probes::Probes,
    reference::{Called, ReferenceSession, reads},
    session::{Float, Numerics, SessionOptions},
    tensor::{DType, Tensor},
    weights::concrete,
};

/// One call of a graph: its ops, and what each gave.
pub struct Subject {
    pub graph: String,
    pub trace: Trace,
    /// One per node.
    pub values: Vec<Tensor>,
    /// Stages whose numbers came from a file and stand in for those computed, with what was computed.
    pub replaced: Vec<(String, Tensor)>,
}

impl Subject {
    pub fn node(&self, id: NodeId) -> &Node {
        &self.trace.nodes[id.0]
    }

    /// Whether an executor computes it: neither given nor a constant.
    pub fn is_computed(&self, id: NodeId) -> bool {
        match &self.node(id).what {
            What::Primitive(primitive) => !is_constant(primitive),
            What::Kernel { .. } => true,
            What::Input(_) | What::Weight { .. } | What::State(_) => false,
        }
    }
}

pub(super) fn is_constant(primitive: &Primitive) -> bool {
    matches!(primitive, Primitive::Constant(_) | Primitive::ConstantList(_) | Primitive::Iota)
}

/// The calls of a prompt, one after the other, as the interpreter runs them; `each` may end the run. Where `golden` holds numbers of
/// a stage and `fed` says so, what follows the stage is computed from them.
pub fn subjects(
    model: &Arc<Model>,
    golden: &Golden,
    dtype: Float,
    fed: bool,
    progress: &dyn Fn(&str),
    mut each: impl FnMut(&Subject) -> Result<bool>,
) -> Result<()> {
    let float = dtype.dtype();
    let mut states = BTreeMap::new();
    for called in calls(model, golden, dtype, progress)? {
        progress(&format!("running graph {} op by op (reference)", called.graph));
        let run = Run { model, called: &called, float, golden: fed.then_some(golden) };
        let subject = run.subject(&mut states).with_context(|| format!("graph {}", called.graph))?;
        if !each(&subject)? {
            break;
        }
    }
    Ok(())
}

fn calls(model: &Arc<Model>, golden: &Golden, dtype: Float, progress: &dyn Fn(&str)) -> Result<Vec<Called>> {
    let Fed { rows, width, tokens, pictures } = Fed::of(model, golden)?;
    let vocabulary = model.token_ids()?;
    if let Some(token) = tokens.iter().find(|token| usize::try_from(**token).map_or(true, |token| token >= vocabulary))
    {
        bail!("token {token} is not in the model's vocabulary of {vocabulary}");
    }
    let options = SessionOptions {
        rows,
        capacity: width,
        max_chunk: width,
        dtype,
        numerics: Numerics::Pinned,
        probes: Probes::Reported,
    };
    let mut session = ReferenceSession::keeping(model, options)?;
    progress(&format!("running {rows} x {width} tokens (reference)"));
    let batch = parity::every_logit(rows, width, tokens);
    parity::stages(&mut session, model, &pictures, &batch, &mut |_, _| Ok(()))?;
    Ok(session.into_calls())
}

struct Run<'a> {
    model: &'a Arc<Model>,
    called: &'a Called,
    float: DType,
    golden: Option<&'a Golden>,
}

impl Run<'_> {
    fn subject(&self, states: &mut BTreeMap<String, Tensor>) -> Result<Subject> {
        let Model { program, resolved, bindings, .. } = &**self.model;
        let inputs = self.called.inputs.iter();
        let inputs: Vec<_> = inputs.map(|(name, x)| (name.as_str(), declared(x.dtype), x.shape.as_slice())).collect();
        let sizes = Sizes {
            inputs: &inputs,
            rows: self.called.rows,
            positions: self.called.positions,
            family: declared(self.float),
            twins: None,
        };
        let trace = trace(program, resolved, bindings, &self.called.graph, &sizes);
        let trace = trace.map_err(|fault| anyhow!("{fault}"))?.live(true).shared();
        let (source, names) = ops(&trace)?;
        let ops = compiled(&source, program.numerics.tf32)?;
        let settings = Settings { numerics: Numerics::Pinned, float: self.float };
        let (mut values, mut replaced): (Vec<Tensor>, Vec<(String, Tensor)>) = (Vec::new(), Vec::new());
        let mut weights = BTreeMap::new();
        for (at, node) in trace.nodes.iter().enumerate() {
            let value = match &node.what {
                What::Input(name) => {
                    let found = self.called.inputs.iter().find(|(known, _)| known == name);
                    found.with_context(|| format!("no input {name}"))?.1.clone()
                }
                What::Weight { path, part } => self.weight(path, *part, &mut weights)?,
                What::State(path) => self.state(path, node, states)?,
                What::Primitive(primitive) => match (constant(primitive, node, self.float), &names[at]) {
                    (Some(constant), _) => constant,
                    (None, Some(name)) => {
                        let slice = Slice::new(&trace, vec![NodeId(at)]);
                        let operands = slice.inputs.iter().map(|id| Operand::Tensor(values[id.0].clone())).collect();
                        let found = direct::op(Backend::Reference, &settings, &ops, name, operands)?.pop();
                        found.context("an op has a result")?
                    }
                    (None, None) => {
                        Tensor { dtype: concrete(node.dtype, self.float), shape: node.shape.clone(), bytes: Vec::new() }
                    }
                },
                What::Kernel { path, .. } => bail!("{path} is a twin; what it stands for is reduced instead"),
            };
            let told = node.probes.iter().find_map(|probe| Some((probe, self.golden?.get(probe)?)));
            match told {
                Some((probe, told)) if told.dtype.is_float() && told.len() == value.len() => {
                    let told = Tensor { shape: value.shape.clone(), ..told.to_float(value.dtype) };
                    replaced.push((probe.clone(), value));
                    values.push(told);
                }
                Some(_) | None => values.push(value),
            }
        }
        for (path, id) in &trace.writes {
            states.insert(path.clone(), values[id.0].clone());
        }
        Ok(Subject { graph: self.called.graph.clone(), trace, values, replaced })
    }

    fn weight(&self, path: &str, part: WeightPart, read: &mut BTreeMap<String, Store<Tensor>>) -> Result<Tensor> {
        if !read.contains_key(path) {
            let Model { program, resolved, bindings, checkpoint, .. } = &**self.model;
            let at = bindings.weights.iter().position(|weight| weight.path == path);
            let id = WeightId(at.with_context(|| format!("no weight is bound to {path}"))?);
            let store = stored_weight(program, resolved, bindings, id, declared(self.float), reads(checkpoint));
            let store = match store.map_err(|message| anyhow!("weight {path}: {message}"))? {
                Store::Dense(dense) => Store::Dense(host(&dense)),
                Store::Packed { codes, bytes, scales, biases, bits, group } => Store::Packed {
                    codes: host(&codes),
                    bytes: host(&bytes),
                    scales: host(&scales),
                    biases: host(&biases),
                    bits,
                    group,
                },
            };
            read.insert(path.to_owned(), store);
        }
        let value = match (read.get(path), part) {
            (Some(Store::Dense(dense)), WeightPart::Dense) => Some(dense),
            (Some(Store::Packed { codes, bytes, scales, biases, .. }), part) => match part {
                WeightPart::Codes => Some(codes),
                WeightPart::Bytes => Some(bytes),
                WeightPart::Scales => Some(scales),
                WeightPart::Biases => Some(biases),
                WeightPart::Dense => None,
            },
            (
                Some(Store::Dense(_)),
                WeightPart::Codes | WeightPart::Bytes | WeightPart::Scales | WeightPart::Biases,
            )
            | (None, _) => None,
        };
        value.cloned().with_context(|| format!("weight {path} is not stored as {part:?}"))
    }

    /// What earlier calls left there, with zeros behind it where this call sees more positions; all zeros at the beginning.
    fn state(&self, path: &str, node: &Node, states: &BTreeMap<String, Tensor>) -> Result<Tensor> {
        let dtype = concrete(node.dtype, self.float);
        let bytes = vec![0; node.shape.iter().product::<usize>() * dtype.size()];
        let zeros = Tensor { dtype, shape: node.shape.clone(), bytes };
        let Some(held) = states.get(path) else { return Ok(zeros) };
        if held.shape == zeros.shape {
            return Ok(held.clone());
        }
        let differing: Vec<usize> =
            (0..zeros.shape.len()).filter(|axis| held.shape.get(*axis) != Some(&zeros.shape[*axis])).collect();
        let [axis] = differing[..] else {
            bail!("state {path} is {:?} after one call and {:?} in the next", held.shape, zeros.shape)
        };
        ensure!(held.shape[axis] < zeros.shape[axis], "state {path} sees fewer positions than before");
        let row = |x: &Tensor| x.shape[axis..].iter().product::<usize>() * dtype.size();
        let (narrow, wide) = (row(held), row(&zeros));
        let mut padded = zeros;
        for (from, to) in held.bytes.chunks_exact(narrow.max(1)).zip(padded.bytes.chunks_exact_mut(wide.max(1))) {
            to[..narrow].copy_from_slice(from);
        }
        Ok(padded)
    }
}

/// Every op of a trace as an op of the language, equal ones once; the name of each node's.
fn ops(trace: &Trace) -> Result<(String, Vec<Option<String>>)> {
    let (mut source, mut known) = (String::new(), HashMap::<String, String>::new());
    let mut names = Vec::new();
    for (at, node) in trace.nodes.iter().enumerate() {
        let is_op = matches!(&node.what, What::Primitive(primitive) if !is_constant(primitive));
        if !is_op || node.shape.contains(&0) {
            names.push(None);
            continue;
        }
        let text = Slice::new(trace, vec![NodeId(at)]).text(&|_| None)?;
        let fresh = format!("op{}", known.len());
        let name = known.entry(text).or_insert_with_key(|text| {
            source += &format!("op {fresh}{text}\n");
            fresh
        });
        names.push(Some(name.clone()));
    }
    Ok((source, names))
}

fn constant(primitive: &Primitive, node: &Node, float: DType) -> Option<Tensor> {
    let number = |number: &Number| match number {
        Number::Int(n) => *n as f64,
        Number::Float(x) => *x,
        Number::Bool(truth) => f64::from(u8::from(*truth)),
    };
    let numbers: Vec<f64> = if let Primitive::Constant(one) = primitive {
        vec![number(one)]
    } else if let Primitive::ConstantList(all) = primitive {
        all.iter().map(number).collect()
    } else if *primitive == Primitive::Iota {
        (0..node.shape.iter().product::<usize>()).map(|n| n as f64).collect()
    } else {
        return None;
    };
    let dtype = concrete(node.dtype, float);
    let wide = Tensor {
        dtype: DType::F64,
        shape: node.shape.clone(),
        bytes: numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
    };
    let bytes: Vec<u8> = match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => return Some(wide.to_float(dtype)),
        DType::I32 => numbers.iter().flat_map(|x| (*x as i32).to_le_bytes()).collect(),
        DType::U32 => numbers.iter().flat_map(|x| (*x as u32).to_le_bytes()).collect(),
        DType::U8 => numbers.iter().map(|x| *x as u8).collect(),
        DType::Bool => numbers.iter().map(|x| u8::from(*x != 0.0)).collect(),
    };
    Some(Tensor { dtype, shape: node.shape.clone(), bytes })
}
