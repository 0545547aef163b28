//! `pooled_crops`: a picture becomes a view of the whole and overlapping crops of a canvas, each cut into patches; every
//! feature is pooled from a window of patches. Molmo2's processor, as in its reference implementation (Hugging Face
//! `transformers`, `Molmo2ImageProcessor` and `Molmo2Processor`).
//!
//! The canvas is tiled by windows; a crop is a window with its margins, so neighbours overlap. A patch in an overlap belongs to
//! the crop whose window it lies in, and at the rim of the canvas margins belong to the crop they are of.

use std::ops::Range;

use rayon::prelude::*;
use serde_json::{Value, json};

use crate::{
    Picture,
    resize::resize,
    settings::{Keys, SettingsError},
};

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Pixels along a side of a crop.
    side: usize,
    /// Pixels along a side of a patch.
    patch: usize,
    most_crops: usize,
    /// Patches, before and after a window.
    margins: [usize; 2],
    /// Rows and columns of patches that one feature is pooled from.
    pooling: [usize; 2],
    mean: [f32; 3],
    deviation: [f32; 3],
    rescale: f64,
    /// Whether a row of features ends in a token of its own, in the crops and in the view of the whole.
    columns: bool,
    view_columns: bool,
    /// Whether the view of the whole begins with a token of its own.
    view_start: bool,
}

impl Settings {
    /// Of `preprocessor_config.json` and, where there is one, `processor_config.json`. What a file leaves out has the
    /// reference's default.
    pub fn read(preprocessor: &Value, processor: Option<&Value>) -> Result<Settings, SettingsError> {
        let keys = Keys(preprocessor);
        let told = Keys(processor.unwrap_or(&Value::Null));
        keys.only("do_resize", &json!(true), "crops have one size")?;
        keys.only("do_rescale", &json!(true), "pixels are bytes")?;
        keys.only("do_normalize", &json!(true), "the tower was trained on normalised pixels")?;
        keys.only("resample", &json!(2), "bilinear")?;
        let beside = |error: SettingsError| error.beside("processor_config.json");
        let columns = told.flag("image_use_col_tokens", true).map_err(beside)?;
        let settings = Settings {
            side: keys.square("size", 378)?,
            patch: keys.count("patch_size", 14, 1)?,
            most_crops: keys.count("max_crops", 8, 1)?,
            margins: keys.counts("overlap_margins", [4, 4], 0)?,
            pooling: keys.counts("pooling_size", [2, 2], 1)?,
            mean: keys.numbers("image_mean", [0.5; 3])?.map(|x| x as f32),
            deviation: keys.numbers("image_std", [0.5; 3])?.map(|x| x as f32),
            rescale: keys.number("rescale_factor", 1.0 / 255.0)?,
            columns,
            view_columns: told.maybe("use_single_crop_col_tokens").map_err(beside)?.unwrap_or(columns),
            view_start: told.flag("use_single_crop_start_token", true).map_err(beside)?,
        };
        settings.hold_together()?;
        Ok(settings)
    }

    fn hold_together(&self) -> Result<(), SettingsError> {
        let refuse = |message: String| Err(SettingsError::Contradiction(message));
        if !self.side.is_multiple_of(self.patch) {
            return refuse(format!("a crop of {} pixels is no whole number of patches of {}", self.side, self.patch));
        }
        if self.margins.iter().sum::<usize>() >= self.patches() {
            let [before, after] = self.margins;
            let patches = self.patches();
            return refuse(format!(
                "margins of {before} and {after} patches leave nothing of a crop of {patches} patches"
            ));
        }
        if let Some(pooled) = self.pooling.iter().find(|pooled| **pooled > self.patches()) {
            let patches = self.patches();
            return refuse(format!("\"pooling_size\" is {pooled} patches, and a crop has only {patches} along a side"));
        }
        if self.deviation.contains(&0.0) {
            return refuse("\"image_std\" has a zero, by which pixels would be divided".into());
        }
        if !self.levels().iter().flatten().all(|level| level.is_finite()) {
            let keys = "\"image_mean\", \"image_std\" and \"rescale_factor\"";
            return refuse(format!("{keys} make of some byte a number that f32 does not hold"));
        }
        Ok(())
    }

    /// Patches along a side of a crop.
    fn patches(&self) -> usize {
        self.side / self.patch
    }

    /// Patches along a side of a window.
    fn window(&self) -> usize {
        self.patches() - self.margins[0] - self.margins[1]
    }

    fn view(&self) -> Grid {
        Grid { rows: self.patches(), columns: self.patches() }
    }

    /// Patches of the canvas that so many windows make.
    fn canvas(&self, tiling: Grid) -> Grid {
        let side = |tiles: usize| tiles * self.window() + self.margins[0] + self.margins[1];
        Grid { rows: side(tiling.rows), columns: side(tiling.columns) }
    }

    fn pooled(&self, grid: Grid) -> Grid {
        Grid { rows: grid.rows.div_ceil(self.pooling[0]), columns: grid.columns.div_ceil(self.pooling[1]) }
    }

    /// What becomes of a picture of this size.
    pub fn layout(&self, width: usize, height: usize) -> Layout {
        let margins = ((self.margins[0] + self.margins[1]) * self.patch) as f32;
        let tiling = self.tiling(height as f32 - margins, width as f32 - margins);
        self.layout_of(tiling)
    }

    fn layout_of(&self, tiling: Grid) -> Layout {
        Layout { tiling, view: self.pooled(self.view()), features: self.pooled(self.canvas(tiling)) }
    }

    fn tilings(&self) -> Vec<Grid> {
        let most = self.most_crops;
        let all = (1..=most).flat_map(|rows| (1..=most / rows).map(move |columns| Grid { rows, columns }));
        let mut tilings: Vec<Grid> = all.collect();
        tilings.sort_by_key(|tiling| (tiling.area(), tiling.rows));
        tilings
    }

    /// The tiling that a picture has to be enlarged least for; where all are too small, the one it has to be made smaller for
    /// least. The first of equals. Sizes without margins may be negative or zero: the arithmetic is the reference's, in f32.
    fn tiling(&self, height: f32, width: f32) -> Grid {
        let tilings = self.tilings();
        let pixels = |tiles: usize| (tiles * self.window() * self.patch) as f32;
        let scale = |tiling: &Grid| (pixels(tiling.rows) / height).min(pixels(tiling.columns) / width);
        let scales: Vec<f32> = tilings.iter().map(scale).collect();
        let first = |better: fn(f32, f32) -> bool, of: &[f32]| {
            (1..of.len()).fold(0, |best, i| if better(of[i], of[best]) { i } else { best })
        };
        if scales.iter().all(|scale| *scale < 1.0) {
            return tilings[first(|a, b| a > b, &scales)];
        }
        let enlarging: Vec<f32> = scales.iter().map(|scale| if *scale < 1.0 { 1e10 } else { *scale }).collect();
        tilings[first(|a, b| a < b, &enlarging)]
    }

    /// Most tokens that one picture can take in a prompt.
    pub fn most_tokens(&self) -> usize {
        self.tilings().into_iter().map(|tiling| self.placeholders(self.layout_of(tiling)).len()).max().unwrap_or(0)
    }

    /// The tokens that stand for a picture in a prompt, in order: the view of the whole, then the canvas.
    pub fn placeholders(&self, layout: Layout) -> Vec<Placeholder> {
        let rows = |grid: Grid, columns: bool| {
            let end = columns.then_some(Placeholder::Column);
            (0..grid.rows).flat_map(move |_| (0..grid.columns).map(|_| Placeholder::Patch).chain(end))
        };
        let start = if self.view_start { Placeholder::ViewStart } else { Placeholder::Start };
        let view = [start].into_iter().chain(rows(layout.view, self.view_columns)).chain([Placeholder::End]);
        let crops = [Placeholder::Start].into_iter().chain(rows(layout.features, self.columns));
        view.chain(crops).chain([Placeholder::End]).collect()
    }

    /// What `vision` takes of the pictures of one request, indices counted over all of them.
    pub fn prepare(&self, pictures: &[Picture]) -> Prepared {
        let mut prepared = Prepared {
            pixels: Vec::new(),
            pixels_shape: [0, self.patches().pow(2), 3 * self.patch * self.patch],
            pooling: Vec::new(),
            pooling_shape: [0, self.pooling[0] * self.pooling[1]],
        };
        for picture in pictures {
            let tiling = self.layout(picture.width, picture.height).tiling;
            let first = prepared.pixels_shape[0] * self.patches().pow(2);
            prepared.pixels.extend(self.pixels(picture, tiling));
            prepared.pixels_shape[0] += 1 + tiling.area();
            let indices = self.indices(tiling).into_iter().map(|i| if i < 0 { i } else { i + first as i32 });
            prepared.pooling.extend(indices);
        }
        prepared.pooling_shape[0] = prepared.pooling.len() / prepared.pooling_shape[1];
        prepared
    }

    /// Of the view and of every crop, patch by patch, normalised.
    fn pixels(&self, picture: &Picture, tiling: Grid) -> Vec<f32> {
        let canvas = self.canvas(tiling);
        let view = resize(picture, self.side, self.side);
        let canvas = resize(picture, canvas.columns * self.patch, canvas.rows * self.patch);
        let step = self.window() * self.patch;
        let corners = (0..tiling.rows).flat_map(|y| (0..tiling.columns).map(move |x| (y * step, x * step)));
        let crops: Vec<(&Picture, (usize, usize))> =
            [(&view, (0, 0))].into_iter().chain(corners.map(|corner| (&canvas, corner))).collect();
        let levels = self.levels();
        let normalised = |bytes: Vec<u8>| {
            bytes.into_iter().enumerate().map(|(i, b)| levels[i % 3][usize::from(b)]).collect::<Vec<f32>>()
        };
        crops.into_par_iter().flat_map_iter(|(source, corner)| normalised(self.patches_of(source, corner))).collect()
    }

    /// What each byte of red, green and blue becomes.
    fn levels(&self) -> [[f32; 256]; 3] {
        let factor = (1.0 / self.rescale) as f32;
        let (mean, deviation) = (self.mean.map(|x| x * factor), self.deviation.map(|x| x * factor));
        [0, 1, 2].map(|color| std::array::from_fn(|byte| (byte as f32 - mean[color]) / deviation[color]))
    }

    /// The bytes of the crop whose upper left corner lies at `(top, left)`, patch after patch.
    fn patches_of(&self, source: &Picture, (top, left): (usize, usize)) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.side * self.side * 3);
        for row in (top..top + self.side).step_by(self.patch) {
            for column in (left..left + self.side).step_by(self.patch) {
                for y in row..row + self.patch {
                    let begin = (y * source.width + column) * 3;
                    bytes.extend_from_slice(&source.rgb[begin..begin + self.patch * 3]);
                }
            }
        }
        bytes
    }

    /// For every feature the patches it is pooled from, -1 for none: of the view, then of the canvas. Patches are counted over
    /// the view and the crops.
    fn indices(&self, tiling: Grid) -> Vec<i32> {
        let side = self.patches();
        let view = |row: usize, column: usize| (row * side + column) as i32;
        let canvas = |row: usize, column: usize| {
            let ((tile_row, y), (tile_column, x)) = (self.owner(row, tiling.rows), self.owner(column, tiling.columns));
            let crop = 1 + tile_row * tiling.columns + tile_column;
            ((crop * side + y) * side + x) as i32
        };
        let mut indices = self.windows(self.view(), &view);
        indices.extend(self.windows(self.canvas(tiling), &canvas));
        indices
    }

    /// The tile that a row or column of the canvas belongs to, and its place in that tile's crop.
    fn owner(&self, at: usize, tiles: usize) -> (usize, usize) {
        let tile = (at.saturating_sub(self.margins[0]) / self.window()).min(tiles - 1);
        (tile, at - tile * self.window())
    }

    /// A grid in windows of [`Settings::pooling`], the grid in the middle where they do not fit.
    fn windows(&self, grid: Grid, index: &dyn Fn(usize, usize) -> i32) -> Vec<i32> {
        let pooled = self.pooled(grid);
        let [high, wide] = self.pooling;
        let (top, left) = ((pooled.rows * high - grid.rows) / 2, (pooled.columns * wide - grid.columns) / 2);
        let within = |at: usize, before: usize, size: usize| at.checked_sub(before).filter(|at| *at < size);
        let span = |window: usize, size: usize| -> Range<usize> { window * size..(window + 1) * size };
        let mut indices = Vec::with_capacity(pooled.area() * high * wide);
        for (row, column) in (0..pooled.rows).flat_map(|row| (0..pooled.columns).map(move |column| (row, column))) {
            for (y, x) in span(row, high).flat_map(|y| span(column, wide).map(move |x| (y, x))) {
                let patch = within(y, top, grid.rows).zip(within(x, left, grid.columns));
                indices.push(patch.map_or(-1, |(row, column)| index(row, column)));
            }
        }
        indices
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    pub rows: usize,
    pub columns: usize,
}

impl Grid {
    pub fn area(self) -> usize {
        self.rows * self.columns
    }
}

/// What a picture becomes, known from its size alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Crops.
    pub tiling: Grid,
    /// Features of the view of the whole.
    pub view: Grid,
    /// Features of the canvas.
    pub features: Grid,
}

/// A token of a prompt that stands for something of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placeholder {
    ViewStart,
    Start,
    /// Has a feature.
    Patch,
    /// Ends a row of features.
    Column,
    End,
}

/// The token that stands for a picture in the text of a prompt, where the tokenizer does not say otherwise. It is written out
/// as the picture's [`Settings::placeholders`].
pub const MARK: &str = "<|image|>";

/// The tokens that see each other both ways, those of all pictures together. Some belong to videos, and none is missing.
pub const SEEING: [&str; 8] = [
    "<im_patch>",
    "<im_col>",
    "<im_start>",
    "<low_res_im_start>",
    "<frame_start>",
    "<im_end>",
    "<frame_end>",
    "<im_low>",
];

impl Placeholder {
    pub const ALL: [Placeholder; 5] =
        [Placeholder::ViewStart, Placeholder::Start, Placeholder::Patch, Placeholder::Column, Placeholder::End];

    /// As the tokenizer of such checkpoints spells it.
    pub fn text(self) -> &'static str {
        match self {
            Placeholder::ViewStart => "<low_res_im_start>",
            Placeholder::Start => "<im_start>",
            Placeholder::Patch => "<im_patch>",
            Placeholder::Column => "<im_col>",
            Placeholder::End => "<im_end>",
        }
    }
}

/// The inputs of `vision`, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    pub pixels: Vec<f32>,
    /// Crops, patches of a crop, numbers of a patch (rows, columns, channels).
    pub pixels_shape: [usize; 3],
    pub pooling: Vec<i32>,
    /// Features, patches that each is pooled from (-1 is none).
    pub pooling_shape: [usize; 2],
}
