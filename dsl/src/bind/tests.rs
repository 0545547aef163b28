//! Checkpoints as lists of names against a hand-made family: two layers of one linear, experts, a split and a joined weight.

use std::collections::BTreeMap;

use super::*;
use crate::{
    config::resolve,
    ir::{LoadBinary, LoadKind, LocalId, Setting, StoredPart},
    testing::{binary, block, config, field, int, load, parameter, program, setting, shape, tensor},
};

fn family() -> Program {
    let dims = ["hidden", "inner", "depth", "experts"];
    let settings = dims.iter().map(|d| Setting::Field(setting(d, crate::ir::FieldType::Dim, &[d], None)));
    let f = DType::F;
    let linear = block(
        "Linear",
        &["inputs", "outputs", "biased"],
        vec![
            field("weight", FieldKind::Matrix(shape(&["$outputs", "$inputs"])), ""),
            Field {
                condition: Some(parameter("biased")),
                ..field("bias", FieldKind::Tensor(tensor(f, &["$outputs"])), "")
            },
        ],
    );
    let no = load(LoadKind::Bool(false));
    let child = |inputs: Load, outputs: Load, biased: Load| FieldKind::Child {
        block: BlockId(0),
        arguments: vec![inputs, outputs, biased],
    };
    let experts = FieldKind::Matrix(shape(&["experts", "inner", "hidden"]));
    let rows = |low, high| {
        let part = StoredPart { path: "gate_up".into(), rows: Some((low, high)) };
        crate::ir::Stored { places: vec![vec![part]] }
    };
    let twice = binary(LoadBinary::Add, config("inner"), config("inner"));
    let cache = tensor(f, &["B", "hidden", "T", "4"]);
    let layer = block(
        "Layer",
        &["i"],
        vec![
            field("up", child(config("hidden"), config("inner"), no.clone()), ""),
            field("experts", experts, "experts.{}.weight | experts.weight"),
            Field {
                stored: rows(int(0), config("inner")),
                ..field("gate", child(config("hidden"), config("inner"), no.clone()), "")
            },
            Field {
                stored: rows(config("inner"), twice),
                ..field("lift", child(config("hidden"), config("inner"), no.clone()), "")
            },
            field("k", FieldKind::State(cache), ""),
        ],
    );
    let layers = FieldKind::Children {
        block: BlockId(1),
        arguments: vec![load(LoadKind::Local(LocalId(0)))],
        variable: LocalId(0),
        low: int(0),
        high: config("depth"),
    };
    let mut model = block(
        "model",
        &[],
        vec![
            field("embed", FieldKind::Matrix(shape(&["inner", "hidden"])), "wte.old + wte.new"),
            field("layers", layers, "model.layers"),
            field("head", child(config("hidden"), config("inner"), load(LoadKind::Bool(true))), ""),
        ],
    );
    model.ignores.push("*.inv_freq".into());
    let mut program = program(settings.collect(), vec![linear, layer, model]);
    program.roots = vec![String::new(), "language_model".into()];
    program
}

fn stored(prefix: &str, stacked: bool) -> BTreeMap<String, Stored> {
    let mut all = BTreeMap::new();
    let mut put = |name: String, shape: &[u64], dtype| {
        all.insert(format!("{prefix}{name}"), Stored { shape: shape.to_vec(), dtype });
    };
    let f = StoredDtype::BF16;
    put("wte.old".into(), &[60, 32], f);
    put("wte.new".into(), &[4, 32], f);
    put("head.weight".into(), &[64, 32], f);
    put("head.bias".into(), &[64], f);
    for i in 0..2 {
        let at = format!("model.layers.{i}");
        // 4 bits: 8 codes a word; groups of 16 columns.
        put(format!("{at}.up.weight"), &[64, 4], StoredDtype::U32);
        put(format!("{at}.up.scales"), &[64, 2], StoredDtype::F16);
        put(format!("{at}.up.biases"), &[64, 2], StoredDtype::F16);
        put(format!("{at}.gate_up.weight"), &[128, 32], f);
        put(format!("{at}.inv_freq"), &[7], f);
        if stacked {
            put(format!("{at}.experts.weight"), &[3, 64, 32], f);
        } else {
            for e in 0..3 {
                put(format!("{at}.experts.{e}.weight"), &[64, 32], f);
            }
        }
    }
    all
}

fn bound(stored: &BTreeMap<String, Stored>) -> Result<Bindings, Vec<String>> {
    let config = serde_json::json!({ "hidden": 32, "inner": 64, "depth": 2, "experts": 3 });
    let program = family();
    let resolved = resolve(&program, &config, &[]).expect("the config is right");
    bind(&program, &resolved, stored, &|_| None).map_err(|all| all.iter().map(ToString::to_string).collect())
}

#[test]
fn weights_in_field_order_with_their_places() {
    let bindings = bound(&stored("", false)).expect("everything fits");
    let paths: Vec<&str> = bindings.weights.iter().map(|w| w.path.as_str()).collect();
    let layer = |i| ["up.weight", "experts", "gate.weight", "lift.weight"].map(|f| format!("layers.{i}.{f}"));
    let expected: Vec<String> = ["embed".to_owned()]
        .into_iter()
        .chain(layer(0))
        .chain(layer(1))
        .chain(["head.weight".to_owned(), "head.bias".to_owned()])
        .collect();
    assert_eq!(paths, expected);

    let at = |path: &str| bindings.weights.iter().find(|w| w.path == path).expect("a weight");
    assert_eq!(at("embed").parts.len(), 2);
    assert_eq!(at("layers.1.up.weight").kind, WeightKind::Packed { bits: 4, group: 16 });
    assert_eq!(at("layers.1.up.weight").shape, [64, 32]);
    assert_eq!(at("layers.0.lift.weight").parts[0].rows, Some((64, 128)));
    assert_eq!(at("layers.0.experts").parts[0].source.pieces().len(), 3);
    assert_eq!(at("layers.0.experts").kind, WeightKind::Matrix);

    let excused = [0, 1].map(|i| format!("model.layers.{i}.inv_freq")).to_vec();
    assert_eq!(bindings.ignored, BTreeMap::from([("*.inv_freq".to_owned(), excused)]));

    let states: Vec<&str> = bindings.states.iter().map(|s| s.path.as_str()).collect();
    assert_eq!(states, ["layers.0.k", "layers.1.k"]);
    let dims = [StateDim::Rows, StateDim::Size(32), StateDim::Positions, StateDim::Size(4)];
    assert_eq!(bindings.states[0].dims, dims);

    let Some(Slot::Children(layers)) = bindings.root.fields.get(1) else { panic!("layers is an array") };
    assert!(matches!(layers[1].fields[4], Slot::State(StateId(1))));
    assert!(matches!(layers[1].fields[1], Slot::Weight(WeightId(6))));
}

#[test]
fn the_second_root_and_the_second_place() {
    let bindings = bound(&stored("language_model.", true)).expect("everything fits");
    let experts = bindings.weights.iter().find(|w| w.path == "layers.1.experts").expect("experts");
    let [Part { source: Source::One(piece), rows: None }] = experts.parts.as_slice() else {
        panic!("one whole tensor")
    };
    assert_eq!(piece.name, "language_model.model.layers.1.experts.weight");
}

#[test]
fn every_misfit_at_once() {
    let mut stored = stored("", false);
    let mut change = |name: &str, shape: &[u64], dtype| {
        let entry = stored.get_mut(name).expect("there");
        *entry = Stored { shape: shape.to_vec(), dtype };
    };
    change("model.layers.0.up.scales", &[64, 3], StoredDtype::F16);
    change("model.layers.1.up.scales", &[64, 2], StoredDtype::F32);
    change("head.bias", &[64], StoredDtype::I32);
    change("model.layers.0.gate_up.weight", &[129, 32], StoredDtype::F32);
    change("model.layers.0.experts.2.weight", &[64, 31], StoredDtype::F32);
    change("wte.new", &[5, 32], StoredDtype::F32);
    let head = stored.remove("head.weight").expect("there");
    stored.insert("haed.weight".into(), head);
    assert_eq!(
        bound(&stored).expect_err("nothing fits"),
        [
            "mis-shaped: `wte.old + wte.new` is [65, 32], and `embed` needs [inner, hidden] = [64, 32] (inner = 64, hidden = 32)",
            "wrongly packed: `model.layers.0.up.scales` (for `layers.0.up.weight`): scales [64, 3] and biases [64, 2] have to be of one shape",
            "mis-shaped: `model.layers.0.experts.2.weight` is [3, 64, 31], and `layers.0.experts` needs [experts, inner, hidden] = [3, 64, 32] (experts = 3, inner = 64, hidden = 32)",
            "wrongly packed: `model.layers.1.up.scales` (for `layers.1.up.weight`): scales (f32) and biases (f16) have to be floats of one dtype",
            "missing: the checkpoint has no tensor `head.weight` [64, 32], which `head.weight` needs; it has `haed.weight`",
            "mis-typed: `head.bias` is i32, and `head.bias` needs a float",
            "unclaimed rows: rows 128..129 of `model.layers.0.gate_up.weight` belong to no field; `layers.0.gate.weight` and `layers.0.lift.weight` take the others",
            "unclaimed: the checkpoint's tensor `haed.weight` [64, 32] belongs to no field; bind it, or excuse it with `ignore`",
        ]
    );
}

#[test]
fn the_config_must_agree_with_the_shapes_of_packed_matrices() {
    let program = family();
    let config = serde_json::json!({ "hidden": 32, "inner": 64, "depth": 2, "experts": 3 });
    let resolved = resolve(&program, &config, &[]).expect("the config is right");
    let declared = |path: &str| (path == "model.layers.0.up").then_some((8, 16));
    let faults = bind(&program, &resolved, &stored("", false), &declared).expect_err("8 bits are declared, 4 stored");
    let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "wrongly packed: `model.layers.0.up.weight` (for `layers.0.up.weight`): the config says 8 bits and groups of 16, the shapes say 4 bits and groups of 16"
        ]
    );
}

#[test]
fn rows_of_a_field_stay_within_the_rows_of_the_field_around_it() {
    let text = r#"
family halves for "halves"

config { n: dim = "n" }

block Half {
    weight: F[n + 1, n] as "weight"[0..n + 1]
    fn (x: F[B, S, n]) -> F[B, S, n + 1] { dot(x, weight) }
}

model {
    table: F[n, n]
    first: Half as "both"[0..n]

    graph embed(tokens: i32[B, S]) -> F[B, S, n] { take(table, tokens, axis = 0) }

    graph forward(x: F[B, S, n], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, n + 1] {
        first(rows_at(x, wanted))
    }
}
"#;
    let program = crate::compile_text("halves.mgraph", text).expect("the family is right");
    let resolved = resolve(&program, &serde_json::json!({ "n": 4 }), &[]).expect("the config is right");
    let tensor = |shape: &[u64]| Stored { shape: shape.to_vec(), dtype: StoredDtype::F32 };
    let stored = [("table".to_owned(), tensor(&[4, 4])), ("both.weight".to_owned(), tensor(&[8, 4]))].into();
    let faults = bind(&program, &resolved, &stored, &|_| None).expect_err("row 4 is the neighbour's");
    let told = faults[0].to_string();
    assert!(told.contains("rows 0..5 do not lie within the 4 rows that the field around them takes"), "{told}");
}
