//! GGUF tensors as safetensors tensors: dense ones as they are, blocks split into MLX codes, scales and biases.
//!
//! A block is a group of 32. With `code` the unsigned integer stored, `scale = d` and
//!
//! | format | code | bias | why no bit changes in f32 |
//! | --- | --- | --- | --- |
//! | Q8_0 | `q + 128` | `-128 d` | 11 significant bits times 8 fit 24; the sum `d q` is exact |
//! | Q4_0 | nibble | `-8 d` | the same with 4 bits |
//! | Q4_1 | nibble | `m` | ggml rounds `d q + m` once, so does this |
//!
//! Scale and bias are f16 in the file or a power of two times f16, so they are stored as f16, or f32 where that overflows.

use std::borrow::Cow;

use half::f16;
use safetensors::tensor::{Dtype, View};

use super::ImportError;
use crate::gguf::{Format, Gguf};
use crate::quantization::Affine;

const BLOCK: usize = 32;

/// A tensor of the file and its place in the model. `rows` and `columns` are checked against the file by `llama`.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub name: String,
    /// The module, such as `model.layers.0.self_attn.q_proj`.
    pub module: String,
    /// `weight` or `bias`.
    pub suffix: &'static str,
    pub format: Format,
    pub rows: usize,
    /// 1 for a vector, which is then stored with one axis.
    pub columns: usize,
    pub vector: bool,
    /// Rows of every head of this many are interleaved for llama.cpp's rope and have to be put back.
    pub interleaved: Option<usize>,
}

/// How a format is packed, or `None` for a dense one.
pub(super) fn affine(format: Format) -> Option<Affine> {
    match format {
        Format::Q4_0 | Format::Q4_1 => Some(Affine { bits: 4, group: 32 }),
        Format::Q8_0 => Some(Affine { bits: 8, group: 32 }),
        Format::F32 | Format::F16 | Format::Other(_) => None,
    }
}

impl Source {
    /// llama.cpp stores rows `[head, j, half]` where Hugging Face has `[head, half, j]`
    /// (`permute` in its `convert_hf_to_gguf.py`).
    fn stored_row(&self, row: usize) -> usize {
        let Some(head_dim) = self.interleaved else { return row };
        let (head, within) = (row / head_dim, row % head_dim);
        let (half, j) = (within / (head_dim / 2), within % (head_dim / 2));
        head * head_dim + 2 * j + half
    }

    fn blocks_per_row(&self) -> usize {
        self.columns / BLOCK
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Dense,
    Codes,
    Scales,
    Biases,
}

/// A tensor to be written. Its bytes are made when asked for, so an import holds one tensor in memory at a time.
#[derive(Debug, Clone)]
pub struct Output<'a> {
    gguf: &'a Gguf,
    source: Source,
    name: String,
    part: Part,
    dtype: Dtype,
    shape: Vec<usize>,
}

/// What `sources` become. Reads every scale, to choose its dtype and to refuse the infinite and the not-a-number.
pub(super) fn outputs<'a>(gguf: &'a Gguf, sources: &[Source]) -> Result<Vec<Output<'a>>, ImportError> {
    let mut outputs = Vec::new();
    let mut problems = Vec::new();
    for source in sources {
        let mut push = |leaf: &str, part, dtype, shape| {
            let name = format!("{}.{leaf}", source.module);
            outputs.push(Output { gguf, source: source.clone(), name, part, dtype, shape });
        };
        let Some(affine) = affine(source.format) else {
            let dtype = if source.format == Format::F16 { Dtype::F16 } else { Dtype::F32 };
            let shape = if source.vector { vec![source.rows] } else { vec![source.rows, source.columns] };
            push(source.suffix, Part::Dense, dtype, shape);
            continue;
        };
        let range = scales(source, gguf.bytes(&source.name).unwrap_or_default());
        if !range.finite {
            problems.push(format!("`{}` has a scale that is no finite number; the file is damaged", source.name));
        }
        let dtype = if range.fits_f16 { Dtype::F16 } else { Dtype::F32 };
        let words = source.columns * affine.bits as usize / 32;
        push("weight", Part::Codes, Dtype::U32, vec![source.rows, words]);
        push("scales", Part::Scales, dtype, vec![source.rows, source.blocks_per_row()]);
        push("biases", Part::Biases, dtype, vec![source.rows, source.blocks_per_row()]);
        gguf.release(&source.name);
    }
    if problems.is_empty() {
        Ok(outputs)
    } else {
        Err(ImportError::Model { path: gguf.path().to_path_buf(), problems })
    }
}

struct ScaleRange {
    finite: bool,
    fits_f16: bool,
}

fn scales(source: &Source, bytes: &[u8]) -> ScaleRange {
    let (mut finite, mut fits_f16) = (true, true);
    let mut note = |scale: f16, bias: f32| {
        finite &= scale.is_finite() && bias.is_finite();
        fits_f16 &= f16::from_f32(bias).to_f32() == bias;
    };
    match source.format {
        Format::Q8_0 => bytes.as_chunks::<34>().0.iter().for_each(|b| note(half(b, 0), bias_of(source.format, b))),
        Format::Q4_0 => bytes.as_chunks::<18>().0.iter().for_each(|b| note(half(b, 0), bias_of(source.format, b))),
        Format::Q4_1 => bytes.as_chunks::<20>().0.iter().for_each(|b| note(half(b, 0), bias_of(source.format, b))),
        Format::F32 | Format::F16 | Format::Other(_) => {}
    }
    ScaleRange { finite, fits_f16 }
}

fn half(block: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([block[at], block[at + 1]])
}

fn bias_of(format: Format, block: &[u8]) -> f32 {
    match format {
        Format::Q8_0 => half(block, 0).to_f32() * -128.0,
        Format::Q4_0 => half(block, 0).to_f32() * -8.0,
        Format::Q4_1 => half(block, 2).to_f32(),
        Format::F32 | Format::F16 | Format::Other(_) => 0.0,
    }
}

impl<'a> Output<'a> {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tensor of the GGUF file this one is made from.
    pub fn source(&self) -> &str {
        &self.source.name
    }

    pub fn byte_len(&self) -> u64 {
        self.data_len() as u64
    }

    pub(super) fn is_codes(&self) -> bool {
        self.part == Part::Codes
    }

    /// The same tensor, telling `advance` its size whenever it was made.
    pub(super) fn counted<'b, F: Fn(u64)>(&'b self, advance: F) -> Counted<'b, 'a, F> {
        Counted { output: self, advance }
    }

    /// The rows of the stored tensor in the model's order.
    fn rows(&self) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.gguf.bytes(&self.source.name).unwrap_or_default();
        let stride = bytes.len() / self.source.rows.max(1);
        (0..self.source.rows).map(move |row| {
            let at = self.source.stored_row(row) * stride;
            // `stored_row` permutes 0..rows and `rows * stride` is at most the length.
            &bytes[at..at + stride]
        })
    }

    fn make(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.data_len());
        for row in self.rows() {
            match (self.part, self.source.format) {
                (Part::Dense, _) => out.extend_from_slice(row),
                (part, Format::Q8_0) => {
                    row.as_chunks::<34>().0.iter().for_each(|block| self.block(part, block, &mut out))
                }
                (part, Format::Q4_0) => {
                    row.as_chunks::<18>().0.iter().for_each(|block| self.block(part, block, &mut out))
                }
                (part, Format::Q4_1) => {
                    row.as_chunks::<20>().0.iter().for_each(|block| self.block(part, block, &mut out))
                }
                // `outputs` gives these formats no part but `Dense`.
                (Part::Codes | Part::Scales | Part::Biases, Format::F32 | Format::F16 | Format::Other(_)) => {}
            }
        }
        self.gguf.release(&self.source.name);
        out
    }

    fn block(&self, part: Part, block: &[u8], out: &mut Vec<u8>) {
        let number = match part {
            Part::Dense | Part::Codes => return codes(self.source.format, block, out),
            Part::Scales => half(block, 0).to_f32(),
            Part::Biases => bias_of(self.source.format, block),
        };
        if self.dtype == Dtype::F16 {
            out.extend_from_slice(&f16::from_f32(number).to_le_bytes());
        } else {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// The codes of one block in MLX's order. Eight bytes at a time, because an unoptimized build imports too.
fn codes(format: Format, block: &[u8], out: &mut Vec<u8>) {
    match format {
        // int8 `q` as `q + 128` flips the top bit.
        Format::Q8_0 => {
            for eight in block[2..].as_chunks::<8>().0 {
                out.extend_from_slice(&(u64::from_le_bytes(*eight) ^ 0x8080_8080_8080_8080).to_le_bytes());
            }
        }
        Format::Q4_0 => nibbles(&block[2..], out),
        Format::Q4_1 => nibbles(&block[4..], out),
        Format::F32 | Format::F16 | Format::Other(_) => {}
    }
}

/// ggml keeps elements 0..16 in the low nibbles and 16..32 in the high ones; MLX wants them one after another.
fn nibbles(bytes: &[u8], out: &mut Vec<u8>) {
    for shift in [0, 4] {
        for eight in bytes.as_chunks::<8>().0 {
            let spread = (u64::from_le_bytes(*eight) >> shift) & 0x0f0f_0f0f_0f0f_0f0f;
            let pairs = (spread | (spread >> 4)) & 0x00ff_00ff_00ff_00ff;
            let fours = (pairs | (pairs >> 8)) & 0x0000_ffff_0000_ffff;
            let word = (fours | (fours >> 16)) as u32;
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

impl View for Output<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.make())
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }
}

pub(super) struct Counted<'b, 'a, F> {
    output: &'b Output<'a>,
    advance: F,
}

impl<F: Fn(u64)> View for Counted<'_, '_, F> {
    fn dtype(&self) -> Dtype {
        self.output.dtype()
    }

    fn shape(&self) -> &[usize] {
        self.output.shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let data = self.output.data();
        (self.advance)(data.len() as u64);
        data
    }

    fn data_len(&self) -> usize {
        self.output.data_len()
    }
}
