//! Bound weights as host tensors: concatenated, stacked and cut as the family's `as` clauses say, in the dtype asked for.
//! Both backends read weights through here, by field path, and a stored tensor's pages are given back after the copy.

use std::collections::HashMap;

use mgraph_dsl::{
    bind::{PackedSide, Part, Source, Weight, WeightKind},
    interpret::derived_weight,
    ir,
};
use mgraph_kernels::numbers::Numbers;

use crate::{
    checkpoint::{Checkpoint, Dtype},
    error::{Context, Result, anyhow, bail, ensure},
    model::Model,
    reference,
    tensor::{DType, Tensor},
};

/// A matrix as stored.
#[derive(Debug, Clone)]
pub enum MatrixData {
    /// `[.., n, k]`
    Dense(Tensor),
    /// MLX affine: `codes` u32 `[.., n, k * bits / 32]`; `scales`, `biases` `[.., n, k / group]`.
    Packed { codes: Tensor, scales: Tensor, biases: Tensor, bits: u32, group: u32 },
}

/// Shape, dtype and packing of a weight, without its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightInfo {
    pub shape: Vec<usize>,
    pub dtype: ir::DType,
    pub kind: WeightKind,
}

pub struct WeightReader<'a> {
    model: &'a Model,
    by_path: HashMap<&'a str, &'a Weight>,
}

impl<'a> WeightReader<'a> {
    pub fn new(model: &'a Model) -> WeightReader<'a> {
        WeightReader { model, by_path: model.bindings.weights.iter().map(|w| (w.path.as_str(), w)).collect() }
    }

    pub fn info(&self, path: &str) -> Result<WeightInfo> {
        let weight = self.find(path)?;
        let shape = weight.shape.iter().map(|d| *d as usize).collect();
        Ok(WeightInfo { shape, dtype: weight.dtype, kind: weight.kind })
    }

    /// A weight that is a tensor (or a matrix known to be dense); `float` stands for `F`. A derived one is computed here, by the
    /// reference interpreter in f32, at every call: a backend asks once.
    pub fn tensor(&self, path: &str, float: DType) -> Result<Tensor> {
        let weight = self.find(path)?;
        match weight.kind {
            WeightKind::Tensor | WeightKind::Matrix => {}
            WeightKind::Packed { .. } => bail!("weight {path} is packed; it can only be read as a matrix"),
            WeightKind::Derived => return self.derived(weight, float),
        }
        let shape = weight.shape.iter().map(|d| *d as usize).collect();
        let dtype = concrete(weight.dtype, float);
        let bytes = self.gather(weight, dtype, |piece| (piece.name.as_str(), &piece.shape))?;
        Ok(Tensor { dtype, shape, bytes })
    }

    /// A matrix, packed as stored; a dense one, scales and biases in `float`.
    pub fn matrix(&self, path: &str, float: DType) -> Result<MatrixData> {
        let weight = self.find(path)?;
        let WeightKind::Packed { bits, group } = weight.kind else {
            return Ok(MatrixData::Dense(self.tensor(path, float)?));
        };
        let (columns, leading) = weight.shape.split_last().context("a matrix has axes")?;
        let with_columns = |columns: u64| leading.iter().chain([&columns]).map(|d| *d as usize).collect::<Vec<_>>();
        let side = |pick: fn(&PackedSide) -> &str| -> Result<Tensor> {
            let dtype = concrete(weight.dtype, float);
            let bytes = self.gather(weight, dtype, |piece| match &piece.scales {
                Some(side) => (pick(side), &side.shape),
                None => (piece.name.as_str(), &piece.shape),
            })?;
            Ok(Tensor { dtype, shape: with_columns(columns / u64::from(group)), bytes })
        };
        let codes = self.gather(weight, DType::U32, |piece| (piece.name.as_str(), &piece.shape))?;
        let codes_shape = with_columns(columns * u64::from(bits) / 32);
        Ok(MatrixData::Packed {
            codes: Tensor { dtype: DType::U32, shape: codes_shape, bytes: codes },
            scales: side(|s| &s.scales)?,
            biases: side(|s| &s.biases)?,
            bits,
            group,
        })
    }

    fn derived(&self, weight: &Weight, float: DType) -> Result<Tensor> {
        let Model { program, resolved, bindings, checkpoint, .. } = self.model;
        let read = reference::reads(checkpoint);
        let computed = derived_weight(program, resolved, bindings, &weight.path, read)
            .map_err(|fault| anyhow!("computing the weight {}: {fault}", weight.path))?;
        let tensor = reference::host(&computed);
        let wanted = concrete(weight.dtype, float);
        Ok(if wanted.is_float() && wanted != tensor.dtype { tensor.to_float(wanted) } else { tensor })
    }

    fn find(&self, path: &str) -> Result<&'a Weight> {
        self.by_path.get(path).copied().with_context(|| format!("no weight is bound to the field {path}"))
    }

    /// All parts in order; of each piece the stored tensor that `pick` names, with its stored shape.
    fn gather<'w>(
        &self,
        weight: &'w Weight,
        dtype: DType,
        pick: impl Fn(&'w mgraph_dsl::bind::Piece) -> (&'w str, &'w Vec<u64>),
    ) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        for Part { source, rows } in &weight.parts {
            let stacked = matches!(source, Source::Stacked(_));
            let pieces = source.pieces();
            let chosen = match rows {
                Some((low, high)) if stacked => {
                    pieces.get(*low as usize..*high as usize).context("rows outside a stack")?
                }
                _ => pieces,
            };
            for piece in chosen {
                let (name, shape) = pick(piece);
                let from = stored(&self.model.checkpoint, name)?;
                let mut bytes = self.model.checkpoint.bytes(name)?;
                if let (Some((low, high)), false) = (rows, stacked) {
                    let row = bytes.len() / (shape.first().copied().unwrap_or(1).max(1) as usize);
                    bytes = bytes
                        .get(*low as usize * row..*high as usize * row)
                        .with_context(|| format!("rows {low}..{high} outside tensor {name}"))?;
                }
                append(&mut all, bytes, from, dtype).with_context(|| format!("tensor {name}"))?;
                self.model.checkpoint.release(name)?;
            }
        }
        Ok(all)
    }
}

fn stored(checkpoint: &Checkpoint, name: &str) -> Result<Dtype> {
    Ok(checkpoint.tensors().get(name).with_context(|| format!("no tensor {name} in the checkpoint"))?.dtype)
}

/// The dtype of a declaration, where `float` stands for `F`.
pub fn concrete(dtype: ir::DType, float: DType) -> DType {
    match dtype {
        ir::DType::F => float,
        ir::DType::F64 => DType::F64,
        ir::DType::F32 => DType::F32,
        ir::DType::F16 => DType::F16,
        ir::DType::BF16 => DType::BF16,
        ir::DType::I32 => DType::I32,
        ir::DType::U32 => DType::U32,
        ir::DType::U8 => DType::U8,
        ir::DType::Bool => DType::Bool,
    }
}

/// Appends `bytes` of dtype `from` as dtype `to`. The narrow floats widen exactly; narrowing rounds to nearest even.
fn append(all: &mut Vec<u8>, bytes: &[u8], from: Dtype, to: DType) -> Result<()> {
    let same = DType::of_stored(from).with_context(|| format!("dtype {from:?} is not a dtype of weights"))?;
    if same == to {
        all.extend_from_slice(bytes);
        return Ok(());
    }
    ensure!(same.is_float() && to.is_float(), "stored as {same:?}, but {to:?} is wanted");
    let converted = Numbers { kind: same.kind(), bytes }.to_float(to.kind()).context("floats become floats")?;
    all.extend_from_slice(&converted);
    Ok(())
}
