//! Primitives on awkward values, and a hand-made model with a loop over children, a state, a packed matrix and probes.

use std::{collections::BTreeMap, sync::Arc};

use super::{numeric::Numeric, *};
use crate::{
    bind::{Bindings, Instance, Stored, StoredDtype, bind},
    config::resolve,
    ir::{
        Argument, Binary, BlockId, Carried, Compare, DType, DimSource, FieldId, FieldKind, FieldType, FloatSource,
        FreeDim, Function, FunctionId, LoadKind, LocalId, LoopOver, Op, OpId, OpKind, PackSource, Parameter,
        ParameterKind, PatternPart, Prim, Program, Receiver, Reduce, Region, Setting, Shape, Statement, Type, Unary,
        Value, ValueId,
    },
    testing::{HERE, block, config, dim, field, int, load, program, setting, shape, tensor},
};

fn numeric(precision: Precision) -> Numeric {
    let bindings =
        Bindings { root: Instance::empty(BlockId(0)), weights: vec![], states: vec![], ignored: BTreeMap::new() };
    Numeric::new(Arc::new(bindings), DType::F32, precision, Box::new(|name| Err(format!("no {name}"))))
}

fn apply(primitive: Primitive, dtype: DType, shape: &[usize], operands: &[&Tensor]) -> Result<Tensor, String> {
    let application = Application { primitive: &primitive, dtype, shape, span: HERE, origin: "" };
    numeric(Precision::Single).apply(&application, operands)
}

fn floats(shape: &[usize], elements: &[f32]) -> Tensor {
    Tensor::f32(shape.to_vec(), elements.to_vec()).expect("the elements fill the shape")
}

fn ints(shape: &[usize], elements: &[i32]) -> Tensor {
    Tensor::i32(shape.to_vec(), elements.to_vec()).expect("the elements fill the shape")
}

#[test]
fn a_nan_wins() {
    let x = floats(&[4], &[f32::NAN, 1.0, f32::NAN, -0.0]);
    let y = floats(&[4], &[1.0, f32::NAN, f32::NAN, 2.0]);
    for op in [Binary::Min, Binary::Max] {
        let z = apply(Primitive::Binary(op), DType::F32, &[4], &[&x, &y]).expect("floats").to_f32();
        assert_eq!(z.iter().map(|x| x.is_nan()).collect::<Vec<_>>(), [true, true, true, false]);
    }
    let most = Primitive::Reduce { op: Reduce::Maximum, axes: vec![0] };
    let z = apply(most, DType::F32, &[1], &[&floats(&[3], &[1.0, f32::NAN, 5.0])]).expect("floats");
    assert!(z.to_f32()[0].is_nan());
    let same = apply(Primitive::Compare(Compare::NotEqual), DType::Bool, &[4], &[&x, &x]).expect("floats");
    assert_eq!(same.data(), &Data::from(vec![true, false, true, false]));
}

#[test]
fn broadcasts_from_the_right() {
    let column = floats(&[2, 1], &[10.0, 20.0]);
    let row = floats(&[3], &[1.0, 2.0, 3.0]);
    let sum = apply(Primitive::Binary(Binary::Add), DType::F32, &[2, 3], &[&column, &row]).expect("they fit");
    assert_eq!(sum.to_f32(), [11.0, 12.0, 13.0, 21.0, 22.0, 23.0]);
    // [2, 1, 2] + [3, 1]: no operand steps evenly over the last two axes.
    let cube = floats(&[2, 1, 2], &[0.0, 1.0, 2.0, 3.0]);
    let tall = floats(&[3, 1], &[0.0, 10.0, 20.0]);
    let sum = apply(Primitive::Binary(Binary::Add), DType::F32, &[2, 3, 2], &[&cube, &tall]).expect("they fit");
    assert_eq!(sum.to_f32(), [0.0, 1.0, 10.0, 11.0, 20.0, 21.0, 2.0, 3.0, 12.0, 13.0, 22.0, 23.0]);
    let wide = apply(Primitive::Broadcast, DType::F32, &[2, 2, 1], &[&column]).expect("a new leading axis");
    assert_eq!(wide.to_f32(), [10.0, 20.0, 10.0, 20.0]);
    let error = apply(Primitive::Binary(Binary::Add), DType::F32, &[2, 3], &[&floats(&[2], &[1.0, 2.0]), &row]);
    assert_eq!(error.expect_err("2 is not 3"), "[2] does not broadcast to [2, 3]");
}

#[test]
fn empty_axes() {
    let none = floats(&[0, 3], &[]);
    let sum = Primitive::Reduce { op: Reduce::Sum, axes: vec![0] };
    assert_eq!(apply(sum, DType::F32, &[1, 3], &[&none]).expect("zeros").to_f32(), [0.0; 3]);
    let transposed = apply(Primitive::Transpose(vec![1, 0]), DType::F32, &[3, 0], &[&none]).expect("still empty");
    assert_eq!(transposed.shape(), [3, 0]);
    let joined = Primitive::Concat { axis: 0 };
    let one = floats(&[1, 3], &[1.0, 2.0, 3.0]);
    assert_eq!(apply(joined, DType::F32, &[1, 3], &[&none, &one]).expect("one row").to_f32(), [1.0, 2.0, 3.0]);
}

#[test]
fn views() {
    let x = ints(&[2, 3, 2], &(0..12).collect::<Vec<_>>());
    let turned = apply(Primitive::Transpose(vec![2, 0, 1]), DType::I32, &[2, 2, 3], &[&x]).expect("a permutation");
    assert_eq!(turned.data(), &Data::from(vec![0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]));
    let cuts = [(0, 2, true), (1, 3, true), (1, 2, false)].map(|(start, end, keep)| Cut { start, end, keep });
    let cut = apply(Primitive::Slice(cuts.to_vec()), DType::I32, &[2, 2], &[&x]).expect("within");
    assert_eq!(cut.data(), &Data::from(vec![3, 5, 9, 11]));
    let joined = Primitive::Concat { axis: 1 };
    let y = ints(&[2, 1, 2], &[100, 101, 102, 103]);
    let joined = apply(joined, DType::I32, &[2, 4, 2], &[&x, &y]).expect("they fit");
    assert_eq!(joined.data(), &Data::from(vec![0, 1, 2, 3, 4, 5, 100, 101, 6, 7, 8, 9, 10, 11, 102, 103]));
}

#[test]
fn reductions_over_several_axes() {
    let x = floats(&[2, 3, 2], &(0..12).map(|i| i as f32).collect::<Vec<_>>());
    let sum = Primitive::Reduce { op: Reduce::Sum, axes: vec![0, 2] };
    assert_eq!(apply(sum, DType::F32, &[1, 3, 1], &[&x]).expect("sums").to_f32(), [14.0, 22.0, 30.0]);
    let any = Primitive::Reduce { op: Reduce::Any, axes: vec![1] };
    let bools = Tensor::new(DType::Bool, vec![2, 2], vec![false, true, false, false]).expect("four");
    assert_eq!(apply(any, DType::Bool, &[2, 1], &[&bools]).expect("bools").data(), &Data::from(vec![true, false]));
}

#[test]
fn products() {
    let x = floats(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let w = floats(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let dot = apply(Primitive::Dot, DType::F32, &[2, 3], &[&x, &w]).expect("they fit");
    assert_eq!(dot.to_f32(), [1.0, 2.0, 3.0, 3.0, 4.0, 7.0]);
    let x = floats(&[2, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
    let w = floats(&[2, 1, 2], &[1.0, 1.0, 10.0, 1.0]);
    let each = apply(Primitive::Dot, DType::F32, &[2, 1, 1], &[&x, &w]).expect("equal leading axes");
    assert_eq!(each.to_f32(), [3.0, 34.0]);
    let y = floats(&[2, 2, 2], &[1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]);
    let each = apply(Primitive::Matmul, DType::F32, &[2, 1, 2], &[&x, &y]).expect("equal leading axes");
    assert_eq!(each.to_f32(), [1.0, 2.0, 4.0, 3.0]);
    // Large enough for several threads: row i of x is i, so every product is i * 600.
    let x = floats(&[3, 600], &(0..1800).map(|i| (i / 600) as f32).collect::<Vec<_>>());
    let w = floats(&[501, 600], &vec![1.0; 501 * 600]);
    let all = apply(Primitive::Dot, DType::F32, &[3, 501], &[&x, &w]).expect("they fit").to_f32();
    assert!(all.iter().enumerate().all(|(at, x)| *x == (at / 501 * 600) as f32));
}

#[test]
fn integers() {
    let x = ints(&[2], &[7, -7]);
    let two = ints(&[], &[2]);
    let half = apply(Primitive::Binary(Binary::Divide), DType::I32, &[2], &[&x, &two]).expect("integers");
    assert_eq!(half.data(), &Data::from(vec![3, -3]));
    let error = apply(Primitive::Binary(Binary::Divide), DType::I32, &[2], &[&x, &ints(&[], &[0])]);
    assert_eq!(error.expect_err("no quotient"), "division by zero");
    let cut = apply(Primitive::Convert, DType::I32, &[3], &[&floats(&[3], &[2.9, -2.9, f32::NAN])]).expect("numbers");
    assert_eq!(cut.data(), &Data::from(vec![2, -2, 0]));
}

#[test]
fn narrow_floats_are_rounded_once_to_nearest_even() {
    // 1 + 2^-8 lies halfway between two bf16 and goes to the even one; a little more goes up.
    let x = floats(&[2], &[1.0 + 1.0 / 256.0, 1.0 + 1.0 / 256.0 + 1.0 / 65536.0]);
    let y = apply(Primitive::Convert, DType::BF16, &[2], &[&x]).expect("floats");
    assert_eq!(y.to_f32(), [1.0, 1.0 + 1.0 / 128.0]);
    assert_eq!(y.dtype(), DType::BF16);
    let third = apply(Primitive::Constant(Number::Float(1.0 / 3.0)), DType::F16, &[], &[]).expect("a number");
    assert_eq!(third.to_f32(), [half::f16::from_f64(1.0 / 3.0).to_f32()]);
    let two = apply(Primitive::Binary(Binary::Multiply), DType::F16, &[], &[&third, &third]).expect("floats");
    assert_eq!(two.to_f32(), [half::f16::from_f32(third.to_f32()[0] * third.to_f32()[0]).to_f32()]);
}

#[test]
fn double_precision_keeps_what_f32_drops() {
    let application = |primitive| Application { primitive, dtype: DType::F32, shape: &[], span: HERE, origin: "" };
    let mut double = numeric(Precision::Double);
    let tenth = double.apply(&application(&Primitive::Constant(Number::Float(0.1))), &[]).expect("a number");
    assert_eq!(tenth.to_f64(), [0.1]);
    let e = double.apply(&application(&Primitive::Unary(Unary::Exp)), &[&tenth]).expect("a float");
    assert_eq!(e.to_f64(), [0.1f64.exp()]);
}

#[test]
fn indices() {
    let x = floats(&[2, 3], &[0.0, 1.0, 2.0, 10.0, 11.0, 12.0]);
    let ids = ints(&[2, 2], &[2, 0, 0, 1]);
    let taken = apply(Primitive::Take { axis: 1 }, DType::F32, &[2, 2, 2], &[&x, &ids]).expect("in range");
    assert_eq!(taken.to_f32(), [2.0, 0.0, 0.0, 1.0, 12.0, 10.0, 10.0, 11.0]);
    let along = apply(Primitive::TakeAlong { axis: 1 }, DType::F32, &[2, 2], &[&x, &ids]).expect("in range");
    assert_eq!(along.to_f32(), [2.0, 0.0, 10.0, 11.0]);
    // One row of ids for all rows of x, as `rows_at` uses it.
    let shared = ints(&[1, 1], &[1]);
    let along = apply(Primitive::TakeAlong { axis: 0 }, DType::F32, &[1, 3], &[&x, &shared]).expect("in range");
    assert_eq!(along.to_f32(), [10.0, 11.0, 12.0]);
    let error = apply(Primitive::Take { axis: 1 }, DType::F32, &[2, 1], &[&x, &ints(&[1], &[3])]);
    assert_eq!(error.expect_err("3 of 3"), "id 3 lies outside an axis of 3");
}

#[test]
fn top_k_breaks_ties_by_index() {
    let x = floats(&[1, 5], &[1.0, 3.0, f32::NAN, 3.0, 2.0]);
    let values = apply(Primitive::TopKValues(3), DType::F32, &[1, 3], &[&x]).expect("3 of 5");
    let places = apply(Primitive::TopKIndices(3), DType::I32, &[1, 3], &[&x]).expect("3 of 5");
    assert_eq!(values.to_f32(), [3.0, 3.0, 2.0]);
    assert_eq!(places.data(), &Data::from(vec![1, 3, 4]));
}

#[test]
fn updates_land_at_positions() {
    let state = floats(&[2, 1, 3, 1], &[0.0; 6]);
    let x = floats(&[2, 1, 2, 1], &[1.0, 2.0, 3.0, 4.0]);
    let positions = ints(&[2, 2], &[0, 1, 1, 2]);
    let update = Primitive::Update { axis: 2 };
    let new = apply(update.clone(), DType::F32, &[2, 1, 3, 1], &[&state, &x, &positions]).expect("in range");
    assert_eq!(new.to_f32(), [1.0, 2.0, 0.0, 0.0, 3.0, 4.0]);
    let far = ints(&[2, 2], &[0, 1, 2, 3]);
    let error = apply(update, DType::F32, &[2, 1, 3, 1], &[&state, &x, &far]).expect_err("3 of 3");
    assert_eq!(error, "position 3 lies outside the 3 that the state shows; show more positions");
}

// A hand-made model: x is scaled by each layer's gain through `scale`, added to what the layer remembers.

fn value(ty: Type) -> Value {
    Value { ty, name: None, span: HERE }
}

fn f(dims: &[&str]) -> Type {
    Type::Tensor(tensor(DType::F, dims))
}

fn function(name: &str, parameters: &[(&str, u32)], values: Vec<Type>, free: &[(&str, usize, i32)]) -> Function {
    let parameter =
        |(name, value): &(&str, u32)| Parameter { name: (*name).into(), kind: ParameterKind::Value(ValueId(*value)) };
    let mut dims: Vec<FreeDim> = free
        .iter()
        .map(|(name, parameter, axis)| FreeDim {
            name: (*name).into(),
            source: DimSource::Axis { parameter: *parameter, axis: *axis },
        })
        .collect();
    dims.push(FreeDim { name: "T".into(), source: DimSource::Positions });
    Function {
        name: name.into(),
        doc: String::new(),
        graph: false,
        parameters: parameters.iter().map(parameter).collect(),
        results: vec![],
        free: dims,
        pack: None,
        float: FloatSource::Family,
        values: values.into_iter().map(value).collect(),
        body: Region::default(),
        span: HERE,
    }
}

fn prim(out: u32, op: Prim, arguments: &[u32]) -> Statement {
    Statement::Prim { out: ValueId(out), op, arguments: arguments.iter().map(|a| ValueId(*a)).collect(), span: HERE }
}

/// `op scale(x: F[..], w: F[1]) -> F[..] { x * w }`
fn scale() -> Op {
    let pack = || Type::Tensor(crate::ir::TensorType { dtype: DType::F, shape: Shape { pack: true, dims: vec![] } });
    let mut function = function("scale", &[("x", 0), ("w", 1)], vec![pack(), f(&["1"]), pack()], &[]);
    function.pack = Some(PackSource { parameter: 0, trailing: 0 });
    function.float = FloatSource::Parameter(0);
    function.body =
        Region { statements: vec![prim(2, Prim::Binary(Binary::Multiply), &[0, 1])], results: vec![ValueId(2)] };
    Op { name: "scale".into(), doc: String::new(), kind: OpKind::Tensor { function, twins: vec![] }, span: HERE }
}

fn model() -> Program {
    let mut layer = block(
        "Layer",
        &["i"],
        vec![
            field("gain", FieldKind::Tensor(tensor(DType::F, &["1"])), ""),
            field("memory", FieldKind::State(tensor(DType::F, &["B", "T", "width"])), ""),
        ],
    );
    let x = || f(&["B", "S", "width"]);
    let ids = || Type::Tensor(tensor(DType::I32, &["B", "S"]));
    let memory = || f(&["B", "T", "width"]);
    // x, positions, gain, scaled, memory, updated, sum over positions, with that sum, probed
    let values = vec![x(), ids(), f(&["1"]), x(), memory(), memory(), f(&["B", "1", "width"]), x(), x()];
    let mut turn = function("", &[("x", 0), ("positions", 1)], values, &[("B", 0, -3), ("S", 0, -2)]);
    turn.body = Region {
        statements: vec![
            Statement::Weight { out: ValueId(2), field: FieldId(0) },
            Statement::CallOp {
                outs: vec![ValueId(3)],
                op: OpId(0),
                arguments: vec![Argument::Value(ValueId(0)), Argument::Value(ValueId(2))],
                span: HERE,
            },
            Statement::StateRead { out: ValueId(4), field: FieldId(1) },
            prim(5, Prim::Update { axis: -2 }, &[4, 3, 1]),
            Statement::StateWrite { field: FieldId(1), value: ValueId(5) },
            prim(6, Prim::Reduce { op: Reduce::Sum, axes: vec![-2] }, &[5]),
            prim(7, Prim::Binary(Binary::Add), &[3, 6]),
            Statement::Probe {
                out: ValueId(8),
                value: ValueId(7),
                name: vec![
                    PatternPart::Text("layer.".into()),
                    PatternPart::Hole(load(LoadKind::Parameter("i".into()))),
                ],
                span: HERE,
            },
        ],
        results: vec![ValueId(8)],
    };
    layer.functions.push(turn);
    let layers = FieldKind::Children {
        block: BlockId(0),
        arguments: vec![load(LoadKind::Local(LocalId(0)))],
        variable: LocalId(0),
        low: int(0),
        high: config("depth"),
    };
    let mut root = block("model", &[], vec![field("layers", layers, "")]);
    let values = vec![x(), ids(), x(), x(), x()];
    let mut forward = function("forward", &[("x", 0), ("positions", 1)], values, &[("B", 0, -3), ("S", 0, -2)]);
    forward.graph = true;
    forward.body = Region {
        statements: vec![Statement::For {
            outs: vec![ValueId(4)],
            over: LoopOver::Children { item: LocalId(1), array: Receiver::Field(vec![FieldId(0)]) },
            index: None,
            carried: vec![Carried { initial: ValueId(0), inner: ValueId(2) }],
            collected: vec![],
            body: Region {
                statements: vec![Statement::CallBlock {
                    outs: vec![ValueId(3)],
                    receiver: Receiver::Item { item: LocalId(1), path: vec![] },
                    block: BlockId(0),
                    function: FunctionId(0),
                    arguments: vec![Argument::Value(ValueId(2)), Argument::Value(ValueId(1))],
                    span: HERE,
                }],
                results: vec![ValueId(3)],
            },
        }],
        results: vec![ValueId(4)],
    };
    root.functions.push(forward);
    let sizes = ["width", "depth"].map(|d| Setting::Field(setting(d, FieldType::Dim, &[d], None)));
    let mut program = program(sizes.into(), vec![layer, root]);
    program.ops.push(scale());
    program
}

fn interpreter(precision: Precision) -> Interpreter {
    let program = model();
    let resolved = resolve(&program, &serde_json::json!({ "width": 2, "depth": 2 }), &[]).expect("a good config");
    let one = Stored { shape: vec![1], dtype: StoredDtype::F32 };
    let stored = [("layers.0.gain".to_owned(), one.clone()), ("layers.1.gain".to_owned(), one)].into();
    let bindings = bind(&program, &resolved, &stored, &|_| None).expect("two gains");
    let read = |name: &str| Ok(if name.contains('0') { 2.0f32 } else { 0.5f32 }.to_le_bytes().to_vec());
    Interpreter::new(program.into(), resolved.into(), bindings.into(), DType::F32, precision, Box::new(read))
}

#[test]
fn a_model_remembers_per_slot() {
    for precision in [Precision::Single, Precision::Double] {
        let mut reference = interpreter(precision);
        let x = floats(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let inputs = [("positions", ints(&[1, 2], &[0, 1])), ("x", x.clone())];
        let first = reference.call("forward", &inputs, &[7], 4).expect("a result");
        // Layer 0: 2x, plus the sum of what it remembers: [2+8, 4+12], [6+8, 8+12]. Layer 1: half of it, plus 12 and 18.
        assert_eq!(first.probe("layer.0").map(Tensor::to_f32), Some(vec![10.0, 16.0, 14.0, 20.0]));
        assert_eq!(first.results[0].to_f32(), [17.0, 26.0, 19.0, 28.0]);
        assert_eq!(
            reference.state("layers.0.memory", 7).map(|s| s.to_f32()),
            Some(vec![2.0, 4.0, 6.0, 8.0, 0.0, 0.0, 0.0, 0.0])
        );
        assert_eq!(reference.state("layers.0.memory", 0), None);

        // Two rows: slot 7 goes on at position 2, slot 3 begins; states show fewer positions than before.
        let x = floats(&[2, 1, 2], &[1.0, 1.0, 1.0, 1.0]);
        let inputs = [("x", x), ("positions", ints(&[2, 1], &[2, 0]))];
        let second = reference.call("forward", &inputs, &[7, 3], 3).expect("a result");
        assert_eq!(second.probe("layer.0").map(Tensor::to_f32), Some(vec![12.0, 16.0, 4.0, 4.0]));
        assert_eq!(reference.state("layers.0.memory", 7).map(|s| s.shape().to_vec()), Some(vec![4, 2]));
        assert_eq!(reference.state("layers.0.memory", 3).map(|s| s.to_f32()), Some(vec![2.0, 2.0, 0.0, 0.0, 0.0, 0.0]));

        reference.reset(7);
        assert_eq!(reference.state("layers.0.memory", 7), None);
    }
}

#[test]
fn a_call_goes_on_from_what_it_is_fed() {
    let mut reference = interpreter(Precision::Single);
    reference.feed(Box::new(|name, value| {
        assert_eq!(value.shape(), [1, 2, 2]);
        (name == "layer.0").then(|| floats(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]))
    }));
    let inputs = [("positions", ints(&[1, 2], &[0, 1])), ("x", floats(&[1, 2, 2], &[9.0; 4]))];
    let outcome = reference.call("forward", &inputs, &[0], 4).expect("a result");
    assert_eq!(outcome.probe("layer.0").map(Tensor::to_f32), Some(vec![54.0; 4]));
    // Half of what was fed, plus the sum of both halves.
    assert_eq!(outcome.results[0].to_f32(), [2.5, 4.0, 3.5, 5.0]);
    assert_eq!(outcome.probe("layer.1"), outcome.results.first());

    reference.feed(Box::new(|_, _| Some(floats(&[1, 1, 2], &[0.0; 2]))));
    let refused = reference.call("forward", &inputs, &[1], 4).expect_err("a shape that does not fit");
    assert!(refused.message.contains("what stands for this probe is f32[1, 1, 2]"), "{}", refused.message);
}

#[test]
fn wrong_calls_are_sentences() {
    let mut reference = interpreter(Precision::Single);
    let x = || floats(&[1, 1, 2], &[1.0, 2.0]);
    let at = |p| ints(&[1, 1], &[p]);
    let mut told = |graph: &str, inputs: &[(&str, Tensor)]| {
        reference.call(graph, inputs, &[0], 4).expect_err("a wrong call").message
    };
    assert_eq!(told("embed", &[]), "family toy has no graph `embed`; it has forward");
    assert_eq!(told("forward", &[("x", x())]), "graph `forward` needs input `positions`");
    assert_eq!(told("forward", &[("x", x()), ("positions", at(0)), ("y", x())]), "graph `forward` has no input `y`");
    assert_eq!(
        told("forward", &[("x", floats(&[1, 1, 3], &[0.0; 3])), ("positions", at(0))]),
        "argument `x` of `model.forward` is f32[1, 1, 3] where f32[1, 1, 2] is declared"
    );
    assert_eq!(
        told("forward", &[("x", x()), ("positions", at(4))]),
        "update: position 4 lies outside the 4 that the state shows; show more positions"
    );
    // The failed call wrote nothing.
    assert_eq!(reference.state("layers.0.memory", 0), None);
}

#[test]
fn the_trace_is_the_unrolled_call() {
    let program = model();
    let resolved = resolve(&program, &serde_json::json!({ "width": 2, "depth": 2 }), &[]).expect("a good config");
    let one = Stored { shape: vec![1], dtype: StoredDtype::F32 };
    let stored = [("layers.0.gain".to_owned(), one.clone()), ("layers.1.gain".to_owned(), one)].into();
    let bindings = bind(&program, &resolved, &stored, &|_| None).expect("two gains");
    let sizes = crate::trace::Sizes {
        inputs: &[("x", DType::F, &[1, 3, 2]), ("positions", DType::I32, &[1, 3])],
        rows: 1,
        positions: 8,
        family: DType::BF16,
        twins: None,
    };
    let trace = crate::trace::trace(&program, &resolved, &bindings, "forward", &sizes).expect("a trace");
    assert_eq!(
        trace.to_string(),
        "%0 = input x: bf16[1, 3, 2]\n\
         %1 = input positions: i32[1, 3]\n\
         %2 = weight layers.0.gain: bf16[1]\n\
         %3 = multiply(%0, %2): bf16[1, 3, 2]  // scale\n\
         %4 = state layers.0.memory: bf16[1, 8, 2]\n\
         %5 = update[1](%4, %3, %1): bf16[1, 8, 2]  // Layer.fn\n\
         %6 = sum[1](%5): bf16[1, 1, 2]  // Layer.fn\n\
         %7 = add(%3, %6): bf16[1, 3, 2] @ \"layer.0\"  // Layer.fn\n\
         %8 = weight layers.1.gain: bf16[1]\n\
         %9 = multiply(%7, %8): bf16[1, 3, 2]  // scale\n\
         %10 = state layers.1.memory: bf16[1, 8, 2]\n\
         %11 = update[1](%10, %9, %1): bf16[1, 8, 2]  // Layer.fn\n\
         %12 = sum[1](%11): bf16[1, 1, 2]  // Layer.fn\n\
         %13 = add(%9, %12): bf16[1, 3, 2] @ \"layer.1\"  // Layer.fn\n\
         layers.0.memory = %5\n\
         layers.1.memory = %11\n\
         return %13\n"
    );
    assert_eq!(trace.live(true).shared(), trace);
    // `shape` and `dim` say the same.
    assert_eq!(shape(&["B"]).dims, [dim("B")]);
}
