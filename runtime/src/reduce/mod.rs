//! A divergence made small: of a call's ops, the one that two executors compute differently, or the few that only together are, as a
//! file of the language with its tensors, which [`Case::replay`] runs again.
//!
//! Every op is run as that text, on the operands that the reference had. An op is guilty where the executors differ by more than
//! its bound there; where none is, slices of up to [`AT_MOST`] ops are tried, and the first that diverges is made smaller.

mod bound;
mod case;
mod cone;
mod run;
mod search;
mod text;

pub use self::{
    case::{Case, FILE, TENSORS, measured, told},
    run::{Subject, subjects},
    search::{Found, Pair, Slices, search},
};

/// Ops of a case; more only where fewer do not diverge.
pub const AT_MOST: usize = 10;
