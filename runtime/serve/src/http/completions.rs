//! `POST /v1/completions`: text is continued as it is.

use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use futures_util::StreamExt;
use mgraph_runtime::pictures::Pictures;

use super::{App, app::Head, blocking, guard, stream};
use crate::{
    api::{
        self, ApiError,
        answer::{Completion, CompletionChoice, CompletionChunk, CompletionLogprobs, FinishReason, Usage, stop_reason},
        completion::Prompt,
        error::ErrorBody,
    },
    request::{self, Event, Piece, Shape},
    sse,
};

/// Continue a text
#[utoipa::path(
    post,
    path = "/v1/completions",
    request_body = api::completion::CompletionBody,
    responses(
        (status = 200, description = "The text; with `stream`, server-sent events of chunks", body = Completion),
        (status = "4XX", description = "A request that is wrong, or too many", body = ErrorBody),
        (status = "5XX", description = "A server that cannot answer", body = ErrorBody),
    )
)]
pub async fn completions(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let deadline = app.deadline();
    let mut asked = guard::admit(&app, request).await?;
    let shared = app.clone();
    let (parsed, answers) = blocking::run(move || {
        let (loaded, mut requests) = (shared.loaded()?, Vec::new());
        let parsed = api::completion::parse(&asked.read()?, App::known(&loaded))?;
        shared.named(parsed.generation.model.as_deref())?;
        for prompt in &parsed.prompts {
            let (prompt, pictures) = match prompt {
                Prompt::Tokens(tokens) => (tokens.clone(), Pictures::default()),
                Prompt::Text(text) => {
                    loaded.fits(text)?;
                    let refused = |error| ApiError::parameter("prompt", format!("{error:#}"));
                    let read = loaded.requests.text(text, &[]).map_err(refused)?;
                    (read.tokens, read.pictures)
                }
            };
            let request = request::Request {
                prompt,
                pictures: Arc::new(pictures),
                max_tokens: parsed.max_tokens,
                sampling: parsed.generation.sampling.clone(),
                stop: parsed.generation.stop.clone(),
                shape: Shape::Text,
                logprobs: parsed.logprobs,
                deadline,
            };
            requests.extend(request.choices(parsed.generation.n));
        }
        Ok((parsed, shared.engine.submit_all(asked.place, requests)?))
    })
    .await?;
    let n = parsed.generation.n as usize;
    let head = app.head("cmpl");
    let (logprobs, include_usage) = (parsed.logprobs.is_some(), parsed.generation.include_usage);
    let mut writer = Writer::new(head, n, logprobs, include_usage);
    if parsed.generation.stream {
        return Ok(stream::response(answers, writer));
    }
    let mut choices: Vec<CompletionChoice> = (0..answers.len()).map(|index| empty(index, parsed.logprobs)).collect();
    let mut events = stream::events(answers);
    while let Some((at, event)) = events.next().await {
        let more = writer.choice(at, event)?;
        let whole = &mut choices[at];
        whole.text.push_str(&more.text);
        if let (Some(whole), Some(more)) = (&mut whole.logprobs, more.logprobs) {
            whole.tokens.extend(more.tokens);
            whole.token_logprobs.extend(more.token_logprobs);
            whole.top_logprobs.extend(more.top_logprobs);
            whole.text_offset.extend(more.text_offset);
        }
        (whole.finish_reason, whole.stop_reason) = (more.finish_reason, more.stop_reason);
    }
    let Writer { head: Head { id, created, model }, usage, .. } = writer;
    Ok(guard::json(StatusCode::OK, &Completion { id, object: "text_completion", created, model, choices, usage }))
}

fn empty(index: usize, logprobs: Option<usize>) -> CompletionChoice {
    let logprobs = logprobs.map(|_| CompletionLogprobs::default());
    CompletionChoice { index, text: String::new(), logprobs, finish_reason: None, stop_reason: None }
}

/// Chunks of a completion's answers.
pub struct Writer {
    head: Head,
    logprobs: bool,
    usage: Usage,
    /// Answers to each prompt.
    n: usize,
    include_usage: bool,
}

impl Writer {
    /// `n`: answers to each prompt.
    pub fn new(head: Head, n: usize, logprobs: bool, include_usage: bool) -> Writer {
        Writer { head, logprobs, usage: Usage::default(), n, include_usage }
    }

    fn choice(&mut self, index: usize, event: Event) -> Result<CompletionChoice, ApiError> {
        let (piece, done) = match event {
            Event::Piece(piece) => (piece, None),
            Event::Done(done) => (Piece::default(), Some(done)),
            Event::Failed(failure) => return Err(failure.into()),
        };
        let mut logprobs = None;
        if self.logprobs {
            let mut told = CompletionLogprobs::default();
            told.extend(&piece.logprobs);
            logprobs = Some(told);
        }
        if let Some(done) = &done {
            self.usage.add(done, index.is_multiple_of(self.n));
        }
        Ok(CompletionChoice {
            index,
            text: piece.text,
            logprobs,
            finish_reason: done.as_ref().map(|done| FinishReason::of(&done.finish)),
            stop_reason: done.and_then(|done| stop_reason(done.finish)),
        })
    }

    fn chunk(&self, choices: Vec<CompletionChoice>, usage: Option<Usage>) -> Bytes {
        let Head { id, created, model } = self.head.clone();
        sse::event(&CompletionChunk { id, object: "text_completion", created, model, choices, usage })
    }
}

impl stream::Chunks for Writer {
    fn begin(&mut self) -> Vec<Bytes> {
        Vec::new()
    }

    fn event(&mut self, index: usize, event: Event) -> Result<Vec<Bytes>, ApiError> {
        let choice = self.choice(index, event)?;
        Ok(vec![self.chunk(vec![choice], None)])
    }

    fn end(&mut self) -> Vec<Bytes> {
        let usage = self.include_usage.then(|| self.chunk(Vec::new(), Some(self.usage)));
        usage.into_iter().chain([Bytes::from_static(sse::DONE)]).collect()
    }
}
