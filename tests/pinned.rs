//! Numerics `pinned` from the text to the machine: a chain of ops that round exactly has the same bits on MLX, on IREE and on the
//! interpreter. `dot` and `matmul` are not here: their sums have an error bound, not bits.

use mgraph_dsl::{interpret::Operand, ir::Program};
use mgraph_runtime::{
    backend::Backend,
    direct::{Many, Settings},
    session::Numerics,
    tensor::{DType, Tensor},
};
use mgraph_tests::toy;

/// Name, parameters of `F[N]`, body.
const CHAINS: &[(&str, &str, &str)] = &[
    ("mul_add", "abc", "a * b + c"),
    ("rotary", "abcd", "a * b - c * d"),
    ("subtract_product", "abc", "c - a * b"),
    ("negated", "abc", "-(a * b) + c"),
    ("lerp", "abc", "a + c * (b - a)"),
    ("through_abs", "abc", "abs(a * b) + c"),
    ("through_layout", "abc", "reshape(transpose(reshape(a * b, [1, N]), [1, 0]), [N]) + c"),
    ("through_min_max", "abcd", "max(a * b, c) - min(b, c * d)"),
    ("chosen", "abcd", "select(a < b, a * b, c) + d"),
    ("norm", "abc", "c * (a / sqrt(a * a + b * b))"),
    ("scaled", "abc", "(a + b) * 0.1 - c / 3.0"),
    ("polynomial", "ab", "((a * 0.3 + 0.7) * a - 0.11) * a + b"),
    ("sum_of_two", "ab", "reshape(F(sum(f32(concat([reshape(a * a, [1, N]), reshape(b * b, [1, N])], 0)), 0)), [N])"),
    ("wide", "abcd", "F(f32(a) * f32(b) + f32(c)) * d"),
    ("narrow", "abc", "F(bf16(a) * bf16(b) + bf16(c))"),
];

fn program() -> Program {
    let op = |(name, parameters, body): &(&str, &str, &str)| {
        let parameters: Vec<String> = parameters.chars().map(|p| format!("{p}: F[N]")).collect();
        format!("op {name}({}) -> F[N] {{ {body} }}\n", parameters.join(", "))
    };
    toy::program(&CHAINS.iter().map(op).collect::<String>())
}

fn numbers(count: usize, seed: u32, dtype: DType) -> Tensor {
    Tensor::from_f32(&[count], &toy::numbers(count, seed)).to_float(dtype)
}

/// Every chain, at every size.
fn run(program: &Program, backend: Backend, numerics: Numerics, float: DType, sizes: &[usize]) -> Vec<Tensor> {
    let mut many = Many::new(backend, Settings { numerics, float });
    for (name, parameters, _) in CHAINS {
        for size in sizes {
            // Each call has numbers of its own: a product that two read is rounded even where IREE contracts.
            let seed = |at: usize| (number_of(name) + at + size) as u32;
            let operands = (0..parameters.len()).map(|at| Operand::Tensor(numbers(*size, seed(at), float)));
            many.add(program, name, operands.collect());
        }
    }
    many.run().into_iter().map(|found| found.unwrap().remove(0)).collect()
}

fn number_of(name: &str) -> usize {
    name.bytes().fold(0, |seed, byte| seed * 31 % 100_003 + usize::from(byte))
}

/// Elements whose bits differ.
fn differing(x: &Tensor, y: &Tensor) -> usize {
    assert_eq!((x.dtype, &x.shape), (y.dtype, &y.shape));
    x.to_f64().iter().zip(y.to_f64()).filter(|(x, y)| x.to_bits() != y.to_bits()).count()
}

#[test]
fn three_executors_have_the_same_bits() {
    let program = program();
    let cases = [(DType::F32, &[1, 7, 64, 1000, 4096][..]), (DType::BF16, &[7, 1000]), (DType::F16, &[7, 1000])];
    for (float, sizes) in cases {
        let [mlx, iree, reference] = [Backend::Mlx, Backend::Iree, Backend::Reference]
            .map(|backend| run(&program, backend, Numerics::Pinned, float, sizes));
        let calls = CHAINS.iter().flat_map(|chain| sizes.iter().map(move |size| (chain, size)));
        for (((mlx, iree), reference), ((name, _, body), size)) in mlx.iter().zip(&iree).zip(&reference).zip(calls) {
            let differ = [differing(mlx, reference), differing(iree, reference)];
            assert_eq!(differ, [0, 0], "{name}: `{body}` on {size} elements of {float:?}, MLX and IREE");
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

/// The same comparison finds what `fused` allows, so it would find it in `pinned`.
#[test]
fn fused_differs_where_a_product_is_summed() {
    let program = program();
    let [pinned, fused] =
        [Numerics::Pinned, Numerics::Fused].map(|n| run(&program, Backend::Iree, n, DType::F32, &[1000]));
    let differ: Vec<&str> = CHAINS
        .iter()
        .zip(pinned.iter().zip(&fused))
        .filter(|(_, (x, y))| differing(x, y) > 0)
        .map(|((name, ..), _)| *name)
        .collect();
    assert!(!has_fma() || ["mul_add", "rotary", "lerp", "norm"].iter().all(|name| differ.contains(name)), "{differ:?}");
}
