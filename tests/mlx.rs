//! The MLX session beyond the goldens' sizes: states that grow, rows of unequal length, and what is refused.

use mgraph_runtime::{
    backend::{self, Backend},
    probes::Probes,
    session::{Batch, Float, Numerics, Session, SessionOptions},
};

fn open(rows: usize, capacity: usize) -> Box<dyn Session> {
    let (model, _) = mgraph_tests::open_golden("llama").unwrap();
    let options = SessionOptions {
        rows,
        capacity,
        max_chunk: 256,
        dtype: Float::F32,
        numerics: Numerics::Pinned,
        probes: Probes::Unread,
    };
    backend::open(Backend::Mlx, &model, options).unwrap()
}

fn tokens(count: usize) -> Vec<i32> {
    (0..count).map(|i| (i as i32 * 7 + 3) % 90).collect()
}

fn far(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max)
}

#[test]
fn chunks_and_steps_give_what_one_call_gives() {
    let tokens = tokens(150);
    let mut session = open(1, 160);
    let whole = session.step(&Batch::row(&tokens, 0, 150), None).unwrap().to_f32();
    session.reset().unwrap();
    // 70 crosses the growth of the states at 64, and the steps that follow the one at 128.
    session.step(&Batch::row(&tokens[..70], 0, 70), None).unwrap();
    session.step(&Batch::row(&tokens[70..120], 70, 50), None).unwrap();
    let mut last = Vec::new();
    for at in 120..150 {
        last = session.step(&Batch::row(&tokens[at..at + 1], at, 1), None).unwrap().to_f32();
    }
    // Ten times the reference's noise on logits of this checkpoint.
    assert!(far(&whole, &last) < 2e-4, "{}", far(&whole, &last));
    let keys = session.state("layers.0.self_attn.cache.k").unwrap();
    assert_eq!(keys.shape[2], 160, "states grow to the capacity and no further");
}

#[test]
fn rows_stand_at_their_own_positions() {
    let (long, short) = (tokens(40), tokens(10));
    let mut alone = open(1, 64);
    alone.step(&Batch::row(&long, 0, 40), None).unwrap();
    let of_long = alone.step(&Batch::row(&[5], 40, 1), None).unwrap().to_f32();
    alone.reset().unwrap();
    alone.step(&Batch::row(&short, 0, 10), None).unwrap();
    let of_short = alone.step(&Batch::row(&[5], 10, 1), None).unwrap().to_f32();

    let mut both = open(2, 64);
    let mut first = Batch::row(&long, 0, 40);
    let second = Batch::row(&short, 0, 40);
    first.rows = 2;
    first.tokens.extend(second.tokens);
    first.positions.extend(second.positions);
    first.wanted.extend(second.wanted);
    both.step(&first, None).unwrap();
    let step = Batch {
        rows: 2,
        width: 1,
        tokens: vec![5, 5],
        positions: vec![40, 10],
        wanted: vec![0, 0],
        ..Batch::default()
    };
    let logits = both.step(&step, None).unwrap().to_f32();
    let (row_0, row_1) = logits.split_at(logits.len() / 2);
    assert!(far(row_0, &of_long) < 2e-4 && far(row_1, &of_short) < 2e-4);
}

#[test]
fn a_position_beyond_the_context_names_the_knob() {
    let mut session = open(1, 16);
    let error = session.step(&Batch::row(&tokens(17), 0, 17), None).unwrap_err().to_string();
    assert!(error.contains("--ctx-size"), "{error}");
    session.step(&Batch::row(&tokens(16), 0, 16), None).unwrap();
}

#[test]
#[cfg(not(target_vendor = "apple"))]
fn narrow_floats_are_refused_where_mlx_sums_in_them() {
    let (model, _) = mgraph_tests::open_golden("llama").unwrap();
    let options = SessionOptions {
        rows: 1,
        capacity: 16,
        max_chunk: 16,
        dtype: Float::Bf16,
        numerics: Numerics::Pinned,
        probes: Probes::Unread,
    };
    let error = backend::open(Backend::Mlx, &model, options).err().unwrap().to_string();
    assert!(error.contains("--dtype f32"), "{error}");
}
