//! ONNX's node cases on the reference interpreter: an outside judge of the primitives and the prelude. Where text, numbers
//! and bounds come from is in `tests/onnx/README.md`; `book/src/conformance.md` is held to what ran here.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use half::{bf16, f16};
use mgraph_dsl::{
    compile_whole_prelude,
    interpret::{Data, Operand, Precision, Tensor, Typed, run_op},
    ir::{DType, Program},
    prelude_sources,
};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

#[path = "../../tests/onnx/cases.rs"]
mod cases;

use cases::{Bound, Case, Of, Suite};

fn program(file: &str) -> Result<Program, String> {
    let mut sources = prelude_sources();
    let (path, text) = Suite::text(file);
    let family = sources.add(path, text);
    compile_whole_prelude(sources, family).map_err(|failed| failed.to_string())
}

fn tensor(view: &TensorView<'_>) -> Tensor {
    fn words<const N: usize, T>(bytes: &[u8], read: fn([u8; N]) -> T) -> Vec<T> {
        bytes.as_chunks::<N>().0.iter().map(|word| read(*word)).collect()
    }
    let bytes = view.data();
    let (dtype, data): (DType, Data) = match view.dtype() {
        Dtype::F64 => (DType::F64, words(bytes, f64::from_le_bytes).into()),
        Dtype::F32 => (DType::F32, words(bytes, f32::from_le_bytes).into()),
        Dtype::F16 => (DType::F16, words(bytes, |w| f16::from_le_bytes(w).to_f32()).into()),
        Dtype::BF16 => (DType::BF16, words(bytes, |w| bf16::from_le_bytes(w).to_f32()).into()),
        Dtype::I32 => (DType::I32, words(bytes, i32::from_le_bytes).into()),
        Dtype::U32 => (DType::U32, words(bytes, u32::from_le_bytes).into()),
        Dtype::U8 => (DType::U8, bytes.to_vec().into()),
        Dtype::BOOL => (DType::Bool, bytes.iter().map(|b| *b != 0).collect::<Vec<_>>().into()),
        other => panic!("no dtype {other:?}"),
    };
    Tensor::new(dtype, view.shape().to_vec(), data).expect("the elements fill the shape")
}

/// The distance of 1 from the next number; 0 of integers and bools.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F | DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => f16::EPSILON.to_f64(),
        DType::BF16 => bf16::EPSILON.to_f64(),
        DType::I32 | DType::U32 | DType::U8 | DType::Bool => 0.0,
    }
}

/// No operator needs more units here, whatever room its bound leaves for backends.
const ENOUGH: f64 = 4.0;

/// What is wrong with a case, if something is.
fn judge(
    suite: &Suite,
    program: &Program,
    numbers: &SafeTensors<'_>,
    case: &Case,
    precision: Precision,
) -> Option<String> {
    let tensor = |key: &String| tensor(&numbers.tensor(key).expect("the tensor is stored"));
    let operands = case.inputs.iter().map(|key| Operand::Tensor(tensor(key))).collect();
    let found = match run_op(program, &case.op, operands, DType::F32, precision, None) {
        Ok(found) => found,
        Err(fault) => return Some(fault.message),
    };
    if found.len() != case.expected.len() {
        return Some(format!("{} results for {}", found.len(), case.expected.len()));
    }
    let bound = &suite.bounds[&case.operator];
    let bound = Bound { units: bound.units.min(ENOUGH), ..bound.clone() };
    let far = |(found, key): (&Tensor, &String)| {
        let expected = tensor(key);
        if (found.dtype(), found.shape()) != (expected.dtype(), expected.shape()) {
            let (a, b) = (found.shape(), expected.shape());
            return Some(format!("{:?}{a:?} for {:?}{b:?}", found.dtype(), expected.dtype()));
        }
        let wider = precision == Precision::Double;
        bound.far(&found.to_f64(), &expected.to_f64(), epsilon(expected.dtype()), wider)
    };
    found.iter().zip(&case.expected).find_map(far)
}

#[test]
fn the_interpreter_agrees_with_onnx() {
    let suite = Suite::read();
    let numbers = suite.numbers();
    let (mut programs, mut wrong, mut runs) = (BTreeMap::new(), Vec::new(), 0);
    for case in &suite.cases {
        let program =
            programs.entry(&case.file).or_insert_with(|| program(&case.file).map_err(|failed| wrong.push(failed)).ok());
        let Some(program) = program else { continue };
        for precision in [Precision::Single, Precision::Double] {
            if precision == Precision::Double && suite.bounds[&case.operator].rounds {
                continue;
            }
            runs += 1;
            if let Some(said) = judge(&suite, program, &numbers, case, precision) {
                wrong.push(format!("{} ({precision:?}): {said}", case.case));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {runs}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(suite.cases.len() >= 1000, "most of what the language can say is imported");
}

#[test]
fn a_bound_tells_right_from_wrong() {
    let bound = |units, of| Bound { units, of, ..Bound::default() };
    let says = |bound: &Bound, found: f64, wider| bound.far(&[found, 8.0], &[1.0, 8.0], 0.5, wider).is_some();
    assert!(!says(&bound(0.0, Of::Each), 1.0, false) && says(&bound(0.0, Of::Each), 1.01, false));
    assert!(!says(&bound(1.0, Of::Each), 1.5, false) && says(&bound(1.0, Of::Each), 1.6, false));
    assert!(!says(&bound(1.0, Of::Largest), 5.0, false) && says(&bound(1.0, Of::Largest), 5.1, false));
    assert!(!says(&bound(0.0, Of::Each), 1.25, true) && says(&bound(0.0, Of::Each), 1.3, true));
    let exact = bound(0.0, Of::Each);
    let odd = [f64::NAN, f64::INFINITY, 0.0];
    assert!(exact.far(&odd, &odd, 0.5, false).is_none());
    for wrong in [[0.0, f64::INFINITY, 0.0], [f64::NAN, f64::NEG_INFINITY, 0.0], [f64::NAN, f64::INFINITY, -0.0]] {
        assert!(exact.far(&wrong, &odd, 0.5, false).is_some(), "{wrong:?}");
    }
}

/// How many cases there are, run and skipped.
fn counts(suite: &Suite) -> String {
    let (run, skipped) = (suite.cases.len(), suite.skipped.len());
    let bodies = suite.cases.iter().filter(|case| case.is_body()).count();
    format!(
        "Of {} node cases of ONNX {}, {run} run and pass, {bodies} of them the function body of another case on the same \
         numbers; {skipped} are skipped.\n",
        run + skipped,
        suite.onnx,
    )
}

fn operators(suite: &Suite) -> String {
    let mut page = "| operator | pass | of them bodies | skipped | within | seen on MLX | seen on IREE | because |\n\
                    | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_string();
    for (operator, bound) in &suite.bounds {
        let mine: Vec<&Case> = suite.cases.iter().filter(|case| case.operator == *operator).collect();
        let skipped = suite.skipped.iter().filter(|case| case.operator == *operator).count();
        let bodies = mine.iter().filter(|case| case.is_body()).count();
        let shown = |n: usize| if n == 0 { String::new() } else { n.to_string() };
        let (bodies, skipped, count) = (shown(bodies), shown(skipped), mine.len());
        let [mlx, iree] = ["mlx", "iree"].map(|backend| seen(suite, operator, backend));
        let (within, why) = (within(bound), &bound.why);
        page += &format!("| {operator} | {count} | {bodies} | {skipped} | {within} | {mlx} | {iree} | {why} |\n");
    }
    page
}

fn within(bound: &Bound) -> String {
    let of = match bound.of {
        Of::Each => "",
        Of::Largest => " of the largest",
    };
    match (bound.units, bound.single) {
        (0.0, _) => "exact".to_string(),
        (units, false) => format!("{units} ulp{of}"),
        (units, true) => format!("{units} ulp of f32{of}"),
    }
}

/// The worst that was measured, and the bound where the backend has one of its own.
fn seen(suite: &Suite, operator: &str, backend: &str) -> String {
    let measured = suite.seen.get(backend).and_then(|seen| seen.get(operator));
    let Some(measured) = measured else {
        let others = suite.cases.iter().filter(|case| case.operator == *operator && !case.is_body()).count();
        assert_eq!(others, 0, "nothing was seen of {operator} on {backend}");
        return String::new();
    };
    match suite.bounds[operator].on.get(backend) {
        Some(own) => format!("{measured} (within {}: {})", within(own), own.why),
        None => measured.to_string(),
    }
}

fn reasons(suite: &Suite) -> String {
    let mut page = "| why skipped | cases | of |\n| --- | --- | --- |\n".to_string();
    for (reason, said) in &suite.reasons {
        let mine = || suite.skipped.iter().filter(|case| case.reason == *reason);
        let what: BTreeSet<&str> = mine().map(|case| case.what.as_str()).collect();
        let what: Vec<&str> = what.into_iter().collect();
        page += &format!("| {said} | {} | {} |\n", mine().count(), what.join(", "));
    }
    page
}

#[test]
fn the_book_says_what_ran() {
    let suite = Suite::read();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/conformance.md");
    let text = std::fs::read_to_string(&page).expect("a page of the book");
    let parts =
        [("onnx counts", counts(&suite)), ("onnx operators", operators(&suite)), ("onnx skipped", reasons(&suite))];
    let mut fresh = text.clone();
    for (name, part) in parts {
        let begin = format!("<!-- printed: {name} -->\n");
        let (before, rest) = fresh.split_once(&begin).unwrap_or_else(|| panic!("no page prints `{name}`"));
        let (_, after) = rest.split_once("<!-- end -->\n").unwrap_or_else(|| panic!("`{name}` has no end"));
        fresh = format!("{before}{begin}\n{part}\n<!-- end -->\n{after}");
    }
    if fresh != text && std::env::var_os("MGRAPH_BLESS").is_some() {
        std::fs::write(&page, fresh).expect("a writable page");
    } else {
        assert!(fresh == text, "book/src/conformance.md is stale; MGRAPH_BLESS=1 prints it again");
    }
}
