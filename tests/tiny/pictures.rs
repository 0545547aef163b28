//! Random pictures as a processor would hand them on, by what the processor does: tokens that stand for them, numbers of patches,
//! and what tokens are told of both.

use std::path::Path;

use mgraph_dsl::ir::ProcessorKind;
use mgraph_runtime::{
    inputs::{declared_shape, result_shape},
    model::Model,
    parity::Golden,
    processor::image_token,
};
use proptest::prelude::Rng;
use safetensors::{Dtype, tensor::TensorView};

use super::draw::{below, share};

struct Inputs<'r> {
    random: &'r mut dyn Rng,
    all: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
}

impl Inputs<'_> {
    fn integers(&mut self, name: &str, shape: &[usize], values: Vec<i32>) {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.all.push((format!("input.{name}"), Dtype::I32, shape.to_vec(), bytes));
    }

    fn noise(&mut self, name: &str, shape: &[usize]) {
        let count = shape.iter().product::<usize>();
        let bytes = (0..count).flat_map(|_| (2.0 * share(self.random) as f32 - 1.0).to_le_bytes()).collect();
        self.all.push((format!("input.{name}"), Dtype::F32, shape.to_vec(), bytes));
    }
}

/// A prompt of words; of a family that sees pictures, with a picture in it. Written to `folder`, as files of reference numbers are.
pub fn prompt(model: &Model, folder: &Path, length: usize, random: &mut dyn Rng) -> Golden {
    let vocabulary = model.vocabulary().unwrap().min(model.token_ids().unwrap());
    let (program, resolved) = (&*model.program, &*model.resolved);
    let mut tokens: Vec<i32> = (0..length).map(|_| below(random, vocabulary) as i32).collect();
    let mut inputs = Inputs { random, all: Vec::new() };
    if let Some(processor) = &program.processor {
        let image = image_token(model.checkpoint.config(), processor).unwrap();
        tokens.iter_mut().filter(|token| **token == image).for_each(|token| *token = (image + 1) % vocabulary as i32);
        let shape = |graph, input| declared_shape(program, resolved, graph, input).unwrap();
        // The picture stands after two words.
        let mut place = |features: usize| tokens[2..2 + features].fill(image);
        match processor.kind {
            ProcessorKind::PooledCrops => {
                let (crops, features, each) = (2, 3, 4);
                let pixels = shape("vision", "pixels");
                let patches = crops * pixels[1];
                inputs.noise("pixel_values", &[crops, pixels[1], pixels[2]]);
                // Every window names a patch, and some places of it none.
                let pooling = (0..features * each).map(|at| match at % each {
                    0 => below(inputs.random, patches) as i32,
                    _ => below(inputs.random, patches + 1) as i32 - 1,
                });
                let pooling = pooling.collect();
                inputs.integers("image_token_pooling", &[features, each], pooling);
                place(features);
                let spans = tokens.iter().map(|token| i32::from(*token == image)).collect();
                inputs.integers("mm_token_type_ids", &[1, length], spans);
            }
            ProcessorKind::NativeGrid => {
                let numbers = shape("vision", "pixels")[1];
                // Two square groups of patches, one beside the other, become two tokens.
                let features = |side: &usize| {
                    let given = result_shape(program, resolved, "vision", "pixels", &[2 * side * side, numbers]);
                    given.is_ok_and(|shape| shape[0] == 2)
                };
                let side = (1..).find(features).expect("groups of some size");
                inputs.noise("pixel_values", &[2 * side * side, numbers]);
                inputs.integers("image_grid_thw", &[1, 3], vec![1, side as i32, 2 * side as i32]);
                place(2);
                let axes = shape("forward", "axis_positions")[0];
                // Both tokens of the picture stand in one row.
                let of = |axis: usize, at: usize| if axis < 2 && at == 3 { 2 } else { at as i32 };
                let positions = (0..axes).flat_map(|axis| (0..length).map(move |at| of(axis, at))).collect();
                inputs.integers("mrope_position_ids", &[axes, 1, length], positions);
                inputs.integers("mrope_next_position", &[1], vec![length as i32]);
            }
            ProcessorKind::AspectTiles => {
                let pixels = shape("vision", "pixels");
                let tiles = pixels[1];
                inputs.noise("pixel_values", &[&[1, 1], &pixels[1..]].concat());
                inputs.integers("aspect_ratio_ids", &[1, 1], vec![1]);
                let present: Vec<i32> = (0..tiles).map(|tile| i32::from(2 * tile < tiles + 1)).collect();
                inputs.integers("aspect_ratio_mask", &[1, 1, tiles], present.clone());
                let none = vec![0; tiles];
                let sight = (0..length).flat_map(|at| if at < 2 { none.clone() } else { present.clone() }).collect();
                inputs.integers("cross_attention_mask", &[1, length, 1, tiles], sight);
            }
        }
    }
    inputs.integers("input_ids", &[1, length], tokens);
    let views = inputs
        .all
        .iter()
        .map(|(name, dtype, shape, bytes)| (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    let path = folder.join("inputs.safetensors");
    safetensors::serialize_to_file(views, None, &path).unwrap();
    Golden::open(&path).unwrap()
}
