//! Operands seen through strides: broadcasts, transposes and slices are views, walked in runs.

/// `N` operands under one output shape.
pub(in crate::interpret) struct View<const N: usize> {
    /// Merged where every operand steps evenly; the last is the run.
    dims: Vec<usize>,
    strides: Vec<[usize; N]>,
    start: [usize; N],
}

/// The step of each axis in row order.
pub(in crate::interpret) fn row_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// Strides of an operand that is broadcast to `shape` from the right; `None` where it cannot be.
pub(in crate::interpret) fn broadcast_strides(operand: &[usize], shape: &[usize]) -> Option<Vec<usize>> {
    let new = shape.len().checked_sub(operand.len())?;
    let own = row_strides(operand);
    let mut strides = vec![0; new];
    for (i, n) in operand.iter().enumerate() {
        match (*n, shape[new + i]) {
            (n, wanted) if n == wanted => strides.push(own[i]),
            (1, _) => strides.push(0),
            _ => return None,
        }
    }
    Some(strides)
}

impl<const N: usize> View<N> {
    pub fn new(shape: &[usize], strides: [&[usize]; N], start: [usize; N]) -> View<N> {
        let mut dims: Vec<usize> = Vec::new();
        let mut merged: Vec<[usize; N]> = Vec::new();
        for (axis, n) in shape.iter().enumerate() {
            if *n == 1 {
                continue;
            }
            let steps: [usize; N] = std::array::from_fn(|o| strides[o][axis]);
            match (dims.last_mut(), merged.last_mut()) {
                // The axis before steps exactly over this one, in every operand.
                (Some(last), Some(before)) if (0..N).all(|o| before[o] == steps[o] * n) => {
                    *last *= n;
                    *before = steps;
                }
                _ => {
                    dims.push(*n);
                    merged.push(steps);
                }
            }
        }
        if dims.is_empty() {
            dims.push(1);
            merged.push([0; N]);
        }
        View { dims, strides: merged, start }
    }

    /// `visit(starts, steps, length)` for every run, in output order.
    pub fn runs(&self, mut visit: impl FnMut([usize; N], [usize; N], usize)) {
        let inner = self.dims.len() - 1;
        if self.dims.contains(&0) {
            return;
        }
        let mut at = vec![0usize; inner];
        let mut starts = self.start;
        loop {
            visit(starts, self.strides[inner], self.dims[inner]);
            let mut axis = inner;
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                at[axis] += 1;
                for (start, step) in starts.iter_mut().zip(self.strides[axis]) {
                    *start += step;
                }
                if at[axis] < self.dims[axis] {
                    break;
                }
                for (start, step) in starts.iter_mut().zip(self.strides[axis]) {
                    *start -= step * self.dims[axis];
                }
                at[axis] = 0;
            }
        }
    }
}

/// The elements of a view, in output order.
pub(in crate::interpret) fn gather<T: Copy>(from: &[T], shape: &[usize], strides: &[usize], start: usize) -> Vec<T> {
    let mut out = Vec::with_capacity(shape.iter().product());
    View::new(shape, [strides], [start]).runs(|[start], [step], length| match step {
        1 => out.extend_from_slice(&from[start..start + length]),
        0 => out.extend(std::iter::repeat_n(from[start], length)),
        _ => out.extend(from[start..].iter().step_by(step).take(length)),
    });
    out
}

/// `apply` over two operands broadcast to `shape`.
pub(in crate::interpret) fn zip<A: Copy, B: Copy, R>(
    shape: &[usize],
    (a, a_shape): (&[A], &[usize]),
    (b, b_shape): (&[B], &[usize]),
    apply: impl Fn(A, B) -> R,
) -> Result<Vec<R>, String> {
    let strides = |operand: &[usize]| {
        broadcast_strides(operand, shape).ok_or_else(|| format!("{operand:?} does not broadcast to {shape:?}"))
    };
    let (a_strides, b_strides) = (strides(a_shape)?, strides(b_shape)?);
    let mut out = Vec::with_capacity(shape.iter().product());
    View::new(shape, [&a_strides, &b_strides], [0, 0]).runs(|[i, j], steps, length| match steps {
        [1, 1] => out.extend(a[i..i + length].iter().zip(&b[j..j + length]).map(|(x, y)| apply(*x, *y))),
        [1, 0] => out.extend(a[i..i + length].iter().map(|x| apply(*x, b[j]))),
        [0, 1] => out.extend(b[j..j + length].iter().map(|y| apply(a[i], *y))),
        [p, q] => out.extend((0..length).map(|k| apply(a[i + k * p], b[j + k * q]))),
    });
    Ok(out)
}
