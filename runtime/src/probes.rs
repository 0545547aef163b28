//! What a session does at probes: nothing, report the values, or also go on from the reference's, so that each stage is
//! computed from what the reference computed before it and a wrong op stands alone.

use std::{collections::BTreeMap, sync::Arc};

use crate::tensor::{DType, Tensor, agree};

#[derive(Debug, Clone, Default)]
pub enum Probes {
    /// Compiled out.
    #[default]
    Unread,
    Reported,
    /// Reported as computed; the call goes on from [`Stages::value`] where there is one.
    Isolated(Arc<Stages>),
}

impl Probes {
    pub fn reported(&self) -> bool {
        match self {
            Probes::Unread => false,
            Probes::Reported | Probes::Isolated(_) => true,
        }
    }

    /// What the call goes on from at this probe, where that is not what it computed. Dtype and shape are the probe's.
    pub fn instead(&self, name: &str, dtype: DType, shape: &[usize]) -> Option<Tensor> {
        match self {
            Probes::Unread | Probes::Reported => None,
            Probes::Isolated(stages) => stages.value(name, dtype, shape)?.ok(),
        }
    }
}

/// A reference's values by the names of probes.
#[derive(Debug, Clone, Default)]
pub struct Stages {
    values: BTreeMap<String, Result<Tensor, String>>,
}

impl Stages {
    /// `Err` says why the reference's value of that stage cannot be gone on from.
    pub fn new(values: impl IntoIterator<Item = (String, Result<Tensor, String>)>) -> Stages {
        Stages { values: values.into_iter().collect() }
    }

    /// The reference's value as a probe of this dtype and shape takes it. `None`: the reference has no such stage. `Err`: it
    /// has, and the call goes on from its own value for this reason.
    ///
    /// Shapes agree but for axes of size 1; numbers are rounded to the probe's dtype, and truth may be 0 and 1.
    pub fn value(&self, name: &str, dtype: DType, shape: &[usize]) -> Option<Result<Tensor, String>> {
        Some(self.values.get(name)?.clone().and_then(|value| fitted(value, dtype, shape)))
    }
}

fn fitted(value: Tensor, dtype: DType, shape: &[usize]) -> Result<Tensor, String> {
    if !agree(&value.shape, shape) {
        return Err(format!("the reference has {:?} where {shape:?} is computed", value.shape));
    }
    let bytes = if value.dtype == dtype {
        value.bytes
    } else if value.dtype.is_float() && dtype.is_float() {
        value.to_float(dtype).bytes
    } else {
        integers(&value, dtype)?
    };
    Ok(Tensor { dtype, shape: shape.to_vec(), bytes })
}

/// Integers and truth values as another such dtype that has them all.
fn integers(value: &Tensor, dtype: DType) -> Result<Vec<u8>, String> {
    let range = match dtype {
        DType::Bool => Some(0.0..=1.0),
        DType::U8 => Some(0.0..=f64::from(u8::MAX)),
        DType::I32 => Some(f64::from(i32::MIN)..=f64::from(i32::MAX)),
        DType::U32 => Some(0.0..=f64::from(u32::MAX)),
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => None,
    };
    let Some(range) = range.filter(|_| !value.dtype.is_float()) else {
        return Err(format!("the reference has {:?} where {dtype:?} is computed", value.dtype));
    };
    let values = value.to_f64();
    match values.iter().find(|x| !range.contains(x)) {
        Some(outside) => Err(format!("the reference has {outside}, which is no {dtype:?}")),
        // Little-endian, so a narrow integer is the first bytes of a wide one.
        None => Ok(values.iter().flat_map(|x| (*x as i64).to_le_bytes().into_iter().take(dtype.size())).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_fitted_to_its_probe() {
        let mask = Tensor::of(DType::U8, &[3], &[0, 1, 1]);
        let stages = Stages::new([
            ("x".to_owned(), Ok(Tensor::from_f32(&[2, 1], &[1.0, 3.0]))),
            ("mask".to_owned(), Ok(mask.clone())),
            ("ids".to_owned(), Ok(Tensor::from_i32(&[2], &[-7, 70000]))),
            ("order".to_owned(), Err("any order is right".to_owned())),
        ]);
        let given = |name: &str, dtype, shape: &[usize]| stages.value(name, dtype, shape);
        let x = Tensor::from_f32(&[1, 2, 1], &[1.0, 3.0]);
        assert_eq!(given("x", DType::F32, &[1, 2, 1]), Some(Ok(x.clone())));
        assert_eq!(given("x", DType::BF16, &[1, 2, 1]), Some(Ok(x.to_float(DType::BF16))));
        assert_eq!(given("mask", DType::Bool, &[1, 3]), Some(Ok(Tensor::of(DType::Bool, &[1, 3], &[0, 1, 1]))));
        assert_eq!(given("mask", DType::I32, &[3]), Some(Ok(Tensor::from_i32(&[3], &[0, 1, 1]))));
        assert_eq!(given("absent", DType::F32, &[]), None);
        let refused = |name: &str, dtype, shape: &[usize]| given(name, dtype, shape).and_then(Result::err);
        for (name, dtype, shape, why) in [
            ("x", DType::F32, &[3][..], "the reference has [2, 1] where [3] is computed"),
            ("x", DType::I32, &[2, 1], "the reference has F32 where I32 is computed"),
            ("mask", DType::F32, &[3], "the reference has U8 where F32 is computed"),
            ("ids", DType::U32, &[2], "the reference has -7, which is no U32"),
            ("ids", DType::Bool, &[2], "the reference has -7, which is no Bool"),
            ("order", DType::I32, &[2], "any order is right"),
        ] {
            assert_eq!(refused(name, dtype, shape).as_deref(), Some(why), "{name}");
        }
    }
}
