//! How far two tensors are from each other, element by element, in one pass over hundreds of megabytes.

use half::{bf16, f16};

use crate::numbers::{Kind, Numbers, odd};

/// Distances in floats of a dtype that are told apart: up to each of these, and further.
pub const UP_TO: [u64; 5] = [0, 1, 4, 16, 256];

/// What an element may differ by: `abs + rel * |b|`. Neither: anything that is a number on both sides.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowed {
    pub abs: Option<f64>,
    pub rel: Option<f64>,
}

impl Allowed {
    fn at(self, b: f64) -> f64 {
        match (self.abs, self.rel) {
            (None, None) => f64::INFINITY,
            // Relative to nothing where the reference is no finite number: NaN here would allow everything.
            (abs, rel) => abs.unwrap_or(0.0) + if b.is_finite() { rel.unwrap_or(0.0) * b.abs() } else { 0.0 },
        }
    }
}

/// `a` beside the reference `b`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Apart {
    pub max_abs: f64,
    /// Largest `|a - b| / |b|` where `b` is finite and not zero.
    pub max_rel: f64,
    /// Sum of `(a - b)^2`.
    pub squares: f64,
    /// Sum of `b^2`.
    pub scale: f64,
    /// Elements beyond what is allowed, and those where only one side is a number.
    pub outside: usize,
    /// The element furthest beyond what is allowed, or with the largest difference; the first of equals.
    pub worst: Option<usize>,
    /// Elements by their distance in floats of `places`, see [`UP_TO`].
    pub ulps: [usize; UP_TO.len() + 1],
}

/// Elements at a time, so that what is widened stays in the cache.
const CHUNK: usize = 1024;

/// Both sides have the same number of elements; of a longer one the rest is left out. `places`: the dtype whose floats
/// are counted, if any.
pub fn apart(a: Numbers<'_>, b: Numbers<'_>, allowed: Allowed, places: Option<Kind>) -> Apart {
    let mut found = Apart::default();
    let mut worst_excess = f64::NEG_INFINITY;
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let chunks = a.bytes.chunks(CHUNK * a.kind.size()).zip(b.bytes.chunks(CHUNK * b.kind.size()));
    for (number, (ours, theirs)) in chunks.enumerate() {
        Numbers { bytes: ours, ..a }.widen(&mut left);
        Numbers { bytes: theirs, ..b }.widen(&mut right);
        for (at, (x, y)) in left.iter().zip(&right).enumerate() {
            let delta = distance(*x, *y);
            let allowed = allowed.at(*y);
            found.outside += usize::from(delta > allowed || delta == f64::INFINITY);
            found.max_abs = found.max_abs.max(delta);
            if y.is_finite() && *y != 0.0 {
                found.max_rel = found.max_rel.max(delta / y.abs());
            }
            found.squares += delta * delta;
            found.scale += y * y;
            let excess = if allowed.is_finite() { delta - allowed } else { delta };
            if excess > worst_excess {
                (worst_excess, found.worst) = (excess, Some(number * CHUNK + at));
            }
        }
        match places {
            Some(Kind::F64) => found.count(&left, &right, |x| x.to_bits() as i64),
            Some(Kind::F16) => found.count(&left, &right, |x| i64::from(f16::from_f32(odd(x)).to_bits())),
            Some(Kind::BF16) => found.count(&left, &right, |x| i64::from(bf16::from_f32(odd(x)).to_bits())),
            Some(Kind::F32 | Kind::I32 | Kind::U32 | Kind::U8) => {
                found.count(&left, &right, |x| i64::from((x as f32).to_bits()));
            }
            None => {}
        }
    }
    found
}

impl Apart {
    /// `place`: the number of a float that is not negative among all of its dtype. Neighbours differ by one, both zeros are 0.
    fn count(&mut self, left: &[f64], right: &[f64], place: impl Fn(f64) -> i64) {
        let signed = |x: f64| if x.is_sign_negative() { -place(x.abs()) } else { place(x.abs()) };
        for (x, y) in left.iter().zip(right) {
            let apart = match (x.is_nan(), y.is_nan()) {
                (false, false) => signed(*x).abs_diff(signed(*y)),
                (true, true) => 0,
                (true, false) | (false, true) => u64::MAX,
            };
            let at: usize = UP_TO.iter().map(|limit| usize::from(apart > *limit)).sum();
            self.ulps[at] += 1;
        }
    }
}

/// Equal values include equal infinities; NaN agrees with NaN only, and is infinitely far from all else.
pub fn distance(x: f64, y: f64) -> f64 {
    let delta = if x == y || (x.is_nan() && y.is_nan()) { 0.0 } else { (x - y).abs() };
    if delta.is_nan() { f64::INFINITY } else { delta }
}

#[cfg(test)]
mod tests {
    use super::{Allowed, CHUNK, Kind, Numbers, apart};

    fn counts(places: Kind, a: &[f64], b: &[f64]) -> [usize; 6] {
        let bytes = |values: &[f64]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let (a, b) = (bytes(a), bytes(b));
        let of = |bytes| Numbers { kind: Kind::F64, bytes };
        apart(of(&a), of(&b), Allowed::default(), Some(places)).ulps
    }

    #[test]
    fn neighbours_are_one_apart_across_zero_and_in_the_dtype_that_is_counted() {
        let next = |x: f32| f64::from(f32::from_bits(x.to_bits() + 1));
        let tiny = f64::from(f32::from_bits(1));
        assert_eq!(counts(Kind::F32, &[1.0, next(1.0), 0.0], &[1.0, 1.0, -0.0]), [2, 1, 0, 0, 0, 0]);
        let (a, b) = ([tiny, f64::NAN, f64::NAN, 1.0], [-tiny, f64::NAN, 0.0, 2.0]);
        assert_eq!(counts(Kind::F32, &a, &b), [1, 0, 1, 0, 0, 2]);
        assert_eq!(counts(Kind::BF16, &[1.0 + 1.0 / 128.0], &[1.0]), [0, 1, 0, 0, 0, 0]);
        assert_eq!(counts(Kind::F64, &[1.0 + f64::EPSILON], &[1.0]), [0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn places_are_counted_over_all_chunks() {
        let count = 3 * CHUNK + 5;
        let theirs: Vec<u8> = (0..count).flat_map(|_| 2f32.to_le_bytes()).collect();
        let mut ours: Vec<f32> = vec![2.0; count];
        (ours[CHUNK + 7], ours[3 * CHUNK + 4]) = (2.5, 4.0);
        let ours: Vec<u8> = ours.iter().flat_map(|x| x.to_le_bytes()).collect();
        let of = |bytes| Numbers { kind: Kind::F32, bytes };
        let found = apart(of(&ours), of(&theirs), Allowed { abs: Some(0.25), rel: Some(0.125) }, Some(Kind::F32));
        assert_eq!((found.max_abs, found.max_rel, found.worst, found.outside), (2.0, 1.0, Some(3 * CHUNK + 4), 1));
        assert_eq!((found.squares, found.scale), (4.25, 4.0 * count as f64));
        assert_eq!(found.ulps, [count - 2, 0, 0, 0, 0, 2]);
    }
}
