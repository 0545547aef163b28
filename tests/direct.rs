//! Programs run without generated Rust: the same ops on three executors, and a golden's graphs as its session computes them.

use mgraph_dsl::{interpret::Operand, load::Val};
use mgraph_runtime::{
    backend::{self, Backend},
    direct::{self, GraphCall, Many, Settings},
    inputs,
    model::Model,
    probes::Probes,
    session::{Batch, Float, Numerics, SessionOptions},
    tensor::{DType, Tensor},
};
use mgraph_tests::toy;

const PINNED: Settings = Settings { numerics: Numerics::Pinned, float: DType::F32 };
const BACKENDS: [Backend; 3] = [Backend::Mlx, Backend::Iree, Backend::Reference];

fn numbers(shape: &[usize], seed: u32) -> Tensor {
    Tensor::from_f32(shape, &toy::numbers(shape.iter().product(), seed))
}

#[test]
fn an_op_of_the_prelude_on_three_executors() {
    let program = toy::program("");
    let operands =
        vec![Operand::Tensor(numbers(&[3, 7], 1)), Operand::Tensor(numbers(&[7], 2)), Operand::Load(Val::Float(1e-5))];
    let norm = |backend| direct::op(backend, &PINNED, &program, "rms_norm", operands.clone()).unwrap();
    let [mlx, iree, reference] = BACKENDS.map(norm);
    for found in [mlx, iree] {
        assert_eq!(found[0].shape, [3, 7]);
        for (x, y) in found[0].to_f32().iter().zip(reference[0].to_f32()) {
            assert!((x - y).abs() <= 4.0 * f32::EPSILON * y.abs(), "{x} and {y}");
        }
    }
}

/// Between two that stay: one whose operand does not fit the op, and one of an op that the program has not.
#[test]
fn a_call_that_fails_leaves_the_others_alone() {
    let program =
        toy::program("op twice(x: F[..]) -> F[..] { x + x }\nop flip(x: F[N, M]) -> F[M, N] { transpose(x, [1, 0]) }");
    for backend in BACKENDS {
        let mut many = Many::new(backend, PINNED);
        let (x, y) = (numbers(&[2, 3], 1), numbers(&[5], 2));
        let first = many.add(&program, "twice", vec![Operand::Tensor(x.clone())]);
        let flat = many.add(&program, "flip", vec![Operand::Tensor(y.clone())]);
        let unknown = many.add(&program, "thrice", vec![Operand::Tensor(y.clone())]);
        let last = many.add(&program, "twice", vec![Operand::Tensor(y.clone())]);
        let found = many.run();
        for (at, x) in [(first, &x), (last, &y)] {
            let twice: Vec<f32> = x.to_f32().iter().map(|x| x + x).collect();
            assert_eq!(*found[at].as_ref().unwrap(), [Tensor::from_f32(&x.shape, &twice)], "{backend}");
        }
        assert!(found[flat].is_err(), "{backend}");
        let said = found[unknown].as_ref().unwrap_err().to_string();
        assert!(said.contains("reaches no op `thrice`"), "{backend}: {said}");
    }
}

/// `embed` and `forward` of a model, and the logits of its session, on one batch.
fn both(model: &std::sync::Arc<Model>, backend: Backend, numerics: Numerics) -> (Tensor, Tensor) {
    let tokens: Vec<i32> = (0..12).map(|i| (i * 37 + 11) % 90).collect();
    let batch = Batch::row(&tokens, 0, tokens.len());
    let capacity = 128;
    let options =
        SessionOptions { rows: 1, capacity, max_chunk: 12, dtype: Float::F32, numerics, probes: Probes::Unread };
    let mut session = backend::open(backend, model, options).unwrap();
    let expected = session.step(&batch, None).unwrap();

    let settings = Settings { numerics, float: DType::F32 };
    // What MLX's session holds after this call; all that IREE's holds.
    let positions = if backend == Backend::Mlx { 64 } else { capacity };
    let run = |graph: &str, inputs: &[(&str, Tensor)]| {
        let call = GraphCall::of_model(model, graph, inputs, 1, positions);
        direct::graph(backend, &settings, &call).unwrap().results.remove(0)
    };
    let told = |graph| inputs::of_tokens(&model.program, &model.resolved, graph, &batch, DType::F32).unwrap();
    let (embed, forward) = (told("embed"), told("forward"));
    fn by_name(told: &[(String, Tensor)]) -> Vec<(&str, Tensor)> {
        told.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
    }
    let x = run("embed", &by_name(&embed));
    let inputs = [vec![("x", x)], by_name(&forward)].concat();
    (run("forward", &inputs), expected)
}

/// IREE's session compiles `embed` and `forward` into one module, where gemma's scaling of the embedding is fused with what reads it, and
/// the last bits change, in `pinned` too; llama has none.
#[test]
fn a_graph_is_what_the_session_computes() {
    for (name, backends) in [("llama", &[Backend::Mlx, Backend::Iree][..]), ("gemma3_text", &[Backend::Mlx])] {
        let (model, _) = mgraph_tests::open_golden(name).unwrap();
        for backend in backends {
            for numerics in [Numerics::Pinned, Numerics::Fused] {
                let (direct, session) = both(&model, *backend, numerics);
                assert!(direct == session, "{name} on {backend}, {numerics:?}");
            }
        }
    }
}
