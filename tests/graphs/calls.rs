//! Steps that call the prelude.

use mgraph_dsl::ir::DType::{Bool, F, F32, I32};

use super::{
    build::Build,
    dims::Dim,
    pool::{Range, Value, is_float},
    steps::{Picks, at},
};

pub fn activation(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| is_float(v.dtype))?;
    let clipped = Range { low: 0.0, high: x.range.high.max(0.0), ..x.range };
    match p[1] % 2 {
        0 => b.emit(&format!("relu({})", x.name), x.dtype, &x.dims, clipped, &[&x]),
        _ => b.emit(&format!("relu_squared({})", x.name), x.dtype, &x.dims, clipped.times(clipped), &[&x]),
    }
}

/// A float value of four axes: one at hand, or a new operand.
fn four(b: &mut Build, pick: u16, dims: [Dim; 4]) -> Option<Value> {
    let found = b.choose(pick, |v| is_float(v.dtype) && v.dims == dims);
    match found {
        Some(found) => Some(found),
        None => b.parameter(F, &dims, Range::of(-3.0, 3.0)),
    }
}

pub fn heads(b: &mut Build, p: &Picks) -> Option<Value> {
    let (rows, tokens, width) = (b.dim(p[1]), b.dim(p[2]), Dim::number(1 + at(p[3], 3)));
    match p[4] % 3 {
        0 => {
            let x = four(b, p[0], [rows.clone(), Dim::number(4), tokens.clone(), width.clone()])?;
            let dims = [rows, Dim::number(2), tokens.times(&Dim::number(2)), width];
            b.emit(&format!("group_heads({}, 2)", x.name), x.dtype, &dims, x.range, &[&x])
        }
        1 => {
            let x = b.choose(p[0], |v| is_float(v.dtype) && v.dims.len() == 4)?;
            let dims = [x.dims[0].clone(), x.dims[2].clone(), x.dims[1].times(&x.dims[3])];
            b.emit(&format!("merge_heads({})", x.name), x.dtype, &dims, x.range, &[&x])
        }
        _ => {
            let x =
                b.parameter(F, &[rows.clone(), tokens.clone(), width.times(&Dim::number(3))], Range::of(-3.0, 3.0))?;
            let dims = [rows, Dim::number(3), tokens, width.clone()];
            b.emit(&format!("split_heads({}, 3, {width})", x.name), x.dtype, &dims, x.range, &[&x])
        }
    }
}

pub fn rope(b: &mut Build, p: &Picks) -> Option<Value> {
    let (rows, tokens) = (b.dim(p[1]), b.dim(p[2]));
    let half = 1 + at(p[3], 3);
    let word = ["rope", "rope_interleaved", "rope_by_halves", "rope_partial"][at(p[4], 4)];
    let more = if word == "rope_partial" { at(p[4] >> 3, 3) } else { 0 };
    let dims = [rows.clone(), Dim::number(2), tokens.clone(), Dim::number(2 * half + more)];
    let x = four(b, p[0], dims.clone())?;
    // A quarter turn, or none.
    let table = [rows, Dim::number(1), tokens, Dim::number(half)];
    let range = x.range.plus(x.range.negated()).or(x.range.plus(x.range));
    if !b.holds(x.dtype, range) {
        return None;
    }
    let cos = b.parameter(F32, &table, Range::of(-1.0, 1.0))?;
    let sin = b.parameter(F32, &table, Range::of(-1.0, 1.0))?;
    let text = format!("{word}({}, {}, {})", x.name, cos.name, sin.name);
    b.emit(&text, x.dtype, &dims, range, &[&x, &cos, &sin])
}

pub fn masks(b: &mut Build, p: &Picks) -> Option<Value> {
    let (rows, tokens, keys) = (b.dim(p[0]), b.dim(p[1]), 1 + at(p[2], 5));
    let bools = Range::of(0.0, 1.0);
    match p[3] % 3 {
        0 => {
            let at = b.parameter(I32, &[rows.clone(), tokens.clone()], Range::of(0.0, 5.0))?;
            b.emit(&format!("causal({}, {keys})", at.name), Bool, &[rows, tokens, Dim::number(keys)], bools, &[&at])
        }
        1 => {
            let at = b.parameter(I32, &[rows.clone(), tokens.clone()], Range::of(0.0, 5.0))?;
            let text = format!("causal({0}, {keys}) & recent({0}, {keys}, 2)", at.name);
            b.emit(&text, Bool, &[rows, tokens, Dim::number(keys)], bools, &[&at])
        }
        _ => {
            let q = b.parameter(I32, &[rows.clone(), tokens.clone()], Range::of(0.0, 2.0))?;
            let k = b.parameter(I32, &[rows.clone(), Dim::number(keys)], Range::of(0.0, 2.0))?;
            let text = format!("same_span({}, {})", q.name, k.name);
            b.emit(&text, Bool, &[rows, tokens, Dim::number(keys)], bools, &[&q, &k])
        }
    }
}

pub fn rows(b: &mut Build, p: &Picks) -> Option<Value> {
    let rank = if p[1].is_multiple_of(2) { 3 } else { 2 };
    let x = b.choose(p[0], |v| is_float(v.dtype) && v.dims.len() == rank)?;
    let n = b.size(&x.dims[rank - 2]);
    if n == 0 {
        return None;
    }
    let (count, more) = (b.dim(p[2]), b.dim(p[3]));
    let end = (n - 1) as f64;
    if rank == 3 {
        let wanted = b.parameter(I32, &[x.dims[0].clone(), count.clone()], Range::of(0.0, end))?;
        let dims = [x.dims[0].clone(), count, x.dims[2].clone()];
        return b.emit(&format!("rows_at({}, {})", x.name, wanted.name), x.dtype, &dims, x.range, &[&x, &wanted]);
    }
    let at = b.parameter(I32, &[more.clone(), count.clone()], Range::of(-1.0, end))?;
    let dims = [more, count, x.dims[1].clone()];
    b.emit(&format!("features_at({}, {})", x.name, at.name), x.dtype, &dims, x.range, &[&x, &at])
}

pub fn matrix(b: &mut Build, p: &Picks) -> Option<Value> {
    let (n, packed) = (1 + at(p[1], 5), p[2] % 2 == 1);
    // Codes of two bits, times scales and plus biases of eighths within 2: eighths within 8.
    let (packed, elements) = match packed {
        true => (Some((2, 32)), Range { low: -8.0, high: 8.0, fraction: 3 }),
        false => (None, Range { low: -2.0, high: 2.0, fraction: 3 }),
    };
    let outputs = Dim::number(n);
    if p[3].is_multiple_of(3) {
        let columns = Dim::number(32);
        if !b.holds(F, elements) {
            return None;
        }
        let shape = [b.dim(p[4]), b.dim(p[0])];
        let ids = b.parameter(I32, &shape, Range::of(0.0, (n - 1) as f64))?;
        let table = b.matrix(&[outputs, columns.clone()], packed)?;
        let dims = [&shape[..], &[columns]].concat();
        return b.emit(&format!("lookup({table}, {})", ids.name), F, &dims, elements, &[&ids]);
    }
    let columns = |v: &Value| v.dims.last().is_some_and(|dim| b.size(dim) > 0 && packed.is_none());
    let x = match b.choose(p[0], |v| v.dtype == F && columns(v)) {
        Some(x) => x,
        None => b.parameter(F, &[b.dim(p[4]), Dim::number(32)], Range::of(-1.0, 1.0))?,
    };
    let (last, leading) = x.dims.split_last()?;
    let range = x.range.times(elements).summed(b.size(last));
    if !b.holds(F, range) {
        return None;
    }
    let w = b.matrix(&[outputs.clone(), last.clone()], packed)?;
    b.emit(&format!("linear({}, {w})", x.name), F, &[leading, &[outputs]].concat(), range, &[&x])
}

pub fn pictures(b: &mut Build, p: &Picks) -> Option<Value> {
    let (n, c) = (b.dim(p[1]), b.dim(p[2]));
    let four = Dim::number(4);
    match p[3] % 3 {
        0 => {
            let x = b.parameter(F, &[n.clone(), c.clone(), four, Dim::number(6)], Range::of(-3.0, 3.0))?;
            let dims = [n, Dim::number(6), c.times(&Dim::number(4))];
            b.emit(&format!("patchify({}, 2)", x.name), F, &dims, x.range, &[&x])
        }
        1 => {
            let x = b.parameter(F, &[n.clone(), Dim::number(8), c.clone()], Range::of(-3.0, 3.0))?;
            let dims = [n, Dim::number(2), c.times(&Dim::number(4))];
            b.emit(&format!("pixel_shuffle({}, 2, 4, 2)", x.name), F, &dims, x.range, &[&x])
        }
        _ => {
            let x = b.parameter(F, &[n.clone(), Dim::number(8), c.clone()], Range::of(-3.0, 3.0))?;
            let range = Range { fraction: 2, ..x.range };
            b.emit(&format!("mean_pool({}, 2, 4, 2)", x.name), F, &[n, Dim::number(2), c], range, &[&x])
        }
    }
}
