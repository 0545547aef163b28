//! Stored names: where a weight's bytes may lie, and reading one place.

use super::{
    BindFault, Binder, Claim, Draft, Part, Piece, Source, WeightKind,
    instance::InstanceNames,
    packed::{self, Packing},
};
use crate::{
    ir::{DType, Load, Shape, StoredPart},
    load::{self, LoadError, LoadErrorKind, Val},
};

/// A stored path, perhaps with a hole, and the rows of everything below it.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub path: String,
    pub rows: Option<(u64, u64)>,
}

/// A weight, as its field declares it.
pub(super) struct Wanted<'a> {
    pub path: &'a str,
    pub shape: &'a Shape,
    pub sizes: &'a [u64],
    pub dtype: DType,
    pub matrix: bool,
    /// Stored tensors, or stacks of them, that it is put together from.
    pub parts: usize,
    pub names: &'a InstanceNames<'a>,
}

pub(super) fn join(parent: &str, step: &str) -> String {
    match (parent, step) {
        ("", step) => step.to_owned(),
        (parent, "") => parent.to_owned(),
        (parent, step) => format!("{parent}.{step}"),
    }
}

/// The places of a field below its block's; a place without parts is the field's own name.
pub(super) fn below(
    bases: &[Base],
    place: &[StoredPart],
    name: &str,
    names: &InstanceNames<'_>,
) -> Result<Vec<Base>, LoadError> {
    if place.is_empty() {
        return Ok(bases.iter().map(|b| Base { path: join(&b.path, name), rows: b.rows }).collect());
    }
    let bound = |load: &Load| match load::evaluate(load, names)? {
        Val::Int(n) => u64::try_from(n)
            .map_err(|_| LoadError::new(load.span, LoadErrorKind::Negative { dim: "row".into(), size: n })),
        other => {
            Err(LoadError::new(load.span, LoadErrorKind::Kind { expected: "an integer", found: other.to_string() }))
        }
    };
    let mut all = Vec::new();
    for base in bases {
        for part in place {
            let own = part.rows.as_ref().map(|(low, high)| Ok((bound(low)?, bound(high)?, high.span))).transpose()?;
            let rows = match (base.rows, own) {
                (Some((start, end)), Some((low, high, span))) => {
                    let length = end.saturating_sub(start);
                    if high > length {
                        return Err(LoadError::new(span, LoadErrorKind::Rows { low, high, length }));
                    }
                    Some((start + low, start + high))
                }
                (outer, own) => own.map(|(low, high, _)| (low, high)).or(outer),
            };
            all.push(Base { path: join(&base.path, &part.path), rows });
        }
    }
    Ok(all)
}

impl Binder<'_> {
    /// The parts of a weight, and its kind, which all of them share. Faults go into the draft.
    pub(super) fn parts(&self, wanted: &Wanted<'_>, bases: &[Base], draft: &mut Draft) -> (WeightKind, Vec<Part>) {
        let mut packing: Option<Packing> = None;
        let mut parts = Vec::new();
        let faults = draft.faults.len();
        for base in bases {
            let Some((source, found)) = self.source(wanted, base, draft) else { continue };
            if !parts.is_empty() && packing != found {
                let detail = "its parts are packed differently; they must agree in bits and group size".into();
                draft.faults.push(BindFault::Packed { field: wanted.path.into(), name: base.path.clone(), detail });
            }
            packing = found;
            parts.push(Part { source, rows: base.rows });
        }
        let total: u64 = parts.iter().map(rows_of).sum();
        if draft.faults.len() == faults
            && parts.len() == bases.len()
            && wanted.sizes.first().is_some_and(|first| *first != total)
            && let Some(piece) = parts.first().and_then(|part| part.source.pieces().first())
        {
            let stacked = matches!(parts[0].source, Source::Stacked(_));
            let mut found = piece.shape.clone();
            if stacked {
                found.insert(0, total);
            }
            if let (Some(columns), Some(packing)) = (found.last_mut(), packing) {
                *columns = *columns * 32 / u64::from(packing.bits);
            }
            if let Some(rows) = found.first_mut() {
                *rows = total;
            }
            let names: Vec<&str> = bases.iter().map(|b| b.path.as_str()).collect();
            draft.faults.push(self.shape_fault(wanted, &names.join(" + "), found));
        }
        let kind = match packing {
            Some(Packing { bits, group }) => WeightKind::Packed { bits, group },
            None if wanted.matrix => WeightKind::Matrix,
            None => WeightKind::Tensor,
        };
        (kind, parts)
    }

    fn source(&self, wanted: &Wanted<'_>, base: &Base, draft: &mut Draft) -> Option<(Source, Option<Packing>)> {
        let inner = wanted.sizes.get(1..).unwrap_or_default();
        if !base.path.contains("{}") {
            let (piece, packing) = self.piece(wanted, &base.path, inner, true, base.rows, draft)?;
            return Some((Source::One(piece), packing));
        }
        let name = |i: u64| base.path.replace("{}", &i.to_string());
        // Alone, a stack is as long as the axis; among several parts it is as long as what is stored.
        let count = match wanted.sizes.first() {
            Some(count) if wanted.parts == 1 => *count,
            _ => (0..).take_while(|i| self.stored.contains_key(&name(*i))).count() as u64,
        };
        let mut pieces = Vec::new();
        let mut packing = None;
        for i in 0..count {
            let (piece, found) = self.piece(wanted, &name(i), inner, false, None, draft)?;
            if i > 0 && found != packing {
                let detail = "it is packed unlike the others of its stack".into();
                draft.faults.push(BindFault::Packed { field: wanted.path.into(), name: name(i), detail });
                return None;
            }
            packing = found;
            pieces.push(piece);
        }
        Some((Source::Stacked(pieces), packing))
    }

    /// One stored tensor, with its companions when packed. `rows_free`: its first axis is the weight's, and may be a
    /// stretch of it; else it has the weight's shape without the first axis.
    fn piece(
        &self,
        wanted: &Wanted<'_>,
        name: &str,
        inner: &[u64],
        rows_free: bool,
        rows: Option<(u64, u64)>,
        draft: &mut Draft,
    ) -> Option<(Piece, Option<Packing>)> {
        let module = name.strip_suffix(".weight").unwrap_or(name);
        let scales = format!("{module}.scales");
        let Some(stored) = self.stored.get(name) else {
            draft.missing += 1;
            let field = wanted.path.to_owned();
            let first = match rows {
                Some((_, high)) => Some(high),
                None => wanted.sizes.first().copied().filter(|_| wanted.parts == 1),
            };
            let first = (rows_free && !wanted.sizes.is_empty()).then_some(first);
            let shape = first.into_iter().chain(inner.iter().copied().map(Some)).collect();
            draft.faults.push(BindFault::Missing { field, name: name.to_owned(), shape, near: None });
            return None;
        };
        draft.claims.push(Claim { name: name.to_owned(), field: wanted.path.to_owned(), rows });
        if wanted.matrix && self.stored.contains_key(&scales) {
            return self.packed(wanted, module, name, stored, inner, rows_free, rows, draft);
        }
        if !packed::fits(wanted.dtype, stored.dtype) {
            let (field, wanted) = (wanted.path.to_owned(), wanted.dtype);
            let fault = BindFault::DType { field, name: name.to_owned(), wanted, found: stored.dtype };
            draft.faults.push(fault);
            return None;
        }
        let fits = if rows_free {
            stored.shape.len() == wanted.sizes.len() && stored.shape.get(1..).unwrap_or_default() == inner
        } else {
            stored.shape == inner
        };
        let reach = stored.shape.first().copied().unwrap_or(0);
        if !fits || rows.is_some_and(|(low, high)| low > high || high > reach) {
            let mut found = stored.shape.clone();
            if !rows_free {
                found.insert(0, wanted.sizes.first().copied().unwrap_or(0));
            }
            draft.faults.push(self.shape_fault(wanted, name, found));
            return None;
        }
        let piece = Piece { name: name.to_owned(), dtype: stored.dtype, shape: stored.shape.clone(), scales: None };
        Some((piece, None))
    }

    pub(super) fn shape_fault(&self, wanted: &Wanted<'_>, name: &str, found: Vec<u64>) -> BindFault {
        let symbols: Vec<String> = wanted.shape.dims.iter().map(ToString::to_string).collect();
        let mut values: Vec<(String, String)> = Vec::new();
        for atom in wanted.shape.dims.iter().flat_map(|d| d.atoms()) {
            if let Ok(value) = load::evaluate(&atom.load, wanted.names)
                && !values.iter().any(|(text, _)| *text == atom.text)
            {
                values.push((atom.text.clone(), value.to_string()));
            }
        }
        let field = wanted.path.to_owned();
        BindFault::Shape { field, name: name.to_owned(), symbols, expected: wanted.sizes.to_vec(), values, found }
    }
}

/// How many rows of the weight a part gives.
fn rows_of(part: &Part) -> u64 {
    match (&part.rows, &part.source) {
        (Some((low, high)), _) => high.saturating_sub(*low),
        (None, Source::Stacked(pieces)) => pieces.len() as u64,
        (None, Source::One(piece)) => piece.shape.first().copied().unwrap_or(0),
    }
}
