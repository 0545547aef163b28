//! The real SmolLM2-135M-Instruct, Q4_1, which `make model` fetches: token ids against llama.cpp's
//! (`fixtures/tokenizer/README.md`), and every number of the import against ggml's formulas.

use std::path::{Path, PathBuf};

use mgraph_runtime::checkpoint::{Checkpoint, Dtype};
use mgraph_runtime::gguf::{Gguf, dequantize};
use mgraph_runtime::import::{self, Plan};
use mgraph_runtime::quantization::{Affine, Quantization};
use mgraph_runtime::template::{ChatTemplate, Message};
use mgraph_runtime::tokenizer::Tokenizer;
use serde_json::Value;
use tempfile::TempDir;

fn model() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.toolchain/models/smollm2-135m-instruct.gguf");
    assert!(path.is_file(), "{} is missing; `make model` fetches it", path.display());
    path
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// The file with another splitting rule; a longer or shorter name of no meaning keeps everything else in place.
fn with_rule(file: &[u8], rule: &str) -> Vec<u8> {
    let mut bytes = file.to_vec();
    let mut replace = |key: &str, old: &str, new: &str| {
        let entry = |value: &str| [string(key), 8u32.to_le_bytes().to_vec(), string(value)].concat();
        let from = entry(old);
        let at = bytes[..1 << 21].windows(from.len()).position(|window| window == from).expect("the key is there");
        bytes.splice(at..at + from.len(), entry(new));
    };
    replace("tokenizer.ggml.pre", "smollm", rule);
    let finetune = "8k-lc100k-mix1-ep2";
    let length = finetune.len() + "smollm".len() - rule.len();
    replace("general.finetune", finetune, &"x".repeat(length));
    assert_eq!(bytes.len(), file.len());
    bytes
}

fn tokenizer(plan: &Plan<'_>, dir: &Path) -> Tokenizer {
    std::fs::write(dir.join("tokenizer.json"), plan.tokenizer.to_string()).expect("written");
    std::fs::write(dir.join("tokenizer_config.json"), plan.tokenizer_config.to_string()).expect("written");
    std::fs::write(dir.join("generation_config.json"), plan.generation_config.to_string()).expect("written");
    Tokenizer::open(dir).expect("a tokenizer")
}

#[test]
fn token_ids_equal_those_of_llama_cpp() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("fixtures/tokenizer/llama_cpp.json")).expect("the fixture is JSON");
    let file = std::fs::read(model()).expect("readable");
    let temp = TempDir::new().expect("a directory");
    let mut wrong = Vec::new();
    for rule in ["smollm", "gpt-2", "llama-bpe", "qwen2", "default"] {
        let gguf = Gguf::from_bytes(&model(), with_rule(&file, rule)).expect("a good file");
        let tokenizer = tokenizer(&Plan::new(&gguf).expect("a plan"), temp.path());
        for case in &cases {
            let text = case["text"].as_str().expect("a text");
            let found = tokenizer.encode(text, false).expect("encodes");
            let expected: Vec<u32> = serde_json::from_value(case[rule].clone()).expect("ids");
            // Qwen's released tokenizer composes characters first (NFC), and so do we; llama.cpp does not.
            let composed = rule == "qwen2" && text.contains("e\u{301}");
            if found != expected && !composed {
                wrong.push(format!("{rule} {text:?}: expected {expected:?}, got {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), 5 * cases.len(), wrong.join("\n"));
}

#[test]
fn text_streams_as_it_decodes() {
    let gguf = Gguf::open(&model()).expect("a good file");
    let temp = TempDir::new().expect("a directory");
    let tokenizer = tokenizer(&Plan::new(&gguf).expect("a plan"), temp.path());
    assert_eq!(tokenizer.eos_ids(), [2]);
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("fixtures/tokenizer/llama_cpp.json")).expect("the fixture is JSON");
    let texts: Vec<&str> = cases.iter().filter_map(|case| case["text"].as_str()).collect();
    // One long text too, so that the window moves.
    let long = texts.concat();
    for text in texts.into_iter().chain([long.as_str()]) {
        let ids = tokenizer.encode(text, true).expect("encodes");
        let mut stream = tokenizer.stream();
        let pieces: Vec<String> = ids.iter().filter_map(|&id| stream.push(id).expect("decodes")).collect();
        let streamed = pieces.concat() + &stream.finish().expect("decodes");
        assert_eq!(streamed, tokenizer.decode(&ids).expect("decodes"));
        if !text.contains("<|") && !text.contains("<repo") {
            assert_eq!(streamed, text);
        }
    }
    // A character of four bytes in three tokens comes out once it is whole.
    let family = tokenizer.encode("\u{1f468}", false).expect("encodes");
    assert!(family.len() > 1);
    let mut stream = tokenizer.stream();
    let (last, first) = family.split_last().expect("tokens");
    assert!(first.iter().all(|&id| stream.push(id).expect("decodes").is_none()));
    assert_eq!(stream.clone().push(*last).expect("decodes").as_deref(), Some("\u{1f468}"));
    assert_eq!(stream.finish().expect("decodes"), "\u{fffd}");
    // Bytes that make no character are not held back for ever.
    let mut stream = tokenizer.stream();
    let given: Vec<Option<String>> = (0..100).map(|_| stream.push(family[1]).expect("decodes")).collect();
    assert!(given.iter().skip(4).all(Option::is_some), "{given:?}");
    let whole = given.into_iter().flatten().collect::<String>() + &stream.finish().expect("decodes");
    assert_eq!(whole, "\u{fffd}".repeat(whole.chars().count()));
    // The bytes of tokens make up the bytes of their text.
    for text in [" a\n\u{e9}\u{1f468}", "The capital of France"] {
        let ids = tokenizer.encode(text, false).expect("encodes");
        let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.bytes(*id).expect("a token")).collect();
        assert_eq!(bytes, text.as_bytes());
    }
    assert_eq!((tokenizer.bytes(2), tokenizer.is_special(2)), (Some(b"<|im_end|>".to_vec()), true));
    assert!(!tokenizer.is_special(family[0]) && tokenizer.bytes(1 << 20).is_none());
}

#[test]
fn the_import_equals_the_file_bit_for_bit() {
    let temp = TempDir::new().expect("a directory");
    let dir = temp.path().join("model");
    import::gguf(&model(), &dir, &mut |_| {}).expect("imports");
    let gguf = Gguf::open(&model()).expect("a good file");
    let checkpoint = Checkpoint::open(&dir).expect("a good directory");
    let quantization = Quantization::from_config(checkpoint.config()).expect("a valid section");
    let mut seen = 0;
    for stored in gguf.tensors().keys() {
        let module = module(stored.trim_end_matches(".weight"));
        let expected = dequantize(gguf.tensors()[stored].format, gguf.bytes(stored).expect("stored")).expect("read");
        let found = unpacked(&checkpoint, &quantization, &module);
        assert_eq!(expected.len(), found.len(), "{stored}");
        let rows = if stored.contains("attn_q") { 576 } else { 192 };
        if stored.contains("attn_q") || stored.contains("attn_k") {
            for row in 0..rows {
                let (head, half, j) = (row / 64, row % 64 / 32, row % 32);
                let from = 576 * (head * 64 + 2 * j + half);
                assert!(same(&expected[from..from + 576], &found[576 * row..576 * (row + 1)]), "{stored} row {row}");
            }
        } else {
            assert!(same(&expected, &found), "{stored}");
        }
        seen += 1;
    }
    assert_eq!(seen, 272);
    assert_eq!(checkpoint.tensors().len(), 61 + 3 * 211);

    let template = ChatTemplate::open(&dir).expect("readable").expect("a template");
    let prompt = template.render(&[Message::user("What is the capital of France?")], true).expect("renders");
    assert!(prompt.ends_with("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"));
}

fn same(a: &[f32], b: &[f32]) -> bool {
    a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits()))
}

/// llama.cpp's name of a module as Hugging Face's.
fn module(stored: &str) -> String {
    match stored.split('.').collect::<Vec<_>>().as_slice() {
        ["token_embd"] => "model.embed_tokens".to_owned(),
        ["output_norm"] => "model.norm".to_owned(),
        ["blk", layer, part] => {
            let part = match *part {
                "attn_norm" => "input_layernorm",
                "attn_q" => "self_attn.q_proj",
                "attn_k" => "self_attn.k_proj",
                "attn_v" => "self_attn.v_proj",
                "attn_output" => "self_attn.o_proj",
                "ffn_norm" => "post_attention_layernorm",
                "ffn_gate" => "mlp.gate_proj",
                "ffn_up" => "mlp.up_proj",
                "ffn_down" => "mlp.down_proj",
                other => panic!("an unknown part {other}"),
            };
            format!("model.layers.{layer}.{part}")
        }
        other => panic!("an unknown tensor {other:?}"),
    }
}

/// As MLX dequantizes: `scale * code + bias` in f32, codes from the low bits of each word up.
fn unpacked(checkpoint: &Checkpoint, quantization: &Quantization, module: &str) -> Vec<f32> {
    let name = format!("{module}.weight");
    if checkpoint.tensors()[&name].dtype != Dtype::U32 {
        return checkpoint.to_f32(&name).expect("floats");
    }
    let Affine { bits, group } = quantization.for_path(module).expect("a packed module");
    let scales = checkpoint.to_f32(&format!("{module}.scales")).expect("scales");
    let biases = checkpoint.to_f32(&format!("{module}.biases")).expect("biases");
    let bytes = checkpoint.bytes(&name).expect("stored");
    let mut values = Vec::with_capacity(bytes.len() * 8 / bits as usize);
    for (index, codes) in bytes.chunks_exact((group * bits / 8) as usize).enumerate() {
        let (scale, bias) = (scales[index], biases[index]);
        match bits {
            4 => codes.iter().for_each(|byte| {
                values.push(scale * f32::from(byte & 15) + bias);
                values.push(scale * f32::from(byte >> 4) + bias);
            }),
            8 => values.extend(codes.iter().map(|&code| scale * f32::from(code) + bias)),
            other => panic!("{other} bits were not expected"),
        }
    }
    values
}
