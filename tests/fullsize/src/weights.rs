//! Random weights under given names, written one tensor at a time: each is made when its place in the file comes.

use std::{borrow::Cow, path::Path};

use half::bf16;
use safetensors::{Dtype, View};

use crate::{Result, noise};

/// The dtype of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Stored {
    F32,
    Bf16,
}

/// One tensor, made when it is written: `center` and around it evenly distributed numbers of standard deviation `spread`.
struct Weight {
    seed: u64,
    shape: Vec<usize>,
    center: f32,
    spread: f32,
    stored: Stored,
}

impl View for &Weight {
    fn dtype(&self) -> Dtype {
        match self.stored {
            Stored::F32 => Dtype::F32,
            Stored::Bf16 => Dtype::BF16,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let count = self.shape.iter().product::<usize>() as u64;
        let width = self.spread * 3f32.sqrt();
        let values = (0..count).map(|at| self.center + width * noise::even(self.seed, at));
        let mut bytes = Vec::with_capacity(self.data_len());
        match self.stored {
            Stored::F32 => values.for_each(|x| bytes.extend_from_slice(&x.to_le_bytes())),
            Stored::Bf16 => values.for_each(|x| bytes.extend_from_slice(&bf16::from_f32(x).to_le_bytes())),
        }
        bytes.into()
    }

    fn data_len(&self) -> usize {
        let size = match self.stored {
            Stored::F32 => 4,
            Stored::Bf16 => 2,
        };
        self.shape.iter().product::<usize>() * size
    }
}

/// What a file of weights will hold.
pub struct Weights {
    seed: u64,
    stored: Stored,
    all: Vec<(String, Weight)>,
}

impl Weights {
    /// Nothing yet. `seed` and a tensor's name decide its numbers.
    pub fn new(stored: Stored, seed: u64) -> Weights {
        Weights { seed, stored, all: Vec::new() }
    }

    /// Numbers evenly around `center`, of standard deviation `spread`.
    pub fn add(&mut self, name: String, shape: &[usize], center: f32, spread: f32) {
        let weight =
            Weight { seed: noise::seed(self.seed, &name), shape: shape.to_vec(), center, spread, stored: self.stored };
        self.all.push((name, weight));
    }

    /// `gain`: the size of what comes out for numbers near 1.
    pub fn linear(&mut self, name: &str, inputs: usize, outputs: usize, gain: f32, bias: bool) {
        self.add(format!("{name}.weight"), &[outputs, inputs], 0.0, gain / (inputs as f32).sqrt());
        if bias {
            self.add(format!("{name}.bias"), &[outputs], 0.0, 0.02);
        }
    }

    /// A gain near 1.
    pub fn norm(&mut self, name: &str, width: usize, bias: bool) {
        self.add(format!("{name}.weight"), &[width], 1.0, 0.05);
        if bias {
            self.add(format!("{name}.bias"), &[width], 0.0, 0.02);
        }
    }

    /// Writes the file; the number of parameters.
    pub fn write(&self, file: &Path) -> Result<usize> {
        let all = self.all.iter().map(|(name, weight)| (name, weight));
        safetensors::serialize_to_file(all, None, file)?;
        Ok(self.all.iter().map(|(_, weight)| weight.shape.iter().product::<usize>()).sum())
    }
}
