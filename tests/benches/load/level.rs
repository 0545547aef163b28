//! So many streams at once, and what they show.

use std::{
    thread,
    time::{Duration, Instant},
};

use mgraph_runtime::error::{Result, bail};

use crate::{
    client::{Answer, Ask, ask},
    process::Server,
};

/// Tokens of each answer.
pub const ANSWER: usize = 32;

pub struct Level {
    pub streams: usize,
    /// Streams that had all their tokens in time.
    pub done: usize,
    /// Why one of the others failed, where it was not for the time.
    pub failure: Option<String>,
    /// Tokens of all answers per second.
    pub rate: f64,
    /// From the start to the first text, of those that had any; ascending.
    pub first: Vec<Duration>,
    /// Between pieces of text; ascending.
    pub between: Vec<Duration>,
    pub whole: Duration,
    /// Time of a core for each token of the answers, prompts included.
    pub core: Option<Duration>,
    pub peak: Option<u64>,
    /// Tokens of the prompts that were answered.
    pub prompt: Option<u64>,
}

/// `which`: the number of the first prompt. No two requests of a run have the same.
pub fn level(server: &Server, streams: usize, which: usize, limit: Duration) -> Level {
    server.forget_peak();
    let (begun, worked) = (Instant::now(), server.worked());
    let ended: Vec<Result<Answer>> = thread::scope(|scope| {
        let one = |stream: usize| {
            let prompt = prompt(which + stream);
            let asked = Ask { server: &server.address, prompt, max_tokens: ANSWER, until: begun + limit };
            scope.spawn(move || ask(&asked))
        };
        let running: Vec<_> = (0..streams).map(one).collect();
        running.into_iter().map(|stream| stream.join().unwrap_or_else(|_| bail!("a client panicked"))).collect()
    });
    let whole = begun.elapsed();
    let failure = ended.iter().find_map(|ended| ended.as_ref().err()).map(|why| format!("{why:#}"));
    let answers: Vec<Answer> = ended.into_iter().filter_map(Result::ok).collect();
    let worked = worked.zip(server.worked()).map(|(before, after)| after - before);
    let counted = |answer: &Answer| answer.usage.map_or(answer.times.len(), |(_, tokens)| tokens as usize);
    let tokens: usize = answers.iter().map(counted).sum();
    let mut first: Vec<Duration> = answers.iter().filter_map(|answer| Some(*answer.times.first()? - begun)).collect();
    let mut between: Vec<Duration> =
        answers.iter().flat_map(|answer| answer.times.windows(2).map(|pair| pair[1] - pair[0])).collect();
    first.sort_unstable();
    between.sort_unstable();
    Level {
        streams,
        failure,
        done: answers.iter().filter(|answer| answer.usage.is_some_and(|(_, tokens)| tokens as usize == ANSWER)).count(),
        rate: tokens as f64 / whole.as_secs_f64(),
        first,
        between,
        whole,
        core: worked.filter(|_| tokens > 0).map(|worked| worked / tokens as u32),
        peak: server.peak(),
        prompt: answers.iter().filter_map(|answer| answer.usage).map(|(prompt, _)| prompt).max(),
    }
}

fn prompt(number: usize) -> String {
    format!("Story {}: a keeper of a lighthouse, the sea in autumn, a letter that came late.", 1000 + number)
}

pub fn percentile(sorted: &[Duration], share: f64) -> Duration {
    let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or_default()
}
