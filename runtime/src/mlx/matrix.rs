//! A weight matrix, dense or packed as MLX packs it.

use mlx_rs::Array;

use super::ops;
use crate::error::{Result, bail};

#[derive(Debug, Clone)]
pub enum Matrix {
    Dense(Array),
    /// Affine: `code * scale + bias`, one scale and bias per `group` columns.
    Packed {
        codes: Array,
        scales: Array,
        biases: Array,
        bits: i32,
        group: i32,
    },
}

impl Matrix {
    pub fn packed(&self) -> bool {
        matches!(self, Matrix::Packed { .. })
    }

    /// 0 for a dense matrix.
    pub fn bits(&self) -> i64 {
        match self {
            Matrix::Dense(_) => 0,
            Matrix::Packed { bits, .. } => i64::from(*bits),
        }
    }

    /// 0 for a dense matrix.
    pub fn group(&self) -> i64 {
        match self {
            Matrix::Dense(_) => 0,
            Matrix::Packed { group, .. } => i64::from(*group),
        }
    }

    /// Of the dense matrix.
    pub fn shape(&self) -> Vec<i64> {
        match self {
            Matrix::Dense(w) => ops::shape(w),
            Matrix::Packed { scales, group, .. } => {
                let mut shape = ops::shape(scales);
                if let Some(columns) = shape.last_mut() {
                    *columns *= i64::from(*group);
                }
                shape
            }
        }
    }

    pub fn dense(&self) -> Result<Array> {
        match self {
            Matrix::Dense(w) => Ok(w.clone()),
            Matrix::Packed { .. } => bail!("a packed matrix has no dense form until it is expanded"),
        }
    }

    pub fn codes(&self) -> Result<Array> {
        self.part(|codes, _, _| codes)
    }

    /// The same memory as `codes`, byte by byte.
    pub fn bytes(&self) -> Result<Array> {
        ops::bytes(&self.codes()?)
    }

    pub fn scales(&self) -> Result<Array> {
        self.part(|_, scales, _| scales)
    }

    pub fn biases(&self) -> Result<Array> {
        self.part(|_, _, biases| biases)
    }

    fn part(&self, pick: for<'a> fn(&'a Array, &'a Array, &'a Array) -> &'a Array) -> Result<Array> {
        match self {
            Matrix::Packed { codes, scales, biases, .. } => Ok(pick(codes, scales, biases).clone()),
            Matrix::Dense(_) => bail!("a dense matrix has neither codes nor scales"),
        }
    }

    /// The rows (first axis) that `ids` name.
    pub fn rows(&self, ids: &Array) -> Result<Matrix> {
        Ok(match self {
            Matrix::Dense(w) => Matrix::Dense(ops::take(w, ids, 0)?),
            Matrix::Packed { codes, scales, biases, bits, group } => Matrix::Packed {
                codes: ops::take(codes, ids, 0)?,
                scales: ops::take(scales, ids, 0)?,
                biases: ops::take(biases, ids, 0)?,
                bits: *bits,
                group: *group,
            },
        })
    }
}
