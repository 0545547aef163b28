//! The GGUF reader on good files, on files cut at every byte, and on files with random bytes changed: a clear error or a
//! usable file, never a panic.

mod support;

use std::path::Path;

use mgraph_runtime::gguf::{Format, Gguf, GgufError, dequantize};
use mgraph_runtime::import::Plan;
use safetensors::tensor::View;
use support::{Random, Writer, llama};

fn parse(bytes: Vec<u8>) -> Result<Gguf, GgufError> {
    Gguf::from_bytes(Path::new("model.gguf"), bytes)
}

fn refusal(bytes: Vec<u8>) -> String {
    parse(bytes).expect_err("must be refused").to_string()
}

/// Everything a caller can ask of a file.
fn exercise(gguf: &Gguf) {
    for key in gguf.metadata().keys() {
        let _ = (gguf.string(key), gguf.integer(key), gguf.float(key), gguf.boolean(key));
        let _ = (gguf.strings(key), gguf.integers(key), gguf.floats(key));
    }
    for (name, info) in gguf.tensors() {
        if let Some(bytes) = gguf.bytes(name) {
            assert_eq!(
                dequantize(info.format, bytes).map(|values| values.len() as u64),
                Some(info.dims.iter().product())
            );
        }
        gguf.release(name);
    }
}

#[test]
fn versions_two_and_three_are_read() {
    for version in [2, 3] {
        let gguf = parse(llama().version(version).bytes()).expect("a good file");
        assert_eq!(gguf.string("general.architecture"), Ok(Some("llama")));
        assert_eq!(gguf.integer("llama.context_length"), Ok(Some(128)));
        assert_eq!(gguf.float("llama.attention.layer_norm_rms_epsilon"), Ok(Some(1e-5)));
        assert_eq!(gguf.strings("tokenizer.ggml.merges"), Ok(Some(vec!["h e", "l l"])));
        assert_eq!(gguf.tensors().len(), 20);
        exercise(&gguf);
    }
}

#[test]
fn other_files_are_refused_with_a_sentence() {
    let text = refusal(b"PK\x03\x04 a zip file".to_vec());
    assert_eq!(
        text,
        "model.gguf is not a usable GGUF file: at byte 0, the magic is \"PK\\u{3}\\u{4}\"; expected \"GGUF\""
    );
    assert!(refusal(llama().version(1).bytes()).contains("versions 2 and 3"));
    assert!(refusal(llama().version(3u32.swap_bytes()).bytes()).contains("big-endian"));
    assert!(refusal(Vec::new()).contains("truncated"));
    let gguf = parse(llama().bytes()).expect("a good file");
    let wrong = gguf.integer("general.architecture").expect_err("a string");
    assert_eq!(wrong.to_string(), "model.gguf: metadata `general.architecture` is \"llama\"; expected an integer");
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = llama().bytes();
    let data = whole.len() - 64 * 96;
    // Every byte of the directory, then a sample of the tensor data.
    for end in (0..20_000.min(data)).chain((20_000..whole.len()).step_by(997)) {
        let text = refusal(whole[..end].to_vec());
        assert!(text.contains("truncated") || text.contains("at byte"), "cut at {end}: {text}");
    }
}

#[test]
fn lengths_that_cannot_be_are_refused_before_anything_is_allocated() {
    let header = |tensors: u64, keys: u64| {
        [b"GGUF".as_slice(), &3u32.to_le_bytes(), &tensors.to_le_bytes(), &keys.to_le_bytes()].concat()
    };
    assert!(refusal(header(u64::MAX, 0)).contains("at byte 24"));
    assert!(refusal(header(0, u64::MAX)).contains("at byte 24"));
    let string = [header(0, 1), u64::MAX.to_le_bytes().to_vec()].concat();
    assert!(refusal(string).contains("18446744073709551615 bytes were expected"));
    let key = [header(0, 1), 1u64.to_le_bytes().to_vec(), b"k".to_vec()].concat();
    let array = |item: u32, len: u64| [&key[..], &9u32.to_le_bytes(), &item.to_le_bytes(), &len.to_le_bytes()].concat();
    assert!(refusal(array(0, u64::MAX)).contains("at byte"));
    assert!(refusal(array(12, u64::MAX)).contains("cannot be in this file"));
    assert!(refusal(array(8, u64::MAX)).contains("at byte"));
    let nested = (0..10_000).flat_map(|_| [9u32.to_le_bytes(), 1u32.to_le_bytes(), 0u32.to_le_bytes()].concat());
    assert!(refusal([key.clone(), 9u32.to_le_bytes().to_vec(), nested.collect()].concat()).contains("nested"));
    let mut huge = Writer::new();
    huge.tensor("t", 0, &[u64::MAX, u64::MAX], Vec::new());
    assert!(refusal(huge.bytes()).contains("does not fit"));
    let mut long = Writer::new();
    long.tensor("t", 0, &[1 << 40], Vec::new());
    assert!(refusal(long.bytes()).contains("truncated"));
    let mut odd = Writer::new();
    odd.tensor("t", 3, &[33], vec![0; 40]);
    assert!(refusal(odd.bytes()).contains("multiple of 32"));
}

#[test]
fn names_are_unique_and_tensors_disjoint() {
    let mut writer = Writer::new();
    writer.tensor("a", 0, &[8], vec![0; 32]).tensor("b", 0, &[8], vec![0; 32]);
    let bytes = writer.bytes();
    let twice = replaced(&bytes, b"\x01\0\0\0\0\0\0\0b", b"\x01\0\0\0\0\0\0\0a");
    assert!(refusal(twice).contains("`a` is there a second time"));
    // The offset of `b` is the only 32 behind its type.
    let overlapping = replaced(&bytes, b"\0\0\0\0\x20\0\0\0\0\0\0\0", b"\0\0\0\0\0\0\0\0\0\0\0\0");
    assert!(refusal(overlapping).contains("overlaps"));
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).rposition(|window| window == from).expect("it is there");
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

#[test]
fn random_damage_never_panics() {
    let whole = llama().bytes();
    let directory = whole.len() / 8;
    let mut random = Random(11);
    let mut usable = 0;
    for _ in 0..800 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(4) {
            // Most of the damage goes where it hurts.
            let bound = if random.below(4) == 0 { bytes.len() } else { directory };
            let at = random.below(bound);
            bytes[at] = random.next() as u8;
        }
        let Ok(gguf) = parse(bytes) else { continue };
        exercise(&gguf);
        if let Ok(plan) = Plan::new(&gguf) {
            usable += 1;
            plan.tensors.iter().for_each(|tensor| assert_eq!(tensor.data().len(), tensor.data_len()));
        }
    }
    assert!(usable > 30, "the test reached conversion {usable} times");
}

#[test]
fn formats_dequantize_as_ggml_does() {
    let half = |x: f32| half::f16::from_f32(x).to_le_bytes();
    let ascending: Vec<u8> = (0..16).map(|j| j | ((15 - j) << 4)).collect();
    let q4_1 = [&half(0.5)[..], &half(-1.0), &ascending].concat();
    let values = dequantize(Format::Q4_1, &q4_1).expect("a format that is read");
    assert_eq!((values[0], values[3], values[16], values[31]), (-1.0, 0.5, 6.5, -1.0));
    let q4_0 = [&half(-0.25)[..], &ascending].concat();
    let values = dequantize(Format::Q4_0, &q4_0).expect("a format that is read");
    assert_eq!((values[0], values[15], values[16]), (2.0, -1.75, -1.75));
    let q8_0 = [&half(2.0)[..], &(0..32).map(|j| (j * 8) as u8).collect::<Vec<_>>()].concat();
    let values = dequantize(Format::Q8_0, &q8_0).expect("a format that is read");
    assert_eq!((values[1], values[15], values[16]), (16.0, 240.0, -256.0));
}
