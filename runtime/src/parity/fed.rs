//! What a host gives the graphs, from what the reference implementation was fed: by processor, not by family. An image
//! processor makes the same from pictures; here the reference's has been at work.

use std::sync::Arc;

use mgraph_dsl::{
    config::Resolved,
    ir::{Processor, ProcessorKind, Program},
};
use serde_json::Value;

use super::{Golden, integers, matrix};
use crate::{
    error::{Context, Result, bail, ensure},
    inputs,
    model::Model,
    pictures::{OfTokens, Pictures, feature_rows},
    processor::image_token,
    tensor::{DType, Tensor},
};

/// One call of the reference.
#[derive(Debug, Clone)]
pub struct Fed {
    pub rows: usize,
    /// Tokens per row.
    pub width: usize,
    pub tokens: Vec<i32>,
    pub pictures: Pictures,
}

/// What a reference may be fed with words alone. A mask must hide nothing, and positions are the plain ones.
const WORDS: [&str; 3] = ["input_ids", "attention_mask", "position_ids"];

impl Fed {
    /// Of `input.*`.
    ///
    /// Errors: inputs that no graph is told of, that are not there, or that contradict each other.
    pub fn of(model: &Model, golden: &Golden) -> Result<Fed> {
        Fed::of_program(&model.program, &model.resolved, model.checkpoint.config(), golden)
    }

    /// As [`Fed::of`]; `config` is the whole of config.json.
    pub fn of_program(program: &Program, resolved: &Resolved, config: &Value, golden: &Golden) -> Result<Fed> {
        let ids = golden.require("input.input_ids")?;
        let (rows, width) = matrix(ids, "input.input_ids")?;
        if let Some(mask) = golden.get("input.attention_mask") {
            ensure!(
                mask.to_f64().iter().all(|seen| *seen != 0.0),
                "{}: input.attention_mask hides tokens; leave them out",
                golden.path()
            );
        }
        let reading = Reading { program, resolved, config, golden, tokens: integers(ids) };
        reading.refuse_unread()?;
        let pictures = match &program.processor {
            Some(processor) => reading.pictures(processor).with_context(|| golden.path().to_owned())?,
            None => Pictures::default(),
        };
        let pictured = !pictures.vision.is_empty() || pictures.of_tokens.is_some();
        ensure!(rows == 1 || !pictured, "{}: {rows} rows with pictures; they are told of one row", golden.path());
        Ok(Fed { rows, width, tokens: reading.tokens, pictures })
    }
}

struct Reading<'a> {
    program: &'a Program,
    resolved: &'a Resolved,
    config: &'a Value,
    golden: &'a Golden,
    tokens: Vec<i32>,
}

/// What the reference implementations of a processor's families are fed besides.
fn read_by(kind: ProcessorKind) -> &'static [&'static str] {
    match kind {
        ProcessorKind::PooledCrops => {
            &["pixel_values", "image_token_pooling", "image_grids", "image_num_crops", "mm_token_type_ids"]
        }
        ProcessorKind::NativeGrid => {
            &["pixel_values", "image_grid_thw", "mm_token_type_ids", "mrope_position_ids", "mrope_next_position"]
        }
        ProcessorKind::AspectTiles => {
            &["pixel_values", "aspect_ratio_ids", "aspect_ratio_mask", "cross_attention_mask"]
        }
    }
}

impl Reading<'_> {
    fn refuse_unread(&self) -> Result<()> {
        let kind = self.program.processor.as_ref().map(|processor| processor.kind);
        let known = kind.map_or(&[][..], read_by);
        let unread = |input: &&str| !WORDS.contains(input) && !known.contains(input) && !self.golden.is_extra(input);
        if let Some(input) = self.golden.inputs().find(unread) {
            let told = match kind {
                Some(kind) => format!("processor {} reads {}", kind.name(), known.join(", ")),
                None => format!("family {} has no processor and reads words alone", self.program.name),
            };
            bail!("{} was made with {input}, of which no graph is told: {told}", self.golden.path());
        }
        Ok(())
    }

    fn pictures(&self, processor: &Processor) -> Result<Pictures> {
        match processor.kind {
            ProcessorKind::PooledCrops => self.pooled_crops(processor),
            ProcessorKind::NativeGrid => self.native_grid(processor),
            ProcessorKind::AspectTiles => self.aspect_tiles(),
        }
    }

    fn has(&self, input: &str) -> bool {
        self.golden.get(&format!("input.{input}")).is_some()
    }

    /// Without its first `skipped` axes, which have size 1.
    fn input(&self, name: &str, skipped: usize) -> Result<(Vec<usize>, &Tensor)> {
        let tensor = self.golden.require(&format!("input.{name}"))?;
        ensure!(
            tensor.shape.len() > skipped && tensor.shape[..skipped].iter().all(|n| *n == 1),
            "input.{name} has shape {:?}; expected {skipped} leading axes of size 1 and others",
            tensor.shape
        );
        Ok((tensor.shape[skipped..].to_vec(), tensor))
    }

    fn floats(&self, name: &str, skipped: usize) -> Result<Tensor> {
        let (shape, tensor) = self.input(name, skipped)?;
        Ok(Tensor::from_f32(&shape, &tensor.to_f32()))
    }

    fn integers(&self, name: &str, skipped: usize) -> Result<Tensor> {
        let (shape, tensor) = self.input(name, skipped)?;
        Ok(Tensor::from_i32(&shape, &integers(tensor)))
    }

    /// Crops of patches, and for each feature the patches that are pooled into it.
    fn pooled_crops(&self, processor: &Processor) -> Result<Pictures> {
        let of_tokens = match self.has("mm_token_type_ids") {
            true => Some(Arc::new(OfTokens::Spans(integers(self.input("mm_token_type_ids", 1)?.1)))),
            false => None,
        };
        if !self.has("image_token_pooling") {
            return Ok(Pictures { of_tokens, ..Pictures::default() });
        }
        let pooling = self.integers("image_token_pooling", 0)?;
        matrix(&pooling, "input.image_token_pooling")?;
        let made = (self.floats("pixel_values", 0)?, pooling);
        Pictures::pooled_crops(&self.tokens, image_token(self.config, processor)?, made, of_tokens)
    }

    /// Patches of each picture in its own size, in square groups that become one token each.
    fn native_grid(&self, processor: &Processor) -> Result<Pictures> {
        if !self.has("image_grid_thw") {
            return Ok(Pictures::default());
        }
        let (shape, grids) = self.input("image_grid_thw", 0)?;
        ensure!(matches!(shape[..], [_, 3]), "input.image_grid_thw has shape {shape:?}; expected [pictures, 3]");
        let pixels = self.floats("pixel_values", 0)?;
        let features = inputs::result_shape(self.program, self.resolved, "vision", "pixels", &pixels.shape)?;
        let (patches, features) = (pixels.shape[0], features.first().copied().unwrap_or(0));
        let group = if features > 0 && patches % features == 0 { patches / features } else { 0 };
        let merge = group.isqrt() as i32;
        ensure!(
            group > 0 && merge * merge == group as i32,
            "{patches} patches give {features} features: no square groups"
        );
        let (mut rows, mut columns, mut picture, mut frame) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for grid in integers(grids).chunks(3) {
            let [frames, height, width] = grid[..] else { bail!("input.image_grid_thw is cut off") };
            ensure!(
                height % merge == 0 && width % merge == 0,
                "a grid of {height} x {width} patches, which groups of {merge} x {merge} do not fill"
            );
            for _ in 0..frames {
                for (row, column) in (0..height / merge).flat_map(|r| (0..width / merge).map(move |c| (r, c))) {
                    for (inner_row, inner_column) in (0..merge).flat_map(|r| (0..merge).map(move |c| (r, c))) {
                        rows.push(row * merge + inner_row);
                        columns.push(column * merge + inner_column);
                        picture.push(frame);
                    }
                }
                frame += 1;
            }
        }
        ensure!(picture.len() == patches, "the grids have {} patches, input.pixel_values {patches}", picture.len());
        let length = self.tokens.len();
        let axes = integers(self.input("mrope_position_ids", 0)?.1).chunks(length).map(<[i32]>::to_vec).collect();
        let next = integers(self.input("mrope_next_position", 0)?.1);
        let next = *next.first().context("input.mrope_next_position is empty")?;
        Ok(Pictures {
            vision: vec![
                ("pixels", pixels),
                ("grid", Tensor::from_i32(&[2, patches], &[rows, columns].concat())),
                ("picture", Tensor::from_i32(&[patches], &picture)),
            ],
            feature_rows: feature_rows(&self.tokens, image_token(self.config, processor)?, 0..features)?,
            of_tokens: Some(Arc::new(OfTokens::AxisPositions { axes, next })),
        })
    }

    /// Pictures cut into tiles by aspect ratio, and which tiles each token looks at.
    fn aspect_tiles(&self) -> Result<Pictures> {
        if !self.has("pixel_values") {
            return Ok(Pictures::default());
        }
        let (shape, present) = self.input("aspect_ratio_mask", 1)?;
        let bytes = |tensor: &Tensor| tensor.to_f64().iter().map(|x| u8::from(*x != 0.0)).collect::<Vec<u8>>();
        let tile_present = Tensor { dtype: DType::Bool, shape, bytes: bytes(present) };
        let (shape, mask) = self.input("cross_attention_mask", 1)?;
        let [length, pictures, tiles] = shape[..] else {
            bail!("input.cross_attention_mask has shape {:?}; expected [1, tokens, pictures, tiles]", mask.shape)
        };
        let room = inputs::declared_shape(self.program, self.resolved, "forward", "tile_sight")?;
        ensure!(
            length == self.tokens.len() && tiles > 0 && pictures > 0 && room.last() == Some(&tiles),
            "input.cross_attention_mask has shape {:?}, where there are {} tokens, and {} tiles of a picture",
            mask.shape,
            self.tokens.len(),
            room.last().copied().unwrap_or(0)
        );
        let seen = bytes(mask).chunks(pictures * tiles).map(<[u8]>::to_vec).collect();
        Ok(Pictures {
            vision: vec![
                ("pixels", self.floats("pixel_values", 1)?),
                ("ratio", self.integers("aspect_ratio_ids", 1)?),
                ("tile_present", tile_present),
            ],
            feature_rows: Vec::new(),
            of_tokens: Some(Arc::new(OfTokens::TileSight(seen))),
        })
    }
}
