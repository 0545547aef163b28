//! The three executors by name, and how to open a session on each.

use std::{fmt, sync::Arc};

use crate::{
    error::Result,
    model::Model,
    reference::ReferenceSession,
    session::{Session, SessionOptions},
    {hlo, mlx},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Backend {
    /// Eager MLX
    Mlx,
    /// StableHLO, compiled and run by IREE
    Iree,
    /// The interpreter of the language: slow, the third opinion
    Reference,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Mlx => "mlx",
            Backend::Iree => "iree",
            Backend::Reference => "reference",
        })
    }
}

/// Loads the weights of `model` onto `backend`.
pub fn open(backend: Backend, model: &Arc<Model>, options: SessionOptions) -> Result<Box<dyn Session>> {
    Ok(match backend {
        Backend::Mlx => Box::new(mlx::MlxSession::open(model, options)?),
        Backend::Iree => Box::new(hlo::HloSession::open(model, options)?),
        Backend::Reference => Box::new(ReferenceSession::open(model, options)?),
    })
}
