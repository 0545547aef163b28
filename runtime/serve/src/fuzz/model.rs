//! A model of nothing but words, from `fuzz/model` and `fuzz/templates`: a tokenizer with a token for each byte and a few longer
//! ones, and a chat template of each kind that the server tells apart.

use std::{path::Path, sync::LazyLock};

use mgraph_runtime::{
    template::{ChatTemplate, Clock},
    tokenizer::Tokenizer,
};
use serde_json::json;

use crate::{api::generation::Known, engine::fuzzed::Grammars};

/// Token `b` is the byte `b`.
pub const BYTES: u32 = 256;

pub const EOS: u32 = 262;

/// Ids that are no tokens come after those that are.
pub const KNOWN: Known = Known { logits: 270, ids: 280 };

pub struct Model {
    pub tokenizer: Tokenizer,
    pub grammars: Grammars,
    pub templates: Vec<ChatTemplate>,
}

const TEMPLATES: [(&str, &str); 4] = [
    ("hermes.jinja", include_str!("../../fuzz/templates/hermes.jinja")),
    ("mistral.jinja", include_str!("../../fuzz/templates/mistral.jinja")),
    ("llama.jinja", include_str!("../../fuzz/templates/llama.jinja")),
    ("plain.jinja", include_str!("../../fuzz/templates/plain.jinja")),
];

pub static MODEL: LazyLock<Model> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/model");
    let tokenizer = Tokenizer::open(&folder).expect("a tokenizer");
    let grammars = Grammars::new(&tokenizer, KNOWN.logits).expect("a vocabulary with an end");
    let template = |(name, source): (&str, &str)| {
        let special = json!({"bos_token": "<s>", "eos_token": "</s>"}).as_object().cloned().unwrap_or_default();
        ChatTemplate::compile(Path::new(name), [("default".into(), source.into())], special, Clock::Local)
    };
    let templates = TEMPLATES.map(template).into_iter().collect::<Result<_, _>>().expect("templates");
    Model { tokenizer, grammars, templates }
});
