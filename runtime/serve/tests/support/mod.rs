//! What the tests of the engine share: a tiny model with a tokenizer of single characters, a session whose answers can be told in
//! advance, and how an answer is read.

#![allow(dead_code, reason = "no test uses all of it")]

pub mod scripted;

use std::{path::Path, sync::Arc, time::Duration};

use mgraph_runtime::{error::Result, model::Model, session::Numerics};
use mgraph_serve::{
    engine::{Answer, Engine, Health, Loaded},
    request::{Done, Event, Failure, Request, Sampling, Shape, Stop},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The golden `llama`, which has 131 tokens, and a tokenizer for it: three special ones, then a token for each ASCII character, but
/// for those that [`PARTS`] replaces.
pub fn tiny() -> Result<TempDir> {
    tiny_of("llama")
}

/// The same of another golden with as many tokens.
pub fn tiny_of(golden: &str) -> Result<TempDir> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens").join(golden);
    let dir = TempDir::new()?;
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden.join(file), dir.path().join(file))?;
    }
    std::fs::write(dir.path().join("tokenizer.json"), characters().to_string())?;
    Ok(dir)
}

pub const EOS: u32 = 2;

/// The token of a character.
pub fn token(character: char) -> u32 {
    3 + u32::from(character)
}

pub fn tokens(text: &str) -> Vec<u32> {
    text.chars().map(token).collect()
}

/// Bytes of characters that are no ASCII (`é`, `€`), in the place of control characters.
const PARTS: [(u32, &str); 5] = [(1, "Ã"), (2, "©"), (4, "â"), (5, "Ĥ"), (6, "¬")];

fn characters() -> Value {
    let specials = ["<unk>", "<s>", "</s>"];
    // GPT-2's alphabet: control characters, space and DEL stand apart.
    let spelt = |byte: u32| match byte {
        0x21..=0x7e => char::from_u32(byte),
        0x7f => char::from_u32(0x100 + 33),
        other => char::from_u32(0x100 + other),
    };
    let mut vocabulary: serde_json::Map<String, Value> =
        (0..128).filter_map(|byte| Some((spelt(byte)?.to_string(), json!(3 + byte)))).collect();
    vocabulary.retain(|_, id| PARTS.iter().all(|(byte, _)| *id != json!(3 + byte)));
    vocabulary.extend(PARTS.iter().map(|(byte, spelling)| ((*spelling).to_owned(), json!(3 + byte))));
    vocabulary.extend(specials.iter().enumerate().map(|(id, name)| ((*name).to_owned(), json!(id))));
    let added = |(id, name): (usize, &&str)| json!({ "id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true });
    json!({
        "version": "1.0",
        "added_tokens": specials.iter().enumerate().map(added).collect::<Vec<_>>(),
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false },
        "decoder": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false },
        "model": { "type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": false },
    })
}

pub fn loaded(dir: &Path, ctx_size: usize, numerics: Numerics) -> Result<Arc<Loaded>> {
    let model = Model::open(dir, mgraph_models::FAMILIES)?;
    Ok(Arc::new(Loaded::new(model, Some(ctx_size), numerics)?))
}

/// A greedy request that reports its tokens.
pub fn request(prompt: &[u32], max_tokens: usize) -> Request {
    Request {
        prompt: prompt.to_vec(),
        pictures: Arc::default(),
        max_tokens,
        sampling: Sampling::default(),
        stop: Stop::default(),
        shape: Shape::Text,
        logprobs: Some(0),
        deadline: None,
    }
}

/// Waits until the engine takes requests.
pub fn until_ready(engine: &Engine) {
    for _ in 0..6000 {
        match engine.health() {
            Health::Ready => return,
            Health::Loading(_) => std::thread::sleep(Duration::from_millis(10)),
            other @ (Health::Draining | Health::Failed(_)) => panic!("the engine is not ready: {other:?}"),
        }
    }
    panic!("the engine is not ready after a minute: {:?}", engine.health());
}

/// Waits for what must come true soon.
pub fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("after five seconds it still does not hold: {what}");
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Read {
    pub text: String,
    pub tokens: Vec<u32>,
    pub end: Option<std::result::Result<Done, Failure>>,
}

impl Read {
    pub fn done(&self) -> &Done {
        match &self.end {
            Some(Ok(done)) => done,
            other => panic!("the answer is not done: {other:?}"),
        }
    }

    pub fn failure(&self) -> &Failure {
        match &self.end {
            Some(Err(failure)) => failure,
            other => panic!("the answer has not failed: {other:?}"),
        }
    }
}

/// Reads to the end, which comes exactly once.
pub fn read(mut answer: Answer) -> Read {
    let mut read = Read::default();
    while let Some(event) = answer.wait() {
        assert!(read.end.is_none(), "an event after the end: {event:?}");
        match event {
            Event::Piece(piece) => {
                read.text += &piece.text;
                read.tokens.extend(piece.logprobs.iter().map(|token| token.token.id));
            }
            Event::Done(done) => read.end = Some(Ok(done)),
            Event::Failed(failure) => read.end = Some(Err(failure)),
        }
    }
    assert!(read.end.is_some(), "no end");
    read
}
