//! SmolLM3 beside `transformers` on every executor: all stages, caches, eight greedy steps and a padded batch, each element
//! within ten times the oracle's own rounding noise plus 1e-6 of the size of the values, tokens exactly (`golden/README.md`).

use std::{fs, path::Path, process::Command};

use mgraph_runtime::{
    backend::Backend,
    error::Result,
    model::Model,
    parity::{self, Golden, Settings},
    session::{Float, Numerics},
};
use own_family::FAMILIES;
use serde_json::{Map, Value, json};

fn golden_dir() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/golden"))
}

fn agrees(backend: Backend, numerics: Numerics) {
    let model = Model::open(golden_dir(), FAMILIES).unwrap();
    let golden = Golden::open(&golden_dir().join("golden.safetensors")).unwrap();
    let mut stages = 0;
    let mut failed = Vec::new();
    let settings = Settings { backend, numerics, dtype: Float::F32 };
    let passed = parity::run(&model, &golden, settings, &mut |row| {
        stages += 1;
        if !row.passed() {
            failed.push(format!("{row:?}"));
        }
    })
    .unwrap();
    assert!(passed, "{backend}:\n{}", failed.join("\n"));
    // 15 stages, 8 cache tensors, decode.logits, batch.logits: a run that compares less is no pass.
    assert_eq!(stages, 25, "{backend}");
}

#[test]
fn reference() {
    agrees(Backend::Reference, Numerics::Pinned);
}

#[test]
fn mlx() {
    agrees(Backend::Mlx, Numerics::Pinned);
    agrees(Backend::Mlx, Numerics::Fused);
}

#[test]
fn iree() {
    agrees(Backend::Iree, Numerics::Pinned);
    agrees(Backend::Iree, Numerics::Fused);
}

/// Which layers turn, by a config that differs from the golden's.
fn turns(edit: impl FnOnce(&mut Map<String, Value>)) -> Result<String> {
    let dir = tempfile::tempdir()?;
    let mut config = serde_json::from_str(&fs::read_to_string(golden_dir().join("config.json"))?)?;
    edit(&mut config);
    fs::write(dir.path().join("config.json"), serde_json::to_string(&config)?)?;
    fs::copy(golden_dir().join("model.safetensors"), dir.path().join("model.safetensors"))?;
    let model = Model::open(dir.path(), FAMILIES)?;
    Ok(model.resolved.named("turns").map(|list| list.to_string()).unwrap_or_default())
}

#[test]
fn layers_without_rope_are_listed_or_counted_or_every_fourth() {
    assert_eq!(turns(|_| ()).unwrap(), "[1, 1, 0, 1]");
    let counted = |c: &mut Map<String, Value>| {
        c.remove("no_rope_layers");
        c["no_rope_layer_interval"] = json!(2);
    };
    assert_eq!(turns(counted).unwrap(), "[1, 0, 1, 0]");
    let neither = |c: &mut Map<String, Value>| c.retain(|key, _| !key.starts_with("no_rope"));
    assert_eq!(turns(neither).unwrap(), "[1, 1, 1, 0]");
}

#[test]
fn configs_it_would_get_wrong_are_refused() {
    let refused = |key: &str, value: Value| turns(|c| c[key] = value).unwrap_err().to_string();
    for (key, value) in [("use_sliding_window", json!(true)), ("rope_scaling", json!({ "rope_type": "yarn" }))] {
        let message = refused(key, value);
        assert!(message.contains("config.json") && message.contains(key), "{message}");
    }
    let message = refused("no_rope_layers", json!([1, 0]));
    assert!(message.contains("turns"), "{message}");
}

#[test]
fn the_binary_serves_our_family_and_those_of_mgraph() {
    let theirs = golden_dir().join("../../../tests/goldens/llama");
    for dir in [golden_dir(), &theirs] {
        let output = Command::new(env!("CARGO_BIN_EXE_own-family"))
            .args(["parity", "--a", "reference", "--model"])
            .arg(dir)
            .arg("--ref")
            .arg(dir.join("golden.safetensors"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
