//! Wrong input through the command line: exit code 2, a sentence that says what and where, and never a panic.
//! Each case takes a good checkpoint (the llama golden with a word tokenizer), spoils one thing, and names what the
//! message must say.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/llama")
}

/// A checkpoint that works, to be spoiled.
fn checkpoint() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden().join(file), dir.path().join(file)).unwrap();
    }
    let vocab: serde_json::Map<String, Value> = (0..131).map(|i| (format!("w{i}"), json!(i))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": vocab, "unk_token": "w0" },
    });
    fs::write(dir.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    dir
}

fn mlxcel(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mlxcel")).args(arguments).output().unwrap()
}

fn generate(dir: &Path, more: &[&str]) -> Output {
    let dir = dir.to_str().unwrap();
    let arguments = ["generate", "--model", dir, "--backend", "reference", "--prompt", "w5 w6 w7", "--max-tokens", "4"];
    mlxcel(&[&arguments, more].concat())
}

#[track_caller]
fn refused(output: Output, says: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    for part in says {
        assert!(text.contains(part), "expected {part:?} in:\n{text}");
    }
}

fn edit_config(dir: &Path, edit: impl FnOnce(&mut Value)) {
    let path = dir.join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    edit(&mut config);
    fs::write(path, config.to_string()).unwrap();
}

/// Rewrites the weights; `edit` may change, drop (`None`) or keep each tensor.
fn edit_weights(dir: &Path, edit: impl Fn(&str, (Dtype, Vec<usize>, Vec<u8>)) -> Option<(Dtype, Vec<usize>, Vec<u8>)>) {
    let path = dir.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let edited: Vec<(String, (Dtype, Vec<usize>, Vec<u8>))> = file
        .iter()
        .filter_map(|(name, v)| {
            Some((name.to_owned(), edit(name, (v.dtype(), v.shape().to_vec(), v.data().to_vec()))?))
        })
        .collect();
    let views = edited.iter().map(|(n, (d, s, b))| (n.clone(), TensorView::new(*d, s.clone(), b).unwrap()));
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn the_unspoiled_checkpoint_runs() {
    let dir = checkpoint();
    let output = generate(dir.path(), &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn no_such_directory() {
    refused(generate(Path::new("no/such/model"), &[]), &["no/such/model"]);
}

#[test]
fn config_is_not_json() {
    let dir = checkpoint();
    fs::write(dir.path().join("config.json"), "{ nope").unwrap();
    refused(generate(dir.path(), &[]), &["config.json"]);
}

#[test]
fn unknown_model_type_lists_the_known_ones() {
    let dir = checkpoint();
    edit_config(dir.path(), |c| {
        c["model_type"] = json!("lama");
        c["architectures"] = json!(["LamaForCausalLM"]);
    });
    refused(generate(dir.path(), &[]), &["config.json", "lama", "llama"]);
}

#[test]
fn unknown_activation_names_field_file_value_and_what_is_accepted() {
    let dir = checkpoint();
    edit_config(dir.path(), |c| c["hidden_act"] = json!("gelu"));
    refused(generate(dir.path(), &[]), &["config.json", "hidden_act", "gelu", "silu"]);
}

#[test]
fn zero_layers() {
    let dir = checkpoint();
    edit_config(dir.path(), |c| c["num_hidden_layers"] = json!(0));
    refused(generate(dir.path(), &[]), &["config.json", "num_hidden_layers", "0", "positive"]);
}

#[test]
fn several_config_faults_are_reported_at_once() {
    let dir = checkpoint();
    edit_config(dir.path(), |c| {
        c["hidden_act"] = json!("gelu");
        c["rms_norm_eps"] = json!("small");
        c.as_object_mut().unwrap().remove("vocab_size");
    });
    refused(generate(dir.path(), &[]), &["hidden_act", "rms_norm_eps", "vocab_size"]);
}

#[test]
fn missing_shard() {
    let dir = checkpoint();
    fs::rename(dir.path().join("model.safetensors"), dir.path().join("model-00001-of-00002.safetensors")).unwrap();
    let index = json!({ "weight_map": {
        "model.norm.weight": "model-00001-of-00002.safetensors",
        "model.embed_tokens.weight": "model-00002-of-00002.safetensors",
    }});
    fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    refused(generate(dir.path(), &[]), &["model-00002-of-00002.safetensors"]);
}

#[test]
fn truncated_shard() {
    let dir = checkpoint();
    let path = dir.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    refused(generate(dir.path(), &[]), &["model.safetensors", "truncated"]);
}

#[test]
fn wrong_shape_and_missing_and_unclaimed_tensors_are_reported_at_once() {
    let dir = checkpoint();
    edit_weights(dir.path(), |name, (dtype, shape, bytes)| match name {
        "model.norm.weight" => Some((dtype, vec![48, 2], bytes)),
        "model.layers.1.mlp.up_proj.weight" => None,
        _ => Some((dtype, shape, bytes)),
    });
    refused(generate(dir.path(), &[]), &["model.norm.weight", "96", "[48, 2]", "model.layers.1.mlp.up_proj.weight"]);
}

#[test]
fn wrong_dtype() {
    let dir = checkpoint();
    edit_weights(dir.path(), |name, (dtype, shape, bytes)| match name {
        "model.norm.weight" => Some((Dtype::I32, shape, bytes)),
        _ => Some((dtype, shape, bytes)),
    });
    refused(generate(dir.path(), &[]), &["model.norm.weight", "i32", "float"]);
}

#[test]
fn no_tokenizer() {
    let dir = checkpoint();
    fs::remove_file(dir.path().join("tokenizer.json")).unwrap();
    refused(generate(dir.path(), &[]), &["tokenizer.json"]);
}

#[test]
fn a_prompt_longer_than_the_context_names_the_knob() {
    let dir = checkpoint();
    refused(generate(dir.path(), &["--ctx-size", "4"]), &["3 tokens", "--ctx-size"]);
}

#[test]
fn more_positions_than_the_model_was_made_for() {
    let dir = checkpoint();
    refused(generate(dir.path(), &["--ctx-size", "100000"]), &["max_position_embeddings", "256"]);
}

#[test]
fn flags_out_of_range() {
    let dir = checkpoint();
    refused(generate(dir.path(), &["--temperature", "-1"]), &["temperature"]);
    refused(generate(dir.path(), &["--top-p", "0"]), &["top-p"]);
    let model = dir.path().to_str().unwrap();
    let cuda = mlxcel(&["generate", "--model", model, "--backend", "cuda", "--prompt", "w1"]);
    refused(cuda, &["cuda", "mlx", "iree", "reference"]);
}

#[test]
fn corrupt_gguf() {
    let dir = tempfile::tempdir().unwrap();
    let gguf = dir.path().join("bad.gguf");
    fs::write(&gguf, b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff").unwrap();
    let out = dir.path().join("out");
    refused(mlxcel(&["import", gguf.to_str().unwrap(), out.to_str().unwrap()]), &["bad.gguf"]);
    assert!(!out.exists(), "a failed import leaves nothing behind");
    fs::write(&gguf, b"hello").unwrap();
    refused(mlxcel(&["import", gguf.to_str().unwrap(), out.to_str().unwrap()]), &["bad.gguf", "GGUF"]);
}

#[test]
fn parity_without_reference_numbers() {
    let dir = checkpoint();
    let model = dir.path().to_str().unwrap();
    let missing = dir.path().join("golden.safetensors");
    let weights = dir.path().join("model.safetensors");
    for reference in [&missing, &weights] {
        let reference = reference.to_str().unwrap();
        refused(mlxcel(&["parity", "--model", model, "--a", "reference", "--ref", reference]), &[reference]);
    }
}
