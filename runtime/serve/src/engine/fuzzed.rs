//! Answers for the fuzz targets, as the engine's thread makes them, of tokens that are told instead of computed.

use std::{sync::Arc, time::Instant};

use mgraph_runtime::{sampler::Sampler, tokenizer::Tokenizer};
use tokio::sync::mpsc;

pub(crate) use super::grammar::Grammars;
use super::{
    memory::{Charge, Memory},
    prefix::Told,
    running::{Next, Running, Ticket},
};
use crate::request::{Event, Request};

/// The events of a greedy request whose steps give `tokens`.
pub(crate) fn answer(request: Request, tokenizer: &Tokenizer, vocabulary: usize, tokens: &[u32]) -> Vec<Event> {
    let (events, mut told) = mpsc::channel(request.max_tokens + 3);
    let sampler = Sampler::new(request.sampling.clone()).expect("greedy");
    let ticket = Ticket {
        request,
        form: None,
        sampler,
        told: Told::default(),
        events: Arc::new(events),
        taken: Instant::now(),
        _memory: Arc::new(Charge::none(&Memory::new(0))),
    };
    let mut running = Running::begin(ticket, tokenizer, 0);
    let mut logits = vec![0.0; vocabulary];
    for token in tokens {
        logits[*token as usize] = 1.0;
        if running.answer(&logits) == Next::Over {
            break;
        }
        logits[*token as usize] = 0.0;
    }
    std::iter::from_fn(|| told.try_recv().ok()).collect()
}
