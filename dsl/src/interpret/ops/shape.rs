//! The same elements elsewhere: transposes, broadcasts, slices, joins.

use super::strides::{broadcast_strides, gather, row_strides};
use crate::interpret::{
    domain::{Cut, Typed},
    tensor::{Data, Tensor},
};

/// A strided view of `x`, copied out in row order.
fn viewed(x: &Tensor, shape: &[usize], strides: &[usize], start: usize) -> Data {
    match x.data() {
        Data::F64(v) => gather(v, shape, strides, start).into(),
        Data::F32(v) => gather(v, shape, strides, start).into(),
        Data::I32(v) => gather(v, shape, strides, start).into(),
        Data::U32(v) => gather(v, shape, strides, start).into(),
        Data::U8(v) => gather(v, shape, strides, start).into(),
        Data::Bool(v) => gather(v, shape, strides, start).into(),
    }
}

pub(in crate::interpret) fn transpose(x: &Tensor, permutation: &[usize]) -> Result<Tensor, String> {
    let rank = x.shape().len();
    let mut seen = vec![false; rank];
    for axis in permutation {
        match seen.get_mut(*axis) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(format!("{permutation:?} does not reorder {rank} axes")),
        }
    }
    if permutation.len() != rank {
        return Err(format!("{permutation:?} does not reorder {rank} axes"));
    }
    let own = row_strides(x.shape());
    let strides: Vec<usize> = permutation.iter().map(|a| own[*a]).collect();
    let shape: Vec<usize> = permutation.iter().map(|a| x.shape()[*a]).collect();
    made(x, &shape, viewed(x, &shape, &strides, 0))
}

pub(in crate::interpret) fn broadcast(x: &Tensor, shape: &[usize]) -> Result<Tensor, String> {
    let strides = broadcast_strides(x.shape(), shape);
    let strides = strides.ok_or_else(|| format!("{:?} does not broadcast to {shape:?}", x.shape()))?;
    made(x, shape, viewed(x, shape, &strides, 0))
}

pub(in crate::interpret) fn slice(x: &Tensor, cuts: &[Cut]) -> Result<Tensor, String> {
    let own = row_strides(x.shape());
    if cuts.len() != own.len() || cuts.iter().zip(x.shape()).any(|(c, n)| c.start > c.end || c.end > *n) {
        return Err(format!("{cuts:?} does not cut {:?}", x.shape()));
    }
    let kept = || cuts.iter().zip(&own).filter(|(cut, _)| cut.keep);
    let shape: Vec<usize> = kept().map(|(cut, _)| cut.end - cut.start).collect();
    let strides: Vec<usize> = kept().map(|(_, stride)| *stride).collect();
    if shape.contains(&0) {
        return made(x, &shape, viewed(x, &shape, &vec![0; shape.len()], 0));
    }
    let start = cuts.iter().zip(&own).map(|(cut, stride)| cut.start * stride).sum();
    made(x, &shape, viewed(x, &shape, &strides, start))
}

pub(in crate::interpret) fn concat(parts: &[&Tensor], axis: usize) -> Result<Tensor, String> {
    let first = parts.first().ok_or("nothing to join")?;
    let mut shape = first.shape().to_vec();
    let length = parts.iter().map(|p| p.shape().get(axis).copied().unwrap_or(0)).sum();
    *shape.get_mut(axis).ok_or("an axis that is not there")? = length;
    for part in parts {
        let mut like = part.shape().to_vec();
        if let Some(n) = like.get_mut(axis) {
            *n = length;
        }
        if like != shape || part.dtype() != first.dtype() {
            return Err(format!("{:?} does not join {:?} along axis {axis}", part.shape(), first.shape()));
        }
    }
    let outer: usize = shape[..axis].iter().product();
    macro_rules! join {
        ($variant:ident) => {{
            let mut out = Vec::with_capacity(shape.iter().product());
            for i in 0..outer {
                for part in parts {
                    let Data::$variant(v) = part.data() else { return Err("the parts are held differently".into()) };
                    let run = v.len() / outer.max(1);
                    out.extend_from_slice(&v[i * run..(i + 1) * run]);
                }
            }
            Data::from(out)
        }};
    }
    let data: Data = match first.data() {
        Data::F64(_) => join!(F64),
        Data::F32(_) => join!(F32),
        Data::I32(_) => join!(I32),
        Data::U32(_) => join!(U32),
        Data::U8(_) => join!(U8),
        Data::Bool(_) => join!(Bool),
    };
    made(first, &shape, data)
}

fn made(like: &Tensor, shape: &[usize], data: Data) -> Result<Tensor, String> {
    Tensor::new(like.dtype(), shape.to_vec(), data).ok_or_else(|| format!("the elements do not fill {shape:?}"))
}
