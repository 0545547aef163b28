//! One line of the parity table: a stage, how far apart its two tensors are, and what allows that.

use std::fmt;

use super::compare::{Bound, Difference};

#[derive(Debug, Clone)]
pub struct Row {
    pub stage: String,
    /// The probe's place, as `models/families/llama.mgraph:66`; `None` for what is no probe, such as a cache.
    pub source: Option<String>,
    pub outcome: Outcome,
    /// Of an isolated run: why the call went on from the value that it computed here, and not from the reference's.
    pub kept: Option<String>,
}

#[derive(Debug, Clone)]
pub enum Outcome {
    Compared {
        shape: Vec<usize>,
        difference: Box<Difference>,
        bound: Bound,
        basis: Basis,
    },
    /// Shapes disagree, or greedy tokens do.
    Mismatch(String),
    /// The reference has the stage, the family gave no probe of that name.
    NotProbed,
}

/// What says how far a stage may be from its reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Basis {
    /// Integers and masks are equal or wrong.
    Exact,
    /// The reference's own rounding, from the notes beside it.
    Noise,
    /// The pattern of the family's `contract` line.
    Contract(String),
    /// Neither: differences are measured, not judged. Numbers beside no numbers diverge all the same.
    Absent,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Basis::Exact => f.write_str("exact"),
            Basis::Noise => f.write_str("noise"),
            Basis::Contract(pattern) => write!(f, "contract {pattern:?}"),
            Basis::Absent => f.write_str("no bound"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Within,
    Diverged,
    Unjudged,
}

impl Row {
    pub fn verdict(&self) -> Verdict {
        match &self.outcome {
            Outcome::Compared { difference, .. } if !difference.within() => Verdict::Diverged,
            Outcome::Compared { basis: Basis::Absent, .. } => Verdict::Unjudged,
            Outcome::Compared { basis: Basis::Exact | Basis::Noise | Basis::Contract(_), .. } => Verdict::Within,
            Outcome::Mismatch(_) | Outcome::NotProbed => Verdict::Diverged,
        }
    }

    pub fn passed(&self) -> bool {
        self.verdict() == Verdict::Within
    }
}

/// Rows by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub within: usize,
    pub diverged: usize,
    pub unjudged: usize,
}

impl Tally {
    pub fn rows(&self) -> usize {
        self.within + self.diverged + self.unjudged
    }

    pub(super) fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Within => self.within += 1,
            Verdict::Diverged => self.diverged += 1,
            Verdict::Unjudged => self.unjudged += 1,
        }
    }
}
