//! What the handle and the thread both see: the requests that wait, and how it goes.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use super::{Loaded, Room, Slot, memory::Memory, numbers, running::Ticket};
use crate::request::{Event, Failure, Refusal};

/// How long a request holds its row, where nothing has been measured yet.
const TYPICAL: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    Loading(String),
    Ready,
    Failed(String),
    /// The thread is gone, as it was told to.
    Ended,
}

pub(super) struct State {
    pub phase: Phase,
    pub draining: bool,
    pub stopped: bool,
    pub waiting: VecDeque<Ticket>,
    pub running: usize,
    /// Requests that are read and tokenized: each has a place in the line.
    pub preparing: usize,
    /// Where the answers of requests go that have left the line, which the thread alone can reach otherwise.
    in_flight: Vec<Weak<mpsc::Sender<Event>>>,
    /// When the step under way began.
    stepping: Option<Instant>,
    /// A step did not end; the thread is given up.
    stalled: bool,
    /// The thread has let go of the session.
    gone: bool,
    pub slots: Vec<Slot>,
    /// How long a request holds its row, lately.
    typical: Duration,
}

pub(super) struct Shared {
    pub room: Room,
    pub loaded: OnceLock<Arc<Loaded>>,
    pub memory: Arc<Memory>,
    state: Mutex<State>,
    changed: Condvar,
}

/// What the thread is to do next.
pub(super) enum Turn {
    /// Begin these requests, and go on with those that run.
    Go(Vec<Ticket>),
    /// Everything is finished, and nothing more will come.
    Drained,
    /// Fail what there is, and end.
    Stop,
}

impl State {
    /// Whether new requests are taken.
    pub fn takes(&self) -> Result<(), Refusal> {
        match &self.phase {
            Phase::Failed(why) => Err(Refusal::Failed(why.clone())),
            Phase::Ended => Err(Refusal::Draining),
            _ if self.draining => Err(Refusal::Draining),
            Phase::Loading(what) => Err(Refusal::Loading(what.clone())),
            Phase::Ready => Ok(()),
        }
    }

    /// When a request that comes now may find room.
    fn retry_after(&self, room: Room) -> Duration {
        let turns = (self.waiting.len() + self.preparing + 1).div_ceil(room.parallel.max(1)) as u32;
        (self.typical * turns).clamp(Duration::from_secs(1), Duration::from_secs(600))
    }

    /// Nothing runs any more, and what waits fails.
    fn clear(&mut self, failure: &Failure) {
        for ticket in self.waiting.drain(..) {
            ticket.fail(failure.clone());
        }
        self.running = 0;
        self.slots.iter_mut().for_each(|slot| *slot = Slot::default());
        numbers::load(0, 0, 0.0);
    }

    /// How many more requests there may be, where those that nobody waits for have left.
    fn places(&mut self, room: Room, wanted: usize) -> usize {
        let free = |state: &State| room.most().saturating_sub(state.running + state.waiting.len() + state.preparing);
        if free(self) < wanted {
            self.clear_line(Instant::now());
        }
        free(self)
    }

    fn full(&self, room: Room) -> Refusal {
        let (running, waiting) = (self.running, self.waiting.len() + self.preparing);
        Refusal::Full { running, waiting, retry_after: self.retry_after(room) }
    }

    /// Requests that nobody waits for any more, or that waited too long, leave the line.
    fn clear_line(&mut self, now: Instant) {
        self.waiting.retain(|ticket| {
            if ticket.is_cancelled() {
                numbers::failed("cancelled");
                return false;
            }
            if ticket.is_late(now) {
                ticket.fail(Failure::Deadline);
                return false;
            }
            true
        });
    }
}

impl Shared {
    pub fn new(room: Room) -> Shared {
        let state = State {
            phase: Phase::Loading("starting".into()),
            draining: false,
            stopped: false,
            waiting: VecDeque::new(),
            running: 0,
            preparing: 0,
            in_flight: Vec::new(),
            stepping: None,
            stalled: false,
            gone: false,
            slots: vec![Slot::default(); room.parallel],
            typical: TYPICAL,
        };
        let memory = Memory::new(room.bytes);
        Shared { room, loaded: OnceLock::new(), memory, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Nothing that holds the lock can leave the state half changed, so a panic elsewhere does no harm.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a request that is to be prepared its place.
    pub fn enter(&self) -> Result<(), Refusal> {
        let mut state = self.state();
        state.takes()?;
        if state.places(self.room, 1) == 0 {
            return Err(state.full(self.room));
        }
        state.preparing += 1;
        numbers::preparing(state.preparing);
        Ok(())
    }

    /// The request is no longer prepared: it stands in line, or is over.
    pub fn leave(&self) {
        let mut state = self.state();
        state.preparing = state.preparing.saturating_sub(1);
        numbers::preparing(state.preparing);
    }

    /// All of a request's tickets or none. The request has entered, and leaves.
    pub fn queue(&self, tickets: Vec<Ticket>) -> Result<(), Refusal> {
        let mut state = self.state();
        state.takes()?;
        let (answers, most) = (tickets.len(), self.room.most());
        if answers > most {
            return Err(Refusal::TooMany { answers, most });
        }
        // The first has the place of the request.
        let more = answers.saturating_sub(1);
        if state.places(self.room, more) < more {
            return Err(state.full(self.room));
        }
        state.waiting.extend(tickets);
        self.changed.notify_all();
        Ok(())
    }

    pub fn drain(&self) {
        self.state().draining = true;
        self.changed.notify_all();
    }

    pub fn stop(&self) {
        let mut state = self.state();
        (state.draining, state.stopped) = (true, true);
        self.changed.notify_all();
    }

    /// No request will come any more.
    pub fn is_draining(&self) -> bool {
        self.state().draining
    }

    pub fn loading(&self, what: &str) {
        self.state().phase = Phase::Loading(what.to_owned());
    }

    pub fn ready(&self) {
        self.state().phase = Phase::Ready;
    }

    /// Everything that waits fails, and nothing is taken any more.
    pub fn fail(&self, why: &str) {
        let mut state = self.state();
        state.phase = Phase::Failed(why.to_owned());
        state.clear(&Failure::Engine(why.to_owned()));
        self.changed.notify_all();
    }

    /// The thread ends as it was told to.
    pub fn end(&self) {
        let mut state = self.state();
        if !state.stalled {
            state.phase = Phase::Ended;
        }
        state.clear(&Failure::Draining);
        self.changed.notify_all();
    }

    pub fn gone(&self) {
        self.state().gone = true;
        self.changed.notify_all();
    }

    /// Waits until the thread has let go of the session; false where it was given up.
    pub fn until_gone(&self) -> bool {
        let mut state = self.state();
        while !state.gone && !state.stalled {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.gone
    }

    /// A step has ended, and the next one begins.
    pub fn stepped(&self) {
        self.state().stepping = Some(Instant::now());
    }

    /// Until the thread is gone: gives it up where one step takes longer than it may, and tells everyone.
    pub fn watch(&self) {
        let patience = self.room.step_timeout;
        // Looked at so often, so that no step has to wake whoever watches.
        let period = (patience / 4).clamp(Duration::from_millis(1), Duration::from_secs(1));
        let mut state = self.state();
        while !state.gone {
            if state.stepping.is_some_and(|since| since.elapsed() > patience) {
                let why = format!("the device has not finished a step for {patience:?} (--step-timeout)");
                state.phase = Phase::Failed(why.clone());
                state.stalled = true;
                let failure = Failure::Stalled(why);
                for events in std::mem::take(&mut state.in_flight) {
                    let Some(events) = events.upgrade() else { continue };
                    numbers::failed("stalled");
                    // Closed: nobody is there to be told.
                    let _ = events.try_send(Event::Failed(failure.clone()));
                }
                state.clear(&failure);
                self.changed.notify_all();
                return;
            }
            (state, _) = self.changed.wait_timeout(state, period).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A request that held a row for `held` is over.
    pub fn left(&self, held: Duration) {
        let mut state = self.state();
        state.running = state.running.saturating_sub(1);
        state.typical = (state.typical * 7 + held) / 8;
    }

    /// Waits until there is something to do. `idle`: rows without a request; `slots` as they are now; `cache`: the share of
    /// positions that are in use.
    pub fn turn(&self, idle: usize, slots: Vec<Slot>, cache: f64) -> Turn {
        let mut state = self.state();
        state.slots = slots;
        state.stepping = None;
        state.in_flight.retain(|events| events.strong_count() > 0);
        loop {
            state.clear_line(Instant::now());
            if state.stopped || state.stalled {
                return Turn::Stop;
            }
            let begin = idle.min(state.waiting.len());
            let begun: Vec<Ticket> = state.waiting.drain(..begin).collect();
            state.in_flight.extend(begun.iter().map(|ticket| Arc::downgrade(&ticket.events)));
            state.running += begun.len();
            numbers::load(state.running, state.waiting.len(), cache);
            if state.running > 0 {
                state.stepping = Some(Instant::now());
                return Turn::Go(begun);
            }
            if state.draining {
                return Turn::Drained;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
