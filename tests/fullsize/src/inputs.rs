//! A picture that is more than noise, and what the reference's processor would feed of it: tokens, pixels, pooling indices.

use std::{fs, io::Cursor, path::Path};

use image::{ImageFormat, Rgb, RgbImage};
use mgraph_pictures::{
    Limits, Picture,
    pooled_crops::{Placeholder, Settings},
};
use safetensors::{Dtype, tensor::TensorView};

use crate::{
    Result, noise,
    shapes::{COLUMN, END, PATCH, START, Shapes, VIEW_START},
};

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    pub width: usize,
    pub height: usize,
    pub crops: usize,
    pub features: usize,
    pub tokens: usize,
}

/// Writes `NAME.png`, a picture cut into `tiles` tiles, and `NAME.safetensors`, which `mlxcel parity --input` takes.
pub fn inputs(dir: &Path, shapes: &Shapes, name: &str, tiles: usize, seed: u64) -> Result<View> {
    let (width, height) = shapes.picture(tiles);
    let mut file = Vec::new();
    drawn(width as u32, height as u32, seed).write_to(&mut Cursor::new(&mut file), ImageFormat::Png)?;
    fs::write(dir.join(format!("{name}.png")), &file)?;
    let picture = Picture::read(&file, Limits::default())?;
    let settings = Settings::read(&shapes.preprocessor(), None)?;
    let placeholders = settings.placeholders(settings.layout(width, height));
    // A few words before and after it.
    let words = |from: i32| (from..from + 4).map(|word| (word, 0));
    let of_picture = placeholders.into_iter().map(|placeholder| (id(placeholder), 1));
    let (ids, spans): (Vec<i32>, Vec<i32>) = words(1).chain(of_picture).chain(words(11)).unzip();
    let prepared = settings.prepare(&[picture]);
    let pixels: Vec<u8> = prepared.pixels.iter().flat_map(|x| x.to_le_bytes()).collect();
    let bytes = |ids: &[i32]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
    let (id_bytes, span_bytes, pooling) = (bytes(&ids), bytes(&spans), bytes(&prepared.pooling));
    let row = vec![1, ids.len()];
    let tensors = [
        ("input.input_ids", TensorView::new(Dtype::I32, row.clone(), &id_bytes)?),
        ("input.mm_token_type_ids", TensorView::new(Dtype::I32, row, &span_bytes)?),
        ("input.pixel_values", TensorView::new(Dtype::F32, prepared.pixels_shape.to_vec(), &pixels)?),
        ("input.image_token_pooling", TensorView::new(Dtype::I32, prepared.pooling_shape.to_vec(), &pooling)?),
    ];
    safetensors::serialize_to_file(tensors, None, &dir.join(format!("{name}.safetensors")))?;
    let [crops, ..] = prepared.pixels_shape;
    Ok(View { width, height, crops, features: prepared.pooling_shape[0], tokens: ids.len() })
}

fn id(placeholder: Placeholder) -> i32 {
    match placeholder {
        Placeholder::ViewStart => VIEW_START,
        Placeholder::Start => START,
        Placeholder::Patch => PATCH,
        Placeholder::Column => COLUMN,
        Placeholder::End => END,
    }
}

/// A sky that fades, hills, a sun, bars as of a page, and a little grain.
fn drawn(width: u32, height: u32, seed: u64) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let (u, v) = (x as f32 / width as f32, y as f32 / height as f32);
        let hill = 0.6 + 0.12 * (u * 9.0).sin() + 0.05 * (u * 31.0).cos();
        let sun = (u - 0.75).hypot((v - 0.25) * height as f32 / width as f32) < 0.08;
        let bar = u < 0.35 && (0.1..0.5).contains(&v) && (y / 7) % 3 == 0 && (x / 11) % 5 != 4;
        let color = match (bar, sun, v > hill) {
            (true, ..) => [30.0, 30.0, 40.0],
            (_, true, _) => [250.0, 220.0, 90.0],
            (_, _, true) => [40.0 + 90.0 * (1.0 - v), 110.0 + 60.0 * (u * 40.0).sin(), 50.0],
            (_, _, false) => [90.0 + 120.0 * v, 140.0 + 80.0 * v, 230.0 - 20.0 * v],
        };
        let grain = 8.0 * noise::even(seed, u64::from(y) * u64::from(width) + u64::from(x));
        Rgb(color.map(|c: f32| (c + grain).clamp(0.0, 255.0) as u8))
    })
}
