//! Bilinear interpolation without antialiasing, as PyTorch's `interpolate(mode="bilinear", align_corners=False)` has it: pixel
//! centres correspond, places outside the picture take its edge. Each line is interpolated, then the two lines, each with one
//! fused multiply-add; the result is rounded to the nearest byte, ties to even.

use rayon::prelude::*;

use crate::Picture;

/// Where an output pixel lies between two input pixels of one axis.
#[derive(Debug, Clone, Copy)]
struct Between {
    low: usize,
    high: usize,
    /// Of `high`; `low` has the rest.
    share: f32,
}

fn axis(from: usize, to: usize) -> Vec<Between> {
    let scale = from as f32 / to as f32;
    let between = |at: usize| {
        let place = (scale * (at as f32 + 0.5) - 0.5).max(0.0);
        let low = (place as usize).min(from - 1);
        Between { low, high: (low + 1).min(from - 1), share: (place - low as f32).clamp(0.0, 1.0) }
    };
    (0..to).map(between).collect()
}

/// `picture` in another size.
pub fn resize(picture: &Picture, width: usize, height: usize) -> Picture {
    let (columns, rows) = (axis(picture.width, width), axis(picture.height, height));
    let mix = |low: f32, high: f32, share: f32| (1.0 - share).mul_add(low, share * high);
    let mut rgb = vec![0; width * height * 3];
    rgb.par_chunks_exact_mut((width * 3).max(1)).zip(rows).for_each(|(line, row)| {
        let sample = |y: usize, x: usize, channel: usize| f32::from(picture.rgb[(y * picture.width + x) * 3 + channel]);
        for (pixel, column) in line.chunks_exact_mut(3).zip(&columns) {
            for (channel, byte) in pixel.iter_mut().enumerate() {
                let along = |y| mix(sample(y, column.low, channel), sample(y, column.high, channel), column.share);
                let value = mix(along(row.low), along(row.high), row.share);
                // Between two bytes, so it is one after rounding.
                *byte = value.round_ties_even() as u8;
            }
        }
    });
    Picture { width, height, rgb }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grey(width: usize, bytes: &[u8]) -> Picture {
        Picture { width, height: bytes.len() / width, rgb: bytes.iter().flat_map(|b| [*b; 3]).collect() }
    }

    #[test]
    fn the_same_size_is_the_same_picture() {
        let picture = grey(3, &[1, 2, 3, 250, 251, 252]);
        assert_eq!(resize(&picture, 3, 2), picture);
    }

    #[test]
    fn pixel_centres_correspond_and_edges_are_kept() {
        assert_eq!(resize(&grey(2, &[0, 100]), 4, 1), grey(4, &[0, 25, 75, 100]));
        assert_eq!(resize(&grey(1, &[7]), 3, 3), grey(3, &[7; 9]));
    }
}
