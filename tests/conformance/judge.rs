//! Comparison of a result with what an op means.

use mgraph_dsl::ir::DType;

use super::{
    numbers::{is_float, largest, normal, rounded},
    row::Of,
};

/// What an element may be: the f64 run, and what stands for it where numbers on the way had to be rounded.
pub struct Meant<'a> {
    pub dtype: DType,
    /// Of the sums: the narrowest float on the way.
    pub narrowest: DType,
    /// Runs of the interpreter, the one in f64 first.
    pub runs: &'a [Vec<f64>],
    /// The sum of absolute terms of each element, where the bound counts it.
    pub scale: Option<&'a [f64]>,
    pub of: Of,
    /// Numbers below the least normal one are kept.
    pub keeps: bool,
}

/// The distance to the next number.
pub fn spacing(x: f64, dtype: DType) -> f64 {
    let (digits, least) = super::numbers::format(dtype);
    let exponent = if x == 0.0 { least } else { (x.abs().log2().floor() as i32).max(least) };
    f64::from(exponent + 1 - digits).exp2()
}

impl Meant<'_> {
    /// How many units each element is off; infinite where it is something else.
    pub fn units(&self, found: &[f64]) -> Vec<f64> {
        let one = |at: usize, x: f64| {
            let candidates = self.runs.iter().map(|run| self.unit(at, x, run[at]));
            candidates.fold(f64::INFINITY, f64::min)
        };
        found.iter().enumerate().map(|(at, x)| one(at, *x)).collect()
    }

    fn unit(&self, at: usize, found: f64, meant: f64) -> f64 {
        let nearest = rounded(meant, self.dtype);
        let same = found == nearest && found.is_sign_negative() == nearest.is_sign_negative();
        if same || found.is_nan() && meant.is_nan() {
            return 0.0;
        }
        // The language: what is below the least normal number may be 0. Some processors look before they round.
        if found == 0.0 && is_float(self.dtype) && meant.abs() <= normal(self.dtype) && !self.keeps {
            return 0.0;
        }
        if self.of == Of::Number && found == nearest {
            return 0.0;
        }
        if matches!(self.of, Of::Exact | Of::Number) || !is_float(self.dtype) || found.is_nan() || meant.is_nan() {
            return f64::INFINITY;
        }
        // What overflows in one executor may be the largest number in another.
        let cap = |x: f64| x.clamp(-largest(self.dtype), largest(self.dtype));
        if found.is_infinite() && nearest.is_infinite()
            || found.is_infinite() && meant.abs() < largest(self.dtype) / 2.0
        {
            return f64::INFINITY;
        }
        let off = (cap(found) - cap(meant)).abs();
        let unit = match (self.of, self.scale) {
            (Of::Ulp | Of::Exact | Of::Number, _) => spacing(cap(meant), self.dtype),
            (Of::Sum | Of::Text(_), Some(scale)) => scale[at] * spacing(1.0, self.narrowest),
            (Of::Sum | Of::Text(_), None) => f64::INFINITY,
            (Of::Largest, _) => {
                let finite = self.runs[0].iter().map(|x| x.abs()).filter(|x| x.is_finite());
                finite.fold(0.0, f64::max) * spacing(1.0, self.narrowest)
            }
        };
        // A sum of terms below the least normal number has that number's spacing.
        if off == 0.0 { 0.0 } else { off / unit.max(spacing(0.0, self.dtype)) }
    }
}

/// With numbers below the least normal one as zeros.
pub fn flushed(elements: &[f64], dtype: DType) -> Vec<f64> {
    let small = |x: f64| is_float(dtype) && x.abs() < normal(dtype);
    elements.iter().map(|x| if small(*x) { 0.0_f64.copysign(*x) } else { *x }).collect()
}
