//! The imported cases as tests read them, whatever executor runs them: text, numbers, bounds. Included by path.

// Every test binary uses its own part of this module.
#![allow(dead_code)]

use std::{collections::BTreeMap, path::PathBuf};

use safetensors::SafeTensors;
use serde_json::Value;

pub struct Suite {
    /// The version of the `onnx` package.
    pub onnx: String,
    pub cases: Vec<Case>,
    pub skipped: Vec<Skipped>,
    /// By operator.
    pub bounds: BTreeMap<String, Bound>,
    /// The worst that was measured, in the units of the bound: by backend, then by operator.
    pub seen: Seen,
    /// What each reason to skip says: the closed list.
    pub reasons: BTreeMap<String, String>,
    numbers: Vec<u8>,
}

pub type Seen = BTreeMap<String, BTreeMap<String, f64>>;

pub struct Case {
    pub case: String,
    pub operator: String,
    /// The family that has its op.
    pub file: String,
    pub op: String,
    /// Keys of tensors.
    pub inputs: Vec<String>,
    pub expected: Vec<String>,
}

impl Case {
    /// Whether it is the function body of another case, on the same numbers.
    pub fn is_body(&self) -> bool {
        self.case.contains("_expanded")
    }
}

pub struct Skipped {
    pub operator: String,
    pub reason: String,
    /// The operator or dtype that stands in the way.
    pub what: String,
}

/// How far a float result may be off, in units of the last place (of 1) of its dtype; integers and bools are always exact.
#[derive(Clone, Default)]
pub struct Bound {
    pub units: f64,
    pub of: Of,
    /// Floats become whole numbers on the way, so only the width that ONNX computed in gives the same ones.
    pub rounds: bool,
    /// f64 is computed in f32 there, and counts in its units.
    pub single: bool,
    pub why: String,
    /// By backend, where one has another.
    pub on: BTreeMap<String, Bound>,
}

/// What the units are relative to.
#[derive(Clone, Copy, Default)]
pub enum Of {
    /// The expected element.
    #[default]
    Each,
    /// The largest expected element of the tensor.
    Largest,
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("`{key}` is text in {value}")).to_owned()
}

fn list<T>(value: &Value, each: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().expect("a list").iter().map(each).collect()
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/onnx").join(name)
}

/// Where `seen.json` lies, which the tests of the backends write.
pub fn seen_path() -> PathBuf {
    path("seen.json")
}

fn seen() -> Seen {
    let whole = std::fs::read(seen_path()).expect("seen.json");
    serde_json::from_slice(&whole).expect("numbers by backend and operator")
}

impl Suite {
    /// Of an operator on a backend.
    pub fn bound(&self, operator: &str, backend: &str) -> &Bound {
        let bound = &self.bounds[operator];
        bound.on.get(backend).unwrap_or(bound)
    }

    pub fn read() -> Suite {
        let whole = std::fs::read(path("cases.json")).expect("cases.json");
        let whole: Value = serde_json::from_slice(&whole).expect("JSON");
        let names = |value: &Value| list(value, |key| key.as_str().expect("a key").to_owned());
        let object = |key: &str| whole[key].as_object().expect("an object").iter();
        Suite {
            onnx: text(&whole, "onnx"),
            cases: list(&whole["cases"], |c| Case {
                case: text(c, "case"),
                operator: text(c, "operator"),
                file: text(c, "file"),
                op: text(c, "op"),
                inputs: names(&c["inputs"]),
                expected: names(&c["expected"]),
            }),
            skipped: list(&whole["skipped"], |c| Skipped {
                operator: text(c, "operator"),
                reason: text(c, "reason"),
                what: text(c, "what"),
            }),
            bounds: object("bounds").map(|(name, bound)| (name.clone(), Bound::read(bound))).collect(),
            reasons: object("reasons")
                .map(|(name, said)| (name.clone(), said.as_str().expect("text").to_owned()))
                .collect(),
            seen: seen(),
            numbers: std::fs::read(path("cases.safetensors")).expect("cases.safetensors"),
        }
    }

    /// The path and text of a family of cases.
    pub fn text(file: &str) -> (String, String) {
        let path = path(&format!("cases/{file}.mgraph"));
        (path.display().to_string(), std::fs::read_to_string(&path).expect("the file of the cases"))
    }

    pub fn numbers(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.numbers).expect("safetensors")
    }
}

impl Bound {
    fn read(value: &Value) -> Bound {
        let (units, of) = match (value["ulp"].as_f64(), value["of_largest"].as_f64()) {
            (Some(units), None) => (units, Of::Each),
            (None, Some(units)) => (units, Of::Largest),
            (_, _) => panic!("{value} is no bound"),
        };
        let on = value["on"].as_object().into_iter().flatten();
        Bound {
            units,
            of,
            rounds: value["rounds"] == true,
            single: value["single"] == true,
            why: text(value, "why"),
            on: on.map(|(backend, bound)| (backend.clone(), Bound::read(bound))).collect(),
        }
    }

    /// How far the worst element is off, in the units of this bound; infinitely where it is no number but should be one, or the
    /// other way round.
    pub fn off(&self, found: &[f64], expected: &[f64], epsilon: f64) -> f64 {
        let largest = expected.iter().map(|x| x.abs()).filter(|x| x.is_finite()).fold(0.0, f64::max);
        let off = |(a, b): (&f64, &f64)| match self.of {
            _ if a == b || a.is_nan() && b.is_nan() => 0.0,
            Of::Each => (a - b).abs() / (epsilon * b.abs()),
            Of::Largest => (a - b).abs() / (epsilon * largest),
        };
        found.iter().zip(expected).map(off).fold(0.0, |worst, x| if x.is_nan() { f64::INFINITY } else { worst.max(x) })
    }

    /// The first element that is too far from what it should be. `epsilon` is the distance of 1 from the next number of the
    /// result's dtype, 0 of integers and bools. What was not rounded to that dtype may be half a unit farther: `wider`.
    pub fn far(&self, found: &[f64], expected: &[f64], epsilon: f64, wider: bool) -> Option<String> {
        let finite = expected.iter().map(|x| x.abs()).filter(|x| x.is_finite());
        let largest = finite.fold(0.0, f64::max);
        let allowed = |x: f64| {
            let size = match self.of {
                Of::Each => x.abs(),
                Of::Largest => largest,
            };
            epsilon * (self.units * size + if wider { 0.5 * x.abs() } else { 0.0 })
        };
        // Where nothing may be off, zeros have their sign.
        let signs = self.units == 0.0 && !wider;
        let same = |a: f64, b: f64| {
            a == b && (!signs || a.is_sign_negative() == b.is_sign_negative())
                || a.is_nan() && b.is_nan()
                || a != b && (a - b).abs() <= allowed(b)
        };
        let pairs = found.iter().zip(expected).enumerate();
        let wrong = pairs.filter(|(_, (a, b))| !same(**a, **b));
        wrong.map(|(at, (a, b))| format!("number {at} is {a:?}, ONNX says {b:?} (within {:.1e})", allowed(*b))).next()
    }
}
