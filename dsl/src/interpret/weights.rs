//! Stored bytes as tensors: decoded, stacked, joined, cut to rows.

use super::{
    domain::{Cut, Store, Typed},
    numeric::Precision,
    ops::{round::from_wide, shape},
    tensor::{Data, Tensor},
};
use crate::{
    bind::{PackedSide, Part, Piece, Source, StoredDtype, Weight, WeightKind},
    ir::DType,
};

/// Little-endian bytes of one stored tensor.
pub type ReadWeight = Box<dyn Fn(&str) -> Result<Vec<u8>, String> + Send>;

pub(super) struct Reader<'a> {
    pub read: &'a ReadWeight,
    pub precision: Precision,
}

impl Reader<'_> {
    /// The weight in `dtype` (never `F`; of a packed one, the dtype of scales and biases).
    pub fn weight(&self, weight: &Weight, dtype: DType) -> Result<Store<Tensor>, String> {
        let whole = |dtype, of: &dyn Fn(&Piece) -> Result<Stretch, String>| {
            self.joined(&weight.parts, dtype, of).map_err(|m| format!("weight `{}`: {m}", weight.path))
        };
        let main =
            |piece: &Piece| Ok(Stretch { name: piece.name.clone(), dtype: piece.dtype, shape: piece.shape.clone() });
        let WeightKind::Packed { bits, group } = weight.kind else {
            return whole(dtype, &main).map(Store::Dense);
        };
        let side = |pick: fn(&PackedSide) -> &str| {
            move |piece: &Piece| {
                let side = piece.scales.as_ref().ok_or_else(|| format!("`{}` is not packed", piece.name))?;
                Ok(Stretch { name: pick(side).to_owned(), dtype: side.dtype, shape: side.shape.clone() })
            }
        };
        let codes = whole(DType::U32, &main)?;
        Ok(Store::Packed {
            bytes: codes.to_bytes().ok_or_else(|| format!("weight `{}`: codes that are no words", weight.path))?,
            codes,
            scales: whole(dtype, &side(|s| &s.scales))?,
            biases: whole(dtype, &side(|s| &s.biases))?,
            bits,
            group,
        })
    }

    fn joined(
        &self,
        parts: &[Part],
        dtype: DType,
        of: &dyn Fn(&Piece) -> Result<Stretch, String>,
    ) -> Result<Tensor, String> {
        let mut all = Vec::new();
        for part in parts {
            let mut pieces = Vec::new();
            for piece in part.source.pieces() {
                let piece = self.decoded(of(piece)?, dtype)?;
                pieces.push(match part.source {
                    Source::One(_) => piece,
                    Source::Stacked(_) => piece.reshaped(&[&[1], piece.shape()].concat())?,
                });
            }
            let whole = one(pieces)?;
            all.push(match part.rows {
                None => whole,
                Some((low, high)) => {
                    let mut cuts: Vec<Cut> =
                        whole.shape().iter().map(|n| Cut { start: 0, end: *n, keep: true }).collect();
                    if let Some(rows) = cuts.first_mut() {
                        (rows.start, rows.end) = (low as usize, high as usize);
                    }
                    shape::slice(&whole, &cuts)?
                }
            });
        }
        one(all)
    }

    fn decoded(&self, stretch: Stretch, dtype: DType) -> Result<Tensor, String> {
        let Stretch { name, dtype: stored, shape } = stretch;
        let bytes = (self.read)(&name)?;
        let shape: Vec<usize> = shape.iter().map(|n| *n as usize).collect();
        let data = self.data(&bytes, stored, dtype).ok_or_else(|| format!("`{name}` is {stored}, not {dtype:?}"))?;
        let held = data.len();
        Tensor::new(dtype, shape.clone(), data)
            .ok_or_else(|| format!("`{name}` holds {held} elements, which do not fill {shape:?}"))
    }

    fn data(&self, bytes: &[u8], stored: StoredDtype, dtype: DType) -> Option<Data> {
        /// Whole elements; a remainder shows as an element too few.
        fn each<const N: usize, T>(bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
            bytes.as_chunks::<N>().0.iter().map(|b| read(*b)).collect()
        }
        let double = self.precision == Precision::Double;
        let float = matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16);
        Some(match stored {
            StoredDtype::F32 if dtype == DType::F32 && !double => each(bytes, f32::from_le_bytes).into(),
            StoredDtype::F16 if dtype == DType::F32 && !double => {
                each(bytes, |b| half::f16::from_le_bytes(b).to_f32()).into()
            }
            StoredDtype::BF16 if dtype == DType::F32 && !double => {
                each(bytes, |b| half::bf16::from_le_bytes(b).to_f32()).into()
            }
            StoredDtype::F32 if float => from_wide(&each(bytes, |b| f64::from(f32::from_le_bytes(b))), dtype, double),
            StoredDtype::F64 if float => from_wide(&each(bytes, f64::from_le_bytes), dtype, double),
            StoredDtype::F16 if float => {
                from_wide(&each(bytes, |b| half::f16::from_le_bytes(b).to_f64()), dtype, double)
            }
            StoredDtype::BF16 if float => {
                from_wide(&each(bytes, |b| half::bf16::from_le_bytes(b).to_f64()), dtype, double)
            }
            StoredDtype::I32 if dtype == DType::I32 => each(bytes, i32::from_le_bytes).into(),
            StoredDtype::U32 if dtype == DType::U32 => each(bytes, u32::from_le_bytes).into(),
            StoredDtype::U8 if dtype == DType::U8 => bytes.to_vec().into(),
            StoredDtype::Bool if dtype == DType::Bool => bytes.iter().map(|b| *b != 0).collect::<Vec<_>>().into(),
            StoredDtype::F64
            | StoredDtype::F32
            | StoredDtype::F16
            | StoredDtype::BF16
            | StoredDtype::I64
            | StoredDtype::I32
            | StoredDtype::U32
            | StoredDtype::U8
            | StoredDtype::Bool
            | StoredDtype::Other => return None,
        })
    }
}

/// A stored tensor to be read.
struct Stretch {
    name: String,
    dtype: StoredDtype,
    shape: Vec<u64>,
}

fn one(mut tensors: Vec<Tensor>) -> Result<Tensor, String> {
    match (tensors.len(), tensors.pop()) {
        (1, Some(only)) => Ok(only),
        (_, Some(last)) => {
            tensors.push(last);
            shape::concat(&tensors.iter().collect::<Vec<_>>(), 0)
        }
        (_, None) => Err("nothing is stored for it".into()),
    }
}
