//! Random weights under the released names, written one tensor at a time. Scales keep activations near 1 through all layers.

use std::{borrow::Cow, fs, path::Path};

use half::bf16;
use safetensors::{Dtype, View};

use crate::{
    Result, noise,
    shapes::{EXTRA, Shapes, TEXT_HEAD, TEXT_HEADS, TEXT_INNER, VOCABULARY},
};

/// The dtype of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Stored {
    F32,
    Bf16,
}

/// One tensor, made when it is written: `center` and around it evenly distributed numbers of standard deviation `spread`.
struct Weight {
    seed: u64,
    shape: Vec<usize>,
    center: f32,
    spread: f32,
    stored: Stored,
}

impl View for &Weight {
    fn dtype(&self) -> Dtype {
        match self.stored {
            Stored::F32 => Dtype::F32,
            Stored::Bf16 => Dtype::BF16,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let count = self.shape.iter().product::<usize>() as u64;
        let width = self.spread * 3f32.sqrt();
        let values = (0..count).map(|at| self.center + width * noise::even(self.seed, at));
        let mut bytes = Vec::with_capacity(self.data_len());
        match self.stored {
            Stored::F32 => values.for_each(|x| bytes.extend_from_slice(&x.to_le_bytes())),
            Stored::Bf16 => values.for_each(|x| bytes.extend_from_slice(&bf16::from_f32(x).to_le_bytes())),
        }
        bytes.into()
    }

    fn data_len(&self) -> usize {
        let size = match self.stored {
            Stored::F32 => 4,
            Stored::Bf16 => 2,
        };
        self.shape.iter().product::<usize>() * size
    }
}

struct Weights {
    seed: u64,
    stored: Stored,
    all: Vec<(String, Weight)>,
}

impl Weights {
    fn add(&mut self, name: String, shape: &[usize], center: f32, spread: f32) {
        let weight =
            Weight { seed: noise::seed(self.seed, &name), shape: shape.to_vec(), center, spread, stored: self.stored };
        self.all.push((name, weight));
    }

    /// `gain`: the size of what comes out for numbers near 1.
    fn linear(&mut self, name: &str, inputs: usize, outputs: usize, gain: f32, bias: bool) {
        self.add(format!("{name}.weight"), &[outputs, inputs], 0.0, gain / (inputs as f32).sqrt());
        if bias {
            self.add(format!("{name}.bias"), &[outputs], 0.0, 0.02);
        }
    }

    fn norm(&mut self, name: &str, width: usize, bias: bool) {
        self.add(format!("{name}.weight"), &[width], 1.0, 0.05);
        if bias {
            self.add(format!("{name}.bias"), &[width], 0.0, 0.02);
        }
    }

    fn vision(&mut self, shapes: &Shapes) {
        let Shapes { hidden, inner, .. } = *shapes;
        let vit = "model.vision_backbone.image_vit";
        self.linear(&format!("{vit}.patch_embedding"), shapes.pixels_per_patch(), hidden, 1.0, true);
        self.add(format!("{vit}.positional_embedding"), &[shapes.places(), hidden], 0.0, 0.5);
        for layer in 0..shapes.stored() {
            let layer = format!("{vit}.transformer.resblocks.{layer}");
            self.norm(&format!("{layer}.attention_norm"), hidden, true);
            // Scores of about 2, so that attention chooses.
            for (name, gain) in [("wq", 1.5), ("wk", 1.5), ("wv", 1.0), ("wo", 1.0)] {
                self.linear(&format!("{layer}.attention.{name}"), hidden, hidden, gain, true);
            }
            self.norm(&format!("{layer}.ffn_norm"), hidden, true);
            self.linear(&format!("{layer}.feed_forward.w1"), hidden, inner, 1.0, true);
            self.linear(&format!("{layer}.feed_forward.w2"), inner, hidden, 0.5, true);
        }
    }

    fn adapter(&mut self, shapes: &Shapes) {
        let (hidden, inner, tapped) = (shapes.hidden, shapes.adapter_inner, 2 * shapes.hidden);
        let pooling = "model.vision_backbone.image_pooling_2d";
        for name in ["wq", "wk", "wv"] {
            self.linear(&format!("{pooling}.{name}"), tapped, hidden, 0.5, true);
        }
        self.linear(&format!("{pooling}.wo"), hidden, hidden, 1.0, true);
        let projector = "model.vision_backbone.image_projector";
        self.linear(&format!("{projector}.w1"), hidden, inner, 1.0, false);
        self.linear(&format!("{projector}.w3"), hidden, inner, 1.0, false);
        self.linear(&format!("{projector}.w2"), inner, shapes.text_hidden, 1.0, false);
    }

    fn text(&mut self, hidden: usize) {
        let (wide, head) = (TEXT_HEADS * TEXT_HEAD, TEXT_HEAD);
        let text = "model.transformer";
        self.add(format!("{text}.wte.embedding"), &[VOCABULARY, hidden], 0.0, 1.0);
        self.add(format!("{text}.wte.new_embedding"), &[EXTRA, hidden], 0.0, 1.0);
        let layer = format!("{text}.blocks.0");
        self.norm(&format!("{layer}.attn_norm"), hidden, false);
        self.linear(&format!("{layer}.self_attn.att_proj"), hidden, 3 * wide, 1.0, false);
        self.norm(&format!("{layer}.self_attn.q_norm"), head, false);
        self.norm(&format!("{layer}.self_attn.k_norm"), head, false);
        self.linear(&format!("{layer}.self_attn.attn_out"), wide, hidden, 1.0, false);
        self.norm(&format!("{layer}.ff_norm"), hidden, false);
        self.linear(&format!("{layer}.mlp.ff_proj"), hidden, 2 * TEXT_INNER, 1.0, false);
        self.linear(&format!("{layer}.mlp.ff_out"), TEXT_INNER, hidden, 1.0, false);
        self.norm(&format!("{text}.ln_f"), hidden, false);
        self.linear("lm_head", hidden, VOCABULARY, 1.0, false);
    }
}

/// Writes config.json, preprocessor_config.json and model.safetensors into `dir`; the number of parameters.
pub fn checkpoint(dir: &Path, shapes: &Shapes, stored: Stored, seed: u64) -> Result<usize> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("config.json"), format!("{:#}\n", shapes.config()))?;
    fs::write(dir.join("preprocessor_config.json"), format!("{:#}\n", shapes.preprocessor()))?;
    let mut weights = Weights { seed, stored, all: Vec::new() };
    weights.vision(shapes);
    weights.adapter(shapes);
    weights.text(shapes.text_hidden);
    let all = weights.all.iter().map(|(name, weight)| (name, weight));
    safetensors::serialize_to_file(all, None, &dir.join("model.safetensors"))?;
    Ok(weights.all.iter().map(|(_, weight)| weight.shape.iter().product::<usize>()).sum())
}
