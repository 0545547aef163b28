//! Numerics `pinned` in machine code: every op rounds on its own, over sizes with and without a vector's remainder.

use super::*;

/// Postfix: `a` to `d` are inputs, `s` is the sigmoid of `a` as IREE gives it. All but it round exactly once by IEEE 754, so the
/// expected bits follow from f64 arithmetic, rounded after each op.
const CHAINS: &[&str] = &[
    "a b * c +",
    "a b * c d * -",
    "c a b * -",
    "a b * neg c +",
    "a c b a - * +",
    "a b * abs c + d * a +",
    "a a * b b * + sqrt c d * +",
    "a s * b * c +",
    "a b / c * d -",
    "a b * c d * max b + a b * c min d - +",
];

fn rounded(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F64 => x,
        DType::F32 => f64::from(x as f32),
        DType::F16 => half::f16::from_f64(x).to_f64(),
        DType::BF16 => half::bf16::from_f64(x).to_f64(),
        DType::I32 | DType::U32 | DType::U8 | DType::Bool => panic!("{dtype:?} is no float"),
    }
}

/// The chain on one element; `inputs` are `a`, `b`, `c`, `d`, `s`.
fn expected(chain: &str, dtype: DType, inputs: [f64; 5]) -> f64 {
    let mut stack: Vec<f64> = Vec::new();
    for token in chain.split(' ') {
        let mut pop = || stack.pop().unwrap();
        let value = match token {
            "neg" => -pop(),
            "abs" => pop().abs(),
            "sqrt" => pop().sqrt(),
            "+" | "-" | "*" | "/" | "min" | "max" => {
                let (y, x) = (pop(), pop());
                match token {
                    "+" => x + y,
                    "-" => x - y,
                    "*" => x * y,
                    "/" => x / y,
                    "min" => x.min(y),
                    _ => x.max(y),
                }
            }
            input => inputs["abcds".find(input).unwrap()],
        };
        stack.push(rounded(dtype, value));
    }
    stack[0]
}

fn recorded(chain: &str, b: &mut Build, inputs: [V; 5]) -> V {
    let mut stack: Vec<V> = Vec::new();
    for token in chain.split(' ') {
        let mut pop = || stack.pop().unwrap();
        let value = match token {
            "neg" => b.negate(pop()),
            "abs" => b.abs(pop()),
            "sqrt" => b.sqrt(pop()),
            "+" | "-" | "*" | "/" | "min" | "max" => {
                let (y, x) = (pop(), pop());
                match token {
                    "+" => b.add(x, y),
                    "-" => b.subtract(x, y),
                    "*" => b.multiply(x, y),
                    "/" => b.divide(x, y),
                    "min" => b.minimum(x, y),
                    _ => b.maximum(x, y),
                }
            }
            input => inputs["abcds".find(input).unwrap()],
        };
        stack.push(value);
    }
    stack[0]
}

/// Of every chain, at every size: how many elements differ from one rounding per op. Chains have inputs of their own, since a
/// product that another op reads too is rounded even where IREE contracts.
fn differing(dtype: DType, sizes: &[usize], fused: bool) -> Vec<(&'static str, usize, usize)> {
    let cases: Vec<(&str, usize)> = CHAINS.iter().flat_map(|c| sizes.iter().map(|n| (*c, *n))).collect();
    let random = |i: usize, n: usize| {
        let (high, low) = (noise(&[n], i as u64 + 3), noise(&[n], i as u64 + 1003));
        // All bits of an f64 are used.
        let bytes =
            high.to_f64().into_iter().zip(low.to_f64()).flat_map(|(h, l)| (h + l * 2f64.powi(-24)).to_le_bytes());
        Tensor { dtype: DType::F64, shape: vec![n], bytes: bytes.collect() }.to_float(dtype)
    };
    let inputs: Vec<Tensor> =
        cases.iter().enumerate().flat_map(|(i, (_, n))| (0..4).map(move |k| random(4 * i + k, *n))).collect();
    let found = run_with(BuildOptions { fused, ..options() }, &inputs, |b, v| {
        let mut out = Vec::new();
        for ((chain, _), v) in cases.iter().zip(v.chunks(4)) {
            let sigmoid = b.logistic(v[0]);
            out.push(recorded(chain, b, [v[0], v[1], v[2], v[3], sigmoid]));
            // Read by nothing else where the chain has none of it.
            out.push(if chain.contains('s') { sigmoid } else { v[0] });
        }
        out
    });
    type Ran<'a> = (((&'static str, usize), &'a [Tensor]), &'a [Tensor]);
    let count = |(((chain, n), inputs), found): Ran<'_>| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|k| inputs[k].to_f64());
        let s = found[1].to_f64();
        let differ = |(i, found): &(usize, f64)| {
            found.to_bits() != expected(chain, dtype, [a[*i], b[*i], c[*i], d[*i], s[*i]]).to_bits()
        };
        (chain, n, found[0].to_f64().into_iter().enumerate().filter(differ).count())
    };
    cases.into_iter().zip(inputs.chunks(4)).zip(found.chunks(2)).map(count).collect()
}

#[test]
fn every_op_rounds_on_its_own() {
    let few = &[7, 1000][..];
    for (dtype, sizes) in
        [(DType::F32, &[1, 7, 64, 1000, 4096][..]), (DType::F64, few), (DType::F16, few), (DType::BF16, few)]
    {
        for (chain, n, differ) in differing(dtype, sizes, false) {
            assert_eq!(differ, 0, "{dtype:?} {chain}, {n} elements");
        }
    }
}

fn has_fma() -> bool {
    #[cfg(target_arch = "x86_64")]
    let found = std::arch::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    let found = true;
    found
}

/// What the guards are for: without them IREE merges roundings.
#[test]
fn fused_merges_roundings() {
    if !has_fma() {
        return;
    }
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let differ: usize = differing(dtype, &[1000], true).iter().map(|(_, _, differ)| differ).sum();
        assert!(differ > 500, "{dtype:?}: {differ}");
    }
}

/// A sum of two has one order, so its bits are known: each square is rounded, then their sum.
#[test]
fn products_that_are_summed_are_rounded_first() {
    let x = noise(&[2, 500], 11);
    let [pinned, fused] = [false, true].map(|fused| {
        let found = run_with(BuildOptions { fused, ..options() }, std::slice::from_ref(&x), |b, v| {
            let square = b.multiply(v[0], v[0]);
            vec![b.sum(square, &[0])]
        });
        let x = x.to_f32();
        let expected = x[..500].iter().zip(&x[500..]).map(|(x, y)| x * x + y * y);
        found[0].to_f32().into_iter().zip(expected).filter(|(x, y)| x.to_bits() != y.to_bits()).count()
    });
    assert_eq!(pinned, 0);
    assert!(fused > 0 || !has_fma());
}
