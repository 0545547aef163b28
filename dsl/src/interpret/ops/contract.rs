//! Products summed over an axis. Terms are summed in f64, which is wider than any backend's sum, and rounded once.

use std::thread;

use super::{round::narrow, shape::transpose};
use crate::{
    interpret::{
        domain::Typed,
        tensor::{Data, Element, Tensor},
    },
    ir::DType,
};

/// Below this many products a second thread costs more than it saves.
const ALONE: usize = 1 << 18;
/// Independent partial sums, so that the compiler can use vector registers.
const LANES: usize = 8;

trait Factor: Element {
    fn wide(self) -> f64;
    fn rounded(sum: f64, dtype: DType) -> Self;
}

impl Factor for f32 {
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn rounded(sum: f64, dtype: DType) -> f32 {
        narrow(sum, dtype)
    }
}

impl Factor for f64 {
    fn wide(self) -> f64 {
        self
    }
    fn rounded(sum: f64, _dtype: DType) -> f64 {
        sum
    }
}

fn product<T: Factor>(x: &[T], w: &[T]) -> f64 {
    let mut lanes = [0.0; LANES];
    let (x_chunks, x_rest) = x.as_chunks::<LANES>();
    let (w_chunks, w_rest) = w.as_chunks::<LANES>();
    for (x, w) in x_chunks.iter().zip(w_chunks) {
        for i in 0..LANES {
            lanes[i] += x[i].wide() * w[i].wide();
        }
    }
    let rest: f64 = x_rest.iter().zip(w_rest).map(|(x, w)| x.wide() * w.wide()).sum();
    lanes.iter().sum::<f64>() + rest
}

/// `[m, k]` by `[n, k]` to `[m, n]`, rows of `w` shared out over the cores.
fn rows<T: Factor>(x: &[T], w: &[T], [m, n, k]: [usize; 3], dtype: DType, out: &mut Vec<T>) {
    // One stretch of `w` against all of `x`: each row of `w` is read once, while it is in the cache.
    let stretch = |from: usize, to: usize| -> Vec<T> {
        let mut part = Vec::with_capacity((to - from) * m);
        for j in from..to {
            let w = &w[j * k..(j + 1) * k];
            part.extend((0..m).map(|i| T::rounded(product(&x[i * k..(i + 1) * k], w), dtype)));
        }
        part
    };
    let cores =
        if m * n * k < ALONE { 1 } else { thread::available_parallelism().map_or(1, usize::from).min(n.max(1)) };
    let bounds: Vec<(usize, usize)> = (0..cores).map(|c| (n * c / cores, n * (c + 1) / cores)).collect();
    let parts: Vec<Vec<T>> = if cores == 1 {
        vec![stretch(0, n)]
    } else {
        thread::scope(|scope| {
            let threads: Vec<_> = bounds.iter().map(|(from, to)| scope.spawn(|| stretch(*from, *to))).collect();
            // A thread that could not finish is done again here.
            threads
                .into_iter()
                .zip(&bounds)
                .map(|(t, (from, to))| t.join().unwrap_or_else(|_| stretch(*from, *to)))
                .collect()
        })
    };
    for i in 0..m {
        for part in &parts {
            out.extend(part.iter().skip(i).step_by(m.max(1)).copied());
        }
    }
}

/// Last axis against last axis: `[.., m, k]` and `[n, k]`, or `[.., n, k]` with the same leading axes.
pub(in crate::interpret) fn dot(x: &Tensor, w: &Tensor) -> Result<Tensor, String> {
    let wrong = || format!("{:?} and {:?} do not fit", x.shape(), w.shape());
    let (k, x_lead) = x.shape().split_last().ok_or_else(wrong)?;
    let (w_k, w_lead) = w.shape().split_last().ok_or_else(wrong)?;
    let (n, batch) = w_lead.split_last().ok_or_else(wrong)?;
    let batched = !batch.is_empty();
    if k != w_k || (batched && x_lead.get(..batch.len()) != Some(batch)) || (batched && x_lead.len() != batch.len() + 1)
    {
        return Err(wrong());
    }
    let batches: usize = batch.iter().product();
    let m: usize = x_lead[batch.len()..].iter().product();
    let dtype = x.dtype();
    if dtype != w.dtype() {
        return Err(format!("{dtype:?} meets {:?}", w.dtype()).to_lowercase());
    }
    let shape = [x_lead, &[*n]].concat();
    macro_rules! all {
        ($x:expr, $w:expr) => {{
            let mut out = Vec::with_capacity(batches * m * n);
            for b in 0..batches {
                let (x, w) = (&$x[b * m * k..(b + 1) * m * k], &$w[b * n * k..(b + 1) * n * k]);
                rows(x, w, [m, *n, *k], dtype, &mut out);
            }
            Data::from(out)
        }};
    }
    let data: Data = match (x.data(), w.data()) {
        (Data::F32(x), Data::F32(w)) => all!(x, w),
        (Data::F64(x), Data::F64(w)) => all!(x, w),
        (_, _) => return Err(format!("{dtype:?} has no products").to_lowercase()),
    };
    Tensor::new(dtype, shape, data).ok_or_else(wrong)
}

/// Last against last but one: `[.., m, k]` and `[.., k, n]`.
pub(in crate::interpret) fn matmul(x: &Tensor, y: &Tensor) -> Result<Tensor, String> {
    let rank = y.shape().len();
    if rank < 2 {
        return Err(format!("{:?} and {:?} do not fit", x.shape(), y.shape()));
    }
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(rank - 1, rank - 2);
    dot(x, &transpose(y, &order)?)
}
