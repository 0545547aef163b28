//! Answers of the engine as streams: those of one request together, each event with its choice, and events as a response.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};

use crate::{
    api::ApiError,
    engine::Answer,
    request::{Event, Failure},
    sse,
};

/// Silence after which a comment is sent.
const SILENCE: Duration = Duration::from_secs(15);

/// Events of all answers as they come. Dropping this cancels those that run.
pub fn events(answers: Vec<Answer>) -> BoxStream<'static, (usize, Event)> {
    let one = |(choice, answer): (usize, Answer)| {
        let pull = move |(mut answer, ended): (Answer, bool)| async move {
            if ended {
                return None;
            }
            // An engine that is gone has said nothing more.
            let gone = || Event::Failed(Failure::Engine("it ended before the answer did".into()));
            let event = answer.next().await.unwrap_or_else(gone);
            let last = matches!(event, Event::Done(_) | Event::Failed(_));
            Some(((choice, event), (answer, last)))
        };
        stream::unfold((answer, false), pull).boxed()
    };
    stream::select_all(answers.into_iter().enumerate().map(one)).boxed()
}

/// Writes a stream's chunks.
pub trait Chunks: Send + 'static {
    fn begin(&mut self) -> Vec<Bytes>;
    fn event(&mut self, choice: usize, event: Event) -> Result<Vec<Bytes>, ApiError>;
    /// After the last event of the last choice.
    fn end(&mut self) -> Vec<Bytes>;
}

/// How a stream ended, for whoever logs it: an extension of the response.
#[derive(Debug, Clone, Default)]
pub struct Outcome(Arc<OnceLock<&'static str>>);

impl Outcome {
    /// `complete`, or the code of the error that it ended with; `None` while it goes on.
    pub fn told(&self) -> Option<&'static str> {
        self.0.get().copied()
    }

    fn is(&self, what: &'static str) {
        // It ends once.
        let _ = self.0.set(what);
    }
}

enum State<W> {
    Begin(W),
    Running(W),
    Ended,
}

/// The response that sends the chunks. One that fails ends with an error in the place of what is missing.
pub fn response(answers: Vec<Answer>, writer: impl Chunks) -> Response {
    respond(|outcome| chunks(events(answers), writer, outcome))
}

/// The response that has these chunks for its body, and says with `outcome` how they ended.
pub(super) fn respond<S: Stream<Item = Bytes> + Send + 'static>(chunks: impl FnOnce(Outcome) -> S) -> Response {
    let outcome = Outcome::default();
    let chunks = chunks(outcome.clone()).map(Ok::<Bytes, Infallible>);
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    let mut response = (headers, [("x-accel-buffering", "no")], Body::from_stream(chunks)).into_response();
    response.extensions_mut().insert(outcome);
    response
}

pub(crate) fn chunks<W: Chunks>(
    events: impl Stream<Item = (usize, Event)> + Send + Unpin + 'static,
    writer: W,
    outcome: Outcome,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let step = |(mut events, state, outcome): (_, State<W>, Outcome)| async move {
        let (written, state) = match state {
            State::Begin(mut writer) => (writer.begin(), State::Running(writer)),
            State::Running(mut writer) => match tokio::time::timeout(SILENCE, StreamExt::next(&mut events)).await {
                Err(_) => (vec![Bytes::from_static(sse::ALIVE)], State::Running(writer)),
                Ok(None) => {
                    outcome.is("complete");
                    (writer.end(), State::Ended)
                }
                Ok(Some((choice, event))) => match writer.event(choice, event) {
                    Ok(written) => (written, State::Running(writer)),
                    Err(error) => {
                        outcome.is(error.detail.code.unwrap_or("failed"));
                        (vec![sse::event(&error.body())], State::Ended)
                    }
                },
            },
            State::Ended => return None,
        };
        Some((stream::iter(written), (events, state, outcome)))
    };
    stream::unfold((events, State::Begin(writer), outcome), step).flatten()
}
