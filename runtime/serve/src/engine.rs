//! The engine: requests run side by side on the rows of one session, which one thread opens and owns. This file is its handle, which
//! any thread may hold; the thread is in `worker`, its decisions are in `schedule`.
//!
//! A request waits in line, gets a row, has its prompt fed in chunks and its answer decoded token by token, together with the other
//! rows. Its events go into a channel that has room for all of them, so a slow reader holds up nobody: the answer is complete in
//! memory, at most as long as the context, while its row serves the next request. Dropping an [`Answer`] cancels the request.

mod cutter;
mod grammar;
pub mod numbers;
mod open;
mod prefix;
mod running;
mod schedule;
mod shared;
mod worker;

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Instant,
};

use mgraph_runtime::{engine::admit, error::Result, sampler::Sampler, session::Session};
use tokio::sync::mpsc;

pub(crate) use grammar::guided;
pub use open::{EngineOptions, Loaded, Progress};
use prefix::Told;
use running::Ticket;
use shared::{Phase, Shared};

use crate::request::{Event, Refusal, Request};

/// What the engine can do for a request at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// What is being done before requests can be taken.
    Loading(String),
    Ready,
    /// No new requests; those that were taken are finished.
    Draining,
    Failed(String),
}

/// A row of the session, for people to look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slot {
    pub work: SlotWork,
    /// Of the request that is there.
    pub prompt_tokens: usize,
    pub answer_tokens: usize,
    /// Positions whose states the row holds, of this request or the last one.
    pub held: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SlotWork {
    #[default]
    Idle,
    Prefill,
    Decode,
}

/// How many requests there may be at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Rows of the session: requests that run side by side.
    pub parallel: usize,
    /// Requests that wait for a row.
    pub max_queue: usize,
}

/// The handle. When the last one is dropped the engine ends, as by [`Engine::stop`] and [`Engine::wait`].
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The events of one request: any number of pieces, then one end. Dropping it cancels the request within one step.
#[derive(Debug)]
pub struct Answer {
    events: mpsc::Receiver<Event>,
}

impl Answer {
    /// The next event; `None` after the end.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// As [`Answer::next`], on a thread that may wait.
    pub fn wait(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }

    /// For streams: as [`Answer::next`].
    pub fn poll(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Option<Event>> {
        self.events.poll_recv(context)
    }
}

impl Engine {
    /// Begins to open the model on a thread of its own; [`Engine::health`] tells when it is ready, or why it never will be.
    pub fn start(options: EngineOptions) -> Engine {
        let room = Room { parallel: options.parallel, max_queue: options.max_queue };
        Engine::over(room, move |progress| options.open(progress))
    }

    /// An engine over a session of `room.parallel` rows that `open` opens, on the engine's thread.
    pub fn over(
        room: Room,
        open: impl FnOnce(&Progress) -> Result<(Arc<Loaded>, Box<dyn Session>)> + Send + 'static,
    ) -> Engine {
        let shared = Arc::new(Shared::new(room));
        let inside = Arc::clone(&shared);
        let spawned = std::thread::Builder::new().name("engine".into()).spawn(move || worker::main(&inside, open));
        let thread = match spawned {
            Ok(thread) => Some(thread),
            Err(error) => {
                shared.fail(&format!("the engine's thread could not be started: {error}"));
                shared.gone();
                None
            }
        };
        Engine { inner: Arc::new(Inner { shared, thread: Mutex::new(thread) }) }
    }

    pub fn health(&self) -> Health {
        let state = self.shared().state();
        match &state.phase {
            Phase::Failed(why) => Health::Failed(why.clone()),
            _ if state.draining => Health::Draining,
            Phase::Loading(what) => Health::Loading(what.clone()),
            Phase::Ready => Health::Ready,
            Phase::Ended => Health::Draining,
        }
    }

    /// What is needed to make requests, as soon as it is known, which is before the weights are loaded.
    pub fn model(&self) -> Option<Arc<Loaded>> {
        self.shared().loaded.get().cloned()
    }

    pub fn slots(&self) -> Vec<Slot> {
        self.shared().state().slots.clone()
    }

    /// Takes a request, or says why not before any work on the device. Compiles the form of the answer, if it has one, which can take
    /// a while for a large schema.
    pub fn submit(&self, request: Request) -> Result<Answer, Refusal> {
        self.try_submit(request).inspect_err(|refusal| {
            numbers::rejected(match refusal {
                Refusal::Loading(_) => "loading",
                Refusal::Draining => "draining",
                Refusal::Full { .. } => "full",
                Refusal::NeverFits { .. } => "never_fits",
                Refusal::Invalid(_) => "invalid",
                Refusal::Failed(_) => "failed",
            });
        })
    }

    fn try_submit(&self, request: Request) -> Result<Answer, Refusal> {
        let shared = self.shared();
        shared.state().takes()?;
        let Some(loaded) = shared.loaded.get() else { return Err(Refusal::Loading("the model".into())) };
        loaded.check(&request)?;
        let sampler = Sampler::new(request.sampling.clone()).map_err(|error| Refusal::Invalid(error.to_string()))?;
        let form = loaded.form(&request.shape)?;
        let told = Told::of(&request.pictures);
        // An event for each token, two for text that decoder and stop strings held back, and the end.
        let (events, answer) = mpsc::channel(request.max_tokens + 3);
        shared.queue(Ticket { request, form, sampler, told, events, taken: Instant::now() })?;
        Ok(Answer { events: answer })
    }

    /// Take no new requests, finish those that were taken, and end.
    pub fn drain(&self) {
        self.shared().drain();
    }

    /// End now: requests that run or wait fail with [`Failure::Draining`](crate::request::Failure::Draining).
    pub fn stop(&self) {
        self.shared().stop();
    }

    /// Returns when the engine's thread has ended and the session is gone: after [`Engine::drain`] or [`Engine::stop`], or when it
    /// has failed.
    pub fn wait(&self) {
        let thread = self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread {
            // What it ended with stands in the health; it panics nowhere outside of what it catches.
            Some(thread) => drop(thread.join()),
            None => self.shared().until_gone(),
        }
    }

    fn shared(&self) -> &Shared {
        &self.inner.shared
    }
}

impl Drop for Inner {
    /// Waits for the step under way: a backend must not be in the middle of one when the process ends.
    fn drop(&mut self) {
        self.shared.stop();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // It panics nowhere outside of what it catches.
        drop(thread.map(JoinHandle::join));
    }
}

impl Loaded {
    /// What can be said of a request before any work.
    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let (prompt, max_tokens, capacity) = (request.prompt.len(), request.max_tokens, self.capacity);
        if prompt == 0 || max_tokens == 0 {
            return Err(Refusal::Invalid("a request needs a prompt of at least one token, and to ask for one".into()));
        }
        if admit(prompt, max_tokens, capacity).is_err() {
            let needed = prompt.saturating_add(max_tokens - 1);
            return Err(Refusal::NeverFits { prompt, max_tokens, needed, capacity });
        }
        match request.prompt.iter().find(|token| **token as usize >= self.token_ids) {
            Some(token) => Err(Refusal::Invalid(format!(
                "token {token} of the prompt is not one of the model's {} tokens",
                self.token_ids
            ))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Engine;

    #[test]
    fn the_handle_goes_everywhere() {
        fn anywhere<T: Clone + Send + Sync + 'static>() {}
        anywhere::<Engine>();
    }
}
