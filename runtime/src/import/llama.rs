//! The `llama` architecture of GGUF as `model_type: llama` of Hugging Face: hyperparameters, tensor names, shapes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::tensors::{Source, affine};
use super::vocabulary::Vocabulary;
use super::{ImportError, MODEL_TYPE};
use crate::gguf::{Format, Gguf, TensorInfo};
use crate::quantization::Affine;

/// Larger values would overflow later arithmetic and belong to no model.
const MAX_SIZE: u64 = 1 << 24;

#[derive(Debug)]
pub(super) struct Model {
    pub sources: Vec<Source>,
    pub vocab: usize,
    sizes: Sizes,
    context: u64,
    eps: f64,
    theta: f64,
    scaling: Value,
    tied: bool,
    attention_bias: bool,
    mlp_bias: bool,
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    hidden: usize,
    inner: usize,
    depth: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

/// A tensor a block may have: its GGUF name, its module, its shape and whether its rows are interleaved.
struct Part {
    stored: &'static str,
    module: &'static str,
    rows: usize,
    columns: Option<usize>,
    interleaved: bool,
}

impl Sizes {
    fn parts(&self) -> [Part; 9] {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let norm = |stored, module| Part { stored, module, rows: self.hidden, columns: None, interleaved: false };
        let linear = |stored, module, rows, columns| {
            let interleaved = matches!(stored, "attn_q" | "attn_k");
            Part { stored, module, rows, columns: Some(columns), interleaved }
        };
        [
            norm("attn_norm", "input_layernorm"),
            linear("attn_q", "self_attn.q_proj", queries, self.hidden),
            linear("attn_k", "self_attn.k_proj", keys, self.hidden),
            linear("attn_v", "self_attn.v_proj", keys, self.hidden),
            linear("attn_output", "self_attn.o_proj", self.hidden, queries),
            norm("ffn_norm", "post_attention_layernorm"),
            linear("ffn_gate", "mlp.gate_proj", self.inner, self.hidden),
            linear("ffn_up", "mlp.up_proj", self.inner, self.hidden),
            linear("ffn_down", "mlp.down_proj", self.hidden, self.inner),
        ]
    }
}

impl Model {
    pub(super) fn read(gguf: &Gguf) -> Result<Model, ImportError> {
        let mut problems = Vec::new();
        let (sizes, rope_dim) = sizes(gguf, &mut problems)?;
        let context = gguf.require("llama.context_length", gguf.integer("llama.context_length")?)?;
        let eps = "llama.attention.layer_norm_rms_epsilon";
        let eps = gguf.require(eps, gguf.float(eps)?)?;
        let theta = gguf.float("llama.rope.freq_base")?.unwrap_or(10000.0);
        if rope_dim != sizes.head_dim as u64 {
            problems.push(format!(
                "rope turns {rope_dim} of {} dimensions of a head; llama turns all of them",
                sizes.head_dim
            ));
        }
        if !problems.is_empty() {
            return Err(ImportError::Model { path: gguf.path().to_path_buf(), problems });
        }

        let mut taken = Taken { gguf, left: gguf.tensors().clone(), sources: Vec::new(), problems };
        let vocab = taken.vocabulary("token_embd.weight");
        taken.matrix("token_embd", "model.embed_tokens", vocab, sizes.hidden, None);
        taken.vector("output_norm.weight", "model.norm", "weight", sizes.hidden, None);
        let tied = !taken.left.contains_key("output.weight");
        if !tied {
            taken.matrix("output", "lm_head", vocab, sizes.hidden, None);
        }
        let has_bias = |part| gguf.tensors().contains_key(&format!("blk.0.{part}.bias"));
        let attention_bias = ["attn_q", "attn_k", "attn_v", "attn_output"].into_iter().any(has_bias);
        let mlp_bias = ["ffn_gate", "ffn_up", "ffn_down"].into_iter().any(has_bias);
        for layer in 0..sizes.depth {
            for part in sizes.parts() {
                let stored = format!("blk.{layer}.{}", part.stored);
                let module = format!("model.layers.{layer}.{}", part.module);
                let interleaved = part.interleaved.then_some(sizes.head_dim);
                let Some(columns) = part.columns else {
                    taken.vector(&format!("{stored}.weight"), &module, "weight", part.rows, None);
                    continue;
                };
                taken.matrix(&stored, &module, part.rows, columns, interleaved);
                if if part.stored.starts_with("attn") { attention_bias } else { mlp_bias } {
                    taken.vector(&format!("{stored}.bias"), &module, "bias", part.rows, interleaved);
                }
            }
        }
        let scaling = rope_scaling(gguf, &mut taken, theta, sizes.head_dim)?;
        let Taken { left, sources, mut problems, .. } = taken;
        problems.extend(left.keys().map(|name| format!("`{name}` has no place in a llama model")));
        if !problems.is_empty() {
            return Err(ImportError::Model { path: gguf.path().to_path_buf(), problems });
        }
        Ok(Model { sources, vocab, sizes, context, eps, theta, scaling, tied, attention_bias, mlp_bias })
    }

    pub(super) fn config(&self, vocabulary: &Vocabulary) -> Value {
        let sizes = &self.sizes;
        let mut config = json!({
            "architectures": ["LlamaForCausalLM"],
            "model_type": MODEL_TYPE,
            "attention_bias": self.attention_bias,
            "mlp_bias": self.mlp_bias,
            "hidden_act": "silu",
            "hidden_size": sizes.hidden,
            "intermediate_size": sizes.inner,
            "num_hidden_layers": sizes.depth,
            "num_attention_heads": sizes.heads,
            "num_key_value_heads": sizes.kv_heads,
            "head_dim": sizes.head_dim,
            "max_position_embeddings": self.context,
            "rms_norm_eps": self.eps,
            "rope_theta": self.theta,
            "rope_scaling": self.scaling,
            "tie_word_embeddings": self.tied,
            "vocab_size": self.vocab,
            "bos_token_id": vocabulary.bos,
            "eos_token_id": vocabulary.eos_value(),
            "pad_token_id": vocabulary.pad,
            "torch_dtype": self.dtype(),
        });
        if let (Some(section), Some(config)) = (self.quantization(), config.as_object_mut()) {
            config.insert("quantization".into(), section);
        }
        config
    }

    fn matrices(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| !source.vector)
    }

    /// What the arithmetic needs to lose nothing: ggml computes quantized weights in f32.
    fn dtype(&self) -> &'static str {
        if self.matrices().all(|source| source.format == Format::F16) { "float16" } else { "float32" }
    }

    /// The commonest packing as the default, and every module that differs from it.
    fn quantization(&self) -> Option<Value> {
        let mut counts: BTreeMap<Affine, usize> = BTreeMap::new();
        for affine in self.matrices().filter_map(|source| affine(source.format)) {
            *counts.entry(affine).or_default() += 1;
        }
        let (&default, _) = counts.iter().max_by_key(|(_, count)| **count)?;
        let entry = |affine: Affine| json!({"group_size": affine.group, "bits": affine.bits});
        let mut section: Map<String, Value> = Map::new();
        section.insert("group_size".into(), default.group.into());
        section.insert("bits".into(), default.bits.into());
        for source in self.matrices() {
            match affine(source.format) {
                Some(packing) if packing == default => {}
                Some(packing) => {
                    section.insert(source.module.clone(), entry(packing));
                }
                None => {
                    section.insert(source.module.clone(), false.into());
                }
            }
        }
        Some(section.into())
    }
}

fn sizes(gguf: &Gguf, problems: &mut Vec<String>) -> Result<(Sizes, u64), ImportError> {
    let mut size = |key: &str, default: Option<u64>| -> Result<u64, ImportError> {
        let value = gguf.integer(key)?.or(default);
        let value = gguf.require(key, value)?;
        if !(1..=MAX_SIZE).contains(&value) {
            problems.push(format!("metadata `{key}` is {value}; expected 1 to {MAX_SIZE}"));
        }
        Ok(value.clamp(1, MAX_SIZE))
    };
    let hidden = size("llama.embedding_length", None)?;
    let inner = size("llama.feed_forward_length", None)?;
    let depth = size("llama.block_count", None)?;
    let heads = size("llama.attention.head_count", None)?;
    let kv_heads = size("llama.attention.head_count_kv", Some(heads))?;
    let head_dim = size("llama.attention.key_length", Some(hidden / heads))?;
    let value_dim = size("llama.attention.value_length", Some(head_dim))?;
    let rope_dim = size("llama.rope.dimension_count", Some(head_dim))?;
    if value_dim != head_dim {
        problems
            .push(format!("heads have {head_dim} dimensions for keys but {value_dim} for values; llama has one size"));
    }
    if head_dim % 2 != 0 {
        problems.push(format!("a head has {head_dim} dimensions; rope needs an even number"));
    }
    if heads % kv_heads != 0 {
        problems.push(format!("{heads} heads cannot share {kv_heads} key-value heads"));
    }
    if depth > gguf.tensors().len() as u64 {
        problems.push(format!("metadata `llama.block_count` is {depth}, more than the file has tensors"));
    }
    if gguf.integer("llama.expert_count")?.is_some_and(|count| count > 0) {
        problems.push("it is a mixture of experts; dense llama models can be imported".into());
    }
    // Each is at most MAX_SIZE, so it fits and a product of two does too.
    let [hidden, inner, depth, heads, kv_heads, head_dim] =
        [hidden, inner, depth, heads, kv_heads, head_dim].map(|size| size as usize);
    Ok((Sizes { hidden, inner, depth, heads, kv_heads, head_dim }, rope_dim))
}

fn rope_scaling(gguf: &Gguf, taken: &mut Taken<'_>, theta: f64, head_dim: usize) -> Result<Value, ImportError> {
    let kind = gguf.string("llama.rope.scaling.type")?.unwrap_or("none");
    let context = gguf.integer("llama.rope.scaling.original_context_length")?;
    let factor = gguf.float("llama.rope.scaling.factor")?;
    if let Some(info) = taken.left.remove("rope_freqs.weight") {
        if info.format != Format::F32 || info.dims != [head_dim as u64 / 2] {
            taken.problems.push(format!(
                "`rope_freqs.weight` is {} {:?}; expected F32 [{}]",
                info.format,
                info.dims,
                head_dim / 2
            ));
            return Ok(Value::Null);
        }
        let bytes = gguf.bytes("rope_freqs.weight").unwrap_or_default();
        let stored = crate::gguf::dequantize(Format::F32, bytes).unwrap_or_default();
        return Ok(super::rope::scaling(&stored, theta, context).unwrap_or_else(|problem| {
            taken.problems.push(problem);
            Value::Null
        }));
    }
    match (kind, factor) {
        ("none", _) | (_, None) => Ok(Value::Null),
        // Written as found: whether a family can run it is the family's to say.
        (kind, Some(factor)) => {
            let mut scaling = json!({"rope_type": kind, "factor": factor});
            if let (Some(context), Some(scaling)) = (context, scaling.as_object_mut()) {
                scaling.insert("original_max_position_embeddings".into(), context.into());
            }
            Ok(scaling)
        }
    }
}

/// The tensors of the file, taken one by one into their places; what is left at the end has none.
struct Taken<'a> {
    gguf: &'a Gguf,
    left: BTreeMap<String, TensorInfo>,
    sources: Vec<Source>,
    problems: Vec<String>,
}

impl Taken<'_> {
    /// The number of rows of the embedding, which is the vocabulary's size.
    fn vocabulary(&self, stored: &str) -> usize {
        match self.gguf.tensors().get(stored).map(|info| info.dims.as_slice()) {
            Some(&[_, rows]) if rows <= MAX_SIZE => rows as usize,
            // `matrix` reports it, whatever it is.
            Some(_) | None => 0,
        }
    }

    fn matrix(&mut self, stored: &str, module: &str, rows: usize, columns: usize, interleaved: Option<usize>) {
        let stored = format!("{stored}.weight");
        if let Some(info) = self.take(&stored, &[columns as u64, rows as u64]) {
            self.push(stored, module, "weight", info, rows, columns, interleaved);
        }
    }

    fn vector(&mut self, stored: &str, module: &str, suffix: &'static str, rows: usize, interleaved: Option<usize>) {
        let Some(info) = self.take(stored, &[rows as u64]) else { return };
        if affine(info.format).is_some() {
            self.problems.push(format!("the vector `{stored}` is {}; expected F32 or F16", info.format));
            return;
        }
        self.push(stored.to_owned(), module, suffix, info, rows, 1, interleaved);
    }

    fn take(&mut self, stored: &str, dims: &[u64]) -> Option<TensorInfo> {
        let Some(info) = self.left.remove(stored) else {
            self.problems.push(format!("the tensor `{stored}` is missing"));
            return None;
        };
        if info.dims != dims {
            let found = &info.dims;
            self.problems.push(format!("`{stored}` has the shape {found:?}; the metadata asks for {dims:?}"));
            return None;
        }
        Some(info)
    }

    #[expect(clippy::too_many_arguments, reason = "one line of a table")]
    fn push(
        &mut self,
        name: String,
        module: &str,
        suffix: &'static str,
        info: TensorInfo,
        rows: usize,
        columns: usize,
        interleaved: Option<usize>,
    ) {
        let vector = info.dims.len() == 1;
        let module = module.to_owned();
        self.sources.push(Source { name, module, suffix, format: info.format, rows, columns, vector, interleaved });
    }
}
