//! Rounding to the float dtypes, once and to nearest even.

use crate::{interpret::tensor::Data, ir::DType};

/// `x` as the nearest value of a float dtype, held in f32.
pub(in crate::interpret) fn narrow(x: f64, dtype: DType) -> f32 {
    match dtype {
        DType::F16 => half::f16::from_f64(x).to_f32(),
        DType::BF16 => half::bf16::from_f64(x).to_f32(),
        DType::F | DType::F64 | DType::F32 | DType::I32 | DType::U32 | DType::U8 | DType::Bool => x as f32,
    }
}

/// Results computed in f32, rounded to the dtype they belong to. For `+ - * /` and square roots, f32 is wide enough that
/// rounding twice is rounding once (Figueroa, "When is double rounding innocuous?", 1995).
pub(in crate::interpret) fn settle(elements: Vec<f32>, dtype: DType) -> Data {
    match dtype {
        DType::F16 => elements.into_iter().map(|x| half::f16::from_f32(x).to_f32()).collect::<Vec<_>>().into(),
        DType::BF16 => elements.into_iter().map(|x| half::bf16::from_f32(x).to_f32()).collect::<Vec<_>>().into(),
        DType::F | DType::F64 | DType::F32 | DType::I32 | DType::U32 | DType::U8 | DType::Bool => elements.into(),
    }
}

/// Elements computed in f64 as the data of a dtype. Integers are cut toward zero and kept in range; NaN is 0.
pub(in crate::interpret) fn from_wide(elements: &[f64], dtype: DType, double: bool) -> Data {
    match dtype {
        DType::F64 => elements.to_vec().into(),
        DType::F | DType::F32 | DType::F16 | DType::BF16 if double => elements.to_vec().into(),
        DType::F | DType::F32 | DType::F16 | DType::BF16 => {
            elements.iter().map(|x| narrow(*x, dtype)).collect::<Vec<_>>().into()
        }
        DType::I32 => elements.iter().map(|x| *x as i32).collect::<Vec<_>>().into(),
        DType::U32 => elements.iter().map(|x| *x as u32).collect::<Vec<_>>().into(),
        DType::U8 => elements.iter().map(|x| *x as u8).collect::<Vec<_>>().into(),
        DType::Bool => elements.iter().map(|x| *x != 0.0).collect::<Vec<_>>().into(),
    }
}
