//! A writer of GGUF files for tests: metadata, tensors and their layout as ggml writes them, and a tiny complete llama.

// Every test binary uses its own part of this module.
#![allow(dead_code)]

use half::f16;
use mgraph_runtime::gguf::Format;

pub struct Writer {
    version: u32,
    metadata: Vec<(String, Vec<u8>)>,
    tensors: Vec<(String, u32, Vec<u64>, Vec<u8>)>,
}

impl Writer {
    pub fn new() -> Writer {
        Writer { version: 3, metadata: Vec::new(), tensors: Vec::new() }
    }

    pub fn version(mut self, version: u32) -> Writer {
        self.version = version;
        self
    }

    fn value(&mut self, key: &str, kind: u32, payload: &[u8]) -> &mut Writer {
        self.metadata.retain(|(name, _)| name != key);
        self.metadata.push((key.to_owned(), [&kind.to_le_bytes()[..], payload].concat()));
        self
    }

    pub fn u32(&mut self, key: &str, value: u32) -> &mut Writer {
        self.value(key, 4, &value.to_le_bytes())
    }

    pub fn f32(&mut self, key: &str, value: f32) -> &mut Writer {
        self.value(key, 6, &value.to_le_bytes())
    }

    pub fn bool(&mut self, key: &str, value: bool) -> &mut Writer {
        self.value(key, 7, &[value.into()])
    }

    pub fn string(&mut self, key: &str, value: &str) -> &mut Writer {
        self.value(key, 8, &text(value))
    }

    pub fn strings<S: AsRef<str>>(&mut self, key: &str, values: &[S]) -> &mut Writer {
        let items: Vec<u8> = values.iter().flat_map(|value| text(value.as_ref())).collect();
        let payload = [&8u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes(), &items].concat();
        self.value(key, 9, &payload)
    }

    pub fn i32s(&mut self, key: &str, values: &[i32]) -> &mut Writer {
        let items: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let payload = [&5u32.to_le_bytes()[..], &(values.len() as u64).to_le_bytes(), &items].concat();
        self.value(key, 9, &payload)
    }

    /// `dims` is ggml's order: columns first.
    pub fn tensor(&mut self, name: &str, id: u32, dims: &[u64], data: Vec<u8>) -> &mut Writer {
        self.tensors.retain(|(other, ..)| other != name);
        self.tensors.push((name.to_owned(), id, dims.to_vec(), data));
        self
    }

    pub fn without(&mut self, name: &str) -> &mut Writer {
        self.metadata.retain(|(key, _)| key != name);
        self.tensors.retain(|(tensor, ..)| tensor != name);
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            out.extend(text(key));
            out.extend(value);
        }
        let mut offset = 0;
        for (name, id, dims, data) in &self.tensors {
            out.extend(text(name));
            out.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(id.to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset = (offset + data.len()).next_multiple_of(32);
        }
        for (_, _, _, data) in &self.tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(data);
        }
        out
    }
}

fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u64).to_le_bytes()[..], value.as_bytes()].concat()
}

/// A small generator, so that tests need no seed of their own (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 33) % bound as u64) as usize
    }

    /// In [-1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Random bytes of a tensor of `count` elements, with finite scales of either sign.
pub fn data(format: Format, count: usize, random: &mut Random) -> Vec<u8> {
    let half = |random: &mut Random| f16::from_f32(random.unit()).to_le_bytes();
    let (blocks, scales, codes) = match format {
        Format::F32 => return (0..count).flat_map(|_| random.unit().to_le_bytes()).collect(),
        Format::F16 => return (0..count).flat_map(|_| half(random)).collect(),
        Format::Q4_0 => (count / 32, 1, 16),
        Format::Q4_1 => (count / 32, 2, 16),
        Format::Q8_0 => (count / 32, 1, 32),
        Format::Other(id) => panic!("no data for type {id}"),
    };
    let mut out = Vec::new();
    for _ in 0..blocks {
        (0..scales).for_each(|_| out.extend(half(random)));
        out.extend((0..codes).map(|_| random.next() as u8));
    }
    out
}

pub fn id(format: Format) -> u32 {
    match format {
        Format::F32 => 0,
        Format::F16 => 1,
        Format::Q4_0 => 2,
        Format::Q4_1 => 3,
        Format::Q8_0 => 8,
        Format::Other(id) => id,
    }
}

pub const HIDDEN: u64 = 64;
pub const INNER: u64 = 96;
pub const HEADS: u64 = 4;
pub const KV_HEADS: u64 = 2;
pub const HEAD_DIM: u64 = 16;
pub const VOCAB: u64 = 260;
pub const DEPTH: u32 = 2;

/// The byte-level alphabet of GPT-2 (bytes 0 to 255 as printable characters), then a few merges and special tokens.
pub fn tokens() -> Vec<String> {
    let printable = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut shifted = 256;
    let mut tokens: Vec<String> = (0..256)
        .map(|byte| {
            let code = if printable(byte) {
                byte
            } else {
                shifted += 1;
                shifted - 1
            };
            char::from_u32(code).expect("a character").to_string()
        })
        .collect();
    tokens.extend(["he", "ll", "<|end|>", "<|start|>"].map(str::to_owned));
    tokens
}

/// A complete llama of two layers with every format in it.
pub fn llama() -> Writer {
    let mut writer = Writer::new();
    writer
        .string("general.architecture", "llama")
        .u32("llama.context_length", 128)
        .u32("llama.embedding_length", HIDDEN as u32)
        .u32("llama.feed_forward_length", INNER as u32)
        .u32("llama.block_count", DEPTH)
        .u32("llama.attention.head_count", HEADS as u32)
        .u32("llama.attention.head_count_kv", KV_HEADS as u32)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .f32("llama.rope.freq_base", 10000.0)
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "smollm")
        .strings("tokenizer.ggml.tokens", &tokens())
        .strings("tokenizer.ggml.merges", &["h e", "l l"])
        .u32("tokenizer.ggml.eos_token_id", 258)
        .u32("tokenizer.ggml.bos_token_id", 259)
        .string("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}");
    let mut types = vec![1; VOCAB as usize];
    types[258..].fill(3);
    writer.i32s("tokenizer.ggml.token_type", &types);

    let mut random = Random(7);
    let mut tensor = |writer: &mut Writer, name: &str, format: Format, dims: &[u64]| {
        let count = dims.iter().product::<u64>() as usize;
        writer.tensor(name, id(format), dims, data(format, count, &mut random));
    };
    tensor(&mut writer, "token_embd.weight", Format::Q8_0, &[HIDDEN, VOCAB]);
    tensor(&mut writer, "output_norm.weight", Format::F32, &[HIDDEN]);
    for layer in 0..DEPTH {
        let parts: [(&str, Format, &[u64]); 9] = [
            ("attn_norm", Format::F32, &[HIDDEN]),
            ("attn_q", Format::Q4_0, &[HIDDEN, HEADS * HEAD_DIM]),
            ("attn_k", Format::Q4_1, &[HIDDEN, KV_HEADS * HEAD_DIM]),
            ("attn_v", Format::Q4_1, &[HIDDEN, KV_HEADS * HEAD_DIM]),
            ("attn_output", Format::F16, &[HEADS * HEAD_DIM, HIDDEN]),
            ("ffn_norm", Format::F32, &[HIDDEN]),
            ("ffn_gate", Format::Q4_1, &[HIDDEN, INNER]),
            ("ffn_up", Format::Q4_1, &[HIDDEN, INNER]),
            ("ffn_down", Format::Q8_0, &[INNER, HIDDEN]),
        ];
        for (part, format, dims) in parts {
            tensor(&mut writer, &format!("blk.{layer}.{part}.weight"), format, dims);
        }
    }
    writer
}
