//! What the handle and the thread both see: the requests that wait, and how it goes.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use super::{Loaded, Room, Slot, numbers, running::Ticket};
use crate::request::{Failure, Refusal};

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
    /// The thread has let go of the session.
    gone: bool,
    pub slots: Vec<Slot>,
    /// How long a request holds its row, lately.
    typical: Duration,
}

pub(super) struct Shared {
    pub room: Room,
    pub loaded: OnceLock<Arc<Loaded>>,
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
        let turns = (self.waiting.len() + 1).div_ceil(room.parallel.max(1)) as u32;
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
            gone: false,
            slots: vec![Slot::default(); room.parallel],
            typical: TYPICAL,
        };
        Shared { room, loaded: OnceLock::new(), state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Nothing that holds the lock can leave the state half changed, so a panic elsewhere does no harm.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn queue(&self, ticket: Ticket) -> Result<(), Refusal> {
        let mut state = self.state();
        state.takes()?;
        if state.running + state.waiting.len() >= self.room.parallel + self.room.max_queue {
            state.clear_line(Instant::now());
        }
        let (running, waiting) = (state.running, state.waiting.len());
        if running + waiting >= self.room.parallel + self.room.max_queue {
            return Err(Refusal::Full { running, waiting, retry_after: state.retry_after(self.room) });
        }
        state.waiting.push_back(ticket);
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
        state.phase = Phase::Ended;
        state.clear(&Failure::Draining);
        self.changed.notify_all();
    }

    pub fn gone(&self) {
        self.state().gone = true;
        self.changed.notify_all();
    }

    pub fn until_gone(&self) {
        let mut state = self.state();
        while !state.gone {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
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
        loop {
            state.clear_line(Instant::now());
            if state.stopped {
                return Turn::Stop;
            }
            let begin = idle.min(state.waiting.len());
            let begun: Vec<Ticket> = state.waiting.drain(..begin).collect();
            state.running += begun.len();
            numbers::load(state.running, state.waiting.len(), cache);
            if state.running > 0 {
                return Turn::Go(begun);
            }
            if state.draining {
                return Turn::Drained;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
