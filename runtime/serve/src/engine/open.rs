//! Opening what the engine runs: a model, what makes its requests, and a session on it.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use mgraph_runtime::{
    backend::{self, Backend},
    error::{Result, bail, ensure},
    family::Family,
    model::{MaxPositions, Model},
    probes::Probes,
    request::Requests,
    session::{Float, Numerics, Session, SessionOptions},
};

use super::{
    Room,
    grammar::{Form, Grammars},
    shared::Shared,
};
use crate::request::{Refusal, Request, Shape};

/// Most tokens of a prompt in one call. What runs beside it waits for that call, so it is small; on neither backend does a chunk
/// of 128 take less time per token.
const MAX_CHUNK: usize = 64;

/// What is opened, and how it is run.
#[derive(Clone)]
pub struct EngineOptions {
    pub families: &'static [&'static Family],
    /// A checkpoint directory.
    pub model: PathBuf,
    pub backend: Backend,
    pub dtype: Float,
    /// In `pinned` mode an answer never depends on what runs beside it, and rows are not computed together.
    pub numerics: Numerics,
    /// Of the family, by dotted name.
    pub limits: Vec<(String, i64)>,
    /// Positions of a row, prompt and answer together; by default [`Requests::default_capacity`].
    pub ctx_size: Option<usize>,
    pub room: Room,
}

/// A model as requests are made for it.
pub struct Loaded {
    pub model: Arc<Model>,
    /// Tokenizer, chat template, image processor.
    pub requests: Requests,
    /// Positions of a row, prompt and answer together.
    pub capacity: usize,
    /// Logits of a step.
    pub vocabulary: usize,
    /// Ids that a prompt may have.
    pub token_ids: usize,
    pub numerics: Numerics,
    grammars: OnceLock<Result<Grammars, String>>,
}

impl Loaded {
    /// Errors: files of the checkpoint that are missing or wrong; a capacity that the model was not made for.
    pub fn new(model: Arc<Model>, ctx_size: Option<usize>, numerics: Numerics) -> Result<Loaded> {
        let requests = Requests::open(&model)?;
        let capacity = ctx_size.unwrap_or_else(|| requests.default_capacity());
        ensure!(capacity > 0, "a context of no positions holds nothing; raise --ctx-size");
        if let Some(MaxPositions { count, from }) = model.max_positions()?.filter(|most| capacity > most.count) {
            bail!("--ctx-size is {capacity}, but the model was made for {count} positions ({from}); lower it");
        }
        let (vocabulary, token_ids) = (model.vocabulary()?, model.token_ids()?);
        Ok(Loaded { model, requests, capacity, vocabulary, token_ids, numerics, grammars: OnceLock::new() })
    }

    /// Whether a text may fit: told from its length, before it is tokenized.
    ///
    /// Errors: its tokens alone are more than the context holds.
    pub fn fits(&self, text: &str) -> Result<(), Refusal> {
        /// Where tokens may stand for any length of text (runs of spaces, words that are unknown), nobody means so many by one.
        const BYTES: usize = 1024;
        let most = self.requests.tokenizer().most_bytes().unwrap_or(BYTES);
        self.holds(text.len() / most.max(1))
    }

    /// Errors: these tokens alone are more than the context holds.
    pub fn holds(&self, tokens: usize) -> Result<(), Refusal> {
        if tokens > self.capacity {
            return Err(Refusal::TooLong { least: tokens, capacity: self.capacity });
        }
        Ok(())
    }

    /// How a session for it is opened.
    pub fn session_options(&self, rows: usize, dtype: Float) -> SessionOptions {
        SessionOptions {
            rows,
            capacity: self.capacity,
            max_chunk: MAX_CHUNK.min(self.capacity),
            dtype,
            numerics: self.numerics,
            probes: Probes::Unread,
        }
    }

    /// Of each request; one that is as the one before it is not compiled again.
    pub(super) fn forms(&self, requests: &[Request]) -> Result<Vec<Option<Form>>, Refusal> {
        let mut forms: Vec<Option<Form>> = Vec::with_capacity(requests.len());
        for (at, request) in requests.iter().enumerate() {
            let same = at.checked_sub(1).filter(|before| requests[*before].shape == request.shape);
            let form = match same {
                Some(before) => forms[before].as_ref().map(Form::again),
                None => self.form(&request.shape)?,
            };
            forms.push(form);
        }
        Ok(forms)
    }

    /// Errors: a form that cannot be used, or none that this model can have.
    fn form(&self, shape: &Shape) -> Result<Option<Form>, Refusal> {
        if *shape == Shape::Text {
            return Ok(None);
        }
        let grammars = self.grammars.get_or_init(|| Grammars::new(self.requests.tokenizer(), self.vocabulary));
        grammars.as_ref().map_err(|why| Refusal::Invalid(why.clone()))?.compile(shape)
    }
}

/// Tells the handle how far opening has come.
pub struct Progress {
    shared: Arc<Shared>,
}

impl Progress {
    pub(super) fn new(shared: Arc<Shared>) -> Progress {
        Progress { shared }
    }

    /// A line for people.
    pub fn loading(&self, what: &str) {
        self.shared.loading(what);
    }

    /// From now on requests can be made, though not submitted.
    pub fn opened(&self, loaded: &Arc<Loaded>) {
        // Opened once; a second time would change nothing.
        let _ = self.shared.loaded.set(Arc::clone(loaded));
    }
}

impl EngineOptions {
    pub(super) fn open(self, progress: &Progress) -> Result<(Arc<Loaded>, Box<dyn Session>)> {
        ensure!(self.room.parallel > 0, "--parallel is 0, so no request could ever run; expected at least 1");
        progress.loading(&format!("opening {}", self.model.display()));
        let model = Model::open_with(&self.model, self.families, &self.limits)?;
        let loaded = Arc::new(Loaded::new(model, self.ctx_size, self.numerics)?);
        progress.opened(&loaded);
        progress.loading(&format!("loading weights ({})", self.backend));
        let options = loaded.session_options(self.room.parallel, self.dtype);
        let session = backend::open(self.backend, &loaded.model, options)?;
        Ok((loaded, session))
    }
}
