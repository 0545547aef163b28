//! Text to token ids and back: `tokenizer.json` through the `tokenizers` crate, and the ids that end an answer.

mod length;
mod spelling;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use thiserror::Error;

use crate::checkpoint::{Problem, read_object};
use spelling::Spelling;
pub use stream::StreamDecoder;

#[derive(Debug)]
pub struct Tokenizer {
    path: PathBuf,
    inner: tokenizers::Tokenizer,
    eos: Vec<u32>,
    spelling: Spelling,
    most_bytes: Option<usize>,
    /// Tokens outside the vocabulary proper: how they are written, and whether they are special.
    added: BTreeMap<u32, (String, bool)>,
}

#[derive(Debug, Error)]
pub enum TokenizerError {
    #[error(
        "{} has no tokenizer.json; copy it from the original model into this directory (a `tokenizer.model` or \
         `vocab.json` alone is not read), or import the model from a GGUF file, which holds its tokenizer", .0.display()
    )]
    Missing(PathBuf),
    #[error("{} is no tokenizer that can be used: {why}", path.display())]
    Unusable { path: PathBuf, why: String },
    #[error("{} cannot encode the text: {why}", path.display())]
    Encode { path: PathBuf, why: String },
    #[error("{} cannot decode the tokens {tokens:?}: {why}", path.display())]
    Decode { path: PathBuf, tokens: Vec<u32>, why: String },
    #[error(transparent)]
    Config(#[from] Problem),
    #[error("{}: `eos_token_id` is {found}; expected a token id or a list of them", path.display())]
    Eos { path: PathBuf, found: Value },
}

impl Tokenizer {
    /// Opens the tokenizer of a model directory, and collects from its configs what ends an answer.
    pub fn open(dir: &Path) -> Result<Tokenizer, TokenizerError> {
        let path = dir.join("tokenizer.json");
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(TokenizerError::Missing(dir.to_path_buf()));
            }
            Err(error) => return Err(TokenizerError::Unusable { path, why: error.to_string() }),
        };
        let inner = tokenizers::Tokenizer::from_bytes(&text)
            .map_err(|error| TokenizerError::Unusable { path: path.clone(), why: error.to_string() })?;
        let eos = eos_ids(dir, &inner)?;
        let decoder = inner.get_decoder().map(serde_json::to_value).and_then(Result::ok).unwrap_or_default();
        let spelling = Spelling::of_decoder(&decoder);
        let added = inner.get_added_tokens_decoder().into_iter();
        let added = added.map(|(id, token)| (id, (token.content, token.special))).collect();
        let most_bytes = length::most_bytes(&inner);
        Ok(Tokenizer { path, inner, eos, spelling, most_bytes, added })
    }

    /// The ids of `text`. Special tokens written in the text count as such; `add_special` also adds those the
    /// tokenizer puts around a prompt (a chat template has put them in itself).
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self
            .inner
            .encode_fast(text, add_special)
            .map_err(|error| TokenizerError::Encode { path: self.path.clone(), why: error.to_string() })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of `tokens`, special ones and those that end an answer left out.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TokenizerError> {
        let visible: Vec<u32> = tokens.iter().copied().filter(|token| !self.eos.contains(token)).collect();
        self.inner.decode(&visible, true).map_err(|error| TokenizerError::Decode {
            path: self.path.clone(),
            tokens: visible,
            why: error.to_string(),
        })
    }

    /// The text of `tokens`, special ones as they are written.
    pub fn text(&self, tokens: &[u32]) -> Result<String, TokenizerError> {
        self.inner.decode(tokens, false).map_err(|error| TokenizerError::Decode {
            path: self.path.clone(),
            tokens: tokens.to_vec(),
            why: error.to_string(),
        })
    }

    /// What ends an answer: the union of config.json, generation_config.json and tokenizer_config.json, ascending.
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos
    }

    /// The number of ids, added tokens included.
    pub fn len(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The bytes a token stands for, which may be a part of a character; for a special one, how it is written.
    pub fn bytes(&self, id: u32) -> Option<Vec<u8>> {
        match self.added.get(&id) {
            Some((content, _)) => Some(content.as_bytes().to_vec()),
            None => Some(self.spelling.bytes(&self.inner.id_to_token(id)?)),
        }
    }

    /// Most bytes of a text that one token may stand for; `None` where nothing bounds them (runs of spaces that are dropped,
    /// unknown words that are one token). A text has at least its length by this tokens, and that is known before it is encoded.
    pub fn most_bytes(&self) -> Option<usize> {
        self.most_bytes
    }

    /// Whether a token is special: it has a meaning of its own, and no text.
    pub fn is_special(&self, id: u32) -> bool {
        self.added.get(&id).is_some_and(|(_, special)| *special)
    }

    /// A decoder for tokens that arrive one by one.
    pub fn stream(&self) -> StreamDecoder<'_> {
        StreamDecoder::new(self)
    }
}

fn eos_ids(dir: &Path, tokenizer: &tokenizers::Tokenizer) -> Result<Vec<u32>, TokenizerError> {
    let mut ids = BTreeSet::new();
    for file in ["config.json", "generation_config.json"] {
        let path = dir.join(file);
        let config = read_object(&path)?.unwrap_or_default();
        ids.extend(listed(&config).map_err(|found| TokenizerError::Eos { path, found })?);
    }
    let config = read_object(&dir.join("tokenizer_config.json"))?.unwrap_or_default();
    let token = config.get("eos_token").and_then(token_text);
    ids.extend(token.and_then(|token| tokenizer.token_to_id(token)));
    Ok(ids.into_iter().collect())
}

/// A token in tokenizer_config.json: written as itself, or as an object that describes it.
pub(crate) fn token_text(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
}

/// `eos_token_id` as one id, a list, or null; models of several parts keep it in `text_config`.
fn listed(config: &Map<String, Value>) -> Result<Vec<u32>, Value> {
    let nested = || config.get("text_config").and_then(|text| text.get("eos_token_id"));
    let Some(value) = config.get("eos_token_id").filter(|value| !value.is_null()).or_else(nested) else {
        return Ok(Vec::new());
    };
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(ids) => ids.iter().map(|value| id(value).ok_or_else(|| value.clone())).collect(),
        one => id(one).map(|id| vec![id]).ok_or_else(|| one.clone()),
    }
}
