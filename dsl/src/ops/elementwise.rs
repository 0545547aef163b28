//! Element by element: arithmetic, comparison, logic, and the functions of one number. Two operands broadcast from the
//! right and have one dtype; a load number beside a tensor takes the tensor's.

use super::{Call, Primitive};
use crate::{
    ast::{BinaryOp, UnaryOp},
    check::{
        scope::{Checked, Item, Lowering},
        types::{is_float, is_integer, tensor_text, type_text},
    },
    diagnostic::{Code, Diagnostic},
    ir::*,
    source::Span,
};

macro_rules! row {
    ($name:literal, $usage:literal, $doc:literal, $stablehlo:literal, $mlx:literal, $rule:expr) => {
        Primitive { name: $name, usage: $usage, doc: $doc, stablehlo: $stablehlo, mlx: $mlx, rule: $rule }
    };
}

pub const TABLE: &[Primitive] = &[
    row!("abs", "abs(x)", "Magnitude.", "abs", "abs", unary),
    row!("exp", "exp(x)", "e to the power `x`.", "exponential", "exp", unary),
    row!("log", "log(x)", "Natural logarithm.", "log", "log", unary),
    row!("sqrt", "sqrt(x)", "Square root.", "sqrt", "sqrt", unary),
    row!("rsqrt", "rsqrt(x)", "1 / sqrt(x), as the backend's own function.", "rsqrt", "rsqrt", unary),
    row!("tanh", "tanh(x)", "Hyperbolic tangent.", "tanh", "tanh", unary),
    row!("sin", "sin(x)", "Sine of `x` radians.", "sine", "sin", unary),
    row!("cos", "cos(x)", "Cosine of `x` radians.", "cosine", "cos", unary),
    row!("sigmoid", "sigmoid(x)", "1 / (1 + exp(-x)), as the backend's own function.", "logistic", "sigmoid", unary),
    row!("erf", "erf(x)", "The error function.", "chlo.erf", "erf", unary),
    row!("min", "min(x, y)", "The smaller; a NaN wins.", "minimum", "minimum", two),
    row!("max", "max(x, y)", "The larger; a NaN wins.", "maximum", "maximum", two),
    row!("select", "select(c, x, y)", "`x` where `c`, else `y`.", "select", "where", select),
];

fn unary(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [x] = lowering.parameters(call, ["x"])?;
    let operand = match lowering.expr(x)? {
        Item::Load(value) => match crate::check::load_function(call.name) {
            Some((function, _)) => return Ok(Item::Load(lowering.load_call(function, vec![value], call.span)?)),
            None => {
                let message = format!("`{}` takes a tensor", call.name);
                return lowering.fail(Code::TypeMismatch, x.span, message);
            }
        },
        item => lowering.values_of(item, x.span)?,
    };
    let [operand] = operand.as_slice() else {
        return lowering.fail(Code::TypeMismatch, x.span, "one tensor is needed here");
    };
    let ty = lowering.tensor_type(*operand, x.span)?;
    let op = match call.name {
        "abs" => Unary::Abs,
        "exp" => Unary::Exp,
        "log" => Unary::Log,
        "sqrt" => Unary::Sqrt,
        "rsqrt" => Unary::Rsqrt,
        "tanh" => Unary::Tanh,
        "sin" => Unary::Sin,
        "cos" => Unary::Cos,
        "sigmoid" => Unary::Sigmoid,
        _ => Unary::Erf,
    };
    if !(is_float(ty.dtype) || op == Unary::Abs && ty.dtype == DType::I32) {
        let message = format!("`{}` takes floats, this is {}", call.name, tensor_text(&ty));
        return Err(lowering.error(
            Diagnostic::new(Code::DtypeMismatch, x.span, message)
                .help("write the cast that is meant, such as `f32(x)`"),
        ));
    }
    Ok(Item::Value(lowering.emit(Prim::Unary(op), vec![*operand], ty, call.span)))
}

/// `min` and `max`, of load numbers or of tensors.
fn two(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [x, y] = lowering.parameters(call, ["x", "y"])?;
    let (a, b) = (lowering.expr(x), lowering.expr(y));
    match (a?, b?) {
        (Item::Load(a), Item::Load(b)) => {
            let function = if call.name == "min" { LoadFunction::Min } else { LoadFunction::Max };
            Ok(Item::Load(lowering.load_call(function, vec![a, b], call.span)?))
        }
        (a, b) => {
            let (a, b) = lowering.same_dtype((a, x.span), (b, y.span), call.name, call.span)?;
            let ty = lowering.tensor_type(a, x.span)?;
            if ty.dtype == DType::Bool {
                let (name, operator) = (call.name, if call.name == "min" { "x & y" } else { "x | y" });
                let message = format!("`{name}` takes numbers, this is {}", tensor_text(&ty));
                return Err(lowering.error(
                    Diagnostic::new(Code::DtypeMismatch, x.span, message).help(format!("of bools write `{operator}`")),
                ));
            }
            let op = if call.name == "min" { Binary::Min } else { Binary::Max };
            Ok(Item::Value(lowering.binary(Prim::Binary(op), a, b, None, call.name, call.span)?))
        }
    }
}

fn select(lowering: &mut Lowering<'_, '_>, call: &Call<'_>) -> Checked<Item> {
    let [c, x, y] = lowering.parameters(call, ["c", "x", "y"])?;
    let choice = match lowering.expr(c)? {
        Item::Load(_) => {
            return Err(lowering.error(
                Diagnostic::new(Code::TypeMismatch, c.span, "`select` chooses by a bool tensor, this is known at load")
                    .help("use `if c { x } else { y }`"),
            ));
        }
        item => lowering.values_of(item, c.span)?,
    };
    let [choice] = choice.as_slice() else {
        return lowering.fail(Code::TypeMismatch, c.span, "one tensor is needed here");
    };
    let choice_type = lowering.tensor_type(*choice, c.span)?;
    if choice_type.dtype != DType::Bool {
        let message = format!("`select` chooses by a bool tensor, this is {}", tensor_text(&choice_type));
        return lowering.fail(Code::DtypeMismatch, c.span, message);
    }
    let (a, b) = (lowering.expr(x), lowering.expr(y));
    let (a, b) = lowering.same_dtype((a?, x.span), (b?, y.span), "select", call.span)?;
    let (at, bt) = (lowering.tensor_type(a, x.span)?, lowering.tensor_type(b, y.span)?);
    let shape = lowering.broadcast(&at.shape, &bt.shape, "select", call.span)?;
    let shape = lowering.broadcast(&choice_type.shape, &shape, "select", call.span)?;
    let ty = TensorType { dtype: at.dtype, shape };
    Ok(Item::Value(lowering.emit(Prim::Select, vec![*choice, a, b], ty, call.span)))
}

impl Lowering<'_, '_> {
    pub(crate) fn tensor_unary(&mut self, op: UnaryOp, operand: ValueId, at: Span, span: Span) -> Checked<ValueId> {
        let ty = self.tensor_type(operand, at)?;
        let op = match op {
            UnaryOp::Negate if is_float(ty.dtype) || ty.dtype == DType::I32 => Unary::Negate,
            UnaryOp::Not if ty.dtype == DType::Bool => Unary::Not,
            UnaryOp::Negate => {
                return self.fail(
                    Code::DtypeMismatch,
                    at,
                    format!("`-` takes signed numbers, this is {}", tensor_text(&ty)),
                );
            }
            UnaryOp::Not => {
                return self.fail(Code::DtypeMismatch, at, format!("`!` takes bools, this is {}", tensor_text(&ty)));
            }
        };
        Ok(self.emit(Prim::Unary(op), vec![operand], ty, span))
    }

    pub(crate) fn tensor_binary(
        &mut self,
        op: BinaryOp,
        left: (Item, Span),
        right: (Item, Span),
        span: Span,
    ) -> Checked<ValueId> {
        let symbol = crate::check::operator_text(op);
        let at = left.1;
        let (a, b) = self.same_dtype(left, right, symbol, span)?;
        let dtype = self.tensor_type(a, at)?.dtype;
        let number = is_float(dtype) || is_integer(dtype);
        let bits = matches!(dtype, DType::Bool | DType::U32 | DType::U8);
        let unsigned = matches!(dtype, DType::U32 | DType::U8);
        let (prim, out, fits, takes) = match op {
            BinaryOp::Add => (Prim::Binary(Binary::Add), None, number, "numbers"),
            BinaryOp::Subtract => (Prim::Binary(Binary::Subtract), None, number, "numbers"),
            BinaryOp::Multiply => (Prim::Binary(Binary::Multiply), None, number, "numbers"),
            BinaryOp::Divide => (Prim::Binary(Binary::Divide), None, number, "numbers"),
            BinaryOp::Remainder => (Prim::Binary(Binary::Remainder), None, is_integer(dtype), "integers"),
            BinaryOp::And => (Prim::Binary(Binary::And), None, bits, "bools or unsigned integers"),
            BinaryOp::Or => (Prim::Binary(Binary::Or), None, bits, "bools or unsigned integers"),
            BinaryOp::ShiftLeft => (Prim::Binary(Binary::ShiftLeft), None, unsigned, "unsigned integers"),
            BinaryOp::ShiftRight => (Prim::Binary(Binary::ShiftRight), None, unsigned, "unsigned integers"),
            BinaryOp::Equal => (Prim::Compare(Compare::Equal), Some(DType::Bool), true, ""),
            BinaryOp::NotEqual => (Prim::Compare(Compare::NotEqual), Some(DType::Bool), true, ""),
            BinaryOp::Less => (Prim::Compare(Compare::Less), Some(DType::Bool), number, "numbers"),
            BinaryOp::LessEqual => (Prim::Compare(Compare::LessEqual), Some(DType::Bool), number, "numbers"),
            BinaryOp::Greater => (Prim::Compare(Compare::Greater), Some(DType::Bool), number, "numbers"),
            BinaryOp::GreaterEqual => (Prim::Compare(Compare::GreaterEqual), Some(DType::Bool), number, "numbers"),
            BinaryOp::In => {
                return Err(self.error(
                    Diagnostic::new(Code::TypeMismatch, span, "`in` is for load values only")
                        .help("for tensors, compare and use `any(x == y, axis)`"),
                ));
            }
        };
        if !fits {
            let ty = self.tensor_type(a, at)?;
            return self.fail(
                Code::DtypeMismatch,
                span,
                format!("`{symbol}` takes {takes}, this is {}", tensor_text(&ty)),
            );
        }
        self.binary(prim, a, b, out, symbol, span)
    }

    fn binary(
        &mut self,
        prim: Prim,
        a: ValueId,
        b: ValueId,
        out: Option<DType>,
        what: &str,
        span: Span,
    ) -> Checked<ValueId> {
        let (x, y) = (self.tensor_type(a, span)?, self.tensor_type(b, span)?);
        let shape = self.broadcast(&x.shape, &y.shape, what, span)?;
        Ok(self.emit(prim, vec![a, b], TensorType { dtype: out.unwrap_or(x.dtype), shape }, span))
    }

    /// Two tensors of one dtype; a load value becomes a constant of the other's.
    fn same_dtype(
        &mut self,
        left: (Item, Span),
        right: (Item, Span),
        what: &str,
        span: Span,
    ) -> Checked<(ValueId, ValueId)> {
        let one = |this: &mut Self, item: Item, at: Span| -> Checked<ValueId> {
            let found = this.describe(&item);
            match this.values_of(item, at)?.as_slice() {
                [value] => Ok(*value),
                _ => this.fail(Code::TypeMismatch, at, format!("`{what}` takes single tensors, this is {found}")),
            }
        };
        match (left, right) {
            ((Item::Load(a), _), (Item::Load(_), _)) => Err(self.error(
                Diagnostic::new(
                    Code::TypeMismatch,
                    a.span,
                    format!("`{what}` cannot tell the dtype: both are load values"),
                )
                .help("make one a constant tensor with a cast, such as `F(0.0)`"),
            )),
            ((Item::Load(a), _), (b, at)) => {
                let b = one(self, b, at)?;
                let dtype = self.tensor_type(b, at)?.dtype;
                Ok((self.constant(a, dtype, Some(b))?, b))
            }
            ((a, at), (Item::Load(b), _)) => {
                let a = one(self, a, at)?;
                let dtype = self.tensor_type(a, at)?.dtype;
                Ok((a, self.constant(b, dtype, Some(a))?))
            }
            ((a, at), (b, bt)) => {
                let (a, b) = (one(self, a, at)?, one(self, b, bt)?);
                let (x, y) = (self.tensor_type(a, at)?, self.tensor_type(b, bt)?);
                if x.dtype != y.dtype {
                    let message = format!("`{what}` meets {} and {}", x.dtype.name(), y.dtype.name());
                    let casts = match (is_float(x.dtype), is_float(y.dtype)) {
                        (true, true) => {
                            format!("write `{}(..)` or `{}(..)` where it is meant", x.dtype.name(), y.dtype.name())
                        }
                        (false, true) => {
                            format!("write `{}(..)` around the left side, if that is meant", y.dtype.name())
                        }
                        (true, false) => {
                            format!("write `{}(..)` around the right side, if that is meant", x.dtype.name())
                        }
                        (false, false) => "write the cast that is meant".into(),
                    };
                    let (left, right) = (type_text(&Type::Tensor(x)), type_text(&Type::Tensor(y)));
                    return Err(self.error(
                        Diagnostic::new(Code::DtypeMismatch, span, message)
                            .label(format!("{left} and {right}"))
                            .help(format!("dtypes are never promoted: {casts}")),
                    ));
                }
                Ok((a, b))
            }
        }
    }

    /// The shape of two operands together.
    pub(crate) fn broadcast(&mut self, a: &Shape, b: &Shape, what: &str, span: Span) -> Checked<Shape> {
        let (x, y) = (a.dims.len(), b.dims.len());
        let aligned = match (a.pack, b.pack) {
            (false, false) => true,
            (true, true) => x == y,
            (true, false) => y <= x,
            (false, true) => x <= y,
        };
        if !aligned {
            let message = format!(
                "`{what}` cannot align {} with {}: `..` may hold other axes",
                self.shape_of(a),
                self.shape_of(b)
            );
            return self.fail(Code::RankMismatch, span, message);
        }
        let rank = x.max(y);
        let mut dims = Vec::with_capacity(rank);
        for i in 0..rank {
            let p = (i + x >= rank).then(|| &a.dims[i + x - rank]);
            let q = (i + y >= rank).then(|| &b.dims[i + y - rank]);
            dims.push(match (p, q) {
                (Some(p), Some(q)) if p.is_one() && !q.is_one() => q.clone(),
                (Some(p), Some(q)) if q.is_one() || self.same(p, q) => p.clone(),
                (Some(p), Some(q)) => {
                    let axis = i as i64 - rank as i64;
                    let message =
                        format!("`{what}` meets {} and {}: axis {axis} differs", self.shape_of(a), self.shape_of(b));
                    return self.dim_mismatch(message, p, q, span);
                }
                (Some(only), None) | (None, Some(only)) => only.clone(),
                (None, None) => continue,
            });
        }
        Ok(Shape { pack: a.pack || b.pack, dims })
    }
}
