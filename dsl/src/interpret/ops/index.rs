//! Elements chosen by integer tensors, and written at positions.

use super::strides::{broadcast_strides, gather, row_strides};
use crate::interpret::{
    domain::Typed,
    tensor::{Data, Tensor},
};

fn ids_of(ids: &Tensor) -> Result<&[i32], String> {
    match ids.data() {
        Data::I32(v) => Ok(v),
        Data::F64(_) | Data::F32(_) | Data::U32(_) | Data::U8(_) | Data::Bool(_) => {
            Err(format!("ids are i32, not {:?}", ids.dtype()).to_lowercase())
        }
    }
}

fn within(id: i32, length: usize) -> Result<usize, String> {
    let found = usize::try_from(id).ok().filter(|i| *i < length);
    found.ok_or_else(|| format!("id {id} lies outside an axis of {length}"))
}

/// `ids` replace the axis.
pub(in crate::interpret) fn take(x: &Tensor, ids: &Tensor, axis: usize) -> Result<Tensor, String> {
    let length = *x.shape().get(axis).ok_or("an axis that is not there")?;
    let at: Vec<usize> = ids_of(ids)?.iter().map(|id| within(*id, length)).collect::<Result<_, _>>()?;
    let outer: usize = x.shape()[..axis].iter().product();
    let run: usize = x.shape()[axis + 1..].iter().product();
    fn copy<T: Copy>(v: &[T], at: &[usize], [outer, length, run]: [usize; 3]) -> Vec<T> {
        let mut out = Vec::with_capacity(outer * at.len() * run);
        for o in 0..outer {
            for i in at {
                let start = (o * length + i) * run;
                out.extend_from_slice(&v[start..start + run]);
            }
        }
        out
    }
    let sizes = [outer, length, run];
    let data: Data = match x.data() {
        Data::F64(v) => copy(v, &at, sizes).into(),
        Data::F32(v) => copy(v, &at, sizes).into(),
        Data::I32(v) => copy(v, &at, sizes).into(),
        Data::U32(v) => copy(v, &at, sizes).into(),
        Data::U8(v) => copy(v, &at, sizes).into(),
        Data::Bool(v) => copy(v, &at, sizes).into(),
    };
    let shape = [&x.shape()[..axis], ids.shape(), &x.shape()[axis + 1..]].concat();
    Tensor::new(x.dtype(), shape, data).ok_or_else(|| "the elements do not fill the result".into())
}

/// One index per element; other axes of `ids` are the operand's, or 1.
pub(in crate::interpret) fn take_along(x: &Tensor, ids: &Tensor, axis: usize) -> Result<Tensor, String> {
    let length = *x.shape().get(axis).ok_or("an axis that is not there")?;
    let mut shape = x.shape().to_vec();
    shape[axis] = *ids.shape().get(axis).ok_or("ids of another rank")?;
    let strides = broadcast_strides(ids.shape(), &shape);
    let strides = strides.ok_or_else(|| format!("ids {:?} do not fit {:?}", ids.shape(), x.shape()))?;
    let chosen = gather(ids_of(ids)?, &shape, &strides, 0);
    // Where each element starts, were its index 0.
    let mut own = row_strides(x.shape());
    let step = std::mem::take(&mut own[axis]);
    let numbers: Vec<usize> = (0..x.len()).collect();
    let starts = if x.is_empty() { Vec::new() } else { gather(&numbers, &shape, &own, 0) };
    let at = starts.iter().zip(&chosen).map(|(start, id)| Ok(start + within(*id, length)? * step));
    let at: Vec<usize> = at.collect::<Result<_, String>>()?;
    fn pick<T: Copy>(v: &[T], at: &[usize]) -> Vec<T> {
        at.iter().map(|i| v[*i]).collect()
    }
    let data: Data = match x.data() {
        Data::F64(v) => pick(v, &at).into(),
        Data::F32(v) => pick(v, &at).into(),
        Data::I32(v) => pick(v, &at).into(),
        Data::U32(v) => pick(v, &at).into(),
        Data::U8(v) => pick(v, &at).into(),
        Data::Bool(v) => pick(v, &at).into(),
    };
    Tensor::new(x.dtype(), shape, data).ok_or_else(|| "the elements do not fill the result".into())
}

/// Token `s` of row `b` of `x` is written at `positions[b, s]` along `axis` of `state`.
pub(in crate::interpret) fn update(
    state: &Tensor,
    x: &Tensor,
    positions: &Tensor,
    axis: usize,
) -> Result<Tensor, String> {
    let wrong = || format!("{:?} at positions {:?} into {:?}", x.shape(), positions.shape(), state.shape());
    let [rows, tokens] = positions.shape() else { return Err(wrong()) };
    let mut like = state.shape().to_vec();
    let length = *like.get(axis).ok_or_else(wrong)?;
    like[axis] = *tokens;
    if axis == 0 || like != x.shape() || like.first() != Some(rows) || state.dtype() != x.dtype() {
        return Err(wrong());
    }
    let middle: usize = state.shape()[1..axis].iter().product();
    let run: usize = state.shape()[axis + 1..].iter().product();
    let mut moves = Vec::with_capacity(rows * tokens * middle);
    for (at, position) in ids_of(positions)?.iter().enumerate() {
        let (b, s) = (at / tokens, at % tokens);
        let position = usize::try_from(*position).ok().filter(|p| *p < length).ok_or_else(|| {
            format!("position {position} lies outside the {length} that the state shows; show more positions")
        })?;
        for h in 0..middle {
            let row = b * middle + h;
            moves.push(((row * length + position) * run, (row * tokens + s) * run));
        }
    }
    fn copy<T: Copy>(state: &[T], x: &[T], moves: &[(usize, usize)], run: usize) -> Vec<T> {
        let mut out = state.to_vec();
        for (to, from) in moves {
            out[*to..to + run].copy_from_slice(&x[*from..from + run]);
        }
        out
    }
    let data: Data = match (state.data(), x.data()) {
        (Data::F64(v), Data::F64(x)) => copy(v, x, &moves, run).into(),
        (Data::F32(v), Data::F32(x)) => copy(v, x, &moves, run).into(),
        (Data::I32(v), Data::I32(x)) => copy(v, x, &moves, run).into(),
        (Data::U32(v), Data::U32(x)) => copy(v, x, &moves, run).into(),
        (Data::U8(v), Data::U8(x)) => copy(v, x, &moves, run).into(),
        (Data::Bool(v), Data::Bool(x)) => copy(v, x, &moves, run).into(),
        (_, _) => return Err(wrong()),
    };
    Tensor::new(state.dtype(), state.shape().to_vec(), data).ok_or_else(wrong)
}
