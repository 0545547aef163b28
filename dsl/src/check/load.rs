//! Load-stage arithmetic: the types of its operators and functions, and where an integer becomes a float.

use super::scope::{Checked, Lowering, load};
use crate::{
    ast::BinaryOp,
    diagnostic::{Code, Diagnostic, suggest},
    ir::*,
    load::FUNCTIONS,
    source::Span,
};

pub(crate) fn function(name: &str) -> Option<(LoadFunction, usize)> {
    FUNCTIONS.iter().find(|row| row.name == name).map(|row| (row.function, row.arguments))
}

pub(crate) fn function_name(function: LoadFunction) -> &'static str {
    FUNCTIONS.iter().find(|row| row.function == function).map_or("?", |row| row.name)
}

pub(crate) fn function_names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|row| row.name)
}

/// For people.
pub(crate) fn type_name(ty: &LoadType) -> String {
    match ty {
        LoadType::Int => "an integer".into(),
        LoadType::Float => "a float".into(),
        LoadType::Bool => "a bool".into(),
        LoadType::Text => "a name".into(),
        LoadType::List(item) => match **item {
            LoadType::Int => "a list of integers".into(),
            LoadType::Float => "a list of floats".into(),
            LoadType::Bool => "a list of bools".into(),
            LoadType::Text => "a list of names".into(),
            LoadType::List(_) => "a list of lists".into(),
        },
    }
}

/// As a signature writes it.
pub(crate) fn short_name(ty: &LoadType) -> String {
    match ty {
        LoadType::Int => "int".into(),
        LoadType::Float => "float".into(),
        LoadType::Bool => "bool".into(),
        LoadType::Text => "name".into(),
        LoadType::List(item) => format!("[{}]", short_name(item)),
    }
}

pub(crate) fn to_float(value: Load) -> Load {
    match (&value.ty, &value.kind) {
        (LoadType::Int, LoadKind::Int(n)) => load(LoadKind::Float(*n as f64), LoadType::Float, value.span),
        (LoadType::Int, _) => {
            let span = value.span;
            load(LoadKind::Unary(LoadUnary::ToFloat, Box::new(value)), LoadType::Float, span)
        }
        _ => value,
    }
}

impl Lowering<'_, '_> {
    /// `value` as a value of type `wanted`: an integer is accepted as a float.
    pub fn coerce(&mut self, value: Load, wanted: &LoadType, what: &str) -> Checked<Load> {
        match (&value.ty, wanted) {
            (a, b) if a == b => Ok(value),
            (LoadType::Int, LoadType::Float) => Ok(to_float(value)),
            (LoadType::List(a), LoadType::List(b)) if **a == LoadType::Int && **b == LoadType::Float => {
                let (span, ty) = (value.span, LoadType::List(Box::new(LoadType::Float)));
                match value.kind {
                    LoadKind::List(items) => {
                        Ok(load(LoadKind::List(items.into_iter().map(to_float).collect()), ty, span))
                    }
                    _ => self.fail(
                        Code::TypeMismatch,
                        span,
                        format!("{what} is a list of integers, a list of floats is needed"),
                    ),
                }
            }
            (found, _) => {
                let message = format!("{what} is {}, {} is needed", type_name(found), type_name(wanted));
                self.fail(Code::TypeMismatch, value.span, message)
            }
        }
    }

    /// Two values as one type.
    pub fn agree(&mut self, a: Load, b: Load, span: Span) -> Checked<(Load, Load)> {
        match (&a.ty, &b.ty) {
            (x, y) if x == y => Ok((a, b)),
            (LoadType::Int, LoadType::Float) => Ok((to_float(a), b)),
            (LoadType::Float, LoadType::Int) => Ok((a, to_float(b))),
            (x, y) => {
                let message = format!("one side is {}, the other {}", type_name(x), type_name(y));
                self.fail(Code::TypeMismatch, span, message)
            }
        }
    }

    pub fn load_binary(&mut self, op: BinaryOp, a: Load, b: Load, span: Span) -> Checked<Load> {
        let number = |l: &Load| matches!(l.ty, LoadType::Int | LoadType::Float);
        let refuse = |this: &mut Self, what: &str, found: &Load| {
            let message = format!("`{}` takes {what}, not {}", text_of(op), type_name(&found.ty));
            this.fail(Code::TypeMismatch, found.span, message)
        };
        let (op_, ty, a, b) = match op {
            BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply | BinaryOp::Divide => {
                for side in [&a, &b] {
                    if !number(side) {
                        return refuse(self, "numbers", side);
                    }
                }
                let (a, b) = self.agree(a, b, span)?;
                let op = match op {
                    BinaryOp::Add => LoadBinary::Add,
                    BinaryOp::Subtract => LoadBinary::Subtract,
                    BinaryOp::Multiply => LoadBinary::Multiply,
                    _ => LoadBinary::Divide,
                };
                (op, a.ty.clone(), a, b)
            }
            BinaryOp::Remainder | BinaryOp::ShiftLeft => {
                for side in [&a, &b] {
                    if side.ty != LoadType::Int {
                        return refuse(self, "integers", side);
                    }
                }
                let op = if op == BinaryOp::Remainder { LoadBinary::Remainder } else { LoadBinary::ShiftLeft };
                (op, LoadType::Int, a, b)
            }
            BinaryOp::ShiftRight => return self.fail(Code::TypeMismatch, span, "`>>` is for tensors only"),
            BinaryOp::And | BinaryOp::Or => {
                for side in [&a, &b] {
                    if side.ty != LoadType::Bool {
                        return refuse(self, "bools", side);
                    }
                }
                (if op == BinaryOp::And { LoadBinary::And } else { LoadBinary::Or }, LoadType::Bool, a, b)
            }
            BinaryOp::Equal | BinaryOp::NotEqual => {
                self.check_option(&a, &b)?;
                self.check_option(&b, &a)?;
                if let LoadType::List(_) = a.ty {
                    return refuse(self, "single values", &a);
                }
                let (a, b) = self.agree(a, b, span)?;
                let op = if op == BinaryOp::Equal { LoadBinary::Equal } else { LoadBinary::NotEqual };
                (op, LoadType::Bool, a, b)
            }
            BinaryOp::Less | BinaryOp::LessEqual | BinaryOp::Greater | BinaryOp::GreaterEqual => {
                for side in [&a, &b] {
                    if !number(side) {
                        return refuse(self, "numbers", side);
                    }
                }
                let (a, b) = self.agree(a, b, span)?;
                let op = match op {
                    BinaryOp::Less => LoadBinary::Less,
                    BinaryOp::LessEqual => LoadBinary::LessEqual,
                    BinaryOp::Greater => LoadBinary::Greater,
                    _ => LoadBinary::GreaterEqual,
                };
                (op, LoadType::Bool, a, b)
            }
            BinaryOp::In => {
                let LoadType::List(item) = b.ty.clone() else {
                    return refuse(self, "a list on its right", &b);
                };
                let a = self.coerce(a, &item, "the value that is looked for")?;
                (LoadBinary::In, LoadType::Bool, a, b)
            }
        };
        self.computable(load(LoadKind::Binary(op_, Box::new(a), Box::new(b)), ty, span))
    }

    /// A config name compared with a constant outside its `one_of` is a typing mistake.
    fn check_option(&mut self, value: &Load, constant: &Load) -> Checked<()> {
        let (LoadKind::Config(path), LoadKind::Text(text)) = (&value.kind, &constant.kind) else { return Ok(()) };
        let Some(options) = self.checker.config.options(path) else { return Ok(()) };
        let options = options.to_vec();
        self.one_of(text, &options, constant.span, &format!("`{}`", path.join(".")))
    }

    /// `what` is compared with, or becomes, a text outside its `one_of`.
    pub fn one_of(&mut self, text: &str, options: &[String], span: Span, what: &str) -> Checked<()> {
        if options.iter().any(|o| o == text) {
            return Ok(());
        }
        let known = options.iter().map(|o| format!("{o:?}")).collect::<Vec<_>>().join(", ");
        let message = format!("{what} is never {text:?}: it is one of {known}");
        let mut error = Diagnostic::new(Code::TypeMismatch, span, message);
        if let Some(near) = suggest(text, options.iter().map(String::as_str)) {
            error = error.help(format!("did you mean {near:?}?"));
        }
        Err(self.error(error))
    }

    pub fn load_call(&mut self, function: LoadFunction, arguments: Vec<Load>, span: Span) -> Checked<Load> {
        let name = function_name(function);
        let floats = |this: &mut Self, arguments: Vec<Load>| -> Checked<Vec<Load>> {
            let what = format!("the argument of `{name}`");
            arguments.into_iter().map(|a| this.coerce(a, &LoadType::Float, &what)).collect()
        };
        let (arguments, ty) = match function {
            LoadFunction::Pow
            | LoadFunction::Sqrt
            | LoadFunction::Exp
            | LoadFunction::Ln
            | LoadFunction::Sin
            | LoadFunction::Cos
            | LoadFunction::Floor
            | LoadFunction::Ceil => (floats(self, arguments)?, LoadType::Float),
            LoadFunction::Abs | LoadFunction::Min | LoadFunction::Max | LoadFunction::Clamp => {
                if arguments.iter().all(|a| a.ty == LoadType::Int) {
                    (arguments, LoadType::Int)
                } else {
                    (floats(self, arguments)?, LoadType::Float)
                }
            }
            LoadFunction::Int => match arguments.as_slice() {
                [only] if only.ty == LoadType::Int => return Ok(only.clone()),
                _ => (floats(self, arguments)?, LoadType::Int),
            },
            LoadFunction::Float => match arguments.as_slice() {
                [only] if matches!(only.ty, LoadType::Int | LoadType::Float) => return Ok(to_float(only.clone())),
                _ => (floats(self, arguments)?, LoadType::Float),
            },
            LoadFunction::Len | LoadFunction::Sum | LoadFunction::Maximum => {
                let item = match arguments.first().map(|a| &a.ty) {
                    Some(LoadType::List(item)) => (**item).clone(),
                    found => {
                        let found = found.map_or("nothing".into(), type_name);
                        let message = format!("`{name}` takes a list or a tensor, not {found}");
                        return self.fail(Code::TypeMismatch, span, message);
                    }
                };
                if function == LoadFunction::Len {
                    (arguments, LoadType::Int)
                } else if matches!(item, LoadType::Int | LoadType::Float) {
                    (arguments, item)
                } else {
                    return self.fail(Code::TypeMismatch, span, format!("`{name}` takes a list of numbers"));
                }
            }
        };
        self.computable(load(LoadKind::Call(function, arguments), ty, span))
    }

    pub fn load_negate(&mut self, value: Load, span: Span) -> Checked<Load> {
        let kind = match value.kind {
            LoadKind::Int(n) if n != i64::MIN => LoadKind::Int(-n),
            LoadKind::Float(x) => LoadKind::Float(-x),
            _ if matches!(value.ty, LoadType::Int | LoadType::Float) => {
                LoadKind::Unary(LoadUnary::Negate, Box::new(value.clone()))
            }
            _ => {
                let message = format!("`-` takes a number, not {}", type_name(&value.ty));
                return self.fail(Code::TypeMismatch, span, message);
            }
        };
        Ok(load(kind, value.ty, span))
    }

    pub fn load_not(&mut self, value: Load, span: Span) -> Checked<Load> {
        let value = self.coerce(value, &LoadType::Bool, "the operand of `!`")?;
        Ok(load(LoadKind::Unary(LoadUnary::Not, Box::new(value)), LoadType::Bool, span))
    }

    /// A list literal: items of one type, integers among floats become floats.
    pub fn load_list(&mut self, items: Vec<Load>, span: Span) -> Checked<Load> {
        let Some(first) = items.first() else {
            return self.fail(Code::TypeMismatch, span, "an empty list has no type");
        };
        let mixed = items.iter().any(|i| i.ty == LoadType::Float) && items.iter().any(|i| i.ty == LoadType::Int);
        let ty = if mixed { LoadType::Float } else { first.ty.clone() };
        let items = items.into_iter().map(|i| self.coerce(i, &ty, "this item")).collect::<Checked<Vec<_>>>()?;
        Ok(load(LoadKind::List(items), LoadType::List(Box::new(ty)), span))
    }
}

pub(crate) fn text_of(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Or => "|",
        BinaryOp::And => "&",
        BinaryOp::Equal => "==",
        BinaryOp::NotEqual => "!=",
        BinaryOp::Less => "<",
        BinaryOp::LessEqual => "<=",
        BinaryOp::Greater => ">",
        BinaryOp::GreaterEqual => ">=",
        BinaryOp::In => "in",
        BinaryOp::ShiftLeft => "<<",
        BinaryOp::ShiftRight => ">>",
        BinaryOp::Add => "+",
        BinaryOp::Subtract => "-",
        BinaryOp::Multiply => "*",
        BinaryOp::Divide => "/",
        BinaryOp::Remainder => "%",
    }
}
