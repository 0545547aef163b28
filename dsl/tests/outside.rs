//! Every composite of the prelude against an outside judge: numbers of torch and transformers in float64, and how they were
//! made, are in `prelude/`.

use std::{collections::BTreeMap, sync::Arc};

use mgraph_dsl::{
    bind::{Stored, StoredDtype, bind},
    compile_text, compile_whole_prelude,
    config::resolve,
    interpret::{Interpreter, Operand, Precision, Tensor, Typed, run_op},
    ir::{DType, OpKind, Program},
    load::Val,
    prelude_sources,
};
use serde_json::Value;

/// What an op may differ from its judge by, as a share of the largest number of the result.
const BOUNDS: [(Precision, f64); 2] = [(Precision::Single, 2e-6), (Precision::Double, 1e-13)];

const SMALLEST: &str = r#"
model {
    table: Embedding(2, 2)
    graph embed(tokens: i32[B, S]) -> F[B, S, 2] { table(tokens) }
    graph forward(x: F[B, S, 2], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, 2] { rows_at(x, wanted) }
}"#;

fn fixture() -> Value {
    serde_json::from_str(include_str!("prelude/cases.json")).expect("JSON")
}

fn whole_prelude() -> Program {
    let mut sources = prelude_sources();
    let family = sources.add("smallest.mgraph", format!("family smallest for \"smallest\"\n{SMALLEST}"));
    compile_whole_prelude(sources, family).unwrap_or_else(|failed| panic!("{failed}"))
}

struct Numbers {
    shape: Vec<usize>,
    elements: Vec<f64>,
}

fn numbers(value: &Value) -> Numbers {
    let list = |key: &str| value[key].as_array().expect("a list").iter();
    let element = |x: &Value| x.as_f64().or(x.as_bool().map(|b| f64::from(u8::from(b)))).expect("a number");
    Numbers {
        shape: list("shape").map(|n| n.as_u64().expect("a size") as usize).collect(),
        elements: list("elements").map(element).collect(),
    }
}

fn tensor(value: &Value) -> Tensor {
    let Numbers { shape, elements } = numbers(value);
    let made = match value["dtype"].as_str().expect("a dtype") {
        "float" => Tensor::f32(shape, elements.iter().map(|x| *x as f32).collect()),
        "i32" => Tensor::i32(shape, elements.iter().map(|x| *x as i32).collect()),
        "bool" => Tensor::new(DType::Bool, shape, elements.iter().map(|x| *x != 0.0).collect::<Vec<bool>>()),
        other => panic!("no dtype {other}"),
    };
    made.expect("the elements fill the shape")
}

fn load(value: &Value) -> Val {
    match value {
        Value::Array(items) => Val::List(items.iter().map(load).collect()),
        number => number.as_i64().map(Val::Int).or(number.as_f64().map(Val::Float)).expect("a number"),
    }
}

fn operand(value: &Value) -> Operand<Tensor> {
    if value.is_object() { Operand::Tensor(tensor(value)) } else { Operand::Load(load(value)) }
}

/// The number farthest from what it should be, if one is too far.
fn too_far(found: &[f64], expected: &[f64], bound: f64) -> Option<String> {
    if found.len() != expected.len() {
        return Some(format!("{} numbers for {}", found.len(), expected.len()));
    }
    // The lowest f32 hides a key; it says nothing about the other numbers.
    let size = expected.iter().map(|x| x.abs()).filter(|x| *x < 1e30).fold(1.0, f64::max);
    let pairs = found.iter().zip(expected).enumerate();
    let far = pairs.filter(|(_, (a, b))| a.is_nan() || (*a - *b).abs() > bound * b.abs().max(size));
    far.map(|(at, (a, b))| format!("number {at} is {a:?}, the judge says {b:?}")).next()
}

#[test]
fn ops_agree_with_their_judges() {
    let program = whole_prelude();
    let fixture = fixture();
    let mut wrong = Vec::new();
    for case in fixture["cases"].as_array().expect("cases") {
        let Some(name) = case["op"].as_str() else { continue };
        let arguments = case["arguments"].as_array().expect("arguments");
        for (precision, bound) in BOUNDS {
            let operands = arguments.iter().map(operand).collect();
            let results = run_op(&program, name, operands, DType::F32, precision, None)
                .unwrap_or_else(|fault| panic!("{name}: {}", fault.message));
            let expected = case["results"].as_array().expect("results");
            assert_eq!(results.len(), expected.len(), "{name}");
            for (found, expected) in results.iter().zip(expected) {
                let expected = numbers(expected);
                assert_eq!(found.shape(), expected.shape, "{name}");
                if let Some(said) = too_far(&found.to_f64(), &expected.elements, bound) {
                    wrong.push(format!("{name} ({}, {precision:?}): {said}", case["judge"]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn load_ops_agree_with_their_judges() {
    let fixture = fixture();
    for case in fixture["cases"].as_array().expect("cases") {
        let Some(call) = case["call"].as_str() else { continue };
        let text = format!("family call for \"call\"\nconfig {{ let result = {call} }}\n{SMALLEST}");
        let program = compile_text("call.mgraph", &text).unwrap_or_else(|failed| panic!("{failed}"));
        let resolved = resolve(&program, &serde_json::json!({}), &[]).expect("the call has a value");
        let flat = |value: &Val| -> Vec<f64> {
            match value {
                Val::List(items) => items.iter().map(number).collect(),
                single => vec![number(single)],
            }
        };
        let found = flat(resolved.named("result").expect("the config has it"));
        let expected = flat(&load(&case["result"]));
        assert_eq!(found.len(), expected.len(), "{call}");
        for (a, b) in found.iter().zip(&expected) {
            assert!((a - b).abs() <= 1e-13 * b.abs(), "{call}: {a:?}, the judge says {b:?}");
        }
    }
}

fn number(value: &Val) -> f64 {
    match value {
        Val::Int(n) => *n as f64,
        Val::Float(x) => *x,
        other => panic!("{other} is no number"),
    }
}

/// Ops that no case runs directly: they read packed matrices, which `prelude.rs` judges, or a case runs them inside another op.
const JUDGED_ELSEWHERE: [&str; 14] = [
    "unpack",
    "expand",
    "linear",
    "linear_by_bytes",
    "linear_by_parts",
    "linear_by_lanes",
    "linear_by_pieces",
    "linear_of_bytes",
    "lookup",
    "linear_routed",
    "linear_routed_in_place",
    "rope_llama3_one",
    "rope_yarn_dim",
    "rope_yarn_one",
];

#[test]
fn every_op_has_a_case() {
    let fixture = fixture();
    let cases = fixture["cases"].as_array().expect("cases");
    let calls: Vec<&str> = cases.iter().filter_map(|c| c["call"].as_str()).collect();
    let program = whole_prelude();
    let judged = |name: &str| {
        JUDGED_ELSEWHERE.contains(&name)
            || cases.iter().any(|c| c["op"] == name)
            || calls.iter().any(|call| call.contains(&format!("{name}(")))
    };
    let missing: Vec<&str> = program.ops.iter().map(|op| op.name.as_str()).filter(|name| !judged(name)).collect();
    assert!(missing.is_empty(), "no case in prelude/make.py judges {missing:?}");
    let loads = program.ops.iter().filter(|op| matches!(op.kind, OpKind::Load { .. })).count();
    assert!(loads > 5, "the whole prelude is in the program");
}

#[test]
fn blocks_agree_with_their_judges() {
    let fixture = &fixture()["blocks"];
    let text = include_str!("prelude/blocks.mgraph");
    let program = Arc::new(compile_text("blocks.mgraph", text).unwrap_or_else(|failed| panic!("{failed}")));
    let inputs = &fixture["inputs"];
    let config = serde_json::json!({ "chosen": inputs["chosen"]["elements"], "share": inputs["share"]["elements"] });
    let resolved = Arc::new(resolve(&program, &config, &[]).expect("the config is right"));
    let (mut stored, mut weights) = (BTreeMap::new(), BTreeMap::new());
    for (name, value) in fixture["weights"].as_object().expect("weights") {
        let Numbers { shape, elements } = numbers(value);
        let shape = shape.iter().map(|n| *n as u64).collect();
        stored.insert(name.clone(), Stored { shape, dtype: StoredDtype::F32 });
        let bytes: Vec<u8> = elements.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect();
        weights.insert(name.clone(), bytes);
    }
    let bindings = Arc::new(bind(&program, &resolved, &stored, &|_| None).expect("every tensor has its field"));
    let weights = Arc::new(weights);
    for (precision, bound) in BOUNDS {
        let weights = weights.clone();
        let read = move |name: &str| weights.get(name).cloned().ok_or_else(|| format!("no tensor {name}"));
        let (program, resolved, bindings) = (program.clone(), resolved.clone(), bindings.clone());
        let mut reference = Interpreter::new(program, resolved, bindings, DType::F32, precision, Box::new(read));
        let tokens = [("tokens", tensor(&inputs["tokens"]))];
        let embedded = reference.call("embed", &tokens, &[0], 3).expect("embed runs");
        let count = |list: &[i32]| Tensor::i32(vec![1, 3], list.to_vec()).expect("three tokens");
        let given = [("x", tensor(&inputs["x"])), ("positions", count(&[0, 1, 2])), ("wanted", count(&[0, 1, 2]))];
        let outcome = reference.call("forward", &given, &[0], 3).expect("forward runs");
        let found: BTreeMap<String, Tensor> = embedded.probes.into_iter().chain(outcome.probes).collect();
        let expected = fixture["probes"].as_object().expect("probes");
        assert_eq!(found.len(), expected.len());
        for (name, value) in expected {
            let said = too_far(&found[name].to_f64(), &numbers(value).elements, bound);
            assert!(said.is_none(), "{name} ({precision:?}): {}", said.unwrap_or_default());
        }
    }
}
