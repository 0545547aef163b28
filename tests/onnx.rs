//! ONNX's node cases on MLX and on IREE, in both modes of numerics. `dsl/tests/onnx.rs` has them on the interpreter; where text,
//! numbers and bounds come from is in `tests/onnx/README.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use mgraph_dsl::{
    compile_whole_prelude,
    interpret::Operand,
    ir::{Function, OpKind, Program, Statement, TwinBackend},
    prelude_sources,
};
use mgraph_runtime::{
    backend::Backend,
    direct::{Many, Settings},
    session::Numerics,
    tensor::{DType, Tensor},
};
use safetensors::SafeTensors;

#[path = "onnx/cases.rs"]
mod cases;

use cases::{Case, Suite};

fn program(file: &str) -> Program {
    let mut sources = prelude_sources();
    let (path, text) = Suite::text(file);
    let family = sources.add(path, text);
    compile_whole_prelude(sources, family).unwrap_or_else(|failed| panic!("{failed}"))
}

fn tensor(numbers: &SafeTensors<'_>, key: &str) -> Tensor {
    let view = numbers.tensor(key).expect("the tensor is stored");
    Tensor::of_stored(&view).expect("a dtype of the language")
}

/// The distance of 1 from the next number; 0 of integers and bools.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => half::f16::EPSILON.to_f64(),
        DType::BF16 => half::bf16::EPSILON.to_f64(),
        DType::I32 | DType::U32 | DType::U8 | DType::Bool => 0.0,
    }
}

/// How far a case is off, in units of its bound; or what is wrong with it.
fn judge(
    suite: &Suite,
    numbers: &SafeTensors<'_>,
    backend: &str,
    case: &Case,
    found: &[Tensor],
) -> Result<f64, String> {
    if found.len() != case.expected.len() {
        return Err(format!("{} results for {}", found.len(), case.expected.len()));
    }
    let bound = suite.bound(&case.operator, backend);
    let mut worst: f64 = 0.0;
    for (found, key) in found.iter().zip(&case.expected) {
        let expected = tensor(numbers, key);
        if (found.dtype, &found.shape) != (expected.dtype, &expected.shape) {
            let (a, b) = (&found.shape, &expected.shape);
            return Err(format!("{:?}{a:?} for {:?}{b:?}", found.dtype, expected.dtype));
        }
        let dtype = if bound.single && found.dtype == DType::F64 { DType::F32 } else { found.dtype };
        let (found, expected) = (found.to_f64(), expected.to_f64());
        if let Some(said) = bound.far(&found, &expected, epsilon(dtype), false) {
            return Err(said);
        }
        worst = worst.max(bound.off(&found, &expected, epsilon(dtype)));
    }
    Ok(worst)
}

/// Whether an op of a program, or one that it calls, has a twin.
fn has_twin(program: &Program, name: &str, backend: TwinBackend) -> bool {
    fn of(program: &Program, function: &Function, backend: TwinBackend) -> bool {
        let mut found = false;
        function.body.for_each(&mut |statement| {
            if let Statement::CallOp { op, .. } = statement
                && let OpKind::Tensor { function, twins } = &program.op(*op).kind
            {
                found |= twins.iter().any(|twin| twin.backend == backend) || of(program, function, backend);
            }
        });
        found
    }
    let op = program.ops.iter().find(|op| op.name == name);
    op.is_some_and(|op| match &op.kind {
        OpKind::Tensor { function, twins } => {
            twins.iter().any(|twin| twin.backend == backend) || of(program, function, backend)
        }
        OpKind::Load { .. } => false,
    })
}

/// Runs the cases that are `chosen`; the worst of each operator.
fn run(backend: Backend, numerics: Numerics, chosen: impl Fn(&Case, &Program) -> bool) -> Seen {
    let suite = Suite::read();
    let numbers = suite.numbers();
    let files: BTreeSet<&str> = suite.cases.iter().map(|case| case.file.as_str()).collect();
    let programs: BTreeMap<&str, Program> = files.into_iter().map(|file| (file, program(file))).collect();
    let of = |case: &Case| &programs[case.file.as_str()];
    let cases: Vec<&Case> = suite.cases.iter().filter(|case| chosen(case, of(case))).collect();
    let mut many = Many::new(backend, Settings { numerics, float: DType::F32 });
    for case in &cases {
        let operands = case.inputs.iter().map(|key| Operand::Tensor(tensor(&numbers, key))).collect();
        many.add(of(case), &case.op, operands);
    }
    let (mut wrong, mut seen) = (Vec::new(), Seen::new());
    for (case, found) in cases.iter().zip(many.run()) {
        let judged = found.map_err(|error| format!("{error:#}").chars().take(500).collect());
        match judged.and_then(|found| judge(&suite, &numbers, &backend.to_string(), case, &found)) {
            Ok(off) => note(&mut seen, &case.operator, off),
            Err(said) => wrong.push(format!("{} ({}): {said}", case.case, case.operator)),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    seen
}

/// By operator.
type Seen = BTreeMap<String, f64>;

fn note(seen: &mut Seen, operator: &str, off: f64) {
    let worst = seen.entry(operator.to_owned()).or_default();
    *worst = worst.max(off);
}

/// `MGRAPH_BLESS=1` writes down what was seen, as one machine computes it; the bounds hold on every one.
fn bless(backend: Backend, pinned: Seen, fused: Seen) {
    if std::env::var_os("MGRAPH_BLESS").is_none() {
        return;
    }
    let mut worst = pinned;
    fused.iter().for_each(|(operator, off)| note(&mut worst, operator, *off));
    static ONE: Mutex<()> = Mutex::new(());
    let _alone = ONE.lock();
    let two_digits = |x: f64| format!("{x:.1e}").parse().expect("a number");
    let mut all = Suite::read().seen;
    all.insert(backend.to_string(), worst.into_iter().map(|(operator, x)| (operator, two_digits(x))).collect());
    let text = serde_json::to_string_pretty(&all).expect("JSON");
    std::fs::write(cases::seen_path(), text + "\n").expect("a writable file");
}

/// In `fused`, cases without a twin would be the same calls again.
#[test]
fn mlx() {
    let pinned = run(Backend::Mlx, Numerics::Pinned, |_, _| true);
    let fused = run(Backend::Mlx, Numerics::Fused, |case, program| has_twin(program, &case.op, TwinBackend::Mlx));
    bless(Backend::Mlx, pinned, fused);
}

/// Without the cases that are the body of another; they and the rest of `fused` are in [`every_case_on_iree`].
#[test]
fn iree() {
    let pinned = run(Backend::Iree, Numerics::Pinned, |case, _| !case.is_body());
    let fused = run(Backend::Iree, Numerics::Fused, |case, program| {
        !case.is_body() && has_twin(program, &case.op, TwinBackend::Hlo)
    });
    bless(Backend::Iree, pinned, fused);
}

/// Minutes of compiling.
#[test]
#[ignore = "make test-long"]
fn every_case_on_iree() {
    run(Backend::Iree, Numerics::Pinned, |case, _| case.is_body());
    run(Backend::Iree, Numerics::Fused, |_, _| true);
}
