//! The sizes of a checkpoint, and config.json as the release lays it out.

use serde_json::{Value, json};

/// The vision part, and as little text as the family binds.
#[derive(Debug, Clone, Copy)]
pub struct Shapes {
    pub hidden: usize,
    pub inner: usize,
    pub heads: usize,
    /// Declared layers of the tower.
    pub depth: usize,
    /// Of the declared layers, those that are tapped, from the end.
    pub taps: [i64; 2],
    pub patch: usize,
    /// Patches along a side of a crop.
    pub side: usize,
    pub adapter_inner: usize,
    pub text_hidden: usize,
}

/// Of the text part: one small layer over few tokens, of no interest here.
pub(crate) const TEXT_INNER: usize = 64;
pub(crate) const TEXT_HEADS: usize = 2;
pub(crate) const TEXT_HEAD: usize = 64;
pub(crate) const VOCABULARY: usize = 64;
pub(crate) const EXTRA: usize = 16;

/// Ids of the tokens that stand for something of a picture; they lie in the additional vocabulary, as in the release.
pub(crate) const START: i32 = 64;
pub(crate) const END: i32 = 65;
pub(crate) const PATCH: i32 = 66;
pub(crate) const COLUMN: i32 = 67;
pub(crate) const VIEW_START: i32 = 68;

impl Shapes {
    /// As released (allenai/Molmo2-4B, config.json).
    pub const RELEASED: Shapes = Shapes {
        hidden: 1152,
        inner: 4304,
        heads: 16,
        depth: 27,
        taps: [-3, -9],
        patch: 14,
        side: 27,
        adapter_inner: 9728,
        text_hidden: 2560,
    };

    /// The released width on two layers, in crops of few patches: what a test can afford.
    pub const SHALLOW: Shapes = Shapes { depth: 4, taps: [-3, -4], side: 6, ..Shapes::RELEASED };

    /// With so many stored layers, at least two, of which the last is tapped, and one before it.
    pub fn of_layers(self, stored: usize) -> Shapes {
        let first = self.taps[1].max(-2 - stored as i64);
        Shapes { depth: stored + 2, taps: [-3, first], ..self }
    }

    /// Layers that are stored: the deepest that is tapped, and those below.
    pub fn stored(&self) -> usize {
        (self.depth as i64 + self.taps.iter().max().copied().unwrap_or(-1)) as usize + 1
    }

    pub(crate) fn places(&self) -> usize {
        self.side * self.side
    }

    pub(crate) fn pixels_per_patch(&self) -> usize {
        3 * self.patch * self.patch
    }

    pub(crate) fn config(&self) -> Value {
        let head = self.hidden / self.heads;
        json!({
            "architectures": ["Molmo2ForConditionalGeneration"],
            "model_type": "molmo2",
            "image_start_token_id": START,
            "image_end_token_id": END,
            "image_patch_id": PATCH,
            "image_col_id": COLUMN,
            "low_res_image_start_token_id": VIEW_START,
            "tie_word_embeddings": false,
            "vision_config": {},
            "vit_config": {
                "float32_attention": true,
                "head_dim": head,
                "hidden_act": "gelu_pytorch_tanh",
                "hidden_size": self.hidden,
                "image_default_input_size": [self.side * self.patch, self.side * self.patch],
                "image_num_pos": self.places(),
                "image_patch_size": self.patch,
                "intermediate_size": self.inner,
                "layer_norm_eps": 1e-6,
                "num_attention_heads": self.heads,
                "num_hidden_layers": self.depth,
                "num_key_value_heads": self.heads,
            },
            "adapter_config": {
                "float32_attention": true,
                "head_dim": head,
                "hidden_act": "silu",
                "hidden_size": self.hidden,
                "intermediate_size": self.adapter_inner,
                "num_attention_heads": self.heads,
                "num_key_value_heads": self.heads,
                "pooling_attention_mask": true,
                "text_hidden_size": self.text_hidden,
                "vit_layers": self.taps,
            },
            "text_config": {
                "additional_vocab_size": EXTRA,
                "head_dim": TEXT_HEAD,
                "hidden_act": "silu",
                "hidden_size": self.text_hidden,
                "intermediate_size": TEXT_INNER,
                "layer_norm_eps": 1e-6,
                "max_position_embeddings": 4096,
                "norm_after": false,
                "num_attention_heads": TEXT_HEADS,
                "num_hidden_layers": 1,
                "num_key_value_heads": TEXT_HEADS,
                "qk_norm_type": "qwen3",
                "qkv_bias": false,
                "rope_theta": 5000000.0,
                "use_qk_norm": true,
                "vocab_size": VOCABULARY,
            },
        })
    }

    /// Patches by which neighbouring tiles overlap, on each side.
    fn margin(&self) -> usize {
        if self.side > 8 { 4 } else { 1 }
    }

    /// preprocessor_config.json; the margins of the release where its crops are.
    pub(crate) fn preprocessor(&self) -> Value {
        let pixels = self.side * self.patch;
        let margin = self.margin();
        json!({
            "image_processor_type": "Molmo2ImageProcessor",
            "do_convert_rgb": true,
            "do_normalize": true,
            "do_rescale": true,
            "do_resize": true,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
            "max_crops": 8,
            "overlap_margins": [margin, margin],
            "patch_size": self.patch,
            "pooling_size": [2, 2],
            "resample": 2,
            "rescale_factor": 1.0 / 255.0,
            "size": {"height": pixels, "width": pixels},
        })
    }

    /// The size of a picture, width first, that is cut into `tiles` tiles, two rows of them where that works out, each as large
    /// as it comes in: with the view of the whole that is one crop more.
    pub(crate) fn picture(&self, tiles: usize) -> (usize, usize) {
        let margin = self.margin();
        let rows = if tiles.is_multiple_of(2) && tiles > 2 { 2 } else { 1 };
        let pixels = |tiles: usize| (tiles * (self.side - 2 * margin) + 2 * margin) * self.patch;
        (pixels(tiles / rows), pixels(rows))
    }
}
