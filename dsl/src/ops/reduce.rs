//! Reductions. What was reduced stays as an axis of size 1, so that it always broadcasts back.

use super::{Call, Primitive, place_of};
use crate::{
    ast::ExprKind,
    check::{
        scope::{Checked, Item, Lowering},
        types::{is_float, is_integer, tensor_text},
    },
    diagnostic::{Code, Diagnostic},
    dim::Dim,
    ir::*,
};

pub const TABLE: &[Primitive] = &[
    Primitive {
        name: "sum",
        usage: "sum(x, axis)",
        doc: "f32, f64, i32 or u32, so that the width of the sum is always written; axis or list of axes.",
        stablehlo: "reduce add",
        mlx: "sum (keep_dims)",
        rule: reduce,
    },
    Primitive {
        name: "maximum",
        usage: "maximum(x, axis)",
        doc: "The largest; a NaN wins.",
        stablehlo: "reduce maximum",
        mlx: "max (keep_dims)",
        rule: reduce,
    },
    Primitive {
        name: "any",
        usage: "any(x, axis)",
        doc: "Whether one of the bools holds.",
        stablehlo: "reduce or",
        mlx: "any (keep_dims)",
        rule: reduce,
    },
];

fn reduce(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    // `sum(list)` and `maximum(list)` are load functions.
    if let [only] = call.arguments
        && only.name.is_none()
    {
        if let Item::Load(value) = lowering.expr(&only.value)?
            && let Some((function, _)) = crate::check::load_function(call.name)
        {
            return Ok(Item::Load(lowering.load_call(function, vec![value], call.span)?));
        }
        let message = format!("`{}` of a tensor needs an axis", call.name);
        return Err(lowering.error(
            Diagnostic::new(Code::WrongArguments, call.span, message)
                .help(format!("write `{}(x, axis = -1)`", call.name)),
        ));
    }
    let [x, axis] = lowering.parameters(call, ["x", "axis"])?;
    let (operand, ty) = lowering.tensor(x)?;
    let axes = match &axis.kind {
        ExprKind::List(_) => {
            if matches!(&axis.kind, ExprKind::List(items) if items.is_empty()) {
                let message = format!("`{}` over no axis leaves `x` as it is", call.name);
                return lowering.fail(Code::BadAxis, axis.span, message);
            }
            let list = lowering.load(axis)?;
            let LoadKind::List(items) = &list.kind else {
                return lowering.fail(Code::BadAxis, axis.span, "the axes are a list of integer literals");
            };
            items.iter().map(|i| lowering.axis_of(i, &ty.shape)).collect::<Checked<Vec<_>>>()?
        }
        _ => vec![lowering.axis(axis, &ty.shape)?],
    };
    let op = match call.name {
        "sum" if matches!(ty.dtype, DType::F32 | DType::F64 | DType::I32 | DType::U32) => Reduce::Sum,
        "sum" if ty.dtype == DType::U8 => {
            return Err(lowering.error(
                Diagnostic::new(Code::DtypeMismatch, x.span, format!("`sum` of {} wraps at 256", tensor_text(&ty)))
                    .help("write `sum(i32(x), ..)`"),
            ));
        }
        "sum" if is_float(ty.dtype) => {
            return Err(lowering.error(
                Diagnostic::new(Code::NarrowSum, x.span, format!("`sum` of {}, which may be narrow", tensor_text(&ty)))
                    .label("rounded at every step")
                    .help("write `sum(f32(x), ..)`, and round the result once"),
            ));
        }
        "maximum" if is_float(ty.dtype) || is_integer(ty.dtype) => Reduce::Maximum,
        "any" if ty.dtype == DType::Bool => Reduce::Any,
        name => {
            let takes = if name == "any" { "bools" } else { "numbers" };
            let message = format!("`{name}` takes {takes}, this is {}", tensor_text(&ty));
            return lowering.fail(Code::DtypeMismatch, x.span, message);
        }
    };
    if let Some(i) = (1..axes.len()).find(|i| axes[..*i].contains(&axes[*i])) {
        let message = format!("axis {} is listed twice", axes[i]);
        return lowering.fail(Code::BadAxis, axis.span, message);
    }
    let mut out = ty;
    for axis in &axes {
        let place = place_of(*axis, &out.shape);
        out.shape.dims[place] = Dim::int(1);
    }
    Ok(Item::Value(lowering.emit(Prim::Reduce { op, axes }, vec![operand], out, call.span)))
}
