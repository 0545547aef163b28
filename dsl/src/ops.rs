//! The closed table of primitives: one row each, by name, with its typing rule. Operators (`+`, `x[..]`) have no name
//! and stand beside their kin in the files of this folder; what a primitive computes is in `interpret`.
//!
//! A typing rule reads the call, checks dtypes and dims, and emits the statement. Dims are equal when they are provably
//! so; broadcasting takes only a literal 1.

mod cast;
mod contract;
mod elementwise;
mod index;
mod reduce;
mod shape;
mod state;

use crate::{
    ast,
    check::scope::{Checked, Item, Lowering},
    diagnostic::Code,
    ir::*,
    source::Span,
};

/// A call by name, its arguments not yet looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'e> {
    pub name: &'e str,
    pub arguments: &'e [ast::Argument],
    pub span: Span,
}

type Rule = fn(&mut Lowering<'_, '_>, &Call<'_>) -> Checked<Item>;

/// One primitive. The two citations name the backend op that it is; "composite" is several.
#[derive(Debug, Clone, Copy)]
pub struct Primitive {
    pub name: &'static str,
    pub usage: &'static str,
    pub doc: &'static str,
    pub stablehlo: &'static str,
    pub mlx: &'static str,
    pub(crate) rule: Rule,
}

const TABLES: &[&[Primitive]] =
    &[elementwise::TABLE, cast::TABLE, shape::TABLE, reduce::TABLE, contract::TABLE, index::TABLE, state::TABLE];

/// Every primitive that has a name.
pub fn primitives() -> impl Iterator<Item = &'static Primitive> {
    TABLES.iter().copied().flatten()
}

pub(crate) fn primitive(name: &str) -> Option<&'static Primitive> {
    primitives().find(|p| p.name == name)
}

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    primitives().map(|p| p.name)
}

/// A call of a primitive or of a load function. `None` when there is none of this name.
pub(crate) fn lower(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Option<Checked<Item>> {
    if let Some(primitive) = primitive(call.name) {
        return Some((primitive.rule)(lowering, call));
    }
    crate::check::load_function(call.name).map(|_| lowering.load_function_call(call))
}

/// The named parameters of a primitive; the last `optional` ones may be left out.
impl Lowering<'_, '_> {
    pub(crate) fn parameters<'e, const N: usize>(
        &mut self,
        call: &Call<'e>,
        names: [&str; N],
    ) -> Checked<[&'e ast::Expr; N]> {
        let named: Vec<(&str, bool)> = names.iter().map(|n| (*n, false)).collect();
        let places = self.place(call.name, &named, call.arguments, call.span)?;
        let given: Vec<&ast::Expr> = places.into_iter().flatten().collect();
        match given.try_into() {
            Ok(given) => Ok(given),
            Err(_) => self.fail(Code::WrongArguments, call.span, format!("`{}` needs {N} arguments", call.name)),
        }
    }

    /// A tensor argument.
    pub(crate) fn tensor(&mut self, expr: &ast::Expr) -> Checked<(ValueId, TensorType)> {
        let item = self.expr(expr)?;
        let values = self.values_of(item, expr.span)?;
        match values.as_slice() {
            [value] => Ok((*value, self.tensor_type(*value, expr.span)?)),
            _ => self.fail(Code::TypeMismatch, expr.span, "one tensor is needed here"),
        }
    }

    pub(crate) fn load_function_call(&mut self, call: &Call<'_>) -> Checked<Item> {
        let Some((function, count)) = crate::check::load_function(call.name) else {
            return self.fail(Code::UnknownName, call.span, format!("there is no function `{}`", call.name));
        };
        const NAMES: [&str; 3] = ["x", "y", "z"];
        let names: Vec<(&str, bool)> = NAMES[..count].iter().map(|n| (*n, false)).collect();
        let places = self.place(call.name, &names, call.arguments, call.span)?;
        if let (LoadFunction::Len, [Some(list)]) = (function, places.as_slice()) {
            let item = self.expr(list)?;
            if let Some(length) = self.length_of_tensors(&item) {
                return Ok(Item::Load(self.number(&length, call.span)));
            }
        }
        let arguments: Vec<_> = places.into_iter().flatten().map(|e| self.load(e)).collect();
        let arguments = arguments.into_iter().collect::<Checked<Vec<_>>>()?;
        Ok(Item::Load(self.load_call(function, arguments, call.span)?))
    }

    /// An axis, counted from the back.
    pub(crate) fn axis(&mut self, expr: &ast::Expr, shape: &Shape) -> Checked<i32> {
        let value = self.load(expr)?;
        self.axis_of(&value, shape)
    }

    pub(crate) fn axis_of(&mut self, value: &Load, shape: &Shape) -> Checked<i32> {
        let LoadKind::Int(axis) = value.kind else {
            return self.fail(Code::BadAxis, value.span, "an axis is an integer literal");
        };
        let rank = shape.dims.len() as i64;
        if axis >= 0 && shape.pack {
            return self.fail(Code::BadAxis, value.span, "behind `..` axes are counted from the back: -1 is the last");
        }
        let back = if axis >= 0 { axis - rank } else { axis };
        if back < -rank || back >= 0 {
            let message = format!("there is no axis {axis} in {}", self.shape_of(shape));
            return self.fail(Code::BadAxis, value.span, message);
        }
        Ok(back as i32)
    }
}

/// The place of an axis counted from the back.
pub(crate) fn place_of(axis: i32, shape: &Shape) -> usize {
    (shape.dims.len() as i64 + i64::from(axis)) as usize
}
