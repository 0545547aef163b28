//! What the HTTP side hands to the engine, and what comes back: the only types that both know.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use mgraph_runtime::pictures::Pictures;
/// How the next token is chosen.
pub use mgraph_runtime::sampler::Settings as Sampling;
use serde_json::Value;
use thiserror::Error;

/// One answer to be generated. Everything in it has been checked: the engine refuses for room alone.
#[derive(Clone)]
pub struct Request {
    /// Token ids, placeholders of pictures filled in. Never empty.
    pub prompt: Vec<u32>,
    pub pictures: Arc<Pictures>,
    /// At least 1.
    pub max_tokens: usize,
    pub sampling: Sampling,
    pub stop: Stop,
    pub shape: Shape,
    /// Alternatives reported with each token, the chosen one's own logarithm always; `None`: no logarithms at all.
    pub logprobs: Option<usize>,
    pub deadline: Option<Instant>,
}

impl Request {
    /// The same for `n` answers: answer `i` has the seed plus `i`.
    pub fn choices(&self, n: u32) -> impl Iterator<Item = Request> {
        (0..n).map(|choice| {
            let mut request = self.clone();
            request.sampling.seed = request.sampling.seed.wrapping_add(u64::from(choice));
            request
        })
    }
}

/// What ends an answer beside the model's own end-of-sequence tokens; none of it is ever returned.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stop {
    /// None is empty.
    pub strings: Vec<String>,
    pub tokens: Vec<u32>,
    /// End-of-sequence tokens do not end the answer.
    pub ignore_eos: bool,
}

/// The form the text of an answer must have.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Shape {
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that fits a schema.
    JsonSchema(Value),
    /// A grammar in Lark's notation with the extensions of `llguidance`: how tool calls are forced into the template's form.
    Lark(String),
}

/// What an answer's channel delivers: any number of pieces, then exactly one `Done` or `Failed`.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Piece(Piece),
    Done(Done),
    Failed(Failure),
}

/// Text that is final: nothing in it can turn out to be the beginning of a stop string.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Piece {
    pub text: String,
    /// One for each token whose text is in this piece, if logarithms were asked for.
    pub logprobs: Vec<TokenLogprob>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprob {
    pub token: Alternative,
    /// Characters of the answer before the token's text. Tokens that are parts of one character have its offset, each of them.
    pub offset: usize,
    /// Likeliest first.
    pub top: Vec<Alternative>,
}

/// A token and the natural logarithm of its probability under the model, before temperature and penalties.
#[derive(Debug, Clone, PartialEq)]
pub struct Alternative {
    pub id: u32,
    /// Bytes that are no text by themselves are written `bytes:\xe2\x82`, so that no two tokens look alike.
    pub text: String,
    /// The bytes of the token, which may be a part of a character.
    pub bytes: Vec<u8>,
    pub logprob: f32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    pub finish: Finish,
    pub prompt_tokens: usize,
    /// Of the prompt, those whose states were there already.
    pub cached_tokens: usize,
    /// Tokens of the answer; what ended it is not counted.
    pub completion_tokens: usize,
    pub queued: Duration,
    pub prefill: Duration,
    pub decode: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// An end-of-sequence token.
    Eos,
    /// A stop string or token of the request.
    Stop(String),
    Length,
}

/// Why a request was not taken; nothing was done on the device.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Refusal {
    #[error("the model is still being loaded ({0})")]
    Loading(String),
    #[error("the server is shutting down")]
    Draining,
    #[error("{running} requests run and {waiting} wait, which is as many as may wait (--max-queue); try again later")]
    Full { running: usize, waiting: usize, retry_after: Duration },
    #[error(
        "{answers} answers are asked for at once, and {most} requests may run and wait (--parallel, --max-queue): ask for fewer"
    )]
    TooMany { answers: usize, most: usize },
    #[error(
        "the request takes {needed} bytes of memory to read, and there are {most} for all requests (--max-memory-bytes): send \
         less, or smaller pictures"
    )]
    TooLarge { needed: usize, most: usize },
    #[error(
        "the request takes {needed} bytes of memory to read, and other requests hold {held} of {most} (--max-memory-bytes); try \
         again later"
    )]
    Crowded { held: usize, needed: usize, most: usize },
    #[error(
        "the prompt has at least {least} tokens, and the context holds {capacity}. Shorten the prompt, or start the server with \
         --ctx-size {least}"
    )]
    TooLong { least: usize, capacity: usize },
    #[error(
        "the prompt has {prompt} tokens and {max_tokens} more are asked for: that needs {needed} positions, and the context \
         holds {capacity}. Ask for fewer tokens, shorten the prompt, or start the server with --ctx-size {needed}"
    )]
    NeverFits { prompt: usize, max_tokens: usize, needed: usize, capacity: usize },
    #[error("{0}")]
    Invalid(String),
    #[error("the engine has failed: {0}")]
    Failed(String),
}

/// Why an answer ended before it was complete.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Failure {
    #[error("the request took longer than it may (--request-timeout)")]
    Deadline,
    #[error("the server is shutting down")]
    Draining,
    /// This answer alone: logits that are no numbers, a form that became too complex, pictures that there is no room for.
    #[error("the answer cannot be given: {0}")]
    Unanswerable(String),
    #[error("the engine failed: {0}")]
    Engine(String),
    /// The device does not come back.
    #[error("the engine failed: {0}")]
    Stalled(String),
}
