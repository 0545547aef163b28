//! How far two tensors are from each other: the numbers of one row of the parity table.

use mgraph_kernels::apart::{Allowed, distance};

use super::{map::Map, ulp::Ulps};
use crate::tensor::{Tensor, agree};

/// What a stage may differ by. A bound that is absent does not judge.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Bound {
    /// Largest `|a - b|` of any element; with `rtol`, of any element beyond `rtol * |b|`.
    pub max_abs: Option<f64>,
    pub rtol: Option<f64>,
    /// Root of the mean of squared differences.
    pub rms: Option<f64>,
}

/// `a` beside the reference `b`.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub max_abs: f64,
    /// Largest `|a - b| / |b|` where `b` is finite and not zero.
    pub max_rel: f64,
    pub rms: f64,
    /// Root mean square of the reference: the size of the numbers.
    pub scale: f64,
    /// `None` where either side has no floats.
    pub ulps: Option<Ulps>,
    pub worst: Option<Worst>,
    /// Elements outside the bound, and those where only one side is a number.
    pub outside: usize,
    pub rms_ok: bool,
    /// Where the differences lie; only of what is outside the bound.
    pub map: Option<Map>,
}

/// The element furthest outside the bound, or with the largest difference.
#[derive(Debug, Clone, PartialEq)]
pub struct Worst {
    pub index: Vec<usize>,
    pub a: f64,
    pub b: f64,
    /// As stored, in hex: `0x3f800000`.
    pub a_bits: String,
    pub b_bits: String,
}

impl Difference {
    pub fn within(&self) -> bool {
        self.outside == 0 && self.rms_ok
    }
}

/// Shapes must agree but for axes of size 1: implementations keep or drop them as they like. `Err` names both shapes.
pub fn compare(a: &Tensor, b: &Tensor, bound: Bound) -> Result<Difference, String> {
    if !agree(&a.shape, &b.shape) {
        return Err(format!("shape {:?}, but the reference has {:?}", a.shape, b.shape));
    }
    let places = Ulps::counted(a.dtype, b.dtype);
    let found = a.apart(b, Allowed { abs: bound.max_abs, rel: bound.rtol }, places);
    let count = b.len().max(1) as f64;
    let rms = (found.squares / count).sqrt();
    let mut difference = Difference {
        max_abs: found.max_abs,
        max_rel: found.max_rel,
        rms,
        scale: (found.scale / count).sqrt(),
        ulps: places.map(|dtype| Ulps { dtype, counts: found.ulps }),
        worst: found.worst.map(|at| Worst {
            index: unravel(at, &b.shape),
            a: element(a, at),
            b: element(b, at),
            a_bits: bits(a, at),
            b_bits: bits(b, at),
        }),
        outside: found.outside,
        rms_ok: bound.rms.is_none_or(|limit| rms <= limit),
        map: None,
    };
    if !difference.within() {
        let (left, right) = (a.to_f64(), b.to_f64());
        let deltas = left.iter().zip(&right).map(|(x, y)| distance(*x, *y));
        difference.map = Some(Map::of(&b.shape, deltas));
    }
    Ok(difference)
}

fn element(tensor: &Tensor, at: usize) -> f64 {
    let size = tensor.dtype.size();
    let bytes = tensor.bytes.get(at * size..(at + 1) * size).unwrap_or_default();
    Tensor { dtype: tensor.dtype, shape: Vec::new(), bytes: bytes.to_vec() }
        .to_f64()
        .first()
        .copied()
        .unwrap_or(f64::NAN)
}

/// Element number `at` as it lies in memory.
fn bits(tensor: &Tensor, at: usize) -> String {
    let size = tensor.dtype.size();
    let bytes = tensor.bytes.iter().skip(at * size).take(size).rev();
    bytes.fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn unravel(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|d| {
            let at = flat % d;
            flat /= d;
            at
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[f32]) -> Tensor {
        Tensor::from_f32(&[1, values.len()], values)
    }

    #[test]
    fn a_difference_outside_the_bound_is_counted_and_located() {
        let bound = Bound { max_abs: Some(0.1), ..Bound::default() };
        let d = compare(&row(&[1.0, 2.5, 3.05]), &row(&[1.0, 2.0, 3.0]), bound).unwrap();
        assert_eq!((d.outside, d.within(), d.max_rel), (1, false, 0.25));
        assert_eq!(d.map.map(|map| (map.size, map.bins[1])), Some(([1, 3], 0.5)));
        let worst = d.worst.unwrap();
        assert_eq!(worst.index, [0, 1]);
        assert_eq!((&worst.a_bits[..], &worst.b_bits[..]), ("0x40200000", "0x40000000"));
    }

    #[test]
    fn nan_agrees_with_nan_only() {
        let bound = Bound { max_abs: Some(1e9), ..Bound::default() };
        assert!(compare(&row(&[f32::NAN]), &row(&[f32::NAN]), bound).unwrap().within());
        assert!(!compare(&row(&[f32::NAN]), &row(&[0.0]), bound).unwrap().within());
        for reference in [f32::NAN, f32::INFINITY] {
            assert!(!compare(&row(&[0.0]), &row(&[reference]), bound).unwrap().within());
        }
        assert!(compare(&row(&[f32::INFINITY]), &row(&[f32::INFINITY]), bound).unwrap().within());
        assert!(!compare(&row(&[f32::NAN]), &row(&[0.0]), Bound::default()).unwrap().within());
    }

    #[test]
    fn rtol_widens_with_the_reference() {
        let bound = Bound { max_abs: Some(0.0), rtol: Some(1e-2), rms: None };
        assert!(compare(&row(&[100.5]), &row(&[100.0]), bound).unwrap().within());
        assert!(!compare(&row(&[0.5]), &row(&[0.0]), bound).unwrap().within());
    }

    #[test]
    fn shapes_may_differ_by_axes_of_size_1_only() {
        let flat = Tensor::from_f32(&[2], &[1.0, 2.0]);
        assert!(compare(&row(&[1.0, 2.0]), &flat, Bound::default()).is_ok());
        assert!(compare(&Tensor::from_f32(&[2, 1], &[1.0, 2.0]), &flat, Bound::default()).is_ok());
        let square = Tensor::from_f32(&[2, 2], &[0.0; 4]);
        assert!(compare(&square, &Tensor::from_f32(&[4], &[0.0; 4]), Bound::default()).is_err());
        assert!(compare(&flat, &square, Bound::default()).is_err());
    }
}
