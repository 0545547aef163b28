//! `POST /v1/chat/completions`, and `/apply-template`, which shows what it would ask.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use futures_util::StreamExt;
use serde::Serialize;
use utoipa::ToSchema;

use super::{App, app::Head, blocking, guard, parts, stream};
use crate::{
    api::{
        self, ApiError,
        answer::{
            AnswerMessage, ChatChoice, ChatChunk, ChatCompletion, ChatDelta, ChatLogprobs, Delta, FinishReason,
            ToolCall, ToolFunction, Usage, stop_reason,
        },
        chat::Chat,
        error::ErrorBody,
        generation::arbitrary,
    },
    request::{self, Event},
    sse,
    tools::{Call, Form, Reader, Said},
};

/// Answer a conversation
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    request_body = api::chat::ChatBody,
    responses(
        (status = 200, description = "The answer; with `stream`, server-sent events of chunks", body = ChatCompletion),
        (status = "4XX", description = "A request that is wrong, or too many", body = ErrorBody),
        (status = "5XX", description = "A server that cannot answer", body = ErrorBody),
    )
)]
pub async fn chat_completions(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let deadline = app.deadline();
    let mut asked = guard::admit(&app, request).await?;
    let shared = app.clone();
    let (chat, form, answers) = blocking::run(move || {
        let loaded = shared.loaded()?;
        let chat = api::chat::parse(&asked.read()?, App::known(&loaded))?;
        shared.named(chat.generation.model.as_deref())?;
        let talk = parts::talk(&loaded, &chat)?;
        let shape = parts::shape(&chat, talk.form)?;
        let prompt = talk.prompt(&shared, &loaded, &chat, &mut asked.place)?;
        // The last token of an answer is never fed back, so it takes no position.
        let rest = (loaded.capacity + 1).saturating_sub(prompt.tokens.len()).max(1);
        let request = request::Request {
            prompt: prompt.tokens,
            pictures: Arc::new(prompt.pictures),
            max_tokens: chat.max_tokens.unwrap_or(rest),
            sampling: chat.generation.sampling.clone(),
            stop: chat.generation.stop.clone(),
            shape,
            logprobs: chat.logprobs,
            deadline,
        };
        let requests = request.choices(chat.generation.n).collect();
        let answers = shared.engine.submit_all(asked.place, requests);
        let answers = answers.map_err(|refusal| told_of_shape(refusal.into(), &chat))?;
        Ok((chat, talk.form, answers))
    })
    .await?;
    let head = app.head("chatcmpl");
    if chat.generation.stream {
        return Ok(stream::response(answers, Writer::new(head, &chat, form)));
    }
    let mut choices: Vec<Choice> = answers.iter().map(|_| Choice::new(&chat, form)).collect();
    let mut usage = Usage::default();
    let mut events = stream::events(answers);
    while let Some((at, event)) = events.next().await {
        choices[at].take(event, &mut usage, at == 0)?;
    }
    let choices =
        choices.into_iter().enumerate().map(|(index, choice)| choice.whole(index)).collect::<Result<_, _>>()?;
    let Head { id, created, model } = head;
    Ok(guard::json(StatusCode::OK, &ChatCompletion { id, object: "chat.completion", created, model, choices, usage }))
}

/// What the engine finds invalid is the form of the answer: everything else was checked here.
fn told_of_shape(error: ApiError, chat: &Chat) -> ApiError {
    if error.status != 400 || error.detail.code != Some("invalid_value") || error.detail.param.is_some() {
        return error;
    }
    error.of(if parts::must_call(chat) { "tools" } else { "response_format" })
}

/// One answer as it grows.
pub struct Choice {
    reader: Reader,
    content: String,
    calls: Vec<Call>,
    logprobs: Option<ChatLogprobs>,
    done: Option<request::Done>,
}

impl Choice {
    pub fn new(chat: &Chat, form: Option<Form>) -> Choice {
        Choice {
            reader: Reader::new(chat.tools.as_ref().zip(form)),
            content: String::new(),
            calls: Vec::new(),
            logprobs: chat.logprobs.map(|_| ChatLogprobs::default()),
            done: None,
        }
    }

    pub fn take(&mut self, event: Event, usage: &mut Usage, first: bool) -> Result<(), ApiError> {
        let said = match event {
            Event::Piece(piece) => {
                if let Some(logprobs) = &mut self.logprobs {
                    logprobs.extend(&piece.logprobs);
                }
                self.reader.push(&piece.text)
            }
            Event::Done(done) => {
                usage.add(&done, first);
                self.done = Some(done);
                self.reader.finish()
            }
            Event::Failed(failure) => return Err(failure.into()),
        };
        for one in said {
            match one {
                Said::Text(text) => self.content.push_str(&text),
                Said::Call(call) => self.calls.push(call),
            }
        }
        Ok(())
    }

    pub fn whole(self, index: usize) -> Result<ChatChoice, ApiError> {
        let done = self.done.ok_or_else(|| ApiError::server("the engine ended before the answer did"))?;
        let finish_reason = finish(&done, self.calls.is_empty());
        let tool_calls: Vec<ToolCall> = self.calls.into_iter().map(|call| tool_call(call, None)).collect();
        let content = Some(self.content).filter(|content| tool_calls.is_empty() || !content.trim().is_empty());
        Ok(ChatChoice {
            index,
            message: AnswerMessage { role: "assistant", content, refusal: None, tool_calls },
            logprobs: self.logprobs,
            finish_reason,
            stop_reason: stop_reason(done.finish),
        })
    }
}

fn finish(done: &request::Done, no_calls: bool) -> FinishReason {
    match FinishReason::of(&done.finish) {
        FinishReason::Stop if !no_calls => FinishReason::ToolCalls,
        reason => reason,
    }
}

fn tool_call(call: Call, index: Option<usize>) -> ToolCall {
    let Call { name, arguments } = call;
    let id = call_id(arbitrary());
    ToolCall { index, id, kind: "function", function: ToolFunction { name, arguments } }
}

/// Nine letters and digits: what Mistral's templates demand of a call that is sent back to them.
fn call_id(number: u64) -> String {
    const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let digit = |power: u32| char::from(ALPHABET[(number / 36_u64.pow(power) % 36) as usize]);
    (0..9).map(digit).collect()
}

/// Chunks of a chat's answers.
pub struct Writer {
    head: Head,
    choices: Vec<Streamed>,
    usage: Usage,
    include_usage: bool,
}

struct Streamed {
    reader: Reader,
    calls: usize,
    /// Those of tokens whose text is held back until it is known to be no call.
    logprobs: Option<ChatLogprobs>,
}

impl Writer {
    pub fn new(head: Head, chat: &Chat, form: Option<Form>) -> Writer {
        let streamed = |_| Streamed {
            reader: Reader::new(chat.tools.as_ref().zip(form)),
            calls: 0,
            logprobs: chat.logprobs.map(|_| ChatLogprobs::default()),
        };
        Writer {
            head,
            choices: (0..chat.generation.n).map(streamed).collect(),
            usage: Usage::default(),
            include_usage: chat.generation.include_usage,
        }
    }

    fn chunk(&self, choices: Vec<ChatDelta>, usage: Option<Usage>) -> Bytes {
        let Head { id, created, model } = self.head.clone();
        sse::event(&ChatChunk { id, object: "chat.completion.chunk", created, model, choices, usage })
    }
}

fn delta(index: usize, delta: Delta) -> ChatDelta {
    ChatDelta { index, delta, logprobs: None, finish_reason: None, stop_reason: None }
}

impl stream::Chunks for Writer {
    fn begin(&mut self) -> Vec<Bytes> {
        let first = Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() };
        (0..self.choices.len()).map(|index| self.chunk(vec![delta(index, first.clone())], None)).collect()
    }

    fn event(&mut self, index: usize, event: Event) -> Result<Vec<Bytes>, ApiError> {
        let Some(choice) = self.choices.get_mut(index) else { return Ok(Vec::new()) };
        let (said, done) = match event {
            Event::Piece(piece) => {
                if let Some(held) = &mut choice.logprobs {
                    held.extend(&piece.logprobs);
                }
                (choice.reader.push(&piece.text), None)
            }
            Event::Done(done) => (choice.reader.finish(), Some(done)),
            Event::Failed(failure) => return Err(failure.into()),
        };
        let mut deltas = Vec::new();
        for one in said {
            let told = match one {
                Said::Text(text) => Delta { content: Some(text), ..Delta::default() },
                Said::Call(call) => {
                    choice.calls += 1;
                    Delta { tool_calls: vec![tool_call(call, Some(choice.calls - 1))], ..Delta::default() }
                }
            };
            deltas.push(delta(index, told));
        }
        if let Some(done) = done {
            self.usage.add(&done, index == 0);
            let mut last = delta(index, Delta::default());
            last.finish_reason = Some(finish(&done, choice.calls == 0));
            last.stop_reason = stop_reason(done.finish);
            deltas.push(last);
        }
        if let Some(first) = deltas.first_mut() {
            first.logprobs = choice.logprobs.as_mut().map(std::mem::take).filter(|held| !held.content.is_empty());
        }
        Ok(deltas.into_iter().map(|delta| self.chunk(vec![delta], None)).collect())
    }

    fn end(&mut self) -> Vec<Bytes> {
        let usage = self.include_usage.then(|| self.chunk(Vec::new(), Some(self.usage)));
        usage.into_iter().chain([Bytes::from_static(sse::DONE)]).collect()
    }
}

#[derive(Serialize, ToSchema)]
pub struct Applied {
    pub prompt: String,
}

/// The text that the chat template makes of a conversation
#[utoipa::path(
    post,
    path = "/apply-template",
    request_body = api::chat::ChatBody,
    responses((status = 200, description = "The text", body = Applied), (status = "4XX", description = "A request that is wrong", body = ErrorBody))
)]
pub async fn apply_template(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let mut asked = guard::admit(&app, request).await?;
    let prompt = blocking::run(move || {
        let loaded = app.loaded()?;
        let chat = api::chat::parse(&asked.read()?, App::known(&loaded))?;
        app.named(chat.generation.model.as_deref())?;
        parts::talk(&loaded, &chat)?.text(&app)
    })
    .await?;
    Ok(guard::json(StatusCode::OK, &Applied { prompt }))
}

#[cfg(test)]
mod tests {
    use super::call_id;

    #[test]
    fn ids_of_calls_are_nine_letters_and_digits() {
        for (number, id) in [(0, "000000000"), (35, "z00000000"), (36, "010000000")] {
            assert_eq!(call_id(number), id);
        }
        assert!(call_id(u64::MAX).len() == 9 && call_id(u64::MAX).bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
}
