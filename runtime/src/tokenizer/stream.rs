//! Tokens to text one by one: what is not yet a whole character is held back.

use super::{Tokenizer, TokenizerError};

/// Turns a stream of tokens into text, holding back what is not yet a whole character.
///
/// A token's text depends on its neighbours (spaces, parts of characters), so a window is decoded as a whole and only what
/// it has beyond the text already given out is new. Old tokens leave the window, so a long answer costs no more per token.
///
/// Tokens that are one byte of a longer character (`<0xF0>`) never enter the window: the decoder makes marks of a whole run of them
/// while its last character is incomplete, of characters before it too.
#[derive(Debug, Clone)]
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    window: Vec<u32>,
    /// The text of the window that was given out.
    printed: String,
    /// Bytes of a character that has not arrived in full.
    open: Vec<u8>,
}

const WINDOW: usize = 32;
const CONTEXT: usize = 8;

/// Bytes of a character that may be there without the last one.
const MOST_OPEN: usize = 3;

/// Stands in the window for bytes that begin a text, where decoders drop the space before a first word.
const FIRST: &str = "<0x2E>";

impl<'a> StreamDecoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> StreamDecoder<'a> {
        StreamDecoder { tokenizer, window: Vec::new(), printed: String::new(), open: Vec::new() }
    }

    /// Takes one token; the text that became complete with it, if any.
    pub fn push(&mut self, token: u32) -> Result<Option<String>, TokenizerError> {
        if self.tokenizer.is_special(token) || self.tokenizer.eos.contains(&token) {
            return Ok(None);
        }
        let written = self.tokenizer.id_to_token(token);
        let new = match written.and_then(|written| self.tokenizer.spelling.byte(&written)) {
            Some(byte @ 0x80..) => self.byte(byte)?,
            Some(_) | None => self.given_up() + &self.whole(token)?,
        };
        Ok(Some(new).filter(|new| !new.is_empty()))
    }

    /// A byte of a character of several.
    fn byte(&mut self, byte: u8) -> Result<String, TokenizerError> {
        if self.window.is_empty()
            && let Some(first) = self.tokenizer.token_to_id(FIRST)
        {
            self.window.push(first);
            self.printed = self.tokenizer.decode(&self.window)?;
        }
        self.open.push(byte);
        let mut text = String::new();
        while !self.open.is_empty() {
            let (complete, broken) = match std::str::from_utf8(&self.open) {
                Ok(whole) => (whole, Some(0)),
                Err(error) => {
                    let complete = self.open[..error.valid_up_to()].utf8_chunks().next();
                    (complete.map_or("", |chunk| chunk.valid()), error.error_len())
                }
            };
            text.push_str(complete);
            let taken = complete.len() + broken.unwrap_or(0);
            if broken.is_some_and(|bytes| bytes > 0) {
                text.push(char::REPLACEMENT_CHARACTER);
            }
            self.open.drain(..taken);
            if broken.is_none() {
                break;
            }
        }
        Ok(text)
    }

    /// A character that something else came after is never complete.
    fn given_up(&mut self) -> String {
        if self.open.is_empty() {
            return String::new();
        }
        self.open.clear();
        char::REPLACEMENT_CHARACTER.to_string()
    }

    fn whole(&mut self, token: u32) -> Result<String, TokenizerError> {
        self.window.push(token);
        let text = self.tokenizer.decode(&self.window)?;
        let settled = &text[..self.settled(&text)];
        let new = beyond(settled, &self.printed).to_owned();
        if self.window.len() >= WINDOW {
            // Some stay as context: decoders may treat the first token of a text differently. Starting inside a
            // character does no harm, it decodes to the same marks now and later.
            self.window.drain(..self.window.len() - CONTEXT);
            self.printed = self.tokenizer.decode(&self.window)?;
            self.printed.truncate(self.settled(&self.printed));
        } else if settled.len() >= self.printed.len() {
            self.printed = settled.to_owned();
        }
        Ok(new)
    }

    /// What was held back at the end: an incomplete character appears as U+FFFD.
    pub fn finish(mut self) -> Result<String, TokenizerError> {
        let text = self.tokenizer.decode(&self.window)?;
        Ok(beyond(&text, &self.printed).to_owned() + &self.given_up())
    }

    /// How much of a text is final. The replacement character at its end stands for bytes of a character that has not arrived in
    /// full; those before the last few can only have come to nothing.
    fn settled(&self, text: &str) -> usize {
        if !self.tokenizer.spelling.splits_characters() {
            return text.len();
        }
        let size = char::REPLACEMENT_CHARACTER.len_utf8();
        let open = (text.len() - text.trim_end_matches(char::REPLACEMENT_CHARACTER).len()) / size;
        text.len() - open.min(MOST_OPEN) * size
    }
}

/// What `text` has beyond what was given out. Where a decoder changed its mind about that, text is rather repeated than lost.
fn beyond<'a>(text: &'a str, printed: &str) -> &'a str {
    let same = text.chars().zip(printed.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    &text[same..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::Tokenizer;

    /// Llama 2's decoder over a token for each byte and a few words.
    fn tokenizer() -> Tokenizer {
        let mut vocabulary: serde_json::Map<String, serde_json::Value> =
            (0..=255_u32).map(|byte| (format!("<0x{byte:02X}>"), json!(byte))).collect();
        vocabulary.extend([("▁a".to_owned(), json!(256)), ("b".to_owned(), json!(257)), ("é".to_owned(), json!(258))]);
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [
                { "id": 259, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
                  "normalized": false, "special": true }
            ], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
            "decoder": { "type": "Sequence", "decoders": [
                { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
                { "type": "ByteFallback" }, { "type": "Fuse" }, { "type": "Strip", "content": " ", "start": 1, "stop": 0 }
            ] },
            "model": { "type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": true, "fuse_unk": true }
        });
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("tokenizer.json"), file.to_string()).expect("written");
        Tokenizer::open(dir.path()).expect("a tokenizer")
    }

    fn streamed(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
        let mut stream = tokenizer.stream();
        let pieces: Vec<String> = tokens.iter().filter_map(|token| stream.push(*token).expect("text")).collect();
        pieces.concat() + &stream.finish().expect("text")
    }

    #[test]
    fn bytes_that_are_no_character_come_out_as_marks_and_lose_nothing() {
        let tokenizer = tokenizer();
        let cases: &[(&[u32], &str)] = &[
            (&[0xf0, 0x9f, 0x98, 0x80, 0xf0, 0x9f, 0x98, 0x81], "😀😁"),
            (&[0xf0, 0x9f, 257, 0xc3, 0xa9], "\u{fffd}bé"),
            (&[0xff, 0xc3, 0xa9, 0xc3], "\u{fffd}é\u{fffd}"),
            (&[0xf0, 0x9f, 0x0a], "\u{fffd}\n"),
            (&[256, 256], "a a"),
            (&[0xc3, 0xa9, 256], "é a"),
            (&[0x20, 256], " a"),
            // A special token has no text, and divides none.
            (&[0xc3, 259, 0xa9], "é"),
        ];
        for (tokens, text) in cases {
            assert_eq!(streamed(&tokenizer, tokens), *text, "{tokens:?}");
        }
    }

    proptest! {
        #[test]
        fn text_in_bytes_and_words_streams_as_it_is_decoded(
            parts in proptest::collection::vec(prop_oneof!["\\PC{0,4}", "[😀-😏é\\n]{0,6}", Just("@".to_owned())], 0..20),
            words in proptest::collection::vec(256..=258_u32, 20),
        ) {
            let tokenizer = tokenizer();
            let tokens: Vec<u32> = parts.iter().zip(words).flat_map(|(part, word)| {
                let spelt = part.bytes().map(u32::from).collect();
                if part == "@" { vec![word] } else { spelt }
            }).collect();
            prop_assert_eq!(streamed(&tokenizer, &tokens), tokenizer.decode(&tokens).expect("text"));
        }
    }
}
