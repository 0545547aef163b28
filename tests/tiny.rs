//! Tiny models of every family that need no golden: configs drawn from the family's own schema (`tiny/draw.rs`), random weights of
//! the shapes that these ask for. Whatever a family takes has to run, alike on every executor, and whatever it does not take is
//! refused with a sentence. `MGRAPH_TINY` is how many models of each family are run, `MGRAPH_FAMILY` the one family that is.

use std::{collections::BTreeMap, ops::ControlFlow, rc::Rc, sync::Arc, time::Instant};

use mgraph_dsl::{
    bind::Bindings,
    config::{Origin, resolve},
    ir::{DType, FieldType, ParameterKind, Program, Type},
    load::{Environment, Val, extent},
    trace::{Sizes, Trace, trace},
};
use mgraph_models::FAMILIES;
use mgraph_runtime::{
    backend::Backend,
    family::Family,
    model::Model,
    parity::{self, Basis, Golden, Outcome, Parts, Row, Settings, Watch},
    session::{Float, Numerics},
};
use mgraph_tests::certificate::{Case, Emitted, first_difference};
use proptest::{
    prelude::Rng,
    test_runner::{RngAlgorithm, TestRng},
};
use serde_json::{Value, json};

#[path = "tiny/branches.rs"]
mod branches;
#[path = "tiny/draw.rs"]
mod draw;
#[path = "tiny/hints.rs"]
mod hints;
#[path = "tiny/pictures.rs"]
mod pictures;
#[path = "tiny/weights.rs"]
mod weights;

use branches::Branches;
use draw::{Draw, Drawn};

/// Of each family, in CI.
const MODELS: usize = 1;
/// For each that is run on every executor: so many that the interpreter and MLX run, so many whose emissions are certified, and
/// so many whose graphs are unrolled.
const INTERPRETED: usize = 8;
const CERTIFIED: usize = 3;
const TRACED: usize = 60;
/// Weights of a model.
const ROOM: u64 = 300_000;
/// Longer than windows are.
const PROMPT: usize = 11;
const STEPS: usize = 3;

fn families() -> impl Iterator<Item = &'static Family> {
    let one = std::env::var("MGRAPH_FAMILY").ok();
    FAMILIES.iter().copied().filter(move |family| one.as_ref().is_none_or(|name| family.name == name))
}

fn models() -> usize {
    std::env::var("MGRAPH_TINY").ok().and_then(|n| n.parse().ok()).unwrap_or(MODELS)
}

/// The same every time, and others for each family and use.
fn random(family: &Family, of: u8) -> TestRng {
    let mut seed = [of; 32];
    family.name.bytes().take(31).enumerate().for_each(|(at, byte)| seed[at + 1] = byte);
    TestRng::from_seed(RngAlgorithm::ChaCha, &seed)
}

fn program(family: &Family) -> Program {
    mgraph_dsl::compile_text(family.file, family.source).unwrap_or_else(|failed| panic!("{failed}"))
}

/// A config and the tensors that it asks for.
struct Tiny {
    drawn: Drawn,
    layout: weights::Layout,
    bindings: Bindings,
}

fn tiny(program: &Program, draw: &Draw<'_>, random: &mut dyn Rng) -> Tiny {
    loop {
        let drawn = draw.one(random);
        let found = weights::layout(program, &drawn.resolved, random);
        let (layout, bindings) =
            found.unwrap_or_else(|fault| panic!("{} takes {}\n{fault}", program.name, drawn.config));
        if weights::elements(&layout) <= ROOM {
            return Tiny { drawn, layout, bindings };
        }
    }
}

/// The config, and the free dims of a call.
struct Call<'a> {
    program: &'a Program,
    tiny: &'a Tiny,
    /// B, S, R, T, and all others.
    sizes: [usize; 5],
}

impl Environment for Call<'_> {
    fn program(&self) -> &Program {
        self.program
    }
    fn config(&self, path: &[String]) -> Option<Val> {
        self.tiny.drawn.resolved.get(path).cloned()
    }
    fn free(&self, name: &str) -> Option<i64> {
        let at = ["B", "S", "R", "T"].iter().position(|dim| *dim == name).unwrap_or(4);
        i64::try_from(self.sizes[at]).ok()
    }
}

impl Call<'_> {
    fn trace(&self, graph: &str) -> Result<Trace, String> {
        let function = self.program.graph(graph).expect("one of its graphs");
        let mut inputs: Vec<(&str, DType, Vec<usize>)> = Vec::new();
        for parameter in &function.parameters {
            let ParameterKind::Value(id) = parameter.kind else { panic!("a graph with a load parameter") };
            let Type::Tensor(ty) = &function.value(id).ty else { panic!("a graph with a matrix parameter") };
            let sizes = ty.shape.dims.iter().map(|dim| extent(dim, function.span, self).map_err(|e| e.to_string()));
            inputs.push((&parameter.name, ty.dtype, sizes.collect::<Result<_, _>>()?));
        }
        let inputs: Vec<(&str, DType, &[usize])> = inputs.iter().map(|(n, d, s)| (*n, *d, &s[..])).collect();
        let [rows, _, _, positions, _] = self.sizes;
        let sizes = Sizes { inputs: &inputs, rows, positions, family: DType::F32, twins: None };
        trace(self.program, &self.tiny.drawn.resolved, &self.tiny.bindings, graph, &sizes).map_err(|f| f.to_string())
    }
}

fn graphs(program: &Program) -> impl Iterator<Item = &str> {
    let root = program.block(program.model);
    root.functions.iter().filter(|function| function.graph).map(|function| function.name.as_str())
}

/// B, S, R, T of a prefill and of a step of two rows.
const CALLS: [[usize; 4]; 2] = [[1, PROMPT, PROMPT, 16], [2, 1, 1, 16]];
/// What other free dims may be: how many patches there can be depends on how many become one token.
const OTHERS: [usize; 5] = [8, 9, 16, 36, 64];

/// Every graph of every config that the family takes can be unrolled: its shapes agree, its indices are in range. And every
/// branch of its text goes both ways.
#[test]
fn whatever_a_family_takes_has_every_graph() {
    let mut wrong = Vec::new();
    for family in families() {
        let begun = Instant::now();
        let program = program(family);
        let (draw, mut random) = (Draw::of(&program), random(family, 1));
        let mut branches = Branches::of(&program);
        for _ in 0..TRACED * models() {
            let tiny = tiny(&program, &draw, &mut random);
            for graph in graphs(&program) {
                for [b, s, r, t] in CALLS {
                    let call = |n| Call { program: &program, tiny: &tiny, sizes: [b, s, r, t, n] }.trace(graph);
                    let first = OTHERS.into_iter().map(call).find_map(Result::ok);
                    match first.ok_or(()).or_else(|()| call(OTHERS[0])) {
                        Ok(traced) => branches.went(&program, &tiny.drawn.resolved, &traced),
                        Err(fault) => wrong.push(format!("{}: {graph}: {fault}\n  {}", family.name, tiny.drawn.config)),
                    }
                }
            }
        }
        let one = branches.one_way(&program);
        println!("{}: {} branches, {:.1} s", family.name, branches.count(), begun.elapsed().as_secs_f64());
        wrong.extend(one.into_iter().map(|condition| format!("{}: {condition} alone", family.name)));
    }
    // Of each kind of fault one.
    wrong.sort();
    wrong.dedup_by_key(|line| line.chars().take(40).filter(|c| !c.is_ascii_digit()).collect::<String>());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is emitted for either backend is what the text says, for these configs too.
#[test]
fn emissions_of_tiny_models_are_the_ir() {
    for family in families() {
        let begun = Instant::now();
        let program = program(family);
        let (draw, mut random) = (Draw::of(&program), random(family, 2));
        let mut certified: BTreeMap<&str, usize> = graphs(&program).map(|graph| (graph, 0)).collect();
        for at in 0.. {
            // Until every graph was met.
            if at >= CERTIFIED * models() && (at > 20 * CERTIFIED || certified.values().all(|count| *count > 0)) {
                break;
            }
            let tiny = tiny(&program, &draw, &mut random);
            for graph in graphs(&program) {
                for [b, s, r, t] in CALLS {
                    let (resolved, bindings) = (&tiny.drawn.resolved, &tiny.bindings);
                    let (sizes, float, fused) = ([b, s, r, t], DType::F32, false);
                    // The certificate calls with eight patches, which not every grid can have.
                    if (Call { program: &program, tiny: &tiny, sizes: [b, s, r, t, 8] }).trace(graph).is_err() {
                        continue;
                    }
                    let case = Case { program: &program, resolved, bindings, graph, sizes, float, fused };
                    for emitted in [Emitted::Hlo(family.hlo), Emitted::Mlx(family.mlx)] {
                        let difference = first_difference(&case, emitted);
                        let difference = difference.unwrap_or_else(|e| Some(format!("{graph} {sizes:?}: {e:#}")));
                        assert_eq!(difference, None, "{}: {}", family.name, tiny.drawn.config);
                    }
                    *certified.entry(graph).or_default() += 1;
                }
            }
        }
        println!("{}: {certified:?}, {:.1} s", family.name, begun.elapsed().as_secs_f64());
        assert!(certified.values().all(|count| *count > 0), "{}: {certified:?}", family.name);
    }
}

/// What a stage may differ by where the family's contract does not say it. A contract is for numbers near 1, as checkpoints have
/// them; here they may be larger, and so may their differences. Measured on the 8 models of each family that
/// CI draws: 2.7e-5 at most.
const BOUND: f64 = 1e-4;

/// What is wrong with a stage; else how far apart it is, beside the size of its numbers.
fn apart(row: &Row) -> Result<f64, String> {
    match &row.outcome {
        Outcome::Compared { difference, basis: Basis::Absent | Basis::Contract(_), bound, .. } => {
            let (far, allowed) = (difference.max_abs / difference.scale.max(1.0), bound.max_abs.unwrap_or(BOUND));
            // Numbers beside no numbers are outside any bound.
            let are_numbers = difference.within() || difference.max_abs > allowed;
            let told = || format!("{}: {:e} among numbers of {:e}", row.stage, difference.max_abs, difference.scale);
            if are_numbers && far <= allowed { Ok(far) } else { Err(told()) }
        }
        Outcome::Compared { difference, .. } if difference.within() => Ok(0.0),
        Outcome::Compared { difference, .. } => Err(format!("{}: {:e}", row.stage, difference.max_abs)),
        Outcome::Mismatch(told) => Err(format!("{}: {told}", row.stage)),
        Outcome::NotProbed => Err(format!("{} is not probed", row.stage)),
    }
}

#[test]
fn tiny_models_run_alike_on_every_executor() {
    let mut wrong = Vec::new();
    for family in families() {
        let program = program(family);
        let (draw, mut random) = (Draw::of(&program), random(family, 3));
        for at in 0..INTERPRETED * models() {
            let backends = if at % INTERPRETED == 0 { &[Backend::Mlx, Backend::Iree][..] } else { &[Backend::Mlx] };
            let begun = Instant::now();
            let tiny = tiny(&program, &draw, &mut random);
            let folder = tempfile::tempdir().unwrap();
            weights::write(folder.path(), &tiny.drawn.config, &tiny.layout, &mut random);
            let model = Model::open_with(folder.path(), FAMILIES, &tiny.drawn.limits);
            let model = model.unwrap_or_else(|error| panic!("{error:#}\n{}", tiny.drawn.config));
            let ran = run(&model, &pictures::prompt(&model, folder.path(), PROMPT, &mut random), backends);
            let told = ran.unwrap_or_else(|error| {
                wrong.push(format!("{}: {error}\n{}", family.name, tiny.drawn.config));
                format!("wrong: {error}")
            });
            println!("{}: {told}, {:.1} s", family.name, begun.elapsed().as_secs_f64());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// How far the backends are from the interpreter at most.
fn run(model: &Arc<Model>, inputs: &Golden, backends: &[Backend]) -> Result<String, String> {
    let settings = |backend| Settings { backend, numerics: Numerics::Pinned, dtype: Float::F32 };
    let progress: mgraph_runtime::session::Progress = Rc::new(|_| ());
    let golden = parity::made_by(model, inputs, settings(Backend::Reference), STEPS, &progress);
    let golden = golden.map_err(|error| format!("{error:#}"))?;
    let logits = golden.require("logits").map_err(|error| error.to_string())?.to_f32();
    if !logits.iter().all(|x| x.is_finite()) {
        return Err("the logits are no numbers, which hides everything".into());
    }
    let mut told = Vec::new();
    for &backend in backends {
        let judged = |isolated: bool| {
            let (mut worst, mut rows, mut wrong) = (0.0f64, 0, None);
            let mut on_row = |row: &Row| {
                rows += 1;
                match apart(row) {
                    Ok(far) => worst = worst.max(far),
                    Err(error) => drop(wrong.get_or_insert(error)),
                }
                ControlFlow::Continue(())
            };
            let mut parts = Parts::start();
            let watch = Watch { wanted: &|_| true, progress: progress.clone(), on_row: &mut on_row, parts: &mut parts };
            let run = if isolated { parity::isolated } else { parity::watched };
            run(model, &golden, settings(backend), watch).map_err(|error| format!("{backend}: {error:#}"))?;
            wrong.map_or(Ok((rows, worst)), |error| Err(format!("{backend}: {error}")))
        };
        // A norm of numbers near zero makes much of what came before it: then each stage is judged from the reference's values.
        let (rows, worst) = judged(false).or_else(|spread| {
            let alone = judged(true).map_err(|error| format!("{error}, from the reference's values"))?;
            println!("{spread}, which is well where it stands alone");
            Ok::<_, String>(alone)
        })?;
        told.push(format!("{backend} {rows} rows within {worst:.1e}"));
    }
    Ok(told.join(", "))
}

/// A value that no field of this type takes.
fn outside(ty: &FieldType) -> Value {
    match ty {
        FieldType::Dim => json!(0),
        FieldType::Int => json!(1.5),
        FieldType::Float | FieldType::Bool => json!("many"),
        FieldType::Text => json!(3),
        FieldType::OneOf(_) => json!("neither"),
        FieldType::Index(_) => json!(99),
        FieldType::List(item) => Value::Array(vec![outside(item)]),
    }
}

#[test]
fn what_no_field_takes_is_refused_by_name() {
    for family in families() {
        let program = program(family);
        let (draw, mut random) = (Draw::of(&program), random(family, 4));
        let mut refused = 0;
        for _ in 0..4 * models() {
            let Drawn { config, limits, resolved } = tiny(&program, &draw, &mut random).drawn;
            let mut fields = Vec::new();
            draw::each_field(&program.config, &mut |field| fields.push(field));
            for field in fields {
                let name = field.path.join(".");
                let key = resolved.iter().find(|(path, ..)| **path == field.path).map(|(_, _, origin)| origin.clone());
                let Some(Origin::Key(key)) = key else { continue };
                let whole = [Some(outside(&field.ty)), field.otherwise.is_none().then_some(Value::Null)];
                for value in whole.into_iter().flatten() {
                    let mut config = config.clone();
                    draw::write(&mut config, &key, value.clone());
                    // Another key may stand in for one that is null.
                    let Err(faults) = resolve(&program, &config, &limits) else {
                        assert!(value.is_null() && field.keys.len() > 1, "{}: {name} takes {value}", family.name);
                        continue;
                    };
                    let told: Vec<String> = faults.iter().map(|f| f.display("config.json").to_string()).collect();
                    let named = told.iter().any(|line| line.contains(&format!("`{name}`")));
                    assert!(named, "{}: {key} = {value}: {told:?}", family.name);
                    refused += 1;
                }
            }
        }
        println!("{}: {refused} refused", family.name);
        assert!(refused > 20, "{}: {refused}", family.name);
    }
}
