//! Every MLX twin of the ops that Llama reaches, held to the bound that the prelude declares for it: the same generated function,
//! once as defined and once with its twin.

use mgraph_models::llama::{Config, mlx::prelude};
use mgraph_runtime::{
    error::Result,
    generated::Call,
    mlx::{Array, Core, Matrix, ops},
    tensor::DType,
};
use mgraph_tests::toy;

/// As defined, and with the twin.
fn both(op: impl Fn(&mut Call<'_, Config, Core>) -> Result<Array>) -> (Vec<f32>, Vec<f32>) {
    let cfg = mgraph_tests::small_config();
    let run = |fused| {
        let mut core = Core::new(DType::F32, fused);
        let value = op(&mut Call::new(&cfg, &mut core)).unwrap();
        value.contiguous().unwrap().to_vec_exact::<f32>().unwrap()
    };
    (run(false), run(true))
}

/// Numbers from -`size` to `size`, the same every time.
fn numbers(count: usize, size: f32, seed: u32) -> Vec<f32> {
    toy::numbers(count, seed).into_iter().map(|x| size * x).collect()
}

fn array(shape: &[i32], size: f32, seed: u32) -> Array {
    Array::from_slice(&numbers(shape.iter().product::<i32>() as usize, size, seed), shape)
}

#[track_caller]
fn within_ulp(ulp: f32, (defined, twin): (Vec<f32>, Vec<f32>)) {
    assert_eq!(defined.len(), twin.len());
    for (x, y) in defined.iter().zip(&twin) {
        let spacing = (f32::from_bits(x.abs().to_bits() + 1) - x.abs()).max(f32::MIN_POSITIVE);
        assert!((x - y).abs() <= ulp * spacing, "{x} and {y} are {} ulp apart", (x - y).abs() / spacing);
    }
}

/// `sums`: the sum of absolute terms of every element.
#[track_caller]
fn within_of_sum(bound: f32, sums: &[f32], (defined, twin): (Vec<f32>, Vec<f32>)) {
    assert_eq!((defined.len(), twin.len()), (sums.len(), sums.len()));
    for ((x, y), sum) in defined.iter().zip(&twin).zip(sums) {
        assert!((x - y).abs() <= bound * sum, "{x} and {y} differ by {} of {sum}", (x - y).abs() / sum);
    }
}

/// 16 codes of 4 bits per 32 columns and more, each word different.
fn packed(rows: i32, columns: i32, bits: i32, group: i32) -> Matrix {
    let words = columns * bits / 32;
    let codes: Vec<u32> = (0..(rows * words) as u32).map(|i| i.wrapping_mul(2_654_435_761) ^ (i << 7)).collect();
    Matrix::Packed {
        codes: Array::from_slice(&codes, &[rows, words]),
        scales: array(&[rows, columns / group], 0.1, 1),
        biases: array(&[rows, columns / group], 0.5, 2),
        bits,
        group,
    }
}

#[test]
fn rms_norm() {
    for (rows, width) in [(1, 64), (7, 576), (2, 2048)] {
        let (x, weight) = (array(&[rows, width], 3.0, 5), array(&[width], 2.0, 6));
        within_ulp(4.0, both(|cx| prelude::rms_norm(cx, &x, &weight, 1e-5)));
    }
}

#[test]
fn softmax() {
    for (rows, width) in [(1, 1), (5, 33), (3, 512)] {
        let x = array(&[rows, width], 8.0, 9);
        within_ulp(4.0, both(|cx| prelude::softmax(cx, &x)));
    }
}

#[test]
fn expand() {
    for (bits, group) in [(2, 32), (3, 32), (4, 32), (4, 64), (5, 64), (6, 32), (8, 128)] {
        let w = packed(9, 256, bits, group);
        within_ulp(1.0, both(|cx| prelude::expand(cx, &w)));
    }
}

#[test]
fn linear() {
    // The last is large enough to be cut into parts.
    for (rows, outputs, inputs) in [(1, 9, 256), (4, 131, 64), (1, 1536, 576)] {
        let (x, w) = (array(&[1, rows, inputs], 1.0, 3), packed(outputs, inputs, 4, 32));
        let absolute = |cx: &mut Call<'_, Config, Core>| {
            let dense = prelude::expand(cx, &w)?;
            ops::dot(&ops::abs(&x)?, &ops::abs(&dense)?)
        };
        let sums = both(absolute).0;
        within_of_sum(1e-5, &sums, both(|cx| prelude::linear(cx, &x, &w)));
    }
}

#[test]
fn masked_attention() {
    for (queries, keys) in [(1, 64), (12, 12), (5, 130)] {
        let q = array(&[2, 6, queries, 16], 2.0, 3);
        let (k, v) = (array(&[2, 3, keys, 16], 2.0, 4), array(&[2, 3, keys, 16], 1.0, 5));
        let visible: Vec<bool> = (0..2 * queries * keys).map(|i| i % 3 != 1 || i % keys == 0).collect();
        let visible = Array::from_slice(&visible, &[2, queries, keys]);
        let sums = both(|cx| {
            let scores = prelude::attention_scores(cx, &q, &k, 0.25)?;
            let scores = prelude::hide(cx, &scores, &visible)?;
            prelude::attention_values(cx, &scores, &ops::abs(&v)?)
        });
        within_of_sum(1e-5, &sums.0, both(|cx| prelude::masked_attention(cx, &q, &k, &v, &visible, 0.25)));
    }
}
