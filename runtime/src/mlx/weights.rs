//! Bound weights as MLX arrays.

use mlx_rs::Array;

use super::{Matrix, array::upload};
use crate::{
    error::{Context, Result},
    tensor::DType,
    weights::{MatrixData, WeightReader},
};

/// Hands a generated module its weights, by field path, one at a time.
pub struct Weights<'a> {
    reader: &'a WeightReader<'a>,
    float: DType,
}

impl<'a> Weights<'a> {
    pub fn new(reader: &'a WeightReader<'a>, float: DType) -> Weights<'a> {
        Weights { reader, float }
    }

    pub fn tensor(&mut self, path: &str) -> Result<Array> {
        upload(&self.reader.tensor(path, self.float)?).with_context(|| format!("weight {path}"))
    }

    pub fn matrix(&mut self, path: &str) -> Result<Matrix> {
        Ok(match self.reader.matrix(path, self.float)? {
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
