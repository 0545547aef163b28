//! The checkpoint: every tensor under its released name. Scales keep activations near 1 through all layers.

use std::{fs, path::Path};

use crate::{
    Result, Stored, Weights,
    shapes::{EXTRA, Shapes, TEXT_HEAD, TEXT_HEADS, TEXT_INNER, VOCABULARY},
};

/// The parts of a checkpoint.
struct Parts(Weights);

impl Parts {
    fn vision(&mut self, shapes: &Shapes) {
        let Shapes { hidden, inner, .. } = *shapes;
        let vit = "model.vision_backbone.image_vit";
        self.0.linear(&format!("{vit}.patch_embedding"), shapes.pixels_per_patch(), hidden, 1.0, true);
        self.0.add(format!("{vit}.positional_embedding"), &[shapes.places(), hidden], 0.0, 0.5);
        for layer in 0..shapes.stored() {
            let layer = format!("{vit}.transformer.resblocks.{layer}");
            self.0.norm(&format!("{layer}.attention_norm"), hidden, true);
            // Scores of about 2, so that attention chooses.
            for (name, gain) in [("wq", 1.5), ("wk", 1.5), ("wv", 1.0), ("wo", 1.0)] {
                self.0.linear(&format!("{layer}.attention.{name}"), hidden, hidden, gain, true);
            }
            self.0.norm(&format!("{layer}.ffn_norm"), hidden, true);
            self.0.linear(&format!("{layer}.feed_forward.w1"), hidden, inner, 1.0, true);
            self.0.linear(&format!("{layer}.feed_forward.w2"), inner, hidden, 0.5, true);
        }
    }

    fn adapter(&mut self, shapes: &Shapes) {
        let (hidden, inner, tapped) = (shapes.hidden, shapes.adapter_inner, 2 * shapes.hidden);
        let pooling = "model.vision_backbone.image_pooling_2d";
        for name in ["wq", "wk", "wv"] {
            self.0.linear(&format!("{pooling}.{name}"), tapped, hidden, 0.5, true);
        }
        self.0.linear(&format!("{pooling}.wo"), hidden, hidden, 1.0, true);
        let projector = "model.vision_backbone.image_projector";
        self.0.linear(&format!("{projector}.w1"), hidden, inner, 1.0, false);
        self.0.linear(&format!("{projector}.w3"), hidden, inner, 1.0, false);
        self.0.linear(&format!("{projector}.w2"), inner, shapes.text_hidden, 1.0, false);
    }

    fn text(&mut self, hidden: usize) {
        let (wide, head) = (TEXT_HEADS * TEXT_HEAD, TEXT_HEAD);
        let text = "model.transformer";
        self.0.add(format!("{text}.wte.embedding"), &[VOCABULARY, hidden], 0.0, 1.0);
        self.0.add(format!("{text}.wte.new_embedding"), &[EXTRA, hidden], 0.0, 1.0);
        let layer = format!("{text}.blocks.0");
        self.0.norm(&format!("{layer}.attn_norm"), hidden, false);
        self.0.linear(&format!("{layer}.self_attn.att_proj"), hidden, 3 * wide, 1.0, false);
        self.0.norm(&format!("{layer}.self_attn.q_norm"), head, false);
        self.0.norm(&format!("{layer}.self_attn.k_norm"), head, false);
        self.0.linear(&format!("{layer}.self_attn.attn_out"), wide, hidden, 1.0, false);
        self.0.norm(&format!("{layer}.ff_norm"), hidden, false);
        self.0.linear(&format!("{layer}.mlp.ff_proj"), hidden, 2 * TEXT_INNER, 1.0, false);
        self.0.linear(&format!("{layer}.mlp.ff_out"), TEXT_INNER, hidden, 1.0, false);
        self.0.norm(&format!("{text}.ln_f"), hidden, false);
        self.0.linear("lm_head", hidden, VOCABULARY, 1.0, false);
    }
}

/// Writes config.json, preprocessor_config.json and model.safetensors into `dir`; the number of parameters.
pub fn checkpoint(dir: &Path, shapes: &Shapes, stored: Stored, seed: u64) -> Result<usize> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("config.json"), format!("{:#}\n", shapes.config()))?;
    fs::write(dir.join("preprocessor_config.json"), format!("{:#}\n", shapes.preprocessor()))?;
    let mut parts = Parts(Weights::new(stored, seed));
    parts.vision(shapes);
    parts.adapter(shapes);
    parts.text(shapes.text_hidden);
    parts.0.write(&dir.join("model.safetensors"))
}
