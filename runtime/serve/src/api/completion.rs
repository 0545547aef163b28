//! The body of `POST /v1/completions`.

use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    ApiError, body,
    generation::{Checked, Generation, Known, MOST_ALTERNATIVES, max_tokens},
};

/// As OpenAI's.
const DEFAULT_MAX_TOKENS: usize = 16;
/// Most prompts of one request.
const MOST_PROMPTS: usize = 16;

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Own {
    pub prompt: Prompts,
    #[serde(default)]
    #[schema(minimum = 1, default = 16)]
    pub max_tokens: Option<i64>,
    /// Alternatives reported with each token.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 20)]
    pub logprobs: Option<u32>,
}

/// Texts, or token ids.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string, a list of strings, a list of token ids, or a list of such lists")]
pub enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

/// All parameters, for the document.
#[derive(Deserialize, ToSchema)]
#[schema(as = CompletionRequest)]
pub struct CompletionBody {
    #[serde(flatten)]
    pub own: Own,
    #[serde(flatten)]
    pub generation: Generation,
}

#[derive(Debug, Clone)]
pub enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

/// A request that is well formed.
#[derive(Debug, Clone)]
pub struct Completion {
    pub generation: Checked,
    /// At least one, none empty.
    pub prompts: Vec<Prompt>,
    pub max_tokens: usize,
    pub logprobs: Option<usize>,
}

/// Reads and checks a body.
pub fn parse(bytes: &[u8], known: Known) -> Result<Completion, ApiError> {
    let mut object = body::object(bytes)?;
    let own: Own = body::take(&mut object)?;
    let generation: Generation = body::take(&mut object)?;
    body::nothing_left(&object, &[body::fields::<Own>(), body::fields::<Generation>()].concat())?;
    if own.logprobs.is_some_and(|count| count > MOST_ALTERNATIVES) {
        let message = format!("logprobs is more than {MOST_ALTERNATIVES}, the most that are reported");
        return Err(ApiError::parameter("logprobs", message));
    }
    Ok(Completion {
        generation: generation.check(known.logits)?,
        prompts: prompts(own.prompt, known.ids)?,
        max_tokens: max_tokens("max_tokens", own.max_tokens)?.unwrap_or(DEFAULT_MAX_TOKENS),
        logprobs: own.logprobs.map(|count| count as usize),
    })
}

fn prompts(prompts: Prompts, ids: usize) -> Result<Vec<Prompt>, ApiError> {
    let prompts: Vec<Prompt> = match prompts {
        Prompts::Text(text) => vec![Prompt::Text(text)],
        Prompts::Texts(texts) => texts.into_iter().map(Prompt::Text).collect(),
        Prompts::Tokens(tokens) => vec![Prompt::Tokens(tokens)],
        Prompts::TokenLists(lists) => lists.into_iter().map(Prompt::Tokens).collect(),
    };
    if prompts.is_empty() || prompts.len() > MOST_PROMPTS {
        let message = format!("prompt: {} prompts; expected 1 to {MOST_PROMPTS}", prompts.len());
        return Err(ApiError::parameter("prompt", message));
    }
    for prompt in &prompts {
        let empty = match prompt {
            Prompt::Text(text) => text.is_empty(),
            Prompt::Tokens(tokens) => tokens.is_empty(),
        };
        if empty {
            return Err(ApiError::parameter("prompt", "prompt is empty: there is nothing to continue"));
        }
        if let Prompt::Tokens(tokens) = prompt
            && let Some(outside) = tokens.iter().find(|token| **token as usize >= ids)
        {
            let message = format!("prompt: there is no token {outside}; the model has {ids}");
            return Err(ApiError::parameter("prompt", message));
        }
    }
    Ok(prompts)
}
