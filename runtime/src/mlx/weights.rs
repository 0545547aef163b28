//! Bound weights as MLX arrays.

use mgraph_dsl::bind::{Bindings, WeightKind};
use mlx_rs::{Array, ops};

use super::{
    Matrix,
    array::{sizes, to_mlx, upload},
    readback::{Part, What},
};
use crate::{
    error::{Context, Result},
    tensor::DType,
    weights::{MatrixData, WeightReader, concrete},
};

/// Hands a generated module its weights, by field path, one at a time.
pub struct Weights<'a> {
    source: Source<'a>,
    float: DType,
}

enum Source<'a> {
    Stored(&'a WeightReader<'a>),
    /// Of the right shapes and dtypes alone; each is remembered with its name.
    Unread {
        bindings: &'a Bindings,
        named: Vec<(What, Array)>,
    },
}

impl<'a> Weights<'a> {
    pub fn new(reader: &'a WeightReader<'a>, float: DType) -> Weights<'a> {
        Weights { source: Source::Stored(reader), float }
    }

    /// For a module that is recorded and never evaluated.
    pub(super) fn unread(bindings: &'a Bindings, float: DType) -> Weights<'a> {
        Weights { source: Source::Unread { bindings, named: Vec::new() }, float }
    }

    /// The arrays that [`Weights::unread`] gave so far.
    pub(super) fn named(self) -> Vec<(What, Array)> {
        match self.source {
            Source::Stored(_) => Vec::new(),
            Source::Unread { named, .. } => named,
        }
    }

    pub fn tensor(&mut self, path: &str) -> Result<Array> {
        match &mut self.source {
            Source::Stored(reader) => {
                upload(&reader.tensor(path, self.float)?).with_context(|| format!("weight {path}"))
            }
            Source::Unread { bindings, named } => match unread(bindings, self.float, path, named)? {
                Matrix::Dense(w) => Ok(w),
                packed @ Matrix::Packed { .. } => packed.dense().with_context(|| format!("weight {path}")),
            },
        }
    }

    pub fn matrix(&mut self, path: &str) -> Result<Matrix> {
        let reader = match &mut self.source {
            Source::Stored(reader) => reader,
            Source::Unread { bindings, named } => return unread(bindings, self.float, path, named),
        };
        Ok(match reader.matrix(path, self.float)? {
            MatrixData::Dense(w) => Matrix::Dense(upload(&w)?),
            MatrixData::Packed { codes, scales, biases, bits, group } => Matrix::Packed {
                codes: upload(&codes)?,
                scales: upload(&scales)?,
                biases: upload(&biases)?,
                bits: bits as i32,
                group: group as i32,
            },
        })
    }
}

fn unread(bindings: &Bindings, float: DType, path: &str, named: &mut Vec<(What, Array)>) -> Result<Matrix> {
    let weight = bindings.weights.iter().find(|w| w.path == path).with_context(|| format!("no weight {path}"))?;
    let float = concrete(weight.dtype, float);
    let columns = weight.shape.last().copied().unwrap_or(1);
    let mut part = |part: Part, columns: u64, dtype: DType| -> Result<Array> {
        let leading = &weight.shape[..weight.shape.len().saturating_sub(1)];
        let last = weight.shape.last().map(|_| &columns);
        let shape = sizes(leading.iter().chain(last).map(|n| *n as i64))?;
        let array = ops::zeros_dtype(&shape, to_mlx(dtype))?;
        named.push((What::Weight { path: path.to_owned(), part }, array.clone()));
        Ok(array)
    };
    Ok(match weight.kind {
        WeightKind::Tensor | WeightKind::Matrix | WeightKind::Derived => {
            Matrix::Dense(part(Part::Dense, columns, float)?)
        }
        WeightKind::Packed { bits, group } => Matrix::Packed {
            codes: part(Part::Codes, columns * u64::from(bits) / 32, DType::U32)?,
            scales: part(Part::Scales, columns / u64::from(group), float)?,
            biases: part(Part::Biases, columns / u64::from(group), float)?,
            bits: bits as i32,
            group: group as i32,
        },
    })
}
