//! A session without a model: what follows is a function of all tokens that the row holds up to the one asked for, so a state that
//! was overwritten, mixed up or wrongly reused changes the answer. It keeps account of its calls, and can be made to fail.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use mgraph_runtime::{
    error::{Result, bail, ensure},
    session::{Batch, ProbeSink, Session},
    tensor::Tensor,
};

use super::EOS;

/// Tokens of the model that the script stands for.
const VOCABULARY: usize = 131;
/// Largest chunk.
pub const CHUNK: usize = 8;

/// The token after these: never a special one.
pub fn next(history: &[i32]) -> u32 {
    let hash = |hash: u32, token: &i32| (hash ^ *token as u32).wrapping_mul(0x0100_0193).rotate_left(7);
    let mixed = history.iter().fold(0x811c_9dc5, hash);
    // Letters, so that texts can be looked at.
    super::token(char::from(b'a' + (mixed >> 8) as u8 % 26))
}

/// What a request alone is answered with.
pub fn answer(prompt: &[u32], count: usize) -> Vec<u32> {
    let mut history: Vec<i32> = prompt.iter().map(|token| *token as i32).collect();
    let mut tokens = Vec::new();
    for _ in 0..count {
        let token = next(&history);
        tokens.push(token);
        history.push(token as i32);
    }
    tokens
}

/// What happens at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Error,
    Panic,
    /// The step takes so long.
    Stall(Duration),
    /// Logits of this row are NaN.
    NotANumber {
        row: usize,
    },
    /// Every row's answer ends.
    End,
}

/// A call: its rows, its width, and where its first token goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub first_row: usize,
    pub rows: usize,
    pub width: usize,
    pub positions: Vec<i32>,
}

/// What tests see of a session, and how they steer it.
#[derive(Debug, Clone, Default)]
pub struct Script {
    pub fates: Vec<(usize, Fate)>,
    /// How long a step takes.
    pub pause: Duration,
    /// Of how many pictures `vision` gives features.
    pub pictures: Option<usize>,
    pub steps: Arc<Mutex<Vec<Step>>>,
}

impl Script {
    pub fn steps(&self) -> Vec<Step> {
        self.steps.lock().expect("no test panics while it holds this").clone()
    }
}

pub struct Scripted {
    script: Script,
    rows: Vec<Vec<Option<i32>>>,
    capacity: usize,
}

impl Scripted {
    pub fn new(script: Script, rows: usize, capacity: usize) -> Scripted {
        Scripted { script, rows: vec![Vec::new(); rows], capacity }
    }
}

impl Session for Scripted {
    fn call(&mut self, graph: &str, _: &[(&str, Tensor)], _: usize, _: Option<ProbeSink<'_>>) -> Result<Vec<Tensor>> {
        match (graph, self.script.pictures) {
            ("vision", Some(count)) => Ok(vec![Tensor::from_f32(&[count, 1], &vec![0.0; count])]),
            _ => bail!("the script has no graph {graph}"),
        }
    }

    fn step(&mut self, batch: &Batch, _: Option<ProbeSink<'_>>) -> Result<Tensor> {
        std::thread::sleep(self.script.pause);
        let at = {
            let mut steps = self.script.steps.lock().expect("no test panics while it holds this");
            let (first_row, rows, width) = (batch.first_row, batch.rows, batch.width);
            let positions = batch.positions.iter().step_by(width).copied().collect();
            steps.push(Step { first_row, rows, width, positions });
            steps.len()
        };
        let fate = self.script.fates.iter().find(|(step, _)| *step == at).map(|(_, fate)| *fate);
        match fate {
            Some(Fate::Error) => bail!("the device is gone"),
            Some(Fate::Panic) => panic!("the script says so"),
            Some(Fate::Stall(time)) => std::thread::sleep(time),
            Some(Fate::NotANumber { .. } | Fate::End) | None => {}
        }
        let mut logits = Vec::new();
        for row in 0..batch.rows {
            let held = &mut self.rows[batch.first_row + row];
            let columns = row * batch.width..(row + 1) * batch.width;
            for (token, position) in batch.tokens[columns.clone()].iter().zip(&batch.positions[columns.clone()]) {
                let position = *position as usize;
                ensure!(position < self.capacity + CHUNK, "position {position} is past the end");
                if held.len() <= position {
                    held.resize(position + 1, None);
                }
                held[position] = Some(*token);
            }
            let wanted = batch.positions[columns.start + batch.wanted[row] as usize] as usize;
            // A row that is computed along may hold nothing yet.
            let history: Vec<i32> = held[..=wanted].iter().map(|token| token.unwrap_or(-1)).collect();
            let mut row_logits = vec![0.0f32; VOCABULARY];
            row_logits[next(&history) as usize] = 10.0;
            match fate {
                Some(Fate::NotANumber { row: bad }) if bad == batch.first_row + row => row_logits[5] = f32::NAN,
                Some(Fate::End) => row_logits[EOS as usize] = 20.0,
                Some(Fate::NotANumber { .. } | Fate::Stall(_) | Fate::Error | Fate::Panic) | None => {}
            }
            logits.extend(row_logits);
        }
        Ok(Tensor::from_f32(&[batch.rows, 1, VOCABULARY], &logits))
    }

    fn width(&self, tokens: usize) -> usize {
        [1, 4, CHUNK].into_iter().find(|width| *width >= tokens).unwrap_or(CHUNK)
    }

    fn width_of_all(&self, tokens: usize) -> usize {
        tokens
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn reset(&mut self) -> Result<()> {
        self.rows.iter_mut().for_each(Vec::clear);
        Ok(())
    }

    fn forget(&mut self, row: usize, kept: usize) -> Result<()> {
        self.rows[row].truncate(kept);
        Ok(())
    }

    fn least_kept(&self, _row: usize) -> usize {
        0
    }

    fn state(&mut self, path: &str) -> Result<Tensor> {
        bail!("the script has no state {path}")
    }

    fn prepare(&mut self, _: &[(usize, usize)], _: &mut dyn FnMut(&str)) -> Result<()> {
        Ok(())
    }
}
