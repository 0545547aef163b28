//! The one seam between the engine and a backend. MLX, IREE and the reference interpreter implement it over the same
//! family; the engine knows nothing else of them.

use std::{
    ops::{Range, Sub},
    rc::Rc,
    sync::Arc,
};

use crate::{
    error::{Result, ensure},
    pictures::OfTokens,
    probes::Probes,
    spent::Spent,
    tensor::{DType, Tensor},
};

/// How a family is to be run.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Rows of the states: requests held side by side. A call covers some of them.
    pub rows: usize,
    /// Positions a row may hold, prompt and answer together (`--ctx-size`).
    pub capacity: usize,
    /// Largest number of tokens per row in one call.
    pub max_chunk: usize,
    pub dtype: Float,
    pub numerics: Numerics,
    pub probes: Probes,
}

/// The activation dtype `F`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Float {
    F32,
    Bf16,
    F16,
}

impl Float {
    pub fn dtype(self) -> DType {
        match self {
            Float::F32 => DType::F32,
            Float::Bf16 => DType::BF16,
            Float::F16 => DType::F16,
        }
    }
}

/// `pinned`: op order is exactly the text. `fused`: declared twins may stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Numerics {
    Pinned,
    Fused,
}

/// One call of `forward` after `embed`: `width` tokens for each of the rows `first_row .. first_row + rows` of the session. All other
/// rows stay as they are, bit for bit.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub first_row: usize,
    pub rows: usize,
    /// Tokens per row (`S`).
    pub width: usize,
    /// `[rows, width]`. Tokens that only fill up a row come last.
    pub tokens: Vec<i32>,
    /// `[rows, width]`, consecutive within a row.
    pub positions: Vec<i32>,
    /// `[rows, R]`: the tokens, as indices into the row, whose logits are wanted.
    pub wanted: Vec<i32>,
    /// Per row, what its tokens are told of the pictures of their request; a row that is not there has words alone.
    pub of_tokens: Vec<Option<Arc<OfTokens>>>,
}

impl Batch {
    /// One row of tokens at `start, start + 1, ..`, filled up with token 0 to `width`; the last real token's logits wanted.
    pub fn row(tokens: &[i32], start: usize, width: usize) -> Batch {
        let mut padded = tokens.to_vec();
        padded.resize(width, 0);
        Batch {
            first_row: 0,
            rows: 1,
            width,
            tokens: padded,
            positions: (start..start + width).map(|p| p as i32).collect(),
            wanted: vec![tokens.len() as i32 - 1],
            of_tokens: Vec::new(),
        }
    }

    /// The same call for the rows from `first_row` on.
    pub fn at_row(self, first_row: usize) -> Batch {
        Batch { first_row, ..self }
    }

    /// The rows of the session that the call covers.
    pub fn covered(&self) -> Range<usize> {
        self.first_row..self.first_row.saturating_add(self.rows)
    }

    /// One value per token, row by row, of what its request tells of pictures and its position.
    pub(crate) fn each_token<T>(&self, value: impl Fn(Option<&OfTokens>, usize) -> Result<T>) -> Result<Vec<T>> {
        let told = |row: usize| self.of_tokens.get(row).and_then(Option::as_deref);
        let places = self.positions.iter().enumerate();
        places.map(|(at, position)| value(told(at / self.width.max(1)), *position as usize)).collect()
    }

    /// `R`: wanted tokens per row.
    pub fn wanted_per_row(&self) -> usize {
        self.wanted.len() / self.rows.max(1)
    }

    /// Refuse a call that a session of these options cannot serve, before any work.
    pub fn check(&self, options: &SessionOptions) -> Result<()> {
        let per_row = |values: &[i32], count: usize| values.len() == self.rows * count;
        ensure!(
            self.rows > 0
                && self.width > 0
                && per_row(&self.tokens, self.width)
                && per_row(&self.positions, self.width),
            "a call of {} rows of {} tokens with {} tokens and {} positions",
            self.rows,
            self.width,
            self.tokens.len(),
            self.positions.len()
        );
        within(&self.covered(), options.rows)?;
        ensure!(
            self.positions.iter().all(|p| *p >= 0) && self.wanted.iter().all(|w| (0..self.width as i32).contains(w)),
            "a negative position, or logits wanted of a token that is not in the call"
        );
        ensure!(
            self.wanted_per_row() > 0 && per_row(&self.wanted, self.wanted_per_row()),
            "a call of {} rows that wants {} logits; expected the same number of every row, at least one",
            self.rows,
            self.wanted.len()
        );
        Ok(())
    }

    /// Positions the call touches: one past the largest.
    pub fn reach(&self) -> usize {
        self.positions.iter().max().map_or(0, |p| *p as usize + 1)
    }
}

/// Refuse rows that a session of so many does not have.
pub(crate) fn within(covered: &Range<usize>, rows: usize) -> Result<()> {
    ensure!(
        covered.end <= rows,
        "a call of rows {}..{}, but the session has {rows}; open it with more rows",
        covered.start,
        covered.end
    );
    Ok(())
}

/// Called for every probe in execution order. Tensors are complete, fill-up tokens included.
pub type ProbeSink<'a> = &'a mut dyn FnMut(&str, Tensor) -> Result<()>;

/// The same sink for one more call.
pub(crate) fn again<'a>(probes: &'a mut Option<ProbeSink<'_>>) -> Option<ProbeSink<'a>> {
    match probes {
        Some(sink) => Some(&mut **sink),
        None => None,
    }
}

/// What a session did before calls could run, beyond opening it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Prepared {
    pub compile: Spent,
    /// Weights that only a call turned out to need.
    pub load: Spent,
}

impl Sub for Prepared {
    type Output = Prepared;

    fn sub(self, before: Prepared) -> Prepared {
        Prepared { compile: self.compile - before.compile, load: self.load - before.load }
    }
}

/// Takes a line for people before each piece of work that lasts.
pub type Progress = Rc<dyn Fn(&str)>;

/// A loaded family on one backend, with its state. Calls come from one thread at a time.
pub trait Session {
    /// One graph of the language by name, on all its inputs by name; its results. Its rows (`B`, as many as the inputs have) are
    /// those of the session from `first_row` on; of these, the states that it assigns are updated. Floats may come in any
    /// float dtype.
    ///
    /// Errors: what [`inputs::of_graph`](crate::inputs::of_graph) refuses, before any work; else as [`Session::step`].
    fn call(
        &mut self,
        graph: &str,
        inputs: &[(&str, Tensor)],
        first_row: usize,
        probes: Option<ProbeSink<'_>>,
    ) -> Result<Vec<Tensor>>;

    /// The fused `embed`, then `forward`: logits `[rows, R, vocab]`. The states of the rows that the batch covers are updated.
    ///
    /// Errors: a row beyond [`SessionOptions::capacity`], or a failure of the backend; the states are then unspecified
    /// until [`Session::reset`].
    fn step(&mut self, batch: &Batch, probes: Option<ProbeSink<'_>>) -> Result<Tensor>;

    /// The `width` this backend wants for a call that has `tokens` real tokens left per row: at least 1, and how many of
    /// the real ones it takes is `min(tokens, width)`. A backend that compiles per shape answers with one of a few sizes.
    fn width(&self, tokens: usize) -> usize;

    /// The `width` for `tokens` tokens that belong into one call, however many: at least as many.
    fn width_of_all(&self, tokens: usize) -> usize;

    /// Positions that `update` may write, fill-up tokens of the last chunk included.
    fn capacity(&self) -> usize;

    /// Forget everything: all states are zero again.
    fn reset(&mut self) -> Result<()>;

    /// Row `row` keeps its first `kept` positions, and later ones are zero again; where it keeps none, so is all else it holds. Calls
    /// then give the bits that they give in a new session. Without it the next request of a row could see what the last one
    /// left: positions to come are hidden from a token by `causal`, but not by `same_span`, and no mask hides a NaN.
    ///
    /// Errors: a row that there is not; fewer positions than [`Session::least_kept`], but some.
    fn forget(&mut self, row: usize, kept: usize) -> Result<()>;

    /// The least number of positions that row `row` may keep, other than none: sliding-window layers have dropped what fewer would
    /// look back to. 0 where everything is held.
    fn least_kept(&self, row: usize) -> usize;

    /// A state by its field path (`layers.0.self_attn.cache.k`), over the positions it holds at present, all rows. That of a
    /// sliding-window layer may hold the last ones alone.
    fn state(&mut self, path: &str) -> Result<Tensor>;

    /// Who hears of work that a call turns out to need first, such as compiling. Nobody, where this was not called.
    fn tell(&mut self, _progress: Progress) {}

    /// What calls so far needed first; nothing, where all is ready once the session is open.
    fn prepared(&self) -> Prepared {
        Prepared::default()
    }

    /// Bring what steps of these shapes, `(rows, width)`, need into being (compile it), reporting what is done.
    fn prepare(&mut self, shapes: &[(usize, usize)], progress: &mut dyn FnMut(&str)) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::{Batch, Float, Numerics, Probes, SessionOptions};

    #[test]
    fn a_call_that_cannot_be_served_is_refused() {
        let options = SessionOptions {
            rows: 1,
            capacity: 8,
            max_chunk: 8,
            dtype: Float::F32,
            numerics: Numerics::Pinned,
            probes: Probes::Unread,
        };
        let good = Batch::row(&[3, 4], 0, 4);
        assert!(good.check(&options).is_ok());
        type Spoil = fn(&mut Batch);
        let refused: [(&str, Spoil); 8] = [
            ("a token short", |b| b.tokens.truncate(3)),
            ("two rows", |b| b.rows = 2),
            ("a row past the last", |b| b.first_row = 1),
            ("a row past any", |b| b.first_row = usize::MAX),
            ("no width", |b| b.width = 0),
            ("a negative position", |b| b.positions[0] = -1),
            ("a token past the row", |b| b.wanted[0] = 4),
            ("no logits", |b| b.wanted.clear()),
        ];
        for (what, spoil) in refused {
            let mut batch = good.clone();
            spoil(&mut batch);
            assert!(batch.check(&options).is_err(), "{what}");
        }
    }
}
