//! Answers of the engine as streams: those of one request together, each event with its choice, and events as a response.

use std::{convert::Infallible, time::Duration};

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

enum State<W> {
    Begin(W),
    Running(W),
    Ended,
}

/// The response that sends the chunks. One that fails ends with an error in the place of what is missing.
pub fn response(answers: Vec<Answer>, writer: impl Chunks) -> Response {
    let chunks = chunks(events(answers), writer).map(Ok::<Bytes, Infallible>);
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, [("x-accel-buffering", "no")], Body::from_stream(chunks)).into_response()
}

fn chunks<W: Chunks>(
    events: impl Stream<Item = (usize, Event)> + Send + Unpin + 'static,
    writer: W,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let step = |(mut events, state): (_, State<W>)| async move {
        let (written, state) = match state {
            State::Begin(mut writer) => (writer.begin(), State::Running(writer)),
            State::Running(mut writer) => match tokio::time::timeout(SILENCE, StreamExt::next(&mut events)).await {
                Err(_) => (vec![Bytes::from_static(sse::ALIVE)], State::Running(writer)),
                Ok(None) => (writer.end(), State::Ended),
                Ok(Some((choice, event))) => match writer.event(choice, event) {
                    Ok(written) => (written, State::Running(writer)),
                    Err(error) => (vec![sse::event(&error.body())], State::Ended),
                },
            },
            State::Ended => return None,
        };
        Some((stream::iter(written), (events, state)))
    };
    stream::unfold((events, State::Begin(writer)), step).flatten()
}
