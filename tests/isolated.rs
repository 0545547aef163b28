//! `parity --isolated`: every stage is computed from the reference's values before it, so what is wrong stands alone;
//! cumulative, everything after it diverges too. On all three executors.

use std::{fs, ops::ControlFlow, path::Path, sync::Arc};

use mgraph_dsl::pattern;
use mgraph_runtime::{
    backend::Backend,
    model::Model,
    parity::{self, Golden, Parts, Row, Settings, Verdict, Watch},
    session::{Float, Numerics},
};

const BACKENDS: [Backend; 3] = [Backend::Reference, Backend::Mlx, Backend::Iree];

/// Makes the checkpoint in a folder a wrong one.
type Spoil = fn(&Path);

/// What is wrong with `llama`, and every row that this is the fault of.
const WRONG: &[(&str, Spoil, &[&str])] = &[
    ("the output projection of layer 1 is 1% too large", |dir| output_projection(dir, 1), &["layer.1.attn"]),
    (
        "the epsilon of every norm is 0.01 instead of 0.00001",
        epsilon,
        &["layer.*.attn", "layer.*.mlp", "norm", "cache.layer.*"],
    ),
];

fn output_projection(dir: &Path, layer: usize) {
    let (path, name) = (dir.join("model.safetensors"), format!("model.layers.{layer}.self_attn.o_proj.weight"));
    let mut bytes = fs::read(&path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let weight = file.tensor(&name).unwrap().data();
    let at = weight.as_ptr() as usize - bytes.as_ptr() as usize;
    let within = at..at + weight.len();
    for element in bytes[within].as_chunks_mut::<4>().0 {
        *element = (f32::from_le_bytes(*element) * 1.01).to_le_bytes();
    }
    fs::write(path, bytes).unwrap();
}

fn epsilon(dir: &Path) {
    let path = dir.join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(path, text.replace("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0.01")).unwrap();
}

fn settings(backend: Backend) -> Settings {
    Settings { backend, numerics: Numerics::Pinned, dtype: Float::F32 }
}

/// The rows of a run over the prompt's stages and caches.
fn rows(model: &Arc<Model>, golden: &Golden, backend: Backend, isolated: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut keep = |row: &Row| {
        rows.push(row.clone());
        ControlFlow::Continue(())
    };
    let of_prompt = |stage: &str| !stage.starts_with("decode.") && !stage.starts_with("batch.");
    let mut parts = Parts::start();
    let progress = std::rc::Rc::new(|_: &str| ());
    let watch = Watch { wanted: &of_prompt, progress, on_row: &mut keep, parts: &mut parts };
    let run = if isolated { parity::isolated } else { parity::watched };
    run(model, golden, settings(backend), watch).unwrap();
    rows
}

fn diverged(rows: &[Row]) -> Vec<&str> {
    rows.iter().filter(|row| row.verdict() == Verdict::Diverged).map(|row| row.stage.as_str()).collect()
}

#[test]
fn what_is_wrong_stands_alone() {
    for (what, spoil, guilty) in WRONG {
        let dir = tempfile::tempdir().unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(mgraph_tests::golden_dir("llama").join(file), dir.path().join(file)).unwrap();
        }
        spoil(dir.path());
        let model = Model::open(dir.path(), mgraph_models::FAMILIES).unwrap();
        let (_, golden) = mgraph_tests::open_golden("llama").unwrap();
        let stages = golden.stages();
        let is_guilty = |stage: &str| guilty.iter().any(|glob| pattern::matches(glob, stage));
        let first = stages.iter().position(|stage| is_guilty(stage)).unwrap();
        for backend in BACKENDS {
            let isolated = rows(&model, &golden, backend, true);
            assert_eq!(isolated.len(), 12 + 6, "the prompt's stages and caches: {what} on {backend}");
            let expected: Vec<&str> = isolated.iter().map(|row| &row.stage[..]).filter(|s| is_guilty(s)).collect();
            assert_eq!(diverged(&isolated), expected, "isolated: {what} on {backend}");

            let cumulative = rows(&model, &golden, backend, false);
            let diverged = diverged(&cumulative);
            for (at, stage) in stages.iter().enumerate() {
                assert_eq!(diverged.contains(&&stage[..]), at >= first, "cumulative, {stage}: {what} on {backend}");
            }
        }
    }
}

/// The right families have no guilty stage, and go on from every value of the reference but the lists of experts.
#[test]
fn goldens() {
    let goldens: [(&str, usize, &[&str]); 6] = [
        ("llama", 12 + 6, &[]),
        ("gemma3_text", 23 + 2, &[]),
        ("bailing_moe", 18, &["layer.*.topk_*"]),
        ("molmo2", 47 + 6, &[]),
        ("mllama", 37 + 10, &[]),
        ("qwen2_vl", 23 + 6, &[]),
    ];
    for (name, compared, kept) in goldens {
        let (model, golden) = mgraph_tests::open_golden(name).unwrap();
        for backend in BACKENDS {
            let rows = rows(&model, &golden, backend, true);
            assert_eq!(rows.len(), compared, "{name} on {backend}");
            for row in rows {
                assert!(row.passed(), "{name} on {backend}: {row:?}");
                let expected = kept.iter().any(|glob| pattern::matches(glob, &row.stage));
                assert_eq!(row.kept.is_some(), expected, "{name} on {backend}: {row:?}");
            }
        }
    }
}
