//! The form that an answer must have, as a mask over tokens at every step: `llguidance`, over the bytes that our tokenizer says
//! its tokens stand for.

use std::sync::Arc;

use llguidance::{Matcher, ParserFactory, api::TopLevelGrammar};
use mgraph_runtime::tokenizer::Tokenizer;
use serde_json::{Value, json};
use toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};

use super::numbers;
use crate::request::{Refusal, Shape};

/// White space between the parts of a JSON text: a model may take to it, and must come back.
const JSON_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,16}";

/// The grammars of one vocabulary. May be used from many threads.
pub struct Grammars {
    factory: ParserFactory,
}

impl Grammars {
    /// `vocabulary`: how many logits the model gives.
    ///
    /// Errors: a model that names no end-of-sequence token among them, without which an answer of a form has no end.
    pub fn new(tokenizer: &Tokenizer, vocabulary: usize) -> Result<Grammars, String> {
        let eos: Vec<u32> = tokenizer.eos_ids().iter().copied().filter(|id| (*id as usize) < vocabulary).collect();
        let Some(first) = eos.first().copied() else {
            return Err(
                "the model names no end-of-sequence token, so an answer of a given form would have no end".into()
            );
        };
        let words: Vec<Vec<u8>> = (0..vocabulary as u32).map(|id| word(tokenizer, id)).collect();
        let trie = TokTrie::from(&TokRxInfo::new(vocabulary as u32, first), &words).with_eos_tokens(&eos);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new(
            &environment,
            InferenceCapabilities::default(),
            &llguidance::earley::SlicedBiasComputer::general_slices(),
        )
        .map_err(|error| format!("the vocabulary cannot be used for answers of a given form: {error}"))?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Grammars { factory })
    }

    /// Takes a while for large schemas: not for the engine's thread.
    ///
    /// Errors: a schema or grammar that cannot be used, and why.
    pub fn compile(&self, shape: &Shape) -> Result<Option<Form>, Refusal> {
        let (grammar, what) = match shape {
            Shape::Text => return Ok(None),
            Shape::JsonObject => (schema(&json!({ "type": "object" })), "the JSON object"),
            Shape::JsonSchema(given) => (schema(given), "the JSON schema"),
            Shape::Lark(text) => (TopLevelGrammar::from_lark(text.clone()), "the grammar"),
        };
        numbers::grammar();
        let matcher = Matcher::new(self.factory.create_parser(grammar));
        match matcher.get_error() {
            Some(error) => Err(Refusal::Invalid(format!("{what} cannot be used: {}", short(&error)))),
            None => Ok(Some(Form { matcher })),
        }
    }
}

fn schema(given: &Value) -> TopLevelGrammar {
    TopLevelGrammar::from_json_schema(guided(given))
}

/// A schema whose answers have bounded white space; how it is compiled is not the client's to say.
pub(crate) fn guided(given: &Value) -> Value {
    let mut schema = given.clone();
    if let Some(object) = schema.as_object_mut() {
        object.insert("x-guidance".into(), json!({ "whitespace_pattern": JSON_SPACE }));
    }
    schema
}

/// As `toktrie` wants it: special tokens behind a marker that no text has, and nothing for ids that stand for nothing.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    match tokenizer.bytes(id) {
        Some(bytes) if tokenizer.is_special(id) => [&[TokTrie::SPECIAL_TOKEN_MARKER], &bytes[..]].concat(),
        Some(bytes) => bytes,
        None => Vec::new(),
    }
}

/// Messages may go on with the state of the parser.
fn short(error: &str) -> String {
    const MOST: usize = 300;
    let line = error.lines().next().unwrap_or_default();
    match line.char_indices().nth(MOST) {
        Some((at, _)) => format!("{} ..", &line[..at]),
        None => line.to_owned(),
    }
}

/// The form of one answer, as far as it has come.
pub struct Form {
    matcher: Matcher,
}

impl Form {
    /// For another answer: neither knows of the other.
    pub fn again(&self) -> Form {
        Form { matcher: self.matcher.deep_clone() }
    }

    /// The tokens that may come next: bit `id % 32` of word `id / 32`. The end of the sequence is among them where the text may end.
    ///
    /// Errors: a form that turns out too complex.
    pub fn allowed(&mut self) -> Result<toktrie::SimpleVob, String> {
        self.matcher.compute_mask_or_eos().map_err(|error| short(&error.to_string()))
    }

    /// Takes a token that was allowed; whether nothing can follow it.
    pub fn take(&mut self, token: u32) -> Result<bool, String> {
        self.matcher.consume_token(token).map_err(|error| short(&error.to_string()))?;
        Ok(self.matcher.is_stopped())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{JSON_SPACE, guided};

    #[test]
    fn how_a_schema_is_compiled_is_not_the_clients_to_say() {
        let space = json!({ "whitespace_pattern": JSON_SPACE });
        for given in [json!({"type": "object"}), json!({"type": "object", "x-guidance": {"item_separator": "x*"}})] {
            assert_eq!(guided(&given), json!({"type": "object", "x-guidance": space}));
        }
        assert_eq!(guided(&json!(true)), json!(true));
    }
}
