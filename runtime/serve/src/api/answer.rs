//! Bodies of answers, whole and in chunks, in OpenAI's form.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use crate::request::{Alternative, Done, Finish, TokenLogprob};

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ChatCompletion {
    pub id: String,
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
    pub choices: Vec<ChatChoice>,
    pub usage: Usage,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ChatChoice {
    pub index: usize,
    pub message: AnswerMessage,
    pub logprobs: Option<ChatLogprobs>,
    pub finish_reason: FinishReason,
    /// The stop string or token that ended the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AnswerMessage {
    pub role: &'static str,
    pub content: Option<String>,
    pub refusal: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolCall {
    /// Which call of the answer, in chunks alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    pub id: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub function: ToolFunction,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolFunction {
    pub name: String,
    /// JSON, as text.
    pub arguments: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    Stop,
    Length,
    ToolCalls,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ChatChunk {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<ChatDelta>,
    /// In the last chunk, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ChatDelta {
    pub index: usize,
    pub delta: Delta,
    pub logprobs: Option<ChatLogprobs>,
    pub finish_reason: Option<FinishReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub struct ChatLogprobs {
    pub content: Vec<ChatLogprob>,
    pub refusal: Option<Vec<ChatLogprob>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ChatLogprob {
    #[serde(flatten)]
    pub token: Scored,
    pub top_logprobs: Vec<Scored>,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Scored {
    pub token: String,
    pub logprob: f32,
    pub bytes: Vec<u8>,
}

impl From<&Alternative> for Scored {
    fn from(alternative: &Alternative) -> Scored {
        Scored {
            token: alternative.text.clone(),
            logprob: written(alternative.logprob),
            bytes: alternative.bytes.clone(),
        }
    }
}

/// JSON has no infinity; OpenAI writes what has no chance so.
fn written(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}

impl ChatLogprobs {
    pub fn extend(&mut self, tokens: &[TokenLogprob]) {
        self.content.extend(tokens.iter().map(|token| ChatLogprob {
            token: (&token.token).into(),
            top_logprobs: token.top.iter().map(Scored::from).collect(),
        }));
    }
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Completion {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<CompletionChoice>,
    pub usage: Usage,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CompletionChunk {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<CompletionChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CompletionChoice {
    pub index: usize,
    pub text: String,
    pub logprobs: Option<CompletionLogprobs>,
    pub finish_reason: Option<FinishReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub struct CompletionLogprobs {
    pub tokens: Vec<String>,
    pub token_logprobs: Vec<f32>,
    pub top_logprobs: Vec<BTreeMap<String, f32>>,
    /// In characters of the answer. Tokens that are parts of one character have its offset, each of them.
    pub text_offset: Vec<usize>,
}

impl CompletionLogprobs {
    pub fn extend(&mut self, tokens: &[TokenLogprob]) {
        for TokenLogprob { token, offset, top } in tokens {
            self.tokens.push(token.text.clone());
            self.token_logprobs.push(written(token.logprob));
            // Of two that are written alike (a special token, and the same as words) the likelier counts, which is the first.
            let mut likeliest = BTreeMap::new();
            for other in top {
                likeliest.entry(other.text.clone()).or_insert(written(other.logprob));
            }
            self.top_logprobs.push(likeliest);
            self.text_offset.push(*offset);
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Usage {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
    pub total_tokens: usize,
    pub prompt_tokens_details: PromptDetails,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct PromptDetails {
    /// Those whose states were there already.
    pub cached_tokens: usize,
}

impl Usage {
    /// `first`: the first answer to its prompt; further ones have the same prompt, which counts once.
    pub fn add(&mut self, done: &Done, first: bool) {
        if first {
            self.prompt_tokens += done.prompt_tokens;
            self.prompt_tokens_details.cached_tokens += done.cached_tokens;
        }
        self.completion_tokens += done.completion_tokens;
        self.total_tokens = self.prompt_tokens + self.completion_tokens;
    }
}

impl FinishReason {
    pub fn of(finish: &Finish) -> FinishReason {
        match finish {
            Finish::Eos | Finish::Stop(_) => FinishReason::Stop,
            Finish::Length => FinishReason::Length,
        }
    }
}

pub fn stop_reason(finish: Finish) -> Option<String> {
    match finish {
        Finish::Stop(what) => Some(what),
        Finish::Eos | Finish::Length => None,
    }
}
