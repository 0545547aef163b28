//! The values of a program that is being built, with what is known of their numbers.

use mgraph_dsl::ir::DType;

use super::dims::Dim;

/// Numbers `n / 2^fraction` within `low..=high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    pub low: f64,
    pub high: f64,
    pub fraction: i32,
}

#[derive(Debug, Clone)]
pub struct Value {
    pub name: String,
    pub dtype: DType,
    pub dims: Vec<Dim>,
    pub range: Range,
    /// Whether something reads it.
    pub read: bool,
    pub parameter: bool,
}

impl Range {
    pub fn of(low: f64, high: f64) -> Range {
        Range { low, high, fraction: 0 }
    }

    pub fn size(self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    pub fn plus(self, other: Range) -> Range {
        let fraction = self.fraction.max(other.fraction);
        Range { low: self.low + other.low, high: self.high + other.high, fraction }
    }

    pub fn negated(self) -> Range {
        Range { low: -self.high, high: -self.low, ..self }
    }

    pub fn times(self, other: Range) -> Range {
        let corners = [self.low * other.low, self.low * other.high, self.high * other.low, self.high * other.high];
        let low = corners.iter().copied().fold(f64::INFINITY, f64::min);
        let high = corners.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Range { low, high, fraction: self.fraction + other.fraction }
    }

    /// Any of either.
    pub fn or(self, other: Range) -> Range {
        let fraction = self.fraction.max(other.fraction);
        Range { low: self.low.min(other.low), high: self.high.max(other.high), fraction }
    }

    /// Sums of `n` of these, partial ones too.
    pub fn summed(self, n: usize) -> Range {
        let n = n as f64;
        Range { low: (self.low * n).min(0.0), high: (self.high * n).max(0.0), fraction: self.fraction }
    }
}

/// What `F` is in arithmetic.
pub fn concrete(dtype: DType, family: DType) -> DType {
    if dtype == DType::F { family } else { dtype }
}

pub fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F | DType::F64 | DType::F32 | DType::F16 | DType::BF16)
}

/// Whether the dtype holds every number of the range.
pub fn holds(dtype: DType, family: DType, range: Range) -> bool {
    let digits = match concrete(dtype, family) {
        DType::F64 => 53,
        DType::F | DType::F32 => 24,
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::I32 => return range.fraction == 0 && range.size() < 2_147_483_648.0,
        DType::U32 => return range.fraction == 0 && range.low >= 0.0 && range.high < 4_294_967_296.0,
        DType::U8 => return range.fraction == 0 && range.low >= 0.0 && range.high < 256.0,
        DType::Bool => return range.fraction == 0 && range.low >= 0.0 && range.high <= 1.0,
    };
    // Below 2^15 and above 2^-14, so that f16 neither overflows nor leaves its normal numbers.
    let (size, fraction) = (range.size(), range.fraction);
    size * f64::from(fraction).exp2() <= f64::from(digits).exp2() && fraction <= 14 && (size < 32768.0 || digits > 11)
}

/// A dtype that `F` may be.
pub fn family(name: &str) -> Option<DType> {
    [DType::F32, DType::F16, DType::BF16].into_iter().find(|dtype| dtype.name() == name)
}
