//! The bytes that a token stands for, which may be a part of a character: how a vocabulary spells them is read from the
//! tokenizer's decoder.

use serde_json::Value;

/// How the vocabulary writes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Spelling {
    /// A character for every byte (GPT-2's alphabet).
    alphabet: bool,
    /// `<0x0A>` is one byte.
    hex: bool,
    /// `▁` is a space.
    metaspace: bool,
}

impl Spelling {
    /// From a decoder as `tokenizer.json` writes it, sequences and all.
    pub(super) fn of_decoder(decoder: &Value) -> Spelling {
        let replaces = || {
            let pattern = decoder.pointer("/pattern/String").and_then(Value::as_str);
            pattern == Some("▁") && decoder.get("content").and_then(Value::as_str) == Some(" ")
        };
        match decoder.get("type").and_then(Value::as_str) {
            Some("ByteLevel") => Spelling { alphabet: true, ..Spelling::default() },
            Some("ByteFallback") => Spelling { hex: true, ..Spelling::default() },
            Some("Metaspace") => Spelling { metaspace: true, ..Spelling::default() },
            Some("Replace") if replaces() => Spelling { metaspace: true, ..Spelling::default() },
            Some("Sequence") => {
                let parts = decoder.get("decoders").and_then(Value::as_array).into_iter().flatten();
                parts.map(Spelling::of_decoder).fold(Spelling::default(), |a, b| Spelling {
                    alphabet: a.alphabet || b.alphabet,
                    hex: a.hex || b.hex,
                    metaspace: a.metaspace || b.metaspace,
                })
            }
            _ => Spelling::default(),
        }
    }

    /// The one byte that a token `<0x0A>` is, in a vocabulary that has such.
    pub(super) fn byte(self, token: &str) -> Option<u8> {
        let digits = token.strip_prefix("<0x")?.strip_suffix('>').filter(|_| self.hex)?;
        u8::from_str_radix(digits, 16).ok()
    }

    /// Whether a token of the vocabulary may be a part of a character.
    pub(super) fn splits_characters(self) -> bool {
        self.alphabet
    }

    /// The bytes of a token of the vocabulary; not for added tokens, which are written as they are.
    pub(super) fn bytes(self, token: &str) -> Vec<u8> {
        if let Some(byte) = self.byte(token) {
            return vec![byte];
        }
        if self.alphabet
            && let Some(bytes) = token.chars().map(byte_of).collect()
        {
            return bytes;
        }
        if self.metaspace { token.replace('▁', " ").into_bytes() } else { token.as_bytes().to_vec() }
    }
}

/// GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes follow from U+0100 on, in order.
fn byte_of(character: char) -> Option<u8> {
    let printable = |code: u32| matches!(code, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    match u32::from(character) {
        code if printable(code) => u8::try_from(code).ok(),
        code @ 0x100.. => {
            let mut others = (0..=0xff_u32).filter(|byte| !printable(*byte));
            others.nth((code - 0x100) as usize).and_then(|byte| u8::try_from(byte).ok())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Spelling, byte_of};

    #[test]
    fn every_byte_has_one_character() {
        let mut bytes: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!("ĠĊ".chars().map(byte_of).collect::<Option<Vec<_>>>(), Some(b" \n".to_vec()));
    }

    #[test]
    fn decoders_tell_how_bytes_are_spelt() {
        let byte_level = Spelling::of_decoder(&json!({ "type": "ByteLevel", "add_prefix_space": true }));
        assert_eq!(byte_level.bytes("ĠÃ©"), " é".as_bytes());
        // A character that is none of the alphabet can only mean itself.
        assert_eq!(byte_level.bytes("é世"), "é世".as_bytes());
        let pieces = Spelling::of_decoder(&json!({ "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
            { "type": "ByteFallback" }, { "type": "Fuse" },
        ] }));
        assert_eq!(
            (pieces.bytes("▁of"), pieces.bytes("<0x0A>"), pieces.bytes("<0xZZ>")),
            (b" of".to_vec(), b"\n".to_vec(), b"<0xZZ>".to_vec())
        );
        assert_eq!(Spelling::of_decoder(&json!(null)).bytes("▁a"), "▁a".as_bytes());
    }
}
