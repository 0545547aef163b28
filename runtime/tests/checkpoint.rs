//! Model directories, good and bad: everything wrong is reported at once, by a sentence with the file's path.

use std::collections::BTreeMap;
use std::path::Path;

use mgraph_runtime::checkpoint::{Checkpoint, CheckpointError, Dtype, Problem};
use mgraph_runtime::tokenizer::{Tokenizer, TokenizerError};
use safetensors::tensor::TensorView;
use serde_json::json;
use tempfile::TempDir;

fn write(dir: &Path, file: &str, text: &str) {
    std::fs::write(dir.join(file), text).expect("written");
}

/// A shard of f32 vectors of two elements.
fn shard(dir: &Path, file: &str, names: &[&str]) {
    let data: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, vec![2], &data).expect("a tensor");
    let tensors: BTreeMap<&str, TensorView<'_>> = names.iter().map(|name| (*name, view.clone())).collect();
    safetensors::serialize_to_file(tensors, None, &dir.join(file)).expect("written");
}

fn index(dir: &Path, map: &[(&str, &str)]) {
    let map: BTreeMap<_, _> = map.iter().copied().collect();
    write(dir, "model.safetensors.index.json", &json!({"weight_map": map}).to_string());
}

/// Two shards with an index that is right.
fn sharded() -> TempDir {
    let temp = TempDir::new().expect("a directory");
    write(temp.path(), "config.json", "{\"z\": 1, \"a\": 2}");
    shard(temp.path(), "one.safetensors", &["a", "b"]);
    shard(temp.path(), "two.safetensors", &["c"]);
    index(temp.path(), &[("a", "one.safetensors"), ("b", "one.safetensors"), ("c", "two.safetensors")]);
    temp
}

fn refusal(dir: &Path) -> CheckpointError {
    Checkpoint::open(dir).expect_err("must be refused")
}

#[test]
fn tensors_are_found_by_name_over_shards() {
    let temp = sharded();
    let checkpoint = Checkpoint::open(temp.path()).expect("opens");
    assert_eq!(
        checkpoint.config().as_object().map(|config| config.keys().cloned().collect()),
        Some(vec!["z".to_owned(), "a".to_owned()])
    );
    assert_eq!(checkpoint.tensors().keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(checkpoint.tensors()["c"].shape, [2]);
    assert_eq!(checkpoint.to_f32("c").expect("floats"), [1.5, -2.0]);
    assert_eq!(checkpoint.to_f64("b").expect("floats"), [1.5, -2.0]);
    assert_eq!(checkpoint.total_bytes(), 24);
    checkpoint.release("a").expect("there");
    assert_eq!(checkpoint.bytes("a").expect("still there").len(), 8);
    let missing = checkpoint.bytes("d").expect_err("not there").to_string();
    assert!(missing.contains("holds no tensor `d`"), "{missing}");
}

#[test]
fn halves_widen_exactly_and_codes_are_refused() {
    let temp = TempDir::new().expect("a directory");
    write(temp.path(), "config.json", "{}");
    // One byte first, so that what follows lies unaligned.
    let halves: Vec<u8> = [half::f16::from_f32(0.1).to_le_bytes(), half::bf16::from_f32(0.1).to_le_bytes()].concat();
    let codes = [7u8; 3];
    let tensors = BTreeMap::from([
        ("codes", TensorView::new(Dtype::U8, vec![3], &codes).expect("a tensor")),
        ("f16", TensorView::new(Dtype::F16, vec![1], &halves[..2]).expect("a tensor")),
        ("bf16", TensorView::new(Dtype::BF16, vec![1], &halves[2..]).expect("a tensor")),
    ]);
    safetensors::serialize_to_file(tensors, None, &temp.path().join("model.safetensors")).expect("written");
    let checkpoint = Checkpoint::open(temp.path()).expect("opens");
    assert_eq!(checkpoint.to_f32("f16").expect("floats"), [half::f16::from_f32(0.1).to_f32()]);
    assert_eq!(checkpoint.to_f64("bf16").expect("floats"), [half::bf16::from_f32(0.1).to_f64()]);
    assert!(checkpoint.to_f32("codes").expect_err("codes").to_string().contains("stored as U8"));
}

#[test]
fn an_empty_directory_lacks_config_and_weights() {
    let temp = TempDir::new().expect("a directory");
    let text = refusal(temp.path()).to_string();
    assert!(text.contains("for 2 reasons") && text.contains("no config.json") && text.contains("neither"), "{text}");
    write(temp.path(), "config.json", "[1]");
    write(temp.path(), "model.gguf", "");
    let text = refusal(temp.path()).to_string();
    assert!(text.contains("is not a JSON object") && text.contains("mlxcel import model.gguf"), "{text}");
}

#[test]
fn missing_and_truncated_shards_are_told_together() {
    let temp = sharded();
    std::fs::remove_file(temp.path().join("one.safetensors")).expect("removed");
    let two = std::fs::read(temp.path().join("two.safetensors")).expect("read");
    std::fs::write(temp.path().join("two.safetensors"), &two[..two.len() - 1]).expect("written");
    let error = refusal(temp.path());
    let need = two.len() as u64;
    assert_eq!(
        error.problems,
        [
            Problem::MissingShard(temp.path().join("one.safetensors")),
            Problem::Truncated { path: temp.path().join("two.safetensors"), need, have: need - 1 },
        ]
    );
    let text = error.to_string();
    assert!(text.contains("one.safetensors is named by the index but does not exist"), "{text}");
    assert!(text.contains("two.safetensors is truncated"), "{text}");
}

#[test]
fn a_shard_cut_or_damaged_anywhere_is_refused() {
    let temp = TempDir::new().expect("a directory");
    write(temp.path(), "config.json", "{}");
    shard(temp.path(), "model.safetensors", &["a", "b"]);
    let path = temp.path().join("model.safetensors");
    let whole = std::fs::read(&path).expect("read");
    for end in 0..whole.len() {
        std::fs::write(&path, &whole[..end]).expect("written");
        assert!(refusal(temp.path()).to_string().contains("model.safetensors"), "cut at {end}");
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&path, bytes).expect("written");
        // Damage in the values themselves cannot be seen; anything else must be an error, never a panic.
        let _ = Checkpoint::open(temp.path());
    }
    std::fs::write(&path, [u64::MAX.to_le_bytes().as_slice(), b"{}"].concat()).expect("written");
    assert!(refusal(temp.path()).to_string().contains("claims a header"));
    std::fs::write(&path, [whole.as_slice(), b"x"].concat()).expect("written");
    assert!(refusal(temp.path()).to_string().contains("1 bytes at its end"));
}

#[test]
fn a_stale_index_is_refused_with_every_disagreement() {
    let temp = sharded();
    index(temp.path(), &[("a", "one.safetensors"), ("b", "two.safetensors"), ("gone", "two.safetensors")]);
    let text = refusal(temp.path()).to_string();
    for part in [
        "`b` is listed for two.safetensors, which does not hold it",
        "`b` is held by one.safetensors but listed for two.safetensors",
        "`gone` is listed for two.safetensors, which does not hold it",
        "`c` is held by two.safetensors but not listed",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn duplicates_and_two_sources_are_refused() {
    let temp = sharded();
    shard(temp.path(), "two.safetensors", &["b", "c"]);
    assert!(
        refusal(temp.path()).to_string().contains("`b` is stored twice, in one.safetensors and in two.safetensors")
    );
    let temp = sharded();
    shard(temp.path(), "model.safetensors", &["a"]);
    assert!(refusal(temp.path()).to_string().contains("unclear which"));
}

#[test]
fn an_index_cannot_reach_outside_its_directory() {
    let temp = sharded();
    index(temp.path(), &[("a", "../one.safetensors")]);
    assert!(refusal(temp.path()).to_string().contains("no plain file name"));
    write(temp.path(), "model.safetensors.index.json", "{}");
    assert!(refusal(temp.path()).to_string().contains("weight_map"));
}

#[test]
fn a_directory_without_tokenizer_says_what_to_do() {
    let temp = sharded();
    let error = Tokenizer::open(temp.path()).expect_err("no tokenizer");
    assert!(
        matches!(error, TokenizerError::Missing(_)) && error.to_string().contains("copy it from the original model")
    );
    write(temp.path(), "tokenizer.json", "{\"model\": 3}");
    assert!(Tokenizer::open(temp.path()).expect_err("no tokenizer").to_string().contains("tokenizer.json"));
}
