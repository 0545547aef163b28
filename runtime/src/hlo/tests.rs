//! Every primitive, through MLIR text and IREE, against plain Rust. Cases that can share a module do: a compile costs more
//! than all its calls.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Build, BuildOptions, Compare, DType, Graph, Type, V, WeightType,
    artifact::Artifacts,
    compile::{FLAGS, compile},
    emit,
    graph::{ArgumentKind, Part, ResultKind},
    iree::Runtime,
    readback::{Operand, Read, read},
};
use crate::tensor::Tensor;

fn options() -> BuildOptions {
    BuildOptions {
        float: DType::F32,
        fused: false,
        probes: false,
        positions: 8,
        weights: Arc::default(),
        states: Arc::default(),
    }
}

/// Values as f64 with a shape, to write cases down.
fn t(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    assert_eq!(shape.iter().product::<usize>(), values.len(), "case");
    let bytes: Vec<u8> = match dtype {
        DType::I32 => values.iter().flat_map(|v| (*v as i32).to_le_bytes()).collect(),
        DType::U32 => values.iter().flat_map(|v| (*v as u32).to_le_bytes()).collect(),
        DType::U8 => values.iter().map(|v| *v as u8).collect(),
        DType::Bool => values.iter().map(|v| u8::from(*v != 0.0)).collect(),
        DType::F32 => values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect(),
        float => return t(DType::F32, shape, values).to_float(float),
    };
    Tensor { dtype, shape: shape.to_vec(), bytes }
}

fn f(shape: &[usize], values: &[f64]) -> Tensor {
    t(DType::F32, shape, values)
}

/// Numbers that are no pattern.
fn noise(shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f64) / f64::from(1 << 23) - 1.0
    };
    f(shape, &(0..shape.iter().product()).map(|_| next()).collect::<Vec<_>>())
}

/// Record with `body`, compile, call.
fn run_with(options: BuildOptions, inputs: &[Tensor], body: impl FnOnce(&mut Build, &[V]) -> Vec<V>) -> Vec<Tensor> {
    let mut build = Build::new(options);
    let dims = |t: &Tensor| t.shape.iter().map(|d| *d as i64).collect::<Vec<_>>();
    let values: Vec<V> = inputs.iter().map(|t| build.input(t.dtype, &dims(t))).collect();
    let outputs = body(&mut build, &values);
    let graph = build.finish(&outputs).expect("types");
    let text = emit::text(&graph).expect("emission");
    let module = compile(&text, &FLAGS).unwrap_or_else(|e| panic!("{e:#}\n{text}"));
    let runtime = Runtime::new().expect("runtime");
    let types = graph.results.iter().map(|r| graph.ty(r.value).clone()).collect();
    let program = runtime.load(&module, types).expect("load");
    let arguments = inputs.iter().map(|t| runtime.upload(t).expect("upload")).collect();
    let results = program.call(arguments).expect("call");
    results.iter().map(|r| runtime.download(r).expect("download")).collect()
}

fn run(inputs: &[Tensor], body: impl FnOnce(&mut Build, &[V]) -> Vec<V>) -> Vec<Tensor> {
    run_with(options(), inputs, body)
}

#[track_caller]
fn same(found: &Tensor, expected: &Tensor) {
    near(found, expected, 0.0);
}

/// Elements within `ulps` units of the last place of f32; NaN equals NaN, and zeros differ by sign.
#[track_caller]
fn near(found: &Tensor, expected: &Tensor, ulps: f64) {
    assert_eq!((found.dtype, &found.shape), (expected.dtype, &expected.shape));
    for (i, (x, y)) in found.to_f64().iter().zip(expected.to_f64()).enumerate() {
        let bound = ulps * f64::from(f32::EPSILON) * y.abs().max(1e-30);
        let equal = (x.is_nan() && y.is_nan()) || *x == y || (x - y).abs() <= bound;
        assert!(equal, "element {i}: {x}, expected {y}");
    }
}

fn map(x: &Tensor, g: impl Fn(f64) -> f64) -> Tensor {
    t(x.dtype, &x.shape, &x.to_f64().into_iter().map(g).collect::<Vec<_>>())
}

const EDGES: [f64; 12] =
    [0.0, -0.0, 1.0, -1.5, 0.3, 7.25, -20.0, 88.0, 1e-40, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];

#[test]
fn unary() {
    let x = f(&[12], &EDGES);
    let results = run(&[x.clone()], |b, v| {
        let x = v[0];
        vec![
            b.negate(x),
            b.abs(x),
            b.exponential(x),
            b.log(x),
            b.sqrt(x),
            b.rsqrt(x),
            b.tanh(x),
            b.sine(x),
            b.cosine(x),
            b.logistic(x),
            b.erf(x),
        ]
    });
    let finite = |t: &Tensor| {
        // Subnormals may be flushed; infinities of sine are NaN in both.
        let values: Vec<f64> = t.to_f64().into_iter().enumerate().filter(|(i, _)| *i != 8).map(|(_, v)| v).collect();
        t64(&values)
    };
    fn t64(values: &[f64]) -> Tensor {
        f(&[values.len()], values)
    }
    same(&results[0], &map(&x, |v| -v));
    same(&results[1], &map(&x, f64::abs));
    let cases: [(usize, fn(f64) -> f64, f64); 9] = [
        (2, f64::exp, 4.0),
        (3, f64::ln, 4.0),
        (4, f64::sqrt, 1.0),
        (5, |v| 1.0 / v.sqrt(), 2.0),
        (6, f64::tanh, 8.0),
        (7, f64::sin, 8.0),
        (8, f64::cos, 8.0),
        (9, |v| 1.0 / (1.0 + (-v).exp()), 8.0),
        (10, erf, 8.0),
    ];
    for (at, g, ulps) in cases {
        near(&finite(&results[at]), &finite(&map(&x, g)), ulps);
    }
}

/// Angles of rotary positions: far from zero, where the backend's own sine has lost digits.
#[test]
fn angles() {
    let angles: Vec<f64> = (0..8192).map(|i| f64::from((i as f32) * 0.77)).collect();
    let narrow = f(&[8192], &angles).to_float(DType::BF16);
    let results = run(&[f(&[8192], &angles), narrow.clone()], |b, v| vec![b.sine(v[0]), b.cosine(v[0]), b.sine(v[1])]);
    close(&results[0], &f(&[8192], &angles.iter().map(|a| a.sin()).collect::<Vec<_>>()), 3e-7);
    close(&results[1], &f(&[8192], &angles.iter().map(|a| a.cos()).collect::<Vec<_>>()), 3e-7);
    close(&results[2], &map(&narrow, f64::sin), 1.0 / 256.0);
}

/// By its series near zero, by its continued fraction elsewhere.
fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn binary() {
    let (x, y) = (f(&[4], &[1.5, -2.0, f64::NAN, 3.0]), f(&[4], &[0.5, 7.0, 1.0, f64::INFINITY]));
    let (i, j) = (t(DType::I32, &[4], &[7.0, 8.0, 0.0, 2147483647.0]), t(DType::I32, &[4], &[2.0, 3.0, 5.0, 1000.0]));
    let u = t(DType::U32, &[4], &[0xDEADBEEFu32.into(), 1.0, 15.0, f64::from(u32::MAX)]);
    let s = t(DType::U32, &[4], &[4.0, 31.0, 0.0, 28.0]);
    let (p, q) = (t(DType::Bool, &[4], &[0.0, 0.0, 1.0, 1.0]), t(DType::Bool, &[4], &[0.0, 1.0, 0.0, 1.0]));
    let results = run(&[x, y, i, j, u, s, p, q], |b, v| {
        vec![
            b.add(v[0], v[1]),
            b.subtract(v[0], v[1]),
            b.multiply(v[0], v[1]),
            b.divide(v[0], v[1]),
            b.minimum(v[0], v[1]),
            b.maximum(v[0], v[1]),
            b.divide(v[2], v[3]),
            b.remainder(v[2], v[3]),
            b.shift_right(v[4], v[5]),
            b.shift_left(v[4], v[5]),
            b.and(v[4], v[5]),
            b.or(v[4], v[5]),
            b.not(v[4]),
            b.and(v[6], v[7]),
            b.or(v[6], v[7]),
            b.not(v[6]),
            b.remainder(v[4], v[5]),
            b.maximum(v[4], v[5]),
        ]
    });
    let nan = f64::NAN;
    let (inf, u32s, bools) = (
        f64::INFINITY,
        |v: [u32; 4]| t(DType::U32, &[4], &v.map(f64::from)),
        |v: [u8; 4]| t(DType::Bool, &[4], &v.map(f64::from)),
    );
    let expected = [
        f(&[4], &[2.0, 5.0, nan, inf]),
        f(&[4], &[1.0, -9.0, nan, -inf]),
        f(&[4], &[0.75, -14.0, nan, inf]),
        f(&[4], &[3.0, f64::from(-2.0f32 / 7.0), nan, 0.0]),
        f(&[4], &[0.5, -2.0, nan, 3.0]),
        f(&[4], &[1.5, 7.0, nan, inf]),
        t(DType::I32, &[4], &[3.0, 2.0, 0.0, 2147483.0]),
        t(DType::I32, &[4], &[1.0, 2.0, 0.0, 647.0]),
        u32s([0xDEADBEEF >> 4, 0, 15, 15]),
        u32s([0xDEADBEEF << 4, 1 << 31, 15, 0xF000_0000]),
        u32s([0xDEADBEEF & 4, 1, 0, 28]),
        u32s([0xDEADBEEF | 4, 31, 15, u32::MAX]),
        u32s([!0xDEADBEEF, !1, !15, 0]),
        bools([0, 0, 0, 1]),
        bools([0, 1, 1, 1]),
        bools([1, 1, 0, 0]),
    ];
    for (found, expected) in results.iter().zip(&expected) {
        same(found, expected);
    }
    same(&results[17], &u32s([0xDEADBEEF, 31, 15, u32::MAX]));
}

#[test]
fn compare_select_convert() {
    let x = f(&[5], &[1.0, f64::NAN, -2.7, 3.0, 2.7]);
    let y = f(&[5], &[1.0, f64::NAN, 0.0, -0.0, 2.5]);
    let u = t(DType::U32, &[2], &[f64::from(u32::MAX), 15.0]);
    let results = run(&[x.clone(), y.clone(), u], |b, v| {
        let order = [
            Compare::Equal,
            Compare::NotEqual,
            Compare::Less,
            Compare::LessEqual,
            Compare::Greater,
            Compare::GreaterEqual,
        ];
        let mut out: Vec<V> = order.map(|op| b.compare(op, v[0], v[1])).to_vec();
        let zero = b.number(0.0, DType::F32);
        let least = b.number(-3.402_823_466_385_288_6e38, DType::F32);
        let picked = b.select(out[2], v[0], least);
        let finite = b.maximum(v[1], zero);
        let integer = b.convert(v[0], DType::I32);
        out.push(picked);
        out.push(finite);
        out.push(b.convert(integer, DType::F32));
        out.push(b.convert(out[4], DType::I32));
        out.push(b.convert(out[4], DType::F32));
        out.push(b.convert(v[0], DType::BF16));
        out.push(b.convert(v[0], DType::F16));
        out.push(b.convert(v[0], DType::F64));
        out.push(b.convert(v[2], DType::F32));
        out.push(b.convert(v[2], DType::I32));
        out.push(b.convert(v[0], DType::Bool));
        out
    });
    let bools = |v: [u8; 5]| t(DType::Bool, &[5], &v.map(f64::from));
    let expected =
        [[1, 0, 0, 0, 0], [0, 1, 1, 1, 1], [0, 0, 1, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 1, 1], [1, 0, 0, 1, 1]];
    for (found, expected) in results.iter().zip(expected) {
        same(found, &bools(expected));
    }
    let least = f64::from(f32::MIN);
    same(&results[6], &f(&[5], &[least, least, -2.7, least, least]));
    assert_eq!(results[8].to_f64()[2..], [-2.0, 3.0, 2.0]);
    same(&results[9], &t(DType::I32, &[5], &[0.0, 0.0, 0.0, 1.0, 1.0]));
    same(&results[10], &f(&[5], &[0.0, 0.0, 0.0, 1.0, 1.0]));
    same(&results[11], &x.to_float(DType::BF16));
    same(&results[12], &x.to_float(DType::F16));
    same(&results[13], &x.to_float(DType::F64));
    same(&results[14], &f(&[2], &[f64::from(u32::MAX as f32), 15.0]));
    same(&results[15], &t(DType::I32, &[2], &[-1.0, 15.0]));
    assert_eq!(results[16].to_f64(), [1.0, 1.0, 1.0, 1.0, 1.0]);
}

#[test]
fn constants() {
    let results = run(&[f(&[1], &[0.0])], |b, v| {
        let tenth = b.number(0.1, DType::F32);
        let wide = b.number(0.1, DType::F64);
        let half = b.number(0.1, DType::BF16);
        let list = b.numbers(&[0.1, f64::NEG_INFINITY, 1e-45, -0.0], DType::F32);
        let axes = b.integers(&[2, -1, 0], DType::I32);
        let codes = b.integers(&[0xFFFF_FFFF], DType::U32);
        let none = b.numbers(&[], DType::F32);
        let one = b.numbers(&[3.0], DType::F32);
        vec![b.add(v[0], tenth), wide, half, list, axes, codes, b.iota(5), none, one, b.iota(0)]
    });
    same(&results[0], &f(&[1], &[0.1]));
    same(&results[1], &Tensor::of(DType::F64, &[], &0.1f64.to_le_bytes()));
    same(&results[2], &t(DType::BF16, &[], &[0.1]));
    assert_eq!(results[3].bytes, f(&[4], &[0.1, f64::NEG_INFINITY, 1e-45, -0.0]).bytes);
    same(&results[4], &t(DType::I32, &[3], &[2.0, -1.0, 0.0]));
    same(&results[5], &t(DType::U32, &[1], &[4294967295.0]));
    same(&results[6], &t(DType::I32, &[5], &[0.0, 1.0, 2.0, 3.0, 4.0]));
    same(&results[7], &f(&[0], &[]));
    same(&results[8], &f(&[1], &[3.0]));
    same(&results[9], &t(DType::I32, &[0], &[]));
}

#[test]
fn shapes() {
    let count: Vec<f64> = (0..6).map(f64::from).collect();
    let x = f(&[2, 3], &count);
    let results = run(&[x, f(&[3], &[10.0, 20.0, 30.0]), f(&[2, 1], &[1.0, 2.0]), f(&[0, 3], &[])], |b, v| {
        let scalar = b.number(1.0, DType::F32);
        let grown = b.reshape(v[0], &[2, 1, 3]);
        vec![
            b.reshape(v[0], &[3, 2]),
            b.transpose(v[0], &[1, 0]),
            b.broadcast(v[2], &[4, 2, 3]),
            b.broadcast(scalar, &[2]),
            b.concat(&[v[0], v[0], v[2]], -1),
            b.slice(v[0], &[(1, 2), (0, 2)]),
            b.slice(v[0], &[(0, 2), (1, 1)]),
            b.add(v[0], v[1]),
            b.add(v[0], v[2]),
            b.add(v[1], v[2]),
            b.add(grown, v[2]),
            b.concat(&[v[3], v[0]], 0),
            b.multiply(v[3], v[1]),
        ]
    });
    let expected = [
        f(&[3, 2], &count),
        f(&[3, 2], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]),
        f(&[4, 2, 3], &[1.0, 1.0, 1.0, 2.0, 2.0, 2.0].repeat(4)),
        f(&[2], &[1.0, 1.0]),
        f(&[2, 7], &[0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 1.0, 3.0, 4.0, 5.0, 3.0, 4.0, 5.0, 2.0]),
        f(&[1, 2], &[3.0, 4.0]),
        f(&[2, 0], &[]),
        f(&[2, 3], &[10.0, 21.0, 32.0, 13.0, 24.0, 35.0]),
        f(&[2, 3], &[1.0, 2.0, 3.0, 5.0, 6.0, 7.0]),
        f(&[2, 3], &[11.0, 21.0, 31.0, 12.0, 22.0, 32.0]),
        f(&[2, 2, 3], &[1.0, 2.0, 3.0, 2.0, 3.0, 4.0, 4.0, 5.0, 6.0, 5.0, 6.0, 7.0]),
        f(&[2, 3], &count),
        f(&[0, 3], &[]),
    ];
    for (found, expected) in results.iter().zip(&expected) {
        same(found, expected);
    }
}

#[test]
fn reductions() {
    let x = f(&[2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, f64::NAN, 7.0, -8.0]);
    let i = t(DType::I32, &[2, 2], &[-5.0, 3.0, -7.0, -1.0]);
    let p = t(DType::Bool, &[2, 2], &[0.0, 1.0, 0.0, 0.0]);
    let results = run(&[x, i, p, f(&[2, 0], &[]), noise(&[1000], 3)], |b, v| {
        vec![
            b.sum(v[0], &[-1]),
            b.sum(v[0], &[0, 2]),
            b.maximum_along(v[0], &[-1]),
            b.maximum_along(v[1], &[0]),
            b.sum(v[1], &[1]),
            b.any_along(v[2], &[-1]),
            b.any_along(v[2], &[0, 1]),
            b.sum(v[3], &[-1]),
            b.maximum_along(v[3], &[-1]),
            b.sum(v[4], &[0]),
            b.sum(v[0], &[]),
        ]
    });
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    same(&results[0], &f(&[2, 2, 1], &[3.0, 7.0, nan, -1.0]));
    same(&results[1], &f(&[1, 2, 1], &[nan, 6.0]));
    same(&results[2], &f(&[2, 2, 1], &[2.0, 4.0, nan, 7.0]));
    same(&results[3], &t(DType::I32, &[1, 2], &[-5.0, 3.0]));
    same(&results[4], &t(DType::I32, &[2, 1], &[-2.0, -8.0]));
    same(&results[5], &t(DType::Bool, &[2, 1], &[1.0, 0.0]));
    same(&results[6], &t(DType::Bool, &[1, 1], &[1.0]));
    same(&results[7], &f(&[2, 1], &[0.0, 0.0]));
    same(&results[8], &f(&[2, 1], &[-inf, -inf]));
    let total: f64 = noise(&[1000], 3).to_f64().iter().sum();
    assert!((results[9].to_f64()[0] - total).abs() < 1e-4);
    assert_eq!(results[10].shape, [2, 2, 2]);
}

/// `x [.., m, k]` times `y [.., k, n]`, leading axes equal, in f64.
fn product(x: &Tensor, y: &Tensor) -> Tensor {
    let rank = x.shape.len();
    let (m, k, n) = (x.shape[rank - 2], x.shape[rank - 1], y.shape[rank - 1]);
    let (xs, ys) = (x.to_f64(), y.to_f64());
    let batch: usize = x.shape[..rank - 2].iter().product();
    let mut out = Vec::new();
    for b in 0..batch {
        for i in 0..m {
            for j in 0..n {
                out.push((0..k).map(|c| xs[(b * m + i) * k + c] * ys[(b * k + c) * n + j]).sum::<f64>());
            }
        }
    }
    f(&[&x.shape[..rank - 1], &[n]].concat(), &out)
}

fn swapped(x: &Tensor) -> Tensor {
    let rank = x.shape.len();
    let (m, n) = (x.shape[rank - 2], x.shape[rank - 1]);
    let values = x.to_f64();
    let batch = values.len() / (m * n);
    let mut out = Vec::new();
    for b in 0..batch {
        for j in 0..n {
            out.extend((0..m).map(|i| values[(b * m + i) * n + j]));
        }
    }
    f(&[&x.shape[..rank - 2], &[n, m]].concat(), &out)
}

#[track_caller]
fn close(found: &Tensor, expected: &Tensor, bound: f64) {
    assert_eq!(found.shape, expected.shape);
    for (x, y) in found.to_f64().iter().zip(expected.to_f64()) {
        assert!((x - y).abs() <= bound, "{x}, expected {y}");
    }
}

#[test]
fn products() {
    let (x, w) = (noise(&[2, 3, 40], 1), noise(&[7, 40], 2));
    let (q, k, v) = (noise(&[2, 2, 5, 16], 3), noise(&[2, 2, 9, 16], 4), noise(&[2, 2, 5, 9], 5));
    let one = noise(&[40], 6);
    let inputs = [x.clone(), w.clone(), q.clone(), k.clone(), v.clone(), one.clone(), f(&[0, 40], &[])];
    let results = run(&inputs, |b, i| {
        let narrow = [b.convert(i[0], DType::BF16), b.convert(i[1], DType::BF16)];
        vec![
            b.dot(i[0], i[1]),
            b.dot(i[2], i[3]),
            b.matmul(i[4], i[3]),
            b.dot(i[5], i[1]),
            b.dot(narrow[0], narrow[1]),
            b.dot(i[6], i[1]),
        ]
    });
    let flat = f(&[6, 40], &x.to_f64());
    let dense = product(&flat, &swapped(&w));
    close(&results[0], &f(&[2, 3, 7], &dense.to_f64()), 1e-5);
    close(&results[1], &product(&q, &swapped(&k)), 1e-5);
    close(&results[2], &product(&v, &k), 1e-5);
    close(&results[3], &f(&[7], &product(&f(&[1, 40], &one.to_f64()), &swapped(&w)).to_f64()), 1e-5);
    assert_eq!(results[4].dtype, DType::BF16);
    close(&results[4], &f(&[2, 3, 7], &dense.to_f64()), 0.05);
    same(&results[5], &f(&[0, 7], &[]));
}

/// 4,096 ones have the sum 4,096 in bf16 too, which counts only to 256.
#[test]
fn narrow_products_accumulate_wide() {
    for dtype in [DType::BF16, DType::F16] {
        let ones = f(&[1, 4096], &[1.0; 4096]).to_float(dtype);
        let results = run(&[ones.clone(), ones], |b, v| vec![b.dot(v[0], v[1])]);
        assert_eq!((results[0].dtype, results[0].to_f64()), (dtype, vec![4096.0]));
    }
}

#[test]
fn indexing() {
    let x = f(&[3, 2], &[0.0, 1.0, 10.0, 11.0, 20.0, 21.0]);
    let cube = f(&[2, 3, 2], &(0..12).map(f64::from).collect::<Vec<_>>());
    let ids = t(DType::I32, &[2, 2], &[2.0, 0.0, 1.0, 2.0]);
    let wanted = t(DType::I32, &[2, 1, 1], &[2.0, 0.0]);
    let each = t(DType::I32, &[2, 1, 2], &[1.0, 0.0, 2.0, 2.0]);
    let two = t(DType::I32, &[2, 3, 1], &[1.0, 0.0, 1.0, 0.0, 0.0, 1.0]);
    let flat = t(DType::I32, &[2, 1], &[2.0, 1.0]);
    let one = t(DType::I32, &[], &[1.0]);
    let codes = t(DType::U32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 4294967295.0]);
    let results = run(&[x, cube, ids, wanted, each, two, flat, one, codes], |b, v| {
        let axes = b.integers(&[1, 0], DType::I32);
        let last = b.integers(&[2, 2], DType::I32);
        vec![
            b.take(v[0], v[2], 0),
            b.take(v[0], axes, -1),
            b.take(v[1], axes, 1),
            b.take_along(v[1], v[3], 1),
            b.take_along(v[1], v[4], 1),
            b.take_along(v[1], v[5], 2),
            b.take_along(v[0], v[6], 0),
            b.take(v[0], v[7], 0),
            b.take(v[8], last, -1),
        ]
    });
    let expected = [
        f(&[2, 2, 2], &[20.0, 21.0, 0.0, 1.0, 10.0, 11.0, 20.0, 21.0]),
        f(&[3, 2], &[1.0, 0.0, 11.0, 10.0, 21.0, 20.0]),
        f(&[2, 2, 2], &[2.0, 3.0, 0.0, 1.0, 8.0, 9.0, 6.0, 7.0]),
        f(&[2, 1, 2], &[4.0, 5.0, 6.0, 7.0]),
        f(&[2, 1, 2], &[2.0, 1.0, 10.0, 11.0]),
        f(&[2, 3, 1], &[1.0, 2.0, 5.0, 6.0, 8.0, 11.0]),
        f(&[2, 2], &[20.0, 21.0, 10.0, 11.0]),
        f(&[2], &[10.0, 11.0]),
        t(DType::U32, &[2, 2], &[3.0, 3.0, 4294967295.0, 4294967295.0]),
    ];
    for (at, (found, expected)) in results.iter().zip(&expected).enumerate() {
        println!("{at}");
        same(found, expected);
    }
}

#[test]
fn largest() {
    let x = f(&[2, 6], &[3.0, 1.0, 3.0, 2.0, 3.0, 0.0, -1.0, f64::NEG_INFINITY, 9.0, 0.5, 0.25, 5.0]);
    let results = run(&[x.clone(), noise(&[1, 200], 7)], |b, v| {
        let values = b.top_k_values(v[0], 3);
        let all = b.top_k_indices(v[0], 6);
        vec![values, b.top_k_indices(v[0], 3), all, b.top_k_values(v[1], 17), b.top_k_indices(v[1], 17)]
    });
    same(&results[0], &f(&[2, 3], &[3.0, 3.0, 3.0, 9.0, 5.0, 0.5]));
    same(&results[1], &t(DType::I32, &[2, 3], &[0.0, 2.0, 4.0, 2.0, 5.0, 3.0]));
    let all = [0.0, 2.0, 4.0, 3.0, 1.0, 5.0, 2.0, 5.0, 3.0, 4.0, 0.0, 1.0];
    same(&results[2], &t(DType::I32, &[2, 6], &all));
    let noise = noise(&[1, 200], 7).to_f64();
    let mut order: Vec<usize> = (0..200).collect();
    order.sort_by(|a, b| noise[*b].total_cmp(&noise[*a]));
    let values: Vec<f64> = order[..17].iter().map(|i| noise[*i]).collect();
    same(&results[3], &f(&[1, 17], &values));
    let places: Vec<f64> = order[..17].iter().map(|i| *i as f64).collect();
    same(&results[4], &t(DType::I32, &[1, 17], &places));
}

#[test]
fn updates() {
    let whole = f(&[2, 1, 4, 2], &[0.5; 16]);
    let part = f(&[2, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let at = t(DType::I32, &[2, 2], &[1.0, 2.0, 2.0, 3.0]);
    let spans = t(DType::I32, &[2, 4], &[0.0; 8]);
    let results = run(&[whole, part, at.clone(), spans], |b, v| {
        vec![b.update(v[0], v[1], v[2], 2), b.update(v[3], v[2], v[2], 1)]
    });
    let h = 0.5;
    same(&results[0], &f(&[2, 1, 4, 2], &[h, h, 1.0, 2.0, 3.0, 4.0, h, h, h, h, h, h, 5.0, 6.0, 7.0, 8.0]));
    same(&results[1], &t(DType::I32, &[2, 4], &[0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0]));
}

// ---- arguments, states, probes

fn weights(entries: &[(&str, WeightType)]) -> Arc<BTreeMap<String, WeightType>> {
    Arc::new(entries.iter().map(|(path, ty)| ((*path).to_owned(), ty.clone())).collect())
}

/// A packed matrix beside its expansion, by the prelude's own formula.
#[test]
fn packed_matrices() {
    let (n, k, bits, group) = (5, 64, 4, 32);
    let ty = WeightType::Packed { shape: vec![n, k], bits, group };
    let mut build = Build::new(BuildOptions { weights: weights(&[("w", ty)]), ..options() });
    let x = build.input(DType::F32, &[2, k]);
    let w = build.matrix("w");
    assert!(w.packed() && w.bits() == 4 && w.group() == 32 && w.shape() == [5, 64]);
    let lanes = build.integers(&[0, 4, 8, 12, 16, 20, 24, 28], DType::U32);
    let codes = build.codes(&w);
    let words = build.reshape(codes, &[n, 2, 4, 1]);
    let shifted = build.shift_right(words, lanes);
    let ones = build.integer(15, DType::U32);
    let code = build.and(shifted, ones);
    let code = build.convert(code, DType::F32);
    let (scales, biases) = (build.scales(&w), build.biases(&w));
    let (scales, biases) = (build.reshape(scales, &[n, 2, 1, 1]), build.reshape(biases, &[n, 2, 1, 1]));
    let scaled = build.multiply(code, scales);
    let dense = build.add(scaled, biases);
    let dense = build.reshape(dense, &[n, k]);
    let y = build.dot(x, dense);
    let ids = build.integers(&[4, 0], DType::I32);
    let rows = build.rows(&w, ids);
    assert_eq!(rows.shape(), [2, 64]);
    let row_codes = build.codes(&rows);
    let graph = build.finish(&[y, row_codes]).unwrap();
    let kinds: Vec<&ArgumentKind> = graph.arguments.iter().map(|a| &a.kind).collect();
    let part = |part| ArgumentKind::Packed("w".into(), part);
    assert_eq!(kinds, [&ArgumentKind::Input(0), &part(Part::Codes), &part(Part::Scales), &part(Part::Biases)]);

    let code = |i: usize| (i * 7 + i / 5) % 16;
    let words = (0..5 * 8).map(|w| (0..8).map(|lane| (code(w * 8 + lane) as u32) << (4 * lane)).sum::<u32>());
    let codes = t(DType::U32, &[5, 8], &words.map(f64::from).collect::<Vec<_>>());
    let (scales, biases, x) = (noise(&[5, 2], 1), noise(&[5, 2], 2), noise(&[2, 64], 3));
    let expanded: Vec<f64> =
        (0..5 * 64).map(|i| code(i) as f64 * scales.to_f64()[i / 32] + biases.to_f64()[i / 32]).collect();
    let runtime = Runtime::new().unwrap();
    let program = load(&runtime, &graph);
    let arguments = [&x, &codes, &scales, &biases].map(|t| runtime.upload(t).unwrap()).to_vec();
    let results = program.call(arguments).unwrap();
    close(&runtime.download(&results[0]).unwrap(), &product(&x, &swapped(&f(&[5, 64], &expanded))), 1e-4);
    let first: Vec<f64> = codes.to_f64()[32..].iter().chain(&codes.to_f64()[..8]).copied().collect();
    same(&runtime.download(&results[1]).unwrap(), &t(DType::U32, &[2, 8], &first));
}

fn load(runtime: &Runtime, graph: &Graph) -> super::iree::Program {
    let text = emit::text(graph).unwrap();
    let module = compile(&text, &FLAGS).unwrap_or_else(|e| panic!("{e:#}\n{text}"));
    runtime.load(&module, graph.results.iter().map(|r| graph.ty(r.value).clone()).collect()).unwrap()
}

/// Calls that take a state over and hand it back; a read before and one after the write; a probe of the new value.
#[test]
fn states_pass_from_call_to_call() {
    let states = Arc::new(BTreeMap::from([("cache.k".to_owned(), Type::new(DType::F32, &[2, 4, 2]))]));
    let mut build = Build::new(BuildOptions { states, probes: true, ..options() });
    let x = build.input(DType::F32, &[2, 1, 2]);
    let positions = build.input(DType::I32, &[2, 1]);
    let old = build.state("cache.k");
    let before = build.sum(old, &[1, 2]);
    let new = build.update(old, x, positions, 1);
    build.set_state("cache.k", new);
    let read = build.state("cache.k");
    let after = build.sum(read, &[1, 2]);
    build.probe("whole", read);
    let graph = build.finish(&[before, after]).unwrap();
    assert_eq!((graph.alias(0), graph.alias(1), graph.alias(2)), (None, None, Some(2)));
    let names: Vec<&ResultKind> = graph.results.iter().map(|r| &r.kind).collect();
    let (state, probe) = (ResultKind::State("cache.k".into()), ResultKind::Probe("whole".into()));
    assert_eq!(names, [&ResultKind::Output(0), &ResultKind::Output(1), &state, &probe]);

    let runtime = Runtime::new().unwrap();
    let program = load(&runtime, &graph);
    let mut state = runtime.zeros(&graph.arguments[2].ty).unwrap();
    let mut whole = [0.0; 16];
    for step in 0..4 {
        let v = f64::from(step) + 1.0;
        let x = f(&[2, 1, 2], &[v, -v, 10.0 * v, v]);
        let at = t(DType::I32, &[2, 1], &[f64::from(step), 3.0 - f64::from(step)]);
        let arguments = vec![runtime.upload(&x).unwrap(), runtime.upload(&at).unwrap(), state];
        let results = program.call(arguments).unwrap();
        let sums = |whole: &[f64; 16]| f(&[2, 1, 1], &[whole[..8].iter().sum(), whole[8..].iter().sum()]);
        same(&runtime.download(&results[0]).unwrap(), &sums(&whole));
        let (first, second) = (step as usize * 2, 8 + (3 - step as usize) * 2);
        whole[first..first + 2].copy_from_slice(&[v, -v]);
        whole[second..second + 2].copy_from_slice(&[10.0 * v, v]);
        same(&runtime.download(&results[1]).unwrap(), &sums(&whole));
        same(&runtime.download(&results[3]).unwrap(), &f(&[2, 4, 2], &whole));
        state = results[2].clone();
    }
    same(&runtime.download(&state).unwrap(), &f(&[2, 4, 2], &whole));
}

#[test]
fn the_first_impossible_type_is_reported() {
    let mut build = Build::new(options());
    let x = build.input(DType::F32, &[2, 3]);
    let y = build.input(DType::F32, &[4]);
    let sum = build.add(x, y);
    let cut = build.slice(sum, &[(0, 9)]);
    let message = build.finish(&[cut]).unwrap_err().to_string();
    assert!(message.ends_with("stablehlo.add: f32[2, 3] and f32[4] do not broadcast"), "{message}");

    let mut build = Build::new(BuildOptions { probes: true, ..options() });
    let x = build.input(DType::F32, &[2]);
    build.probe("a", x);
    build.probe("a", x);
    assert!(build.finish(&[x]).unwrap_err().to_string().contains("probe a occurs twice"));

    for fault in [
        (|b: &mut Build| b.weight("no.such")) as fn(&mut Build) -> V,
        |b| b.state("no.such"),
        |b| b.integer(-1, DType::U32),
        |b| {
            let x = b.number(1.0, DType::BF16);
            b.sum(x, &[])
        },
        |b| {
            let (x, y) = (b.number(1.0, DType::F32), b.number(1.0, DType::F64));
            b.multiply(x, y)
        },
    ] {
        let mut build = Build::new(options());
        let v = fault(&mut build);
        assert!(build.finish(&[v]).is_err());
    }
}

/// Equal ops on equal operands are one; what nobody reads is none; a parameter stays.
#[test]
fn sharing_and_dropping() {
    let mut build = Build::new(options());
    let x = build.input(DType::F32, &[2]);
    let unread = build.input(DType::F32, &[3]);
    let (a, b) = (build.exponential(x), build.exponential(x));
    assert_eq!(a, b);
    build.negate(unread);
    let y = build.add(a, b);
    let graph = build.finish(&[y]).unwrap();
    assert_eq!((graph.arguments.len(), graph.nodes.len()), (2, 4));
}

// ---- the text, read back

/// One of each primitive.
fn everything(b: &mut Build) -> Vec<V> {
    let x = b.input(DType::F32, &[2, 3, 4]);
    let i = b.input(DType::I32, &[2, 3]);
    let w = b.input(DType::F32, &[5, 4]);
    let state = b.input(DType::F32, &[2, 8, 4]);
    let u = b.input(DType::U32, &[4]);
    let h = b.input(DType::BF16, &[2, 4]);
    let mut out = vec![b.negate(x), b.abs(x), b.exponential(x), b.log(x), b.sqrt(x), b.rsqrt(x), b.tanh(x)];
    out.extend([b.sine(x), b.cosine(x), b.logistic(x), b.erf(x), b.sine(h)]);
    let half = b.number(0.5, DType::F32);
    let list = b.numbers(&[0.1, 0.2, f64::INFINITY, -0.0], DType::F32);
    out.extend([b.add(x, half), b.subtract(x, list), b.multiply(x, x), b.divide(x, half)]);
    out.extend([b.minimum(x, half), b.maximum(x, list), b.remainder(i, i)]);
    let (two, three) = (b.integer(2, DType::U32), b.integer(3, DType::U32));
    out.extend([b.shift_left(u, two), b.shift_right(u, two), b.and(u, three), b.or(u, three), b.not(u)]);
    let visible = b.compare(Compare::LessEqual, x, half);
    out.extend([b.select(visible, x, half), b.any_along(visible, &[-1]), b.convert(i, DType::F32)]);
    out.extend([b.sum(x, &[0, 2]), b.maximum_along(x, &[-1]), b.iota(7)]);
    out.extend([b.reshape(x, &[6, 4]), b.transpose(x, &[2, 0, 1]), b.broadcast(half, &[2, 2])]);
    let cut = b.slice(x, &[(0, 2), (1, 2), (0, 4)]);
    out.extend([b.concat(&[x, cut], 1), b.dot(x, w)]);
    let turned = b.transpose(x, &[0, 2, 1]);
    out.extend([b.matmul(x, turned), b.dot(h, h)]);
    let wanted = b.slice(i, &[(0, 2), (0, 1)]);
    let wanted = b.reshape(wanted, &[2, 1, 1]);
    out.extend([b.take(w, i, 0), b.take_along(x, wanted, 1), b.top_k_values(x, 2), b.top_k_indices(x, 2)]);
    out.push(b.update(state, x, i, 1));
    out
}

fn read_back(body: impl FnOnce(&mut Build) -> Vec<V>) -> Read {
    let mut build = Build::new(options());
    let outputs = body(&mut build);
    let graph = build.finish(&outputs).unwrap();
    read(&emit::text(&graph).unwrap()).unwrap()
}

#[test]
fn the_text_says_every_primitive() {
    let read = read_back(everything);
    let names: Vec<&str> = read.ops.iter().map(|op| op.name).collect();
    let expected = "negate abs exp log sqrt rsqrt tanh sin cos sigmoid erf sin constant constant_list add subtract multiply \
                    divide min max remainder constant constant shift_left shift_right and or not less_equal select any \
                    convert sum maximum iota reshape transpose slice concat dot transpose matmul dot slice reshape take \
                    take_along top_k_values top_k_indices update";
    assert_eq!(names.join(" "), expected);
    let find = |name: &str| read.ops.iter().find(|op| op.name == name).unwrap();
    assert_eq!(find("sum").numbers, [0.0, 2.0]);
    assert_eq!(find("sum").ty, Type::new(DType::F32, &[1, 3, 1]));
    assert_eq!(find("slice").numbers, [0.0, 2.0, 1.0, 2.0, 0.0, 4.0]);
    assert_eq!(find("constant").numbers, [0.5]);
    let tenth = f64::from(0.1f32);
    assert_eq!(find("constant_list").numbers, [tenth, f64::from(0.2f32), f64::INFINITY, -0.0]);
    assert_eq!(find("take_along").operands[0], Operand::Argument(0));
    let update = find("update");
    assert_eq!(update.operands, [3, 0, 1].map(Operand::Argument));
    assert_eq!((update.numbers.as_slice(), &update.ty.shape[..]), (&[1.0][..], &[2, 8, 4][..]));
    assert_eq!(
        read.ops.iter().filter(|op| op.name == "dot").map(|op| op.ty.dtype).collect::<Vec<_>>(),
        [DType::F32, DType::BF16]
    );
}

/// The pair of the design page: `x * sigmoid(x)` and its quotient form.
#[test]
fn the_quotient_form_reads_differently() {
    let product = read_back(|b| {
        let x = b.input(DType::F32, &[4]);
        let gate = b.logistic(x);
        vec![b.multiply(x, gate)]
    });
    let quotient = read_back(|b| {
        let x = b.input(DType::F32, &[4]);
        let one = b.number(1.0, DType::F32);
        let negative = b.negate(x);
        let e = b.exponential(negative);
        let below = b.add(one, e);
        vec![b.divide(x, below)]
    });
    assert_eq!(product.ops.iter().map(|o| o.name).collect::<Vec<_>>(), ["sigmoid", "multiply"]);
    assert_ne!(product, quotient);
}

/// A group that is almost one of the emitter's is refused, not guessed at.
#[test]
fn altered_groups_are_refused() {
    let mut build = Build::new(options());
    let outputs = everything(&mut build);
    let text = emit::text(&build.finish(&outputs).unwrap()).unwrap();
    assert!(read(&text).is_ok());
    for (from, to) in [
        ("comparison_direction LT", "comparison_direction LE"),
        ("0xFF800000", "0x00000000"),
        ("limit_indices = array<i64: 2, 1>", "limit_indices = array<i64: 1, 1>"),
        ("6.2831853071795862", "6.2831853071795"),
        ("stablehlo.round_nearest_even", "stablehlo.floor"),
        ("collapsed_slice_dims = [1]", "collapsed_slice_dims = [2]"),
        ("lhs_contracting_dimensions = [2]", "lhs_contracting_dimensions = [1]"),
    ] {
        let altered = text.replacen(from, to, 1);
        assert_ne!(altered, text, "{from} is in the text");
        let same = read(&altered).is_ok_and(|r| r == read(&text).unwrap());
        assert!(!same, "{from} -> {to}");
    }
}

// ---- the cache

#[test]
fn a_second_start_compiles_nothing_and_a_damaged_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::in_folder(folder.path());
    let text = |n: i64| {
        let mut build = Build::new(options());
        let x = build.input(DType::F32, &[n]);
        let y = build.add(x, x);
        emit::text(&build.finish(&[y]).unwrap()).unwrap()
    };
    let get = |text: &str| {
        let mut reports = Vec::new();
        let module = artifacts.get(text, "a test", &mut |r| reports.push(r.to_owned())).unwrap();
        (module, reports)
    };
    let (first, reports) = get(&text(3));
    assert_eq!(reports.len(), 2, "{reports:?}");
    assert_eq!(get(&text(3)), (first.clone(), vec![]));
    assert_ne!(get(&text(4)).0, first);

    let files = || std::fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().path());
    let modules: Vec<_> = files().filter(|f| f.extension().is_some_and(|e| e == "vmfb")).collect();
    assert_eq!(modules.len(), 2);
    for module in &modules {
        let bytes = std::fs::read(module).unwrap();
        std::fs::write(module, &bytes[..bytes.len() / 2]).unwrap();
    }
    let (again, reports) = get(&text(3));
    assert_eq!((again.len(), reports.len()), (first.len(), 2));
    assert_eq!(get(&text(3)).1.len(), 0);
    assert!(!files().any(|f| f.to_string_lossy().ends_with(".part")));
}

#[test]
fn a_cache_that_cannot_be_written_is_only_slow() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let artifacts = Artifacts::in_folder(file.path());
    let mut build = Build::new(options());
    let x = build.input(DType::F32, &[2]);
    let y = build.negate(x);
    let text = emit::text(&build.finish(&[y]).unwrap()).unwrap();
    let mut reports = Vec::new();
    artifacts.get(&text, "a test", &mut |r| reports.push(r.to_owned())).unwrap();
    assert!(reports.last().unwrap().contains("is not kept"), "{reports:?}");
}
