//! Choosing by indices that are tensors.

use super::{Call, Primitive, place_of};
use crate::{
    ast,
    check::{
        scope::{Checked, Item, Lowering},
        types::{is_float, tensor_text},
    },
    diagnostic::Code,
    dim::Dim,
    ir::*,
};

pub const TABLE: &[Primitive] = &[
    Primitive {
        name: "take",
        usage: "take(x, ids, axis)",
        doc: "The ids' shape replaces the axis. In range, or the call is an error in debug.",
        stablehlo: "gather",
        mlx: "take",
        rule: take,
    },
    Primitive {
        name: "take_along",
        usage: "take_along(x, ids, axis)",
        doc: "One index per element; the other axes are equal, or 1 in `ids`.",
        stablehlo: "gather",
        mlx: "take_along_axis",
        rule: take_along,
    },
    Primitive {
        name: "top_k",
        usage: "top_k(x, k)",
        doc: "The `k` largest along the last axis, descending, ties to the lower index: values and i32 indices.",
        stablehlo: "composite: sort, slice",
        mlx: "composite: argsort, take_along_axis",
        rule: top_k,
    },
    Primitive {
        name: "size",
        usage: "size(x)",
        doc: "The number of elements, in the condition of a twin.",
        stablehlo: "",
        mlx: "",
        rule: size,
    },
];

fn ids(lowering: &mut Lowering<'_, '_>, expr: &ast::Expr) -> Checked<(ValueId, TensorType)> {
    let (ids, ty) = lowering.tensor(expr)?;
    if ty.dtype != DType::I32 {
        let message = format!("indices are i32, this is {}", tensor_text(&ty));
        return lowering.fail(Code::DtypeMismatch, expr.span, message);
    }
    Ok((ids, ty))
}

fn take(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [x, indices, axis] = lowering.parameters(call, ["x", "ids", "axis"])?;
    let (operand, ty) = lowering.tensor(x)?;
    let (rows, rows_type) = ids(lowering, indices)?;
    let axis = lowering.axis(axis, &ty.shape)?;
    let place = place_of(axis, &ty.shape);
    if rows_type.shape.pack && (ty.shape.pack || place > 0) {
        let message = "the `..` of the indices would stand behind other axes";
        return lowering.fail(Code::RankMismatch, indices.span, message);
    }
    let mut dims = ty.shape.dims[..place].to_vec();
    dims.extend(rows_type.shape.dims);
    dims.extend_from_slice(&ty.shape.dims[place + 1..]);
    let shape = Shape { pack: ty.shape.pack || rows_type.shape.pack, dims };
    let out = TensorType { dtype: ty.dtype, shape };
    Ok(Item::Value(lowering.emit(Prim::Take { axis }, vec![operand, rows], out, call.span)))
}

fn take_along(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [x, indices, axis] = lowering.parameters(call, ["x", "ids", "axis"])?;
    let (operand, ty) = lowering.tensor(x)?;
    let (rows, rows_type) = ids(lowering, indices)?;
    let axis = lowering.axis(axis, &ty.shape)?;
    let place = place_of(axis, &ty.shape);
    if rows_type.shape.pack != ty.shape.pack || rows_type.shape.dims.len() != ty.shape.dims.len() {
        let message = format!(
            "the indices {} have other axes than {}",
            lowering.shape_of(&rows_type.shape),
            lowering.shape_of(&ty.shape)
        );
        return lowering.fail(Code::RankMismatch, indices.span, message);
    }
    for (i, (a, b)) in rows_type.shape.dims.iter().zip(&ty.shape.dims).enumerate() {
        if i != place && !a.is_one() && !lowering.same(a, b) {
            let message = format!(
                "the indices {} do not fit {}",
                lowering.shape_of(&rows_type.shape),
                lowering.shape_of(&ty.shape)
            );
            return lowering.dim_mismatch(message, a, b, indices.span);
        }
    }
    let mut out = ty;
    out.shape.dims[place] = rows_type.shape.dims[place].clone();
    Ok(Item::Value(lowering.emit(Prim::TakeAlong { axis }, vec![operand, rows], out, call.span)))
}

fn top_k(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [x, k] = lowering.parameters(call, ["x", "k"])?;
    let (operand, ty) = lowering.tensor(x)?;
    let count = lowering.load(k)?;
    let count = lowering.coerce(count, &LoadType::Int, "`k` of `top_k`")?;
    let dim = lowering.dim_or_atom(&count);
    if !is_float(ty.dtype) || ty.shape.dims.is_empty() {
        let message = format!("`top_k` takes floats with a last axis, this is {}", tensor_text(&ty));
        return lowering.fail(Code::DtypeMismatch, x.span, message);
    }
    let mut values = ty;
    if lowering.below(&dim, &Dim::int(1), &values.shape.dims) {
        let message = format!("`top_k` takes 1 element or more, this is `{dim}`");
        return lowering.fail(Code::BadAxis, k.span, message);
    }
    if let Some(last) = values.shape.dims.pop()
        && lowering.below(&last, &dim, std::slice::from_ref(&last))
    {
        let message = format!("`top_k` takes `{dim}` elements of an axis of `{last}`");
        return lowering.fail(Code::BadAxis, k.span, message);
    }
    values.shape.dims.push(dim);
    let indices = TensorType { dtype: DType::I32, shape: values.shape.clone() };
    let best = lowering.emit(Prim::TopKValues(count.clone()), vec![operand], values, call.span);
    let at = lowering.emit(Prim::TopKIndices(count), vec![operand], indices, call.span);
    Ok(Item::Tuple(vec![Item::Value(best), Item::Value(at)]))
}

fn size(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [x] = lowering.parameters(call, ["x"])?;
    let (operand, _) = lowering.tensor(x)?;
    if !lowering.in_condition_of_twin {
        return lowering.fail(Code::WrongStage, call.span, "`size(x)` stands only in the `when` of a twin");
    }
    Ok(Item::Load(Load { kind: LoadKind::Size(operand), ty: LoadType::Int, span: call.span }))
}
