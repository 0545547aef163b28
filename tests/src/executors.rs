//! The interpreter's operands on a backend, and what it gives there as numbers.

use mgraph_dsl::{
    interpret::{self, Data, Matrix, Operand, Store, Typed},
    ir,
};
use mgraph_runtime::tensor::{DType, Tensor};

pub fn dtype(dtype: ir::DType) -> DType {
    match dtype {
        ir::DType::F64 => DType::F64,
        ir::DType::F | ir::DType::F32 => DType::F32,
        ir::DType::F16 => DType::F16,
        ir::DType::BF16 => DType::BF16,
        ir::DType::I32 => DType::I32,
        ir::DType::U32 => DType::U32,
        ir::DType::U8 => DType::U8,
        ir::DType::Bool => DType::Bool,
    }
}

pub fn tensor(x: &interpret::Tensor) -> Tensor {
    let plain = |dtype: DType, bytes: Vec<u8>| Tensor { dtype, shape: x.shape().to_vec(), bytes };
    match x.data() {
        Data::F64(v) => plain(DType::F64, v.iter().flat_map(|x| x.to_le_bytes()).collect()).to_float(dtype(x.dtype())),
        Data::F32(v) => plain(DType::F32, v.iter().flat_map(|x| x.to_le_bytes()).collect()).to_float(dtype(x.dtype())),
        Data::I32(v) => plain(DType::I32, v.iter().flat_map(|x| x.to_le_bytes()).collect()),
        Data::U32(v) => plain(DType::U32, v.iter().flat_map(|x| x.to_le_bytes()).collect()),
        Data::U8(v) => plain(DType::U8, v.to_vec()),
        Data::Bool(v) => plain(DType::Bool, v.iter().map(|x| u8::from(*x)).collect()),
    }
}

pub fn operand(operand: &Operand<interpret::Tensor>) -> Operand<Tensor> {
    match operand {
        Operand::Tensor(x) => Operand::Tensor(tensor(x)),
        Operand::List(items) => Operand::List(items.iter().map(tensor).collect()),
        Operand::Load(value) => Operand::Load(value.clone()),
        Operand::Matrix(Matrix { shape, store, weight }) => {
            let store = match store {
                Store::Dense(dense) => Store::Dense(tensor(dense)),
                Store::Packed { codes, bytes, scales, biases, bits, group } => Store::Packed {
                    codes: tensor(codes),
                    bytes: tensor(bytes),
                    scales: tensor(scales),
                    biases: tensor(biases),
                    bits: *bits,
                    group: *group,
                },
            };
            Operand::Matrix(Matrix { shape: shape.clone(), store, weight: *weight })
        }
    }
}
