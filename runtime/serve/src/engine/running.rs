//! One request while it runs: logits come in, pieces of text go out.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use mgraph_runtime::{
    pictures::Seen,
    sampler::{self, Sampler},
    tokenizer::{StreamDecoder, Tokenizer},
};
use tokio::sync::mpsc;

use super::{cutter::Cutter, grammar::Form, memory::Charge, numbers, prefix::Told};
use crate::request::{Alternative, Done, Event, Failure, Finish, Piece, Request, TokenLogprob};

/// A request that was taken, and where its answer goes.
pub(super) struct Ticket {
    pub request: Request,
    pub form: Option<Form>,
    pub sampler: Sampler,
    pub told: Told,
    /// Has room for every event that there can be, so it is never full: a slow reader holds up nobody.
    /// Whoever watches the thread holds it weakly.
    pub events: Arc<mpsc::Sender<Event>>,
    pub taken: Instant,
    /// Of its pictures; given back with the last ticket of the request.
    pub _memory: Arc<Charge>,
}

impl Ticket {
    /// Nobody waits for the answer any more.
    pub fn is_cancelled(&self) -> bool {
        self.events.is_closed()
    }

    pub fn is_late(&self, now: Instant) -> bool {
        self.request.deadline.is_some_and(|deadline| deadline <= now)
    }

    pub fn fail(&self, failure: Failure) {
        numbers::failed(match &failure {
            Failure::Deadline => "deadline",
            Failure::Draining => "draining",
            Failure::Unanswerable(_) => "unanswerable",
            Failure::Engine(_) => "engine",
            Failure::Stalled(_) => "stalled",
        });
        // Closed: nobody is there to be told.
        let _ = self.events.try_send(Event::Failed(failure));
    }
}

/// What to do with a request after a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Feed [`Running::next`].
    Feed,
    /// The answer is complete, failed, or nobody waits for it; the last event is sent.
    Over,
}

pub(super) struct Running<'a> {
    pub ticket: Ticket,
    pub seen: Option<Seen>,
    /// Sampled, and fed with the next decode.
    pub next: u32,
    /// Tokens sampled, those that ended the answer left out.
    pub answered: usize,
    tokenizer: &'a Tokenizer,
    decoder: StreamDecoder<'a>,
    cutter: Cutter,
    /// Tokens whose text was not given out in full.
    open: VecDeque<Open>,
    /// Bytes of text that tokens made, and those of it that were given out.
    made: usize,
    given: usize,
    /// Characters of that text.
    characters: usize,
    /// Tokens whose text was given out.
    counted: usize,
    kept: usize,
    begun: Instant,
    first: Option<Instant>,
    last: Instant,
}

/// A token and the end of its text.
struct Open {
    start: usize,
    end: usize,
    logprob: Option<TokenLogprob>,
}

impl<'a> Running<'a> {
    /// `kept`: tokens of the prompt whose states are there.
    pub fn begin(mut ticket: Ticket, tokenizer: &'a Tokenizer, kept: usize) -> Running<'a> {
        let now = Instant::now();
        numbers::begun(ticket.request.prompt.len(), kept, now - ticket.taken);
        ticket.sampler.see_prompt(&ticket.request.prompt);
        let cutter = Cutter::new(&ticket.request.stop.strings);
        Running {
            ticket,
            seen: None,
            next: 0,
            answered: 0,
            tokenizer,
            decoder: tokenizer.stream(),
            cutter,
            open: VecDeque::new(),
            made: 0,
            given: 0,
            characters: 0,
            counted: 0,
            kept,
            begun: now,
            first: None,
            last: now,
        }
    }

    /// How long it has held its row.
    pub fn since(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Chooses the token that `logits` `[vocabulary]` ask for, and gives out what became final with it.
    pub fn answer(&mut self, logits: &[f32]) -> Next {
        match self.try_answer(logits) {
            Ok(next) => next,
            Err(why) => {
                self.ticket.fail(Failure::Unanswerable(why));
                Next::Over
            }
        }
    }

    fn try_answer(&mut self, logits: &[f32]) -> Result<Next, String> {
        let allowed = self.ticket.form.as_mut().map(Form::allowed).transpose()?;
        let allowed = allowed.as_ref().map(|set| set.as_slice());
        let token = self.ticket.sampler.sample_among(logits, allowed).map_err(|error| error.to_string())?;
        self.time_token();
        let stop = &self.ticket.request.stop;
        let is_eos = self.tokenizer.eos_ids().contains(&token);
        // A form ends where it allows the end, whatever the request says of it.
        if is_eos && (!stop.ignore_eos || self.ticket.form.is_some()) {
            return self.end(Finish::Eos);
        }
        if stop.tokens.contains(&token) {
            let name = self.tokenizer.id_to_token(token).unwrap_or_else(|| token.to_string());
            return self.end(Finish::Stop(name));
        }
        let complete = match &mut self.ticket.form {
            Some(form) => form.take(token)?,
            None => false,
        };
        self.answered += 1;
        numbers::token();
        let text = self.decoder.push(token).map_err(|error| error.to_string())?.unwrap_or_default();
        let logprob = self.ticket.request.logprobs.map(|top| self.logprob(logits, token, top));
        self.open.push_back(Open { start: self.made, end: self.made + text.len(), logprob });
        self.made += text.len();
        self.characters += text.chars().count();
        if let Some(string) = self.give(&text)? {
            return self.done(Finish::Stop(string));
        }
        if complete {
            return self.end(Finish::Eos);
        }
        if self.answered >= self.ticket.request.max_tokens {
            return self.end(Finish::Length);
        }
        if self.ticket.is_cancelled() {
            return Ok(Next::Over);
        }
        self.next = token;
        Ok(Next::Feed)
    }

    fn time_token(&mut self) {
        let now = Instant::now();
        match self.first {
            None => {
                self.first = Some(now);
                numbers::first_token(now - self.ticket.taken, now - self.begun);
            }
            Some(_) => numbers::next_token(now - self.last),
        }
        self.last = now;
    }

    fn logprob(&self, logits: &[f32], token: u32, top: usize) -> TokenLogprob {
        let alternative = |id: u32, logprob: f32| {
            let bytes = self.tokenizer.bytes(id).unwrap_or_default();
            Alternative { id, text: written(&bytes), bytes, logprob }
        };
        let (own, top) = sampler::logprobs(logits, token, top);
        TokenLogprob {
            token: alternative(token, own),
            offset: self.characters,
            top: top.into_iter().map(|(id, logprob)| alternative(id, logprob)).collect(),
        }
    }

    /// Text of tokens goes through the cutter; what is final is sent. The stop string that ended it, if one did.
    fn give(&mut self, text: &str) -> Result<Option<String>, String> {
        let cut = self.cutter.push(text);
        self.given += cut.text.len();
        let (given, stopped) = (self.given, cut.stopped_by.is_some());
        // A token that a stop string cuts through has text in the answer, and counts.
        let is_final = |open: &Open| open.end <= given || (stopped && open.start < given);
        let count = self.open.iter().take_while(|open| is_final(open)).count();
        self.send(cut.text, count);
        Ok(cut.stopped_by)
    }

    fn send(&mut self, text: String, tokens: usize) {
        self.counted += tokens;
        let logprobs: Vec<TokenLogprob> = self.open.drain(..tokens).filter_map(|open| open.logprob).collect();
        if !text.is_empty() || !logprobs.is_empty() {
            // Closed: noticed where the next token is asked for.
            let _ = self.ticket.events.try_send(Event::Piece(Piece { text, logprobs }));
        }
    }

    /// Nothing more comes, so nothing is held back any longer.
    fn end(&mut self, finish: Finish) -> Result<Next, String> {
        let rest = self.decoder.clone().finish().map_err(|error| error.to_string())?;
        if let Some(open) = self.open.back_mut() {
            open.end += rest.len();
        }
        self.made += rest.len();
        if let Some(string) = self.give(&rest)? {
            return self.done(Finish::Stop(string));
        }
        let held = self.cutter.finish();
        self.given += held.len();
        self.send(held, self.open.len());
        self.done(finish)
    }

    fn done(&mut self, finish: Finish) -> Result<Next, String> {
        let whole = self.ticket.taken.elapsed();
        let decode = self.first.map_or(Duration::ZERO, |first| self.last - first);
        let reason = match &finish {
            Finish::Eos | Finish::Stop(_) => "stop",
            Finish::Length => "length",
        };
        numbers::finished(reason, whole, decode);
        let done = Done {
            finish,
            prompt_tokens: self.ticket.request.prompt.len(),
            cached_tokens: self.kept,
            completion_tokens: self.counted,
            queued: self.begun - self.ticket.taken,
            prefill: self.first.map_or(Duration::ZERO, |first| first - self.begun),
            decode,
        };
        let _ = self.ticket.events.try_send(Event::Done(done));
        Ok(Next::Over)
    }
}

/// As OpenAI writes the bytes of a token.
fn written(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold(String::from("bytes:"), |text, byte| format!("{text}\\x{byte:02x}")),
    }
}
