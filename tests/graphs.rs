//! Random well-typed graphs on MLX and on IREE: their arithmetic is exact, so both owe the interpreter's numbers.
//! `MGRAPH_GRAPHS` is how many; a failure is shrunk and saved below `tests/regressions`, which is run first.

use std::{fs, path::PathBuf, time::Instant};

use mgraph_dsl::{
    interpret::{Precision, run_op},
    ir::{DType, Program},
};
use mgraph_runtime::{
    backend::Backend,
    direct::{Many, Settings},
    session::Numerics,
};
use mgraph_tests::executors::{dtype, operand};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

#[path = "conformance/mod.rs"]
#[allow(dead_code, reason = "graphs need only its numbers")]
mod conformance;
#[path = "graphs/mod.rs"]
mod graphs;

use conformance::cases::{FAMILY, compiled};
use graphs::{
    build::Graph,
    recipe::{Recipe, fewest, shrunk},
};

/// In CI.
const GRAPHS: usize = 200;
/// In one program and one module.
const TOGETHER: usize = 50;

/// What is wrong with each graph.
fn wrong(backend: Backend, graphs: &[Graph]) -> Vec<Option<String>> {
    let Some(first) = graphs.first() else { return Vec::new() };
    let program = match compiled(&text(graphs)) {
        Ok(program) => program,
        Err(failed) => return vec![Some(failed); graphs.len()],
    };
    let mut many = Many::new(backend, Settings { numerics: Numerics::Pinned, float: dtype(first.family) });
    for graph in graphs {
        many.add(&program, &graph.name, graph.operands.iter().map(operand).collect());
    }
    let found = many.run();
    let judge = |(graph, found): (&Graph, mgraph_runtime::error::Result<Vec<mgraph_runtime::tensor::Tensor>>)| {
        differs(&program, graph, found.map_err(|error| format!("{error:#}")))
    };
    graphs.iter().zip(found).map(judge).collect()
}

fn differs(
    program: &Program,
    graph: &Graph,
    found: Result<Vec<mgraph_runtime::tensor::Tensor>, String>,
) -> Option<String> {
    let found = match found {
        Ok(found) => found,
        Err(error) => return Some(error),
    };
    let meant = run_op(program, &graph.name, graph.operands.clone(), graph.family, Precision::Single, None);
    let meant = match meant {
        Ok(meant) => meant,
        Err(fault) => return Some(fault.to_string()),
    };
    let pairs = found.iter().zip(&meant).enumerate();
    let mut wrong = pairs.filter(|(_, (found, meant))| found.to_f64() != meant.to_f64());
    wrong.next().map(|(at, (found, meant))| {
        let few = |numbers: Vec<f64>| numbers.into_iter().take(24).collect::<Vec<_>>();
        format!("result {at} is {:?}, meant is {:?}", few(found.to_f64()), few(meant.to_f64()))
    })
}

fn regressions() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("regressions")
}

fn named(recipes: &[Recipe]) -> Vec<Graph> {
    recipes.iter().enumerate().map(|(i, recipe)| Graph::named(recipe, &format!("graph{i}"))).collect()
}

/// What is wrong with the first of them that is.
fn fails(backend: Backend, recipes: &[Recipe]) -> Option<String> {
    wrong(backend, &named(recipes)).into_iter().flatten().next()
}

/// The text, with its recipes in front, from which the operands come.
fn saved(recipes: &[Recipe], said: &str) -> String {
    let lines: String = recipes.iter().map(|recipe| format!("// {}\n", recipe.written())).collect();
    let said: String = said.lines().map(|line| format!("// {line}\n")).collect();
    format!("{lines}{said}{FAMILY}\n{}", text(&named(recipes)))
}

fn text(graphs: &[Graph]) -> String {
    graphs.iter().map(|graph| graph.text.as_str()).collect()
}

fn run(backend: Backend, families: &'static [DType]) {
    let count = std::env::var("MGRAPH_GRAPHS").ok().and_then(|n| n.parse().ok()).unwrap_or(GRAPHS);
    // The same graphs every time, and others for each backend.
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[backend as u8 + 1; 32]);
    let mut runner = TestRunner::new_with_rng(Default::default(), rng);
    let mut failures = Vec::new();
    for (i, start) in (0..count).step_by(TOGETHER).enumerate() {
        let strategy = graphs::recipe::recipes(families[i % families.len()]);
        let trees = (start..count.min(start + TOGETHER)).map(|_| strategy.new_tree(&mut runner).expect("a recipe"));
        let trees: Vec<_> = trees.collect();
        let recipes: Vec<Recipe> = trees.iter().map(ValueTree::current).collect();
        let graphs = named(&recipes);
        let begun = Instant::now();
        let found = wrong(backend, &graphs);
        println!(
            "{backend}: {} graphs in {:.1} s, {} wrong",
            graphs.len(),
            begun.elapsed().as_secs_f64(),
            found.iter().flatten().count()
        );
        for (tree, found) in trees.into_iter().zip(found) {
            if found.is_none() {
                continue;
            }
            let alone = |recipe: &Recipe| vec![recipe.clone()];
            let least = match shrunk(tree, |recipe| fails(backend, &alone(recipe)).is_some()) {
                Some(least) => alone(&least),
                // Wrong only in the company of others.
                None => fewest(recipes.clone(), |some| fails(backend, some).is_some()),
            };
            let said = fails(backend, &least).or(found).unwrap_or_default();
            let text = saved(&least, &format!("{backend}: {said}"));
            let digest = least.iter().fold(0, |digest, recipe| digest ^ recipe.digest());
            let file = regressions().join(format!("{digest:016x}.mgraph"));
            fs::create_dir_all(regressions()).and_then(|()| fs::write(&file, &text)).expect("a writable folder");
            failures.push(format!("{}\n{text}", file.display()));
        }
        assert!(failures.len() < 5, "{}", failures.join("\n"));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn random_graphs_on_mlx() {
    run(Backend::Mlx, &[DType::F32]);
}

#[test]
fn random_graphs_on_iree() {
    run(Backend::Iree, &[DType::F32, DType::F32, DType::F16, DType::BF16]);
}

#[test]
fn what_once_failed() {
    let mut files: Vec<PathBuf> = fs::read_dir(regressions())
        .map(|entries| entries.map(|entry| entry.expect("a readable folder").path()).collect())
        .unwrap_or_default();
    files.retain(|file| file.extension().is_some_and(|end| end == "mgraph"));
    files.sort();
    let mut failures = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a readable file");
        let lines = text.lines().map_while(|line| line.strip_prefix("// recipe"));
        let read = |line: &str| Recipe::read(&format!("recipe{line}")).unwrap_or_else(|| panic!("no recipe:{line}"));
        let recipes: Vec<Recipe> = lines.map(read).collect();
        let graphs = named(&recipes);
        let made: String = graphs.iter().map(|graph| graph.text.as_str()).collect();
        assert!(
            !recipes.is_empty() && text.ends_with(&made),
            "{}: the recipes make another text:\n{made}",
            file.display()
        );
        let single = recipes.iter().all(|recipe| recipe.family == DType::F32);
        let backends: &[Backend] = if single { &[Backend::Mlx, Backend::Iree] } else { &[Backend::Iree] };
        for backend in backends {
            let said = fails(*backend, &recipes);
            failures.extend(said.map(|said| format!("{} on {backend}: {said}", file.display())));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
