//! The engine's thread: it opens the session, and makes the calls that the schedule asks for until it is told to end.
//!
//! Whatever goes wrong in here ends in an event for every request: an error of the backend or a panic is caught, fails all requests
//! that run or wait, and leaves the engine failed.

use std::{
    any::Any,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use mgraph_runtime::{
    engine,
    error::{Context, Result},
    pictures::{NoRoom, Seen},
    session::{Batch, Numerics, Session},
};

use super::{
    Loaded, Progress, Slot, SlotWork, numbers,
    prefix::{Chunk, Held},
    running::{Next, Running, Ticket},
    schedule::{self, Call, Rules, Schedule, Work},
    shared::{Shared, Turn},
};
use crate::request::Failure;

pub(super) fn main(shared: &Arc<Shared>, open: impl FnOnce(&Progress) -> Result<(Arc<Loaded>, Box<dyn Session>)>) {
    open_and_run(shared, open);
    shared.gone();
}

fn open_and_run(shared: &Arc<Shared>, open: impl FnOnce(&Progress) -> Result<(Arc<Loaded>, Box<dyn Session>)>) {
    let progress = Progress::new(Arc::clone(shared));
    let opened = catch_unwind(AssertUnwindSafe(|| -> Result<_> {
        let (loaded, mut session) = open(&progress)?;
        progress.opened(&loaded);
        let rules = Rules {
            rows: shared.room.parallel,
            capacity: loaded.capacity,
            batched: loaded.numerics == Numerics::Fused,
            call: schedule::call(loaded.model.is_packed()),
        };
        for shape in shapes(rules, session.as_ref(), &loaded) {
            if shared.is_draining() {
                return Ok(None);
            }
            session.prepare(&[shape], &mut |what| progress.loading(what))?;
        }
        Ok(Some((loaded, session, rules)))
    }));
    let (loaded, session, rules) = match opened {
        Ok(Ok(Some(opened))) => opened,
        Ok(Ok(None)) => return shared.end(),
        Ok(Err(error)) => return shared.fail(&format!("{error:#}")),
        Err(panic) => return shared.fail(&said(panic.as_ref())),
    };
    shared.ready();
    let mut worker = Worker {
        shared,
        loaded: &loaded,
        session,
        schedule: Schedule::new(rules),
        rules,
        held: vec![Held::default(); rules.rows],
        running: (0..rules.rows).map(|_| None).collect(),
        arrived: VecDeque::new(),
    };
    let ended = catch_unwind(AssertUnwindSafe(|| worker.run()));
    let failure = match ended {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(panic) => Some(said(panic.as_ref())),
    };
    // Whoever hears of the failure finds it in the health.
    match &failure {
        Some(why) => shared.fail(why),
        None => shared.end(),
    }
    let what = failure.map_or(Failure::Draining, Failure::Engine);
    let running = worker.running.iter_mut().filter_map(Option::take).map(|running| running.ticket);
    for ticket in running.chain(worker.arrived.drain(..)) {
        ticket.fail(what.clone());
    }
    // A session that has panicked may do so again while it is dropped; everyone has been told by now.
    let _ = catch_unwind(AssertUnwindSafe(move || drop(worker)));
}

/// The shapes of all calls that there will be.
fn shapes(rules: Rules, session: &dyn Session, loaded: &Loaded) -> Vec<(usize, usize)> {
    let mut shapes: Vec<(usize, usize)> = schedule::lengths(rules).into_iter().map(|rows| (rows, 1)).collect();
    let most = session.width(loaded.capacity);
    for tokens in 1..=most {
        let shape = (1, session.width(tokens));
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    shapes
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("the engine's thread panicked: {}", text.unwrap_or_else(|| "it said nothing".into()))
}

struct Worker<'a> {
    shared: &'a Shared,
    loaded: &'a Loaded,
    session: Box<dyn Session>,
    schedule: Schedule,
    rules: Rules,
    /// By row.
    held: Vec<Held>,
    running: Vec<Option<Running<'a>>>,
    /// Out of the line, and not in a row yet.
    arrived: VecDeque<Ticket>,
}

impl Worker<'_> {
    /// Until everything is finished and nothing more will come, or it is told to stop.
    fn run(&mut self) -> Result<()> {
        loop {
            self.leave();
            let idle = self.schedule.idle().count();
            match self.shared.turn(idle, self.slots(), self.cache()) {
                Turn::Go(begun) => self.arrived.extend(begun),
                Turn::Drained | Turn::Stop => return Ok(()),
            }
            while !self.arrived.is_empty() {
                self.begin()?;
            }
            for call in self.schedule.calls() {
                match call {
                    Call::Decode { rows, active, positions } => self.decode(rows.start, &active, &positions)?,
                    Call::Prefill { row } => self.prefill(row)?,
                }
                self.shared.stepped();
            }
        }
    }

    /// Requests that nobody waits for any more, or that take too long, leave their rows.
    fn leave(&mut self) {
        let now = Instant::now();
        for row in 0..self.rules.rows {
            let Some(running) = &self.running[row] else { continue };
            if running.ticket.is_cancelled() {
                numbers::failed("cancelled");
                self.end(row);
            } else if running.ticket.is_late(now) {
                running.ticket.fail(Failure::Deadline);
                self.end(row);
            }
        }
    }

    fn end(&mut self, row: usize) {
        if let Some(running) = self.running[row].take() {
            self.shared.left(running.since());
        }
        self.schedule.end(row);
    }

    /// The next request gets the idle row that suits it best.
    fn begin(&mut self) -> Result<()> {
        let Some(ticket) = self.arrived.front() else { return Ok(()) };
        let (prompt, told) = (&ticket.request.prompt, &ticket.told);
        let common = |row: usize| {
            let filled = self.schedule.rows()[row].filled;
            let common = match self.rules.batched {
                true => self.held[row].common(filled, prompt, told),
                false => self.held[row].common_chunks(filled, prompt, told, |done| self.chunk(ticket, done)),
            };
            // What a sliding window has dropped does not come back.
            if common < self.session.least_kept(row) { 0 } else { common }
        };
        let row = self.schedule.choose(common).context("a request was begun where no row is idle")?;
        let kept = common(row);
        self.session.forget(row, kept)?;
        let Some(ticket) = self.arrived.pop_front() else { return Ok(()) };
        self.held[row].begin(kept, ticket.told.clone());
        self.schedule.begin(row, kept, ticket.request.prompt.len());
        self.running[row] = Some(Running::begin(ticket, self.loaded.requests.tokenizer(), kept));
        Ok(())
    }

    /// The chunk of a prompt that comes after `done` tokens: as if the request were alone.
    fn chunk(&self, ticket: &Ticket, done: usize) -> Chunk {
        let length = ticket.request.prompt.len();
        let told = ticket.request.pictures.of_tokens.as_deref();
        let (taken, width) = engine::chunk(self.session.as_ref(), told, done..length);
        Chunk { start: done, taken, width }
    }

    fn prefill(&mut self, row: usize) -> Result<()> {
        let done = self.schedule.rows()[row].filled;
        let Some(running) = &self.running[row] else { return Ok(()) };
        let chunk = self.chunk(&running.ticket, done);
        let request = &running.ticket.request;
        if running.seen.is_none() && !(request.pictures.vision.is_empty() && request.pictures.of_tokens.is_none()) {
            match Seen::look(self.session.as_mut(), &self.loaded.model, &request.pictures, row, None) {
                Ok(seen) => {
                    if let Some(running) = &mut self.running[row] {
                        running.seen = Some(seen);
                    }
                }
                // The request's own mistake; any other error is the device's.
                Err(error) if error.is::<NoRoom>() => {
                    running.ticket.fail(Failure::Unanswerable(format!("{error:#}")));
                    self.end(row);
                    return Ok(());
                }
                Err(error) => return Err(error.context("looking at the pictures of a request")),
            }
        }
        let Some(running) = &mut self.running[row] else { return Ok(()) };
        let tokens = &running.ticket.request.prompt[chunk.start..chunk.end()];
        let fed: Vec<i32> = tokens.iter().map(|token| *token as i32).collect();
        let batch = Batch::row(&fed, chunk.start, chunk.width).at_row(row);
        let logits = match &running.seen {
            Some(seen) => seen.step(self.session.as_mut(), &batch, None)?,
            None => self.session.step(&batch, None)?,
        };
        numbers::fed(chunk.taken);
        self.held[row].fed(chunk, tokens);
        if self.schedule.fed(row, chunk.taken) {
            let next = running.answer(&logits.to_f32());
            self.after(row, next);
        }
        Ok(())
    }

    /// One token for each of the rows from `first` on, as many as there are `positions`.
    fn decode(&mut self, first: usize, active: &[usize], positions: &[usize]) -> Result<()> {
        let rows = first..first + positions.len();
        let running = |row: usize| self.running[row].as_ref().filter(|_| active.contains(&row));
        let tokens: Vec<i32> = rows.clone().map(|row| running(row).map_or(0, |running| running.next as i32)).collect();
        let told = |row: usize| {
            self.running[row].as_ref().and_then(|running| running.ticket.request.pictures.of_tokens.clone())
        };
        let batch = Batch {
            first_row: first,
            rows: positions.len(),
            width: 1,
            tokens,
            positions: positions.iter().map(|position| *position as i32).collect(),
            wanted: vec![0; positions.len()],
            of_tokens: rows.clone().map(told).collect(),
        };
        let logits = self.session.step(&batch, None)?.to_f32();
        let size = logits.len() / positions.len().max(1);
        for &row in active {
            let Some(running) = &mut self.running[row] else { continue };
            self.held[row].tokens.truncate(self.schedule.rows()[row].filled);
            self.held[row].tokens.push(running.next);
            self.schedule.decoded(row);
            let next = running.answer(&logits[(row - first) * size..][..size]);
            self.after(row, next);
        }
        Ok(())
    }

    fn after(&mut self, row: usize, next: Next) {
        match next {
            Next::Feed => {}
            Next::Over => self.end(row),
        }
    }

    fn slots(&self) -> Vec<Slot> {
        let slot = |(row, running): (usize, &Option<Running<'_>>)| {
            let state = self.schedule.rows()[row];
            let work = match state.work {
                Work::Idle => SlotWork::Idle,
                Work::Prefill { .. } => SlotWork::Prefill,
                Work::Decode => SlotWork::Decode,
            };
            let running = running.as_ref();
            Slot {
                work,
                prompt_tokens: running.map_or(0, |running| running.ticket.request.prompt.len()),
                answer_tokens: running.map_or(0, |running| running.answered),
                held: state.filled,
            }
        };
        self.running.iter().enumerate().map(slot).collect()
    }

    /// The share of positions that hold states.
    fn cache(&self) -> f64 {
        let filled: usize = self.schedule.rows().iter().map(|row| row.filled).sum();
        filled as f64 / (self.rules.rows * self.rules.capacity) as f64
    }
}
