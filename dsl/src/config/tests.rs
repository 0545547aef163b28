//! Configs as text against a hand-made family of two sections.

use serde_json::json;

use super::*;
use crate::{
    ir::{LoadFunction, Scalar},
    testing::{HERE, binary, config, load, path, program, setting as field, text},
};

fn family() -> Program {
    let hidden = field("hidden", FieldType::Dim, &["hidden_size"], None);
    let heads = field("heads", FieldType::Dim, &["num_attention_heads"], None);
    let head_dim = field(
        "head_dim",
        FieldType::Dim,
        &["head_dim"],
        Some(binary(LoadBinary::Divide, config("hidden"), config("heads"))),
    );
    let act = FieldType::OneOf(vec![Scalar::Text("silu".into()), Scalar::Text("gelu_pytorch_tanh".into())]);
    let act = field("act", act, &["hidden_act"], Some(text("silu")));
    let theta = field("theta", FieldType::Float, &["rope_theta", "rope_parameters.rope_theta"], None);
    let scaling = field("scaling", FieldType::Text, &["rope_scaling.rope_type"], Some(text("default")));
    let depth = field("vit.depth", FieldType::Dim, &["num_hidden_layers"], None);
    let taps = FieldType::List(Box::new(FieldType::Index(config("vit.depth"))));
    let taps = field("vit.taps", taps, &["vit_layers"], None);
    let vit = Section {
        name: "vit".into(),
        keys: vec!["vit_config".into(), "vision_config.vit_config".into(), "vision_config".into()],
        condition: None,
        settings: vec![Setting::Field(depth), Setting::Field(taps)],
    };
    let factor = field("llama3.factor", FieldType::Float, &["factor"], None);
    let llama3 = Section {
        name: "llama3".into(),
        keys: vec!["rope_scaling".into()],
        condition: Some(binary(LoadBinary::Equal, config("scaling"), text("llama3"))),
        settings: vec![Setting::Field(factor)],
    };
    let whole = binary(LoadBinary::Remainder, config("hidden"), config("heads"));
    let require = Require {
        condition: binary(LoadBinary::Equal, whole, load(LoadKind::Int(0))),
        text: "hidden % heads == 0".into(),
        span: HERE,
    };
    let executed = load(LoadKind::Call(LoadFunction::Maximum, vec![config("vit.taps")]));
    let executed = binary(LoadBinary::Add, executed, load(LoadKind::Int(1)));
    let settings = vec![
        Setting::Field(hidden),
        Setting::Field(heads),
        Setting::Field(head_dim),
        Setting::Field(act),
        Setting::Field(theta),
        Setting::Field(scaling),
        Setting::Section(vit),
        Setting::Section(llama3),
        Setting::Limit { path: path("pictures"), value: load(LoadKind::Int(4)) },
        Setting::Require(require),
        Setting::Let { path: path("executed"), value: executed, condition: None },
    ];
    program(settings, vec![])
}

fn good() -> Value {
    json!({
        "hidden_size": 96, "num_attention_heads": 6, "rope_theta": 10000, "rope_scaling": null,
        "vit_config": {}, "vision_config": { "num_hidden_layers": 27, "vit_layers": [-3, -9] }
    })
}

fn faults(change: impl FnOnce(&mut Value)) -> Vec<String> {
    let mut config = good();
    change(&mut config);
    let faults = resolve(&family(), &config, &[]).expect_err("the config is wrong");
    faults.iter().map(|f| f.display("config.json").to_string()).collect()
}

#[test]
fn every_value_knows_its_source() {
    let resolved = resolve(&family(), &good(), &[("pictures".into(), 2)]).expect("the config is right");
    let printed: Vec<String> = resolved.iter().map(|(p, v, o)| format!("{} = {v} ({o})", p.join("."))).collect();
    assert_eq!(
        printed,
        [
            "hidden = 96 (key \"hidden_size\")",
            "heads = 6 (key \"num_attention_heads\")",
            "head_dim = 16 (its default)",
            "act = \"silu\" (its default)",
            "theta = 10000.0 (key \"rope_theta\")",
            "scaling = \"default\" (its default)",
            // An empty `vit_config` does not win, and indices count from the declared depth.
            "vit.depth = 27 (key \"vision_config.num_hidden_layers\")",
            "vit.taps = [24, 18] (key \"vision_config.vit_layers\")",
            "pictures = 2 (the limit as set)",
            "executed = 25 (computed)",
        ]
    );
    assert_eq!(resolved.named("llama3.factor"), None);
}

#[test]
fn all_faults_at_once_and_none_twice() {
    let told = faults(|c| {
        c["hidden_sizes"] = c["hidden_size"].take();
        c["hidden_act"] = json!("gelu_pytorch_tan");
        c["vision_config"]["vit_layers"] = json!([-28, 3]);
    });
    assert_eq!(
        told,
        [
            "config.json: `hidden` has no value: no key \"hidden_size\" at the top level holds a value: \"hidden_size\" is null; did you mean the key \"hidden_sizes\" that is there?",
            "config.json: `act` (key \"hidden_act\") is \"gelu_pytorch_tan\"; expected \"silu\" or \"gelu_pytorch_tanh\"; did you mean \"gelu_pytorch_tanh\"?",
            "config.json: `vit.taps` (key \"vision_config.vit_layers\"), item 0, is -28; expected an index from -27 to 26",
        ]
    );
}

#[test]
fn zero_layers_and_fractions_are_no_dims() {
    let told = faults(|c| {
        c["vision_config"]["num_hidden_layers"] = json!(0);
        c["num_attention_heads"] = json!(6.0);
        c["rope_theta"] = json!("big");
    });
    assert_eq!(
        told,
        [
            "config.json: `heads` (key \"num_attention_heads\") is 6.0; expected a positive integer",
            "config.json: `theta` (key \"rope_theta\") is \"big\"; expected a number",
            "config.json: `vit.depth` (key \"vision_config.num_hidden_layers\") is 0; expected a positive integer",
        ]
    );
}

#[test]
fn sections_that_are_not_there() {
    let told = faults(|c| {
        c["vision_config"] = Value::Null;
        c["rope_scaling"] = json!({ "rope_type": "llama3", "factors": 8 });
    });
    assert_eq!(
        told,
        [
            "config.json: `vit.depth` has no value: it is read from key \"num_hidden_layers\" of section \"vit_config\", \"vision_config.vit_config\" or \"vision_config\", and no such section is present and not empty",
            "config.json: `llama3.factor` has no value: no key \"factor\" in section \"rope_scaling\"; did you mean the key \"factors\" that is there?",
        ]
    );
}

#[test]
fn require_prints_both_sides() {
    let told = faults(|c| c["num_attention_heads"] = json!(7));
    assert_eq!(
        told,
        [
            "config.json: `head_dim` cannot be computed: 96 / 7 leaves a remainder of 5; division of integers must be exact (prelude.mgraph:1)",
            "config.json: the family requires `hidden % heads == 0`, but the left side is 5 and the right side 0 (hidden = 96, heads = 7)",
        ]
    );
}

#[test]
fn what_is_computed_is_finite() {
    let theta = field("theta", FieldType::Float, &["rope_theta"], None);
    let inverse = binary(LoadBinary::Divide, load(LoadKind::Float(1.0)), config("theta"));
    let list = load(LoadKind::List(vec![load(LoadKind::Float(1.0)), inverse]));
    let both = Setting::Let { path: path("both"), value: list, condition: None };
    let program = program(vec![Setting::Field(theta), both], vec![]);
    assert!(resolve(&program, &json!({ "rope_theta": 2.0 }), &[]).is_ok());
    let faults = resolve(&program, &json!({ "rope_theta": 0.0 }), &[]).expect_err("an infinite number");
    assert_eq!(
        faults.iter().map(|f| f.display("config.json").to_string()).collect::<Vec<_>>(),
        [
            "config.json: `both` cannot be computed: it comes to inf, and a model computes with finite numbers (prelude.mgraph:1)"
        ]
    );
}

#[test]
fn limits_are_checked() {
    let faults =
        resolve(&family(), &good(), &[("pictures".into(), 0), ("videos".into(), 1)]).expect_err("wrong limits");
    let told: Vec<String> = faults.iter().map(|f| f.display("config.json").to_string()).collect();
    assert_eq!(
        told,
        [
            "config.json: `pictures` (the limit as set) is 0; expected a positive integer",
            "config.json: there is no limit `videos`; known are pictures",
        ]
    );
}
