//! A checkpoint that sees and speaks: the golden `molmo2` with the vocabulary of the real SmolLM2 (`make model` fetches it), the
//! tokens of pictures after it, a chat template that knows pictures, and a processor's files as the released ones are laid out.
//! Embeddings and head are random numbers, the same every time. `make.py` writes what the reference implementation makes of it
//! to `expected.json`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};

/// The real model's folder, from [`root`].
pub const REAL: &str = ".toolchain/models/smollm2-135m-instruct";

/// Ids of the real vocabulary; the tokens of [`ADDED`] come after them.
const VOCABULARY: usize = 49_152;

/// The token that a golden's config calls so, and how it is written. `additional_vocab_size` of the golden is 10.
pub const ADDED: [(&str, &str); 10] = [
    ("image_start_token_id", "<im_start>"),
    ("image_end_token_id", "<im_end>"),
    ("image_patch_id", "<im_patch>"),
    ("image_col_id", "<im_col>"),
    ("low_res_image_start_token_id", "<low_res_im_start>"),
    ("", "<|image|>"),
    ("image_low_res_id", "<im_low>"),
    ("frame_start_token_id", "<frame_start>"),
    ("frame_end_token_id", "<frame_end>"),
    ("", "<|video|>"),
];

const TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}\
    {% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}\
    {% if part['type'] == 'image' %}{{ '<|image|>' }}{% else %}{{ part['text'] }}{% endif %}\
    {% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Writes it into `dir`: 40 MB.
pub fn small_vlm(dir: &Path) {
    let (golden, real) = (root().join("tests/goldens/molmo2"), root().join(REAL));
    let id = |at: usize| json!(VOCABULARY + at);

    let mut config = object(&golden.join("config.json"));
    config["text_config"]["vocab_size"] = json!(VOCABULARY);
    for (at, (key, _)) in ADDED.iter().enumerate().filter(|(_, (key, _))| !key.is_empty()) {
        config[*key] = id(at);
    }
    config["image_high_res_id"] = config["image_patch_id"].clone();

    let mut tokenizer = object(&real.join("tokenizer.json"));
    for (at, (_, text)) in ADDED.iter().enumerate() {
        let added = json!({
            "id": id(at), "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true,
        });
        tokenizer["added_tokens"].as_array_mut().unwrap().push(added);
    }
    let mut tokenizer_config = object(&real.join("tokenizer_config.json"));
    tokenizer_config["chat_template"] = json!(TEMPLATE);
    let picture = json!({
        "image_processor_type": "Molmo2ImageProcessor", "size": {"height": 20, "width": 20}, "patch_size": 4,
        "max_crops": 4, "overlap_margins": [1, 1], "pooling_size": [2, 2], "resample": 2,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
        "do_resize": true, "do_rescale": true, "do_normalize": true, "do_convert_rgb": true,
    });
    let processor = json!({
        "processor_class": "Molmo2Processor", "image_use_col_tokens": true, "use_single_crop_col_tokens": null,
        "use_single_crop_start_token": true,
    });
    let files = [
        ("config.json", &config),
        ("tokenizer.json", &tokenizer),
        ("tokenizer_config.json", &tokenizer_config),
        ("preprocessor_config.json", &picture),
        ("processor_config.json", &processor),
    ];
    for (name, content) in files {
        fs::write(dir.join(name), content.to_string()).unwrap();
    }
    fs::write(dir.join("model.safetensors"), weights(&fs::read(golden.join("model.safetensors")).unwrap())).unwrap();
}

/// Those of the golden, with as many rows of embeddings and of the head as there are words.
fn weights(golden: &[u8]) -> Vec<u8> {
    let golden = SafeTensors::deserialize(golden).unwrap();
    let widened = |name: &str, view: TensorView<'_>| {
        let scale = match name {
            "model.transformer.wte.embedding" => 0.3,
            "lm_head.weight" => 0.25,
            _ => return (view.shape().to_vec(), view.data().to_vec()),
        };
        let shape = vec![VOCABULARY, view.shape()[1]];
        (shape.clone(), numbers(shape.iter().product(), scale))
    };
    let all: Vec<_> = golden.iter().map(|(name, view)| (name.to_owned(), widened(name, view))).collect();
    let views = all
        .iter()
        .map(|(name, (shape, bytes))| (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

/// From `-scale` to `scale`.
fn numbers(count: usize, scale: f32) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        scale * ((state >> 8) as f32 / (1 << 23) as f32 - 1.0)
    };
    (0..count).flat_map(|_| next().to_le_bytes()).collect()
}

pub fn object(file: &Path) -> Value {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}; `make model` fetches it", file.display()));
    serde_json::from_str(&text).unwrap()
}

/// Of the repository, from any of its packages.
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().find(|folder| folder.join("Cargo.lock").is_file()).unwrap().to_owned()
}
