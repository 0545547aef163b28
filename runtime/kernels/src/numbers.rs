//! Elements of a tensor as they lie in memory, little-endian and at any alignment, and the same numbers in other dtypes.

use half::{bf16, f16};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    F64,
    F32,
    F16,
    BF16,
    I32,
    U32,
    /// Truth values too.
    U8,
}

impl Kind {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Kind::F64 => 8,
            Kind::F32 | Kind::I32 | Kind::U32 => 4,
            Kind::F16 | Kind::BF16 => 2,
            Kind::U8 => 1,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Numbers<'a> {
    pub kind: Kind,
    pub bytes: &'a [u8],
}

fn each<const N: usize, T>(bytes: &[u8], one: impl Fn([u8; N]) -> T) -> impl Iterator<Item = T> {
    bytes.as_chunks::<N>().0.iter().map(move |chunk| one(*chunk))
}

impl Numbers<'_> {
    pub fn len(&self) -> usize {
        self.bytes.len() / self.kind.size()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Exact for every kind.
    pub fn to_f64(&self) -> Vec<f64> {
        let mut all = Vec::new();
        self.widen(&mut all);
        all
    }

    /// As [`Numbers::to_f64`], in the place of what `all` holds.
    pub(crate) fn widen(&self, all: &mut Vec<f64>) {
        all.clear();
        let bytes = self.bytes;
        match self.kind {
            Kind::F64 => all.extend(each(bytes, f64::from_le_bytes)),
            Kind::F32 => all.extend(each(bytes, |b| f64::from(f32::from_le_bytes(b)))),
            Kind::F16 => all.extend(each(bytes, |b| f16::from_le_bytes(b).to_f64())),
            Kind::BF16 => all.extend(each(bytes, |b| bf16::from_le_bytes(b).to_f64())),
            Kind::I32 => all.extend(each(bytes, |b| f64::from(i32::from_le_bytes(b)))),
            Kind::U32 => all.extend(each(bytes, |b| f64::from(u32::from_le_bytes(b)))),
            Kind::U8 => all.extend(bytes.iter().map(|b| f64::from(*b))),
        }
    }

    /// Rounded to nearest even where f32 is narrower.
    pub fn to_f32(&self) -> Vec<f32> {
        let bytes = self.bytes;
        match self.kind {
            Kind::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32).collect(),
            Kind::F32 => each(bytes, f32::from_le_bytes).collect(),
            Kind::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f32()).collect(),
            Kind::BF16 => each(bytes, |b| bf16::from_le_bytes(b).to_f32()).collect(),
            Kind::I32 => each(bytes, |b| i32::from_le_bytes(b) as f32).collect(),
            Kind::U32 => each(bytes, |b| u32::from_le_bytes(b) as f32).collect(),
            Kind::U8 => bytes.iter().map(|b| f32::from(*b)).collect(),
        }
    }

    /// The bytes of the same numbers as another kind of float, each rounded once, to nearest even. `None`: `to` is no float.
    pub fn to_float(&self, to: Kind) -> Option<Vec<u8>> {
        fn bytes<T, const N: usize>(values: Vec<T>, one: impl Fn(T) -> [u8; N]) -> Vec<u8> {
            values.into_iter().flat_map(one).collect()
        }
        // f32 holds these exactly, and takes half the memory.
        let narrow = matches!(self.kind, Kind::F32 | Kind::F16 | Kind::BF16 | Kind::U8);
        Some(match to {
            Kind::F64 => bytes(self.to_f64(), f64::to_le_bytes),
            Kind::F32 => bytes(self.to_f32(), f32::to_le_bytes),
            Kind::F16 if narrow => bytes(self.to_f32(), |x| f16::from_f32(x).to_le_bytes()),
            Kind::BF16 if narrow => bytes(self.to_f32(), |x| bf16::from_f32(x).to_le_bytes()),
            Kind::F16 => bytes(self.to_f64(), |x| f16::from_f32(odd(x)).to_le_bytes()),
            Kind::BF16 => bytes(self.to_f64(), |x| bf16::from_f32(odd(x)).to_le_bytes()),
            Kind::I32 | Kind::U32 | Kind::U8 => return None,
        })
    }
}

/// As f32, where it is not exact to the neighbour whose last bit is 1: what is rounded to f16 or bf16 from there comes out as if it
/// were rounded once (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
/// odd", 2008). `half` alone forgets the lower 32 bits of an f64.
pub(crate) fn odd(x: f64) -> f32 {
    let near = x as f32;
    let wide = f64::from(near);
    if wide == x || near.is_nan() || near.to_bits() & 1 == 1 {
        return near;
    }
    // Magnitudes are in the order of their bits.
    let bits = near.to_bits();
    f32::from_bits(if wide.abs() < x.abs() { bits + 1 } else { bits - 1 })
}

#[cfg(test)]
mod tests {
    use super::{Kind, Numbers};

    #[test]
    fn a_number_is_rounded_once_to_nearest_even() {
        let wide = [1.0 + 2f64.powi(-8) + 2f64.powi(-40), f64::NAN, -0.0, -1e300, 1e-300];
        let bytes: Vec<u8> = wide.iter().flat_map(|x| x.to_le_bytes()).collect();
        let numbers = Numbers { kind: Kind::F64, bytes: &bytes };
        let narrow = numbers.to_float(Kind::BF16).expect("a float");
        let back = Numbers { kind: Kind::BF16, bytes: &narrow };
        // In f32 it would be halfway, and go down.
        assert_eq!(back.to_f32()[0], 1.0 + 2f32.powi(-7));
        assert!(back.to_f64()[1].is_nan() && back.to_f64()[2].is_sign_negative());
        assert_eq!(back.to_f64()[3..], [f64::NEG_INFINITY, 0.0]);
        assert_eq!(
            back.to_float(Kind::F32).map(|bytes| bytes[..4].to_vec()),
            Some(back.to_f32()[0].to_le_bytes().into())
        );
        assert_eq!(numbers.to_float(Kind::I32), None);
        let odd = [0, 0, 0, 0, 0x80, 0x3f];
        assert_eq!(Numbers { kind: Kind::F32, bytes: &odd[2..] }.to_f32(), [1.0], "at any alignment");
    }
}
