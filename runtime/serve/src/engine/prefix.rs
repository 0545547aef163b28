//! What a row of the session holds, and how much of a new request is there already.
//!
//! A position is shared where its token is the same and everything before it is, pictures included. Spans of pictures, whose tokens
//! see each other, are shared whole or not at all. At least the last token of a prompt is computed, for its logits are wanted.
//!
//! In `pinned` mode only chunks count that the request alone would have been fed in just so: the same start and width, so that the
//! states have the bits they would have had.

use std::sync::Arc;

use mgraph_runtime::pictures::{OfTokens, Pictures};

/// One call of a prefill: `taken` tokens from `start` on in a call of `width`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    pub start: usize,
    pub taken: usize,
    pub width: usize,
}

impl Chunk {
    pub fn end(&self) -> usize {
        self.start + self.taken
    }
}

/// The pictures of a request, as far as they tell whether states can be shared.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// Of what `vision` is given.
    digest: Option<blake3::Hash>,
    feature_rows: Vec<i32>,
    of_tokens: Option<Arc<OfTokens>>,
}

impl Told {
    pub fn of(pictures: &Pictures) -> Told {
        let digest = |hasher: blake3::Hasher, (name, tensor): &(&str, mgraph_runtime::tensor::Tensor)| {
            let mut hasher = hasher;
            hasher.update(format!("{name} {:?} {:?}\n", tensor.dtype, tensor.shape).as_bytes());
            hasher.update(&tensor.bytes);
            hasher
        };
        let hasher = pictures.vision.iter().fold(blake3::Hasher::new(), digest);
        Told {
            digest: (!pictures.vision.is_empty()).then(|| hasher.finalize()),
            feature_rows: pictures.feature_rows.clone(),
            of_tokens: pictures.of_tokens.clone(),
        }
    }

    fn feature_row(&self, position: usize) -> i32 {
        self.feature_rows.get(position).copied().unwrap_or(-1)
    }

    fn agrees(&self, other: &Told, position: usize) -> bool {
        self.feature_row(position) == other.feature_row(position)
            && match (self.of_tokens.as_deref(), other.of_tokens.as_deref()) {
                (None, None) => true,
                (Some(a), Some(b)) => alike(a, b, position),
                (None, Some(_)) | (Some(_), None) => false,
            }
    }

    /// The span of a position; 0 for none.
    fn span(&self, position: usize) -> i32 {
        match self.of_tokens.as_deref() {
            Some(told @ OfTokens::Spans(_)) => told.span(position).unwrap_or(0),
            Some(OfTokens::AxisPositions { .. } | OfTokens::TileSight(_)) | None => 0,
        }
    }
}

/// Whether two requests tell a token at `position` the same, of the prompt or generated.
fn alike(a: &OfTokens, b: &OfTokens, position: usize) -> bool {
    match (a, b) {
        (OfTokens::Spans(_), OfTokens::Spans(_)) => a.span(position).ok() == b.span(position).ok(),
        (OfTokens::AxisPositions { axes, .. }, OfTokens::AxisPositions { axes: others, .. }) => {
            axes.len() == others.len()
                && (0..axes.len())
                    .all(|axis| a.axis_position(axis, position).ok() == b.axis_position(axis, position).ok())
        }
        (OfTokens::TileSight(a), OfTokens::TileSight(b)) => {
            let sight = |seen: &[Vec<u8>]| seen.get(position).or(seen.last()).cloned();
            sight(a) == sight(b)
        }
        (OfTokens::Spans(_) | OfTokens::AxisPositions { .. } | OfTokens::TileSight(_), _) => false,
    }
}

/// The tokens whose states a row holds.
#[derive(Debug, Clone, Default)]
pub struct Held {
    pub tokens: Vec<u32>,
    told: Told,
    /// How the prompt was fed; tokens of an answer come after the last.
    chunks: Vec<Chunk>,
}

impl Held {
    /// The row is kept for its first `kept` tokens, and begins another request.
    pub fn begin(&mut self, kept: usize, told: Told) {
        self.tokens.truncate(kept);
        self.chunks.retain(|chunk| chunk.end() <= kept);
        self.told = told;
    }

    pub fn fed(&mut self, chunk: Chunk, tokens: &[u32]) {
        self.chunks.push(chunk);
        self.tokens.extend_from_slice(tokens);
    }

    /// How many tokens of `prompt` are there. `filled`: of the tokens, those that still are.
    pub fn common(&self, filled: usize, prompt: &[u32], told: &Told) -> usize {
        if self.told.digest != told.digest {
            return 0;
        }
        let most = filled.min(self.tokens.len()).min(prompt.len().saturating_sub(1));
        let same = |position: &usize| self.tokens[*position] == prompt[*position] && self.told.agrees(told, *position);
        let mut common = (0..most).take_while(same).count();
        let split = |told: &Told, at: usize| at > 0 && told.span(at - 1) > 0 && told.span(at - 1) == told.span(at);
        while split(told, common) || split(&self.told, common) {
            common -= 1;
        }
        common
    }

    /// As [`Held::common`], in whole chunks that `plan` (from a number of tokens done to the next chunk) has too.
    pub fn common_chunks(&self, filled: usize, prompt: &[u32], told: &Told, plan: impl Fn(usize) -> Chunk) -> usize {
        let common = self.common(filled, prompt, told);
        let mut done = 0;
        for chunk in &self.chunks {
            if chunk.end() > common || plan(done) != *chunk {
                break;
            }
            done = chunk.end();
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(tokens: &[u32], told: Told) -> Held {
        Held { tokens: tokens.to_vec(), told, chunks: Vec::new() }
    }

    fn spans(spans: &[i32]) -> Told {
        Told { of_tokens: Some(Arc::new(OfTokens::Spans(spans.to_vec()))), ..Told::default() }
    }

    #[test]
    fn the_last_token_of_a_prompt_is_always_computed() {
        let row = held(&[1, 2, 3, 4], Told::default());
        let words = Told::default();
        assert_eq!(row.common(4, &[1, 2, 3, 4], &words), 3);
        assert_eq!(row.common(4, &[1, 2, 3, 4, 5], &words), 4);
        assert_eq!(row.common(4, &[1, 2, 9, 4], &words), 2);
        assert_eq!(row.common(1, &[1, 2, 3], &words), 1, "what was overwritten is gone");
        assert_eq!(row.common(4, &[1], &words), 0);
    }

    #[test]
    fn pictures_are_shared_where_they_are_the_same() {
        let picture = |byte: u8| {
            let pixels = mgraph_runtime::tensor::Tensor::of(mgraph_runtime::tensor::DType::U8, &[1], &[byte]);
            Told::of(&Pictures { vision: vec![("pixels", pixels)], feature_rows: vec![-1, 0], of_tokens: None })
        };
        let row = held(&[1, 7, 2], picture(1));
        assert_eq!(row.common(3, &[1, 7, 2, 3], &picture(1)), 3);
        assert_eq!(row.common(3, &[1, 7, 2, 3], &picture(2)), 0);
        assert_eq!(row.common(3, &[1, 7, 2, 3], &Told::default()), 0);
        let moved = Told { feature_rows: vec![0, -1], ..picture(1) };
        assert_eq!(row.common(3, &[1, 7, 2, 3], &moved), 0);
    }

    #[test]
    fn a_span_is_shared_whole() {
        let row = held(&[5, 7, 7, 6], spans(&[0, 1, 1, 0]));
        assert_eq!(row.common(4, &[5, 7, 7, 6, 8], &spans(&[0, 1, 1, 0, 0])), 4);
        assert_eq!(row.common(4, &[5, 7, 9, 6, 8], &spans(&[0, 1, 1, 0, 0])), 1, "differs within the span");
        assert_eq!(row.common(4, &[5, 7, 7, 7, 8], &spans(&[0, 1, 1, 1, 0])), 1, "the span goes on");
        assert_eq!(row.common(4, &[5, 7, 8, 8], &spans(&[0, 1, 0, 0])), 1, "the span of the row goes on");
        assert_eq!(row.common(4, &[5, 7, 7], &spans(&[0, 1, 1])), 1, "the last token is in the span");
    }

    #[test]
    fn pinned_rows_share_chunks_that_would_be_fed_alike() {
        let words = Told::default();
        let plan = |length: usize| {
            move |start: usize| Chunk {
                start,
                taken: (length - start).min(4),
                width: if length - start > 1 { 4 } else { 1 },
            }
        };
        let mut row = Held::default();
        row.fed(plan(6)(0), &[1, 2, 3, 4]);
        row.fed(plan(6)(4), &[5, 6]);
        row.tokens.extend([7, 8]);
        assert_eq!(row.common(8, &[1, 2, 3, 4, 5, 6, 7, 8, 9], &words), 8);
        let reused = |prompt: &[u32]| row.common_chunks(8, prompt, &words, plan(prompt.len()));
        assert_eq!(reused(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), 4, "the second chunk would be longer");
        assert_eq!(reused(&[1, 2, 3, 4, 5, 6]), 4, "the last token is computed, and its chunk with it");
        assert_eq!(reused(&[1, 2, 3, 4, 5]), 4);
        assert_eq!(reused(&[1, 2, 3, 9, 5, 6]), 0);
        row.begin(4, Told::default());
        assert_eq!((row.tokens.as_slice(), row.chunks.len()), (&[1, 2, 3, 4][..], 1));
    }
}
