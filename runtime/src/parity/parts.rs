//! Where the time of a run goes.

use std::fmt;

use crate::{
    backend::Backend,
    session::Prepared,
    spent::{Clock, Spent, peak_memory},
};

/// What a part of a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Weights onto an executor.
    Load(Backend),
    /// Graphs that were not compiled before.
    Compile(Backend),
    /// An executor's calls.
    Run(Backend),
    /// Stages beside their reference. Where an executor gives them as it goes, it works on meanwhile.
    Compare,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Load(backend) => write!(f, "{backend} load"),
            Part::Compile(backend) => write!(f, "{backend} compile"),
            Part::Run(backend) => write!(f, "{backend} run"),
            Part::Compare => f.write_str("compare"),
        }
    }
}

/// Parts in the order in which they began.
#[derive(Debug, Clone)]
pub struct Parts {
    clock: Clock,
    all: Vec<(Part, Spent)>,
}

impl Parts {
    pub fn start() -> Parts {
        Parts { clock: Clock::start(), all: Vec::new() }
    }

    pub(super) fn add(&mut self, part: Part, spent: Spent) {
        match self.all.iter_mut().find(|(known, _)| *known == part) {
            Some((_, sum)) => *sum += spent,
            None => self.all.push((part, spent)),
        }
    }

    /// Calls of a session took `spent` in all, of which what it had to prepare for them is no running.
    pub(super) fn ran(&mut self, backend: Backend, spent: Spent, prepared: Prepared) {
        if prepared != Prepared::default() {
            self.add(Part::Load(backend), prepared.load);
            self.add(Part::Compile(backend), prepared.compile);
        }
        self.add(Part::Run(backend), spent - prepared.load - prepared.compile);
    }

    pub fn all(&self) -> &[(Part, Spent)] {
        &self.all
    }

    /// Since [`Parts::start`].
    pub fn total(&self) -> Spent {
        self.clock.spent()
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (part, spent) in &self.all {
            write!(f, "{part} {spent}, ")?;
        }
        write!(f, "all {}; at most {:.1} GB of memory", self.total(), peak_memory() as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Part, Parts};
    use crate::{backend::Backend, session::Prepared, spent::Spent};

    #[test]
    fn what_calls_prepare_is_no_running() {
        let seconds = |n| Spent { wall: Duration::from_secs(n), cpu: Duration::from_secs(2 * n) };
        let mut parts = Parts::start();
        parts.add(Part::Load(Backend::Iree), seconds(1));
        parts.ran(Backend::Iree, seconds(9), Prepared { load: seconds(2), compile: seconds(4) });
        parts.ran(Backend::Iree, seconds(5), Prepared::default());
        let (load, compile, run) = (Part::Load(Backend::Iree), Part::Compile(Backend::Iree), Part::Run(Backend::Iree));
        assert_eq!(parts.all(), [(load, seconds(3)), (compile, seconds(4)), (run, seconds(8))]);
        assert!(parts.to_string().starts_with("iree load 3.0 s (6.0 s of CPU), iree compile 4.0 s (8.0 s of CPU), "));
    }
}
