//! Servers under load by HTTP: 1, 8 and 32 streams of the real model at a time, ours beside `mlx_lm.server` and llama.cpp, and our
//! memory over 2,000 requests.
//!
//! `make bench` prepares model and peers. Each server is a process on a free loopback port and has the machine for itself; each
//! gets the same bodies. A peer is given [`PATIENCE`] for a measurement, and what it did until then counts: this bounds the run.
//! Ours must finish every stream. `MGRAPH_LOAD` measures one part alone: a name of the table (`IREE`), or `memory`.

#[path = "../expand.rs"]
mod expand;
#[path = "../../small_vlm/mod.rs"]
mod small_vlm;

mod client;
mod level;
mod memory;
mod process;

use std::{env, path::Path, process::Command, time::Duration};

use level::{ANSWER, Level, level, percentile};
use mgraph_runtime::error::{Result, ensure};
use process::Server;
use small_vlm::{REAL, root};

/// Requests that a server runs side by side.
const SLOTS: usize = 8;
/// Positions of a request.
const POSITIONS: usize = 256;
const STREAMS: [usize; 3] = [1, SLOTS, 32];
/// What one measurement of a peer may take; with more streams it is not measured then.
const PATIENCE: Duration = Duration::from_secs(45);
/// A stream of ours that is not done by then never will be.
const FOREVER: Duration = Duration::from_secs(300);
/// How much later than in its turn a stream of ours may begin: work beside the bench stretches single steps.
const LATE: f64 = 2.0;
/// What 8 streams on IREE have over one, at least.
const SHARED: f64 = 3.0;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    MlxLm,
    Mlx,
    LlamaCpp,
    Iree,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::MlxLm => "mlx_lm",
            Who::Mlx => "MLX",
            Who::LlamaCpp => "llama.cpp",
            Who::Iree => "IREE",
        }
    }

    /// The server that ours is measured beside.
    fn peer(self) -> Option<Who> {
        match self {
            Who::Mlx => Some(Who::MlxLm),
            Who::Iree => Some(Who::LlamaCpp),
            Who::MlxLm | Who::LlamaCpp => None,
        }
    }
}

struct Case {
    who: Who,
    weights: &'static str,
    command: Box<dyn Fn(u16) -> Command>,
}

struct Measured {
    who: Who,
    weights: &'static str,
    levels: Vec<Level>,
}

fn main() -> Result<()> {
    let only = env::var("MGRAPH_LOAD").ok();
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    let root = root();
    let packed = root.join(REAL);
    let gguf = packed.with_extension("gguf");
    ensure!(packed.is_dir() && gguf.is_file(), "the real model is not here: `make model` fetches and imports it");
    let dense = root.join(format!("{REAL}-f32"));
    expand::to_f32(&packed, &dense)?;

    let cases = [
        Case { who: Who::MlxLm, weights: "Q4_1", command: mlx_lm(&root, &packed) },
        Case { who: Who::Mlx, weights: "Q4_1", command: ours("mlx", &packed) },
        Case { who: Who::MlxLm, weights: "f32", command: mlx_lm(&root, &dense) },
        Case { who: Who::Mlx, weights: "f32", command: ours("mlx", &dense) },
        Case { who: Who::LlamaCpp, weights: "Q4_1", command: llama_cpp(&root, &gguf) },
        Case { who: Who::Iree, weights: "Q4_1", command: ours("iree", &packed) },
        Case { who: Who::Iree, weights: "f32", command: ours("iree", &dense) },
    ];
    println!("answers of {ANSWER} tokens, {SLOTS} slots of {POSITIONS} positions; times in ms, p50 and p99");
    println!(
        "{:10} {:7} {:>7} {:>7} {:>7} {:>6} {:>14} {:>11} {:>5} {:>8} {:>8}  beside",
        "who", "weights", "streams", "done", "tok/s", "", "first token", "between", "late", "core ms", "peak MB"
    );
    let mut all: Vec<Measured> = Vec::new();
    for case in cases.iter().filter(|case| wanted(case.who.name())) {
        let (who, weights) = (case.who, case.weights);
        match measure(case, &all) {
            Ok(levels) => all.push(Measured { who, weights, levels }),
            Err(why) if who.peer().is_none() => println!("{:10} {weights:7} not measured: {why:#}", who.name()),
            Err(why) => return Err(why.context(format!("{} {weights}", who.name()))),
        }
    }
    marks(&all);

    if wanted("memory") {
        println!("\nresident memory, small random model, {} clients", memory::CLIENTS);
        let small = tempfile::tempdir()?;
        small_vlm::small_vlm(small.path());
        for (who, backend) in [(Who::Mlx, "mlx"), (Who::Iree, "iree")] {
            let command = ours(backend, small.path());
            drop(Server::start(&command)?);
            memory::flat(who.name(), &Server::start(&command)?)?;
        }
    }
    Ok(())
}

fn ours(backend: &'static str, model: &Path) -> Box<dyn Fn(u16) -> Command> {
    let model = model.to_owned();
    Box::new(move |port| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlxcel"));
        command
            .args(["serve", "--log", "warn", "--backend", backend, "--port", &port.to_string(), "--model"])
            .arg(&model);
        command.args(["--parallel", &SLOTS.to_string(), "--ctx-size", &POSITIONS.to_string()]);
        command
    })
}

fn mlx_lm(root: &Path, model: &Path) -> Box<dyn Fn(u16) -> Command> {
    let (python, model) = (root.join(".toolchain/bench/py/bin/python"), model.to_owned());
    Box::new(move |port| {
        let mut command = Command::new(&python);
        command
            .args(["-m", "mlx_lm", "server", "--log-level", "ERROR", "--port", &port.to_string(), "--model"])
            .arg(&model);
        command.args(["--decode-concurrency", &SLOTS.to_string(), "--prompt-concurrency", &SLOTS.to_string()]);
        command
    })
}

fn llama_cpp(root: &Path, model: &Path) -> Box<dyn Fn(u16) -> Command> {
    let (script, model) = (root.join("tests/benches/peers/serve_llama_cpp.mjs"), model.to_owned());
    Box::new(move |port| {
        let mut command = Command::new("node");
        command.arg(&script).arg(&model).args([port.to_string(), SLOTS.to_string(), POSITIONS.to_string()]);
        command
    })
}

/// All levels of one server, each shown as it is measured.
fn measure(case: &Case, before: &[Measured]) -> Result<Vec<Level>> {
    let is_ours = case.who.peer().is_some();
    let limit = if is_ours { FOREVER } else { PATIENCE };
    if is_ours {
        // What it compiles on a first start is kept on disk, and the memory that takes is not that of serving.
        drop(Server::start(&case.command)?);
    }
    let server = Server::start(&case.command)?;
    // Everything is loaded and was run once.
    level(&server, 2, 0, PATIENCE);
    let mut levels: Vec<Level> = Vec::new();
    for streams in STREAMS {
        let found = level(&server, streams, 100 * streams, limit);
        row(case, &found, &levels, before);
        if is_ours {
            let why = found.failure.as_deref().unwrap_or("the others had fewer");
            ensure!(found.done == streams, "{} of {streams} streams had all their {ANSWER} tokens: {why}", found.done);
            let late = late(&found, &levels);
            ensure!(late <= LATE, "the last of {streams} streams began {late:.1} times as late as in its turn");
        }
        let goes_on = found.done == streams;
        levels.push(found);
        if !goes_on {
            break;
        }
    }
    Ok(levels)
}

/// When the last stream had its first token, as a share of when it would in turn: after the prompts before it, each with a step of
/// those that run; and of more streams than slots, after what the slots took for each turn before.
fn late(level: &Level, before: &[Level]) -> f64 {
    let alone = before.first().unwrap_or(level);
    let together = level.streams.min(SLOTS);
    let turn = (percentile(&alone.first, 0.5) + percentile(&level.between, 0.5)) * together as u32;
    let turns = level.streams.div_ceil(SLOTS) as u32;
    let fair = match before.last().filter(|_| turns > 1) {
        Some(full) => turn + full.whole * (turns - 1),
        None => turn,
    };
    percentile(&level.first, 1.0).as_secs_f64() / fair.as_secs_f64()
}

fn row(case: &Case, level: &Level, before: &[Level], others: &[Measured]) {
    let or_none = |shown: Option<String>| shown.unwrap_or_else(|| "-".into());
    let two = |sorted: &[Duration]| {
        let ms = |share: f64| percentile(sorted, share).as_secs_f64() * 1e3;
        or_none((!sorted.is_empty()).then(|| format!("{:.0} {:.0}", ms(0.5), ms(0.99))))
    };
    let one = before.first().unwrap_or(level);
    let late = (!level.first.is_empty() && !one.first.is_empty()).then(|| format!("{:.2}", late(level, before)));
    let peer = |who: Who| {
        let of_same = others.iter().find(|other| other.who == who && other.weights == case.weights);
        let other = of_same.or_else(|| others.iter().find(|other| other.who == who))?;
        let found = other.levels.iter().find(|found| found.streams == level.streams && found.rate > 0.0)?;
        Some(format!("{:.2}x {} {}", level.rate / found.rate, who.name(), other.weights))
    };
    println!(
        "{:10} {:7} {:>7} {:>7} {:>7.1} {:>6} {:>14} {:>11} {:>5} {:>8} {:>8}  {}{}",
        case.who.name(),
        case.weights,
        level.streams,
        format!("{}/{}", level.done, level.streams),
        level.rate,
        or_none((one.rate > 0.0).then(|| format!("{:.2}x", level.rate / one.rate))),
        two(&level.first),
        two(&level.between),
        or_none(late),
        or_none(level.core.map(|core| format!("{:.1}", core.as_secs_f64() * 1e3))),
        or_none(level.peak.map(|peak| format!("{:.0}", peak as f64 / 1e6))),
        case.who.peer().and_then(peer).unwrap_or_default(),
        level.failure.as_deref().unwrap_or_default(),
    );
}

/// What is expected of this run, and what it has.
fn marks(all: &[Measured]) {
    let prompts = all.iter().flat_map(|measured| &measured.levels).filter_map(|level| level.prompt);
    if let (Some(least), Some(most)) = (prompts.clone().min(), prompts.max()) {
        println!("prompts of {least} to {most} tokens, as the servers count them");
    }
    for measured in all.iter().filter(|measured| measured.who == Who::Iree) {
        let at = |streams: usize| measured.levels.iter().find(|level| level.streams == streams);
        if let (Some(one), Some(eight)) = (at(1), at(8)) {
            let gained = eight.rate / one.rate;
            let found = if gained >= SHARED { "met" } else { "missed" };
            println!("8 streams on IREE {} at least {SHARED}x one: {gained:.2}x, {found}", measured.weights);
        }
    }
}
