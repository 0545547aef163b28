//! Sessions of several rows: a call covers some of them. A row's numbers are those of a session that serves it alone, whatever the
//! other rows do, and those of a new session after it was forgotten.

use std::{collections::BTreeMap, sync::Arc};

use mgraph_runtime::{
    backend::{self, Backend},
    engine::{self, Prompt},
    error::Result,
    model::Model,
    parity::Fed,
    pictures::{OfTokens, Pictures, Seen},
    probes::Probes,
    session::{Batch, Float, Numerics, ProbeSink, Session, SessionOptions},
    tensor::Tensor,
};
use mgraph_tests::open_golden;

/// Positions: states of IREE have 384 of them, with the room for fill-up that sessions of several rows have and without.
const CAPACITY: usize = 300;

fn open(backend: Backend, model: &Arc<Model>, rows: usize) -> Box<dyn Session> {
    let options = SessionOptions {
        rows,
        capacity: CAPACITY,
        max_chunk: 64,
        dtype: Float::F32,
        numerics: Numerics::Pinned,
        probes: Probes::Unread,
    };
    backend::open(backend, model, options).unwrap()
}

/// The `turn`-th token of the request in a row.
fn token(row: usize, turn: usize) -> i32 {
    ((row * 29 + turn * 37 + 11) % 90) as i32
}

/// So many tokens of the request of `row`, from the `start`-th on; those that fill up to the session's width are other ones than
/// those that will come.
fn piece(session: &dyn Session, row: usize, start: usize, count: usize) -> Batch {
    let tokens: Vec<i32> = (start..start + count).map(|turn| token(row, turn)).collect();
    Batch::row(&tokens, start, session.width(count))
}

/// Several rows in one call.
fn together(pieces: &[Batch]) -> Batch {
    let all = |of: fn(&Batch) -> &Vec<i32>| pieces.iter().flat_map(|piece| of(piece).iter().copied()).collect();
    Batch {
        first_row: pieces[0].first_row,
        rows: pieces.len(),
        width: pieces[0].width,
        tokens: all(|piece| &piece.tokens),
        positions: all(|piece| &piece.positions),
        wanted: all(|piece| &piece.wanted),
        of_tokens: pieces.iter().flat_map(|piece| piece.of_tokens.clone()).collect(),
    }
}

/// The states of one row over its first positions.
fn states(session: &mut dyn Session, model: &Model, row: usize, positions: usize) -> BTreeMap<String, Tensor> {
    let cut = |state: &mgraph_dsl::bind::State| {
        let mut whole = session.state(&state.path).unwrap();
        let size = whole.bytes.len() / whole.shape[0];
        whole.bytes = whole.bytes[row * size..(row + 1) * size].to_vec();
        whole.shape[0] = 1;
        let value = state.positions().map_or(whole.clone(), |axis| whole.prefix(axis, positions));
        (state.path.clone(), value)
    };
    model.bindings.states.iter().map(cut).collect()
}

/// `(row, tokens)` in the order of calls: rows are filled one after another and in turns, in pieces and single tokens; the first one
/// grows past what others hold.
const TURNS: [(usize, usize); 14] = [
    (2, 20),
    (0, 64),
    (2, 1),
    (3, 7),
    (0, 64),
    (2, 1),
    (1, 1),
    (0, 30),
    (3, 16),
    (1, 5),
    (2, 3),
    (0, 1),
    (3, 1),
    (1, 1),
];

fn alone_and_among_others(backend: Backend, golden: &str) {
    let (model, _) = open_golden(golden).unwrap();
    let mut shared = open(backend, &model, 4);
    let mut alone = open(backend, &model, 1);
    let mut done = [0; 4];
    let mut logits: [Vec<Tensor>; 4] = Default::default();
    for (row, count) in TURNS {
        let batch = piece(shared.as_ref(), row, done[row], count).at_row(row);
        logits[row].push(shared.step(&batch, None).unwrap());
        done[row] += count;
    }
    for (row, logits) in logits.iter().enumerate() {
        alone.reset().unwrap();
        let mut start = 0;
        let turns = TURNS.iter().filter(|(of, _)| *of == row);
        for ((_, count), expected) in turns.zip(logits) {
            let batch = piece(alone.as_ref(), row, start, *count);
            assert_eq!(&alone.step(&batch, None).unwrap(), expected, "{backend} {golden}: row {row} from {start}");
            start += count;
        }
        let expected = states(alone.as_mut(), &model, 0, start);
        assert_eq!(states(shared.as_mut(), &model, row, start), expected, "{backend} {golden}: states of row {row}");
    }
}

/// The largest difference of numbers.
fn apart(x: &Tensor, y: &Tensor) -> f32 {
    assert_eq!(x.shape, y.shape);
    x.to_f32().iter().zip(y.to_f32()).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max)
}

/// Rows 2 and 3, then all four in one call, each at its own position.
fn several_in_one_call(backend: Backend, golden: &str) {
    let (model, _) = open_golden(golden).unwrap();
    let (mut shared, mut alone) = (open(backend, &model, 4), open(backend, &model, 4));
    for (row, count) in [(0, 5), (1, 12), (2, 9), (3, 2)] {
        let batch = piece(shared.as_ref(), row, 0, count).at_row(row);
        for session in [&mut shared, &mut alone] {
            session.step(&batch, None).unwrap();
        }
    }
    for (first, starts, count) in [(2, vec![9, 2], 1), (0, vec![5, 12, 10, 3], 1), (1, vec![13, 11], 3)] {
        let of_row =
            |session: &dyn Session, at: usize| piece(session, first + at, starts[at], count).at_row(first + at);
        let pieces: Vec<Batch> = (0..starts.len()).map(|at| of_row(shared.as_ref(), at)).collect();
        let logits = shared.step(&together(&pieces), None).unwrap();
        let each: Vec<Tensor> = pieces.iter().map(|piece| alone.step(piece, None).unwrap()).collect();
        let expected = Tensor {
            shape: logits.shape.clone(),
            bytes: each.iter().flat_map(|row| row.bytes.iter().copied()).collect(),
            ..each[0].clone()
        };
        let far = apart(&logits, &expected);
        println!("{backend} {golden}: {} rows of {count} tokens, {far:e} from the rows alone", starts.len());
        assert!(far < BOUND, "{backend} {golden}: {far}");
    }
}

/// Ten times the reference's noise on the logits of these checkpoints.
const BOUND: f32 = 2e-4;

/// The same request with so many words before it, none of which sees a picture that it did not see.
fn later(pictures: &Pictures, by: usize) -> Pictures {
    let none = vec![-1; by];
    let feature_rows = match &pictures.feature_rows[..] {
        [] => Vec::new(),
        rows => [&none, rows].concat(),
    };
    let told = pictures.of_tokens.as_deref().map(|told| match told {
        OfTokens::Spans(spans) => OfTokens::Spans([&vec![0; by], &spans[..]].concat()),
        OfTokens::AxisPositions { axes, next } => OfTokens::AxisPositions {
            axes: axes.iter().map(|axis| (0..by as i32).chain(axis.iter().map(|p| p + by as i32)).collect()).collect(),
            next: next + by as i32,
        },
        OfTokens::TileSight(seen) => OfTokens::TileSight([&vec![Vec::new(); by], &seen[..]].concat()),
    });
    Pictures { vision: pictures.vision.clone(), feature_rows, of_tokens: told.map(Arc::new) }
}

/// The prompt in pieces of eight tokens or one span; the logits of its last token.
fn prompt(session: &mut dyn Session, model: &Arc<Model>, pictures: &Pictures, tokens: &[i32], row: usize) -> Tensor {
    let seen = Seen::look(session, model, pictures, row, None).unwrap();
    let mut logits = None;
    let mut done = 0;
    while done < tokens.len() {
        let count = seen.chunk(done..tokens.len(), 8);
        let width = session.width_of_all(count);
        logits = Some(seen.step(session, &Batch::row(&tokens[done..done + count], done, width), None).unwrap());
        done += count;
    }
    logits.unwrap()
}

/// A session of few widths, as of a backend that compiles, which notes what it is asked for.
struct Noted {
    inner: Box<dyn Session>,
    steps: Vec<(usize, usize)>,
    graphs: Vec<String>,
}

impl Session for Noted {
    fn call(
        &mut self,
        graph: &str,
        inputs: &[(&str, Tensor)],
        first_row: usize,
        probes: Option<ProbeSink<'_>>,
    ) -> Result<Vec<Tensor>> {
        self.graphs.push(graph.to_owned());
        self.inner.call(graph, inputs, first_row, probes)
    }

    fn step(&mut self, batch: &Batch, probes: Option<ProbeSink<'_>>) -> Result<Tensor> {
        self.steps.push((batch.rows, batch.width));
        self.inner.step(batch, probes)
    }

    fn width(&self, tokens: usize) -> usize {
        [1, 16].into_iter().find(|width| *width >= tokens).unwrap_or(64)
    }

    fn width_of_all(&self, tokens: usize) -> usize {
        self.width(tokens).max(tokens)
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

    fn prepare(&mut self, shapes: &[(usize, usize)], progress: &mut dyn FnMut(&str)) -> Result<()> {
        self.inner.prepare(shapes, progress)
    }
}

/// Words before a picture are a call of words, no wider than they need, and the one that was foretold.
#[test]
fn words_before_a_picture_are_a_call_of_their_own() {
    let (model, golden) = open_golden("molmo2").unwrap();
    let Fed { tokens, pictures, .. } = Fed::of(&model, &golden).unwrap();
    let words = (0..9).map(|turn| token(0, turn));
    let tokens: Vec<u32> = words.chain(tokens).map(|token| token as u32).collect();
    let pictures = later(&pictures, 9);
    let mut session = Noted { inner: open(Backend::Reference, &model, 1), steps: Vec::new(), graphs: Vec::new() };
    let seen = Seen::look(&mut session, &model, &pictures, 0, None).unwrap();
    let prompt = Prompt { tokens: &tokens, seen: Some(&seen) };
    let foretold = engine::shapes(&session, prompt);
    engine::prefill(&mut session, prompt).unwrap();
    assert_eq!(session.graphs, ["vision", "embed", "merge", "forward"]);
    assert_eq!(session.steps.first(), Some(&(1, 16)), "{:?}", session.steps);
    let mut asked = vec![(1, 1)];
    session.steps.iter().for_each(|shape| {
        if !asked.contains(shape) {
            asked.push(*shape)
        }
    });
    assert_eq!(foretold, asked);
}

/// A request with pictures in a row that another one with pictures used before it, farther down.
fn a_row_used_again(backend: Backend, golden: &str) {
    let (model, golden_file) = open_golden(golden).unwrap();
    let Fed { tokens, pictures, .. } = Fed::of(&model, &golden_file).unwrap();
    let words = |count: usize| (0..count).map(|turn| token(0, turn)).collect::<Vec<i32>>();
    let earlier = [words(20), tokens.clone(), words(10)].concat();

    let expected = prompt(open(backend, &model, 1).as_mut(), &model, &pictures, &tokens, 0);
    let mut session = open(backend, &model, 3);
    for row in [2, 0, 1] {
        prompt(session.as_mut(), &model, &later(&pictures, 20), &earlier, row);
    }
    if backend != Backend::Reference && golden == "molmo2" {
        // What `forget` is there for.
        let seen = prompt(session.as_mut(), &model, &pictures, &tokens, 0);
        assert_ne!(seen, expected, "{backend}: spans of an earlier request are not seen, so this test shows nothing");
    }
    let others = [0, 2].map(|row| states(session.as_mut(), &model, row, earlier.len()));
    session.forget(1, 0).unwrap();
    assert_eq!(prompt(session.as_mut(), &model, &pictures, &tokens, 1), expected, "{backend} {golden}");
    assert!(others == [0, 2].map(|row| states(session.as_mut(), &model, row, earlier.len())), "{backend} {golden}");
}

/// A row that keeps the beginning of a conversation gives what a new session gives that has only this beginning.
fn a_beginning_kept(backend: Backend, golden: &str) {
    let (model, golden_file) = open_golden(golden).unwrap();
    let Fed { tokens, pictures, .. } = Fed::of(&model, &golden_file).unwrap();
    let count = tokens.len();
    let mut session = open(backend, &model, 2);
    prompt(session.as_mut(), &model, &pictures, &tokens, 1);
    let beginning = states(session.as_mut(), &model, 1, count);
    for turn in 0..40 {
        session.step(&Batch::row(&[token(1, turn)], count + turn, 1).at_row(1), None).unwrap();
    }
    session.forget(1, count).unwrap();
    let left = states(session.as_mut(), &model, 1, usize::MAX);
    for (path, kept) in beginning {
        let state = model.bindings.states.iter().find(|state| state.path == path).unwrap();
        let Some(axis) = state.positions() else {
            assert_eq!(left[&path], kept, "{backend} {golden}: {path}");
            continue;
        };
        let zeros = kept.filled(axis, left[&path].shape[axis]);
        assert_eq!(left[&path], zeros, "{backend} {golden}: {path} holds more than its first {count} positions");
    }
    assert!(session.forget(2, 0).is_err());
}

#[test]
fn rows_on_the_reference() {
    alone_and_among_others(Backend::Reference, "llama");
    several_in_one_call(Backend::Reference, "molmo2");
    for golden in ["molmo2", "mllama", "qwen2_vl"] {
        a_row_used_again(Backend::Reference, golden);
    }
    a_beginning_kept(Backend::Reference, "molmo2");
}

#[test]
fn rows_on_mlx() {
    for golden in ["llama", "gemma3_text"] {
        alone_and_among_others(Backend::Mlx, golden);
    }
    for golden in ["llama", "molmo2"] {
        several_in_one_call(Backend::Mlx, golden);
    }
    for golden in ["molmo2", "mllama", "qwen2_vl"] {
        a_row_used_again(Backend::Mlx, golden);
        a_beginning_kept(Backend::Mlx, golden);
    }
}

#[test]
fn rows_on_iree() {
    alone_and_among_others(Backend::Iree, "llama");
    several_in_one_call(Backend::Iree, "molmo2");
    for golden in ["molmo2", "mllama"] {
        a_row_used_again(Backend::Iree, golden);
    }
    a_beginning_kept(Backend::Iree, "molmo2");
}
