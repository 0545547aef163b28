//! A golden opened: the family and its checkpoint, what the reference computed, and how far from it one may be
//! (`tests/goldens/README.md`).

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use mgraph_dsl::{
    bind::{Bindings, Stored, StoredDtype, bind},
    compile,
    config::{Resolved, resolve},
    interpret::{Interpreter, Precision},
    ir::{DType, Program},
    prelude_sources,
    source::{PRELUDE, Sources},
};
use mgraph_runtime::parity::{self, Fed};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// A stored tensor, its elements as f64, which holds all of them exactly.
pub struct Numbers {
    pub shape: Vec<usize>,
    pub elements: Vec<f64>,
}

impl Numbers {
    pub fn integers(&self) -> Vec<i32> {
        self.elements.iter().map(|x| *x as i32).collect()
    }
}

pub struct Golden {
    /// Which knows what the reference was fed.
    reference: parity::Golden,
    pub numbers: BTreeMap<String, Numbers>,
    pub facts: Value,
    pub config: Value,
    pub program: Arc<Program>,
    pub resolved: Arc<Resolved>,
    pub bindings: Arc<Bindings>,
    weights: Arc<BTreeMap<String, Vec<u8>>>,
}

/// `from` replaced by `to` in the text of the family, or else of the prelude. It must stand there.
pub struct Edit<'a> {
    pub from: &'a str,
    pub to: &'a str,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn program(family: &str, edits: &[Edit<'_>]) -> Program {
    let name = format!("{family}.mgraph");
    let path = root().join("models/families").join(&name);
    let mut text = fs::read_to_string(path).expect("a family");
    let mut prelude = prelude_sources().get(PRELUDE).text.clone();
    for Edit { from, to } in edits {
        let text = if text.contains(from) { &mut text } else { &mut prelude };
        assert!(text.contains(from), "{name} has no {from:?}, nor has the prelude");
        *text = text.replace(from, to);
    }
    let mut sources = Sources::default();
    sources.add("prelude.mgraph", prelude);
    let file = sources.add(&name, text);
    compile(sources, file).unwrap_or_else(|failed| panic!("{failed}"))
}

impl Golden {
    pub fn open(name: &str, family: &str) -> Golden {
        Golden::edited(name, family, &[])
    }

    pub fn edited(name: &str, family: &str, edits: &[Edit<'_>]) -> Golden {
        let folder = root().join("tests/goldens").join(name);
        let read = |file: &str| fs::read(folder.join(file)).expect("a fixture");
        let json = |file: &str| -> Value { serde_json::from_slice(&read(file)).expect("JSON") };
        let (program, config) = (program(family, edits), json("config.json"));
        let resolved = resolve(&program, &config, &[]).unwrap_or_else(|faults| panic!("{faults:?}"));
        let bytes = read("model.safetensors");
        let tensors = SafeTensors::deserialize(&bytes).expect("a checkpoint");
        let (mut stored, mut weights) = (BTreeMap::new(), BTreeMap::new());
        for (name, view) in tensors.tensors() {
            assert_eq!(view.dtype(), Dtype::F32);
            let shape = view.shape().iter().map(|n| *n as u64).collect();
            stored.insert(name.clone(), Stored { shape, dtype: StoredDtype::F32 });
            weights.insert(name, view.data().to_vec());
        }
        let bindings = bind(&program, &resolved, &stored, &|_| None).unwrap_or_else(|faults| panic!("{faults:?}"));
        let bytes = read("golden.safetensors");
        let tensors = SafeTensors::deserialize(&bytes).expect("golden tensors");
        let numbers = tensors.tensors().into_iter().map(|(name, view)| {
            let elements = match view.dtype() {
                Dtype::F32 => view.data().as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
                Dtype::I32 => view.data().as_chunks().0.iter().map(|b| f64::from(i32::from_le_bytes(*b))).collect(),
                Dtype::U8 => view.data().iter().map(|b| f64::from(*b)).collect(),
                other => panic!("{name} is {other:?}"),
            };
            (name, Numbers { shape: view.shape().to_vec(), elements })
        });
        let reference = parity::Golden::open(&folder.join("golden.safetensors")).expect("golden tensors");
        Golden {
            reference,
            numbers: numbers.collect(),
            facts: json("golden.json"),
            config,
            program: program.into(),
            resolved: resolved.into(),
            bindings: bindings.into(),
            weights: weights.into(),
        }
    }

    pub fn interpreter(&self, family: DType, precision: Precision) -> Interpreter {
        let weights = self.weights.clone();
        let read = move |name: &str| weights.get(name).cloned().ok_or_else(|| format!("no tensor {name}"));
        let (program, resolved, bindings) = (self.program.clone(), self.resolved.clone(), self.bindings.clone());
        Interpreter::new(program, resolved, bindings, family, precision, Box::new(read))
    }

    /// What the reference was fed in the main run or in a variant.
    pub fn fed(&self, variant: Option<&str>) -> Fed {
        let variant = variant.map(|name| self.reference.variant(name).expect("a variant"));
        let reference = variant.as_ref().unwrap_or(&self.reference);
        Fed::of_program(&self.program, &self.resolved, &self.config, reference).expect("inputs that are understood")
    }

    pub fn variants(&self) -> impl Iterator<Item = &str> {
        self.facts["variants"].as_object().into_iter().flatten().map(|(name, _)| name.as_str())
    }

    /// Why `found` is not the reference's `name`, if it is not. Integers and masks must be equal, a measured stage may differ
    /// by the recommended tolerance.
    pub fn differs(&self, name: &str, found: &[f64], expected: &[f64]) -> Option<String> {
        if found.len() != expected.len() {
            return Some(format!("{} elements, expected {}", found.len(), expected.len()));
        }
        let noise = &self.facts["noise"][name];
        let limit = match (noise["max_abs"].as_f64(), noise["scale_rms"].as_f64()) {
            (Some(max_abs), Some(scale)) => 10.0 * max_abs + 1e-6 * scale,
            _ => 0.0,
        };
        let off = |(a, b): (&f64, &f64)| if a.is_finite() { (a - b).abs() } else { f64::INFINITY };
        let worst = found.iter().zip(expected).map(off).fold(0.0, f64::max);
        (worst > limit).then(|| format!("off by {worst:e}, allowed are {limit:e}"))
    }

    pub fn holds(&self, name: &str, found: &[f64], expected: &[f64]) {
        if let Some(difference) = self.differs(name, found, expected) {
            panic!("{name}: {difference}");
        }
    }
}

/// A JSON list of strings.
pub fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}
