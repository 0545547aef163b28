//! Pictures of a request as the graphs take them: what an image processor makes of them, and a request whose pictures a
//! session has looked at. Nothing here knows a family: the graphs and inputs are those of the language.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use crate::{
    error::{Context, Result, bail, ensure},
    inputs,
    model::Model,
    session::{Batch, ProbeSink, Session, again},
    tensor::Tensor,
};

/// What a processor makes of the pictures of one request; all empty where there are none.
#[derive(Debug, Clone, Default)]
pub struct Pictures {
    /// The inputs of `vision`, by name.
    pub vision: Vec<(&'static str, Tensor)>,
    /// For `merge`: the feature row of each token of the prompt, -1 for none.
    pub feature_rows: Vec<i32>,
    /// What the tokens are told of the pictures.
    pub of_tokens: Option<Arc<OfTokens>>,
}

impl Pictures {
    /// Of the processor `pooled_crops`. Windows that name no patch are padding, and no token has their feature.
    ///
    /// Errors: not as many tokens `image_token` as features.
    pub fn pooled_crops(
        tokens: &[i32],
        image_token: i32,
        (pixels, pooling): (Tensor, Tensor),
        of_tokens: Option<Arc<OfTokens>>,
    ) -> Result<Pictures> {
        let windows = pooling.to_f64();
        let each = pooling.shape.get(1).copied().unwrap_or(0).max(1);
        let named = windows.chunks(each).enumerate().filter(|(_, window)| window.iter().any(|patch| *patch >= 0.0));
        let feature_rows = feature_rows(tokens, image_token, named.map(|(row, _)| row))?;
        Ok(Pictures { vision: vec![("pixels", pixels), ("pooling", pooling)], feature_rows, of_tokens })
    }
}

/// The `n`-th token `image_token` has the `n`-th of `rows`.
///
/// Errors: not as many tokens as rows.
pub(crate) fn feature_rows(
    tokens: &[i32],
    image_token: i32,
    rows: impl IntoIterator<Item = usize>,
) -> Result<Vec<i32>> {
    let mut rows = rows.into_iter();
    let mut named = Vec::with_capacity(tokens.len());
    for token in tokens {
        named.push(match *token == image_token {
            true => rows.next().with_context(|| format!("more tokens {image_token} than there are features"))? as i32,
            false => -1,
        });
    }
    let left = rows.count();
    ensure!(left == 0, "{left} features more than there are tokens {image_token}");
    Ok(named)
}

/// The input of `forward` that tells tokens about pictures, for every position of a request: those of the prompt, and those
/// that are generated after it.
#[derive(Debug, Clone, PartialEq)]
pub enum OfTokens {
    /// Which span a token belongs to, 0 for none. A generated token belongs to none.
    Spans(Vec<i32>),
    /// One position per axis; a generated token continues after the largest.
    AxisPositions { axes: Vec<Vec<i32>>, next: i32 },
    /// Per token, 1 for each tile it may look at, over all pictures. A generated token sees what the last of the prompt did.
    TileSight(Vec<Vec<u8>>),
}

impl OfTokens {
    /// One span of all tokens that are among `seeing`, wherever they stand; `None` where there is none of them.
    pub fn one_span(tokens: &[i32], seeing: &[i32]) -> Option<OfTokens> {
        let spans: Vec<i32> = tokens.iter().map(|token| i32::from(seeing.contains(token))).collect();
        spans.contains(&1).then_some(OfTokens::Spans(spans))
    }

    pub fn span(&self, position: usize) -> Result<i32> {
        match self {
            OfTokens::Spans(spans) => Ok(spans.get(position).copied().unwrap_or(0)),
            OfTokens::AxisPositions { .. } | OfTokens::TileSight(_) => self.other("spans"),
        }
    }

    pub fn axis_position(&self, axis: usize, position: usize) -> Result<i32> {
        match self {
            OfTokens::AxisPositions { axes, next } => {
                let count = axes.len();
                let axis = axes
                    .get(axis)
                    .with_context(|| format!("positions of {count} axes, where axis {axis} is asked for"))?;
                Ok(axis.get(position).copied().unwrap_or_else(|| next + (position - axis.len()) as i32))
            }
            OfTokens::Spans(_) | OfTokens::TileSight(_) => self.other("axis_positions"),
        }
    }

    /// `room`: tiles of all the pictures that a request may hold.
    pub fn tile_sight(&self, position: usize, room: usize) -> Result<Vec<u8>> {
        match self {
            OfTokens::TileSight(seen) => {
                let mut row = seen.get(position).or(seen.last()).cloned().unwrap_or_default();
                ensure!(row.len() <= room, "a token may look at {} tiles, and there is room for {room}", row.len());
                row.resize(room, 0);
                Ok(row)
            }
            OfTokens::Spans(_) | OfTokens::AxisPositions { .. } => self.other("tile_sight"),
        }
    }

    fn other<T>(&self, asked: &str) -> Result<T> {
        let told = match self {
            OfTokens::Spans(_) => "spans",
            OfTokens::AxisPositions { .. } => "axis_positions",
            OfTokens::TileSight(_) => "tile_sight",
        };
        bail!("graph forward takes {asked}, and the processor tells tokens {told}")
    }

    /// How many of the tokens at `rest` the next call takes, where `wanted` would suit it: a span is never cut, so it may be
    /// more, but where a shorter piece ends between spans it is that.
    pub fn chunk(&self, rest: Range<usize>, wanted: usize) -> usize {
        let OfTokens::Spans(spans) = self else { return rest.len().min(wanted) };
        let mut last: BTreeMap<i32, usize> = BTreeMap::new();
        for at in rest.clone() {
            if let Some(span) = spans.get(at).filter(|span| **span > 0) {
                last.insert(*span, at);
            }
        }
        // A cut after `at` leaves no span open that began in `rest`.
        let mut open_until = rest.start;
        let mut best = None;
        for at in rest.clone() {
            let end = spans.get(at).and_then(|span| last.get(span)).copied().unwrap_or(at);
            open_until = open_until.max(end);
            if open_until == at {
                let taken = at + 1 - rest.start;
                if taken > wanted {
                    return best.unwrap_or(taken);
                }
                best = Some(taken);
            }
        }
        rest.len()
    }
}

/// More pictures than the family's limit: the one error of [`Seen::look`] that is the request's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the request has {count} pictures, and there is room for {room}. Raise --limit pictures={count}")]
pub struct NoRoom {
    pub count: usize,
    pub room: usize,
}

/// A request whose pictures the session has looked at: one row of the session.
#[derive(Clone)]
pub struct Seen {
    model: Arc<Model>,
    row: usize,
    features: Option<Tensor>,
    feature_rows: Vec<i32>,
    of_tokens: Option<Arc<OfTokens>>,
}

impl Seen {
    /// `vision` and `attach`, where there are pictures for them: before the first token of the request, which lives in `row`.
    ///
    /// Errors: more pictures than the family's limit ([`NoRoom`]), a row that the session does not have, and the device's.
    pub fn look(
        session: &mut dyn Session,
        model: &Arc<Model>,
        pictures: &Pictures,
        row: usize,
        mut probes: Option<ProbeSink<'_>>,
    ) -> Result<Seen> {
        let mut seen = Seen {
            model: model.clone(),
            row,
            features: None,
            feature_rows: pictures.feature_rows.clone(),
            of_tokens: pictures.of_tokens.clone(),
        };
        if pictures.vision.is_empty() {
            return Ok(seen);
        }
        let features = session.call("vision", &pictures.vision, row, again(&mut probes))?.into_iter().next();
        let features = features.context("graph vision gives features")?;
        if model.program.graph("attach").is_some() {
            let declared = inputs::declared_shape(&model.program, &model.resolved, "attach", "features")?;
            let (count, room) = (features.shape.first().copied().unwrap_or(0), declared.get(1).copied().unwrap_or(0));
            if count > room {
                return Err(NoRoom { count, room }.into());
            }
            let mut filled = Tensor { shape: declared, ..features.clone() };
            filled.bytes.resize(filled.len() * filled.dtype.size(), 0);
            let count = Tensor::from_i32(&[1], &[count as i32]);
            session.call("attach", &[("features", filled), ("count", count)], row, again(&mut probes))?;
        }
        seen.features = Some(features);
        Ok(seen)
    }

    /// How many of the tokens at `rest` the next call takes, where `wanted` would suit it ([`OfTokens::chunk`]).
    pub fn chunk(&self, rest: Range<usize>, wanted: usize) -> usize {
        match &self.of_tokens {
            Some(told) => told.chunk(rest, wanted),
            None => rest.len().min(wanted),
        }
    }

    /// What the tokens of this request are told of its pictures: where it is one row of a batch of several.
    pub fn of_tokens(&self) -> Option<&Arc<OfTokens>> {
        self.of_tokens.as_ref()
    }

    /// Tokens of this request in its row, at any of its positions: `embed`, `merge` where a token stands for a place of a picture,
    /// `forward`; without such tokens the fused `step`. Logits `[1, R, vocab]`.
    pub fn step(&self, session: &mut dyn Session, batch: &Batch, mut probes: Option<ProbeSink<'_>>) -> Result<Tensor> {
        let mut batch = batch.clone().at_row(self.row);
        if let Some(told) = &self.of_tokens {
            ensure!(batch.rows == 1, "a request is one row, and this call has {}", batch.rows);
            batch.of_tokens = vec![Some(told.clone())];
        }
        let row = |position: &i32| usize::try_from(*position).ok().and_then(|p| self.feature_rows.get(p).copied());
        let mut rows: Vec<i32> = batch.positions.iter().map(|position| row(position).unwrap_or(-1)).collect();
        if batch.rows == 1 {
            // Fill-up tokens may stand where the prompt goes on with a picture.
            rows.iter_mut().skip(real(&batch)).for_each(|row| *row = -1);
        }
        let (program, resolved) = (&self.model.program, &self.model.resolved);
        let merges = program.graph("merge").is_some() && rows.iter().any(|row| *row >= 0);
        let (true, Some(features)) = (merges, &self.features) else { return session.step(&batch, probes) };
        let rows = without_fill_up(&mut batch, rows, session.capacity());
        let mut call = |graph: &str, made: Vec<(&str, Tensor)>, told: bool| {
            let float = features.dtype;
            let told = match told {
                true => inputs::of_tokens(program, resolved, graph, &batch, float)?,
                false => Vec::new(),
            };
            let told = told.iter().map(|(name, value)| (name.as_str(), value.clone()));
            let given: Vec<(&str, Tensor)> = told.chain(made).collect();
            let result = session.call(graph, &given, self.row, again(&mut probes))?.into_iter().next();
            result.with_context(|| format!("graph {graph} has a result"))
        };
        let x = call("embed", Vec::new(), true)?;
        let rows = Tensor::from_i32(&[1, batch.width], &rows);
        let x = call("merge", vec![("x", x), ("features", features.clone()), ("feature_rows", rows)], false)?;
        call("forward", vec![("x", x)], true)
    }

    /// Whether some token of the prompt stands for a place of a picture.
    pub fn merges(&self) -> bool {
        self.merges_in(0..self.feature_rows.len())
    }

    /// As [`Seen::merges`], of these tokens.
    pub fn merges_in(&self, tokens: Range<usize>) -> bool {
        let mut rows = tokens.filter_map(|token| self.feature_rows.get(token));
        self.features.is_some() && self.model.program.graph("merge").is_some() && rows.any(|row| *row >= 0)
    }

    /// The features that tokens stand for, in the order of the tokens; `None` where no picture was looked at, or none is merged.
    pub fn chosen(&self) -> Option<Tensor> {
        let features = self.features.as_ref().filter(|_| !self.feature_rows.is_empty())?;
        let [_, rest @ ..] = &features.shape[..] else { return None };
        let size = rest.iter().product::<usize>() * features.dtype.size();
        let rows: Vec<usize> = self.feature_rows.iter().filter_map(|row| usize::try_from(*row).ok()).collect();
        let bytes = rows.iter().map(|row| features.bytes.get(row * size..(row + 1) * size));
        let bytes = bytes.collect::<Option<Vec<_>>>()?.concat();
        Some(Tensor { dtype: features.dtype, shape: [&[rows.len()], rest].concat(), bytes })
    }
}

/// How many tokens of a call of one row count: what comes after the last wanted one fills up.
fn real(batch: &Batch) -> usize {
    batch.wanted.iter().max().map_or(0, |last| *last as usize + 1)
}

/// Of a row that reaches beyond the states, what comes after the last wanted token is left out. `rows` goes along.
fn without_fill_up(batch: &mut Batch, mut rows: Vec<i32>, capacity: usize) -> Vec<i32> {
    let real = real(batch);
    if batch.rows == 1 && batch.reach() > capacity && real < batch.width {
        batch.width = real;
        batch.tokens.truncate(real);
        batch.positions.truncate(real);
        rows.truncate(real);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::OfTokens;

    #[test]
    fn a_generated_token_continues_what_the_prompt_says() {
        let spans = OfTokens::Spans(vec![0, 1, 1]);
        assert_eq!([1, 3].map(|p| spans.span(p).ok()), [Some(1), Some(0)]);
        let axes = OfTokens::AxisPositions { axes: vec![vec![0, 1, 1], vec![0, 1, 2]], next: 3 };
        assert_eq!([2, 3, 4].map(|p| axes.axis_position(0, p).ok()), [Some(1), Some(3), Some(4)]);
        assert!(axes.axis_position(2, 0).is_err() && axes.span(0).is_err());
        let sight = OfTokens::TileSight(vec![vec![0, 0], vec![1, 0]]);
        assert_eq!(
            [0, 1, 7].map(|p| sight.tile_sight(p, 3).ok()),
            [Some(vec![0, 0, 0]), Some(vec![1, 0, 0]), Some(vec![1, 0, 0])]
        );
        assert!(sight.tile_sight(0, 1).is_err());
    }

    #[test]
    fn no_span_is_cut() {
        let spans = OfTokens::Spans(vec![0, 0, 1, 1, 1, 2, 2, 0, 3, 0, 3]);
        let cases = [(0, 1, 1), (0, 4, 2), (0, 6, 5), (2, 1, 3), (0, 7, 7), (7, 2, 1), (8, 2, 3), (8, 9, 3)];
        for (start, wanted, taken) in cases {
            assert_eq!(spans.chunk(start..11, wanted), taken, "{wanted} from {start}");
        }
        assert_eq!(OfTokens::TileSight(Vec::new()).chunk(0..11, 4), 4);
    }
}
