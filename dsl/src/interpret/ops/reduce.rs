//! Sums, maxima, disjunctions, and the largest few. Float sums run in f64, which is wider than any backend's, and are
//! rounded once.

use super::{round::narrow, shape::transpose};
use crate::{
    interpret::{
        domain::Typed,
        tensor::{Data, Tensor},
    },
    ir::Reduce,
};

pub(in crate::interpret) fn reduce(op: Reduce, x: &Tensor, axes: &[usize]) -> Result<Tensor, String> {
    let rank = x.shape().len();
    if axes.iter().any(|a| *a >= rank) {
        return Err(format!("axes {axes:?} of {:?}", x.shape()));
    }
    let kept: Vec<usize> = (0..rank).filter(|a| !axes.contains(a)).collect();
    let inner: usize = axes.iter().map(|a| x.shape()[*a]).product();
    let shape: Vec<usize> = (0..rank).map(|a| if axes.contains(&a) { 1 } else { x.shape()[a] }).collect();
    let outer: usize = shape.iter().product();
    let order: Vec<usize> = kept.iter().chain(axes).copied().collect();
    let moved;
    let rows = if order.iter().copied().eq(0..rank) {
        x
    } else {
        moved = transpose(x, &order)?;
        &moved
    };
    let dtype = x.dtype();
    let data: Data = match (rows.data(), op) {
        (Data::F64(v), Reduce::Sum) => each(v, outer, inner, |r| r.iter().sum::<f64>()).into(),
        (Data::F32(v), Reduce::Sum) => {
            each(v, outer, inner, |r| narrow(r.iter().map(|x| f64::from(*x)).sum(), dtype)).into()
        }
        (Data::I32(v), Reduce::Sum) => each(v, outer, inner, |r| r.iter().fold(0i32, |t, x| t.wrapping_add(*x))).into(),
        (Data::U32(v), Reduce::Sum) => each(v, outer, inner, |r| r.iter().fold(0u32, |t, x| t.wrapping_add(*x))).into(),
        (Data::F64(v), Reduce::Maximum) => each(v, outer, inner, |r| {
            r.iter().fold(f64::NEG_INFINITY, |t, x| if t.is_nan() || t > *x { t } else { *x })
        })
        .into(),
        (Data::F32(v), Reduce::Maximum) => each(v, outer, inner, |r| {
            r.iter().fold(f32::NEG_INFINITY, |t, x| if t.is_nan() || t > *x { t } else { *x })
        })
        .into(),
        (Data::I32(v), Reduce::Maximum) => each(v, outer, inner, |r| r.iter().fold(i32::MIN, |t, x| t.max(*x))).into(),
        (Data::U32(v), Reduce::Maximum) => each(v, outer, inner, |r| r.iter().fold(0, |t, x| t.max(*x))).into(),
        (Data::U8(v), Reduce::Maximum) => each(v, outer, inner, |r| r.iter().fold(0, |t, x| t.max(*x))).into(),
        (Data::Bool(v), Reduce::Any) => each(v, outer, inner, |r| r.contains(&true)).into(),
        (Data::U8(_), Reduce::Sum)
        | (Data::Bool(_), Reduce::Sum | Reduce::Maximum)
        | (Data::F64(_) | Data::F32(_) | Data::I32(_) | Data::U32(_) | Data::U8(_), Reduce::Any) => {
            return Err(format!("{op:?} of {dtype:?} has no meaning").to_lowercase());
        }
    };
    Tensor::new(dtype, shape, data).ok_or_else(|| "the elements do not fill the result".into())
}

fn each<T, R>(v: &[T], outer: usize, inner: usize, row: impl Fn(&[T]) -> R) -> Vec<R> {
    (0..outer).map(|i| row(&v[i * inner..(i + 1) * inner])).collect()
}

/// The `k` largest along the last axis, descending, ties to the lower index; NaN comes last.
pub(in crate::interpret) fn top_k(x: &Tensor, k: usize, indices: bool) -> Result<Data, String> {
    let last = x.shape().last().copied().ok_or("top_k of a scalar")?;
    if k > last {
        return Err(format!("{k} of {last}"));
    }
    fn best<T: Copy + PartialOrd>(v: &[T], last: usize, k: usize) -> Vec<(T, i32)> {
        let outer = v.len().checked_div(last).unwrap_or(0);
        let mut out = Vec::with_capacity(outer * k);
        for i in 0..outer {
            let row = &v[i * last..(i + 1) * last];
            let mut order: Vec<usize> = (0..last).collect();
            // Stable, so that equal values keep their order. What compares with nothing, itself included, is a NaN.
            order.sort_by(|a, b| {
                let (a, b) = (row[*a], row[*b]);
                let nan = |x: T| x.partial_cmp(&x).is_none();
                b.partial_cmp(&a).unwrap_or_else(|| nan(a).cmp(&nan(b)))
            });
            out.extend(order.into_iter().take(k).map(|at| (row[at], at as i32)));
        }
        out
    }
    macro_rules! chosen {
        ($v:expr) => {{
            let best = best($v, last, k);
            if indices {
                best.into_iter().map(|(_, at)| at).collect::<Vec<_>>().into()
            } else {
                best.into_iter().map(|(x, _)| x).collect::<Vec<_>>().into()
            }
        }};
    }
    Ok(match x.data() {
        Data::F64(v) => chosen!(v),
        Data::F32(v) => chosen!(v),
        Data::I32(v) => chosen!(v),
        Data::U32(v) => chosen!(v),
        Data::U8(v) => chosen!(v),
        Data::Bool(_) => return Err("top_k of bool has no meaning".into()),
    })
}
