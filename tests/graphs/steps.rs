//! What a step of a recipe does. A step that finds no value to work on does nothing.

use mgraph_dsl::ir::DType::{self, BF16, Bool, F, F16, F32, F64, I32, U8, U32};

use super::{
    build::Build,
    calls::{activation, heads, masks, matrix, pictures, rope, rows},
    dims::{Dim, written},
    pool::{Range, Value, is_float},
};

pub type Picks = [u16; 5];

/// Adds a statement, where one of the kind fits.
type Add = fn(&mut Build, &Picks) -> Option<Value>;

/// Each with the words that it may write; the test holds that all of them occur.
pub const STEPS: &[(&str, Add)] = &[
    ("an operand", parameter),
    ("-x, abs, !x", unary),
    ("x + y", arithmetic),
    ("x * y", arithmetic),
    ("with a number", with_number),
    ("x == y", compare),
    ("select", select),
    ("f32(x)", convert),
    ("transpose", transpose),
    ("reshape", reshape),
    ("broadcast", broadcast),
    ("concat", concat),
    ("x[..]", slice),
    ("split", split),
    ("sum", sum),
    ("maximum, any", maximum),
    ("dot", dot),
    ("matmul", matmul),
    ("take", take),
    ("take_along", take_along),
    ("top_k", top_k),
    ("update", update),
    ("iota", iota),
    ("a list of numbers", list),
    ("& | << >> / %", integers),
    ("for", turns),
    ("if", branch),
    ("a list of tensors", comprehension),
    ("relu", activation),
    ("heads", heads),
    ("rope", rope),
    ("masks", masks),
    ("rows", rows),
    ("a matrix", matrix),
    ("pictures", pictures),
    ("a root of squares", exact_root),
];

pub fn at(pick: u16, n: usize) -> usize {
    usize::from(pick) % n.max(1)
}

fn number(value: f64, dtype: DType) -> String {
    if is_float(dtype) { format!("{value:?}") } else { format!("{value}") }
}

fn signed(value: &Value) -> bool {
    is_float(value.dtype) || value.dtype == I32
}

/// The shape of two broadcast from the right.
fn together(x: &[Dim], y: &[Dim]) -> Option<Vec<Dim>> {
    let rank = x.len().max(y.len());
    let dim = |dims: &[Dim], i: usize| (i + dims.len()).checked_sub(rank).map(|i| dims[i].clone());
    (0..rank)
        .map(|i| match (dim(x, i), dim(y, i)) {
            (Some(a), Some(b)) if a == b || b.is_one() => Some(a),
            (Some(a), Some(b)) if a.is_one() => Some(b),
            (Some(_), Some(_)) => None,
            (a, b) => a.or(b),
        })
        .collect()
}

fn parameter(b: &mut Build, p: &Picks) -> Option<Value> {
    let dtype = [F, F32, I32, Bool, U32, U8, F16, BF16, F64][at(p[0], 9)];
    let rank = at(p[1], 5);
    let dims: Vec<Dim> =
        (0..rank).map(|i| b.dim(p[2].wrapping_add(p[3].wrapping_mul(i as u16 + 1)) >> (i as u16))).collect();
    let range = match dtype {
        Bool => Range::of(0.0, 1.0),
        U32 | U8 => Range::of(0.0, 7.0),
        I32 => Range::of(-4.0, 4.0),
        F | F64 | F32 | F16 | BF16 => Range { fraction: i32::from(p[4] % 3), ..Range::of(-3.0, 3.0) },
    };
    b.parameter(dtype, &dims, range)
}

fn unary(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| signed(v) || v.dtype == Bool)?;
    let (text, range) = match (x.dtype, p[1] % 2) {
        (Bool, _) => (format!("!{}", x.name), x.range),
        (_, 0) => (format!("-{}", x.name), x.range.negated()),
        _ => (format!("abs({})", x.name), Range { low: 0.0, high: x.range.size(), ..x.range }),
    };
    b.emit(&text, x.dtype, &x.dims, range, &[&x])
}

fn arithmetic(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| v.dtype != Bool)?;
    let y = b.choose(p[1], |v| v.dtype == x.dtype && together(&x.dims, &v.dims).is_some())?;
    let dims = together(&x.dims, &y.dims)?;
    let (a, c) = (&x.name, &y.name);
    let either = x.range.or(y.range);
    let (text, range) = match p[2] % 5 {
        0 => (format!("{a} + {c}"), x.range.plus(y.range)),
        1 => (format!("{a} - {c}"), x.range.plus(y.range.negated())),
        2 => (format!("{a} * {c}"), x.range.times(y.range)),
        3 => (format!("min({a}, {c})"), either),
        _ => (format!("max({a}, {c})"), either),
    };
    b.emit(&text, x.dtype, &dims, range, &[&x, &y])
}

fn with_number(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| v.dtype != Bool)?;
    let n = f64::from(p[1] % 4);
    let (text, range) = match p[2] % 5 {
        0 => (format!("{} + {}", x.name, number(n, x.dtype)), x.range.plus(Range::of(n, n))),
        1 => (format!("{} - {}", number(n, x.dtype), x.name), Range::of(n, n).plus(x.range.negated())),
        2 => (format!("{} * {}", x.name, number(n, x.dtype)), x.range.times(Range::of(n, n))),
        // Powers of two divide exactly.
        3 if is_float(x.dtype) => {
            let half = Range { fraction: x.range.fraction + 1, low: x.range.low / 2.0, high: x.range.high / 2.0 };
            (format!("{} / 2.0", x.name), half)
        }
        _ => (format!("max({}, {})", x.name, number(n, x.dtype)), x.range.or(Range::of(n, n))),
    };
    b.emit(&text, x.dtype, &x.dims, range, &[&x])
}

fn compare(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |_| true)?;
    let y = b.choose(p[1], |v| v.dtype == x.dtype && together(&x.dims, &v.dims).is_some())?;
    let dims = together(&x.dims, &y.dims)?;
    let signs = ["==", "!=", "<", "<=", ">", ">="];
    let sign = signs[at(p[2], if x.dtype == Bool { 2 } else { 6 })];
    b.emit(&format!("{} {sign} {}", x.name, y.name), Bool, &dims, Range::of(0.0, 1.0), &[&x, &y])
}

fn select(b: &mut Build, p: &Picks) -> Option<Value> {
    let c = b.choose(p[0], |v| v.dtype == Bool)?;
    let x = b.choose(p[1], |v| together(&c.dims, &v.dims).is_some())?;
    let dims = together(&c.dims, &x.dims)?;
    let y = b.choose(p[2], |v| v.dtype == x.dtype && together(&dims, &v.dims).is_some())?;
    let dims = together(&dims, &y.dims)?;
    // Both branches broadcast with each other first.
    together(&x.dims, &y.dims)?;
    let text = format!("select({}, {}, {})", c.name, x.name, y.name);
    b.emit(&text, x.dtype, &dims, x.range.or(y.range), &[&c, &x, &y])
}

fn convert(b: &mut Build, p: &Picks) -> Option<Value> {
    let to = [F32, F, I32, F16, BF16, F64, U32, U8][at(p[1], 8)];
    let fits = |v: &Value| match (is_float(v.dtype), is_float(to)) {
        // Cut toward zero.
        (true, false) => v.dtype != to && b.holds(to, Range { fraction: 0, ..v.range }),
        _ => v.dtype != to && b.holds(to, v.range),
    };
    let x = b.choose(p[0], fits)?;
    let range = if is_float(to) { x.range } else { Range { fraction: 0, ..x.range } };
    b.emit(&format!("{}({})", to.name(), x.name), to, &x.dims, range, &[&x])
}

fn transpose(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| v.dims.len() > 1)?;
    let mut order: Vec<usize> = (0..x.dims.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, at(p[1] >> i, i + 1));
    }
    let dims: Vec<Dim> = order.iter().map(|i| x.dims[*i].clone()).collect();
    b.emit(&format!("transpose({}, {order:?})", x.name), x.dtype, &dims, x.range, &[&x])
}

fn reshape(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| !v.dims.is_empty())?;
    let mut dims = x.dims.clone();
    let i = at(p[1], dims.len());
    match p[2] % 4 {
        0 if i + 1 < dims.len() => {
            let merged = dims[i].times(&dims[i + 1]);
            dims.splice(i..i + 2, [merged]);
        }
        1 => dims.insert(i, Dim::number(1)),
        2 if dims[i].is_one() => {
            dims.remove(i);
        }
        _ => {
            let mut factors = dims[i].factors()?;
            // 4 and 6 have factors too.
            if let [one] = factors.as_slice() {
                let n = one.literal().filter(|n| *n > 2 && n % 2 == 0)?;
                factors = vec![Dim::number(n / 2), Dim::number(2)];
            }
            let cut = 1 + at(p[3], factors.len().checked_sub(1)?);
            let product = |part: &[Dim]| part.iter().fold(Dim::number(1), |a, f| a.times(f));
            let parts = [product(&factors[..cut]), product(&factors[cut..])];
            dims.splice(i..=i, parts);
        }
    }
    b.emit(&format!("reshape({}, {})", x.name, written(&dims)), x.dtype, &dims, x.range, &[&x])
}

fn broadcast(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| v.dims.len() < 5)?;
    let mut dims = x.dims.clone();
    let new = b.dim(p[2]);
    match dims.iter().position(Dim::is_one) {
        Some(i) if p[1].is_multiple_of(2) => dims[i] = new,
        _ => dims.insert(0, new),
    }
    b.emit(&format!("broadcast({}, {})", x.name, written(&dims)), x.dtype, &dims, x.range, &[&x])
}

fn concat(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| !v.dims.is_empty())?;
    let axis = at(p[1], x.dims.len());
    let joins = |v: &Value| {
        let others = |(i, (a, b)): (usize, (&Dim, &Dim))| i == axis || a == b;
        v.dtype == x.dtype && v.dims.len() == x.dims.len() && v.dims.iter().zip(&x.dims).enumerate().all(others)
    };
    let y = b.choose(p[2], joins)?;
    let mut dims = x.dims.clone();
    dims[axis] = dims[axis].plus(&y.dims[axis]);
    // From the back as often as from the front.
    let shown = if p[3].is_multiple_of(2) { axis as i64 } else { axis as i64 - x.dims.len() as i64 };
    let text = format!("concat([{}, {}], axis = {shown})", x.name, y.name);
    b.emit(&text, x.dtype, &dims, x.range.or(y.range), &[&x, &y])
}

fn slice(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| v.dims.iter().any(|dim| dim.literal().is_some()))?;
    let (mut slots, mut dims) = (Vec::new(), Vec::new());
    for (i, dim) in x.dims.iter().enumerate() {
        let pick = p[1].rotate_left(3 * i as u32);
        match (dim.literal(), pick % 3) {
            (Some(n), 0) => slots.push(format!("{}", at(pick >> 2, n))),
            (Some(n), 1) if n > 1 => {
                let low = at(pick >> 2, n);
                let high = low + 1 + at(pick >> 5, n - low);
                slots.push(format!("{low}..{high}"));
                dims.push(Dim::number(high - low));
            }
            _ => {
                slots.push("_".into());
                dims.push(dim.clone());
            }
        }
    }
    b.emit(&format!("{}[{}]", x.name, slots.join(", ")), x.dtype, &dims, x.range, &[&x])
}

fn split(b: &mut Build, p: &Picks) -> Option<Value> {
    let two = |v: &Value| v.dims.last().and_then(Dim::literal).is_some_and(|n| n > 1);
    let x = b.choose(p[0], two)?;
    let n = x.dims.last()?.literal()?;
    let cut = 1 + at(p[1], n - 1);
    let mut dims = x.dims.clone();
    *dims.last_mut()? = Dim::number(n);
    let before = format!("let ({{v}}a, {{v}}b) = split({}, [{cut}, {}]); ", x.name, n - cut);
    b.written(&before, "concat([{v}b, {v}a], axis = -1)", x.dtype, &dims, x.range, &[&x])
}

fn sum(b: &mut Build, p: &Picks) -> Option<Value> {
    let summed = |v: &Value| matches!(v.dtype, F32 | F64 | I32 | U32) && !v.dims.is_empty();
    let x = b.choose(p[0], summed)?;
    let axis = at(p[1], x.dims.len());
    let mut dims = x.dims.clone();
    let mut count = b.size(&dims[axis]);
    dims[axis] = Dim::number(1);
    let text = if p[2].is_multiple_of(2) || axis == 0 {
        format!("sum({}, axis = {axis})", x.name)
    } else {
        count *= b.size(&dims[0]);
        dims[0] = Dim::number(1);
        format!("sum({}, axis = [0, {axis}])", x.name)
    };
    b.emit(&text, x.dtype, &dims, x.range.summed(count), &[&x])
}

fn maximum(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| !v.dims.is_empty())?;
    let axis = at(p[1], x.dims.len());
    let mut dims = x.dims.clone();
    // The largest of nothing is no exact number.
    if x.dtype != Bool && b.size(&dims[axis]) == 0 {
        return None;
    }
    dims[axis] = Dim::number(1);
    let word = if x.dtype == Bool { "any" } else { "maximum" };
    b.emit(&format!("{word}({}, axis = {axis})", x.name), x.dtype, &dims, x.range, &[&x])
}

fn dot(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| is_float(v.dtype) && !v.dims.is_empty())?;
    let (last, leading) = x.dims.split_last()?;
    let n = b.dim(p[1]);
    let batched = p[2].is_multiple_of(2) && !leading.is_empty();
    let front: &[Dim] = if batched { &leading[..leading.len() - 1] } else { &[] };
    let range = Range::of(-2.0, 2.0);
    let product = x.range.times(range).summed(b.size(last));
    if !b.holds(x.dtype, product) {
        return None;
    }
    let w = b.parameter(x.dtype, &[front, &[n.clone(), last.clone()]].concat(), range)?;
    b.emit(&format!("dot({}, {})", x.name, w.name), x.dtype, &[leading, &[n]].concat(), product, &[&x, &w])
}

fn matmul(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| is_float(v.dtype) && v.dims.len() > 1)?;
    let (last, leading) = x.dims.split_last()?;
    let n = b.dim(p[1]);
    let range = Range::of(-2.0, 2.0);
    let product = x.range.times(range).summed(b.size(last));
    if !b.holds(x.dtype, product) {
        return None;
    }
    let front = &leading[..leading.len() - 1];
    let y = b.parameter(x.dtype, &[front, &[last.clone(), n.clone()]].concat(), range)?;
    b.emit(&format!("matmul({}, {})", x.name, y.name), x.dtype, &[leading, &[n]].concat(), product, &[&x, &y])
}

/// An axis that has something to choose.
fn filled(b: &Build, x: &Value, pick: u16) -> Option<(usize, usize)> {
    let axis = at(pick, x.dims.len());
    let n = b.size(x.dims.get(axis)?);
    (n > 0).then_some((axis, n))
}

fn take(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| !v.dims.is_empty())?;
    let (axis, n) = filled(b, &x, p[1])?;
    let shape: Vec<Dim> = (0..at(p[2], 3)).map(|i| b.dim(p[3] >> (4 * i))).collect();
    let ids = b.parameter(I32, &shape, Range::of(0.0, (n - 1) as f64))?;
    let dims = [&x.dims[..axis], &shape, &x.dims[axis + 1..]].concat();
    b.emit(&format!("take({}, {}, axis = {axis})", x.name, ids.name), x.dtype, &dims, x.range, &[&x, &ids])
}

fn take_along(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| !v.dims.is_empty())?;
    let (axis, n) = filled(b, &x, p[1])?;
    let mut shape = x.dims.clone();
    shape[axis] = b.dim(p[2]);
    let dims = shape.clone();
    let other = at(p[3], shape.len());
    if other != axis && p[4].is_multiple_of(2) {
        shape[other] = Dim::number(1);
    }
    let ids = b.parameter(I32, &shape, Range::of(0.0, (n - 1) as f64))?;
    b.emit(&format!("take_along({}, {}, axis = {axis})", x.name, ids.name), x.dtype, &dims, x.range, &[&x, &ids])
}

fn top_k(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| is_float(v.dtype) && v.dims.last().is_some_and(|dim| b.size(dim) > 0))?;
    let n = b.size(x.dims.last()?);
    let k = 1 + at(p[1], n);
    let mut dims = x.dims.clone();
    *dims.last_mut()? = Dim::number(k);
    let before = format!("let ({{v}}a, {{v}}b) = top_k({}, {k}); ", x.name);
    // Values and places in one number, so that both are judged.
    let places = Range::of(0.0, (n - 1) as f64);
    b.written(&before, &format!("{{v}}a + {}({{v}}b)", x.dtype.name()), x.dtype, &dims, x.range.plus(places), &[&x])
}

fn update(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| v.dims.len() > 1)?;
    let axis = 1 + at(p[1], x.dims.len() - 1);
    let length = b.size(&x.dims[axis]);
    let tokens = b.dim(p[2]);
    if b.size(&tokens) > length {
        return None;
    }
    let mut shape = x.dims.clone();
    shape[axis] = tokens.clone();
    let new = match b.choose(p[3], |v| v.dtype == x.dtype && v.dims == shape) {
        Some(new) => new,
        None => b.parameter(x.dtype, &shape, x.range)?,
    };
    let positions = b.positions(&x.dims[0].clone(), &tokens, length)?;
    let text = format!("update({}, {}, {}, axis = {axis})", x.name, new.name, positions.name);
    b.emit(&text, x.dtype, &x.dims, x.range.or(new.range), &[&x, &new, &positions])
}

fn iota(b: &mut Build, p: &Picks) -> Option<Value> {
    let dim = b.dim(p[0]);
    let range = Range::of(0.0, b.size(&dim).saturating_sub(1) as f64);
    b.emit(&format!("iota({dim})"), I32, &[dim], range, &[])
}

fn list(b: &mut Build, p: &Picks) -> Option<Value> {
    let dtype = [F, F32, I32, U32][at(p[0], 4)];
    let items: Vec<f64> = (0..1 + at(p[1], 4)).map(|i| f64::from((p[2] >> (3 * i)) % 8)).collect();
    let shown: Vec<String> = items.iter().map(|n| number(*n, dtype)).collect();
    let text = format!("{}([{}])", dtype.name(), shown.join(", "));
    b.emit(&text, dtype, &[Dim::number(items.len())], Range::of(0.0, 7.0), &[])
}

fn integers(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| !is_float(v.dtype) && v.range.low >= 0.0)?;
    let n = 1 + p[2] % 5;
    let high = x.range.high;
    // All bits below the highest that may be set.
    let bits = |x: f64| (x + 1.0).log2().ceil().exp2() - 1.0;
    let binary = |b: &mut Build, sign: &str| {
        let y = b.choose(p[3], |v| v.dtype == x.dtype && together(&x.dims, &v.dims).is_some())?;
        let dims = together(&x.dims, &y.dims)?;
        let high = if sign == "&" { high.min(y.range.high) } else { bits(high.max(y.range.high)) };
        b.emit(&format!("{} {sign} {}", x.name, y.name), x.dtype, &dims, Range::of(0.0, high), &[&x, &y])
    };
    let (text, high) = match (x.dtype, p[1] % 6) {
        (Bool, kind) => return binary(b, if kind < 3 { "&" } else { "|" }),
        (U32 | U8, 0) => return binary(b, "&"),
        (U32 | U8, 1) => return binary(b, "|"),
        (U32 | U8, 2) => (format!("{} << {n}", x.name), high * f64::from(n).exp2()),
        (U32 | U8, 3) => (format!("{} >> {n}", x.name), (high / f64::from(n).exp2()).floor()),
        (_, 4) => (format!("{} / {n}", x.name), (high / f64::from(n)).floor()),
        _ => (format!("{} % {n}", x.name), f64::from(n - 1).min(high)),
    };
    b.emit(&text, x.dtype, &x.dims, Range::of(0.0, high), &[&x])
}

fn turns(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| v.dtype != Bool)?;
    let y = b.choose(p[1], |v| v.dtype == x.dtype && together(&x.dims, &v.dims).as_ref() == Some(&x.dims))?;
    let n = usize::from(p[2] % 4);
    let end = (n.max(1) - 1) as f64;
    let turn = y.range.times(Range::of(0.0, end));
    let range = x.range.plus(turn.summed(n));
    if !b.holds(x.dtype, range) {
        return None;
    }
    let count = b.integer(n as i64);
    let before = format!("let mut {{v}} = {}; for i in 0..{count} {{ {{v}} = {{v}} + {} * i; }}", x.name, y.name);
    b.written(&before, "", x.dtype, &x.dims, range, &[&x, &y])
}

fn branch(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| v.dtype != Bool)?;
    let y = b.choose(p[1], |v| v.dtype == x.dtype && v.dims == x.dims)?;
    let range = x.range.or(y.range.plus(Range::of(1.0, 1.0)));
    if !b.holds(x.dtype, range) {
        return None;
    }
    let n = b.integer(i64::from(p[2] % 3));
    let text = format!("if {n} > 0 {{ {} }} else {{ {} + {} }}", x.name, y.name, number(1.0, x.dtype));
    b.emit(&text, x.dtype, &x.dims, range, &[&x, &y])
}

fn comprehension(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| v.dtype != Bool && !v.dims.is_empty())?;
    let axis = at(p[1], x.dims.len());
    let n = 1 + at(p[2], 3);
    let mut dims = x.dims.clone();
    dims[axis] = dims[axis].times(&Dim::number(n));
    let range = x.range.plus(Range::of(0.0, (n - 1) as f64));
    if p[3].is_multiple_of(2) {
        let text = format!("concat([{} + i for i in 0..{n}], axis = {axis})", x.name);
        return b.emit(&text, x.dtype, &dims, range, &[&x]);
    }
    let before = format!("let mut {{v}}s = []; for i in 0..{n} {{ {{v}}s.push({} + i); }} ", x.name);
    b.written(&before, &format!("concat({{v}}s, axis = {axis})"), x.dtype, &dims, range, &[&x])
}

/// A square has an exact root.
fn exact_root(b: &mut Build, p: &Picks) -> Option<Value> {
    let x = b.choose(p[0], |v| is_float(v.dtype) && b.holds(v.dtype, v.range.times(v.range)))?;
    let range = Range { low: 0.0, high: x.range.size(), ..x.range };
    b.emit(&format!("sqrt({0} * {0})", x.name), x.dtype, &x.dims, range, &[&x])
}
