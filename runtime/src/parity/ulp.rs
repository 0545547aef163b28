//! Distances in units in the last place: how many floats of a dtype lie between two.

use half::{bf16, f16};

use crate::tensor::DType;

/// Elements by their distance. The dtype whose floats are counted is the narrower one of the two sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ulps {
    pub dtype: DType,
    /// Up to each of [`Ulps::UP_TO`], and further than the last.
    pub counts: [usize; 6],
}

impl Ulps {
    pub const UP_TO: [u64; 5] = [0, 1, 4, 16, 256];

    pub(super) fn between(a_dtype: DType, a: &[f64], b_dtype: DType, b: &[f64]) -> Option<Ulps> {
        if !a_dtype.is_float() || !b_dtype.is_float() {
            return None;
        }
        let dtype = if b_dtype.size() < a_dtype.size() { b_dtype } else { a_dtype };
        let mut counts = [0; 6];
        for (x, y) in a.iter().zip(b) {
            let apart = if x.is_nan() || y.is_nan() {
                if x.is_nan() && y.is_nan() { 0 } else { u64::MAX }
            } else {
                place(dtype, *x).abs_diff(place(dtype, *y))
            };
            let at = Ulps::UP_TO.iter().position(|limit| apart <= *limit).unwrap_or(Ulps::UP_TO.len());
            counts[at] += 1;
        }
        Some(Ulps { dtype, counts })
    }
}

/// The number of a float among all of its dtype: neighbours differ by one, both zeros are 0.
fn place(dtype: DType, x: f64) -> i64 {
    let signed = |magnitude: u64| if x.is_sign_negative() { -(magnitude as i64) } else { magnitude as i64 };
    match dtype {
        DType::F64 => signed(x.abs().to_bits()),
        DType::F16 => signed(u64::from(f16::from_f64(x.abs()).to_bits())),
        DType::BF16 => signed(u64::from(bf16::from_f64(x.abs()).to_bits())),
        DType::F32 | DType::I32 | DType::U32 | DType::U8 | DType::Bool => signed(u64::from((x.abs() as f32).to_bits())),
    }
}

#[cfg(test)]
mod tests {
    use super::Ulps;
    use crate::tensor::DType;

    #[test]
    fn neighbours_are_one_apart_across_zero_and_in_the_narrower_dtype() {
        let next = |x: f32| f64::from(f32::from_bits(x.to_bits() + 1));
        let tiny = f64::from(f32::from_bits(1));
        let counts = |a: &[f64], b: &[f64]| Ulps::between(DType::F32, a, DType::F32, b).map(|ulps| ulps.counts);
        assert_eq!(counts(&[1.0, next(1.0), 0.0], &[1.0, 1.0, -0.0]), Some([2, 1, 0, 0, 0, 0]));
        assert_eq!(counts(&[tiny, f64::NAN, f64::NAN, 1.0], &[-tiny, f64::NAN, 0.0, 2.0]), Some([1, 0, 1, 0, 0, 2]));
        let mixed = Ulps::between(DType::F32, &[1.0 + 1.0 / 128.0], DType::BF16, &[1.0]);
        assert_eq!(mixed, Some(Ulps { dtype: DType::BF16, counts: [0, 1, 0, 0, 0, 0] }));
        assert_eq!(Ulps::between(DType::I32, &[1.0], DType::I32, &[1.0]), None);
    }
}
