//! Imports of small GGUF files: no number changes, everything wrong is said before anything is written, and a directory
//! appears whole or not at all.

mod support;

use std::path::Path;

use half::f16;
use mgraph_runtime::checkpoint::{Checkpoint, Dtype};
use mgraph_runtime::gguf::{Format, Gguf, dequantize};
use mgraph_runtime::import::{self, ImportError, Plan};
use mgraph_runtime::quantization::{Affine, Quantization, unpack};
use mgraph_runtime::tokenizer::Tokenizer;
use support::{DEPTH, HEAD_DIM, HIDDEN, Writer, data, llama};
use tempfile::TempDir;

struct Imported {
    _temp: TempDir,
    gguf: Gguf,
    checkpoint: Checkpoint,
}

fn imported(writer: &Writer) -> Imported {
    let temp = TempDir::new().expect("a directory");
    let (file, dir) = (temp.path().join("model.gguf"), temp.path().join("model"));
    std::fs::write(&file, writer.bytes()).expect("written");
    import::gguf(&file, &dir, &mut |_| {}).expect("imports");
    let gguf = Gguf::open(&file).expect("a good file");
    let checkpoint = Checkpoint::open(&dir).expect("a good directory");
    Imported { _temp: temp, gguf, checkpoint }
}

fn refusal(writer: &Writer) -> String {
    let gguf = Gguf::from_bytes(Path::new("model.gguf"), writer.bytes()).expect("a readable file");
    Plan::new(&gguf).err().expect("must be refused").to_string()
}

/// The matrix or vector of a module in f32, as MLX dequantizes: `scale * code + bias`.
fn unpacked(checkpoint: &Checkpoint, module: &str) -> Vec<f32> {
    let name = format!("{module}.weight");
    let tensor = &checkpoint.tensors()[&name];
    if tensor.dtype != Dtype::U32 {
        return checkpoint.to_f32(&name).expect("floats");
    }
    let quantization = Quantization::from_config(checkpoint.config()).expect("a valid section");
    let Affine { bits, group } = quantization.for_path(module).expect("a packed module");
    let bytes = checkpoint.bytes(&name).expect("stored");
    let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let codes = unpack(&words, bits, words.len() * 32 / bits as usize);
    let scales = checkpoint.to_f32(&format!("{module}.scales")).expect("scales");
    let biases = checkpoint.to_f32(&format!("{module}.biases")).expect("biases");
    let at = |index: usize| index / group as usize;
    codes.iter().enumerate().map(|(j, &code)| scales[at(j)] * f32::from(code) + biases[at(j)]).collect()
}

/// ggml's numbers for a tensor, rows of rotated heads put back in Hugging Face's order (the inverse of llama.cpp's
/// `permute`, written here as its definition: reshape to [heads, half, 2, columns] and swap the middle axes).
fn expected(gguf: &Gguf, stored: &str, interleaved: bool) -> Vec<f32> {
    let info = &gguf.tensors()[stored];
    let values = dequantize(info.format, gguf.bytes(stored).expect("stored")).expect("a format that is read");
    if !interleaved {
        return values;
    }
    let (columns, rows, head_dim) = (info.dims[0] as usize, info.dims[1] as usize, HEAD_DIM as usize);
    let row = |r: usize| &values[r * columns..(r + 1) * columns];
    let mut out = Vec::new();
    for head in 0..rows / head_dim {
        for part in 0..2 {
            (0..head_dim / 2).for_each(|j| out.extend_from_slice(row(head * head_dim + 2 * j + part)));
        }
    }
    out
}

#[test]
fn no_number_changes() {
    let Imported { gguf, checkpoint, _temp } = imported(&llama());
    let mut pairs = vec![
        ("token_embd".to_owned(), "model.embed_tokens".to_owned()),
        ("output_norm".to_owned(), "model.norm".to_owned()),
    ];
    for layer in 0..DEPTH {
        let names = [
            ("attn_norm", "input_layernorm"),
            ("attn_q", "self_attn.q_proj"),
            ("attn_k", "self_attn.k_proj"),
            ("attn_v", "self_attn.v_proj"),
            ("attn_output", "self_attn.o_proj"),
            ("ffn_norm", "post_attention_layernorm"),
            ("ffn_gate", "mlp.gate_proj"),
            ("ffn_up", "mlp.up_proj"),
            ("ffn_down", "mlp.down_proj"),
        ];
        pairs.extend(
            names.map(|(stored, module)| (format!("blk.{layer}.{stored}"), format!("model.layers.{layer}.{module}"))),
        );
    }
    for (stored, module) in pairs {
        let interleaved = stored.ends_with("attn_q") || stored.ends_with("attn_k");
        let (expected, found) =
            (expected(&gguf, &format!("{stored}.weight"), interleaved), unpacked(&checkpoint, &module));
        assert_eq!(expected.len(), found.len(), "{module}");
        for (index, (a, b)) in expected.iter().zip(&found).enumerate() {
            // Equal bits, but for the sign of a zero under a negative Q4_0 scale.
            assert!(a.to_bits() == b.to_bits() || (*a == 0.0 && *b == 0.0), "{module}[{index}]: {a:e} became {b:e}");
        }
    }
}

#[test]
fn the_config_says_what_the_file_said() {
    let Imported { checkpoint, _temp, .. } = imported(&llama());
    let config = checkpoint.config();
    let expected = serde_json::json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false, "mlp_bias": false,
        "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": null, "tie_word_embeddings": true,
        "vocab_size": 260, "bos_token_id": 259, "eos_token_id": 258, "pad_token_id": null, "torch_dtype": "float32",
        "quantization": {
            "group_size": 32, "bits": 4,
            "model.embed_tokens": {"group_size": 32, "bits": 8},
            "model.layers.0.self_attn.o_proj": false,
            "model.layers.0.mlp.down_proj": {"group_size": 32, "bits": 8},
            "model.layers.1.self_attn.o_proj": false,
            "model.layers.1.mlp.down_proj": {"group_size": 32, "bits": 8},
        },
    });
    assert_eq!(*config, expected);
    let tokenizer = Tokenizer::open(checkpoint.dir()).expect("a tokenizer");
    assert_eq!(tokenizer.eos_ids(), [258]);
    for add_special in [false, true] {
        assert_eq!(tokenizer.encode("<|start|>hell", add_special).expect("encodes"), [259, 256, 257]);
    }
}

#[test]
fn an_f16_file_is_dense_and_an_untied_head_is_kept() {
    let mut writer = llama();
    let mut random = support::Random(3);
    let gguf = Gguf::from_bytes(Path::new("model.gguf"), writer.bytes()).expect("a good file");
    for (name, info) in gguf.tensors() {
        if info.dims.len() == 2 {
            let count = info.dims.iter().product::<u64>() as usize;
            writer.tensor(name, 1, &info.dims, data(Format::F16, count, &mut random));
        }
    }
    writer.tensor("output.weight", 1, &[HIDDEN, 260], data(Format::F16, 64 * 260, &mut random));
    let Imported { checkpoint, gguf, _temp } = imported(&writer);
    assert!(checkpoint.config().get("quantization").is_none());
    assert_eq!(checkpoint.config()["torch_dtype"], "float16");
    assert_eq!(checkpoint.config()["tie_word_embeddings"], false);
    assert_eq!(checkpoint.bytes("lm_head.weight").ok(), gguf.bytes("output.weight"));
}

#[test]
fn a_scale_too_large_for_f16_is_kept_in_f32() {
    let mut writer = llama();
    let mut block = f16::from_f32(600.0).to_le_bytes().to_vec();
    block.extend([0x80; 32]);
    writer.tensor("blk.0.ffn_down.weight", 8, &[96, 64], block.repeat(3 * 64));
    let Imported { checkpoint, _temp, .. } = imported(&writer);
    let module = "model.layers.0.mlp.down_proj";
    assert_eq!(checkpoint.tensors()[&format!("{module}.biases")].dtype, Dtype::F32);
    assert!(unpacked(&checkpoint, module).iter().all(|&value| value == -128.0 * 600.0));
}

#[test]
fn llama3_scaling_comes_back() {
    let mut writer = llama();
    // Llama 3.1's formula for the eight pairs of a head, at the writer's base of 10000.
    let divisor = |pair: i32| {
        let wavelength = 2.0 * std::f64::consts::PI * 10000f64.powf(f64::from(pair) / 8.0);
        let smooth = ((8192.0 / wavelength - 1.0) / 3.0).clamp(0.0, 1.0);
        (1.0 / ((1.0 - smooth) / 8.0 + smooth)) as f32
    };
    let divisors: Vec<u8> = (0..8).flat_map(|pair| divisor(pair).to_le_bytes()).collect();
    writer.tensor("rope_freqs.weight", 0, &[8], divisors);
    let Imported { checkpoint, _temp, .. } = imported(&writer);
    let expected = serde_json::json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    });
    assert_eq!(checkpoint.config()["rope_scaling"], expected);
    assert!(!checkpoint.tensors().contains_key("rope_freqs.weight"));

    writer.f32("llama.rope.freq_base", 500_000.0);
    assert!(refusal(&writer).contains("`rope_freqs.weight` is no Llama 3 scaling"));
}

#[test]
fn foreign_formats_are_all_listed() {
    let mut writer = llama();
    writer.tensor("blk.0.ffn_up.weight", 12, &[HIDDEN, 96], vec![0; 64]);
    writer.tensor("blk.1.ffn_up.weight", 30, &[HIDDEN, 96], vec![0; 64]);
    writer.tensor("blk.1.attn_v.weight", 77, &[HIDDEN, 32], vec![0; 64]);
    let text = refusal(&writer);
    assert!(text.contains("accepted are F32, F16, Q8_0, Q4_0, Q4_1"), "{text}");
    for line in ["blk.0.ffn_up.weight (Q4_K)", "blk.1.ffn_up.weight (BF16)", "blk.1.attn_v.weight (type 77)"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn everything_wrong_with_the_tensors_is_said_at_once() {
    let mut writer = llama();
    writer.without("blk.0.attn_v.weight").without("output_norm.weight");
    writer.tensor("blk.1.ffn_gate.weight", 0, &[HIDDEN, 3], vec![0; 768]);
    writer.tensor("blk.0.ffn_gate_exps.weight", 0, &[2], vec![0; 8]);
    let text = refusal(&writer);
    for part in [
        "the tensor `blk.0.attn_v.weight` is missing",
        "the tensor `output_norm.weight` is missing",
        "`blk.1.ffn_gate.weight` has the shape [64, 3]; the metadata asks for [64, 96]",
        "`blk.0.ffn_gate_exps.weight` has no place in a llama model",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn what_is_not_known_is_refused_not_guessed() {
    let changed = |change: &dyn Fn(&mut Writer)| {
        let mut writer = llama();
        change(&mut writer);
        refusal(&writer)
    };
    assert!(changed(&|w| _ = w.string("general.architecture", "mamba")).contains("`mamba`"));
    assert!(changed(&|w| _ = w.string("tokenizer.ggml.pre", "bailingmoe")).contains("known are gpt-2, gpt2, smollm"));
    assert!(changed(&|w| _ = w.string("tokenizer.ggml.model", "t5")).contains("byte-level BPE"));
    assert!(changed(&|w| _ = w.u32("llama.rope.dimension_count", 8)).contains("rope turns 8 of 16"));
    assert!(changed(&|w| _ = w.u32("llama.block_count", 0)).contains("`llama.block_count` is 0"));
    assert!(changed(&|w| _ = w.u32("llama.block_count", u32::MAX)).contains("block_count"));
    assert!(changed(&|w| _ = w.u32("llama.attention.head_count_kv", 3)).contains("cannot share"));
    assert!(changed(&|w| _ = w.u32("split.count", 2)).contains("split"));
    assert!(changed(&|w| _ = w.without("llama.context_length")).contains("`llama.context_length`"));
    assert!(changed(&|w| _ = w.strings("tokenizer.ggml.merges", &["he zz"])).contains("tokenizer"));
    assert!(changed(&|w| _ = w.u32("tokenizer.ggml.eos_token_id", 9999)).contains("9999"));
    let infinite = [&f16::INFINITY.to_le_bytes()[..], &[0; 32]].concat().repeat(3 * 64);
    assert!(changed(&|w| _ = w.tensor("blk.0.ffn_down.weight", 8, &[96, 64], infinite.clone())).contains("damaged"));
}

#[test]
fn a_directory_appears_whole_or_not_at_all() {
    let temp = TempDir::new().expect("a directory");
    let (file, dir) = (temp.path().join("model.gguf"), temp.path().join("new/model"));
    std::fs::write(&file, llama().bytes()).expect("written");
    let import = || import::gguf(&file, &dir, &mut |_| {});

    // What an interrupted import left is cleared.
    let left = temp.path().join("new/.model.importing");
    std::fs::create_dir_all(&left).expect("made");
    std::fs::write(left.join("model.safetensors"), "half").expect("written");
    assert!(!import().expect("imports").unchanged);
    assert!(!left.exists());
    let mut names: Vec<_> =
        std::fs::read_dir(&dir).expect("there").map(|entry| entry.expect("read").file_name()).collect();
    names.sort();
    let files = [
        "config.json",
        "generation_config.json",
        "import.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(names, files);

    let again = import().expect("nothing to do");
    assert!(again.unchanged && again.to_string().contains("nothing to do"));

    // Another file, or a damaged directory, is not overwritten.
    std::fs::write(&file, llama().version(2).bytes()).expect("written");
    assert!(matches!(import(), Err(ImportError::Occupied(_))));
    std::fs::write(&file, llama().bytes()).expect("written");
    std::fs::write(dir.join("config.json"), "{}").expect("written");
    assert!(matches!(import(), Err(ImportError::Occupied(_))));
}

#[test]
fn a_refused_file_leaves_nothing_behind() {
    let temp = TempDir::new().expect("a directory");
    let file = temp.path().join("model.gguf");
    let bytes = llama().bytes();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).expect("written");
    let error = import::gguf(&file, &temp.path().join("model"), &mut |_| {}).expect_err("truncated");
    assert!(error.to_string().contains("model.gguf") && error.to_string().contains("truncated"), "{error}");
    assert_eq!(std::fs::read_dir(temp.path()).expect("there").count(), 1);
}
