//! The same elements elsewhere: reshape, transpose, broadcast, concatenation, slices.

use super::{Call, Primitive, place_of};
use crate::{
    ast::{self, ExprKind},
    check::scope::{Checked, Item, Lowering, Reported},
    diagnostic::{Code, Diagnostic},
    dim::Dim,
    ir::*,
    source::Span,
};

pub const TABLE: &[Primitive] = &[
    Primitive {
        name: "reshape",
        usage: "reshape(x, [..])",
        doc: "The same elements in row order. Splits an axis or merges neighbours; axes of size 1 come and go freely.",
        stablehlo: "reshape",
        mlx: "reshape",
        rule: reshape,
    },
    Primitive {
        name: "transpose",
        usage: "transpose(x, [..])",
        doc: "Axis `i` of the result is axis `axes[i]` of `x`. Behind `..` axes count from the back: `[.., -1, -2]`.",
        stablehlo: "transpose",
        mlx: "transpose_axes",
        rule: transpose,
    },
    Primitive {
        name: "broadcast",
        usage: "broadcast(x, [..])",
        doc: "Repeats along axes of size 1 and new leading axes.",
        stablehlo: "broadcast_in_dim",
        mlx: "broadcast_to",
        rule: broadcast,
    },
    Primitive {
        name: "concat",
        usage: "concat([..], axis)",
        doc: "One after the other along an axis.",
        stablehlo: "concatenate",
        mlx: "concatenate",
        rule: concat,
    },
    Primitive {
        name: "split",
        usage: "split(x, sizes)",
        doc: "Cuts the last axis.",
        stablehlo: "slice",
        mlx: "index",
        rule: split,
    },
];

/// A shape written as an argument.
fn shape_argument(lowering: &mut Lowering<'_, '_>, expr: &ast::Expr) -> Checked<Shape> {
    match &expr.kind {
        ExprKind::List(dims) => lowering.shape(dims),
        _ => lowering.fail(Code::TypeMismatch, expr.span, "a shape is written as a list, `[B, S, width]`"),
    }
}

fn reshape(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [x, shape] = lowering.parameters(call, ["x", "shape"])?;
    let operand = lowering.tensor(x);
    let to = shape_argument(lowering, shape)?;
    let (operand, ty) = operand?;
    if ty.shape.pack != to.pack {
        let message = format!(
            "cannot prove that {} and {} have the same elements: only one has `..`",
            lowering.shape_of(&ty.shape),
            lowering.shape_of(&to)
        );
        return lowering.fail(Code::DimMismatch, call.span, message);
    }
    lowering.check_reshape(&ty.shape, &to, call.span)?;
    let out = TensorType { dtype: ty.dtype, shape: to };
    Ok(Item::Value(lowering.emit(Prim::Reshape, vec![operand], out, call.span)))
}

impl Lowering<'_, '_> {
    /// Equal element counts, and no regrouping: walking both shapes from the left, the shortest runs of equal product
    /// have one axis on one of the sides.
    fn check_reshape(&mut self, from: &Shape, to: &Shape, span: Span) -> Checked<()> {
        let (a, b) = (Dim::product(&from.dims), Dim::product(&to.dims));
        let (a, b) = (self.sound(a, span)?, self.sound(b, span)?);
        if !self.same(&a, &b) {
            let message = format!("reshape of {} to {}: other element counts", self.shape_of(from), self.shape_of(to));
            return self.dim_mismatch(message, &a, &b, span);
        }
        let kept = |shape: &Shape| shape.dims.iter().filter(|d| !d.is_one()).cloned().collect::<Vec<_>>();
        let (from_dims, to_dims) = (kept(from), kept(to));
        let (mut x, mut y) = (from_dims.as_slice(), to_dims.as_slice());
        while !x.is_empty() && !y.is_empty() {
            let Some((p, q)) = self.shortest_run(x, y) else { break };
            if p > 1 && q > 1 {
                let text = |dims: &[Dim]| dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
                let message = format!("this reshape regroups [{}] into [{}]", text(&x[..p]), text(&y[..q]));
                return Err(self.error(
                    Diagnostic::new(Code::RegroupingReshape, span, message).label("neither a split nor a merge").help(
                        "if a transpose is missing, add it; if the regrouping is meant, say it with two reshapes",
                    ),
                ));
            }
            (x, y) = (&x[p..], &y[q..]);
        }
        Ok(())
    }

    fn shortest_run(&self, x: &[Dim], y: &[Dim]) -> Option<(usize, usize)> {
        for n in 2..=x.len() + y.len() {
            for p in 1..n {
                let q = n - p;
                if p <= x.len() && q <= y.len() {
                    let (Ok(a), Ok(b)) = (Dim::product(&x[..p]), Dim::product(&y[..q])) else { continue };
                    if self.same(&a, &b) {
                        return Some((p, q));
                    }
                }
            }
        }
        None
    }
}

fn transpose(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [x, axes] = lowering.parameters(call, ["x", "axes"])?;
    let (operand, ty) = lowering.tensor(x)?;
    let ExprKind::List(items) = &axes.kind else {
        return lowering.fail(Code::BadAxis, axes.span, "the axes are a list of integer literals");
    };
    let rest = matches!(items.first(), Some(ast::DimExpr::Rest(_)));
    if ty.shape.pack && !rest {
        return Err(lowering.error(
            Diagnostic::new(Code::BadAxis, axes.span, "axes behind `..` have no number").help(
                "write `..` first, which leaves the leading axes as they are, and count the others from the back: `[.., -1, -2]`",
            ),
        ));
    }
    let mut permutation = Vec::new();
    for item in &items[usize::from(rest)..] {
        match item {
            ast::DimExpr::Rest(at) => {
                return lowering.fail(Code::BadAxis, *at, "`..` stands for the leading axes, so it comes first");
            }
            ast::DimExpr::Dim(axis) => {
                let axis = lowering.axis(axis, &ty.shape)?;
                permutation.push(place_of(axis, &ty.shape));
            }
        }
    }
    let rank = ty.shape.dims.len();
    let stay = if rest { rank.saturating_sub(permutation.len()) } else { 0 };
    let mut sorted = permutation.clone();
    sorted.sort_unstable();
    if sorted != (stay..rank).collect::<Vec<_>>() {
        let message = format!("the axes of {} in another order are needed, each once", lowering.shape_of(&ty.shape));
        return lowering.fail(Code::BadAxis, axes.span, message);
    }
    let moved = permutation.iter().map(|i| ty.shape.dims[*i].clone());
    let dims = ty.shape.dims[..stay].iter().cloned().chain(moved).collect();
    permutation.iter_mut().for_each(|axis| *axis -= stay);
    let out = TensorType { dtype: ty.dtype, shape: Shape { pack: ty.shape.pack, dims } };
    Ok(Item::Value(lowering.emit(Prim::Transpose(permutation), vec![operand], out, call.span)))
}

fn broadcast(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [x, shape] = lowering.parameters(call, ["x", "shape"])?;
    let operand = lowering.tensor(x);
    let to = shape_argument(lowering, shape)?;
    let (operand, ty) = operand?;
    let both = lowering.broadcast(&ty.shape, &to, "broadcast", call.span)?;
    if !lowering.same_shape(&both, &to) {
        let message = format!("{} cannot be repeated to {}", lowering.shape_of(&ty.shape), lowering.shape_of(&to));
        return lowering.fail(Code::DimMismatch, call.span, message);
    }
    let out = TensorType { dtype: ty.dtype, shape: to };
    Ok(Item::Value(lowering.emit(Prim::Broadcast, vec![operand], out, call.span)))
}

fn concat(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [parts, axis] = lowering.parameters(call, ["parts", "axis"])?;
    let items = match lowering.expr(parts)? {
        Item::List(items) => items,
        Item::Value(list) if matches!(lowering.ty(list), Type::List { .. }) => {
            return concat_list(lowering, list, axis, call.span);
        }
        other => {
            let found = lowering.describe(&other);
            let message = format!("`concat` takes a list of tensors, this is {found}");
            return lowering.fail(Code::TypeMismatch, parts.span, message);
        }
    };
    // Where each part is written, for messages.
    let written: Vec<Span> = match &parts.kind {
        ExprKind::List(list) => list
            .iter()
            .map(|dim| match dim {
                ast::DimExpr::Dim(part) => part.span,
                ast::DimExpr::Rest(span) => *span,
            })
            .collect(),
        _ => vec![parts.span; items.len()],
    };
    let mut values = Vec::new();
    for (item, span) in items.into_iter().zip(&written) {
        values.extend(lowering.values_of(item, *span)?);
    }
    let Some(first) = values.first().copied() else {
        return lowering.fail(Code::TypeMismatch, parts.span, "`concat` needs at least one tensor");
    };
    let first = lowering.tensor_type(first, parts.span)?;
    let axis = lowering.axis(axis, &first.shape)?;
    let place = place_of(axis, &first.shape);
    let mut total = first.shape.dims[place].clone();
    for (i, value) in values.iter().enumerate().skip(1) {
        let ty = lowering.tensor_type(*value, parts.span)?;
        let at = written.get(i).copied().unwrap_or(parts.span);
        if ty.dtype != first.dtype {
            let message = format!("`concat` meets {} and {}", first.dtype.name(), ty.dtype.name());
            return lowering.fail(Code::DtypeMismatch, at, message);
        }
        if ty.shape.pack != first.shape.pack || ty.shape.dims.len() != first.shape.dims.len() {
            let message =
                format!("`concat` meets {} and {}", lowering.shape_of(&first.shape), lowering.shape_of(&ty.shape));
            return lowering.fail(Code::RankMismatch, at, message);
        }
        for (i, (a, b)) in ty.shape.dims.iter().zip(&first.shape.dims).enumerate() {
            if i != place && !lowering.same(a, b) {
                let message =
                    format!("`concat` meets {} and {}", lowering.shape_of(&first.shape), lowering.shape_of(&ty.shape));
                return lowering.dim_mismatch(message, a, b, at);
            }
        }
        let sum = total.plus(&ty.shape.dims[place]);
        total = lowering.sound(sum, call.span)?;
    }
    let mut out = first;
    out.shape.dims[place] = total;
    Ok(Item::Value(lowering.emit(Prim::Concat { axis }, values, out, call.span)))
}

/// Of a list value: all items have one shape, so the axis is multiplied by the length.
fn concat_list(lowering: &mut Lowering<'_, '_>, list: ValueId, axis: &ast::Expr, span: Span) -> Checked<Item> {
    let Type::List { item, length } = lowering.ty(list).clone() else { return Err(Reported) };
    let axis = lowering.axis(axis, &item.shape)?;
    let place = place_of(axis, &item.shape);
    let mut out = item;
    let total = out.shape.dims[place].times(&length);
    out.shape.dims[place] = lowering.sound(total, span)?;
    Ok(Item::Value(lowering.emit(Prim::ConcatList { axis }, vec![list], out, span)))
}

fn split(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [x, sizes] = lowering.parameters(call, ["x", "sizes"])?;
    let operand = lowering.tensor(x);
    let ExprKind::List(sizes_written) = &sizes.kind else {
        return lowering.fail(Code::TypeMismatch, sizes.span, "the sizes are a list, `[a, b]`");
    };
    let cuts = lowering.shape(sizes_written)?;
    let (operand, ty) = operand?;
    let Some(last) = ty.shape.dims.last().cloned() else {
        return lowering.fail(Code::RankMismatch, x.span, "`split` cuts the last axis, and this has none");
    };
    let mut outs = Vec::new();
    let mut low = Dim::int(0);
    for size in &cuts.dims {
        let high = low.plus(size);
        let high = lowering.sound(high, sizes.span)?;
        let mut slots = vec![SliceSlot::Whole; ty.shape.dims.len() - 1];
        slots.push(SliceSlot::Range(lowering.number(&low, sizes.span), lowering.number(&high, sizes.span)));
        let mut out = ty.clone();
        out.shape.dims.pop();
        out.shape.dims.push(size.clone());
        outs.push(Item::Value(lowering.emit(Prim::Slice(slots), vec![operand], out, call.span)));
        low = high;
    }
    if !lowering.same(&low, &last) {
        let message = format!("the sizes add up to `{low}`, the last axis has `{last}`");
        return lowering.dim_mismatch(message, &low, &last, sizes.span);
    }
    Ok(Item::Tuple(outs))
}

impl Lowering<'_, '_> {
    /// `x[.., a..b, _, 3]`
    pub(crate) fn slice(
        &mut self,
        operand: ValueId,
        ty: TensorType,
        slots: &[ast::Slot],
        span: Span,
    ) -> Checked<ValueId> {
        let rest = matches!(slots.first(), Some(ast::Slot::Rest(_)));
        let written = &slots[usize::from(rest)..];
        let rank = ty.shape.dims.len();
        if written.len() > rank || (!rest && (ty.shape.pack || written.len() != rank)) {
            let slots = if written.len() == 1 { "one slot".into() } else { format!("{} slots", written.len()) };
            let message = format!("{slots} for {}", self.shape_of(&ty.shape));
            let mut error = Diagnostic::new(Code::RankMismatch, span, message);
            if !rest {
                error = error.help("`..` in front stands for the axes that are not listed");
            }
            return Err(self.error(error));
        }
        let skipped = rank - written.len();
        let mut checked = vec![SliceSlot::Whole; skipped];
        let mut dims = ty.shape.dims[..skipped].to_vec();
        for (slot, dim) in written.iter().zip(&ty.shape.dims[skipped..]) {
            match slot {
                ast::Slot::Rest(at) => {
                    return self.fail(Code::RankMismatch, *at, "`..` stands for the leading axes, so it comes first");
                }
                ast::Slot::Whole(_) => {
                    checked.push(SliceSlot::Whole);
                    dims.push(dim.clone());
                }
                ast::Slot::Range(low, high) => {
                    let (a, b) = (self.dim(low)?, self.dim(high)?);
                    let size = b.minus(&a);
                    let size = self.sound(size, high.span)?;
                    self.check_bounds(&a, &b, dim, &ty.shape.dims, low.span.to(high.span))?;
                    checked.push(SliceSlot::Range(self.number(&a, low.span), self.number(&b, high.span)));
                    dims.push(size);
                }
                ast::Slot::At(at) => {
                    let value = self.load(at)?;
                    let value = self.coerce(value, &LoadType::Int, "an index")?;
                    let index = self.dim_or_atom(&value);
                    if self.below(&index, &Dim::int(0), &ty.shape.dims) {
                        return self.fail(Code::BadAxis, at.span, "indices count from 0");
                    }
                    let behind = index.plus(&Dim::int(1)).is_ok_and(|end| self.below(dim, &end, &ty.shape.dims));
                    if behind {
                        let message = format!("there is no item {index} in an axis of {dim}");
                        return self.fail(Code::BadAxis, at.span, message);
                    }
                    checked.push(SliceSlot::At(value));
                }
            }
        }
        let out = TensorType { dtype: ty.dtype, shape: Shape { pack: ty.shape.pack, dims } };
        Ok(self.emit(Prim::Slice(checked), vec![operand], out, span))
    }

    /// What can be known of bounds at build; the rest is checked when the sizes are known.
    fn check_bounds(&mut self, low: &Dim, high: &Dim, size: &Dim, axes: &[Dim], span: Span) -> Checked<()> {
        let why = if self.below(low, &Dim::int(0), axes) {
            "elements count from 0"
        } else if self.below(size, high, axes) {
            "it ends behind the axis"
        } else if self.below(high, low, axes) {
            "it ends before it begins"
        } else {
            return Ok(());
        };
        let message = format!("{low}..{high} is no part of an axis of {size}");
        Err(self.error(Diagnostic::new(Code::BadAxis, span, message).label(why)))
    }
}
