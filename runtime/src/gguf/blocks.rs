//! Tensor formats: how many elements a block holds, in how many bytes, and what the numbers are.
//!
//! The layouts are those of ggml's `ggml-common.h`: a block of 32 elements starts with its f16 scale `d` (and, for Q4_1,
//! its f16 minimum `m`); nibble `j` of Q4 is the low half of byte `j` for the first 16 elements, the high half for the rest.

use std::fmt;

use half::f16;

/// Elements per block, in every quantized format read here.
pub(crate) const BLOCK: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    F32,
    F16,
    /// `(nibble - 8) * d`
    Q4_0,
    /// `nibble * d + m`
    Q4_1,
    /// `int8 * d`
    Q8_0,
    /// Any other, by ggml's id.
    Other(u32),
}

impl Format {
    pub const READ: [Format; 5] = [Format::F32, Format::F16, Format::Q8_0, Format::Q4_0, Format::Q4_1];

    pub(super) fn from_id(id: u32) -> Format {
        match id {
            0 => Format::F32,
            1 => Format::F16,
            2 => Format::Q4_0,
            3 => Format::Q4_1,
            8 => Format::Q8_0,
            other => Format::Other(other),
        }
    }

    /// Elements and bytes of a block; `None` for formats that are not read.
    pub(super) fn block(self) -> Option<(u64, u64)> {
        match self {
            Format::F32 => Some((1, 4)),
            Format::F16 => Some((1, 2)),
            Format::Q4_0 => Some((BLOCK as u64, 18)),
            Format::Q4_1 => Some((BLOCK as u64, 20)),
            Format::Q8_0 => Some((BLOCK as u64, 34)),
            Format::Other(_) => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Format::Other(id) = self else { return write!(f, "{self:?}") };
        // ggml's `enum ggml_type`; ids that it has retired or not yet given out print as numbers.
        let name = match id {
            6 => "Q5_0",
            7 => "Q5_1",
            9 => "Q8_1",
            10 => "Q2_K",
            11 => "Q3_K",
            12 => "Q4_K",
            13 => "Q5_K",
            14 => "Q6_K",
            15 => "Q8_K",
            16 => "IQ2_XXS",
            17 => "IQ2_XS",
            18 => "IQ3_XXS",
            19 => "IQ1_S",
            20 => "IQ4_NL",
            21 => "IQ3_S",
            22 => "IQ2_S",
            23 => "IQ4_XS",
            24 => "I8",
            25 => "I16",
            26 => "I32",
            27 => "I64",
            28 => "F64",
            29 => "IQ1_M",
            30 => "BF16",
            34 => "TQ1_0",
            35 => "TQ2_0",
            39 => "MXFP4",
            _ => return write!(f, "type {id}"),
        };
        f.write_str(name)
    }
}

/// The values as ggml computes them in f32, element by element in stored order: the yardstick for imports.
/// `None` for formats that are not read.
pub fn dequantize(format: Format, bytes: &[u8]) -> Option<Vec<f32>> {
    let half = |bytes: &[u8], at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
    let mut values = Vec::new();
    match format {
        Format::F32 => values.extend(bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word))),
        Format::F16 => values.extend(bytes.as_chunks::<2>().0.iter().map(|word| f16::from_le_bytes(*word).to_f32())),
        Format::Q4_0 => {
            for block in bytes.as_chunks::<18>().0 {
                let d = half(block, 0);
                values.extend(block[2..].iter().map(|byte| (i32::from(byte & 15) - 8) as f32 * d));
                values.extend(block[2..].iter().map(|byte| (i32::from(byte >> 4) - 8) as f32 * d));
            }
        }
        Format::Q4_1 => {
            for block in bytes.as_chunks::<20>().0 {
                let (d, m) = (half(block, 0), half(block, 2));
                values.extend(block[4..].iter().map(|byte| f32::from(byte & 15) * d + m));
                values.extend(block[4..].iter().map(|byte| f32::from(byte >> 4) * d + m));
            }
        }
        Format::Q8_0 => {
            for block in bytes.as_chunks::<34>().0 {
                let d = half(block, 0);
                values.extend(block[2..].iter().map(|byte| f32::from(byte.cast_signed()) * d));
            }
        }
        Format::Other(_) => return None,
    }
    Some(values)
}
