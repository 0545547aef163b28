//! `tokenizer.ggml.*` as `tokenizer.json`, `tokenizer_config.json` and `generation_config.json`.
//!
//! Byte-level BPE (`tokenizer.ggml.model = gpt2`) only. How text is split before merging is not stored in the file, just
//! named, so [`splitting`] knows each accepted name; ids are checked against llama.cpp's (`tests/fixtures/tokenizer`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use tokenizers::Tokenizer;

use super::ImportError;
use crate::gguf::Gguf;

/// `enum llama_token_type` of llama.cpp.
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

#[derive(Debug)]
pub(super) struct Vocabulary {
    pub tokenizer: Value,
    pub tokenizer_config: Value,
    pub bos: Option<u32>,
    pub pad: Option<u32>,
    /// Every token that ends an answer, the end of the text first.
    eos: Vec<u32>,
}

impl Vocabulary {
    /// One id, several, or null: the three forms config.json knows.
    pub(super) fn eos_value(&self) -> Value {
        match self.eos.as_slice() {
            [] => Value::Null,
            [only] => (*only).into(),
            many => many.into(),
        }
    }

    pub(super) fn generation_config(&self) -> Value {
        json!({"bos_token_id": self.bos, "eos_token_id": self.eos_value(), "pad_token_id": self.pad})
    }
}

/// Reads the tokenizer; `rows` is the number of embeddings, which bounds the ids.
pub(super) fn read(gguf: &Gguf, rows: usize) -> Result<Vocabulary, ImportError> {
    let refuse = |why: String| ImportError::Tokenizer { path: gguf.path().to_path_buf(), why };
    let model = gguf.require("tokenizer.ggml.model", gguf.string("tokenizer.ggml.model")?)?;
    if model != "gpt2" {
        return Err(refuse(format!(
            "its kind is `{model}`; byte-level BPE (`gpt2`) can be imported. Use the tokenizer.json of the original model"
        )));
    }
    let name = gguf.string("tokenizer.ggml.pre")?.unwrap_or("default");
    let splitting = splitting(name).ok_or_else(|| {
        let known: Vec<_> = SPLITTINGS.iter().flat_map(|splitting| splitting.names).copied().collect();
        refuse(format!("it splits text by the rule `{name}`, which is not known here; known are {}", known.join(", ")))
    })?;

    let key = "tokenizer.ggml.tokens";
    let tokens = gguf.require(key, gguf.strings(key)?)?;
    if tokens.is_empty() || tokens.len() > rows {
        return Err(refuse(format!("it has {} tokens for {rows} embeddings", tokens.len())));
    }
    let types = gguf.integers("tokenizer.ggml.token_type")?.unwrap_or_else(|| vec![1; tokens.len()]);
    if types.len() != tokens.len() {
        return Err(refuse(format!("it has {} tokens but {} token types", tokens.len(), types.len())));
    }
    let mut vocab = Map::with_capacity(tokens.len());
    for (id, token) in tokens.iter().enumerate() {
        if let Some(first) = vocab.insert((*token).to_owned(), id.into()) {
            return Err(refuse(format!("the token {token:?} has two ids, {first} and {id}")));
        }
    }
    let key = "tokenizer.ggml.merges";
    let merges = gguf.require(key, gguf.strings(key)?)?;
    let merges = merges.into_iter().map(merge).collect::<Result<Vec<_>, _>>().map_err(refuse)?;

    let special = Special::read(gguf, &tokens)?;
    let post_processor = special.post_processor(&tokens, splitting.bos);
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added_tokens(&tokens, &types, &special),
        "normalizer": if splitting.nfc { json!({"type": "NFC"}) } else { Value::Null },
        "pre_tokenizer": splitting.pre_tokenizer(),
        "post_processor": post_processor,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": splitting.ignore_merges,
            "vocab": vocab,
            "merges": merges,
        },
    });
    // What is written must be readable: merges of unknown tokens and the like end here, not at the first prompt.
    serde_json::from_value::<Tokenizer>(tokenizer.clone()).map_err(|error| refuse(error.to_string()))?;

    let tokenizer_config = special.config(gguf, &tokens, splitting.bos)?;
    let Special { bos, pad, eos, .. } = special;
    Ok(Vocabulary { tokenizer, tokenizer_config, bos, pad, eos })
}

/// The two halves stand apart by the first space that is not the first character, as llama.cpp reads them.
fn merge(text: &str) -> Result<[&str; 2], String> {
    let after_first = text.chars().next().map_or(0, char::len_utf8);
    let space = text.get(after_first..).and_then(|rest| rest.find(' ')).map(|at| at + after_first);
    let halves = space.and_then(|at| Some([text.get(..at)?, text.get(at + 1..)?]));
    halves.ok_or_else(|| format!("the merge {text:?} is not two tokens with a space between"))
}

fn added_tokens(tokens: &[&str], types: &[i32], special: &Special) -> Vec<Value> {
    let named: BTreeSet<usize> = special.ids().map(|id| id as usize).collect();
    let mut added = Vec::new();
    for (id, (token, kind)) in tokens.iter().zip(types).enumerate() {
        let control = matches!(*kind, CONTROL | UNKNOWN) || named.contains(&id);
        // An empty token would match everywhere.
        if (control || *kind == USER_DEFINED) && !token.is_empty() {
            added.push(json!({
                "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": control,
            }));
        }
    }
    added
}

#[derive(Debug)]
struct Special {
    bos: Option<u32>,
    unk: Option<u32>,
    pad: Option<u32>,
    eos: Vec<u32>,
    add_bos: Option<bool>,
    add_eos: bool,
}

impl Special {
    fn read(gguf: &Gguf, tokens: &[&str]) -> Result<Special, ImportError> {
        let id = |name: &str| -> Result<Option<u32>, ImportError> {
            let key = format!("tokenizer.ggml.{name}_token_id");
            let Some(id) = gguf.integer(&key)? else { return Ok(None) };
            let known = u32::try_from(id).ok().filter(|&id| (id as usize) < tokens.len());
            known.map(Some).ok_or_else(|| ImportError::Tokenizer {
                path: gguf.path().to_path_buf(),
                why: format!("`{key}` is {id}, but it has {} tokens", tokens.len()),
            })
        };
        let mut eos = Vec::new();
        for id in [id("eos")?, id("eot")?, id("eom")?].into_iter().flatten() {
            if !eos.contains(&id) {
                eos.push(id);
            }
        }
        Ok(Special {
            bos: id("bos")?,
            unk: id("unknown")?,
            pad: id("padding")?,
            eos,
            add_bos: gguf.boolean("tokenizer.ggml.add_bos_token")?,
            add_eos: gguf.boolean("tokenizer.ggml.add_eos_token")?.unwrap_or(false),
        })
    }

    fn ids(&self) -> impl Iterator<Item = u32> {
        [self.bos, self.unk, self.pad].into_iter().flatten().chain(self.eos.iter().copied())
    }

    fn adds(&self, bos_by_default: bool) -> (Option<u32>, Option<u32>) {
        let bos = self.bos.filter(|_| self.add_bos.unwrap_or(bos_by_default));
        (bos, self.eos.first().copied().filter(|_| self.add_eos))
    }

    fn post_processor(&self, tokens: &[&str], bos_by_default: bool) -> Value {
        let (bos, eos) = self.adds(bos_by_default);
        if bos.is_none() && eos.is_none() {
            return json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        }
        // `read` checked the ids against the tokens.
        let mark = |id: u32, kind: u32| json!({"SpecialToken": {"id": tokens[id as usize], "type_id": kind}});
        let around = |sequence: &str, kind: u32| {
            let sequence = json!({"Sequence": {"id": sequence, "type_id": kind}});
            let (before, after) = (bos.map(|id| mark(id, kind)), eos.map(|id| mark(id, kind)));
            before.into_iter().chain([sequence]).chain(after).collect::<Vec<_>>()
        };
        let specials: Map<String, Value> = bos
            .into_iter()
            .chain(eos)
            .map(|id| {
                let token = tokens[id as usize];
                (token.to_owned(), json!({"id": token, "ids": [id], "tokens": [token]}))
            })
            .collect();
        let pair = [around("A", 0), around("B", 1)].concat();
        json!({
            "type": "TemplateProcessing",
            "single": around("A", 0),
            "pair": pair,
            "special_tokens": specials,
        })
    }

    fn config(&self, gguf: &Gguf, tokens: &[&str], bos_by_default: bool) -> Result<Value, ImportError> {
        let text = |id: Option<u32>| id.map(|id| tokens[id as usize]);
        let (bos, eos) = self.adds(bos_by_default);
        let mut config = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_bos_token": bos.is_some(),
            "add_eos_token": eos.is_some(),
            "bos_token": text(self.bos),
            "eos_token": text(self.eos.first().copied()),
            "unk_token": text(self.unk),
            "pad_token": text(self.pad),
            "clean_up_tokenization_spaces": false,
            "model_max_length": gguf.integer("llama.context_length")?,
        });
        let template = chat_template(gguf)?;
        if let (false, Some(config)) = (template.is_null(), config.as_object_mut()) {
            config.insert("chat_template".into(), template);
        }
        Ok(config)
    }
}

/// One template as a string; several as the named list that `transformers` reads.
fn chat_template(gguf: &Gguf) -> Result<Value, ImportError> {
    let key = "tokenizer.chat_template";
    let default = gguf.string(key)?;
    let mut named = Vec::new();
    for name in gguf.strings("tokenizer.chat_templates")?.unwrap_or_default() {
        if let Some(template) = gguf.string(&format!("{key}.{name}"))? {
            named.push(json!({"name": name, "template": template}));
        }
    }
    Ok(match default {
        Some(template) if named.is_empty() => template.into(),
        Some(template) => {
            named.insert(0, json!({"name": "default", "template": template}));
            named.into()
        }
        None if named.is_empty() => Value::Null,
        None => named.into(),
    })
}

/// A way to split text before merging, under the names `tokenizer.ggml.pre` has for it.
struct Splitting {
    names: &'static [&'static str],
    /// Each cuts the pieces of the one before.
    patterns: &'static [&'static str],
    /// A piece that is a token as a whole is not built from merges.
    ignore_merges: bool,
    /// Prompts start with the bos token unless the file says otherwise.
    bos: bool,
    nfc: bool,
}

/// GPT-2's own pattern.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Patterns as the released tokenizers state them, names as llama.cpp's `llama-vocab.cpp` maps them.
const SPLITTINGS: [Splitting; 5] = [
    Splitting { names: &["gpt-2", "gpt2"], patterns: &[GPT2], ignore_merges: false, bos: false, nfc: false },
    Splitting { names: &["smollm"], patterns: &[r"\p{N}", GPT2], ignore_merges: false, bos: false, nfc: false },
    Splitting {
        names: &["llama-bpe", "llama3", "llama-v3"],
        patterns: &[LLAMA3],
        ignore_merges: true,
        bos: true,
        nfc: false,
    },
    Splitting { names: &["qwen2"], patterns: &[QWEN2], ignore_merges: false, bos: false, nfc: true },
    // What llama.cpp does with a file that names nothing.
    Splitting {
        names: &["default"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ignore_merges: false,
        bos: false,
        nfc: false,
    },
];

fn splitting(name: &str) -> Option<&'static Splitting> {
    SPLITTINGS.iter().find(|splitting| splitting.names.contains(&name))
}

impl Splitting {
    fn pre_tokenizer(&self) -> Value {
        let split = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        let steps: Vec<Value> = self.patterns.iter().map(split).chain([bytes]).collect();
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}
