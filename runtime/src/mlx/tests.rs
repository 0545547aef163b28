//! The primitives against small hand-computed cases, and the state update's promise to write in place.

use mlx_rs::Array;

use super::{Matrix, array::download, kernels, ops, update};
use crate::{generated::Cut, tensor::DType};

fn floats(values: &[f32], shape: &[i32]) -> Array {
    Array::from_slice(values, shape)
}

fn ints(values: &[i32], shape: &[i32]) -> Array {
    Array::from_slice(values, shape)
}

fn read(x: &Array) -> Vec<f64> {
    download(x).expect("evaluates").to_f64()
}

#[test]
fn constants_take_the_dtype_they_meet() {
    let half = ops::number(0.1, DType::BF16).expect("a constant");
    assert_eq!(read(&half), [0.10009765625]);
    assert_eq!(read(&ops::numbers(&[0.1, 2.5], DType::F32).expect("constants")), [f64::from(0.1f32), 2.5]);
    assert!(ops::integer(-1, DType::U32).is_err());
    assert_eq!(ops::dtype(&ops::iota(3).expect("iota")).ok(), Some(DType::I32));
}

#[test]
fn integers_divide_and_shift() {
    let x = ints(&[7, 8, 9], &[3]);
    assert_eq!(read(&ops::divide(&x, &ints(&[2], &[1])).expect("divides")), [3.0, 4.0, 4.0]);
    assert_eq!(read(&ops::remainder(&x, &ints(&[4], &[1])).expect("remainder")), [3.0, 0.0, 1.0]);
    let words = Array::from_slice(&[0xf0u32, 0x0f], &[2]);
    let four = ops::integer(4, DType::U32).expect("a constant");
    assert_eq!(read(&ops::shift_right(&words, &four).expect("shifts")), [15.0, 0.0]);
    assert_eq!(read(&ops::shift_left(&words, &four).expect("shifts")), [3840.0, 240.0]);
    let mask = ops::integer(0x18, DType::U32).expect("a constant");
    assert_eq!(read(&ops::and(&words, &mask).expect("ands")), [16.0, 8.0]);
}

#[test]
fn cuts_drop_and_keep_axes() {
    let x = ints(&(0..24).collect::<Vec<_>>(), &[2, 3, 4]);
    let row = ops::cut(&x, &[Cut::At(1), Cut::Range(1, 3)]).expect("cuts");
    assert_eq!(ops::shape(&row), [2, 2]);
    assert_eq!(read(&row), [5.0, 6.0, 17.0, 18.0]);
    assert!(ops::cut(&x, &[Cut::Range(2, 9)]).is_err());
}

#[test]
fn a_nan_wins_and_top_k_keeps_the_order_of_ties() {
    let nan = floats(&[f32::NAN, 1.0], &[2]);
    let ones = floats(&[1.0, f32::NAN], &[2]);
    assert!(read(&ops::maximum(&nan, &ones).expect("max")).iter().all(|v| v.is_nan()));
    assert!(read(&ops::minimum(&nan, &ones).expect("min")).iter().all(|v| v.is_nan()));
    let x = floats(&[2.0, 5.0, 5.0, 1.0], &[1, 4]);
    assert_eq!(read(&ops::top_k_indices(&x, 3).expect("top")), [1.0, 2.0, 0.0]);
    assert_eq!(read(&ops::top_k_values(&x, 3).expect("top")), [5.0, 5.0, 2.0]);
}

#[test]
fn the_largest_of_nothing_is_the_least_there_is() {
    let none = ops::maximum_along(&floats(&[], &[2, 0, 3]), &[1]).expect("max");
    assert_eq!((ops::shape(&none), read(&none)), (vec![2, 1, 3], vec![f64::NEG_INFINITY; 6]));
    let none = ops::maximum_along(&ints(&[], &[0]), &[-1]).expect("max");
    assert_eq!(read(&none), [f64::from(i32::MIN)]);
}

#[test]
fn takes_rows_and_elements() {
    let x = floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], &[3, 2]);
    let taken = ops::take(&x, &ints(&[2, 0, 2, 1], &[2, 2]), 0).expect("takes");
    assert_eq!(ops::shape(&taken), [2, 2, 2]);
    assert_eq!(read(&taken), [4.0, 5.0, 0.0, 1.0, 4.0, 5.0, 2.0, 3.0]);
    let along = ops::take_along(&x, &ints(&[2], &[1, 1]), 0).expect("takes");
    assert_eq!(read(&along), [4.0, 5.0]);
}

#[test]
fn each_row_is_written_at_its_own_positions() {
    let state = floats(&[0.0; 12], &[2, 1, 3, 2]);
    let x = floats(&[1.0, 2.0, 3.0, 4.0], &[2, 1, 1, 2]);
    let new = update::rows(state.clone(), &x, &ints(&[1, 2], &[2, 1]), -2, 0..2, None).expect("updates");
    assert_eq!(read(&new), [0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0]);
    assert_eq!(read(&state), [0.0; 12]);
    let beyond = update::rows(state.clone(), &x, &ints(&[3, 0], &[2, 1]), -2, 0..2, None);
    assert!(beyond.is_err_and(|e| e.to_string().contains("outside a state of 3 positions")));
    let second = floats(&[5.0, 6.0], &[1, 1, 1, 2]);
    let new = update::rows(state, &second, &ints(&[1], &[1, 1]), -2, 1..2, None).expect("updates");
    assert_eq!(read(&new), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 6.0, 0.0, 0.0]);
}

#[test]
fn a_state_held_once_is_written_in_place() {
    let mut state = floats(&[0.0; 4096], &[1, 1, 1024, 4]);
    state.eval().expect("evaluates");
    let before = state.as_slice::<f32>().as_ptr();
    for position in 0..3 {
        let x = floats(&[1.0; 4], &[1, 1, 1, 4]);
        state = update::rows(state, &x, &ints(&[position], &[1, 1]), -2, 0..1, None).expect("updates");
        state.eval().expect("evaluates");
    }
    assert_eq!(state.as_slice::<f32>().as_ptr(), before);
    assert_eq!(read(&state)[..13], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
}

#[test]
fn packed_matrices_give_their_parts_and_rows() {
    let codes = Array::from_slice(&[0x7654_3210u32, 0xfedc_ba98, 0, 1, 2, 3, 4, 5], &[2, 4]);
    let w = Matrix::Packed {
        codes,
        scales: floats(&[0.5, 2.0], &[2, 1]),
        biases: floats(&[-1.0, 1.0], &[2, 1]),
        bits: 4,
        group: 32,
    };
    assert_eq!(w.shape(), [2, 32]);
    let dense = read(&kernels::dequantize(&w).expect("dequantizes"));
    assert_eq!(dense[..4], [-1.0, -0.5, 0.0, 0.5]);
    let second = w.rows(&ints(&[1], &[1])).expect("rows");
    assert_eq!(read(&kernels::dequantize(&second).expect("dequantizes")), dense[32..]);
    assert!(w.dense().is_err());
}
