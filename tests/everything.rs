//! One family with every construct that code is generated for, on random weights: interpreter, MLX and StableHLO agree, in
//! both modes, over prefill and steps, probes and states included.

use std::{collections::HashMap, fs, path::Path};

use mgraph_runtime::{
    backend::{self, Backend},
    model::Model,
    probes::Probes,
    session::{Batch, Float, Numerics, SessionOptions},
    tensor::Tensor,
};
use safetensors::{Dtype, tensor::TensorView};

#[allow(dead_code)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/families.rs"));
}

const VOCAB: usize = 24;
const HIDDEN: usize = 16;

/// Everything the family stores, for `kinds`, and `first` where `move` is "b".
fn checkpoint(folder: &Path, config: serde_json::Value, kinds: &[&str], first: bool) {
    let mut shapes = vec![("embed_tokens.weight".to_string(), vec![VOCAB, HIDDEN])];
    for (i, kind) in kinds.iter().enumerate() {
        match *kind {
            "wide" => {
                shapes.push((format!("layers.{i}.block.proj.weight"), vec![HIDDEN, HIDDEN]));
                shapes.push((format!("layers.{i}.block.proj.bias"), vec![HIDDEN]));
            }
            _ => shapes.push((format!("layers.{i}.block.half"), vec![HIDDEN / 2])),
        }
    }
    for i in 1..=kinds.len() + 1 {
        shapes.push((format!("tower.steps.{i}.gain"), vec![HIDDEN]));
    }
    if first {
        shapes.push(("first".to_string(), vec![HIDDEN]));
    }
    let mut state = 12_345_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * 0.5
    };
    let data: Vec<(String, Vec<usize>, Vec<u8>)> = shapes
        .into_iter()
        .map(|(name, shape)| {
            let bytes = (0..shape.iter().product::<usize>()).flat_map(|_| next().to_le_bytes()).collect();
            (name, shape, bytes)
        })
        .collect();
    let views: HashMap<&str, TensorView<'_>> = data
        .iter()
        .map(|(name, shape, bytes)| (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()))
        .collect();
    fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

/// Logits and probes of a prefill and two steps, then the states: everything that can be seen.
fn seen(model: &std::sync::Arc<Model>, backend: Backend, numerics: Numerics) -> Vec<(String, Tensor)> {
    let options =
        SessionOptions { rows: 1, capacity: 64, max_chunk: 8, dtype: Float::F32, numerics, probes: Probes::Reported };
    let mut session = backend::open(backend, model, options).unwrap();
    let mut all = Vec::new();
    let mut batches = vec![Batch::row(&[3, 1, 4, 1, 5], 0, 5)];
    batches.extend([Batch::row(&[9], 5, 1), Batch::row(&[2], 6, 1)]);
    for (call, batch) in batches.iter().enumerate() {
        let mut probes = Vec::new();
        let mut sink = |name: &str, value: Tensor| {
            probes.push((format!("{call}: {name}"), value));
            Ok(())
        };
        let logits = session.step(batch, Some(&mut sink)).unwrap();
        // Backends may report in their own order.
        probes.sort_by(|a, b| a.0.cmp(&b.0));
        all.extend(probes);
        all.push((format!("{call}: result"), logits));
    }
    for path in model.states() {
        let mut state = session.state(path).unwrap();
        // How many places a state shows is the backend's; what is written is not.
        if state.shape.len() == 2 && state.shape[1] > 4 {
            let bytes = state.dtype.size() * 7;
            state = Tensor { dtype: state.dtype, shape: vec![1, 7], bytes: state.bytes[..bytes].to_vec() };
        }
        all.push((format!("state {path}"), state));
    }
    all
}

fn agree(config: serde_json::Value, kinds: &[&str], first: bool) {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), config, kinds, first);
    let model = Model::open(folder.path(), generated::FAMILIES).unwrap();
    let reference = seen(&model, Backend::Reference, Numerics::Pinned);
    assert!(reference.iter().any(|(name, _)| name.starts_with("0: unread.narrow")), "probes are reported");
    for backend in [Backend::Mlx, Backend::Iree] {
        for numerics in [Numerics::Pinned, Numerics::Fused] {
            let found = seen(&model, backend, numerics);
            let names = |list: &[(String, Tensor)]| list.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&reference), names(&found), "{backend}");
            for ((name, wanted), (_, found)) in reference.iter().zip(&found) {
                assert_eq!(wanted.shape, found.shape, "{name} on {backend}");
                for (x, y) in wanted.to_f64().iter().zip(found.to_f64()) {
                    assert!((x - y).abs() < 2e-5 * (1.0 + x.abs()), "{name} on {backend}: {x} and {y}");
                }
            }
        }
    }
}

#[test]
fn with_defaults() {
    let config = serde_json::json!({ "model_type": "everything", "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": 3 });
    agree(config, &["wide", "narrow", "wide"], false);
}

#[test]
fn with_everything_written() {
    let config = serde_json::json!({
        "model_type": "everything", "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": 2,
        "kinds": ["narrow", "narrow"], "shares": [0.125, 0.5, 0.75], "picks": [1], "move": "b", "extra": { "gain": 0.3 },
    });
    agree(config, &["narrow", "narrow"], true);
}
