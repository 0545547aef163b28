//! Random well-typed graphs on the reference interpreter: the checker takes each, the formatter keeps each, and f32 gives
//! what f64 gives, for their arithmetic is exact.

use std::collections::BTreeSet;

use mgraph_dsl::{
    format::format,
    interpret::{Precision, Tensor, run_op},
    ir::DType,
    print,
};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};

#[path = "../../tests/conformance/mod.rs"]
#[allow(dead_code, reason = "graphs need only its numbers")]
mod conformance;
#[path = "../../tests/graphs/mod.rs"]
#[allow(dead_code, reason = "backends save what fails")]
mod graphs;

use conformance::cases::{FAMILY, compiled};
use graphs::{
    build::Graph,
    recipe::{Recipe, recipes, shrunk},
    steps::STEPS,
};

const GRAPHS: usize = 200;

/// Graphs of one program: the checker reads the prelude once for all of them.
const TOGETHER: usize = 25;

/// What is wrong with graphs, if something is.
fn wrong(recipes: &[Recipe]) -> Option<String> {
    let graphs: Vec<Graph> = recipes.iter().enumerate().map(|(i, r)| Graph::named(r, &format!("graph{i}"))).collect();
    let text: String = graphs.iter().map(|graph| graph.text.as_str()).collect();
    let judge = || {
        let program = compiled(&text)?;
        let formatted = format("graph.mgraph", &format!("{FAMILY}{text}")).map_err(|failed| failed.to_string())?;
        let again = compiled(formatted.strip_prefix(&head()).ok_or("the formatter changed the head")?)?;
        if print::program(&again) != print::program(&program) {
            return Err(format!("formatted, it is another program:\n{formatted}"));
        }
        for graph in &graphs {
            let run = |precision| {
                let found = run_op(&program, &graph.name, graph.operands.clone(), graph.family, precision, None);
                found.map_err(|fault| fault.to_string())
            };
            let (single, double) = (run(Precision::Single)?, run(Precision::Double)?);
            for (at, (a, b)) in single.iter().zip(&double).enumerate() {
                if a.to_f64() != b.to_f64() {
                    return Err(format!("result {at} is {:?} in f32, {:?} in f64", numbers(a), numbers(b)));
                }
            }
        }
        Ok(())
    };
    judge().err().map(|said: String| format!("{said}\n{text}"))
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_f64().into_iter().take(20).collect()
}

/// The head as the formatter lays it out.
fn head() -> String {
    let whole = format("graph.mgraph", &format!("{FAMILY}op last(x: F[N]) -> F[N] {{ x }}\n"));
    let whole = whole.expect("the head is right");
    whole.split("op last").next().unwrap_or_default().to_owned()
}

#[test]
fn random_graphs_are_programs_and_exact() {
    let count = std::env::var("MGRAPH_GRAPHS").ok().and_then(|n| n.parse().ok()).unwrap_or(GRAPHS);
    let mut runner = TestRunner::deterministic();
    let mut words = BTreeSet::new();
    for (i, start) in (0..count).step_by(TOGETHER).enumerate() {
        let strategy = recipes([DType::F32, DType::F16, DType::BF16][i % 3]);
        let mut draw = |_| strategy.new_tree(&mut runner).expect("a recipe");
        let trees: Vec<_> = (start..count.min(start + TOGETHER)).map(&mut draw).collect();
        let recipes: Vec<Recipe> = trees.iter().map(ValueTree::current).collect();
        let kinds = recipes.iter().flat_map(|recipe| &recipe.steps).map(|(kind, _)| usize::from(*kind) % STEPS.len());
        words.extend(kinds.map(|kind| STEPS[kind].0));
        if wrong(&recipes).is_none() {
            continue;
        }
        for tree in trees {
            let least = shrunk(tree, |recipe| wrong(std::slice::from_ref(recipe)).is_some());
            if let Some(recipe) = least {
                panic!("{}\n{recipe:?}", wrong(std::slice::from_ref(&recipe)).unwrap_or_default());
            }
        }
        panic!("graphs that are right alone and wrong together:\n{}", wrong(&recipes).unwrap_or_default());
    }
    assert_eq!(words.len(), STEPS.len(), "every step is taken");
}
