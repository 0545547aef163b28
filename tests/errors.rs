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

fn generate_tokens(dir: &Path, count: &str) -> Output {
    let dir = dir.to_str().unwrap();
    let prompt = ["--prompt", "w5 w6 w7", "--max-tokens", count];
    mlxcel(&[&["generate", "--model", dir, "--backend", "reference"], &prompt[..]].concat())
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

type Stored = (Dtype, Vec<usize>, Vec<u8>);

/// Rewrites the weights; `edit` may change, drop (`None`) or keep each tensor.
fn edit_weights(dir: &Path, edit: impl Fn(&str, Stored) -> Option<Stored>) {
    let path = dir.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let edited: Vec<(String, Stored)> = file
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
fn a_file_in_place_of_a_directory_is_told_what_to_do() {
    let dir = checkpoint();
    refused(generate(&dir.path().join("config.json"), &[]), &["it is a file", "config.json"]);
    let gguf = dir.path().join("model.gguf");
    fs::write(&gguf, b"GGUF").unwrap();
    refused(generate(&gguf, &[]), &["mlxcel import", "model.gguf"]);
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
fn absurdly_many_layers_end_in_a_short_error() {
    let dir = checkpoint();
    edit_config(dir.path(), |c| c["num_hidden_layers"] = json!(1u64 << 40));
    let output = generate(dir.path(), &[]);
    assert!(output.stderr.len() < 1 << 16, "{} bytes of error", output.stderr.len());
    refused(output, &["model.layers.3.input_layernorm.weight", "more of these kinds"]);
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

/// MLX would read past its table, and IREE would clamp.
#[test]
fn tokens_outside_the_vocabulary_are_refused() {
    let dir = checkpoint();
    let path = dir.path().join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    tokenizer["model"]["vocab"]["near"] = json!(131);
    tokenizer["model"]["vocab"]["far"] = json!(u32::MAX - 7);
    fs::write(&path, tokenizer.to_string()).unwrap();
    for backend in ["mlx", "reference"] {
        for word in ["near", "far"] {
            let model = dir.path().to_str().unwrap();
            let output = mlxcel(&["generate", "--model", model, "--backend", backend, "--prompt", word]);
            refused(output, &["vocabulary of 131", "tokenizer"]);
        }
    }
}

#[test]
fn a_prompt_longer_than_the_context_names_the_knob() {
    let dir = checkpoint();
    refused(generate(dir.path(), &["--ctx-size", "4"]), &["3 tokens", "--ctx-size"]);
}

#[test]
fn a_run_may_fill_the_model_to_its_last_position() {
    let dir = checkpoint();
    let full = generate_tokens(dir.path(), "254");
    assert!(full.status.success(), "{}", String::from_utf8_lossy(&full.stderr));
    refused(generate_tokens(dir.path(), "255"), &["257 positions", "256"]);
}

#[test]
fn more_positions_than_the_model_was_made_for() {
    let dir = checkpoint();
    refused(generate(dir.path(), &["--ctx-size", "100000"]), &["max_position_embeddings", "256"]);
    let path = dir.path().join("config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config["max_position_embeddings"] = json!("256");
    fs::write(&path, config.to_string()).unwrap();
    refused(
        generate(dir.path(), &[]),
        &["config.json", "\"max_position_embeddings\" is \"256\"; expected a positive integer"],
    );
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

/// A golden with some tensors of the llama golden.
fn part_of_the_golden(dir: &Path, keep: impl Fn(&str) -> bool) -> PathBuf {
    let bytes = fs::read(golden().join("golden.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let path = dir.join("part.safetensors");
    let kept = file.iter().filter(|(name, _)| keep(name)).map(|(name, view)| (name.to_owned(), view));
    fs::write(&path, safetensors::serialize(kept, None).unwrap()).unwrap();
    path
}

#[test]
fn parity_with_nothing_to_compare_does_not_pass() {
    let dir = checkpoint();
    let part = part_of_the_golden(dir.path(), |name| name == "input.input_ids");
    let (model, part) = (dir.path().to_str().unwrap(), part.to_str().unwrap());
    refused(mlxcel(&["parity", "--model", model, "--a", "reference", "--ref", part]), &["part.safetensors", "compare"]);
}

#[cfg(unix)]
#[test]
fn a_closed_output_is_no_panic() {
    let golden = golden();
    let reference = golden.join("golden.safetensors");
    let (model, reference) = (golden.to_str().unwrap(), reference.to_str().unwrap());
    let closed = || std::io::pipe().unwrap().1;
    let parity = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .args(["parity", "--model", model, "--a", "reference", "--ref", reference])
        .stdout(closed())
        .output()
        .unwrap();
    refused(parity, &["standard output"]);
    let dir = checkpoint();
    let generate = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .args(["generate", "--model", dir.path().to_str().unwrap(), "--backend", "reference", "--prompt", "w5"])
        .args(["--max-tokens", "2"])
        .stderr(closed())
        .output()
        .unwrap();
    assert_eq!(generate.status.code(), Some(0));
}

/// The smallest wrong variant that the golden's notes list: `rms_norm_eps` of 1e-6 for 1e-5.
#[test]
fn parity_exits_with_1_where_a_stage_diverges_and_0_where_none_does() {
    let dir = checkpoint();
    let (model, reference) = (dir.path().to_str().unwrap(), golden().join("golden.safetensors"));
    let parity = || mlxcel(&["parity", "--model", model, "--a", "reference", "--ref", reference.to_str().unwrap()]);
    let faithful = parity();
    assert_eq!(faithful.status.code(), Some(0), "{}", String::from_utf8_lossy(&faithful.stdout));
    edit_config(dir.path(), |c| c["rms_norm_eps"] = json!(1e-6));
    let diverged = parity();
    let table = String::from_utf8_lossy(&diverged.stdout);
    assert_eq!(diverged.status.code(), Some(1), "{table}");
    assert!(table.contains("DIVERGED"), "{table}");
}

#[test]
fn parity_stops_at_the_first_divergence_and_names_its_line() {
    let dir = checkpoint();
    edit_config(dir.path(), |c| c["rms_norm_eps"] = json!(1e-6));
    let (model, reference) = (dir.path().to_str().unwrap(), golden().join("golden.safetensors"));
    let file = dir.path().join("report.json");
    let line = ["parity", "--model", model, "--a", "reference", "--ref", reference.to_str().unwrap()];
    let stopped = mlxcel(&[&line[..], &["--json", file.to_str().unwrap()]].concat());
    let table = String::from_utf8_lossy(&stopped.stdout);
    assert_eq!((stopped.status.code(), table.matches("DIVERGED").count()), (Some(1), 1), "{table}");
    assert!(table.contains("llama.mgraph:"), "{table}");
    let report: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!((&rows[0]["stage"], &rows[0]["verdict"]), (&json!("embed"), &json!("within")));
    let last = rows.last().unwrap();
    assert_eq!((&last["stage"], &last["verdict"]), (&json!("layer.0.attn"), &json!("diverged")));
    assert!(last["difference"]["worst"]["a_bits"].as_str().unwrap().starts_with("0x"));
    let family = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/families/llama.mgraph"));
    let place = family.unwrap().lines().position(|line| line.contains("@ \"layer.{i}.attn\"")).unwrap() + 1;
    assert!(last["source"].as_str().unwrap().ends_with(&format!("llama.mgraph:{place}")), "{last}");

    let all = mlxcel(&[&line[..], &["--all"]].concat());
    assert!(String::from_utf8_lossy(&all.stdout).matches("DIVERGED").count() > 1);
    let before = mlxcel(&[&line[..], &["--stages", "emb*"]].concat());
    assert_eq!(before.status.code(), Some(0), "{}", String::from_utf8_lossy(&before.stdout));
    refused(mlxcel(&[&line[..], &["--stages", "layer.*.atn"]].concat()), &["--stages", "layer.0.attn"]);
    refused(mlxcel(&[&line[..], &["--input", "5"]].concat()), &["golden.safetensors", "--input"]);
}

/// The first executor's rows are there before the second begins, though nobody's terminal is at the other end.
#[test]
fn parity_says_each_row_when_it_is_known() {
    use std::io::Read;

    let dir = checkpoint();
    let (mut from, to) = std::io::pipe().unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_mlxcel"));
    run.args(["parity", "--model", dir.path().to_str().unwrap(), "--a", "mlx", "--b", "reference", "--ref"])
        .arg(golden().join("golden.safetensors"))
        .stdout(to.try_clone().unwrap())
        .stderr(to);
    let mut child = run.spawn().unwrap();
    drop(run);
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what:?} in:\n{text}"));
    assert!(place("\nembed ") < place("greedy steps (mlx)"), "{text}");
    assert!(place("\ndecode.logits ") < place("padded batch (mlx)"), "{text}");
    assert!(place("\nbatch.logits ") < place("loading weights (reference)"), "{text}");
}

/// Nothing is compiled in advance here, so that each kind of work lasts longer than the silence.
#[test]
fn parity_gives_signs_of_life() {
    let dir = checkpoint();
    let output = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .args(["parity", "--model", dir.path().to_str().unwrap(), "--a", "iree", "--heartbeat", "1", "--ref"])
        .arg(golden().join("golden.safetensors"))
        .env("MLXCEL_CACHE", dir.path().join("cache"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let graph = "step of 1 x 12 tokens over 128 positions";
    for work in ["loading weights (iree)", &format!("compiling {graph}"), "running 8 greedy steps (iree)"] {
        assert!(said.contains(&format!("still {work}, for ")), "{work}: {said}");
    }
    for work in ["loading the weights of", "running"] {
        assert!(said.contains(&format!("{work} {graph}\n")), "{said}");
    }
}

/// What does not depend on the machine's GPU: MLX is told to leave TF32 alone, or refuses to run.
#[test]
fn parity_holds_tf32_off() {
    let dir = checkpoint();
    let run = |variable: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlxcel"));
        command.args(["parity", "--model", dir.path().to_str().unwrap(), "--a", "mlx", "--stages", "embed", "--ref"]);
        command.arg(golden().join("golden.safetensors")).args(["--json", dir.path().join("a.json").to_str().unwrap()]);
        command.envs(variable.map(|value| ("MLX_ENABLE_TF32", value)));
        command.output().unwrap()
    };
    for variable in [None, Some("0")] {
        assert_eq!(run(variable).status.code(), Some(0));
        let report: Value = serde_json::from_str(&fs::read_to_string(dir.path().join("a.json")).unwrap()).unwrap();
        assert_eq!(report["flags"]["environment"]["MLX_ENABLE_TF32"], json!("0"));
        assert_eq!((&report["family"]["tf32"], &report["exit"]["code"]), (&json!("forbid"), &json!(0)));
        let versions = ["mlxcel", "mlx", "mlx_c", "iree_runtime"].map(|name| report["versions"][name].is_string());
        assert_eq!(versions, [true; 4], "{report}");
    }
    refused(run(Some("1")), &["llama forbids TF32", "MLX_ENABLE_TF32=1"]);
    let report: Value = serde_json::from_str(&fs::read_to_string(dir.path().join("a.json")).unwrap()).unwrap();
    assert_eq!((&report["exit"]["code"], &report["exit"]["verdict"]), (&json!(2), &json!("could not run")));
}

#[test]
fn parity_reports_that_cannot_be_written() {
    let dir = checkpoint();
    let golden = golden().join("golden.safetensors");
    let line = ["parity", "--model", dir.path().to_str().unwrap(), "--a", "mlx", "--stages", "embed"];
    let line = [&line[..], &["--ref", golden.to_str().unwrap()]].concat();
    for flag in ["--json", "--html"] {
        let missing = mlxcel(&[&line[..], &[flag, "missing/report"]].concat());
        assert_eq!(missing.stdout, b"", "found before the work begins");
        refused(missing, &["missing/report"]);
        refused(mlxcel(&[&line[..], &[flag, dir.path().to_str().unwrap()]].concat()), &[dir.path().to_str().unwrap()]);
        if cfg!(target_os = "linux") {
            let full = mlxcel(&[&line[..], &[flag, "/dev/full"]].concat());
            assert!(String::from_utf8_lossy(&full.stdout).contains("embed"), "the table does not depend on it");
            refused(full, &["/dev/full", "space"]);
        }
    }
    for (wrong, says) in [
        (&["--heat"][..], "--heat"),
        (&["--dtype", "f8"], "bf16"),
        (&["--numerics", "loose"], "pinned"),
        (&["--html"], "--html"),
    ] {
        refused(mlxcel(&[&line[..], wrong].concat()), &[says]);
    }
}

#[test]
fn parity_of_two_executors() {
    let dir = checkpoint();
    let model = dir.path().to_str().unwrap();
    let line = ["parity", "--model", model, "--a", "mlx"];
    for against in [&["--b", "reference"][..], &["--ref", "reference"]] {
        for input in ["5,6,7", "w5 w6 w7"] {
            let output = mlxcel(&[&line[..], against, &["--input", input]].concat());
            let (table, notes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.status.code(), Some(0), "{table}{notes}");
            assert!(
                table.contains("layer.2.mlp") && table.contains("state.") && table.contains("decode.logits"),
                "{table}"
            );
            assert!(table.contains("no bound") && notes.contains("have no verdict"), "{table}{notes}");
        }
    }
    let (golden, report) = (golden().join("golden.safetensors"), dir.path().join("report.json"));
    let more = ["--b", "reference", "--json", report.to_str().unwrap(), "--input", golden.to_str().unwrap()];
    assert_eq!(mlxcel(&[&line[..], &more].concat()).status.code(), Some(0));
    let report: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    let states = report["rows"].as_array().unwrap().iter().filter(|row| {
        row["stage"].as_str().is_some_and(|stage| stage.starts_with("state."))
            && row["bound"]["basis"] == json!("noise")
    });
    assert_eq!(states.count(), 6, "a state is bound as the cache that it is: {report}");

    refused(mlxcel(&[&line[..], &["--b", "iree"]].concat()), &["--input"]);
    refused(mlxcel(&line), &["--b", "--ref"]);
    refused(mlxcel(&[&line[..], &["--b", "iree", "--input", "131"]].concat()), &["vocabulary of 131"]);
    refused(mlxcel(&[&line[..], &["--b", "iree", "--input", " "]].concat()), &["--input has no tokens"]);
}

/// IREE's compiler would end the process, with the exit code of a divergence or by a signal.
#[test]
fn no_room_for_temporary_files() {
    let dir = checkpoint();
    let model = dir.path().to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .args(["generate", "--model", model, "--backend", "iree", "--prompt", "w1"])
        .env("MLXCEL_CACHE", dir.path().join("cache"))
        .env("TMPDIR", dir.path().join("none"))
        .output()
        .unwrap();
    refused(output, &["temporary files", "none, which does not take", "TMPDIR"]);
}

#[test]
fn limits_are_those_of_the_family() {
    let dir = checkpoint();
    refused(
        generate(dir.path(), &["--limit", "pictures=2"]),
        &["there is no limit `pictures`", "this family has none"],
    );
    refused(generate(dir.path(), &["--limit", "pictures"]), &["--limit", "NAME=N"]);
    refused(generate(dir.path(), &["--limit", "a=1", "--limit", "a=2"]), &["--limit a is given twice"]);
}

#[test]
fn tools_share_the_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name).display().to_string()
    };
    let wrong = file("wrong.mgraph", "family toy for \"toy\"\n");
    let ragged = file("ragged.mgraph", "family   toy for \"toy\"\n");
    let llama = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/families/llama.mgraph").display().to_string();
    for (line, code) in [
        (&["check", &llama][..], 0),
        (&["check", &wrong], 1),
        (&["fmt", "--check", &ragged], 1),
        (&["fmt", "--check", &llama], 0),
        (&["explain", "mg0101"], 0),
    ] {
        let output = mlxcel(line);
        assert_eq!(output.status.code(), Some(code), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    refused(mlxcel(&["check", "no/such.mgraph"]), &["no/such.mgraph"]);
    refused(mlxcel(&["expand", &wrong, "--backend", "ir"]), &["1 mistake", "the family has no `model`"]);
    refused(mlxcel(&["graph", &llama, "-o", "x.jpg"]), &[".svg"]);
    refused(mlxcel(&["explain", "mg9999"]), &["mg9999"]);
    refused(mlxcel(&["new", "family", "Pocket"]), &["small letters"]);
}

#[test]
fn config_shows_where_values_come_from() {
    let output = mlxcel(&["config", golden().to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in ["family llama", "key \"vocab_size\"", "absent: scaling == \"llama3\" does not hold", "computed, "] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let output = mlxcel(&["config", "--json", golden().join("config.json").to_str().unwrap()]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let vocab = object["settings"].as_array().unwrap().iter().find(|row| row["name"] == "vocab").unwrap();
    assert_eq!((&vocab["value"], &vocab["key"]), (&json!(131), &json!("vocab_size")));
}

#[test]
fn config_lists_what_nobody_read() {
    let dir = checkpoint();
    edit_config(dir.path(), |c| {
        c["eos_token_id"] = json!(2);
        c["hidden_sizes"] = json!(8);
        c["rope_scaling"] = json!({ "factor": 8.0 });
    });
    // Some editors begin a file with a byte order mark.
    let path = dir.path().join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("\u{feff}{text}")).unwrap();
    let output = mlxcel(&["config", dir.path().to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout);
    let unread = text.split_once("not read:").map(|(_, keys)| keys).unwrap_or_default();
    assert!(unread.contains("hidden_sizes") && unread.contains("rope_scaling.factor"), "{text}");
    assert!(!unread.contains("eos_token_id") && !unread.contains("model_type"), "{text}");
}

#[test]
fn config_counts_what_is_stored_and_ignored() {
    let dir = checkpoint();
    let says = || String::from_utf8(mlxcel(&["config", dir.path().to_str().unwrap()]).stdout).unwrap();
    assert!(!says().contains("ignored"), "{}", says());
    let path = dir.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut all = file.tensors();
    for layer in [0, 2] {
        let frequencies = TensorView::new(Dtype::F32, vec![2], &[0; 8]).unwrap();
        all.push((format!("model.layers.{layer}.self_attn.rotary_emb.inv_freq"), frequencies));
    }
    fs::write(&path, safetensors::serialize(all, None).unwrap()).unwrap();
    assert!(says().contains("stored and ignored: model.layers.*.self_attn.rotary_emb.inv_freq (2)\n"), "{}", says());
    fs::remove_file(path).unwrap();
    assert!(says().contains("\n  weights do not open: ") && !says().contains("ignored"), "{}", says());
    let output = mlxcel(&["config", "--json", dir.path().to_str().unwrap()]);
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object.get("ignored"), Some(&Value::Null));
}

#[test]
fn config_faults_are_what_generate_says() {
    let dir = checkpoint();
    edit_config(dir.path(), |c| c["hidden_act"] = json!("gelu"));
    refused(mlxcel(&["config", dir.path().to_str().unwrap()]), &["config.json", "hidden_act", "gelu", "silu"]);
    edit_config(dir.path(), |c| c["rope_scaling"] = json!("yarn"));
    refused(
        mlxcel(&["config", dir.path().to_str().unwrap()]),
        &["config.json", "rope_scaling", "yarn", "object or null"],
    );
    edit_config(dir.path(), |c| c["model_type"] = json!("lama"));
    refused(mlxcel(&["config", dir.path().to_str().unwrap()]), &["did you mean \"llama\"?", "mlxcel new family"]);
    refused(mlxcel(&["config", "no/such/model"]), &["no/such/model"]);
    refused(mlxcel(&["config", golden().to_str().unwrap(), "--limit", "pictures=2"]), &["pictures"]);
    refused(mlxcel(&["config", golden().to_str().unwrap(), "--limit", "pictures"]), &["NAME=N"]);
}
