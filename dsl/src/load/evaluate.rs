//! The walk over a load expression.

use super::{LoadError, LoadErrorKind, Val, functions, size};
use crate::{
    ir::{
        Each, FieldId, Load, LoadBinary, LoadKind, LoadUnary, LocalId, MatrixAttribute, OpId, OpKind, Over,
        PatternPart, Program, ValueId,
    },
    source::Span,
};

/// Where the names of an expression get their values. What a place does not have stays `None`.
pub trait Environment {
    fn program(&self) -> &Program;
    fn config(&self, path: &[String]) -> Option<Val>;
    fn parameter(&self, _name: &str) -> Option<Val> {
        None
    }
    fn member(&self, _field: FieldId) -> Option<Val> {
        None
    }
    fn local(&self, _local: LocalId) -> Option<Val> {
        None
    }
    fn free(&self, _name: &str) -> Option<i64> {
        None
    }
    fn size(&self, _value: ValueId) -> Option<i64> {
        None
    }
    fn matrix(&self, _value: ValueId, _attribute: MatrixAttribute) -> Option<Val> {
        None
    }
}

pub fn evaluate(load: &Load, names: &dyn Environment) -> Result<Val, LoadError> {
    Evaluation::new(names).value(load)
}

/// A condition.
pub fn truth(load: &Load, names: &dyn Environment) -> Result<bool, LoadError> {
    evaluate(load, names)?.truth(load.span)
}

/// The body of an all-load op sees the config and its own parameters, not the caller's names.
struct Inside<'a> {
    outer: &'a dyn Environment,
    parameters: Vec<(&'a str, Val)>,
    dims: Vec<(&'a str, i64)>,
}

impl Environment for Inside<'_> {
    fn program(&self) -> &Program {
        self.outer.program()
    }
    fn config(&self, path: &[String]) -> Option<Val> {
        self.outer.config(path)
    }
    fn parameter(&self, name: &str) -> Option<Val> {
        self.parameters.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone())
    }
    fn free(&self, name: &str) -> Option<i64> {
        self.dims.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }
}

impl Val {
    fn kind(&self, expected: &'static str, span: Span) -> LoadError {
        LoadError::new(span, LoadErrorKind::Kind { expected, found: self.to_string() })
    }
    pub(super) fn int(&self, span: Span) -> Result<i64, LoadError> {
        self.as_int().ok_or_else(|| self.kind("an integer", span))
    }
    pub(super) fn float(&self, span: Span) -> Result<f64, LoadError> {
        self.as_float().ok_or_else(|| self.kind("a number", span))
    }
    pub(super) fn truth(&self, span: Span) -> Result<bool, LoadError> {
        self.as_bool().ok_or_else(|| self.kind("a condition", span))
    }
    pub(super) fn items(self, span: Span) -> Result<Vec<Val>, LoadError> {
        if let Val::List(items) = self { Ok(items) } else { Err(self.kind("a list", span)) }
    }
}

pub(super) struct Evaluation<'a> {
    pub(super) names: &'a dyn Environment,
    /// The locals of this expression, innermost last.
    locals: Vec<(LocalId, Val)>,
    /// How much more may be computed.
    left: u32,
}

/// Parts of expressions and items of lists in one value. The lists of families have an item for each layer, or for each pair
/// of numbers that turns: some thousands of steps.
const MAX_STEPS: u32 = 1 << 20;

impl<'a> Evaluation<'a> {
    pub(super) fn new(names: &'a dyn Environment) -> Self {
        Evaluation { names, locals: Vec::new(), left: MAX_STEPS }
    }

    /// Pays for `steps`; with nothing left, the value is given up.
    fn pay(&mut self, steps: usize, span: Span) -> Result<(), LoadError> {
        let left = u32::try_from(steps).ok().and_then(|steps| self.left.checked_sub(steps));
        self.left = left.ok_or(LoadError::new(span, LoadErrorKind::TooLong(MAX_STEPS)))?;
        Ok(())
    }

    pub(super) fn value(&mut self, load: &Load) -> Result<Val, LoadError> {
        let value = self.value_of(load)?;
        let items = value.as_list().map_or(0, <[Val]>::len);
        self.pay(1 + items, load.span)?;
        Ok(value)
    }

    fn value_of(&mut self, load: &Load) -> Result<Val, LoadError> {
        let span = load.span;
        let absent = |name: String| LoadError::new(span, LoadErrorKind::Absent(name));
        Ok(match &load.kind {
            LoadKind::Int(n) => Val::Int(*n),
            LoadKind::Float(x) => Val::Float(*x),
            LoadKind::Bool(b) => Val::Bool(*b),
            LoadKind::Text(t) => Val::Text(t.clone()),
            LoadKind::Format(parts) => {
                let mut text = String::new();
                for part in parts {
                    match part {
                        PatternPart::Text(t) => text.push_str(t),
                        PatternPart::Hole(hole) => text.push_str(&self.value(hole)?.in_name()),
                    }
                }
                Val::Text(text)
            }
            LoadKind::Pi => Val::Float(std::f64::consts::PI),
            LoadKind::Config(path) => self.names.config(path).ok_or_else(|| absent(path.join(".")))?,
            LoadKind::Parameter(name) => self.names.parameter(name).ok_or_else(|| absent(name.clone()))?,
            LoadKind::Member(field) => {
                self.names.member(*field).ok_or_else(|| absent(format!("member {}", field.0)))?
            }
            LoadKind::Local(local) => self.local(*local).ok_or_else(|| absent(format!("local {}", local.0)))?,
            LoadKind::Free(name) => Val::Int(self.names.free(name).ok_or_else(|| absent(name.clone()))?),
            LoadKind::Dim(dim) => Val::Int(size::with(dim, span, self)?),
            LoadKind::Size(value) => {
                Val::Int(self.names.size(*value).ok_or_else(|| absent(format!("size of value {}", value.0)))?)
            }
            LoadKind::Matrix(value, attribute) => self
                .names
                .matrix(*value, *attribute)
                .ok_or_else(|| absent(format!("{attribute:?} of matrix {}", value.0).to_lowercase()))?,
            LoadKind::Unary(op, operand) => unary(*op, self.value(operand)?, span)?,
            LoadKind::Binary(op, left, right) => self.binary(*op, left, right, span)?,
            LoadKind::Call(function, arguments) => {
                let arguments = self.values(arguments)?;
                functions::call(*function, arguments, span)?
            }
            LoadKind::Op(op, arguments) => {
                let arguments = self.values(arguments)?;
                self.call(*op, arguments, span)?
            }
            LoadKind::If(condition, then, otherwise) => {
                let arm = if self.value(condition)?.truth(condition.span)? { then } else { otherwise };
                self.value(arm)?
            }
            LoadKind::List(items) => Val::List(self.values(items)?),
            LoadKind::Comprehension { item, each } => {
                let mut items = Vec::new();
                self.comprehend(item, each, &mut items)?;
                Val::List(items)
            }
            LoadKind::Index(list, index) => {
                let list = self.value(list)?.items(list.span)?;
                item_at(&list, self.value(index)?.int(index.span)?, span)?
            }
            LoadKind::Block { lets, value } => {
                let outside = self.locals.len();
                for (local, value) in lets {
                    let value = self.value(value)?;
                    self.locals.push((*local, value));
                }
                let value = self.value(value)?;
                self.locals.truncate(outside);
                value
            }
        })
    }

    fn local(&self, local: LocalId) -> Option<Val> {
        let own = self.locals.iter().rev().find(|(l, _)| *l == local).map(|(_, v)| v.clone());
        own.or_else(|| self.names.local(local))
    }

    fn values(&mut self, loads: &[Load]) -> Result<Vec<Val>, LoadError> {
        loads.iter().map(|load| self.value(load)).collect()
    }

    fn call(&mut self, op: OpId, arguments: Vec<Val>, span: Span) -> Result<Val, LoadError> {
        let op = self.names.program().op(op);
        let OpKind::Load { parameters, dims, body } = &op.kind else {
            let found = format!("`{}`, which takes tensors", op.name);
            return Err(LoadError::new(span, LoadErrorKind::Kind { expected: "an op over load values", found }));
        };
        let lengths = dims.iter().filter_map(|d| {
            let list = arguments.get(d.parameter)?.as_list()?;
            Some((d.name.as_str(), list.len() as i64))
        });
        let dims = lengths.collect();
        let parameters = parameters.iter().map(|p| p.name.as_str()).zip(arguments).collect();
        let inside = Inside { outer: self.names, parameters, dims };
        let mut evaluation = Evaluation { left: self.left, ..Evaluation::new(&inside) };
        let value = evaluation.value(body);
        self.left = evaluation.left;
        value
    }

    fn comprehend(&mut self, item: &Load, each: &[Each], out: &mut Vec<Val>) -> Result<(), LoadError> {
        let Some((first, rest)) = each.split_first() else {
            out.push(self.value(item)?);
            return Ok(());
        };
        match &first.over {
            Over::Range(low, high) => {
                let low_value = self.value(low)?.int(low.span)?;
                let high_value = self.value(high)?.int(high.span)?;
                self.turns((low_value..high_value).map(Val::Int), item, first, rest, out)
            }
            Over::List(list) => {
                let list = self.value(list)?.items(list.span)?;
                self.turns(list.into_iter(), item, first, rest, out)
            }
        }
    }

    fn turns(
        &mut self,
        over: impl Iterator<Item = Val>,
        item: &Load,
        first: &Each,
        rest: &[Each],
        out: &mut Vec<Val>,
    ) -> Result<(), LoadError> {
        for (i, value) in over.enumerate() {
            self.pay(1, item.span)?;
            let outside = self.locals.len();
            if let Some(index) = first.index {
                self.locals.push((index, Val::Int(i as i64)));
            }
            self.locals.push((first.item, value));
            self.comprehend(item, rest, out)?;
            self.locals.truncate(outside);
        }
        Ok(())
    }

    fn binary(&mut self, op: LoadBinary, left: &Load, right: &Load, span: Span) -> Result<Val, LoadError> {
        if matches!(op, LoadBinary::And | LoadBinary::Or) {
            let first = self.value(left)?.truth(left.span)?;
            let decided = (op == LoadBinary::Or) == first;
            return Ok(Val::Bool(if decided { first } else { self.value(right)?.truth(right.span)? }));
        }
        let (a, b) = (self.value(left)?, self.value(right)?);
        combine(op, (a, left.span), (b, right.span), span)
    }
}

/// Two values and where they stand.
pub(super) fn combine(op: LoadBinary, left: (Val, Span), right: (Val, Span), span: Span) -> Result<Val, LoadError> {
    let ((a, left), (b, right)) = (left, right);
    match op {
        LoadBinary::And => Ok(Val::Bool(a.truth(left)? && b.truth(right)?)),
        LoadBinary::Or => Ok(Val::Bool(a.truth(left)? || b.truth(right)?)),
        LoadBinary::Equal => Ok(Val::Bool(a == b)),
        LoadBinary::NotEqual => Ok(Val::Bool(a != b)),
        LoadBinary::In => Ok(Val::Bool(b.items(right)?.contains(&a))),
        LoadBinary::Less | LoadBinary::LessEqual | LoadBinary::Greater | LoadBinary::GreaterEqual => {
            Ok(Val::Bool(ordered(op, &a, &b, span)?))
        }
        LoadBinary::Add
        | LoadBinary::Subtract
        | LoadBinary::Multiply
        | LoadBinary::Divide
        | LoadBinary::Remainder
        | LoadBinary::ShiftLeft => match (&a, &b) {
            (Val::Int(a), Val::Int(b)) => integers(op, *a, *b, span).map(Val::Int),
            _ => Ok(Val::Float(floats(op, a.float(left)?, b.float(right)?))),
        },
    }
}

pub(super) fn item_at(items: &[Val], index: i64, span: Span) -> Result<Val, LoadError> {
    let found = usize::try_from(index).ok().and_then(|at| items.get(at).cloned());
    found.ok_or(LoadError::new(span, LoadErrorKind::Index { index, length: items.len() }))
}

pub(super) fn unary(op: LoadUnary, operand: Val, span: Span) -> Result<Val, LoadError> {
    Ok(match (op, operand) {
        (LoadUnary::Negate, Val::Int(n)) => {
            Val::Int(n.checked_neg().ok_or_else(|| LoadError::new(span, LoadErrorKind::Overflow(format!("-({n})"))))?)
        }
        (LoadUnary::Negate, other) => Val::Float(-other.float(span)?),
        (LoadUnary::Not, other) => Val::Bool(!other.truth(span)?),
        (LoadUnary::ToFloat, Val::List(items)) => {
            Val::List(items.into_iter().map(|v| unary(op, v, span)).collect::<Result<_, _>>()?)
        }
        (LoadUnary::ToFloat, other) => Val::Float(other.float(span)?),
    })
}

fn ordered(op: LoadBinary, a: &Val, b: &Val, span: Span) -> Result<bool, LoadError> {
    let order = match (a, b) {
        (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
        _ => a.float(span)?.partial_cmp(&b.float(span)?),
    };
    Ok(order.is_some_and(|order| match op {
        LoadBinary::Less => order.is_lt(),
        LoadBinary::LessEqual => order.is_le(),
        LoadBinary::Greater => order.is_gt(),
        _ => order.is_ge(),
    }))
}

fn integers(op: LoadBinary, a: i64, b: i64, span: Span) -> Result<i64, LoadError> {
    let error = |kind| LoadError::new(span, kind);
    let overflow = |sign: &str| error(LoadErrorKind::Overflow(format!("{a} {sign} {b}")));
    match op {
        LoadBinary::Add => a.checked_add(b).ok_or_else(|| overflow("+")),
        LoadBinary::Subtract => a.checked_sub(b).ok_or_else(|| overflow("-")),
        LoadBinary::Multiply => a.checked_mul(b).ok_or_else(|| overflow("*")),
        LoadBinary::Divide if b == 0 => Err(error(LoadErrorKind::DivisionByZero)),
        LoadBinary::Divide => match a.checked_rem(b) {
            Some(0) => a.checked_div(b).ok_or_else(|| overflow("/")),
            Some(_) => Err(error(LoadErrorKind::Inexact(a, b))),
            None => Err(overflow("/")),
        },
        LoadBinary::Remainder if a < 0 || b < 1 => Err(error(LoadErrorKind::Remainder(a, b))),
        LoadBinary::Remainder => Ok(a % b),
        LoadBinary::ShiftLeft => {
            let factor = u32::try_from(b).ok().and_then(|b| 1i64.checked_shl(b)).filter(|f| *f > 0);
            factor.and_then(|f| a.checked_mul(f)).ok_or_else(|| overflow("<<"))
        }
        _ => Err(error(LoadErrorKind::Kind { expected: "an operation on integers", found: format!("{op:?}") })),
    }
}

/// Only called with the arithmetic operators; shifts of floats do not pass the checker and give NaN.
fn floats(op: LoadBinary, a: f64, b: f64) -> f64 {
    match op {
        LoadBinary::Add => a + b,
        LoadBinary::Subtract => a - b,
        LoadBinary::Multiply => a * b,
        LoadBinary::Divide => a / b,
        LoadBinary::Remainder => a % b,
        _ => f64::NAN,
    }
}
