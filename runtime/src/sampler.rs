//! Chooses the next token from logits.
//!
//! In this order: tokens that a mask rules out are dropped; the bias of a token is added; what was there already is made less
//! likely (repetition, of prompt and answer: a positive logit is divided, a negative one multiplied; then frequency and
//! presence, of the answer alone, subtracted). That far it is the order of vLLM. At temperature 0 the largest logit wins then, the
//! lowest id among equals. Otherwise: divide by the temperature, keep the `top_k` largest, then the smallest set whose
//! probability reaches `top_p`, then those of at least `min_p` of the likeliest, then draw (the order of the warpers in
//! `transformers`). The same seed and logits give the same token on every machine: the exponential is `libm`'s, sums run in
//! one fixed order in f64, and the generator is ChaCha8.

use std::collections::BTreeMap;

use mgraph_kernels::logits::{first_unusable, keep_only, largest, likeliest, log_sum_exp, weight, weights};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use thiserror::Error;

/// How the next token is chosen. The defaults take the likeliest token of the model's own distribution.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// 0 is greedy.
    pub temperature: f32,
    /// In (0, 1]; 1 keeps every token.
    pub top_p: f32,
    /// 0 keeps every token.
    pub top_k: usize,
    /// In [0, 1]: tokens less likely than this share of the likeliest are dropped; 0 keeps every token.
    pub min_p: f32,
    /// More than 0; 1 is none.
    pub repetition_penalty: f32,
    /// 0 is none; less than 0 favours what was there.
    pub presence_penalty: f32,
    /// 0 is none; once for each time a token was there.
    pub frequency_penalty: f32,
    /// Added to logits, by token id, each id once.
    pub logit_bias: Vec<(u32, f32)>,
    pub seed: u64,
}

impl Settings {
    pub const GREEDY: Settings = Settings {
        temperature: 0.0,
        top_p: 1.0,
        top_k: 0,
        min_p: 0.0,
        repetition_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        logit_bias: Vec::new(),
        seed: 0,
    };

    /// Errors: a value outside the range that its field states.
    pub fn check(&self) -> Result<(), SamplerError> {
        let Settings { temperature, top_p, top_k: _, min_p, repetition_penalty, seed: _, .. } = *self;
        if !(temperature.is_finite() && temperature >= 0.0) {
            return Err(SamplerError::Temperature(temperature));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(SamplerError::TopP(top_p));
        }
        if !(0.0..=1.0).contains(&min_p) {
            return Err(SamplerError::MinP(min_p));
        }
        if !(repetition_penalty.is_finite() && repetition_penalty > 0.0) {
            return Err(SamplerError::RepetitionPenalty(repetition_penalty));
        }
        for (name, penalty) in [("presence", self.presence_penalty), ("frequency", self.frequency_penalty)] {
            if !penalty.is_finite() {
                return Err(SamplerError::Penalty { name, penalty });
            }
        }
        match self.logit_bias.iter().find(|(_, bias)| !bias.is_finite()) {
            Some(&(token, bias)) => Err(SamplerError::Bias { token, bias }),
            None => Ok(()),
        }
    }
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
    #[error("min-p is {0}; expected at least 0 (which keeps every token) and at most 1")]
    MinP(f32),
    #[error("the repetition penalty is {0}; expected a positive number (1 is none)")]
    RepetitionPenalty(f32),
    #[error("the {name} penalty is {penalty}; expected a number (0 is none)")]
    Penalty { name: &'static str, penalty: f32 },
    #[error("the bias of token {token} is {bias}; expected a number")]
    Bias { token: u32, bias: f32 },
    #[error("a bias is given for token {token}, and the model tells {vocabulary} tokens apart")]
    NoSuchToken { token: u32, vocabulary: usize },
    #[error(
        "the model's logit for token {token} is {value}; a bad checkpoint, or a dtype too narrow for it (try --dtype f32)"
    )]
    NotANumber { token: usize, value: f32 },
    #[error("the model gave no token a chance: there are no logits, or all are -inf")]
    Nothing,
    #[error("no token that the model gave a chance fits the form that the answer must have")]
    NothingAllowed,
}

/// One answer's sampler: it remembers what was there.
#[derive(Debug, Clone)]
pub struct Sampler {
    settings: Settings,
    random: ChaCha8Rng,
    seen: BTreeMap<u32, Seen>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Times in the answer; 0 for what only the prompt has.
    answered: u32,
}

impl Sampler {
    pub fn new(settings: Settings) -> Result<Sampler, SamplerError> {
        settings.check()?;
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&settings.seed.to_le_bytes());
        Ok(Sampler { settings, random: ChaCha8Rng::from_seed(seed), seen: BTreeMap::new() })
    }

    /// The tokens of the prompt, which the repetition penalty is about too.
    pub fn see_prompt(&mut self, tokens: &[u32]) {
        if self.settings.repetition_penalty != 1.0 {
            self.seen.extend(tokens.iter().map(|token| (*token, Seen::default())));
        }
    }

    /// The next token for `logits` `[vocab]`. `-inf` rules a token out; NaN and `+inf` are errors, greedy or not.
    pub fn sample(&mut self, logits: &[f32]) -> Result<u32, SamplerError> {
        self.sample_among(logits, None)
    }

    /// As [`Sampler::sample`], among the tokens whose bit is set (bit `id % 32` of word `id / 32`).
    pub fn sample_among(&mut self, logits: &[f32], allowed: Option<&[u32]>) -> Result<u32, SamplerError> {
        if let Some((token, value)) = first_unusable(logits) {
            return Err(SamplerError::NotANumber { token, value });
        }
        let changed = self.changed(logits, allowed)?;
        let logits = changed.as_deref().unwrap_or(logits);
        let (best, logit) = largest(logits).ok_or(if allowed.is_some() {
            SamplerError::NothingAllowed
        } else {
            SamplerError::Nothing
        })?;
        let token = if self.settings.temperature == 0.0 { best } else { self.draw(logits, best, logit) };
        self.seen.entry(token).or_default().answered += 1;
        Ok(token)
    }

    /// The logits after mask, bias and penalties; `None` where nothing changes them.
    fn changed(&self, logits: &[f32], allowed: Option<&[u32]>) -> Result<Option<Vec<f32>>, SamplerError> {
        let Settings { repetition_penalty, presence_penalty, frequency_penalty, logit_bias, .. } = &self.settings;
        let penalized = *repetition_penalty != 1.0 || *presence_penalty != 0.0 || *frequency_penalty != 0.0;
        if allowed.is_none() && logit_bias.is_empty() && (!penalized || self.seen.is_empty()) {
            return Ok(None);
        }
        let mut logits = logits.to_vec();
        if let Some(allowed) = allowed {
            keep_only(&mut logits, allowed);
        }
        let vocabulary = logits.len();
        for &(token, bias) in logit_bias {
            *logits.get_mut(token as usize).ok_or(SamplerError::NoSuchToken { token, vocabulary })? += bias;
        }
        if penalized {
            for (token, seen) in &self.seen {
                // A placeholder of the prompt may have no logit.
                let Some(logit) = logits.get_mut(*token as usize) else { continue };
                if *logit > 0.0 {
                    *logit /= repetition_penalty;
                } else {
                    *logit *= repetition_penalty;
                }
                if seen.answered > 0 {
                    *logit -= frequency_penalty * seen.answered as f32;
                    *logit -= presence_penalty;
                }
            }
        }
        match first_unusable(&logits) {
            Some((token, value)) => Err(SamplerError::NotANumber { token, value }),
            None => Ok(Some(logits)),
        }
    }

    fn draw(&mut self, logits: &[f32], best: u32, logit: f32) -> u32 {
        // 53 bits are all an f64 in [0, 1) can hold.
        let uniform = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let Candidates { kept, total } = self.candidates(logits, logit, uniform);
        let mut left = uniform * total;
        for candidate in &kept {
            left -= candidate.weight;
            if left < 0.0 {
                return candidate.token;
            }
        }
        // Rounding may leave a last crumb; it belongs to the last candidate that has any weight.
        kept.iter().rev().find(|candidate| candidate.weight > 0.0).map_or(best, |candidate| candidate.token)
    }

    /// What may be drawn. As a rule that is decided among a few of the likeliest, so not all tokens are sorted.
    fn candidates(&self, logits: &[f32], best: f32, uniform: f64) -> Candidates {
        let Settings { temperature, top_k, .. } = self.settings;
        let limit = if top_k > 0 { top_k.min(logits.len()) } else { logits.len() };
        let mut count = if limit < logits.len() { limit } else { FIRST };
        let all = (limit == logits.len()).then(|| weights(logits, best, temperature));
        loop {
            let likeliest = likeliest(logits, count);
            let is_all = count >= limit || likeliest.len() < count;
            let weighed = |(token, logit)| Candidate { token, weight: weight(logit, best, temperature) };
            let candidates: Vec<Candidate> = likeliest.into_iter().map(weighed).collect();
            let whole = all.unwrap_or_else(|| candidates.iter().map(|candidate| candidate.weight).sum());
            if let Some(found) = self.kept(candidates, whole, is_all, uniform) {
                return found;
            }
            count = count.saturating_mul(FIRST);
        }
    }

    /// What `top_p` and `min_p` keep of the likeliest candidates, of which all together weigh `whole`; `None` where that, or which one
    /// is drawn, is decided beyond them.
    fn kept(&self, mut kept: Vec<Candidate>, whole: f64, is_all: bool, uniform: f64) -> Option<Candidates> {
        let (top_p, min_p) = (f64::from(self.settings.top_p), f64::from(self.settings.min_p));
        let mut decided = is_all;
        if top_p < 1.0 {
            let mut sum = 0.0;
            let reached = kept.iter().position(|candidate| {
                sum += candidate.weight;
                sum >= top_p * whole
            });
            kept.truncate(reached.map_or(kept.len(), |last| last + 1));
            decided |= reached.is_some();
        }
        if let Some(first) = kept.iter().position(|candidate| candidate.weight < min_p) {
            kept.truncate(first);
            decided = true;
        }
        let sum = kept.iter().map(|candidate| candidate.weight).sum();
        let total = if top_p < 1.0 || min_p > 0.0 { sum } else { whole };
        decided |= top_p == 1.0 && min_p == 0.0 && sum > uniform * total;
        decided.then_some(Candidates { kept, total })
    }
}

/// How many of the likeliest are looked at first, and how many times as many then.
const FIRST: usize = 64;

/// What may be drawn.
struct Candidates {
    /// Likeliest first, equals by id.
    kept: Vec<Candidate>,
    /// Their weight; without `top_p` and `min_p` that of all tokens, `kept` being those among which the drawn one is.
    total: f64,
}

/// A token, and its weight relative to the likeliest one's.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    token: u32,
    weight: f64,
}

/// The lowest id among the largest logits; `None` when there is none above `-inf`.
pub(crate) fn greedy(logits: &[f32]) -> Option<u32> {
    largest(logits).map(|(token, _)| token)
}

/// Natural logarithms of probabilities under the model's own distribution: the chosen token's, and those of the `top`
/// likeliest, likeliest first, equals by id.
pub fn logprobs(logits: &[f32], chosen: u32, top: usize) -> (f32, Vec<(u32, f32)>) {
    let sum = log_sum_exp(logits);
    let of = |logit: f32| (f64::from(logit) - sum) as f32;
    let own = logits.get(chosen as usize).copied().unwrap_or(f32::NEG_INFINITY);
    let top = if top == 0 { Vec::new() } else { likeliest(logits, top) };
    (of(own), top.into_iter().map(|(token, logit)| (token, of(logit))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(temperature: f32, top_k: usize, top_p: f32, seed: u64) -> Sampler {
        Sampler::new(Settings { temperature, top_p, top_k, seed, ..Settings::GREEDY }).expect("valid settings")
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
        let bad = [
            Settings { min_p: 1.5, ..Settings::GREEDY },
            Settings { repetition_penalty: 0.0, ..Settings::GREEDY },
            Settings { presence_penalty: f32::NAN, ..Settings::GREEDY },
            Settings { frequency_penalty: f32::INFINITY, ..Settings::GREEDY },
            Settings { logit_bias: vec![(3, f32::NAN)], ..Settings::GREEDY },
        ];
        for settings in bad {
            assert!(settings.check().is_err(), "{settings:?}");
        }
        assert_eq!(settings(0.0, 0.0), Err(SamplerError::TopP(0.0)));
        let mut greedy = sampler(0.0, 0, 1.0, 0);
        assert!(greedy.sample(&[0.0, f32::NAN]).expect_err("NaN").to_string().contains("token 1"));
        assert!(greedy.sample(&[f32::INFINITY]).is_err());
        assert_eq!(greedy.sample(&[f32::NEG_INFINITY]), Err(SamplerError::Nothing));
        assert_eq!(greedy.sample(&[]), Err(SamplerError::Nothing));
    }

    #[test]
    fn min_p_is_a_share_of_the_likeliest() {
        // Beside 3 and 3: e^-1 = 0.37 of the likeliest, then e^-2 = 0.14.
        let kept = |min_p: f32| {
            let settings = Settings { temperature: 1.0, min_p, seed: 7, ..Settings::GREEDY };
            let mut tokens = draws(Sampler::new(settings).expect("valid settings"), &LOGITS, 400);
            tokens.sort_unstable();
            tokens.dedup();
            tokens
        };
        assert_eq!(kept(0.5), [1, 3]);
        assert_eq!(kept(0.3), [1, 2, 3]);
        assert_eq!(kept(1.0), [1, 3]);
        assert_eq!(kept(0.0), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn bias_comes_before_penalties_and_penalties_know_prompt_from_answer() {
        let greedy = |settings: Settings, prompt: &[u32], logits: &[f32], count: usize| {
            let mut sampler = Sampler::new(settings).expect("valid settings");
            sampler.see_prompt(prompt);
            draws(sampler, logits, count)
        };
        let biased = Settings { logit_bias: vec![(4, 10.0), (1, -5.0)], ..Settings::GREEDY };
        assert_eq!(greedy(biased.clone(), &[], &LOGITS, 1), [4]);
        // 9 / 4 = 2.25 is less than the 3 of token 3.
        assert_eq!(greedy(Settings { repetition_penalty: 4.0, ..biased }, &[4], &LOGITS, 1), [3]);
        // Positive logits shrink, negative ones grow in size: the prompt alone is enough.
        let repeated = Settings { repetition_penalty: 2.0, ..Settings::GREEDY };
        assert_eq!(greedy(repeated.clone(), &[0], &[1.5, 1.0], 1), [1]);
        assert_eq!(greedy(repeated, &[0], &[-1.0, -1.5], 1), [1]);
        // Presence and frequency look at the answer only; frequency once for each time.
        let presence = Settings { presence_penalty: 0.75, ..Settings::GREEDY };
        assert_eq!(greedy(presence, &[0], &[1.0, 0.5], 4), [0, 1, 0, 0]);
        let frequency = Settings { frequency_penalty: 0.4, ..Settings::GREEDY };
        assert_eq!(greedy(frequency, &[0], &[1.0, 0.5], 4), [0, 0, 1, 0]);
        let unknown = Settings { logit_bias: vec![(9, 1.0)], ..Settings::GREEDY };
        let refused = Sampler::new(unknown).expect("valid settings").sample(&LOGITS);
        assert_eq!(refused, Err(SamplerError::NoSuchToken { token: 9, vocabulary: 6 }));
    }

    #[test]
    fn a_mask_is_a_hard_limit_even_for_a_bias() {
        let settings = Settings { logit_bias: vec![(1, 100.0)], ..Settings::GREEDY };
        let mut sampler = Sampler::new(settings).expect("valid settings");
        assert_eq!(sampler.sample_among(&LOGITS, Some(&[0b10101])), Ok(2));
        assert_eq!(sampler.sample_among(&LOGITS, Some(&[0])), Err(SamplerError::NothingAllowed));
    }

    #[test]
    fn logarithms_are_of_the_models_own_distribution() {
        let (own, top) = logprobs(&[0.0, f32::NEG_INFINITY, 0.0, -1000.0], 2, 3);
        assert!((own + 2f32.ln()).abs() < 1e-6);
        assert_eq!(top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(top[2].1, -1000.0 - 2f32.ln());
        assert_eq!(logprobs(&[0.0], 0, 0), (0.0, Vec::new()));
    }

    #[test]
    fn all_tokens_are_drawn_from_however_few_are_looked_at() {
        // 5,000 tokens that are as likely as each other, and one that is more so: it has 1/6 of the whole.
        let mut logits = vec![0.0; 5000];
        logits[77] = 1000f32.ln();
        let tokens = draws(sampler(1.0, 0, 1.0, 3), &logits, 600);
        let favourite = tokens.iter().filter(|token| **token == 77).count();
        assert!((60..140).contains(&favourite), "{favourite} of 600");
        let mut others: Vec<u32> = tokens.iter().copied().filter(|token| *token != 77).collect();
        others.sort_unstable();
        assert!(others[0] < 200 && others[others.len() - 1] > 4800 && others[others.len() / 2].abs_diff(2500) < 500);
        // A nucleus of half the weight ends in the middle of them, equals by id.
        let nucleus = draws(sampler(1.0, 0, 0.5, 3), &logits, 600);
        assert!(nucleus.iter().all(|token| *token <= 2000) && nucleus.iter().any(|token| *token > 1900));
        let settings = Settings { temperature: 1.0, min_p: 0.0009, seed: 4, ..Settings::GREEDY };
        let wide = draws(Sampler::new(settings).expect("valid settings"), &logits, 600);
        assert!(wide.iter().any(|token| *token > 4800));
    }
}
