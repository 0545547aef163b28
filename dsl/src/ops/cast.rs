//! Casts and constants: `f32(x)` of a tensor converts, of a load number or list it makes a constant.

use super::{Call, Primitive};
use crate::{
    check::{
        scope::{Checked, Item, Lowering, load},
        to_float,
        types::{dtype, is_float, is_integer, type_text},
    },
    diagnostic::{Code, Diagnostic},
    dim::Dim,
    ir::*,
};

macro_rules! casts {
    ($($name:literal)*) => {
        &[$(Primitive {
            name: $name,
            usage: concat!($name, "(x)"),
            doc: "To this dtype: to float the nearest, ties to even; float to integer toward zero; bool as 0 or 1. Of a load number or list, a constant.",
            stablehlo: "convert, constant",
            mlx: "astype, Array from slice",
            rule: cast,
        }),*, Primitive {
            name: "iota",
            usage: "iota(n)",
            doc: "i32, 0 to n - 1.",
            stablehlo: "iota",
            mlx: "arange",
            rule: iota,
        }]
    };
}

pub const TABLE: &[Primitive] = casts!("F" "f64" "f32" "f16" "bf16" "i32" "u32" "u8");

fn cast(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [x] = lowering.parameters(call, ["x"])?;
    let Some(to) = dtype(call.name) else {
        return lowering.fail(Code::UnknownName, call.span, format!("there is no dtype `{}`", call.name));
    };
    let item = lowering.expr(x)?;
    if !lowering.call_stage {
        return lowering.fail(Code::WrongStage, call.span, "a cast makes a tensor, which is not known before a call");
    }
    let value = match item {
        Item::Load(list) if matches!(list.ty, LoadType::List(_)) => lowering.constant_list(list, to)?,
        Item::Load(value) => lowering.constant(value, to, None)?,
        item => {
            let values = lowering.values_of(item, x.span)?;
            let [value] = values.as_slice() else {
                return lowering.fail(Code::TypeMismatch, x.span, "a cast takes one tensor");
            };
            let ty = lowering.tensor_type(*value, x.span)?;
            if ty.dtype == to {
                *value
            } else {
                lowering.emit(Prim::Convert, vec![*value], TensorType { dtype: to, ..ty }, call.span)
            }
        }
    };
    Ok(Item::Value(value))
}

fn iota(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [n] = lowering.parameters(call, ["n"])?;
    let dim = lowering.dim(n)?;
    if lowering.below(&dim, &Dim::int(0), &[]) {
        return lowering.fail(Code::TypeMismatch, n.span, format!("`iota` counts 0 or more, this is `{dim}`"));
    }
    if !lowering.call_stage {
        return lowering.fail(Code::WrongStage, call.span, "`iota` makes a tensor, which is not known before a call");
    }
    let ty = TensorType { dtype: DType::I32, shape: Shape { pack: false, dims: vec![dim] } };
    Ok(Item::Value(lowering.emit(Prim::Iota, Vec::new(), ty, call.span)))
}

impl Lowering<'_, '_> {
    /// A load value as a scalar of `dtype`; `beside` is the tensor it meets, if it meets one.
    pub(crate) fn constant(&mut self, value: Load, dtype: DType, beside: Option<ValueId>) -> Checked<ValueId> {
        let span = value.span;
        let value = match &value.ty {
            LoadType::Bool if dtype == DType::Bool => value,
            LoadType::Int if is_integer(dtype) => {
                self.holds(&value, dtype)?;
                value
            }
            LoadType::Int | LoadType::Float if is_float(dtype) => to_float(value),
            LoadType::Float if is_integer(dtype) => {
                let mut error = Diagnostic::new(
                    Code::FractionMeetsIntegers,
                    span,
                    format!("a fraction cannot become {}", dtype.name()),
                )
                .help("round it with `int(x)`, or convert the tensor to a float");
                if let Some(tensor) = beside {
                    error = error.also(self.values[tensor.0 as usize].span, type_text(self.ty(tensor)));
                }
                return Err(self.error(error));
            }
            other => {
                let message = format!("{} cannot become {}", crate::check::load_type_name(other), dtype.name());
                return self.fail(Code::TypeMismatch, span, message);
            }
        };
        let ty = TensorType { dtype, shape: Shape { pack: false, dims: Vec::new() } };
        Ok(self.emit(Prim::Constant(value), Vec::new(), ty, span))
    }

    /// An integer known at build is one of the dtype's.
    fn holds(&mut self, value: &Load, dtype: DType) -> Checked<()> {
        let (low, high) = match dtype {
            DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            DType::U32 => (0, i64::from(u32::MAX)),
            DType::U8 => (0, i64::from(u8::MAX)),
            DType::F | DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::Bool => return Ok(()),
        };
        let known = self.dim_or_atom(value).as_int();
        match known.filter(|n| !(low..=high).contains(n)) {
            None => Ok(()),
            Some(n) => {
                let name = dtype.name();
                let error = Diagnostic::new(Code::TypeMismatch, value.span, format!("{n} is outside {name}"));
                Err(self.error(error.help(format!("{name} holds {low} to {high}"))))
            }
        }
    }

    fn constant_list(&mut self, list: Load, dtype: DType) -> Checked<ValueId> {
        let span = list.span;
        let length = self.length_of(&list);
        let LoadType::List(item) = list.ty.clone() else {
            return self.fail(Code::TypeMismatch, span, "a list is needed here");
        };
        let list = match *item {
            LoadType::Int if is_integer(dtype) => {
                if let LoadKind::List(items) = &list.kind {
                    for item in items {
                        self.holds(item, dtype)?;
                    }
                }
                list
            }
            LoadType::Float if is_float(dtype) => list,
            LoadType::Int if is_float(dtype) => {
                let local = self.new_variable("x");
                let each = vec![Each { index: None, item: local, over: Over::List(list) }];
                let item = to_float(load(LoadKind::Local(local), LoadType::Int, span));
                let kind = LoadKind::Comprehension { item: Box::new(item), each };
                load(kind, LoadType::List(Box::new(LoadType::Float)), span)
            }
            LoadType::Float => {
                let message = format!("a list of floats cannot become {}", dtype.name());
                return self.fail(Code::FractionMeetsIntegers, span, message);
            }
            LoadType::Int | LoadType::Bool | LoadType::Text | LoadType::List(_) => {
                let message = format!("{} cannot become {}", crate::check::load_type_name(&list.ty), dtype.name());
                return self.fail(Code::TypeMismatch, span, message);
            }
        };
        let ty = TensorType { dtype, shape: Shape { pack: false, dims: vec![length] } };
        Ok(self.emit(Prim::ConstantList(list), Vec::new(), ty, span))
    }
}
