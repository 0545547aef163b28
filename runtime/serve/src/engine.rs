//! The engine: requests run side by side on the rows of one session, which one thread opens and owns. This file is its handle, which
//! any thread may hold; the thread is in `worker`, its decisions are in `schedule`.
//!
//! A request waits in line, gets a row, has its prompt fed in chunks and its answer decoded token by token, together with the other
//! rows. Its events go into a channel that has room for all of them, so a slow reader holds up nobody: the answer is complete in
//! memory, at most as long as the context, while its row serves the next request. Dropping an [`Answer`] cancels the request.

mod cutter;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzzed;
mod grammar;
mod memory;
pub mod numbers;
mod open;
mod place;
mod prefix;
mod running;
mod schedule;
mod shared;
mod worker;

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use mgraph_runtime::{engine::admit, error::Result, sampler::Sampler, session::Session};
use tokio::sync::mpsc;

pub(crate) use grammar::guided;
pub use open::{EngineOptions, Loaded, Progress};
pub use place::Place;
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

/// What the engine takes on at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Rows of the session: requests that run side by side.
    pub parallel: usize,
    /// Requests that are prepared or wait for a row.
    pub max_queue: usize,
    /// Memory of bodies and pictures, of all requests together.
    pub bytes: usize,
    /// What one step of the device may take.
    pub step_timeout: Duration,
}

impl Default for Room {
    /// As the flags have it.
    fn default() -> Room {
        Room { parallel: 4, max_queue: 64, bytes: 2_000_000_000, step_timeout: Duration::from_secs(300) }
    }
}

impl Room {
    /// Requests of any state.
    fn most(self) -> usize {
        self.parallel.saturating_add(self.max_queue)
    }
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
        let room = options.room;
        Engine::over(room, move |progress| options.open(progress))
    }

    /// An engine over a session of `room.parallel` rows that `open` opens, on the engine's thread.
    pub fn over(
        room: Room,
        open: impl FnOnce(&Progress) -> Result<(Arc<Loaded>, Box<dyn Session>)> + Send + 'static,
    ) -> Engine {
        let shared = Arc::new(Shared::new(room));
        let (inside, watched) = (Arc::clone(&shared), Arc::clone(&shared));
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let spawned = thread("watch")
            .spawn(move || watched.watch())
            .and_then(|_| thread("engine").spawn(move || worker::main(&inside, open)));
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
            // Never ready, so what drains is nothing that works.
            Phase::Loading(what) => Health::Loading(what.clone()),
            Phase::Ready if state.draining => Health::Draining,
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

    /// A place in the line for a request that is still to be read, or says why there is none: before any work.
    pub fn reserve(&self) -> Result<Place, Refusal> {
        Place::of(&self.inner.shared).inspect_err(numbers::rejected)
    }

    /// Takes a request that is prepared already; as [`Engine::submit_all`].
    pub fn submit(&self, request: Request) -> Result<Answer, Refusal> {
        let answers = self.submit_all(self.reserve()?, vec![request])?;
        answers.into_iter().next().ok_or(Refusal::Draining)
    }

    /// Takes several, all of them or none, or says why not before any work on the device. Compiles the form of the answers, if
    /// they have one, which can take a while for a large schema: once for all that follow each other with the same.
    pub fn submit_all(&self, place: Place, requests: Vec<Request>) -> Result<Vec<Answer>, Refusal> {
        self.try_submit(place, requests).inspect_err(numbers::rejected)
    }

    fn try_submit(&self, mut place: Place, requests: Vec<Request>) -> Result<Vec<Answer>, Refusal> {
        let shared = self.shared();
        shared.state().takes()?;
        let Some(loaded) = shared.loaded.get() else { return Err(Refusal::Loading("the model".into())) };
        requests.iter().try_for_each(|request| loaded.check(request))?;
        let mut samplers = Vec::with_capacity(requests.len());
        for request in &requests {
            let sampler = Sampler::new(request.sampling.clone());
            samplers.push(sampler.map_err(|error| Refusal::Invalid(error.to_string()))?);
        }
        let forms = loaded.forms(&requests)?;
        let memory = Arc::new(place.of_pictures(&requests)?);
        let (mut tickets, mut answers) = (Vec::new(), Vec::new());
        for ((request, sampler), form) in requests.into_iter().zip(samplers).zip(forms) {
            let told = Told::of(&request.pictures);
            // An event for each token, two for text that decoder and stop strings held back, and the end.
            let (events, answer) = mpsc::channel(request.max_tokens + 3);
            let (events, taken, _memory) = (Arc::new(events), Instant::now(), Arc::clone(&memory));
            tickets.push(Ticket { request, form, sampler, told, events, taken, _memory });
            answers.push(Answer { events: answer });
        }
        shared.queue(tickets)?;
        Ok(answers)
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
    /// has failed. False where the thread was given up, and may still be in the middle of a step.
    pub fn wait(&self) -> bool {
        self.inner.wait()
    }

    fn shared(&self) -> &Shared {
        &self.inner.shared
    }
}

impl Inner {
    fn wait(&self) -> bool {
        let gone = self.shared.until_gone();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if gone {
            // What it ended with stands in the health; it panics nowhere outside of what it catches.
            drop(thread.map(JoinHandle::join));
        }
        gone
    }
}

impl Drop for Inner {
    /// Waits for the step under way: a backend must not be in the middle of one when the process ends.
    fn drop(&mut self) {
        self.shared.stop();
        self.wait();
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
