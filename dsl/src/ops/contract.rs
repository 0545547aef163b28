//! Sums of products. Any float; the sum is f32 or wider, rounded once, in an order that is the backend's.

use super::{Call, Primitive};
use crate::{
    check::{
        scope::{Checked, Item, Lowering},
        types::{is_float, tensor_text},
    },
    diagnostic::{Code, Diagnostic},
    ir::*,
};

pub const TABLE: &[Primitive] = &[
    Primitive {
        name: "dot",
        usage: "dot(x, w)",
        doc: "Last axis against last axis; `w` has two axes, or the leading axes of `x`.",
        stablehlo: "dot_general",
        mlx: "matmul with `w` swapped",
        rule: product,
    },
    Primitive {
        name: "matmul",
        usage: "matmul(x, y)",
        doc: "Last axis against last but one; the leading axes are equal.",
        stablehlo: "dot_general",
        mlx: "matmul",
        rule: product,
    },
];

fn product(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let names = if call.name == "dot" { ["x", "w"] } else { ["x", "y"] };
    let [left, right] = lowering.parameters(call, names)?;
    let (x, y) = (lowering.tensor(left), lowering.tensor(right));
    let ((x, xt), (y, yt)) = (x?, y?);
    if xt.dtype != yt.dtype || !is_float(xt.dtype) {
        let message = format!("`{}` meets {} and {}", call.name, xt.dtype.name(), yt.dtype.name());
        return Err(lowering.error(
            Diagnostic::new(Code::DtypeMismatch, call.span, message)
                .label(format!("{} and {}", tensor_text(&xt), tensor_text(&yt)))
                .help("both sides are of one float dtype: write the cast that is meant"),
        ));
    }
    let (a, b) = (xt.shape.dims.len(), yt.shape.dims.len());
    let flat = call.name == "dot" && b == 2 && !yt.shape.pack;
    let enough = if flat { a >= 1 } else { a >= 2 && b >= 2 && a == b && xt.shape.pack == yt.shape.pack };
    if !enough {
        let message =
            format!("`{}` meets {} and {}", call.name, lowering.shape_of(&xt.shape), lowering.shape_of(&yt.shape));
        return Err(lowering.error(
            Diagnostic::new(Code::RankMismatch, call.span, message).label("the leading axes differ in number"),
        ));
    }
    if !flat {
        for (p, q) in xt.shape.dims[..a - 2].iter().zip(&yt.shape.dims[..b - 2]) {
            if !lowering.same(p, q) {
                let message = format!(
                    "`{}` meets {} and {}: leading axes differ",
                    call.name,
                    lowering.shape_of(&xt.shape),
                    lowering.shape_of(&yt.shape)
                );
                return lowering.dim_mismatch(message, p, q, call.span);
            }
        }
    }
    let (summed, kept) = if call.name == "dot" { (b - 1, b - 2) } else { (b - 2, b - 1) };
    if !lowering.same(&xt.shape.dims[a - 1], &yt.shape.dims[summed]) {
        let message = format!(
            "`{}` sums over `{}` and `{}`, which differ",
            call.name,
            xt.shape.dims[a - 1],
            yt.shape.dims[summed]
        );
        let (p, q) = (xt.shape.dims[a - 1].clone(), yt.shape.dims[summed].clone());
        return lowering.dim_mismatch(message, &p, &q, call.span);
    }
    let mut out = xt;
    out.shape.dims.pop();
    out.shape.dims.push(yt.shape.dims[kept].clone());
    let prim = if call.name == "dot" { Prim::Dot } else { Prim::Matmul };
    Ok(Item::Value(lowering.emit(prim, vec![x, y], out, call.span)))
}
