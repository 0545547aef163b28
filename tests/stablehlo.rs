//! StableHLO's own interpreter as the judge of what our emitter writes: every primitive, every op of the prelude, and `forward` of
//! golden checkpoints. It ran once, outside; `tests/stablehlo/README.md` says how, and its results lie there.

use std::{path::Path, sync::Arc};

use mgraph_dsl::{interpret::Operand, ir::DType};
use mgraph_runtime::{
    backend::Backend,
    direct::{self, Emitted, GraphCall, Outcome, Settings},
    inputs,
    model::Model,
    session::{Batch, Numerics},
    tensor::{self, Tensor},
};
use mgraph_tests::executors::{dtype, operand};

#[path = "conformance/mod.rs"]
#[allow(dead_code, reason = "other executors need more of it")]
mod conformance;
#[path = "stablehlo/stored.rs"]
mod stored;

use conformance::{
    cases::{Call, Suite},
    composites, primitives,
    row::{Executor, Row},
};
use stored::Stored;

/// A dense model, one with sliding windows and `tanh`, and one with routed experts and `top_k`.
const GOLDENS: [(&str, Numerics); 4] = [
    ("llama", Numerics::Pinned),
    ("llama", Numerics::Fused),
    ("gemma3_text", Numerics::Pinned),
    ("bailing_moe_v2", Numerics::Pinned),
];

/// In units of f32's epsilon, of the largest element: StableHLO's interpreter adds one number after the other. Seen: 20.
const GRAPHS: f64 = 24.0;

fn pinned(family: DType) -> Settings {
    Settings { numerics: Numerics::Pinned, float: dtype(family) }
}

/// What IREE refuses is not emitted. `dsl/tests/conformance.rs` holds that these leave no primitive and no op of the prelude out.
fn suite() -> Suite {
    let mut suite = Suite::new(Executor::Iree, primitives::rows().into_iter().chain(composites::rows()).collect());
    let rows = &suite.rows;
    suite.calls.retain(|call| rows[call.row].refusal(Executor::Iree, call.dtype).is_none());
    suite
}

fn shown(row: &Row, call: &Call) -> String {
    format!("{} ({}, {})", row.op, call.dtype.name(), call.shown)
}

fn emitted(suite: &Suite, call: &Call) -> Emitted {
    let operands: Vec<Operand<Tensor>> = call.operands.iter().map(operand).collect();
    direct::emitted_op(&pinned(call.family), &suite.program, &call.op, &operands)
        .unwrap_or_else(|error| panic!("{}: {error:#}", shown(&suite.rows[call.row], call)))
}

/// `forward` of a golden checkpoint on what its `embed` gives.
struct Forward {
    model: Arc<Model>,
    numerics: Numerics,
    inputs: Vec<(String, Tensor)>,
}

impl Forward {
    const POSITIONS: usize = 8;

    fn new(name: &str, numerics: Numerics) -> Forward {
        let (model, _) = mgraph_tests::open_golden(name).unwrap();
        let batch = Batch::row(&[11, 48, 85, 22, 59], 0, 5);
        let of = |graph| inputs::of_tokens(&model.program, &model.resolved, graph, &batch, tensor::DType::F32).unwrap();
        let (embed, mut inputs) = (of("embed"), of("forward"));
        let told = by_name(&embed);
        let x = GraphCall::of_model(&model, "embed", &told, 1, Self::POSITIONS);
        let mut x = direct::graph(Backend::Reference, &pinned(DType::F32), &x).unwrap();
        inputs.push(("x".into(), x.results.remove(0)));
        Forward { model, numerics, inputs }
    }

    fn all() -> impl Iterator<Item = (String, Forward)> {
        GOLDENS.into_iter().map(|(name, numerics)| (format!("{name}, {numerics:?}"), Forward::new(name, numerics)))
    }

    fn with<T>(&self, ask: impl Fn(&Settings, &GraphCall<'_>) -> mgraph_runtime::error::Result<T>) -> T {
        let inputs = by_name(&self.inputs);
        let settings = Settings { numerics: self.numerics, ..pinned(DType::F32) };
        ask(&settings, &GraphCall::of_model(&self.model, "forward", &inputs, 1, Self::POSITIONS)).unwrap()
    }

    fn emitted(&self) -> Emitted {
        self.with(direct::emitted_graph)
    }

    fn run(&self, backend: Backend) -> Outcome {
        self.with(|settings, call| direct::graph(backend, settings, call))
    }
}

fn by_name(told: &[(String, Tensor)]) -> Vec<(&str, Tensor)> {
    told.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
}

/// Every op as its text says it, as StableHLO's interpreter finds it: within the bound that its row has for IREE.
/// `conformance.rs` has IREE itself.
#[test]
fn stablehlo_finds_what_an_op_means() {
    let (suite, stored) = (suite(), Stored::open());
    let mut wrong = Vec::new();
    for call in &suite.calls {
        let row = &suite.rows[call.row];
        let judge = || {
            let results = stored.of(&emitted(&suite, call))?;
            let [found] = results[..] else { return Err(format!("{} results", results.len())) };
            if found.dtype != dtype(call.gives) {
                return Err(format!("the result is {:?}", found.dtype));
            }
            let numbers = found.to_f64();
            within(row.within.bound(Executor::Iree), &numbers, &suite.units(call, &numbers, false)?)
        };
        if let Err(said) = judge() {
            wrong.push(format!("{}: {said}", shown(row, call)));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), suite.calls.len(), wrong.join("\n"));
}

fn within(bound: f64, found: &[f64], units: &[f64]) -> Result<(), String> {
    let (at, most) = units.iter().copied().enumerate().fold((0, 0.0), |a, b| if b.1 > a.1 { b } else { a });
    let count = units.iter().filter(|units| **units > bound).count();
    if count == 0 { Ok(()) } else { Err(format!("{count} of {}: {most:.3} units, {:?}", units.len(), found[at])) }
}

/// In f32, and in units of the largest element of each result and probe.
#[test]
fn whole_graphs() {
    let stored = Stored::open();
    let mut wrong = Vec::new();
    for (name, forward) in Forward::all() {
        let told = match stored.of(&forward.emitted()) {
            Ok(told) => told,
            Err(said) => {
                wrong.push(format!("{name}: {said}"));
                continue;
            }
        };
        for backend in [Backend::Iree, Backend::Reference] {
            let Outcome { results, probes } = forward.run(backend);
            let results = results.into_iter().map(|result| ("result".to_owned(), result));
            let found: Vec<(String, Tensor)> = results.chain(probes).collect();
            assert_eq!(found.len(), told.len(), "{name} on {backend}");
            for ((stage, found), told) in found.iter().zip(&told) {
                let units = of_largest(found, told);
                if units > GRAPHS {
                    wrong.push(format!("{name} on {backend}, {stage}: {units:.1}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The largest difference; infinite where the tensors are of different kinds, or whole numbers differ.
fn of_largest(found: &Tensor, told: &Tensor) -> f64 {
    if found.shape != told.shape || found.dtype != told.dtype || !found.dtype.is_float() && *found != *told {
        return f64::INFINITY;
    }
    let (found, told) = (found.to_f64(), told.to_f64());
    let largest = told.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    let off = found.iter().zip(&told).map(|(x, y)| if x.to_bits() == y.to_bits() { 0.0 } else { (x - y).abs() });
    let most = off.fold(0.0_f64, |most, x| if x.is_nan() { f64::INFINITY } else { most.max(x) });
    if most == 0.0 { 0.0 } else { most / largest / f64::from(f32::EPSILON) }
}

/// Nothing lies there that no module asks for.
#[test]
fn nothing_is_stale() {
    let known: Vec<String> = modules().iter().map(stored::key).collect();
    let stored = Stored::open();
    let stale = stored.without(&known);
    assert!(stale.is_empty(), "{} of no module; run tests/stablehlo/import.py", stale.len());
}

fn modules() -> Vec<Emitted> {
    let suite = suite();
    let ops = suite.calls.iter().map(|call| emitted(&suite, call));
    ops.chain(Forward::all().map(|(_, forward)| forward.emitted())).collect()
}

/// For `import.py`: every module with its inputs, in the folder `MGRAPH_WRITE`.
#[test]
#[ignore = "writes files for tests/stablehlo/import.py"]
fn write_modules() {
    let folder = std::env::var("MGRAPH_WRITE").expect("MGRAPH_WRITE names a folder");
    for emitted in modules() {
        stored::write(Path::new(&folder), &emitted);
    }
}
