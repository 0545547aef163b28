//! Packed matrices: codes at `p.weight`, then `p.scales` and `p.biases`, whose shapes tell bits and group size.

use super::{BindFault, Binder, Claim, Draft, PackedSide, Piece, Stored, StoredDtype, place::Wanted};
use crate::ir::DType;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packing {
    pub bits: u32,
    pub group: u32,
}

/// May a tensor stored as `found` become a value of dtype `wanted`? Floats convert among themselves; nothing else does.
pub(super) fn fits(wanted: DType, found: StoredDtype) -> bool {
    match wanted {
        DType::F | DType::F64 | DType::F32 | DType::F16 | DType::BF16 => found.is_float(),
        DType::I32 => found == StoredDtype::I32,
        DType::U32 => found == StoredDtype::U32,
        DType::U8 => found == StoredDtype::U8,
        DType::Bool => found == StoredDtype::Bool,
    }
}

impl Binder<'_> {
    #[expect(clippy::too_many_arguments, reason = "continues Binder::piece")]
    pub(super) fn packed(
        &self,
        wanted: &Wanted<'_>,
        module: &str,
        name: &str,
        codes: &Stored,
        inner: &[u64],
        rows_free: bool,
        rows: Option<(u64, u64)>,
        draft: &mut Draft,
    ) -> Option<(Piece, Option<Packing>)> {
        let field = || wanted.path.to_owned();
        let (scales_name, biases_name) = (format!("{module}.scales"), format!("{module}.biases"));
        let scales = self.stored.get(&scales_name)?;
        draft.claims.push(Claim { name: scales_name.clone(), field: field(), rows });
        let Some(biases) = self.stored.get(&biases_name) else {
            draft.missing += 1;
            let shape = scales.shape.iter().copied().map(Some).collect();
            draft.faults.push(BindFault::Missing { field: field(), name: biases_name, shape, near: None });
            return None;
        };
        draft.claims.push(Claim { name: biases_name.clone(), field: field(), rows });
        let mut wrong = |name: &str, detail: String| {
            draft.faults.push(BindFault::Packed { field: field(), name: name.to_owned(), detail });
            None
        };
        if codes.dtype != StoredDtype::U32 {
            return wrong(name, format!("codes have to be u32, these are {}", codes.dtype));
        }
        if !scales.dtype.is_float() || scales.dtype != biases.dtype {
            let detail =
                format!("scales ({}) and biases ({}) have to be floats of one dtype", scales.dtype, biases.dtype);
            return wrong(&scales_name, detail);
        }
        if scales.shape != biases.shape {
            let detail = format!("scales {:?} and biases {:?} have to be of one shape", scales.shape, biases.shape);
            return wrong(&scales_name, detail);
        }
        let leading = |shape: &[u64]| {
            let lead = shape.split_last().map_or(&[][..], |(_, lead)| lead);
            let (free, rest) = if rows_free { lead.split_at(lead.len().min(1)) } else { lead.split_at(0) };
            (free.to_vec(), rest.to_vec())
        };
        let expected = inner.split_last().map_or(&[][..], |(_, lead)| lead);
        let rank = if rows_free { wanted.sizes.len() } else { inner.len() };
        let shaped = |s: &[u64]| s.len() == rank && leading(s).1 == expected;
        if !shaped(&codes.shape) || !shaped(&scales.shape) || leading(&codes.shape) != leading(&scales.shape) {
            let detail = format!(
                "codes {:?} and scales {:?} do not lie over a matrix of {:?}",
                codes.shape, scales.shape, wanted.sizes
            );
            return wrong(name, detail);
        }
        let reach = codes.shape.first().copied().unwrap_or(0);
        if rows.is_some_and(|(low, high)| low > high || high > reach) {
            return wrong(name, format!("rows {:?} are wanted, and it has {reach}", rows.unwrap_or_default()));
        }
        let columns = wanted.sizes.last().copied().unwrap_or(0);
        let words = codes.shape.last().copied().unwrap_or(0);
        let groups = scales.shape.last().copied().unwrap_or(0);
        let bits = if columns > 0 && words * 32 % columns == 0 { words * 32 / columns } else { 0 };
        let group = if groups > 0 && columns % groups == 0 { columns / groups } else { 0 };
        if !matches!(bits, 2..=6 | 8) || group == 0 {
            let detail = format!(
                "{words} words of codes and {groups} scales a row do not pack {columns} columns; bits are 2, 3, 4, 5, 6 or 8"
            );
            return wrong(name, detail);
        }
        let packing = Packing { bits: bits as u32, group: group as u32 };
        if let Some((bits, group)) = (self.quantization)(module)
            && (Packing { bits, group }) != packing
        {
            let detail = format!(
                "the config says {bits} bits and groups of {group}, the shapes say {} bits and groups of {}",
                packing.bits, packing.group
            );
            return wrong(name, detail);
        }
        let side =
            PackedSide { scales: scales_name, biases: biases_name, dtype: scales.dtype, shape: scales.shape.clone() };
        let piece = Piece { name: name.to_owned(), dtype: codes.dtype, shape: codes.shape.clone(), scales: Some(side) };
        Some((piece, Some(packing)))
    }
}
