//! Writing tokens into a state.

use super::{Call, Primitive, place_of};
use crate::{
    check::{
        scope::{Checked, Item, Lowering},
        types::tensor_text,
    },
    diagnostic::Code,
    ir::*,
};

pub const TABLE: &[Primitive] = &[Primitive {
    name: "update",
    usage: "update(state, x, positions, axis)",
    doc: "Token `s` of row `b` is written at `positions[b, s]` along `axis`; positions of a row are consecutive.",
    stablehlo: "dynamic_update_slice per row",
    mlx: "slice_update per row",
    rule: update,
}];

fn update(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [state, x, positions, axis] = lowering.parameters(call, ["state", "x", "positions", "axis"])?;
    let (old, old_type) = lowering.tensor(state)?;
    let (new, new_type) = lowering.tensor(x)?;
    let (at, at_type) = lowering.tensor(positions)?;
    let axis = lowering.axis(axis, &old_type.shape)?;
    let place = place_of(axis, &old_type.shape);
    if old_type.shape.pack || place == 0 {
        return lowering.fail(Code::BadAxis, call.span, "`update` writes along an axis behind the rows of a state");
    }
    if new_type.dtype != old_type.dtype {
        let message = format!("the state is {}, this is {}", old_type.dtype.name(), new_type.dtype.name());
        return lowering.fail(Code::DtypeMismatch, x.span, message);
    }
    if new_type.shape.pack || new_type.shape.dims.len() != old_type.shape.dims.len() {
        let message = format!("the state is {}, this is {}", tensor_text(&old_type), tensor_text(&new_type));
        return lowering.fail(Code::RankMismatch, x.span, message);
    }
    for (i, (a, b)) in new_type.shape.dims.iter().zip(&old_type.shape.dims).enumerate() {
        if i != place && !lowering.same(a, b) {
            let message = format!("the state is {}, this is {}", tensor_text(&old_type), tensor_text(&new_type));
            return lowering.dim_mismatch(message, a, b, x.span);
        }
    }
    let wanted = TensorType {
        dtype: DType::I32,
        shape: Shape { pack: false, dims: vec![new_type.shape.dims[0].clone(), new_type.shape.dims[place].clone()] },
    };
    lowering.expect_type(&Type::Tensor(at_type), &Type::Tensor(wanted), "`positions` of `update`", positions.span)?;
    Ok(Item::Value(lowering.emit(Prim::Update { axis }, vec![old, new, at], old_type, call.span)))
}
