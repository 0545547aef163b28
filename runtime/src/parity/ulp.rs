//! Distances in units in the last place: how many floats of a dtype lie between two.

use mgraph_kernels::apart::UP_TO;

use crate::tensor::DType;

/// Elements by their distance. The dtype whose floats are counted is the narrower one of the two sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ulps {
    pub dtype: DType,
    /// Up to each of [`Ulps::UP_TO`], and further than the last.
    pub counts: [usize; UP_TO.len() + 1],
}

impl Ulps {
    pub const UP_TO: [u64; UP_TO.len()] = UP_TO;

    /// `None` where either side has no floats.
    pub(super) fn counted(a: DType, b: DType) -> Option<DType> {
        let floats = a.is_float() && b.is_float();
        floats.then_some(if b.size() < a.size() { b } else { a })
    }
}

#[cfg(test)]
mod tests {
    use super::Ulps;
    use crate::tensor::DType;

    #[test]
    fn the_narrower_dtype_is_counted() {
        assert_eq!(Ulps::counted(DType::F32, DType::BF16), Some(DType::BF16));
        assert_eq!(Ulps::counted(DType::F32, DType::F64), Some(DType::F32));
        assert_eq!(Ulps::counted(DType::I32, DType::F32), None);
    }
}
