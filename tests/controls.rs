//! Ways to write Molmo2 wrong, on every executor (`goldens/wrong.json`, those that say `everywhere`): no code is generated from them, so their
//! graphs run as they are read. The first stage that is off must be the one that is wrong.

use std::{fs, path::Path, sync::Arc};

use mgraph_models::molmo2;
use mgraph_runtime::{
    backend::Backend,
    direct::{self, GraphCall, Settings},
    family::Family,
    inputs,
    model::Model,
    parity::{Fed, Golden, compare::compare},
    session::{Batch, Numerics},
    tensor::{DType, Tensor},
};
use serde_json::Value;

const SETTINGS: Settings = Settings { numerics: Numerics::Pinned, float: DType::F32 };

fn cases() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens/wrong.json");
    let Value::Array(cases) = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap() else {
        panic!("no cases")
    };
    cases.into_iter().filter(|case| case["everywhere"] == true).collect()
}

fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_else(|| panic!("{case} has no {key}"))
}

fn opened(name: &str, source: &str) -> Arc<Model> {
    let family = Family::of_text("wrong.mgraph", source).unwrap();
    Model::open(&mgraph_tests::golden_dir(name), &[family]).unwrap()
}

fn wrong(case: &Value) -> Arc<Model> {
    let mut source = molmo2::FAMILY.source.to_owned();
    for edit in case["edits"].as_array().unwrap() {
        let (from, to) = (edit[0].as_str().unwrap(), edit[1].as_str().unwrap());
        assert!(source.contains(from), "{}: the family has no {from:?}", text(case, "what"));
        source = source.replace(from, to);
    }
    opened(text(case, "golden"), &source)
}

/// The stages of the graph that has `stage`, in order: `vision` on the pictures, or `forward` on what enters it.
fn stages(model: &Model, golden: &Golden, stage: &str, backend: Backend) -> Vec<(String, Tensor)> {
    let fed = Fed::of(model, golden).unwrap();
    let run = |graph: &str, inputs: &[(&str, Tensor)]| {
        let call = GraphCall::of_model(model, graph, inputs, 1, fed.width);
        direct::graph(backend, &SETTINGS, &call).unwrap().probes
    };
    if !stage.starts_with("text.") {
        return run("vision", &fed.pictures.vision);
    }
    let wanted = vec![fed.width as i32 - 1];
    let of_tokens = vec![fed.pictures.of_tokens.clone()];
    let positions = (0..fed.width as i32).collect();
    let tokens = fed.tokens.clone();
    let batch = Batch { rows: 1, width: fed.width, tokens, positions, wanted, of_tokens, ..Batch::default() };
    let mut given = inputs::of_tokens(&model.program, &model.resolved, "forward", &batch, DType::F32).unwrap();
    given.push(("x".into(), golden.require("text.merged").unwrap().clone()));
    let given: Vec<(&str, Tensor)> = given.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    run("forward", &given)
}

/// The first stage outside the golden's bound.
fn first_outside(stages: &[(String, Tensor)], golden: &Golden) -> Option<String> {
    let outside = |(stage, found): &&(String, Tensor)| {
        let (Some(expected), Some(bound)) = (golden.get(stage), golden.bound(stage)) else { return false };
        !compare(found, expected, bound).unwrap().within()
    };
    stages.iter().find(outside).map(|(stage, _)| stage.clone())
}

/// The first stage that has other bits than the family as it should be.
fn first_other(stages: &[(String, Tensor)], right: &[(String, Tensor)]) -> Option<String> {
    assert_eq!(stages.len(), right.len());
    let other = stages.iter().zip(right).find(|((_, found), (_, expected))| found.bytes != expected.bytes);
    other.map(|((stage, _), _)| stage.clone())
}

fn caught_on(backend: Backend) {
    let cases = cases();
    assert_eq!(cases.len(), 7);
    for case in cases {
        let (_, golden) = mgraph_tests::open_golden(text(&case, "golden")).unwrap();
        let stage = text(&case, "stage");
        let found = stages(&wrong(&case), &golden, stage, backend);
        let first = if case["bits"] == true {
            let right = opened(text(&case, "golden"), molmo2::FAMILY.source);
            assert_eq!(first_outside(&found, &golden), None, "rounding alone");
            first_other(&found, &stages(&right, &golden, stage, backend))
        } else {
            first_outside(&found, &golden)
        };
        assert_eq!(first.as_deref(), Some(stage), "{} on {backend}", text(&case, "what"));
    }
}

#[test]
fn on_the_interpreter() {
    caught_on(Backend::Reference);
}

#[test]
fn on_mlx() {
    caught_on(Backend::Mlx);
}

#[test]
fn on_iree() {
    caught_on(Backend::Iree);
}
