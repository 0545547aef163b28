//! Checkpoints of text models with random weights, written once into `target/`: Qwen3 as the 8 layers of 1024, and what a
//! mixture of experts is compared with.

use std::{
    fs,
    path::{Path, PathBuf},
};

use mgraph_fullsize::{Stored, Weights};
use mgraph_runtime::error::{Context, Result, anyhow};
use serde_json::{Value, json};

pub const VOCAB: usize = 8192;
const SEED: u64 = 7;

/// What follows attention in every layer.
#[derive(Debug, Clone, Copy)]
pub enum FeedForward {
    Dense { inner: usize },
    Experts { count: usize, active: usize, inner: usize },
}

#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub feed_forward: FeedForward,
}

impl Shape {
    fn name(&self) -> String {
        let Shape { layers, hidden, .. } = self;
        match self.feed_forward {
            FeedForward::Dense { inner } => format!("qwen3-{layers}x{hidden}-{inner}"),
            FeedForward::Experts { count, active, inner } => {
                format!("qwen3-moe-{layers}x{hidden}-{inner}-{active}of{count}")
            }
        }
    }

    fn config(&self) -> Value {
        let (architecture, family) = match self.feed_forward {
            FeedForward::Dense { .. } => ("Qwen3ForCausalLM", "qwen3"),
            FeedForward::Experts { .. } => ("Qwen3MoeForCausalLM", "qwen3_moe"),
        };
        let mut config = json!({
            "architectures": [architecture], "model_type": family, "torch_dtype": "float32",
            "vocab_size": VOCAB, "hidden_size": self.hidden, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim,
            "attention_bias": false, "attention_dropout": 0.0, "hidden_act": "silu", "rms_norm_eps": 1e-6,
            "rope_theta": 1e6, "rope_scaling": null, "max_position_embeddings": 4096, "tie_word_embeddings": true,
            "use_sliding_window": false, "sliding_window": null, "max_window_layers": self.layers,
            // No id ends a text: every contender decodes as many tokens.
            "bos_token_id": null, "eos_token_id": null,
        });
        let of_feed_forward = match self.feed_forward {
            FeedForward::Dense { inner } => json!({ "intermediate_size": inner }),
            FeedForward::Experts { count, active, inner } => json!({
                "intermediate_size": inner, "moe_intermediate_size": inner, "num_experts": count,
                "num_experts_per_tok": active, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
            }),
        };
        if let (Some(config), Value::Object(more)) = (config.as_object_mut(), of_feed_forward) {
            config.extend(more);
        }
        config
    }

    fn weights(&self) -> Weights {
        let Shape { layers, hidden, heads, kv_heads, head_dim, feed_forward } = *self;
        let mut weights = Weights::new(Stored::F32, SEED);
        // Small beside what the layers add: with tied embeddings a token would otherwise be followed by itself, in any model.
        weights.add("model.embed_tokens.weight".into(), &[VOCAB, hidden], 0.0, 0.02);
        for layer in (0..layers).map(|i| format!("model.layers.{i}")) {
            weights.norm(&format!("{layer}.input_layernorm"), hidden, false);
            let attention = format!("{layer}.self_attn");
            for (name, heads) in [("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)] {
                weights.linear(&format!("{attention}.{name}"), hidden, heads * head_dim, 1.0, false);
            }
            weights.linear(&format!("{attention}.o_proj"), heads * head_dim, hidden, 1.0, false);
            weights.norm(&format!("{attention}.q_norm"), head_dim, false);
            weights.norm(&format!("{attention}.k_norm"), head_dim, false);
            weights.norm(&format!("{layer}.post_attention_layernorm"), hidden, false);
            match feed_forward {
                FeedForward::Dense { inner } => swiglu(&mut weights, &format!("{layer}.mlp"), hidden, inner),
                FeedForward::Experts { count, inner, .. } => {
                    weights.linear(&format!("{layer}.mlp.gate"), hidden, count, 1.0, false);
                    for expert in 0..count {
                        swiglu(&mut weights, &format!("{layer}.mlp.experts.{expert}"), hidden, inner);
                    }
                }
            }
        }
        weights.norm("model.norm", hidden, false);
        weights
    }
}

fn swiglu(weights: &mut Weights, name: &str, hidden: usize, inner: usize) {
    weights.linear(&format!("{name}.gate_proj"), hidden, inner, 1.0, false);
    weights.linear(&format!("{name}.up_proj"), hidden, inner, 1.0, false);
    weights.linear(&format!("{name}.down_proj"), inner, hidden, 1.0, false);
}

/// The checkpoint of `shape` under `folder`, written unless it is there already.
pub fn checkpoint(folder: &Path, shape: &Shape) -> Result<PathBuf> {
    let dir = folder.join(shape.name());
    if !dir.is_dir() {
        let staging = dir.with_extension("partial");
        fs::create_dir_all(&staging).with_context(|| format!("making {}", staging.display()))?;
        fs::write(staging.join("config.json"), format!("{:#}\n", shape.config()))?;
        shape.weights().write(&staging.join("model.safetensors")).map_err(|e| anyhow!("{}: {e}", staging.display()))?;
        fs::rename(&staging, &dir).with_context(|| format!("making {}", dir.display()))?;
    }
    Ok(dir)
}
