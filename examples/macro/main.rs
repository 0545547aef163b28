//! A family inside a Rust file: `cargo run -p mgraph-examples --bin macro`. It counts modulo ten, and its weights say so: a
//! token's embedding is its row of the unit matrix, and the one matrix moves every number to the next place.

use std::{fs, path::Path};

use mgraph_macros::mgraph;
use mgraph_runtime::{
    backend::{self, Backend},
    engine,
    error::Result,
    model::Model,
    probes::Probes,
    sampler::{Sampler, Settings},
    session::{Float, Numerics, SessionOptions},
};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;

mgraph! {
    family counter for "counter"

    config { vocab: dim = "vocab_size" }
    model {
        numbers: Embedding(vocab, vocab)
        next:    Linear(vocab, vocab)

        graph embed(tokens: i32[B, S]) -> F[B, S, vocab] { numbers(tokens) }

        graph forward(x: F[B, S, vocab], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {
            numbers.logits(next(rows_at(x, wanted)))
        }
    }
}

const COUNT: usize = 10;
const BACKENDS: [Backend; 3] = [Backend::Reference, Backend::Mlx, Backend::Iree];

/// The checkpoint: a matrix with a one in row `(column + step) % COUNT` of every column.
fn write_checkpoint(dir: &Path) -> Result<()> {
    fs::write(dir.join("config.json"), json!({ "model_type": "counter", "vocab_size": COUNT }).to_string())?;
    let moved = |step: usize| -> Vec<u8> {
        let one = |row, column| if row == (column + step) % COUNT { 1.0f32 } else { 0.0 };
        (0..COUNT).flat_map(|row| (0..COUNT).flat_map(move |column| one(row, column).to_le_bytes())).collect()
    };
    let (same, next) = (moved(0), moved(1));
    let matrix = |bytes| TensorView::new(Dtype::F32, vec![COUNT, COUNT], bytes);
    let tensors = [("numbers.weight", matrix(&same)?), ("next.weight", matrix(&next)?)];
    Ok(fs::write(dir.join("model.safetensors"), safetensors::serialize(tensors, None)?)?)
}

fn count(first: u32, backend: Backend) -> Result<Vec<u32>> {
    let dir = tempfile::tempdir()?;
    write_checkpoint(dir.path())?;
    let model = Model::open(dir.path(), &[&counter::FAMILY])?;
    let options = SessionOptions {
        rows: 1,
        capacity: 16,
        max_chunk: 16,
        dtype: Float::F32,
        numerics: Numerics::Pinned,
        probes: Probes::Unread,
    };
    let mut session = backend::open(backend, &model, options)?;
    let mut greedy = Sampler::new(Settings::GREEDY)?;
    Ok(engine::generate(session.as_mut(), &mut greedy, &[first], COUNT, &[], &mut |_| Ok(true))?.tokens)
}

fn main() -> Result<()> {
    for backend in BACKENDS {
        println!("{backend} counts from 7: {:?}", count(7, backend)?);
    }
    Ok(())
}

#[test]
fn every_backend_counts() {
    for backend in BACKENDS {
        assert_eq!(count(7, backend).unwrap(), [8, 9, 0, 1, 2, 3, 4, 5, 6, 7], "{backend}");
    }
}
