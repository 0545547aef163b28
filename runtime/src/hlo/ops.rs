//! The primitives, as methods of the recorder. Meanings are those of [`mgraph_dsl::ir::Prim`].

use mgraph_dsl::ir::{Compare, Reduce};

use super::{
    build::{Build, Matrix, StoredMatrix},
    graph::{Elementwise as E, Op},
    types::{DType, Type, V, axis, bits_of_integer, bits_of_number, broadcast, is_narrow},
};
use crate::generated::Cut;

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident: $op:ident,)*) => { $(
        $(#[$doc])*
        pub fn $name(&mut self, x: V, y: V) -> V {
            self.binary(E::$op, x, y)
        }
    )* };
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident: $op:ident,)*) => { $(
        $(#[$doc])*
        pub fn $name(&mut self, x: V) -> V {
            let ty = self.ty(x).clone();
            self.record(Op::Elementwise(E::$op), vec![x], ty)
        }
    )* };
}

/// Element by element. Operands broadcast from the right.
impl Build {
    binary! {
        add: Add,
        subtract: Subtract,
        multiply: Multiply,
        /// Integers truncate.
        divide: Divide,
        remainder: Remainder,
        /// A NaN wins, as in `maximum`.
        minimum: Minimum,
        maximum: Maximum,
        and: And,
        or: Or,
        shift_left: ShiftLeft,
        /// Logical.
        shift_right: ShiftRight,
    }

    unary! {
        negate: Negate,
        abs: Abs,
        exponential: Exponential,
        log: Log,
        sqrt: Sqrt,
        rsqrt: Rsqrt,
        logistic: Logistic,
        erf: Erf,
        not: Not,
    }

    pub fn tanh(&mut self, x: V) -> V {
        self.single(E::Tanh, x)
    }

    pub fn sine(&mut self, x: V) -> V {
        self.single(E::Sine, x)
    }

    pub fn cosine(&mut self, x: V) -> V {
        self.single(E::Cosine, x)
    }

    /// IREE links no libm, and its compiler expands these of f32 only.
    fn single(&mut self, op: E, x: V) -> V {
        let ty = self.ty(x).clone();
        if ty.dtype == DType::F64 {
            return self.fail(format_args!(
                "IREE has no {op:?} of f64; where f32's accuracy is enough, convert before and after"
            ));
        }
        self.record(Op::Elementwise(op), vec![x], ty)
    }

    fn binary(&mut self, op: E, x: V, y: V) -> V {
        match self.together(op.mlir(), x, y) {
            Some((x, y)) => {
                let ty = self.ty(x).clone();
                self.record(Op::Elementwise(op), vec![x, y], ty)
            }
            None => V(0),
        }
    }

    pub fn compare(&mut self, op: Compare, x: V, y: V) -> V {
        match self.together("compare", x, y) {
            Some((x, y)) => {
                let ty = Type::new(DType::Bool, &self.ty(x).shape);
                self.record(Op::Compare(op), vec![x, y], ty)
            }
            None => V(0),
        }
    }

    /// `x` where `c`, else `y`.
    pub fn select(&mut self, c: V, x: V, y: V) -> V {
        if self.dtype(c) != DType::Bool {
            let ty = self.ty(c).clone();
            return self.fail(format_args!("select chooses by {ty}, which is not bool"));
        }
        let Some((x, y)) = self.together("select", x, y) else { return V(0) };
        let Some(shape) = broadcast(&self.ty(c).shape, &self.ty(x).shape) else {
            let (c, x) = (self.ty(c).clone(), self.ty(x).clone());
            return self.fail(format_args!("select: {c} and {x} do not broadcast"));
        };
        let operands = [c, x, y].map(|v| self.spread(v, &shape)).to_vec();
        let ty = Type::new(self.dtype(x), &shape);
        self.record(Op::Elementwise(E::Select), operands, ty)
    }

    /// To another dtype; nothing where it is the same.
    pub fn convert(&mut self, x: V, dtype: DType) -> V {
        if self.dtype(x) == dtype {
            return x;
        }
        let ty = Type::new(dtype, &self.ty(x).shape);
        self.record(Op::Elementwise(E::Convert), vec![x], ty)
    }

    /// Both operands of one dtype, spread to their common shape.
    fn together(&mut self, op: &str, x: V, y: V) -> Option<(V, V)> {
        if self.dtype(x) != self.dtype(y) {
            let (x, y) = (self.ty(x).clone(), self.ty(y).clone());
            self.fail(format_args!("{op}: {x} and {y} have different dtypes"));
            return None;
        }
        let Some(shape) = broadcast(&self.ty(x).shape, &self.ty(y).shape) else {
            let (x, y) = (self.ty(x).clone(), self.ty(y).clone());
            self.fail(format_args!("{op}: {x} and {y} do not broadcast"));
            return None;
        };
        Some((self.spread(x, &shape), self.spread(y, &shape)))
    }

    fn spread(&mut self, x: V, shape: &[i64]) -> V {
        if self.ty(x).shape == shape {
            return x;
        }
        let rank = self.ty(x).rank();
        let axes = (shape.len() - rank..shape.len()).collect();
        let ty = Type::new(self.dtype(x), shape);
        self.record(Op::Broadcast(axes), vec![x], ty)
    }
}

/// Constants.
impl Build {
    /// A scalar, rounded once.
    pub fn number(&mut self, value: f64, dtype: DType) -> V {
        self.record(Op::Constant(vec![bits_of_number(value, dtype)]), Vec::new(), Type::new(dtype, &[]))
    }

    /// A scalar, exact.
    pub fn integer(&mut self, value: i64, dtype: DType) -> V {
        match bits_of_integer(value, dtype) {
            Some(bits) => self.record(Op::Constant(vec![bits]), Vec::new(), Type::new(dtype, &[])),
            None => self.fail(format_args!("{value} does not fit {dtype:?}")),
        }
    }

    /// A vector, each number rounded once.
    pub fn numbers(&mut self, values: &[f64], dtype: DType) -> V {
        let bits = values.iter().map(|v| bits_of_number(*v, dtype)).collect();
        self.record(Op::Constant(bits), Vec::new(), Type::new(dtype, &[values.len() as i64]))
    }

    /// A vector, exact.
    pub fn integers(&mut self, values: &[i64], dtype: DType) -> V {
        match values.iter().map(|v| bits_of_integer(*v, dtype)).collect() {
            Some(bits) => self.record(Op::Constant(bits), Vec::new(), Type::new(dtype, &[values.len() as i64])),
            None => self.fail(format_args!("one of {values:?} does not fit {dtype:?}")),
        }
    }

    /// i32, `0..n`.
    pub fn iota(&mut self, n: i64) -> V {
        if n < 0 {
            return self.fail(format_args!("iota of {n} elements"));
        }
        self.record(Op::Iota, Vec::new(), Type::new(DType::I32, &[n]))
    }
}

/// Shape.
impl Build {
    pub fn reshape(&mut self, x: V, shape: &[i64]) -> V {
        let ty = Type::new(self.dtype(x), shape);
        if shape.iter().any(|d| *d < 0) || ty.elements() != self.ty(x).elements() {
            let from = self.ty(x).clone();
            return self.fail(format_args!("reshape of {from} to {shape:?}"));
        }
        self.record(Op::Reshape, vec![x], ty)
    }

    /// `permutation[i]` is the axis that becomes axis `i`, of as many trailing axes as there are entries; leading ones stay.
    pub fn transpose(&mut self, x: V, permutation: &[usize]) -> V {
        let from = self.ty(x).clone();
        let leading = from.rank().saturating_sub(permutation.len());
        let permutation: Vec<usize> = (0..leading).chain(permutation.iter().map(|axis| leading + axis)).collect();
        let mut sorted = permutation.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..from.rank()) {
            return self.fail(format_args!("transpose of {from} by {permutation:?}"));
        }
        let shape: Vec<i64> = permutation.iter().map(|at| from.shape[*at]).collect();
        self.record(Op::Transpose(permutation), vec![x], Type::new(from.dtype, &shape))
    }

    /// Repeat along axes of size 1 and new leading axes.
    pub fn broadcast(&mut self, x: V, shape: &[i64]) -> V {
        if broadcast(&self.ty(x).shape, shape).as_deref() != Some(shape) {
            let from = self.ty(x).clone();
            return self.fail(format_args!("broadcast of {from} to {shape:?}"));
        }
        self.spread(x, shape)
    }

    pub fn concat(&mut self, xs: &[V], at: i32) -> V {
        let Some(first) = xs.first().map(|x| self.ty(*x).clone()) else {
            return self.fail(format_args!("concat of nothing"));
        };
        let Some(at) = axis(at, first.rank()) else {
            return self.fail(format_args!("concat of {first} along axis {at}"));
        };
        let mut shape = first.shape.clone();
        shape[at] = 0;
        for x in xs {
            let ty = self.ty(*x).clone();
            let agrees = ty.rank() == first.rank()
                && ty.dtype == first.dtype
                && (0..ty.rank()).all(|i| i == at || ty.shape[i] == first.shape[i]);
            if !agrees {
                return self.fail(format_args!("concat of {first} and {ty} along axis {at}"));
            }
            shape[at] += ty.shape[at];
        }
        self.record(Op::Concatenate(at), xs.to_vec(), Type::new(first.dtype, &shape))
    }

    /// `start..end` for every axis.
    pub fn slice(&mut self, x: V, ranges: &[(i64, i64)]) -> V {
        let from = self.ty(x).clone();
        let inside = ranges.len() == from.rank()
            && ranges.iter().zip(&from.shape).all(|((start, end), dim)| 0 <= *start && start <= end && end <= dim);
        if !inside {
            return self.fail(format_args!("slice of {from} at {ranges:?}"));
        }
        let shape: Vec<i64> = ranges.iter().map(|(start, end)| end - start).collect();
        self.record(Op::Slice(ranges.to_vec()), vec![x], Type::new(from.dtype, &shape))
    }

    /// Slices the trailing axes, one cut each; the leading ones stay whole.
    pub fn cut(&mut self, x: V, cuts: &[Cut]) -> V {
        let shape = self.shape(x);
        let leading = shape.len().saturating_sub(cuts.len());
        let mut ranges = Vec::with_capacity(shape.len());
        let mut kept = Vec::with_capacity(shape.len());
        for (axis, size) in shape.iter().enumerate() {
            let cut = axis.checked_sub(leading).and_then(|i| cuts.get(i)).unwrap_or(&Cut::Whole);
            let (low, high) = match cut {
                Cut::Whole => (0, *size),
                Cut::Range(low, high) => (*low, *high),
                Cut::At(index) => (*index, *index + 1),
            };
            ranges.push((low, high));
            if !matches!(cut, Cut::At(_)) {
                kept.push(high - low);
            }
        }
        // The whole of every axis is no slice.
        let whole = ranges.iter().zip(&shape).all(|(range, size)| *range == (0, *size));
        let cut = if whole { x } else { self.slice(x, &ranges) };
        if kept.len() == shape.len() { cut } else { self.reshape(cut, &kept) }
    }
}

/// Reductions. The axes stay with size 1.
impl Build {
    pub fn sum(&mut self, x: V, axes: &[i32]) -> V {
        if is_narrow(self.dtype(x)) {
            let ty = self.ty(x).clone();
            return self.fail(format_args!("sum of {ty}: sums are kept in f32 or wider"));
        }
        self.reduce(Reduce::Sum, x, axes)
    }

    /// A NaN wins.
    pub fn maximum_along(&mut self, x: V, axes: &[i32]) -> V {
        self.reduce(Reduce::Maximum, x, axes)
    }

    pub fn any_along(&mut self, x: V, axes: &[i32]) -> V {
        self.reduce(Reduce::Any, x, axes)
    }

    fn reduce(&mut self, op: Reduce, x: V, axes: &[i32]) -> V {
        let from = self.ty(x).clone();
        let Some(mut at) = axes.iter().map(|a| axis(*a, from.rank())).collect::<Option<Vec<usize>>>() else {
            return self.fail(format_args!("{op:?} of {from} along {axes:?}"));
        };
        at.sort_unstable();
        at.dedup();
        let bool_only = op == Reduce::Any;
        if at.len() != axes.len() || (from.dtype == DType::Bool) != bool_only {
            return self.fail(format_args!("{op:?} of {from} along {axes:?}"));
        }
        let rest: Vec<i64> = (0..from.rank()).filter(|i| !at.contains(i)).map(|i| from.shape[i]).collect();
        let kept: Vec<i64> = (0..from.rank()).map(|i| if at.contains(&i) { 1 } else { from.shape[i] }).collect();
        let reduced = self.record(Op::Reduce(op, at), vec![x], Type::new(from.dtype, &rest));
        self.reshape(reduced, &kept)
    }
}

/// Products of matrices.
impl Build {
    /// Last axis against last axis; `w` has two axes, or the same leading ones as `x`.
    pub fn dot(&mut self, x: V, w: V) -> V {
        let (left, right) = (self.ty(x).clone(), self.ty(w).clone());
        let batch = if right.rank() == 2 { 0 } else { right.rank().saturating_sub(2) };
        let fits = left.rank() >= 1
            && right.rank() >= 2
            && left.shape.last() == right.shape.last()
            && (batch == 0 || (left.rank() == right.rank() && left.shape[..batch] == right.shape[..batch]));
        if !fits {
            return self.fail(format_args!("dot of {left} and {right}"));
        }
        let shape = [&left.shape[..left.rank() - 1], &[right.shape[batch]]].concat();
        self.contract("dot", x, w, batch, (left.rank() - 1, right.rank() - 1), &shape)
    }

    /// Last axis against last but one; equal leading axes.
    pub fn matmul(&mut self, x: V, y: V) -> V {
        let (left, right) = (self.ty(x).clone(), self.ty(y).clone());
        let rank = left.rank();
        let fits = rank >= 2
            && rank == right.rank()
            && left.shape[..rank - 2] == right.shape[..rank - 2]
            && left.shape[rank - 1] == right.shape[rank - 2];
        if !fits {
            return self.fail(format_args!("matmul of {left} and {right}"));
        }
        let shape = [&left.shape[..rank - 1], &[right.shape[rank - 1]]].concat();
        self.contract("matmul", x, y, rank - 2, (rank - 1, rank - 2), &shape)
    }

    /// Narrow floats accumulate in f32 and are rounded once.
    fn contract(&mut self, op: &str, x: V, y: V, batch: usize, contract: (usize, usize), shape: &[i64]) -> V {
        let dtype = self.dtype(x);
        if dtype != self.dtype(y) || !dtype.is_float() {
            let (x, y) = (self.ty(x).clone(), self.ty(y).clone());
            return self.fail(format_args!("{op} of {x} and {y}: both must have one float dtype"));
        }
        let summed = self.ty(x).shape[contract.0];
        if summed == 0 || shape.contains(&0) {
            return self.zeros(dtype, shape);
        }
        let wide = if is_narrow(dtype) { DType::F32 } else { dtype };
        let product = self.record(Op::Dot { batch, contract }, vec![x, y], Type::new(wide, shape));
        self.convert(product, dtype)
    }

    /// What sums of no terms are, and tensors of no elements: IREE's compiler divides by such a size in a product, and StableHLO
    /// lets no gather slice one.
    fn zeros(&mut self, dtype: DType, shape: &[i64]) -> V {
        let zero = if dtype.is_float() { self.number(0.0, dtype) } else { self.integer(0, dtype) };
        self.broadcast(zero, shape)
    }
}

/// Indexing, and the largest.
impl Build {
    /// The shape of `ids` replaces the axis. An index out of range is clamped.
    pub fn take(&mut self, x: V, ids: V, at: i32) -> V {
        let (from, by) = (self.ty(x).clone(), self.ty(ids).clone());
        let Some(at) = axis(at, from.rank()).filter(|_| matches!(by.dtype, DType::I32 | DType::U32)) else {
            return self.fail(format_args!("take from {from} by {by} along axis {at}"));
        };
        let shape = [&from.shape[..at], &by.shape, &from.shape[at + 1..]].concat();
        if shape.contains(&0) {
            return self.zeros(from.dtype, &shape);
        }
        self.record(Op::Take(at), vec![x, ids], Type::new(from.dtype, &shape))
    }

    /// One index per element; other axes equal, or 1 in `ids`. An index out of range is clamped.
    pub fn take_along(&mut self, x: V, ids: V, at: i32) -> V {
        let (from, by) = (self.ty(x).clone(), self.ty(ids).clone());
        let fits = |at: &usize| {
            by.dtype == DType::I32
                && by.rank() == from.rank()
                && (0..by.rank()).all(|i| i == *at || by.shape[i] == from.shape[i] || by.shape[i] == 1)
        };
        let Some(at) = axis(at, from.rank()).filter(fits) else {
            return self.fail(format_args!("take_along from {from} by {by} along axis {at}"));
        };
        let whole: Vec<usize> = (0..by.rank()).filter(|i| *i != at && by.shape[*i] != from.shape[*i]).collect();
        let mut index: Vec<i64> = (0..by.rank()).filter(|i| !whole.contains(i)).map(|i| by.shape[i]).collect();
        index.push(1);
        let mut shape = from.shape.clone();
        shape[at] = by.shape[at];
        if shape.contains(&0) {
            return self.zeros(from.dtype, &shape);
        }
        let index = self.reshape(ids, &index);
        self.record(Op::TakeAlong { axis: at, whole }, vec![x, index], Type::new(from.dtype, &shape))
    }

    /// The `k` largest along the last axis, descending.
    pub fn top_k_values(&mut self, x: V, k: i64) -> V {
        self.top_k(x, k, Op::TopKValues(k), self.dtype(x))
    }

    /// Where the `k` largest are, i32; ties to the lower index.
    pub fn top_k_indices(&mut self, x: V, k: i64) -> V {
        self.top_k(x, k, Op::TopKIndices(k), DType::I32)
    }

    fn top_k(&mut self, x: V, k: i64, op: Op, dtype: DType) -> V {
        let from = self.ty(x).clone();
        match from.shape.split_last() {
            Some((last, leading)) if (1..=*last).contains(&k) && from.dtype != DType::Bool => {
                self.record(op, vec![x], Type::new(dtype, &[leading, &[k]].concat()))
            }
            _ => self.fail(format_args!("top_k of {from} with k = {k}")),
        }
    }

    /// Token `s` of row `b` of `x` goes to `positions[b, s]` along the axis. Positions of a row are consecutive, so a row is
    /// one write at its first position; a row that would reach past the end is moved back to fit.
    pub fn update(&mut self, state: V, x: V, positions: V, at: i32) -> V {
        let (whole, part, by) = (self.ty(state).clone(), self.ty(x).clone(), self.ty(positions).clone());
        let fits = |at: &usize| {
            *at != 0
                && whole.dtype == part.dtype
                && whole.rank() == part.rank()
                && (0..whole.rank()).all(|i| i == *at || whole.shape[i] == part.shape[i])
                && part.shape[*at] <= whole.shape[*at]
                && by == Type::new(DType::I32, &[part.shape[0], part.shape[*at]])
        };
        let Some(at) = axis(at, whole.rank()).filter(fits) else {
            return self.fail(format_args!("update of {whole} with {part} at {by} along axis {at}"));
        };
        if part.elements() == 0 {
            return state;
        }
        let rows = part.shape[0];
        let zero = self.integer(0, DType::I32);
        let mut positions = positions;
        if let Some(first) = self.first_of(state) {
            let first = self.reshape(first, &[rows, 1]);
            positions = self.subtract(positions, first);
        }
        let old = state;
        let mut state = state;
        for row in 0..rows {
            let mut ranges: Vec<(i64, i64)> = part.shape.iter().map(|d| (0, *d)).collect();
            ranges[0] = (row, row + 1);
            let tokens = if rows == 1 { x } else { self.slice(x, &ranges) };
            let first = self.slice(positions, &[(row, row + 1), (0, 1)]);
            let first = self.reshape(first, &[]);
            let mut operands = vec![state, tokens];
            operands.resize(2 + whole.rank(), zero);
            operands[2] = self.integer(row, DType::I32);
            operands[2 + at] = first;
            state = self.record(Op::Write, operands, whole.clone());
        }
        self.holds_as(state, old);
        state
    }
}

/// Matrices.
impl Build {
    /// The matrix as a tensor; only where it is dense.
    pub fn dense(&mut self, matrix: &Matrix) -> V {
        match matrix.stored() {
            StoredMatrix::Dense(v) => v,
            StoredMatrix::Packed { .. } => self.fail(format_args!("a packed matrix is used as a dense one")),
        }
    }

    /// u32 `[.., n, k * bits / 32]`; only where the matrix is packed, as the next three.
    pub fn codes(&mut self, matrix: &Matrix) -> V {
        match matrix.stored() {
            StoredMatrix::Packed { codes, .. } => codes,
            StoredMatrix::Dense(_) => self.fail(format_args!("the codes of a dense matrix")),
        }
    }

    /// u8 `[.., n, k * bits / 8]`: the words' bytes, lowest first.
    pub fn bytes(&mut self, matrix: &Matrix) -> V {
        match matrix.stored() {
            StoredMatrix::Packed { bytes, .. } => bytes,
            StoredMatrix::Dense(_) => self.fail(format_args!("the bytes of a dense matrix")),
        }
    }

    /// `F[.., n, k / group]`
    pub fn scales(&mut self, matrix: &Matrix) -> V {
        match matrix.stored() {
            StoredMatrix::Packed { scales, .. } => scales,
            StoredMatrix::Dense(_) => self.fail(format_args!("the scales of a dense matrix")),
        }
    }

    /// `F[.., n, k / group]`
    pub fn biases(&mut self, matrix: &Matrix) -> V {
        match matrix.stored() {
            StoredMatrix::Packed { biases, .. } => biases,
            StoredMatrix::Dense(_) => self.fail(format_args!("the biases of a dense matrix")),
        }
    }

    /// The rows (first axis) of a matrix: one per id, in the shape of `ids`.
    pub fn rows(&mut self, matrix: &Matrix, ids: V) -> Matrix {
        let shape = [&self.ty(ids).shape, matrix.shape().get(1..).unwrap_or_default()].concat();
        let stored = match matrix.stored() {
            StoredMatrix::Dense(v) => StoredMatrix::Dense(self.take(v, ids, 0)),
            StoredMatrix::Packed { codes, bytes, scales, biases, bits, group } => StoredMatrix::Packed {
                codes: self.take(codes, ids, 0),
                bytes: self.take(bytes, ids, 0),
                scales: self.take(scales, ids, 0),
                biases: self.take(biases, ids, 0),
                bits,
                group,
            },
        };
        Matrix::new(shape, stored)
    }
}
