//! Parameters that chats and completions share: how tokens are chosen, when an answer ends, how it is sent.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
};

use serde::Deserialize;
use utoipa::ToSchema;

use super::ApiError;
use crate::request::{Sampling, Stop};

/// Most answers to one request.
pub const MOST_CHOICES: u32 = 16;
/// Most alternatives reported with a token.
pub const MOST_ALTERNATIVES: u32 = 20;
const MOST_STOPS: usize = 16;
const MOST_STOP_BYTES: usize = 4 << 10;

#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Generation {
    /// The model's name or alias; absent means the one that is served.
    pub model: Option<String>,
    /// Send the answer piece by piece, as server-sent events.
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    /// From 0 (greedy) to 2.
    #[schema(minimum = 0, maximum = 2, default = 1)]
    pub temperature: Option<f32>,
    /// More than 0, at most 1.
    #[schema(exclusive_minimum = 0, maximum = 1, default = 1)]
    pub top_p: Option<f32>,
    /// Only the likeliest; 0 and -1 are no limit.
    #[schema(minimum = -1, default = 0)]
    pub top_k: Option<i64>,
    /// Tokens less likely than this share of the likeliest are dropped.
    #[schema(minimum = 0, maximum = 1, default = 0)]
    pub min_p: Option<f32>,
    /// Divides the logits of tokens that are in the text already; 1 is none.
    #[schema(minimum = 0.01, maximum = 10, default = 1)]
    pub repetition_penalty: Option<f32>,
    #[schema(minimum = -2, maximum = 2, default = 0)]
    pub presence_penalty: Option<f32>,
    #[schema(minimum = -2, maximum = 2, default = 0)]
    pub frequency_penalty: Option<f32>,
    /// By token id, from -100 to 100.
    pub logit_bias: Option<BTreeMap<String, f32>>,
    /// The same seed, request and server give the same answer; answer `i` of several has the seed plus `i`.
    pub seed: Option<i64>,
    /// Answers to one request.
    #[schema(minimum = 1, maximum = 16, default = 1)]
    pub n: Option<u32>,
    /// Texts that end an answer and are no part of it.
    pub stop: Option<OneOrMore>,
    /// Tokens that end an answer and are no part of it.
    pub stop_token_ids: Option<Vec<u32>>,
    /// End-of-sequence tokens do not end an answer.
    pub ignore_eos: Option<bool>,
    /// An identifier of the client's own; nothing depends on it.
    pub user: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamOptions {
    /// One more chunk at the end, with the numbers of tokens.
    #[serde(default)]
    pub include_usage: bool,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn into_list(self) -> Vec<String> {
        match self {
            OneOrMore::One(one) => vec![one],
            OneOrMore::More(more) => more,
        }
    }
}

/// How many tokens the model tells apart.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// That it can answer with.
    pub logits: usize,
    /// That it can read.
    pub ids: usize,
}

/// [`Generation`], checked.
#[derive(Debug, Clone)]
pub struct Checked {
    pub model: Option<String>,
    pub stream: bool,
    pub include_usage: bool,
    pub sampling: Sampling,
    pub stop: Stop,
    pub n: u32,
}

impl Generation {
    /// `vocabulary`: how many token ids the model tells apart.
    pub fn check(self, vocabulary: usize) -> Result<Checked, ApiError> {
        let stream = self.stream.unwrap_or(false);
        if self.stream_options.is_some() && !stream {
            return Err(ApiError::parameter("stream_options", "stream_options go with `\"stream\": true` alone"));
        }
        let n = self.n.unwrap_or(1);
        if !(1..=MOST_CHOICES).contains(&n) {
            return Err(ApiError::parameter("n", format!("n is {n}; expected 1 to {MOST_CHOICES}")));
        }
        let top_k = match self.top_k.unwrap_or(0) {
            -1 => 0,
            count => usize::try_from(count).map_err(|_| {
                let message = format!("top_k is {count}; expected a count of tokens, or 0 or -1 for no limit");
                ApiError::parameter("top_k", message)
            })?,
        };
        let sampling = Sampling {
            temperature: within("temperature", self.temperature, 1.0, 0.0, 2.0)?,
            top_p: above_zero("top_p", self.top_p, 1.0)?,
            top_k,
            min_p: within("min_p", self.min_p, 0.0, 0.0, 1.0)?,
            repetition_penalty: within("repetition_penalty", self.repetition_penalty, 1.0, 0.01, 10.0)?,
            presence_penalty: within("presence_penalty", self.presence_penalty, 0.0, -2.0, 2.0)?,
            frequency_penalty: within("frequency_penalty", self.frequency_penalty, 0.0, -2.0, 2.0)?,
            logit_bias: bias(self.logit_bias.unwrap_or_default(), vocabulary)?,
            seed: self.seed.map_or_else(arbitrary, |seed| seed as u64),
        };
        let stop = Stop {
            strings: stops(self.stop)?,
            tokens: self.stop_token_ids.unwrap_or_default(),
            ignore_eos: self.ignore_eos.unwrap_or(false),
        };
        for (at, token) in stop.tokens.iter().enumerate() {
            known(format!("stop_token_ids[{at}]"), u64::from(*token), vocabulary)?;
        }
        Ok(Checked {
            model: self.model,
            stream,
            include_usage: self.stream_options.unwrap_or_default().include_usage,
            sampling,
            stop,
            n,
        })
    }
}

fn within(name: &str, value: Option<f32>, default: f32, least: f32, most: f32) -> Result<f32, ApiError> {
    let value = value.unwrap_or(default);
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(ApiError::parameter(name, format!("{name} is {value}; expected {least} to {most}")))
}

/// The default is 1.
fn above_zero(name: &str, value: Option<f32>, most: f32) -> Result<f32, ApiError> {
    let value = value.unwrap_or(1.0);
    if value > 0.0 && value <= most {
        return Ok(value);
    }
    Err(ApiError::parameter(name, format!("{name} is {value}; expected more than 0 and at most {most}")))
}

fn known(path: String, token: u64, vocabulary: usize) -> Result<u32, ApiError> {
    match u32::try_from(token) {
        Ok(id) if (id as usize) < vocabulary => Ok(id),
        Ok(_) | Err(_) => {
            let message = format!("{path}: there is no token {token}; the model has {vocabulary}");
            Err(ApiError::parameter(path, message))
        }
    }
}

fn bias(bias: BTreeMap<String, f32>, vocabulary: usize) -> Result<Vec<(u32, f32)>, ApiError> {
    let mut checked = BTreeMap::new();
    for (key, value) in bias {
        let path = format!("logit_bias.{key}");
        let Ok(token) = key.parse() else {
            return Err(ApiError::parameter(&path, format!("{path}: {key:?} is no token id")));
        };
        let id = known(path.clone(), token, vocabulary)?;
        if !(-100.0..=100.0).contains(&value) {
            return Err(ApiError::parameter(&path, format!("{path} is {value}; expected -100 to 100")));
        }
        if checked.insert(id, value).is_some() {
            return Err(ApiError::parameter(&path, format!("{path}: token {id} is named twice")));
        }
    }
    Ok(checked.into_iter().collect())
}

fn stops(stop: Option<OneOrMore>) -> Result<Vec<String>, ApiError> {
    let strings = stop.map(OneOrMore::into_list).unwrap_or_default();
    if strings.len() > MOST_STOPS {
        let message = format!("stop has {} strings; at most {MOST_STOPS} are taken", strings.len());
        return Err(ApiError::parameter("stop", message));
    }
    if strings.iter().any(String::is_empty) {
        return Err(ApiError::parameter("stop", "stop: an empty string would end every answer at once"));
    }
    if let Some(long) = strings.iter().find(|string| string.len() > MOST_STOP_BYTES) {
        let message = format!("stop: a string has {} bytes; at most {MOST_STOP_BYTES} are taken", long.len());
        return Err(ApiError::parameter("stop", message));
    }
    Ok(strings)
}

/// A number that nobody chose.
pub fn arbitrary() -> u64 {
    RandomState::new().hash_one(0)
}

/// Most tokens of an answer; `None` is what the context holds.
pub fn max_tokens(name: &str, value: Option<i64>) -> Result<Option<usize>, ApiError> {
    let checked = |count: i64| {
        usize::try_from(count)
            .ok()
            .filter(|count| *count > 0)
            .ok_or_else(|| ApiError::parameter(name, format!("{name} is {count}; expected at least 1")))
    };
    value.map(checked).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Generation;

    #[test]
    fn what_numbers_and_lengths_are_taken() {
        let checked = |parameter: &str, value: Value| {
            let generation: Generation =
                serde_json::from_value(json!({ parameter: value })).expect("its type is right");
            generation.check(10).map(drop).map_err(|error| (error.status, error.detail.param))
        };
        let refused = |parameter: &str| Err((400, Some(parameter.to_owned())));
        for value in [0.01, 1.0, 10.0] {
            assert_eq!(checked("repetition_penalty", json!(value)), Ok(()), "{value}");
        }
        for value in [-1.0, 0.0, 1e-30, 0.009, 10.1] {
            assert_eq!(checked("repetition_penalty", json!(value)), refused("repetition_penalty"), "{value}");
        }
        assert_eq!(checked("stop", json!(["x".repeat(4096)])), Ok(()));
        assert_eq!(checked("stop", json!(["a", "x".repeat(4097)])), refused("stop"));
    }
}
