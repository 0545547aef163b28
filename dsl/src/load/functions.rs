//! The functions of the load stage.

use super::{LoadError, LoadErrorKind, Val};
use crate::{ir::LoadFunction, source::Span};

/// A function of the load stage.
#[derive(Debug, Clone, Copy)]
pub struct Function {
    pub name: &'static str,
    pub function: LoadFunction,
    /// How many; they are called `x`, `y`, `z`.
    pub arguments: usize,
    pub doc: &'static str,
}

const fn row(name: &'static str, function: LoadFunction, arguments: usize, doc: &'static str) -> Function {
    Function { name, function, arguments, doc }
}

/// Every function of the load stage. Where a primitive has the same name, a tensor argument means that one.
pub const FUNCTIONS: &[Function] = &[
    row("pow", LoadFunction::Pow, 2, "`x` to the power `y`"),
    row("sqrt", LoadFunction::Sqrt, 1, "square root"),
    row("exp", LoadFunction::Exp, 1, "e to the power `x`"),
    row("ln", LoadFunction::Ln, 1, "natural logarithm"),
    row("sin", LoadFunction::Sin, 1, "sine of `x` radians"),
    row("cos", LoadFunction::Cos, 1, "cosine of `x` radians"),
    row("abs", LoadFunction::Abs, 1, "magnitude; of an integer, an integer"),
    row("min", LoadFunction::Min, 2, "the smaller; of integers, an integer"),
    row("max", LoadFunction::Max, 2, "the larger; of integers, an integer"),
    row("floor", LoadFunction::Floor, 1, "rounded down, a float"),
    row("ceil", LoadFunction::Ceil, 1, "rounded up, a float"),
    row("clamp", LoadFunction::Clamp, 3, "`x`, but at least `y` and at most `z`; of integers, an integer"),
    row("int", LoadFunction::Int, 1, "rounded down, an integer"),
    row("float", LoadFunction::Float, 1, "the same number as a float"),
    row("len", LoadFunction::Len, 1, "the length of a list"),
    row("sum", LoadFunction::Sum, 1, "the sum of a list; of integers, an integer"),
    row("maximum", LoadFunction::Maximum, 1, "the largest of a list; of integers, an integer"),
];

/// The first float past i64; i64::MAX itself is none.
const TWO_63: f64 = (1u64 << 63) as f64;

/// Integers stay integers through `abs`, `min`, `max`, `clamp`, `sum` and `maximum`; everything else is f64.
pub(super) fn call(function: LoadFunction, arguments: Vec<Val>, span: Span) -> Result<Val, LoadError> {
    let error = |kind| LoadError::new(span, kind);
    let count = |expected| error(LoadErrorKind::Kind { expected, found: format!("{} arguments", arguments.len()) });
    let float = |apply: fn(f64) -> f64| match arguments.as_slice() {
        [x] => Ok(Val::Float(apply(x.float(span)?))),
        _ => Err(count("one argument")),
    };
    match function {
        LoadFunction::Sqrt => float(f64::sqrt),
        LoadFunction::Exp => float(f64::exp),
        LoadFunction::Ln => float(f64::ln),
        LoadFunction::Sin => float(f64::sin),
        LoadFunction::Cos => float(f64::cos),
        LoadFunction::Floor => float(f64::floor),
        LoadFunction::Ceil => float(f64::ceil),
        LoadFunction::Float => float(|x| x),
        LoadFunction::Pow => match arguments.as_slice() {
            [x, y] => Ok(Val::Float(x.float(span)?.powf(y.float(span)?))),
            _ => Err(count("two arguments")),
        },
        LoadFunction::Abs => match arguments.as_slice() {
            [Val::Int(n)] => {
                n.checked_abs().map(Val::Int).ok_or_else(|| error(LoadErrorKind::Overflow(format!("abs({n})"))))
            }
            [x] => Ok(Val::Float(x.float(span)?.abs())),
            _ => Err(count("one argument")),
        },
        LoadFunction::Min | LoadFunction::Max => match arguments.as_slice() {
            [x, y] => pick(function == LoadFunction::Max, x, y, span),
            _ => Err(count("two arguments")),
        },
        LoadFunction::Clamp => match arguments.as_slice() {
            [x, low, high] => pick(false, &pick(true, x, low, span)?, high, span),
            _ => Err(count("three arguments")),
        },
        LoadFunction::Int => match arguments.as_slice() {
            [Val::Int(n)] => Ok(Val::Int(*n)),
            [x] => {
                let x = x.float(span)?;
                match x.floor() {
                    _ if !x.is_finite() => Err(error(LoadErrorKind::NotFinite(x))),
                    down if (-TWO_63..TWO_63).contains(&down) => Ok(Val::Int(down as i64)),
                    _ => Err(error(LoadErrorKind::Overflow(format!("int({x:?})")))),
                }
            }
            _ => Err(count("one argument")),
        },
        LoadFunction::Len => match arguments.as_slice() {
            [Val::List(items)] => Ok(Val::Int(items.len() as i64)),
            _ => Err(count("one list")),
        },
        LoadFunction::Sum => match arguments.as_slice() {
            [Val::List(items)] => sum(items, span),
            _ => Err(count("one list")),
        },
        LoadFunction::Maximum => match arguments.as_slice() {
            [Val::List(items)] => {
                let (first, rest) = items.split_first().ok_or_else(|| error(LoadErrorKind::Empty("maximum")))?;
                rest.iter().try_fold(first.clone(), |best, x| pick(true, &best, x, span))
            }
            _ => Err(count("one list")),
        },
    }
}

fn pick(larger: bool, x: &Val, y: &Val, span: Span) -> Result<Val, LoadError> {
    Ok(match (x, y) {
        (Val::Int(x), Val::Int(y)) => Val::Int(if larger { *x.max(y) } else { *x.min(y) }),
        _ => {
            let (x, y) = (x.float(span)?, y.float(span)?);
            Val::Float(if x.is_nan() || (if larger { x >= y } else { x <= y }) { x } else { y })
        }
    })
}

fn sum(items: &[Val], span: Span) -> Result<Val, LoadError> {
    if items.iter().all(|v| v.as_int().is_some()) {
        let total = items.iter().filter_map(Val::as_int).try_fold(0i64, i64::checked_add);
        let overflow = || LoadError::new(span, LoadErrorKind::Overflow("sum".into()));
        return total.map(Val::Int).ok_or_else(overflow);
    }
    items.iter().try_fold(0.0, |total, x| Ok(total + x.float(span)?)).map(Val::Float)
}
