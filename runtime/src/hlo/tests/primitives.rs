//! Every primitive against plain Rust. Cases that can share a module do: a compile costs more than all its calls.

use super::*;

const EDGES: [f64; 12] =
    [0.0, -0.0, 1.0, -1.5, 0.3, 7.25, -20.0, 88.0, 1e-40, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];

#[test]
fn unary() {
    let x = f(&[12], &EDGES);
    let results = run(std::slice::from_ref(&x), |b, v| {
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
    type Case = (usize, fn(f64) -> f64, f64);
    let cases: [Case; 9] = [
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

/// As in a model where every layer chooses experts.
#[test]
fn two_of_one_shape() {
    let (x, y, z) = (noise(&[3, 4, 5], 1), noise(&[3, 4, 5], 2), noise(&[3, 4, 5], 3));
    let of = |x: &Tensor| {
        let largest = |row: &[f64]| (0..5).max_by(|a, b| row[*a].total_cmp(&row[*b])).map_or(0.0, |at| at as f64);
        t(DType::I32, &[3, 4, 1], &x.to_f64().chunks(5).map(largest).collect::<Vec<_>>())
    };
    let results = run(&[x.clone(), y.clone(), z.clone()], |b, v| v.iter().map(|x| b.top_k_indices(*x, 1)).collect());
    for (found, x) in results.iter().zip([&x, &y, &z]) {
        same(found, &of(x));
    }
}

/// What a call leaves must not be what the next one counts from.
#[test]
fn sorts_called_again() {
    let x = noise(&[1, 1, 8], 4);
    let mut build = Build::new(options());
    let value = build.input(x.dtype, &[1, 1, 8]);
    let outputs = [build.top_k_indices(value, 3)];
    let graph = build.finish(&outputs).unwrap();
    let runtime = Runtime::new().unwrap();
    let program = load(&runtime, &graph);
    let calls = [(); 3].map(|()| {
        let results = program.call(vec![runtime.upload(&x).unwrap()]).unwrap();
        runtime.download(&results[0]).unwrap()
    });
    let mut order: Vec<usize> = (0..8).collect();
    let values = x.to_f64();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
    let expected = t(DType::I32, &[1, 1, 3], &order[..3].iter().map(|at| *at as f64).collect::<Vec<_>>());
    for found in &calls {
        same(found, &expected);
    }
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
