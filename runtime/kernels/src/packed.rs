//! A few rows times a packed matrix, on the CPU: what MLX's `quantized_matmul` computes, in vector code. MLX has that for ARM
//! only; on x86 its loop is scalar (1.2e9 weights a second and core measured, against 8e9 here).

use rayon::prelude::*;

use super::row;

/// Affine codes of `bits` bits, row by row, packed without gaps into little-endian words: column `k` of a row is
/// `code * scale + bias`, with one scale and bias for each `group` columns.
#[derive(Debug, Clone, Copy)]
pub struct Packed<'a> {
    pub codes: &'a [u32],
    pub scales: &'a [f32],
    pub biases: &'a [f32],
    pub columns: usize,
    pub bits: usize,
    pub group: usize,
}

/// A range of rows for one core: enough that handing it over costs little.
const WORTH: usize = 1 << 16;

impl Packed<'_> {
    /// Whether [`Packed::times`] has code for this layout: 4 or 8 bits, groups that fill 16-byte vectors.
    pub fn is_supported(&self) -> bool {
        cfg!(target_endian = "little")
            && matches!(self.bits, 4 | 8)
            && self.group > 0
            && (self.group * self.bits).is_multiple_of(128)
            && self.columns.is_multiple_of(self.group)
            && self.columns > 0
            && self.codes.len() * 32 == self.rows() * self.columns * self.bits
            && self.scales.len() == self.rows() * (self.columns / self.group)
            && self.biases.len() == self.scales.len()
    }

    pub fn rows(&self) -> usize {
        (self.scales.len() * self.group).checked_div(self.columns).unwrap_or(0)
    }

    /// `x` (`[m, columns]`) times the transpose: `[m, rows]`. `None` where the layout is not supported or `x` does not fit.
    ///
    /// Within a group the codes are summed first and scaled then, so a result differs from a sum of dequantized terms by
    /// rounding: a few 1e-7 of the sum of their absolute values.
    pub fn times(&self, x: &[f32]) -> Option<Vec<f32>> {
        if !self.is_supported() || !x.len().is_multiple_of(self.columns) {
            return None;
        }
        let (rows, m) = (self.rows(), x.len() / self.columns);
        let inputs: Vec<row::Input> =
            x.chunks_exact(self.columns).map(|x| row::Input::new(x, self.bits, self.group)).collect();
        let words = self.columns * self.bits / 32;
        let groups = self.columns / self.group;
        // `[rows, m]`: a row of the matrix meets every input while it is in the cache.
        let mut by_row = vec![0.0; rows * m];
        let fill = |(first, results): (usize, &mut [f32])| {
            for (row, results) in (first..).zip(results.chunks_exact_mut(m)) {
                let codes = bytemuck::cast_slice(&self.codes[row * words..][..words]);
                let (scales, biases) = (&self.scales[row * groups..][..groups], &self.biases[row * groups..][..groups]);
                for (input, result) in inputs.iter().zip(results) {
                    *result = row::dot(input, codes, scales, biases);
                }
            }
        };
        let chunk = WORTH.div_ceil(self.columns * m.max(1)).max(1);
        if rows <= 2 * chunk || m == 0 {
            fill((0, &mut by_row));
        } else {
            by_row.par_chunks_mut(chunk * m).enumerate().for_each(|(i, results)| fill((i * chunk, results)));
        }
        if m == 1 {
            return Some(by_row);
        }
        Some((0..m).flat_map(|i| by_row.iter().skip(i).step_by(m.max(1))).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// Column by column in f64.
    fn plain(w: &Packed<'_>, x: &[f32]) -> Vec<(f64, f64)> {
        let code = |row: usize, k: usize| {
            let bit = (row * w.columns + k) * w.bits;
            f64::from((w.codes[bit / 32] >> (bit % 32)) & ((1 << w.bits) - 1))
        };
        let mut all = Vec::new();
        for x in x.chunks_exact(w.columns) {
            for row in 0..w.rows() {
                let terms = (0..w.columns).map(|k| {
                    let at = row * (w.columns / w.group) + k / w.group;
                    (code(row, k) * f64::from(w.scales[at]) + f64::from(w.biases[at])) * f64::from(x[k])
                });
                let terms: Vec<f64> = terms.collect();
                all.push((terms.iter().sum(), terms.iter().map(|t| t.abs()).sum()));
            }
        }
        all
    }

    #[test]
    fn products_match_plain_sums() {
        for (bits, group, columns, rows, m) in [
            (4, 32, 64, 3, 1),
            (4, 32, 576, 300, 1),
            (4, 64, 1536, 7, 4),
            (4, 128, 128, 1, 2),
            (8, 16, 48, 5, 3),
            (8, 128, 256, 900, 2),
        ] {
            let codes: Vec<u32> =
                (0..(rows * columns * bits / 32) as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
            let sides = rows * columns / group;
            let (scales, biases) = (numbers(sides, 1), numbers(sides, 2));
            let w = Packed { codes: &codes, scales: &scales, biases: &biases, columns, bits, group };
            let x = numbers(m * columns, 3);
            let found = w.times(&x).expect("is supported");
            let wanted = plain(&w, &x);
            assert_eq!(found.len(), wanted.len());
            for (found, (value, sum)) in found.iter().zip(wanted) {
                assert!((f64::from(*found) - value).abs() <= 2e-6 * sum, "{found} and {value} of {sum}");
            }
        }
    }

    #[test]
    fn other_layouts_are_left_to_others() {
        let codes = [0; 3];
        let w = Packed { codes: &codes, scales: &[1.0], biases: &[0.0], columns: 32, bits: 3, group: 32 };
        assert_eq!(w.times(&[0.0; 32]), None);
        let short = Packed { codes: &codes, bits: 4, ..w };
        assert_eq!(short.times(&[0.0; 32]), None, "a word is missing");
    }
}
