//! Derived weights on the reference interpreter: computed in f32, then rounded to `F`; per block instance; absent with
//! their condition; and one weight to the trace.

use std::{collections::BTreeMap, sync::Arc};

use mgraph_dsl::{
    bind::{Bindings, Stored, StoredDtype, WeightKind, bind},
    compile_text,
    config::{Resolved, resolve},
    interpret::{Interpreter, Precision, ReadWeight, Tensor, Typed, derived_weight},
    ir::{DType, Program},
    trace::{Sizes, What, trace},
};

/// The head's columns have length one; each layer turns its kernel round before use.
const FAMILY: &str = r#"
family toy for "toy"
config {
    vocab:  dim  = "vocab"
    hidden: dim  = "hidden"
    depth:  dim  = "depth"
    unit:   bool = "unit"
}
type Hidden = F[B, S, hidden]
block Layer(i: int) {
    kernel: F[hidden, hidden]
    let half = kernel / 2.0
    let turned = transpose(half, [1, 0])
    fn (x: Hidden) -> Hidden { dot(x, turned) }
}
model {
    table:  Embedding(vocab, hidden)
    layers: [Layer(i) for i in 0..depth]
    raw:    F[vocab, hidden] as "head" if unit
    let normed = F(f32(raw) / sqrt(sum(f32(raw) * f32(raw), axis = 0))) if unit
    graph embed(tokens: i32[B, S]) -> Hidden { table(tokens) }
    graph forward(mut x: Hidden, positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {
        for layer in layers { x = layer(x); }
        let x = rows_at(x, wanted);
        if unit { dot(x, normed) } else { table.logits(x) }
    }
}
"#;

struct Loaded {
    program: Arc<Program>,
    resolved: Arc<Resolved>,
    bindings: Arc<Bindings>,
    stored: BTreeMap<String, Vec<f32>>,
}

fn loaded(unit: bool) -> Loaded {
    let program = compile_text("toy.mgraph", FAMILY).expect("the family is right");
    let config = serde_json::json!({ "vocab": 3, "hidden": 2, "depth": 2, "unit": unit });
    let resolved = resolve(&program, &config, &[]).expect("the config is right");
    let mut stored: BTreeMap<String, Vec<f32>> = [
        ("table.weight", vec![1.0, 0.0, 0.0, 1.0, 1.0, 1.0]),
        ("layers.0.kernel", vec![2.0, 4.0, 6.0, 8.0]),
        ("layers.1.kernel", vec![2.0, 0.0, 0.0, 4.0]),
    ]
    .map(|(name, numbers)| (name.to_owned(), numbers))
    .into();
    if unit {
        stored.insert("head".into(), vec![3.0, 1.0, 4.0, 1.0, 0.0, 1.0]);
    }
    let shapes = stored.iter().map(|(name, numbers)| {
        (name.clone(), Stored { shape: vec![numbers.len() as u64 / 2, 2], dtype: StoredDtype::F32 })
    });
    let bindings = bind(&program, &resolved, &shapes.collect(), &|_| None).expect("every tensor has its field");
    Loaded { program: program.into(), resolved: resolved.into(), bindings: bindings.into(), stored }
}

impl Loaded {
    fn read(&self) -> ReadWeight {
        let stored = self.stored.clone();
        Box::new(move |name| {
            let numbers = stored.get(name).ok_or_else(|| format!("no tensor {name}"))?;
            Ok(numbers.iter().flat_map(|x| x.to_le_bytes()).collect())
        })
    }

    fn logits(&self, family: DType, precision: Precision) -> Vec<f64> {
        let (program, resolved, bindings) = (self.program.clone(), self.resolved.clone(), self.bindings.clone());
        let mut reference = Interpreter::new(program, resolved, bindings, family, precision, self.read());
        let ids = |numbers: &[i32]| Tensor::i32(vec![1, 1], numbers.to_vec()).expect("one id");
        let x = reference.call("embed", &[("tokens", ids(&[2]))], &[0], 1).expect("embed runs").results.remove(0);
        let inputs = [("x", x), ("positions", ids(&[0])), ("wanted", ids(&[0]))];
        reference.call("forward", &inputs, &[0], 1).expect("forward runs").results[0].to_f64()
    }
}

#[test]
fn computed_in_f32_and_then_rounded() {
    let loaded = loaded(true);
    // [1, 1] through [[1, 3], [2, 4]] is [4, 6], through [[1, 0], [0, 2]] is [4, 12]; the head is [3, 4, 0] / 5 and 1 / sqrt(3).
    let third = f64::from(1.0 / 3f32.sqrt());
    let exact = |x: f64, y: f64| vec![4.0 * x + 12.0 * y, 4.0 * 0.8 + 12.0 * y, 12.0 * y];
    let near = |found: Vec<f64>, expected: Vec<f64>| {
        let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 2e-6, "{found:?} is not {expected:?}");
    };
    near(loaded.logits(DType::F32, Precision::Single), exact(0.6, third));
    near(loaded.logits(DType::F32, Precision::Double), exact(0.6, 1.0 / 3f64.sqrt()));
    // In bf16 the head is the f32 one, rounded once: 0.6 -> 0.6015625, 0.8 -> 0.80078125, 1 / sqrt(3) -> 0.578125.
    let rounded = vec![4.0 * 0.6015625 + 12.0 * 0.578125, 4.0 * 0.80078125 + 12.0 * 0.578125, 12.0 * 0.578125];
    let rounded: Vec<f64> = rounded.into_iter().map(|x| f64::from(half::bf16::from_f64(x))).collect();
    assert_eq!(loaded.logits(DType::BF16, Precision::Single), rounded);
}

#[test]
fn each_instance_has_its_own() {
    let loaded = loaded(true);
    let derived: Vec<&str> =
        loaded.bindings.weights.iter().filter(|w| w.kind == WeightKind::Derived).map(|w| w.path.as_str()).collect();
    assert_eq!(derived, ["layers.0.half", "layers.0.turned", "layers.1.half", "layers.1.turned", "normed"]);
    let value = |path| {
        let Loaded { program, resolved, bindings, .. } = &loaded;
        derived_weight(program, resolved, bindings, path, loaded.read()).expect("it is derived")
    };
    assert_eq!(value("layers.0.turned").to_f64(), [1.0, 3.0, 2.0, 4.0]);
    assert_eq!(value("layers.1.turned").to_f64(), [1.0, 0.0, 0.0, 2.0]);
    assert_eq!(value("normed").dtype(), DType::F32);
    let Loaded { program, resolved, bindings, .. } = &loaded;
    let stored = derived_weight(program, resolved, bindings, "raw", loaded.read()).expect_err("it is stored");
    assert!(stored.message.contains("`raw` is not derived"), "{stored}");
}

#[test]
fn absent_with_its_condition() {
    let loaded = loaded(false);
    assert!(loaded.bindings.weights.iter().all(|w| w.path != "normed"));
    // The tied head: [4, 12] against [1, 0], [0, 1], [1, 1].
    assert_eq!(loaded.logits(DType::F32, Precision::Single), [4.0, 12.0, 16.0]);
}

#[test]
fn one_weight_to_the_trace() {
    let Loaded { program, resolved, bindings, .. } = loaded(true);
    let sizes = Sizes {
        inputs: &[("x", DType::F, &[1, 1, 2]), ("positions", DType::I32, &[1, 1]), ("wanted", DType::I32, &[1, 1])],
        rows: 1,
        positions: 1,
        family: DType::F32,
        twins: None,
    };
    let trace = trace(&program, &resolved, &bindings, "forward", &sizes).expect("a trace");
    let weights: Vec<&str> = trace
        .nodes
        .iter()
        .filter_map(|node| if let What::Weight { path, .. } = &node.what { Some(path.as_str()) } else { None })
        .collect();
    assert_eq!(weights, ["layers.0.turned", "layers.1.turned", "normed"]);
}
