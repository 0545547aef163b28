//! How much text one token may stand for, as far as the tokenizer's own description tells it.

use serde_json::Value;
use tokenizers::{ModelWrapper, Tokenizer};

/// The longest token in bytes, times what the normalizer may shrink a text by; `None` where text may vanish.
pub(super) fn most_bytes(tokenizer: &Tokenizer) -> Option<usize> {
    let ModelWrapper::BPE(model) = tokenizer.get_model() else { return None };
    let shrinks = match serde_json::to_value(tokenizer.get_normalizer()).ok()? {
        Value::Null => 1,
        normalizer => shrinks(&normalizer)?,
    };
    let splitter = serde_json::to_value(tokenizer.get_pre_tokenizer()).ok()?;
    let bytes = model.byte_fallback || spells_bytes(&splitter);
    let added = tokenizer.get_added_tokens_decoder();
    if !keeps(&splitter) || !bytes || added.values().any(|token| token.lstrip || token.rstrip) {
        return None;
    }
    // As a vocabulary spells its tokens, which is never shorter than what they stand for.
    let longest = tokenizer.get_vocab(true).keys().map(String::len).max()?;
    Some(longest * shrinks)
}

/// The parts of a sequence, under either of the names that it has them by; else the one.
fn parts<'a>(described: &'a Value, name: &str) -> Vec<&'a Value> {
    match described.get(name).and_then(Value::as_array) {
        Some(parts) => parts.iter().collect(),
        None => vec![described],
    }
}

/// By what factor a normalizer may shrink a text at most; `None` for no bound.
fn shrinks(normalizer: &Value) -> Option<usize> {
    let one = |part: &Value| match part["type"].as_str()? {
        // Composed Hangul and Greek; decomposed text only grows.
        "NFC" => Some(3),
        "NFD" | "NFKD" | "Prepend" | "ByteLevel" => Some(1),
        "Replace" => {
            let (from, to) = (part.pointer("/pattern/String")?.as_str()?, part["content"].as_str()?);
            (to.len() >= from.len()).then_some(1)
        }
        _ => None,
    };
    parts(normalizer, "normalizers").into_iter().map(one).product()
}

/// Whether a pre-tokenizer leaves every character in some piece.
fn keeps(splitter: &Value) -> bool {
    splitter.is_null()
        || parts(splitter, "pretokenizers").into_iter().all(|part| match part["type"].as_str() {
            Some("ByteLevel" | "Metaspace" | "Digits" | "UnicodeScripts") => true,
            Some("Split" | "Punctuation") => part["behavior"] != "Removed",
            _ => false,
        })
}

fn spells_bytes(splitter: &Value) -> bool {
    parts(splitter, "pretokenizers").into_iter().any(|part| part["type"] == "ByteLevel")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokenizers::Tokenizer;

    use super::most_bytes;

    fn of(changes: &[(&str, Value)]) -> Option<usize> {
        let mut described = json!({
            "version": "1.0", "added_tokens": [],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "aba": 3}, "merges": ["a b", "ab a"]},
        });
        for (key, value) in changes {
            described[*key] = value.clone();
        }
        most_bytes(&Tokenizer::from_bytes(described.to_string()).expect("a tokenizer"))
    }

    #[test]
    fn a_token_is_as_long_as_the_longest_where_no_text_vanishes() {
        let added = |strip: bool| {
            json!([{"id": 4, "content": "<mask>", "single_word": false, "lstrip": strip, "rstrip": false,
                    "normalized": false, "special": true}])
        };
        let replace = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
        let cases: [(&str, Value, Option<usize>); 10] = [
            ("normalizer", Value::Null, Some(3)),
            ("added_tokens", added(false), Some(6)),
            ("added_tokens", added(true), None),
            ("normalizer", json!({"type": "NFC"}), Some(9)),
            ("normalizer", replace(" ", "▁"), Some(3)),
            ("normalizer", replace("  ", " "), None),
            ("normalizer", json!({"type": "Strip", "strip_left": true, "strip_right": true}), None),
            ("normalizer", json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFD"}]}), Some(9)),
            ("pre_tokenizer", json!({"type": "Whitespace"}), None),
            ("pre_tokenizer", Value::Null, None),
        ];
        for (key, value, expected) in cases {
            assert_eq!(of(&[(key, value.clone())]), expected, "{key}: {value}");
        }
    }
}
