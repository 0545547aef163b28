//! Ops of the prelude against plain loops in f64, and every op twin against its bound.

use mgraph_dsl::{
    compile_text,
    interpret::{Matrix, Operand, Precision, Store, Tensor, Typed, run_op},
    ir::{DType, OpKind, Program, TwinBackend, TwinTarget, Within},
    load::Val,
};

fn family() -> Program {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/families/llama.mgraph");
    let text = std::fs::read_to_string(path).expect("a family");
    compile_text("llama.mgraph", &text).unwrap_or_else(|failed| panic!("{failed}"))
}

/// Numbers that look random and are the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 32) as u32
    }
    /// Within -1..1, with 20 bits.
    fn float(&mut self) -> f32 {
        (self.bits() >> 12) as f32 / 524_288.0 - 1.0
    }
    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

fn floats(shape: &[usize], elements: Vec<f32>) -> Tensor {
    Tensor::f32(shape.to_vec(), elements).expect("the elements fill the shape")
}

/// Codes without gaps in little-endian words.
fn pack(codes: &[u32], bits: usize) -> Vec<u32> {
    let mut words = vec![0u32; (codes.len() * bits).div_ceil(32)];
    for (i, code) in codes.iter().enumerate() {
        for bit in 0..bits {
            let at = i * bits + bit;
            words[at / 32] |= ((code >> bit) & 1) << (at % 32);
        }
    }
    words
}

/// A packed matrix and the dense one it stands for.
fn packed(rows: usize, columns: usize, bits: usize, group: usize, numbers: &mut Numbers) -> (Matrix<Tensor>, Vec<f32>) {
    let groups = columns / group;
    let codes: Vec<u32> = (0..rows * columns).map(|_| numbers.bits() >> (32 - bits)).collect();
    let scales = numbers.floats(rows * groups);
    let biases = numbers.floats(rows * groups);
    let dense = (0..rows * columns).map(|i| {
        let at = i / columns * groups + i % columns / group;
        codes[i] as f32 * scales[at] + biases[at]
    });
    let dense = dense.collect();
    let words: Vec<u32> = codes.chunks(columns).flat_map(|row| pack(row, bits)).collect();
    let codes = Tensor::new(DType::U32, vec![rows, columns * bits / 32], words).expect("whole words a row");
    let store = Store::Packed {
        bytes: codes.to_bytes().expect("codes are words"),
        codes,
        scales: floats(&[rows, groups], scales),
        biases: floats(&[rows, groups], biases),
        bits: bits as u32,
        group: group as u32,
    };
    (Matrix { shape: vec![rows, columns], store, weight: None }, dense)
}

fn op(program: &Program, name: &str, operands: Vec<Operand<Tensor>>, twins: Option<TwinBackend>) -> Tensor {
    let mut results = run_op(program, name, operands, DType::F32, Precision::Single, twins).expect("the op runs");
    assert_eq!(results.len(), 1);
    results.remove(0)
}

#[test]
fn packed_matrices_at_every_width() {
    let program = family();
    let mut numbers = Numbers(1);
    for bits in [2, 3, 4, 5, 6, 8] {
        for (rows, columns, group) in [(3, 64, 32), (2, 128, 64), (5, 96, 32)] {
            let (matrix, dense) = packed(rows, columns, bits, group, &mut numbers);
            let found = op(&program, "expand", vec![Operand::Matrix(matrix.clone())], None);
            assert_eq!(found.shape(), [rows, columns]);
            assert_eq!(found.to_f32(), dense, "{bits} bits, groups of {group}");

            let ids = Tensor::i32(vec![2, 1], vec![rows as i32 - 1, 0]).expect("two ids");
            let rows_of = op(&program, "lookup", vec![Operand::Matrix(matrix), Operand::Tensor(ids)], None);
            assert_eq!(rows_of.shape(), [2, 1, columns]);
            assert_eq!(rows_of.to_f32(), [&dense[(rows - 1) * columns..], &dense[..columns]].concat());
        }
    }
}

#[test]
fn op_twins_keep_their_bounds() {
    let program = family();
    let linear = program.ops.iter().find(|op| op.name == "linear").expect("llama reaches linear");
    let OpKind::Tensor { twins, .. } = &linear.kind else { panic!("linear takes tensors") };
    let twin = twins.iter().find(|t| matches!(t.target, TwinTarget::Op(_))).expect("an op stands in for linear");
    let Within::OfSum(bound) = twin.within else { panic!("a sum is bounded by its terms") };
    let mut numbers = Numbers(2);
    for (bits, (m, taken)) in [2, 4, 8].into_iter().flat_map(|bits| TAKEN.map(|taken| (bits, taken))) {
        let (n, k) = (5, 128);
        let (matrix, dense) = packed(n, k, bits, 32, &mut numbers);
        let x = numbers.floats(m * k);
        let operands = || vec![Operand::Tensor(floats(&[1, m, k], x.clone())), Operand::Matrix(matrix.clone())];
        let pinned = op(&program, "linear", operands(), None).to_f32();
        let fused = op(&program, "linear", operands(), Some(twin.backend)).to_f32();
        let expected = taken.map_or_else(|| pinned.clone(), |name| op(&program, name, operands(), None).to_f32());
        assert_eq!(fused, expected, "{m} rows take {taken:?}");
        for (at, (a, b)) in pinned.iter().zip(&fused).enumerate() {
            let (i, j) = (at / n, at % n);
            let terms = (0..k).map(|c| f64::from(x[i * k + c]) * f64::from(dense[j * k + c]));
            let (exact, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
            for found in [a, b] {
                assert!((f64::from(*found) - exact).abs() <= bound * size, "{bits} bits: {found} for {exact}");
            }
        }
    }
}

/// How many rows take which twin of `linear` on StableHLO.
const TAKEN: [(usize, Option<&str>); 4] =
    [(1, Some("linear_by_bytes")), (2, Some("linear_by_lanes")), (15, Some("linear_by_lanes")), (16, None)];

/// Pieces give what the whole gives, but for the order of sums, of which the interpreter has one.
#[test]
fn pieces_of_a_product_are_the_whole() {
    let program = family();
    let mut numbers = Numbers(5);
    for bits in [2, 4, 8] {
        let (matrix, _) = packed(6, 64, bits, 32, &mut numbers);
        let x = numbers.floats(3 * 64);
        let by = |pieces| {
            let x = Operand::Tensor(floats(&[3, 64], x.clone()));
            let operands = vec![x, Operand::Matrix(matrix.clone()), Operand::Load(Val::Int(pieces))];
            op(&program, "linear_by_pieces", operands, None).to_f32()
        };
        assert_eq!(by(1), by(3), "{bits} bits");
    }
}

/// A head of one token by the defined op and by its twin.
#[test]
fn the_rotary_twin_keeps_its_bound() {
    let program = family();
    let mut numbers = Numbers(4);
    let (heads, width) = (3, 16);
    let (x, cos, sin) = (numbers.floats(heads * 2 * width), numbers.floats(width), numbers.floats(width));
    let operands = || {
        let tables = [&cos, &sin].map(|t| Operand::Tensor(floats(&[1, 1, 1, width], t.clone())));
        [vec![Operand::Tensor(floats(&[1, heads, 1, 2 * width], x.clone()))], tables.to_vec()].concat()
    };
    let pinned = op(&program, "rope", operands(), None).to_f32();
    let fused = op(&program, "rope", operands(), Some(TwinBackend::Hlo)).to_f32();
    assert_eq!(fused, op(&program, "rope_by_halves", operands(), None).to_f32(), "the twin is taken for one token");
    // Rounded after every product, `b * -sin` is `-(b * sin)`.
    assert_eq!(pinned, fused);
}

#[test]
fn norms_softmax_and_gates() {
    let program = family();
    let mut numbers = Numbers(3);
    let (rows, width) = (4, 37);
    let x = numbers.floats(rows * width);
    let gain = numbers.floats(width);
    let tensor = || Operand::Tensor(floats(&[rows, width], x.clone()));
    let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();

    let eps = 1e-5;
    let operands = vec![tensor(), Operand::Tensor(floats(&[width], gain.clone())), Operand::Load(Val::Float(eps))];
    let found = op(&program, "rms_norm", operands, None).to_f64();
    for (row, found) in wide.chunks(width).zip(found.chunks(width)) {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / width as f64;
        for (at, found) in found.iter().enumerate() {
            let exact = f64::from(gain[at]) * row[at] / (mean + eps).sqrt();
            assert!((found - exact).abs() <= 4e-7, "{found} for {exact}");
        }
    }

    let found = op(&program, "softmax", vec![tensor()], None).to_f64();
    for (row, found) in wide.chunks(width).zip(found.chunks(width)) {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        for (x, found) in row.iter().zip(found) {
            assert!((found - x.exp() / sum).abs() <= 2e-7);
        }
    }

    let found = op(&program, "silu", vec![tensor()], None).to_f64();
    for (x, found) in wide.iter().zip(&found) {
        assert!((found - x / (1.0 + (-x).exp())).abs() <= 2e-7);
    }
}

#[test]
fn wrong_operands_are_sentences() {
    let program = family();
    let run = |name: &str, operands| {
        run_op(&program, name, operands, DType::F32, Precision::Single, None).expect_err("wrong operands").message
    };
    assert_eq!(run("solu", vec![]), "family llama reaches no op `solu`");
    assert_eq!(run("silu", vec![]), "`silu` takes 1 arguments and is given 0");
    assert_eq!(run("silu", vec![Operand::Load(Val::Int(1))]), "argument `x` of `silu` is of the wrong stage");
}
