//! A kernel that stands in for an op, as one node. The walk holds its type against the declaration of the op.

use super::{Node, Traced, Tracer, What};
use crate::{
    interpret::{Matrix, Operand, Store, Typed},
    ir::DType,
    kernels,
    load::Val,
};

impl Tracer<'_> {
    pub(super) fn kernel_node(&mut self, path: &str, arguments: &[Option<Operand<Traced>>]) -> Result<Traced, String> {
        let kernel = kernels::KERNELS.iter().find(|k| k.path == path).ok_or("there is no such kernel")?;
        let mut operands = Vec::new();
        let mut numbers = Vec::new();
        for (parameter, argument) in kernel.parameters.iter().zip(arguments) {
            if parameter.optional {
                numbers.push(f64::from(u8::from(argument.is_some())));
            }
            match argument {
                None => {}
                Some(Operand::Tensor(tensor)) => operands.push(tensor.id),
                Some(Operand::Load(Val::Bool(value))) => numbers.push(f64::from(u8::from(*value))),
                Some(Operand::Load(value)) => {
                    let number = value.as_float().or_else(|| value.as_int().map(|n| n as f64));
                    numbers.push(number.ok_or_else(|| format!("`{}` is no number", parameter.name))?);
                }
                Some(Operand::Matrix(Matrix { store: Store::Dense(dense), .. })) => {
                    operands.push(dense.id);
                    numbers.extend([0.0, 0.0]);
                }
                Some(Operand::Matrix(Matrix {
                    store: Store::Packed { codes, scales, biases, bits, group, .. },
                    ..
                })) => {
                    operands.extend([codes.id, scales.id, biases.id]);
                    numbers.extend([f64::from(*bits), f64::from(*group)]);
                }
                Some(Operand::List(_)) => return Err(format!("`{}` is a list", parameter.name)),
            }
        }
        let (dtype, shape) = result(arguments).ok_or("its arguments tell no result")?;
        let (probes, origin, span) = (Vec::new(), String::new(), None);
        let what = What::Kernel { path: kernel.path, numbers };
        Ok(self.node(Node { what, operands, dtype, shape, probes, origin, span }))
    }
}

/// Dtype of the first argument. Its shape, but for products: of a matrix `[.., N, K]` the last axis becomes `N`; of three tensors
/// (attention), the width is that of the last.
fn result(arguments: &[Option<Operand<Traced>>]) -> Option<(DType, Vec<usize>)> {
    let last_of = |shape: &[usize], last: Option<&usize>| {
        let mut shape = shape.to_vec();
        *shape.last_mut()? = *last?;
        Some(shape)
    };
    match arguments {
        [Some(Operand::Matrix(w)), ..] => Some((stored(w), w.shape.clone())),
        [Some(Operand::Tensor(x)), Some(Operand::Matrix(w)), ..] => {
            Some((x.dtype(), last_of(x.shape(), w.shape.iter().rev().nth(1))?))
        }
        [
            Some(Operand::Tensor(q)),
            Some(Operand::Tensor(_)),
            Some(Operand::Tensor(v)),
            Some(Operand::Load(_)),
            _,
            ..,
        ] => Some((q.dtype(), last_of(q.shape(), v.shape().last())?)),
        [Some(Operand::Tensor(x)), ..] => Some((x.dtype(), x.shape().to_vec())),
        _ => None,
    }
}

fn stored(matrix: &Matrix<Traced>) -> DType {
    match &matrix.store {
        Store::Dense(dense) => dense.dtype(),
        Store::Packed { scales, .. } => scales.dtype(),
    }
}
