//! One request, run as an engine would: its pictures first, then its tokens in chunks, then steps.

use std::{ops::Range, sync::Arc};

use mgraph_dsl::{
    config::Resolved,
    interpret::{Interpreter, Outcome, Precision, Tensor, Typed},
    ir::{DType, Program},
};
use mgraph_runtime::{inputs, pictures::Pictures, reference::guest, session::Batch, tensor};

use crate::fixture::Golden;

pub const SLOT: usize = 2;

/// Positions that the states show past the last token.
const SPARE: usize = 3;

pub struct Request {
    program: Arc<Program>,
    resolved: Arc<Resolved>,
    interpreter: Interpreter,
    pictures: Pictures,
    features: Option<Tensor>,
    /// Of every call so far, in order.
    pub probes: Vec<Probe>,
    vocabulary: usize,
}

pub struct Probe {
    pub graph: &'static str,
    pub name: String,
    pub value: Tensor,
}

pub fn ints(shape: &[usize], elements: Vec<i32>) -> Tensor {
    Tensor::i32(shape.to_vec(), elements).expect("the elements fill the shape")
}

pub fn argmax(row: &[f64]) -> i32 {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]).then(b.cmp(a))).expect("a row of logits") as i32
}

/// The prompt of the main run or of a variant, and its pictures.
pub fn fed(golden: &Golden, variant: Option<&str>) -> (Vec<i32>, Pictures) {
    let fed = golden.fed(variant);
    (fed.tokens, fed.pictures)
}

impl Request {
    pub fn new(golden: &Golden, precision: Precision, family: DType, pictures: Pictures) -> Request {
        let mut request = Request::queued(golden, precision, family, pictures);
        request.begin();
        request
    }

    /// In a slot where a request of another client ran first.
    pub fn after_another(golden: &Golden, precision: Precision, pictures: Pictures) -> Request {
        let mut request = Request::queued(golden, precision, DType::F32, pictures);
        request.forward(&[5, 6, 7], 0..3);
        request.probes.clear();
        request.interpreter.reset(SLOT);
        request.begin();
        request
    }

    fn queued(golden: &Golden, precision: Precision, family: DType, pictures: Pictures) -> Request {
        let interpreter = golden.interpreter(family, precision);
        let vocabulary = golden.numbers["logits"].shape[1];
        let (program, resolved) = (golden.program.clone(), golden.resolved.clone());
        Request { program, resolved, interpreter, pictures, features: None, probes: Vec::new(), vocabulary }
    }

    /// `vision` and `attach`, where there are pictures for them.
    fn begin(&mut self) {
        if self.pictures.vision.is_empty() {
            return;
        }
        let inputs: Vec<_> = self.pictures.vision.iter().map(|(name, value)| (*name, interpreted(value))).collect();
        let features = self.call("vision", &inputs, 0).swap_remove(0);
        if self.program.graph("attach").is_some() {
            let declared =
                inputs::declared_shape(&self.program, &self.resolved, "attach", "features").expect("a shape");
            let count = ints(&[1], vec![features.shape()[0] as i32]);
            self.call("attach", &[("features", filled(&features, declared)), ("count", count)], 0);
        }
        self.features = Some(features);
    }

    /// `embed`, `merge` where a token has a picture, `forward`: the logits of every token, row by row.
    pub fn forward(&mut self, tokens: &[i32], at: Range<usize>) -> Vec<f64> {
        let count = tokens.len();
        let capacity = at.end + SPARE;
        let batch = Batch {
            first_row: 0,
            rows: 1,
            width: count,
            tokens: tokens.to_vec(),
            positions: at.clone().map(|position| position as i32).collect(),
            wanted: (0..count as i32).collect(),
            of_tokens: vec![self.pictures.of_tokens.clone()],
        };
        let told = |graph: &str| {
            let told = inputs::of_tokens(&self.program, &self.resolved, graph, &batch, tensor::DType::F32);
            told.expect("inputs of a batch")
        };
        let (embed, forward) = (told("embed"), told("forward"));
        fn given(told: &[(String, tensor::Tensor)]) -> Vec<(&str, Tensor)> {
            told.iter().map(|(name, value)| (name.as_str(), interpreted(value))).collect()
        }
        let mut x = self.call("embed", &given(&embed), capacity).swap_remove(0);
        let rows = self.pictures.feature_rows.get(at).unwrap_or_default();
        if let (Some(features), true) = (&self.features, rows.iter().any(|row| *row >= 0)) {
            let rows = ints(&[1, count], rows.to_vec());
            let inputs = [("x", x), ("features", features.clone()), ("feature_rows", rows)];
            x = self.call("merge", &inputs, capacity).swap_remove(0);
        }
        let inputs = [vec![("x", x)], given(&forward)].concat();
        self.call("forward", &inputs, capacity).swap_remove(0).to_f64()
    }

    fn call(&mut self, graph: &'static str, inputs: &[(&str, Tensor)], positions: usize) -> Vec<Tensor> {
        let outcome = call(&mut self.interpreter, graph, inputs, &[SLOT], positions);
        self.probes.extend(outcome.probes.into_iter().map(|(name, value)| Probe { graph, name, value }));
        outcome.results
    }

    /// Greedy decoding from the token after the prompt: each token fed, with its row of logits.
    pub fn greedy(&mut self, first: i32, length: usize, steps: usize) -> Vec<(i32, Vec<f64>)> {
        let mut next = first;
        let mut fed = Vec::new();
        for step in 0..steps {
            let logits = self.forward(&[next], length + step..length + step + 1);
            let token = std::mem::replace(&mut next, argmax(&logits));
            fed.push((token, logits));
        }
        fed
    }

    pub fn has_pictures(&self) -> bool {
        self.features.is_some()
    }

    pub fn last_token(&self, logits: &[f64]) -> i32 {
        argmax(&logits[logits.len() - self.vocabulary..])
    }

    pub fn state(&self, path: &str) -> Tensor {
        self.interpreter.state(path, SLOT).expect("a state that was written").clone()
    }

    /// The features of the rows that tokens name: the host's selection.
    pub fn chosen_features(&self) -> Option<Vec<f64>> {
        let features = self.features.as_ref()?;
        let width = *features.shape().last()?;
        let all = features.to_f64();
        let rows = self.pictures.feature_rows.iter().filter_map(|row| usize::try_from(*row).ok());
        Some(rows.flat_map(|row| all[row * width..(row + 1) * width].to_vec()).collect())
    }

    /// Of a prompt: pieces of at most five tokens, no span cut.
    pub fn chunks(&self, length: usize) -> Vec<Range<usize>> {
        let mut chunks = Vec::new();
        let mut done = 0;
        while done < length {
            let told = self.pictures.of_tokens.as_ref();
            let taken = told.map_or(5.min(length - done), |told| told.chunk(done..length, 5));
            chunks.push(done..done + taken);
            done += taken;
        }
        chunks
    }
}

/// Rows of words in one call: the logits of every token.
pub fn batch(golden: &Golden, precision: Precision, tokens: &Tensor) -> Vec<f64> {
    let [rows, width] = *tokens.shape() else { panic!("tokens are [B, S]") };
    let mut interpreter = golden.interpreter(DType::F32, precision);
    let slots: Vec<usize> = (0..rows).collect();
    let every = ints(&[rows, width], (0..rows).flat_map(|_| 0..width as i32).collect());
    let positions = width + SPARE;
    let x = call(&mut interpreter, "embed", &[("tokens", tokens.clone())], &slots, positions).results[0].clone();
    let inputs = [("x", x), ("positions", every.clone()), ("wanted", every)];
    call(&mut interpreter, "forward", &inputs, &slots, positions).results[0].to_f64()
}

fn call(
    interpreter: &mut Interpreter,
    graph: &str,
    inputs: &[(&str, Tensor)],
    slots: &[usize],
    positions: usize,
) -> Outcome {
    interpreter.call(graph, inputs, slots, positions).unwrap_or_else(|fault| panic!("{graph}: {fault}"))
}

/// The features of one request on a row axis, zeros for the pictures it does not have.
fn filled(features: &Tensor, shape: Vec<usize>) -> Tensor {
    let mut elements = features.to_f32();
    elements.resize(shape.iter().product(), 0.0);
    Tensor::f32(shape, elements).expect("the elements fill the shape")
}

fn interpreted(tensor: &tensor::Tensor) -> Tensor {
    guest(tensor).expect("a dtype that inputs have")
}
