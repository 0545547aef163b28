//! Expressions by hand, and what is said when they have no value.

use super::*;
use crate::{
    ir::{Each, Load, LoadBinary, LoadFunction, LoadKind, LocalId, Over, PatternPart, Program},
    testing::{HERE, binary, dim as named, int, load, program, text},
};

struct Names(Program);

impl Environment for Names {
    fn program(&self) -> &Program {
        &self.0
    }
    fn config(&self, path: &[String]) -> Option<Val> {
        let value = match path.join(".").as_str() {
            "hidden" => 96,
            "heads" => 6,
            "odd" => 7,
            "huge" => i64::MAX,
            _ => return None,
        };
        Some(Val::Int(value))
    }
    fn free(&self, name: &str) -> Option<i64> {
        (name == "S").then_some(5)
    }
}

fn value(load: &Load) -> Result<Val, String> {
    evaluate(load, &Names(program(vec![], vec![]))).map_err(|e| e.to_string())
}

fn float(x: f64) -> Load {
    load(LoadKind::Float(x))
}

fn call(function: LoadFunction, arguments: Vec<Load>) -> Load {
    load(LoadKind::Call(function, arguments))
}

fn local(n: u32) -> Load {
    load(LoadKind::Local(LocalId(n)))
}

#[test]
fn integers_are_exact() {
    use LoadBinary::*;
    assert_eq!(value(&binary(Divide, int(96), int(6))), Ok(Val::Int(16)));
    assert_eq!(
        value(&binary(Divide, int(97), int(6))),
        Err("97 / 6 leaves a remainder of 1; division of integers must be exact".into())
    );
    assert_eq!(value(&binary(Divide, int(1), int(0))), Err("division by zero".into()));
    assert_eq!(
        value(&binary(Multiply, int(i64::MAX), int(2))),
        Err("the result of `9223372036854775807 * 2` does not fit into 64 bits".into())
    );
    assert_eq!(value(&binary(ShiftLeft, int(1), int(4))), Ok(Val::Int(16)));
    assert!(value(&binary(ShiftLeft, int(1), int(63))).is_err());
    assert_eq!(value(&binary(Remainder, int(17), int(5))), Ok(Val::Int(2)));
    assert!(value(&binary(Remainder, int(-1), int(5))).is_err());
}

#[test]
fn conditions_stop_when_decided() {
    let fails = || binary(LoadBinary::Equal, int(1), binary(LoadBinary::Divide, int(1), int(0)));
    let no = || load(LoadKind::Bool(false));
    assert_eq!(value(&binary(LoadBinary::And, no(), fails())), Ok(Val::Bool(false)));
    assert!(value(&binary(LoadBinary::Or, no(), fails())).is_err());
    let lazy = LoadKind::If(Box::new(no()), Box::new(fails()), Box::new(text("else")));
    assert_eq!(value(&load(lazy)), Ok(Val::Text("else".into())));
}

#[test]
fn frequencies_are_f64() {
    // [1.0 / pow(10000.0, 2.0 * i / 8) for i in 0..4]
    let i = || load(LoadKind::Unary(crate::ir::LoadUnary::ToFloat, Box::new(local(0))));
    let exponent = binary(LoadBinary::Divide, binary(LoadBinary::Multiply, float(2.0), i()), float(8.0));
    let item = binary(LoadBinary::Divide, float(1.0), call(LoadFunction::Pow, vec![float(10000.0), exponent]));
    let each = Each { index: None, item: LocalId(0), over: Over::Range(int(0), int(4)) };
    let list = load(LoadKind::Comprehension { item: Box::new(item), each: vec![each] });
    let expected = (0..4).map(|i| Val::Float(1.0 / 10000f64.powf(2.0 * f64::from(i) / 8.0))).collect();
    assert_eq!(value(&list), Ok(Val::List(expected)));
    let past = load(LoadKind::Index(Box::new(list), Box::new(int(4))));
    assert_eq!(value(&past), Err("index 4 lies outside a list of 4".into()));
}

#[test]
fn two_loops_and_an_index() {
    // [10 * a + b for a in [1, 2] for i, b in [3, 4]]
    let list = |items: &[i64]| load(LoadKind::List(items.iter().map(|n| int(*n)).collect()));
    let item = binary(LoadBinary::Add, binary(LoadBinary::Multiply, int(10), local(0)), local(1));
    let each = vec![
        Each { index: None, item: LocalId(0), over: Over::List(list(&[1, 2])) },
        Each { index: Some(LocalId(2)), item: LocalId(1), over: Over::List(list(&[3, 4])) },
    ];
    let all = load(LoadKind::Comprehension { item: Box::new(item), each });
    assert_eq!(value(&all), Ok(Val::List([13, 14, 23, 24].map(Val::Int).to_vec())));
}

#[test]
fn text_has_holes() {
    let hole = PatternPart::Hole;
    let between =
        |inner| Load::text(vec![PatternPart::Text("a.".into()), hole(inner), PatternPart::Text(".b".into())], HERE);
    // What is known is filled in at once.
    assert!(matches!(between(text("x")).kind, LoadKind::Text(t) if t == "a.x.b"));
    assert!(matches!(between(int(3)).kind, LoadKind::Text(t) if t == "a.3.b"));
    let sum = || binary(LoadBinary::Add, int(1), int(2));
    let nested = between(between(sum()));
    assert!(matches!(&nested.kind, LoadKind::Format(parts) if parts.len() == 3), "{nested:?}");
    assert_eq!(value(&nested), Ok(Val::Text("a.a.3.b.b".into())));
}

#[test]
fn dims_divide_last() {
    let names = Names(program(vec![], vec![]));
    let size = |d: &crate::dim::Dim| dim(d, HERE, &names).map_err(|e| e.to_string());
    let head = named("hidden").over(&named("heads")).expect("one term");
    assert_eq!(size(&head), Ok(16));
    // 3 * hidden / heads + S / 5: each part may be a fraction, the whole is 49.
    let sum = head.times(&crate::dim::Dim::int(3)).and_then(|d| d.plus(&named("S").over(&named("S"))?));
    assert_eq!(size(&sum.expect("small")), Ok(49));
    let odd = named("odd").over(&named("heads")).expect("one term");
    assert_eq!(size(&odd), Err("`odd / heads` comes to 7 / 6, which is not a whole number".into()));
    let both = odd.plus(&named("S").over(&named("heads")).expect("one term")).expect("small");
    assert_eq!(size(&both), Ok(2));
    let huge = named("huge").times(&named("huge")).expect("a polynomial");
    assert_eq!(size(&huge), Err("the result of `huge * huge` does not fit into 64 bits".into()));
    let negative = named("S").minus(&named("odd")).expect("small");
    let error = extent(&negative, HERE, &names).map_err(|e| e.to_string());
    assert_eq!(error, Err(format!("`{negative}` comes to -2; a size cannot be negative")));
    assert_eq!(size(&named("depth")), Err("`depth` has no value here".into()));
}

#[test]
fn rounding_to_integers() {
    assert_eq!(value(&call(LoadFunction::Int, vec![float(-1.5)])), Ok(Val::Int(-2)));
    assert!(value(&call(LoadFunction::Int, vec![float(f64::NAN)])).is_err());
    assert!(value(&call(LoadFunction::Int, vec![float(1e19)])).is_err());
    assert_eq!(value(&call(LoadFunction::Clamp, vec![float(7.0), float(0.0), float(1.0)])), Ok(Val::Float(1.0)));
    assert_eq!(
        value(&call(LoadFunction::Maximum, vec![load(LoadKind::List(vec![]))])),
        Err("`maximum` of an empty list has no value".into())
    );
}
