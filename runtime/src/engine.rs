//! One request over a session: prefill in chunks, then decode token by token. What batching will share.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use crate::{
    error::{Result, bail},
    pictures::{OfTokens, Seen},
    sampler::Sampler,
    session::{Batch, Session},
    tensor::Tensor,
};

/// What a request begins with.
#[derive(Clone, Copy)]
pub struct Prompt<'a> {
    pub tokens: &'a [u32],
    /// Its pictures, which the session has looked at.
    pub seen: Option<&'a Seen>,
}

impl<'a, T: AsRef<[u32]> + ?Sized> From<&'a T> for Prompt<'a> {
    /// Words alone.
    fn from(tokens: &'a T) -> Prompt<'a> {
        Prompt { tokens: tokens.as_ref(), seen: None }
    }
}

impl Prompt<'_> {
    fn step(&self, session: &mut dyn Session, batch: &Batch) -> Result<Tensor> {
        match self.seen {
            Some(seen) => seen.step(session, batch, None),
            None => session.step(batch, None),
        }
    }

    fn chunk(&self, session: &dyn Session, done: usize) -> (usize, usize) {
        let told = self.seen.and_then(|seen| seen.of_tokens()).map(AsRef::as_ref);
        chunk(session, told, done..self.tokens.len())
    }
}

/// How many of a prompt's tokens at `rest` the next call takes, and its width: as the session asks for, but no span is cut, and words
/// before one are a call no wider than they need.
pub fn chunk(session: &dyn Session, told: Option<&OfTokens>, rest: Range<usize>) -> (usize, usize) {
    let width = session.width(rest.len());
    let whole = rest.len().min(width);
    let taken = told.map_or(whole, |told| told.chunk(rest, width));
    (taken, if taken == whole { width } else { session.width_of_all(taken) })
}

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// An end-of-sequence token, which is neither printed nor counted.
    Stop,
    /// `max_tokens` were generated.
    Length,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub tokens: Vec<u32>,
    pub finish: Finish,
    pub prompt_tokens: usize,
    pub prefill: Duration,
    /// From the first sampled token to the last.
    pub decode: Duration,
    /// Forward passes of the decode phase.
    pub decode_steps: usize,
}

impl Outcome {
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill)
    }

    pub fn decode_rate(&self) -> f64 {
        rate(self.decode_steps, self.decode)
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// Refuse before any work what can never fit. `capacity` is the session's; the message names the knob.
pub fn admit(prompt: usize, max_tokens: usize, capacity: usize) -> Result<()> {
    if prompt == 0 {
        bail!("the prompt has no tokens: there is nothing to continue");
    }
    // The last generated token is never fed back, so it takes no position.
    let needed = prompt + max_tokens.saturating_sub(1);
    if needed > capacity {
        bail!(
            "the prompt has {prompt} tokens and --max-tokens is {max_tokens}: that needs {needed} positions, \
             but the context holds {capacity}. Raise --ctx-size to {needed} or more, or shorten the prompt"
        );
    }
    Ok(())
}

/// Runs `prompt` and up to `max_tokens` further tokens from position 0. `on_token` sees each token as it is
/// sampled and may end the run by answering `false`.
pub fn generate<'a>(
    session: &mut dyn Session,
    sampler: &mut Sampler,
    prompt: impl Into<Prompt<'a>>,
    max_tokens: usize,
    eos: &[u32],
    on_token: &mut dyn FnMut(u32) -> Result<bool>,
) -> Result<Outcome> {
    let prompt = prompt.into();
    let length = prompt.tokens.len();
    admit(length, max_tokens, session.capacity())?;
    sampler.see_prompt(prompt.tokens);
    let begun = Instant::now();
    let mut outcome = Outcome {
        tokens: Vec::new(),
        finish: Finish::Length,
        prompt_tokens: length,
        prefill: Duration::ZERO,
        decode: Duration::ZERO,
        decode_steps: 0,
    };
    let mut logits = prefill(session, prompt)?;
    outcome.prefill = begun.elapsed();
    let begun = Instant::now();
    while outcome.tokens.len() < max_tokens {
        let token = sampler.sample(&logits)?;
        if eos.contains(&token) {
            outcome.finish = Finish::Stop;
            break;
        }
        outcome.tokens.push(token);
        let go_on = on_token(token)?;
        if !go_on || outcome.tokens.len() == max_tokens {
            break;
        }
        let position = length + outcome.tokens.len() - 1;
        logits = prompt.step(session, &Batch::row(&[token as i32], position, 1))?.to_f32();
        outcome.decode_steps += 1;
    }
    outcome.decode = begun.elapsed();
    Ok(outcome)
}

/// Feeds `prompt` from position 0 in the chunks that the session asks for, no span of pictures cut; the logits of its last
/// token.
pub fn prefill<'a>(session: &mut dyn Session, prompt: impl Into<Prompt<'a>>) -> Result<Vec<f32>> {
    let prompt = prompt.into();
    let tokens: Vec<i32> = prompt.tokens.iter().map(|t| *t as i32).collect();
    let mut done = 0;
    loop {
        let (taken, width) = prompt.chunk(session, done);
        let logits = prompt.step(session, &Batch::row(&tokens[done..done + taken], done, width))?;
        done += taken;
        if done == tokens.len() {
            return Ok(logits.to_f32());
        }
    }
}

/// The shapes, `(rows, width)`, that [`prefill`] of `prompt` and decoding will ask for: what [`Session::prepare`] needs. Without those of
/// pieces that have a place of a picture, which go through other graphs.
pub fn shapes<'a>(session: &dyn Session, prompt: impl Into<Prompt<'a>>) -> Vec<(usize, usize)> {
    let prompt = prompt.into();
    let mut shapes = vec![(1, 1)];
    let mut done = 0;
    while done < prompt.tokens.len() {
        let (taken, width) = prompt.chunk(session, done);
        let merged = prompt.seen.is_some_and(|seen| seen.merges_in(done..done + taken));
        if !merged && !shapes.contains(&(1, width)) {
            shapes.push((1, width));
        }
        done += taken;
    }
    shapes
}

#[cfg(test)]
mod tests {
    use super::admit;

    #[test]
    fn what_can_never_fit_is_refused_with_the_knob_to_turn() {
        let message = admit(300, 128, 256).unwrap_err().to_string();
        assert!(message.contains("--ctx-size to 427"), "{message}");
        assert!(admit(129, 128, 256).is_ok());
        assert!(admit(0, 1, 256).is_err());
    }
}
