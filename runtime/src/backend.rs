//! The three executors by name, and how to open a session on each.

use std::{fmt, sync::Arc};

use crate::{
    error::Result,
    model::{Model, in_vocabulary},
    reference::ReferenceSession,
    session::{Batch, Prepared, ProbeSink, Progress, Session, SessionOptions},
    tensor::Tensor,
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

impl Backend {
    /// Most tokens that fill a call up.
    pub fn fill_up(self) -> usize {
        match self {
            Backend::Iree => hlo::FILL_UP,
            Backend::Mlx | Backend::Reference => 0,
        }
    }
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

/// Loads the weights of `model` onto `backend`. The session refuses tokens outside the vocabulary.
pub fn open(backend: Backend, model: &Arc<Model>, options: SessionOptions) -> Result<Box<dyn Session>> {
    let inner: Box<dyn Session> = match backend {
        Backend::Mlx => Box::new(mlx::MlxSession::open(model, options)?),
        Backend::Iree => Box::new(hlo::HloSession::open(model, options)?),
        Backend::Reference => Box::new(ReferenceSession::open(model, options)?),
    };
    Ok(Box::new(InVocabulary { inner, vocabulary: model.token_ids()? }))
}

/// A session whose calls name only tokens that there are embeddings of. MLX reads whatever lies beyond its table and IREE clamps, so what is
/// outside has to be found before the call.
struct InVocabulary {
    inner: Box<dyn Session>,
    vocabulary: usize,
}

impl InVocabulary {
    fn check(&self, tokens: &[i32]) -> Result<()> {
        in_vocabulary(tokens.iter().map(|token| i64::from(*token)), self.vocabulary)
    }
}

impl Session for InVocabulary {
    fn call(
        &mut self,
        graph: &str,
        inputs: &[(&str, Tensor)],
        first_row: usize,
        probes: Option<ProbeSink<'_>>,
    ) -> Result<Vec<Tensor>> {
        if let Some((_, tokens)) = inputs.iter().find(|(name, _)| *name == "tokens") {
            self.check(&bytemuck::pod_collect_to_vec(&tokens.bytes))?;
        }
        self.inner.call(graph, inputs, first_row, probes)
    }

    fn step(&mut self, batch: &Batch, probes: Option<ProbeSink<'_>>) -> Result<Tensor> {
        self.check(&batch.tokens)?;
        self.inner.step(batch, probes)
    }

    fn width(&self, tokens: usize) -> usize {
        self.inner.width(tokens)
    }

    fn width_of_all(&self, tokens: usize) -> usize {
        self.inner.width_of_all(tokens)
    }

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn reset(&mut self) -> Result<()> {
        self.inner.reset()
    }

    fn forget(&mut self, row: usize, kept: usize) -> Result<()> {
        self.inner.forget(row, kept)
    }

    fn least_kept(&self, row: usize) -> usize {
        self.inner.least_kept(row)
    }

    fn state(&mut self, path: &str) -> Result<Tensor> {
        self.inner.state(path)
    }

    fn tell(&mut self, progress: Progress) {
        self.inner.tell(progress);
    }

    fn prepared(&self) -> Prepared {
        self.inner.prepared()
    }

    fn prepare(&mut self, shapes: &[(usize, usize)], progress: &mut dyn FnMut(&str)) -> Result<()> {
        self.inner.prepare(shapes, progress)
    }
}
