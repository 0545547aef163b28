//! A checkpoint of the vision part of the released Molmo2-4B: its shapes, its names, random weights; and pictures for it.
//! `make vision` runs both backends on it. A crate of its own so that development builds optimize it.
//!
//! [`Weights`] writes random weights under any names; the bench of random text models does so too.
//!
//! Nothing here knows a backend: a checkpoint is written, one tensor at a time, and what a reference would be fed.

mod checkpoint;
mod inputs;
mod noise;
mod shapes;
mod weights;

pub use checkpoint::checkpoint;
pub use inputs::{View, inputs};
pub use shapes::Shapes;
pub use weights::{Stored, Weights};

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
