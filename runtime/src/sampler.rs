//! Chooses the next token from logits.
//!
//! At temperature 0 the largest logit wins, the lowest id among equals. Otherwise: divide by the temperature, keep the
//! `top_k` largest, then the smallest set whose probability reaches `top_p`, then draw (the order of the warpers in
//! `transformers`). The same seed and logits give the same token on every machine: the exponential is `libm`'s, sums run in
//! one fixed order in f64, and the generator is ChaCha8.

use std::cmp::Ordering;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// 0 is greedy.
    pub temperature: f32,
    /// In (0, 1]; 1 keeps every token.
    pub top_p: f32,
    /// 0 keeps every token.
    pub top_k: usize,
    pub seed: u64,
}

impl Settings {
    pub const GREEDY: Settings = Settings { temperature: 0.0, top_p: 1.0, top_k: 0, seed: 0 };
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::GREEDY
    }
}

#[derive(Debug, Clone, PartialEq, Error)]
pub enum SamplerError {
    #[error("the temperature is {0}; expected 0 (greedy) or a positive number")]
    Temperature(f32),
    #[error("top-p is {0}; expected more than 0 and at most 1 (1 keeps every token)")]
    TopP(f32),
    #[error(
        "the model's logit for token {token} is {value}; a bad checkpoint, or a dtype too narrow for it (try --dtype f32)"
    )]
    NotANumber { token: usize, value: f32 },
    #[error("the model gave no token a chance: there are no logits, or all are -inf")]
    Nothing,
}

#[derive(Debug, Clone)]
pub struct Sampler {
    settings: Settings,
    random: ChaCha8Rng,
}

impl Sampler {
    pub fn new(settings: Settings) -> Result<Sampler, SamplerError> {
        let Settings { temperature, top_p, .. } = settings;
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(SamplerError::Temperature(temperature));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(SamplerError::TopP(top_p));
        }
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&settings.seed.to_le_bytes());
        Ok(Sampler { settings, random: ChaCha8Rng::from_seed(seed) })
    }

    /// The next token for `logits` `[vocab]`. `-inf` rules a token out; NaN and `+inf` are errors, greedy or not.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SamplerError> {
        if let Some((token, &value)) = logits.iter().enumerate().find(|(_, x)| x.is_nan() || **x == f32::INFINITY) {
            return Err(SamplerError::NotANumber { token, value });
        }
        let best = greedy(logits).ok_or(SamplerError::Nothing)?;
        if self.settings.temperature == 0.0 { Ok(best) } else { Ok(self.draw(logits, best)) }
    }

    fn draw(&mut self, logits: &[f32], best: u32) -> u32 {
        let candidates = self.candidates(logits, logits[best as usize]);
        // 53 bits are all an f64 in [0, 1) can hold.
        let uniform = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let total: f64 = candidates.iter().map(|candidate| candidate.weight).sum();
        let mut left = uniform * total;
        for candidate in &candidates {
            left -= candidate.weight;
            if left < 0.0 {
                return candidate.token;
            }
        }
        // Rounding may leave a last crumb; it belongs to the last candidate that has any weight.
        candidates.iter().rev().find(|candidate| candidate.weight > 0.0).map_or(best, |candidate| candidate.token)
    }

    /// What may be drawn, likeliest first, equals by id; weights are relative to the best token's.
    fn candidates(&self, logits: &[f32], best: f32) -> Vec<Candidate> {
        let temperature = f64::from(self.settings.temperature);
        let weight = |logit: f32| libm::exp((f64::from(logit) - f64::from(best)) / temperature);
        let mut candidates: Vec<Candidate> = (0u32..)
            .zip(logits)
            .filter(|(_, logit)| **logit > f32::NEG_INFINITY)
            .map(|(token, &logit)| Candidate { token, logit, weight: 0.0 })
            .collect();
        let top_k = self.settings.top_k;
        if top_k > 0 && top_k < candidates.len() {
            candidates.select_nth_unstable_by(top_k - 1, Candidate::order);
            candidates.truncate(top_k);
        }
        candidates.sort_unstable_by(Candidate::order);
        for candidate in &mut candidates {
            candidate.weight = weight(candidate.logit);
        }
        let top_p = f64::from(self.settings.top_p);
        if top_p < 1.0 {
            let enough = top_p * candidates.iter().map(|candidate| candidate.weight).sum::<f64>();
            let mut sum = 0.0;
            let reached = candidates.iter().position(|candidate| {
                sum += candidate.weight;
                sum >= enough
            });
            candidates.truncate(reached.map_or(candidates.len(), |last| last + 1));
        }
        candidates
    }
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    token: u32,
    logit: f32,
    weight: f64,
}

impl Candidate {
    /// A total order, so that unstable sorting and selection have one result.
    fn order(&self, other: &Candidate) -> Ordering {
        other.logit.total_cmp(&self.logit).then(self.token.cmp(&other.token))
    }
}

/// The lowest id among the largest logits; `None` when there is none above `-inf`.
pub(crate) fn greedy(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (token, &logit) in (0u32..).zip(logits) {
        if logit > best.map_or(f32::NEG_INFINITY, |(_, logit)| logit) {
            best = Some((token, logit));
        }
    }
    best.map(|(token, _)| token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(temperature: f32, top_k: usize, top_p: f32, seed: u64) -> Sampler {
        Sampler::new(Settings { temperature, top_p, top_k, seed }).expect("valid settings")
    }

    fn draws(mut sampler: Sampler, logits: &[f32], count: usize) -> Vec<u32> {
        (0..count).map(|_| sampler.sample(logits).expect("finite logits")).collect()
    }

    const LOGITS: [f32; 6] = [1.0, 3.0, 2.0, 3.0, -1.0, f32::NEG_INFINITY];

    #[test]
    fn greedy_takes_the_lowest_id_among_equals() {
        assert_eq!(draws(sampler(0.0, 0, 1.0, 9), &LOGITS, 3), [1, 1, 1]);
        assert_eq!(draws(sampler(0.0, 0, 1.0, 0), &[0.0, -0.0], 1), [0]);
        assert_eq!(draws(sampler(0.0, 0, 1.0, 0), &[-0.0, 0.0], 1), [0]);
    }

    #[test]
    fn a_seed_fixes_the_tokens() {
        let logits: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1000) as f32 / 300.0).collect();
        let first = draws(sampler(0.8, 0, 0.95, 42), &logits, 8);
        assert_eq!(first, draws(sampler(0.8, 0, 0.95, 42), &logits, 8));
        assert_ne!(first, draws(sampler(0.8, 0, 0.95, 43), &logits, 8));
        // Recorded on x86-64 Linux; another platform must agree.
        assert_eq!(first, RECORDED);
    }

    const RECORDED: [u32; 8] = [495, 75, 829, 742, 276, 136, 508, 149];

    #[test]
    fn top_k_and_top_p_leave_only_the_likeliest() {
        assert!(draws(sampler(5.0, 1, 1.0, 1), &LOGITS, 50).iter().all(|&token| token == 1));
        assert!(draws(sampler(1.0, 0, 1e-6, 1), &LOGITS, 50).iter().all(|&token| token == 1));
        let two = draws(sampler(1.0, 2, 1.0, 1), &LOGITS, 50);
        assert!(two.contains(&1) && two.contains(&3) && two.iter().all(|token| [1, 3].contains(token)));
        // e^3 + e^3 are 0.78 of the whole: 0.7 needs both, and no third.
        let nucleus = draws(sampler(1.0, 0, 0.7, 1), &LOGITS, 50);
        assert!(nucleus.contains(&3) && nucleus.iter().all(|token| [1, 3].contains(token)));
    }

    #[test]
    fn a_top_k_beyond_the_vocabulary_changes_nothing() {
        assert_eq!(draws(sampler(1.0, 600, 1.0, 5), &LOGITS, 20), draws(sampler(1.0, 0, 1.0, 5), &LOGITS, 20));
    }

    #[test]
    fn what_is_ruled_out_is_never_drawn_and_low_temperatures_do_not_overflow() {
        assert!(!draws(sampler(100.0, 0, 1.0, 3), &LOGITS, 200).contains(&5));
        assert_eq!(draws(sampler(1e-30, 0, 1.0, 3), &[-3e38, 3e38, 0.0], 5), [1; 5]);
    }

    #[test]
    fn bad_settings_and_bad_logits_are_errors() {
        let settings = |temperature, top_p| Sampler::new(Settings { temperature, top_p, ..Settings::GREEDY }).map(drop);
        assert_eq!(settings(-1.0, 1.0), Err(SamplerError::Temperature(-1.0)));
        assert!(settings(f32::NAN, 1.0).is_err());
        assert_eq!(settings(0.0, 0.0), Err(SamplerError::TopP(0.0)));
        let mut greedy = sampler(0.0, 0, 1.0, 0);
        assert!(greedy.sample(&[0.0, f32::NAN]).expect_err("NaN").to_string().contains("token 1"));
        assert!(greedy.sample(&[f32::INFINITY]).is_err());
        assert_eq!(greedy.sample(&[f32::NEG_INFINITY]), Err(SamplerError::Nothing));
        assert_eq!(greedy.sample(&[]), Err(SamplerError::Nothing));
    }
}
