//! The reference interpreter behind the session seam: slow, in pure Rust, the third opinion beside the backends.

use std::sync::Arc;

use mgraph_dsl::{
    bind::{State, StateDim},
    interpret::{self, Data, Interpreter, Precision, ReadWeight, Typed},
    ir,
};

use crate::{
    checkpoint::Checkpoint,
    error::{Context, Result, anyhow, bail},
    inputs,
    model::Model,
    probes::Probes,
    session::{Batch, Float, ProbeSink, Session, SessionOptions, again, within},
    tensor::{DType, Tensor},
    weights::concrete,
};

pub struct ReferenceSession {
    model: Arc<Model>,
    interpreter: Interpreter,
    options: SessionOptions,
    kept: Option<Vec<Called>>,
}

/// One call of a graph, as the interpreter got it.
#[derive(Debug, Clone)]
pub struct Called {
    pub graph: String,
    pub inputs: Vec<(String, Tensor)>,
    /// Of states.
    pub rows: usize,
    /// `T`
    pub positions: usize,
}

impl ReferenceSession {
    /// Weights are read when a call first needs them. Twins belong to backends: both modes of numerics are `pinned` here.
    pub fn open(model: &Arc<Model>, options: SessionOptions) -> Result<ReferenceSession> {
        let family = match options.dtype {
            Float::F32 => ir::DType::F32,
            Float::Bf16 => ir::DType::BF16,
            Float::F16 => ir::DType::F16,
        };
        let mut interpreter = Interpreter::new(
            model.program.clone(),
            model.resolved.clone(),
            model.bindings.clone(),
            family,
            Precision::Single,
            reads(&model.checkpoint),
        );
        if let Probes::Isolated(_) = &options.probes {
            let probes = options.probes.clone();
            interpreter.feed(Box::new(move |name, value| {
                let instead = probes.instead(name, concrete(value.dtype(), DType::F32), value.shape())?;
                guest(&instead).ok()
            }));
        }
        Ok(ReferenceSession { model: model.clone(), interpreter, options, kept: None })
    }

    /// As [`ReferenceSession::open`], and every call is kept for [`ReferenceSession::into_calls`].
    pub fn keeping(model: &Arc<Model>, options: SessionOptions) -> Result<ReferenceSession> {
        let session = ReferenceSession::open(model, options)?;
        Ok(ReferenceSession { kept: Some(Vec::new()), ..session })
    }

    pub fn into_calls(self) -> Vec<Called> {
        self.kept.unwrap_or_default()
    }
}

impl Session for ReferenceSession {
    fn call(
        &mut self,
        graph: &str,
        inputs: &[(&str, Tensor)],
        first_row: usize,
        probes: Option<ProbeSink<'_>>,
    ) -> Result<Vec<Tensor>> {
        let (program, resolved) = (&self.model.program, &self.model.resolved);
        let given = inputs::of_graph(program, resolved, graph, inputs, first_row, self.options.dtype.dtype())?;
        let slots: Vec<usize> = given.covered(self.options.rows)?.collect();
        if let Some(kept) = &mut self.kept {
            let inputs = given.inputs.clone();
            kept.push(Called { graph: graph.to_owned(), inputs, rows: slots.len(), positions: given.reach });
        }
        let tensors = given.inputs.iter().map(|(name, value)| Ok((name.as_str(), guest(value)?)));
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        let outcome =
            self.interpreter.call(graph, &tensors, &slots, given.reach).map_err(|fault| anyhow!("{fault}"))?;
        if let Some(sink) = probes {
            for (name, tensor) in &outcome.probes {
                sink(name, host(tensor))?;
            }
        }
        Ok(outcome.results.iter().map(host).collect())
    }

    fn step(&mut self, batch: &Batch, mut probes: Option<ProbeSink<'_>>) -> Result<Tensor> {
        batch.check(&self.options)?;
        let mut x = None;
        for graph in ["embed", "forward"] {
            let told = {
                let (program, resolved) = (&self.model.program, &self.model.resolved);
                inputs::of_tokens(program, resolved, graph, batch, self.options.dtype.dtype())?
            };
            let told = told.iter().map(|(name, value)| (name.as_str(), value.clone()));
            let given: Vec<_> = told.chain(x.take().map(|x| ("x", x))).collect();
            x = self.call(graph, &given, batch.first_row, again(&mut probes))?.into_iter().next();
        }
        x.context("graph forward has a result")
    }

    fn width(&self, tokens: usize) -> usize {
        tokens.clamp(1, self.options.max_chunk)
    }

    fn width_of_all(&self, tokens: usize) -> usize {
        tokens.max(1)
    }

    fn capacity(&self) -> usize {
        self.options.capacity
    }

    fn reset(&mut self) -> Result<()> {
        (0..self.options.rows).for_each(|slot| self.interpreter.reset(slot));
        Ok(())
    }

    fn forget(&mut self, row: usize, kept: usize) -> Result<()> {
        within(&(row..row.saturating_add(1)), self.options.rows)?;
        self.interpreter.forget(row, kept).map_err(|message| anyhow!(message))
    }

    fn least_kept(&self, _row: usize) -> usize {
        0
    }

    /// Rows that hold fewer positions than others are filled up with zeros, as are those that hold nothing.
    fn state(&mut self, path: &str) -> Result<Tensor> {
        let Some(state) = self.model.bindings.states.iter().find(|state| state.path == path) else {
            bail!("there is no state {path}");
        };
        // Rows have no axis of rows.
        let axis = state.positions().and_then(|axis| axis.checked_sub(1));
        let rows: Vec<Option<Tensor>> =
            (0..self.options.rows).map(|slot| self.interpreter.state(path, slot).map(host)).collect();
        let positions = |row: &Tensor| axis.map_or(0, |axis| row.shape[axis]);
        let longest = rows.iter().flatten().max_by_key(|row| positions(row));
        let Some(longest) = longest else { return Ok(self.unwritten(state)) };
        let filled = |row: &Option<Tensor>| match (row, axis) {
            (None, _) => vec![0; longest.bytes.len()],
            (Some(row), None) => row.bytes.clone(),
            (Some(row), Some(axis)) => row.filled(axis, longest.shape[axis]).bytes,
        };
        let shape = [&[rows.len()], &longest.shape[..]].concat();
        Ok(Tensor { dtype: longest.dtype, shape, bytes: rows.iter().flat_map(filled).collect() })
    }

    fn prepare(&mut self, _: &[(usize, usize)], _: &mut dyn FnMut(&str)) -> Result<()> {
        Ok(())
    }
}

impl ReferenceSession {
    /// A state is zero until something is written to it.
    fn unwritten(&self, state: &State) -> Tensor {
        let size = |dim: &StateDim| match dim {
            StateDim::Rows => self.options.rows,
            StateDim::Positions => 0,
            StateDim::Size(size) => *size as usize,
        };
        let shape: Vec<usize> = state.dims.iter().map(size).collect();
        let dtype = concrete(state.dtype, self.options.dtype.dtype());
        let bytes = vec![0; shape.iter().product::<usize>() * dtype.size()];
        Tensor { dtype, shape, bytes }
    }
}

/// As the interpreter holds it, in the dtype that it has.
pub fn guest(tensor: &Tensor) -> Result<interpret::Tensor> {
    let (dtype, data): (ir::DType, Data) = match tensor.dtype {
        DType::F64 => (ir::DType::F64, tensor.to_f64().into()),
        DType::F32 => (ir::DType::F32, tensor.to_f32().into()),
        DType::F16 => (ir::DType::F16, tensor.to_f32().into()),
        DType::BF16 => (ir::DType::BF16, tensor.to_f32().into()),
        DType::I32 => (ir::DType::I32, bytemuck::pod_collect_to_vec::<u8, i32>(&tensor.bytes).into()),
        DType::U32 => (ir::DType::U32, bytemuck::pod_collect_to_vec::<u8, u32>(&tensor.bytes).into()),
        DType::U8 => (ir::DType::U8, tensor.bytes.clone().into()),
        DType::Bool => (ir::DType::Bool, tensor.bytes.iter().map(|b| *b != 0).collect::<Vec<_>>().into()),
    };
    interpret::Tensor::new(dtype, tensor.shape.clone(), data)
        .with_context(|| format!("elements that do not fill {:?}{:?}", tensor.dtype, tensor.shape))
}

/// Stored tensors for the interpreter, each given back to the kernel once it is copied.
pub(crate) fn reads(checkpoint: &Arc<Checkpoint>) -> ReadWeight {
    let checkpoint = checkpoint.clone();
    Box::new(move |name: &str| {
        let bytes = checkpoint.bytes(name).map_err(|e| e.to_string())?.to_vec();
        checkpoint.release(name).map_err(|e| e.to_string())?;
        Ok(bytes)
    })
}

/// As the interpreter holds it: `f16` and `bf16` as f32 values.
pub(crate) fn host(tensor: &interpret::Tensor) -> Tensor {
    let shape = tensor.shape();
    match tensor.data() {
        Data::F64(v) => Tensor::of(DType::F64, shape, bytemuck::cast_slice(v)),
        Data::F32(v) => Tensor::of(DType::F32, shape, bytemuck::cast_slice(v)),
        Data::I32(v) => Tensor::of(DType::I32, shape, bytemuck::cast_slice(v)),
        Data::U32(v) => Tensor::of(DType::U32, shape, bytemuck::cast_slice(v)),
        Data::U8(v) => Tensor::of(DType::U8, shape, v),
        Data::Bool(v) => {
            let bytes: Vec<u8> = v.iter().map(|b| u8::from(*b)).collect();
            Tensor::of(DType::Bool, shape, &bytes)
        }
    }
}
