//! The interpreter among the executors: tensors of every dtype to and from it.

use mgraph_dsl::interpret::{self, Interpreter, Matrix, Operand, Precision, Store, Typed, run_op};

use super::{Outcome, Settings, Work, value::declared};
use crate::{
    error::{Result, anyhow},
    reference::guest,
    tensor::Tensor,
    weights::concrete,
};

pub(super) fn run(settings: &Settings, work: &Work<'_>) -> Result<Outcome> {
    let family = declared(settings.float);
    match work {
        Work::Op { program, name, operands } => {
            let operands = operands.iter().map(enter).collect::<Result<_>>()?;
            let found = run_op(program, name, operands, family, Precision::Single, None);
            let found = found.map_err(|fault| anyhow!("{fault}"))?;
            Ok(Outcome { results: found.iter().map(host).collect(), probes: Vec::new() })
        }
        Work::Graph(call) => {
            let stored = call.stored.clone();
            let mut interpreter = Interpreter::new(
                call.program.clone(),
                call.resolved.clone(),
                call.bindings.clone(),
                family,
                Precision::Single,
                Box::new(move |name: &str| stored(name)),
            );
            let inputs = call.inputs.iter().map(|(name, tensor)| Ok((*name, guest(tensor)?)));
            let inputs: Vec<(&str, interpret::Tensor)> = inputs.collect::<Result<_>>()?;
            let slots: Vec<usize> = (0..call.rows).collect();
            let found = interpreter.call(call.graph, &inputs, &slots, call.positions);
            let interpret::Outcome { results, probes } = found.map_err(|fault| anyhow!("{fault}"))?;
            let probes = probes.into_iter().map(|(name, tensor)| (name, host(&tensor))).collect();
            Ok(Outcome { results: results.iter().map(host).collect(), probes })
        }
    }
}

fn enter(operand: &Operand<Tensor>) -> Result<Operand<interpret::Tensor>> {
    Ok(match operand {
        Operand::Tensor(tensor) => Operand::Tensor(guest(tensor)?),
        Operand::List(items) => Operand::List(items.iter().map(guest).collect::<Result<_>>()?),
        Operand::Load(value) => Operand::Load(value.clone()),
        Operand::Matrix(Matrix { shape, store, weight }) => {
            let store = match store {
                Store::Dense(dense) => Store::Dense(guest(dense)?),
                Store::Packed { codes, bytes, scales, biases, bits, group } => Store::Packed {
                    codes: guest(codes)?,
                    bytes: guest(bytes)?,
                    scales: guest(scales)?,
                    biases: guest(biases)?,
                    bits: *bits,
                    group: *group,
                },
            };
            Operand::Matrix(Matrix { shape: shape.clone(), store, weight: *weight })
        }
    })
}

/// In the dtype that is declared.
pub(crate) fn host(tensor: &interpret::Tensor) -> Tensor {
    let held = crate::reference::host(tensor);
    let dtype = concrete(tensor.dtype(), held.dtype);
    if dtype.is_float() { held.to_float(dtype) } else { held }
}
