//! Where in a tensor the differences lie: `|a - b|` over its last two axes, in few enough bins to be looked at.

/// The largest difference in each bin, whatever the index along the axes before the last two.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    /// Elements along the last two axes; 1 where there is no such axis.
    pub size: [usize; 2],
    /// Elements of one bin, along the same axes. The last bin of a row or column may hold fewer.
    pub bin: [usize; 2],
    /// Row after row; infinite where only one side is a number.
    pub bins: Vec<f64>,
}

impl Map {
    /// Bins along an axis at most.
    pub const MOST: usize = 128;

    /// `deltas` are those of a row-major tensor of `shape`.
    pub(super) fn of(shape: &[usize], deltas: impl Iterator<Item = f64>) -> Map {
        let axis = |from_the_end: usize| shape.iter().rev().nth(from_the_end).copied().unwrap_or(1).max(1);
        let size = [axis(1), axis(0)];
        let bin = size.map(|n| n.div_ceil(Map::MOST));
        let mut map = Map { size, bin, bins: Vec::new() };
        let [rows, columns] = map.counts();
        map.bins = vec![0.0; rows * columns];
        for (at, delta) in deltas.enumerate() {
            let (row, column) = (at / size[1] % size[0], at % size[1]);
            let held = &mut map.bins[row / bin[0] * columns + column / bin[1]];
            *held = held.max(delta);
        }
        map
    }

    /// Bins along both axes.
    pub fn counts(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.size[axis].div_ceil(self.bin[axis]))
    }
}

#[cfg(test)]
mod tests {
    use super::Map;

    #[test]
    fn a_bin_has_the_largest_difference_of_its_elements_over_all_leading_axes() {
        let mut deltas = vec![0.0; 2 * 3 * 300];
        deltas[2 * 300 + 299] = 1.0;
        deltas[(3 + 2) * 300 + 298] = 2.0;
        deltas[300] = 0.5;
        let map = Map::of(&[2, 3, 300], deltas.into_iter());
        assert_eq!((map.size, map.bin, map.counts()), ([3, 300], [1, 3], [3, 100]));
        let held: Vec<(usize, f64)> = map.bins.iter().copied().enumerate().filter(|(_, bin)| *bin > 0.0).collect();
        assert_eq!(held, [(100, 0.5), (299, 2.0)]);
    }

    #[test]
    fn a_tensor_of_fewer_axes_is_one_row() {
        assert_eq!(Map::of(&[4], [0.0, 1.0, 2.0, 3.0].into_iter()).bins, [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(Map::of(&[], [1.0].into_iter()).counts(), [1, 1]);
        assert_eq!(Map::of(&[0, 4], std::iter::empty()).bins, [0.0; 4]);
    }
}
