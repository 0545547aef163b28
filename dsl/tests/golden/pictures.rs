//! What a host gives the graphs beside tokens and positions, from what the reference implementation was fed: by processor,
//! not by family. The runtime's processors will make the same from pictures; here the reference's have been at work.

use std::{collections::BTreeMap, ops::Range};

use mgraph_dsl::{
    interpret::Tensor,
    ir::{DType, Processor, ProcessorKind},
};
use serde_json::Value;

use crate::fixture::Numbers;

/// Pictures of one request.
#[derive(Default)]
pub struct Pictures {
    /// The inputs of `vision`, by name.
    pub vision: Vec<(&'static str, Tensor)>,
    /// For `merge`: the feature row of each token, -1 for none.
    pub feature_rows: Vec<i32>,
    /// For `attach`: how many pictures there are.
    pub count: Option<usize>,
    /// An input of `forward` that has something to say of every token.
    pub tokens: Option<PerToken>,
}

pub enum PerToken {
    /// Which span a token belongs to, 0 for none. A generated token belongs to none.
    Spans(Vec<i32>),
    /// One position per axis; a step continues after the largest.
    AxisPositions { axes: Vec<Vec<i32>>, next: i32 },
    /// The tiles that each token may look at; a step repeats the last row.
    TileSight { pictures: usize, tiles: usize, seen: Vec<Vec<bool>> },
}

impl PerToken {
    /// Name and value for tokens of one row, among them such as come after the prompt.
    pub fn input(&self, tokens: Range<usize>) -> (&'static str, Tensor) {
        let count = tokens.len();
        match self {
            PerToken::Spans(spans) => {
                let spans = tokens.map(|t| spans.get(t).copied().unwrap_or(0)).collect();
                ("spans", tensor(DType::I32, vec![1, count], spans))
            }
            PerToken::AxisPositions { axes, next } => {
                let at =
                    |axis: &Vec<i32>, t: usize| axis.get(t).copied().unwrap_or_else(|| next + (t - axis.len()) as i32);
                let positions = axes.iter().flat_map(|axis| tokens.clone().map(move |t| at(axis, t))).collect();
                ("axis_positions", tensor(DType::I32, vec![axes.len(), 1, count], positions))
            }
            PerToken::TileSight { pictures, tiles, seen } => {
                let nothing = vec![false; pictures * tiles];
                let row = |t| seen.get(t).or(seen.last()).unwrap_or(&nothing).clone();
                let sight: Vec<bool> = tokens.flat_map(row).collect();
                ("tile_sight", tensor(DType::Bool, vec![1, count, *pictures, *tiles], sight))
            }
        }
    }

    /// Tokens that belong to one chunk: a span is never cut.
    pub fn whole(&self) -> Range<usize> {
        match self {
            PerToken::Spans(spans) => {
                let first = spans.iter().position(|s| *s > 0).unwrap_or(0);
                first..spans.iter().rposition(|s| *s > 0).map_or(first, |last| last + 1)
            }
            PerToken::AxisPositions { .. } | PerToken::TileSight { .. } => 0..0,
        }
    }
}

fn tensor<T>(dtype: DType, shape: Vec<usize>, elements: Vec<T>) -> Tensor
where
    mgraph_dsl::interpret::Data: From<Vec<T>>,
{
    Tensor::new(dtype, shape, elements).expect("the elements fill the shape")
}

/// The inputs of one run of the reference, the sizes that the family states, and its config.json.
pub struct Fed<'a> {
    pub inputs: BTreeMap<&'a str, &'a Numbers>,
    pub config: &'a Value,
    /// A dim of the family's config by name.
    pub size: &'a dyn Fn(&str) -> usize,
}

impl Fed<'_> {
    pub fn tokens(&self) -> Vec<i32> {
        self.inputs["input_ids"].integers()
    }

    fn floats(&self, name: &str, skipped: usize) -> Tensor {
        let Numbers { shape, elements } = self.inputs[name];
        tensor(DType::F32, shape[skipped..].to_vec(), elements.iter().map(|x| *x as f32).collect())
    }

    fn integers(&self, name: &str, skipped: usize) -> Tensor {
        tensor(DType::I32, self.inputs[name].shape[skipped..].to_vec(), self.inputs[name].integers())
    }

    /// The `n`-th picture token has the `n`-th of `rows`.
    fn feature_rows(&self, image_token: &str, rows: impl IntoIterator<Item = usize>) -> Vec<i32> {
        let id = self.config[image_token].as_i64().expect("a token id") as i32;
        let mut rows = rows.into_iter();
        let row = |token: i32| if token == id { rows.next().expect("a row for each picture token") as i32 } else { -1 };
        let named = self.tokens().into_iter().map(row).collect();
        assert_eq!(rows.next(), None, "a feature row without a token");
        named
    }

    /// The pictures of this run, as the family's processor tells them.
    pub fn pictures(&self, processor: &Processor) -> Pictures {
        let image_token = &processor.image_token;
        match processor.kind {
            ProcessorKind::PooledCrops => self.pooled_crops(image_token),
            ProcessorKind::NativeGrid => self.native_grid(image_token),
            ProcessorKind::AspectTiles => self.aspect_tiles(),
        }
    }

    /// Crops of patches, and for each feature the patches that are pooled into it. Rows of `pooling` that name no patch are
    /// padding, and no token has their feature.
    fn pooled_crops(&self, image_token: &str) -> Pictures {
        let length = self.tokens().len();
        let spans = self.inputs.get("mm_token_type_ids").map_or(vec![0; length], |spans| spans.integers());
        let tokens = Some(PerToken::Spans(spans));
        let Some(pooling) = self.inputs.get("image_token_pooling") else {
            return Pictures { tokens, ..Pictures::default() };
        };
        let patches = pooling.integers();
        let rows = patches.chunks(pooling.shape[1]).enumerate();
        let named = rows.filter(|(_, row)| row.iter().any(|patch| *patch >= 0)).map(|(m, _)| m);
        Pictures {
            vision: vec![
                ("pixels", self.floats("pixel_values", 0)),
                ("pooling", self.integers("image_token_pooling", 0)),
            ],
            feature_rows: self.feature_rows(image_token, named),
            count: None,
            tokens,
        }
    }

    /// Patches of a picture in its own size, in groups that become one token each.
    fn native_grid(&self, image_token: &str) -> Pictures {
        let length = self.tokens().len();
        let Some(grid) = self.inputs.get("image_grid_thw") else {
            let plain: Vec<i32> = (0..length as i32).collect();
            let tokens = Some(PerToken::AxisPositions { axes: vec![plain; 3], next: length as i32 });
            return Pictures { tokens, ..Pictures::default() };
        };
        let axes = self.inputs["mrope_position_ids"].integers().chunks(length).map(<[i32]>::to_vec).collect();
        let next = self.inputs["mrope_next_position"].integers()[0];
        let [frames, height, width] = grid.integers()[..] else { panic!("one picture") };
        let merge = (self.size)("vit.merge") as i32;
        let (mut rows, mut columns, mut picture) = (Vec::new(), Vec::new(), Vec::new());
        for frame in 0..frames {
            for (row, column) in (0..height / merge).flat_map(|r| (0..width / merge).map(move |c| (r, c))) {
                for (inner_row, inner_column) in (0..merge).flat_map(|r| (0..merge).map(move |c| (r, c))) {
                    rows.push(row * merge + inner_row);
                    columns.push(column * merge + inner_column);
                    picture.push(frame);
                }
            }
        }
        let patches = picture.len();
        Pictures {
            vision: vec![
                ("pixels", self.floats("pixel_values", 0)),
                ("grid", tensor(DType::I32, vec![2, patches], [rows, columns].concat())),
                ("picture", tensor(DType::I32, vec![patches], picture)),
            ],
            feature_rows: self.feature_rows(image_token, 0..patches / (merge * merge) as usize),
            count: None,
            tokens: Some(PerToken::AxisPositions { axes, next }),
        }
    }

    /// Pictures cut into tiles by aspect ratio, and which tiles each token looks at.
    fn aspect_tiles(&self) -> Pictures {
        let (pictures, tiles) = ((self.size)("pictures"), (self.size)("vit.tiles"));
        let present = self.inputs["aspect_ratio_mask"];
        let mask = self.inputs["cross_attention_mask"];
        let [1, _, shown, _] = mask.shape[..] else { panic!("one row of tokens") };
        // The reference knows the pictures there are, the family has room for `pictures`.
        let row = |row: &[f64]| {
            let mut seen: Vec<bool> = row.iter().map(|x| *x != 0.0).collect();
            seen.resize(pictures * tiles, false);
            seen
        };
        let seen = mask.elements.chunks(shown * tiles).map(row).collect();
        let tile_present = present.elements.iter().map(|x| *x != 0.0).collect();
        Pictures {
            vision: vec![
                ("pixels", self.floats("pixel_values", 1)),
                ("ratio", self.integers("aspect_ratio_ids", 1)),
                ("tile_present", tensor(DType::Bool, present.shape[1..].to_vec(), tile_present)),
            ],
            feature_rows: Vec::new(),
            count: Some(shown),
            tokens: Some(PerToken::TileSight { pictures, tiles, seen }),
        }
    }
}
