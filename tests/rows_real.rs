//! What rows cost and what they change, on the real SmolLM2-135M: the numbers of the book's page on speed. Nothing is judged but that greedy
//! tokens do not depend on which rows a call covers; run it with
//! `cargo test -p mgraph-tests --test rows_real -- --ignored --nocapture`, after `make bench` has made the dense copy of the model.
//! `MGRAPH_ROWS="iree smollm2-135m-instruct pinned"` measures one case of the eight.

use std::{path::Path, time::Instant};

use mgraph_runtime::{
    backend::{self, Backend},
    model::Model,
    probes::Probes,
    session::{Batch, Float, Numerics, SessionOptions},
};

const ROWS: usize = 8;
const PROMPT: usize = 100;
const STEPS: usize = 12;

fn token(row: usize, turn: usize) -> i32 {
    (1000 + (row * 7919 + turn * 37) % 20000) as i32
}

/// One token for each of the rows from `first` on, at a position.
fn step(rows: usize, position: usize, of: impl Fn(usize) -> i32) -> Batch {
    Batch {
        rows,
        width: 1,
        tokens: (0..rows).map(of).collect(),
        positions: vec![position as i32; rows],
        wanted: vec![0; rows],
        ..Batch::default()
    }
}

fn best(logits: &[f32]) -> usize {
    (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best })
}

/// What this process has computed so far, on all cores: unlike time it does not tell what else the machine does.
fn computed() -> f64 {
    // SAFETY: `usage` is writable, and plain numbers may be zero.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

struct Apart {
    bits: usize,
    of: usize,
    far: f32,
    tokens: usize,
}

/// How many of the numbers differ, how far, and how many of the greedy tokens.
fn apart(all: &[(Vec<f32>, Vec<f32>)]) -> Apart {
    let pairs = || all.iter().flat_map(|(x, y)| x.iter().zip(y));
    Apart {
        bits: pairs().filter(|(x, y)| x.to_bits() != y.to_bits()).count(),
        of: pairs().count(),
        far: pairs().map(|(x, y)| (x - y).abs()).fold(0.0, f32::max),
        tokens: all.iter().filter(|(x, y)| best(x) != best(y)).count(),
    }
}

fn measure(backend: Backend, name: &str, numerics: Numerics) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.toolchain/models").join(name);
    let model = Model::open(&dir, mgraph_models::FAMILIES).unwrap();
    let options = SessionOptions {
        rows: ROWS,
        capacity: 256,
        max_chunk: 128,
        dtype: Float::F32,
        numerics,
        probes: Probes::Unread,
    };
    let what = format!("{backend} {name} {numerics:?}");
    let mut session = backend::open(backend, &model, options).unwrap();
    // The same prompt in chunks of several widths, each in a row of its own.
    let prompt: Vec<i32> = (0..PROMPT).map(|turn| token(0, turn)).collect();
    let mut ends: Vec<(usize, Vec<f32>)> = Vec::new();
    for (row, chunk) in [1, 16, 64, 100].into_iter().enumerate() {
        let mut logits = Vec::new();
        for (i, piece) in prompt.chunks(chunk).enumerate() {
            let batch = Batch::row(piece, i * chunk, session.width(piece.len())).at_row(row);
            logits = session.step(&batch, None).unwrap().to_f32();
        }
        ends.push((chunk, logits));
    }
    assert!(ends[0].1.iter().all(|x| x.is_finite()), "{what}");
    println!("{what}: {:?} .., the largest at {}", &ends[0].1[..4], best(&ends[0].1));
    for (chunk, logits) in &ends[1..] {
        let Apart { bits, of, far, tokens } = apart(&[(ends[0].1.clone(), logits.clone())]);
        println!(
            "{what}: prompt in chunks of {chunk} beside 1: {bits} of {of} logits differ, by up to {far:e}, {tokens} tokens"
        );
    }
    for row in 0..ROWS {
        session.forget(row, 0).unwrap();
        let prompt: Vec<i32> = (0..PROMPT).map(|turn| token(row, turn)).collect();
        session.step(&Batch::row(&prompt, 0, session.width(PROMPT)).at_row(row), None).unwrap();
    }
    // Greedy for `STEPS` tokens: each row alone, then the same positions again in calls of several rows.
    let mut alone: Vec<Vec<Vec<f32>>> = Vec::new();
    for row in 0..ROWS {
        let mut logits: Vec<Vec<f32>> = Vec::new();
        for k in 0..STEPS {
            let next = logits.last().map_or(token(row, PROMPT), |last| best(last) as i32);
            let batch = step(1, PROMPT + k, |_| next).at_row(row);
            logits.push(session.step(&batch, None).unwrap().to_f32());
        }
        alone.push(logits);
    }
    let given = |row: usize, k: usize| if k == 0 { token(row, PROMPT) } else { best(&alone[row][k - 1]) as i32 };
    let found_alone = |row: usize, k: usize| alone[row][k].clone();
    let mut one = [0.0; 2];
    for rows in [1, 2, 4, 8] {
        let mut pairs = Vec::new();
        let mut seconds = [f64::INFINITY; 2];
        for k in 0..STEPS {
            let batch = step(rows, PROMPT + k, |row| given(row, k));
            let (begun, before) = (Instant::now(), computed());
            let logits = session.step(&batch, None).unwrap().to_f32();
            seconds = [seconds[0].min(begun.elapsed().as_secs_f64()), seconds[1].min(computed() - before)];
            let vocabulary = logits.len() / rows;
            for (row, logits) in logits.chunks(vocabulary).enumerate() {
                pairs.push((found_alone(row, k), logits.to_vec()));
            }
        }
        one = if rows == 1 { seconds } else { one };
        let Apart { bits, of, far, tokens } = apart(&pairs);
        println!(
            "{what}: {rows} rows {:.1} ms a step, {:.1} tok/s, {:.2} x; {:.1} ms of a core, {:.2} x; {bits} of {of} logits differ, by up to {far:e}, {tokens} of {} tokens",
            seconds[0] * 1e3,
            rows as f64 / seconds[0],
            one[0] * rows as f64 / seconds[0],
            seconds[1] * 1e3,
            one[1] * rows as f64 / seconds[1],
            pairs.len()
        );
        assert_eq!(tokens, 0, "{what}: tokens depend on the rows of the call");
    }
}

#[test]
#[ignore = "needs the real model, and minutes"]
fn rows_of_the_real_model() {
    // Here the harness has threads already, and each keeps the heap that it began with: `GLIBC_TUNABLES=glibc.malloc.arena_max=1` does what
    // `memory::keep_freed` does at the start of `mlxcel`.
    let chosen = std::env::var("MGRAPH_ROWS").unwrap_or_default();
    for backend in [Backend::Iree, Backend::Mlx] {
        for name in ["smollm2-135m-instruct", "smollm2-135m-instruct-f32"] {
            for numerics in [Numerics::Pinned, Numerics::Fused] {
                let case = format!("{backend} {name} {numerics:?}").to_lowercase();
                if chosen.is_empty() || case == chosen {
                    measure(backend, name, numerics);
                }
            }
        }
    }
}
