//! States of sliding-window layers: what is proved of each family, what each backend keeps, and that what it gives is what it gives
//! when everything is kept.

use std::sync::Arc;

use mgraph_dsl::{
    compile, prelude_sources,
    source::{PRELUDE, Sources},
    windows::windows,
};
use mgraph_runtime::{
    backend::{self, Backend},
    model::Model,
    probes::Probes,
    session::{Batch, Float, Numerics, Session, SessionOptions},
    tensor::Tensor,
};
use mgraph_tests::{open_golden, toy};

const BACKENDS: [Backend; 2] = [Backend::Mlx, Backend::Iree];

/// States of IREE have 384 positions for it.
const CAPACITY: usize = 384;

/// Golden, and the windows of its layers; 0 for a layer that looks at everything.
const PROVED: [(&str, &[u64]); 6] = [
    ("gemma2", &[4, 0, 4, 0]),
    ("gemma3_text", &[4, 4, 0, 4]),
    ("mistral", &[5, 5, 5]),
    ("phi3", &[7, 7, 7]),
    ("llama", &[0, 0, 0]),
    ("qwen2", &[0, 0, 0]),
];

#[test]
fn windows_are_proved() {
    for (golden, layers) in PROVED {
        let (model, _) = open_golden(golden).unwrap();
        let found = windows(&model.program, &model.resolved, &model.bindings);
        let of = |layer: &usize, part: &str| {
            found.get(&format!("layers.{layer}.self_attn.cache.{part}")).copied().unwrap_or(0)
        };
        let depth = model.bindings.states.len() / 2;
        let all: Vec<[u64; 2]> = (0..depth).map(|layer| ["k", "v"].map(|part| of(&layer, part))).collect();
        let expected: Vec<[u64; 2]> = layers.iter().map(|window| [*window; 2]).collect();
        assert_eq!(all, expected, "{golden}");
    }
}

const UNCHANGED: &str = "nothing is changed";

/// A change of `mistral.mgraph` or of the prelude, after which a key outside the window counts for something, or might.
const NOT_PROVED: [(&str, &str, &str); 8] = [
    (UNCHANGED, "past", "past"),
    ("the mask lets old keys through", "past & recent(positions, T, window)", "past | recent(positions, T, window)"),
    (
        "only some queries are hidden from",
        "past & recent(positions, T, window)",
        "past & !recent(positions, T, window)",
    ),
    ("a query may see nothing, and then spreads over everything", "past & recent", "!past & recent"),
    ("nothing is hidden", "hide(attention_scores(q, k, scale), visible)", "attention_scores(q, k, scale)"),
    ("what is hidden counts still", "-3.4028234663852886e38", "0.0"),
    (
        "keys are counted from what is held",
        "masked_attention(q, k, v, visible, 1.0",
        "masked_attention(q, k, v, visible & causal(positions, T), 1.0",
    ),
    ("a key is counted by how many there are", "F(softmax(scores))", "F(softmax(scores) / T)"),
];

#[test]
fn what_an_old_key_counts_for_is_no_window() {
    let (model, _) = open_golden("mistral").unwrap();
    let family = include_str!("../models/families/mistral.mgraph");
    let prelude = prelude_sources().get(PRELUDE).text.clone();
    for (what, from, to) in NOT_PROVED {
        assert!(family.contains(from) || prelude.contains(from), "{what}");
        let mut sources = Sources::default();
        sources.add("prelude.mgraph", prelude.replace(from, to));
        let family = sources.add("mistral.mgraph", family.replace(from, to));
        let program = compile(sources, family).unwrap_or_else(|failed| panic!("{what}: {failed}"));
        // The fields are the same, and so are the bindings.
        let found = windows(&program, &model.resolved, &model.bindings);
        assert_eq!(found.is_empty(), what != UNCHANGED, "{what}: {found:?}");
    }
}

fn options(rows: usize, max_chunk: usize, numerics: Numerics) -> SessionOptions {
    SessionOptions { rows, capacity: CAPACITY, max_chunk, dtype: Float::F32, numerics, probes: Probes::Unread }
}

/// A session that keeps windows, and one that keeps everything.
fn both(backend: Backend, model: &Arc<Model>, numerics: Numerics) -> [Box<dyn Session>; 2] {
    // There is nothing to let go of where a chunk is as long as the context.
    [64, CAPACITY].map(|max_chunk| backend::open(backend, model, options(1, max_chunk, numerics)).unwrap())
}

fn token(row: usize, at: usize) -> i32 {
    ((at * 37 + row * 29 + 11) % 90) as i32
}

fn piece(row: usize, start: usize, count: usize) -> Batch {
    Batch::row(&(start..start + count).map(|at| token(row, at)).collect::<Vec<_>>(), start, count).at_row(row)
}

fn apart(x: &Tensor, y: &Tensor) -> f32 {
    assert_eq!(x.shape, y.shape);
    x.to_f32().iter().zip(y.to_f32()).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max)
}

/// Positions that a state of the session has room for.
fn held(session: &mut dyn Session, layer: usize) -> usize {
    session.state(&format!("layers.{layer}.self_attn.cache.k")).unwrap().shape[2]
}

/// The prompt in chunks, then single tokens while the window moves on.
#[test]
fn a_window_gives_what_the_whole_gives() {
    for (golden, backend, numerics) in [
        ("gemma3_text", Backend::Mlx, Numerics::Pinned),
        ("mistral", Backend::Mlx, Numerics::Fused),
        ("gemma3_text", Backend::Iree, Numerics::Pinned),
    ] {
        let (model, _) = open_golden(golden).unwrap();
        let [mut windowed, mut whole] = both(backend, &model, numerics);
        let chunks = (0..4).map(|chunk| (chunk * 64, 64));
        let (mut far, mut differ) = (0f32, 0);
        for (start, count) in chunks.chain((256..336).map(|at| (at, 1))) {
            let [found, expected] = [&mut windowed, &mut whole].map(|s| s.step(&piece(0, start, count), None).unwrap());
            far = far.max(apart(&found, &expected));
            differ += usize::from(found != expected);
        }
        println!("{golden} {backend} {numerics:?}: {differ} calls have other bits, {far:e} apart");
        assert!(far < BOUND, "{golden} {backend}: {far:e}");
        let room = [held(windowed.as_mut(), 0), held(whole.as_mut(), 0)];
        assert!(room[0] <= 192 && room[1] >= 336, "{golden} {backend}: {room:?}");
    }
}

/// A tenth of the noise of the reference on the logits of these checkpoints.
const BOUND: f32 = 2e-6;

/// Rows whose windows begin at different positions, in one call; then one of them forgets.
#[test]
fn rows_have_windows_of_their_own() {
    let (model, _) = open_golden("gemma3_text").unwrap();
    for backend in BACKENDS {
        // Where probes are reported, everything is kept.
        let [mut windowed, mut whole] = [Probes::Unread, Probes::Reported].map(|probes| {
            let options = SessionOptions { probes, ..options(2, 64, Numerics::Pinned) };
            backend::open(backend, &model, options).unwrap()
        });
        let mut same = |batch: Batch, what: &str| {
            let [found, expected] = [&mut windowed, &mut whole].map(|s| s.step(&batch, None).unwrap());
            assert!(apart(&found, &expected) < BOUND, "{backend}: {what}");
        };
        for start in [0, 64, 128] {
            same(piece(0, start, 64), "a row alone");
        }
        same(piece(1, 0, 64), "another row");
        for at in 0..3 {
            let batch = Batch {
                rows: 2,
                width: 1,
                tokens: vec![token(0, 192 + at), token(1, 64 + at)],
                positions: vec![192 + at as i32, 64 + at as i32],
                wanted: vec![0; 2],
                ..Batch::default()
            };
            same(batch, "both");
        }
        let least = windowed.least_kept(0);
        assert!((64..=195).contains(&least) && whole.least_kept(0) == 0, "{backend}: {least}");
        let refused = windowed.forget(0, least - 1).unwrap_err().to_string();
        assert!(refused.contains(&format!("keep {least} or more")), "{refused}");
        for kept in [least, 0] {
            for session in [&mut windowed, &mut whole] {
                session.forget(0, kept).unwrap();
                session.step(&piece(0, kept, 1), None).unwrap();
            }
            let [found, expected] = [&mut windowed, &mut whole].map(|s| s.step(&piece(0, kept + 1, 1), None).unwrap());
            assert!(apart(&found, &expected) < BOUND, "{backend}: after {kept} were kept");
        }
        let beyond = windowed.step(&piece(1, 67, 192), None).unwrap_err().to_string();
        assert!(beyond.contains("wider than the chunks"), "{beyond}");
    }
}

/// Gemma 3 1B's heads and window in 12 layers, 10 of them on the window, of random weights that are narrow besides.
fn long() -> (tempfile::TempDir, Arc<Model>) {
    const HIDDEN: usize = 64;
    const WIDTH: usize = 256;
    let sizes = |name: &str| match name {
        "q_proj.weight" => vec![4 * WIDTH, HIDDEN],
        "k_proj.weight" | "v_proj.weight" => vec![WIDTH, HIDDEN],
        "o_proj.weight" => vec![HIDDEN, 4 * WIDTH],
        "q_norm.weight" | "k_norm.weight" => vec![WIDTH],
        _ => vec![HIDDEN],
    };
    let mut shapes =
        vec![("embed_tokens.weight".to_owned(), vec![90, HIDDEN]), ("norm.weight".to_owned(), vec![HIDDEN])];
    for layer in 0..12 {
        let attention =
            ["q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"].map(|part| format!("{part}.weight"));
        shapes.extend(attention.map(|name| (format!("layers.{layer}.self_attn.{name}"), sizes(&name))));
        for part in ["gate_proj", "up_proj", "down_proj"] {
            shapes.push((format!("layers.{layer}.mlp.{part}.weight"), vec![HIDDEN, HIDDEN]));
        }
        for norm in ["input", "post_attention", "pre_feedforward", "post_feedforward"] {
            shapes.push((format!("layers.{layer}.{norm}_layernorm.weight"), vec![HIDDEN]));
        }
    }
    let tensors: Vec<(String, Tensor)> = shapes
        .into_iter()
        .zip(0..)
        .map(|((name, shape), seed)| {
            let numbers: Vec<f32> = toy::numbers(shape.iter().product(), seed).iter().map(|x| x * 0.05).collect();
            (format!("model.{name}"), Tensor::from_f32(&shape, &numbers))
        })
        .collect();
    let config = serde_json::json!({
        "model_type": "gemma3_text", "hidden_size": HIDDEN, "intermediate_size": HIDDEN, "vocab_size": 90, "num_hidden_layers": 12,
        "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": WIDTH, "sliding_window": 512, "max_position_embeddings": 32768,
    });
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    let views = tensors.iter().map(|(name, tensor)| {
        (
            name,
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, tensor.shape.clone(), &tensor.bytes).unwrap(),
        )
    });
    safetensors::serialize_to_file(views, None, &dir.path().join("model.safetensors")).unwrap();
    let model = Model::open(dir.path(), mgraph_models::FAMILIES).unwrap();
    (dir, model)
}

/// MB of this process that are in memory.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0 / 1e6
}

/// For the book: 8,192 positions, in chunks as `generate` has them. Whoever runs it alone reads what a session takes.
/// `MGRAPH_WHOLE=1` keeps everything, `MGRAPH_BACKEND` is `mlx` or `iree`, `MGRAPH_POSITIONS` another number of positions.
#[test]
#[ignore = "a measurement: a minute, and the memory of its process counts"]
fn what_a_long_context_takes() {
    let (_dir, model) = long();
    let set = |name: &str| std::env::var(name).unwrap_or_default();
    let backend = if set("MGRAPH_BACKEND") == "iree" { Backend::Iree } else { Backend::Mlx };
    let (chunk, capacity) = (128, set("MGRAPH_POSITIONS").parse().unwrap_or(8192));
    let max_chunk = if set("MGRAPH_WHOLE") == "1" { capacity } else { 256 };
    let options = SessionOptions { capacity, ..options(1, max_chunk, Numerics::Fused) };
    let before = resident();
    let mut session = backend::open(backend, &model, options).unwrap();
    for start in (0..capacity - chunk).step_by(chunk) {
        session.step(&piece(0, start, chunk), None).unwrap();
    }
    let full = resident();
    let begun = std::time::Instant::now();
    let steps = 32;
    let logits = (0..steps).map(|at| session.step(&piece(0, capacity - chunk + at, 1), None).unwrap()).last();
    let per_token = begun.elapsed().as_secs_f64() * 1e3 / steps as f64;
    let mut bytes = 0;
    for state in &model.bindings.states {
        bytes += session.state(&state.path).unwrap().bytes.len();
    }
    println!(
        "{backend}: states {:.1} MB, {:.0} MB resident after the prompt (and {before:.0} before), {per_token:.1} ms a token; {:?}",
        bytes as f64 / 1e6,
        full,
        logits.map(|logits| logits.to_f32()[..2].to_vec())
    );
}
