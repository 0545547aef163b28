//! The runtime's error: a sentence for people, with the chain of what led to it.

pub use anyhow::{Context, Error, Result, anyhow, bail, ensure};
