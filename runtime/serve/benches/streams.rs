//! How the real model is shared by 1, 8 and 32 requests at a time: throughput, time to the first token and between tokens, without
//! HTTP. `make bench` runs it; `MGRAPH_NUMERICS=pinned` measures what `pinned` costs.

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use mgraph_runtime::{
    backend::Backend,
    error::{Result, bail, ensure},
    session::{Float, Numerics},
};
use mgraph_serve::{
    engine::{Engine, EngineOptions, Health, Room},
    request::{Event, Request, Sampling, Shape, Stop},
};

/// Tokens of each prompt, all different, and of each answer.
const PROMPT: usize = 64;
const ANSWER: usize = 48;
const ROWS: usize = 8;

fn main() -> Result<()> {
    let model = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.toolchain/models/smollm2-135m-instruct");
    ensure!(model.is_dir(), "the real model is not here: `make model` fetches and imports it");
    println!("{ROWS} rows, prompts of {PROMPT} tokens, answers of {ANSWER}; milliseconds, p50 and p99");
    println!("{:10} {:>7} {:>8} {:>6} {:>15} {:>15}", "backend", "streams", "tok/s", "", "first token", "between");
    for backend in [Backend::Iree, Backend::Mlx] {
        let engine = open(backend, &model)?;
        // Everything is loaded and was run once.
        streams(&engine, 2)?;
        let mut one = 0.0;
        for count in [1, 8, 32] {
            let measured = streams(&engine, count)?;
            if count == 1 {
                one = measured.rate;
            }
            println!(
                "{:10} {count:>7} {:>8.1} {:>5.2}x {:>15} {:>15}",
                backend.to_string(),
                measured.rate,
                measured.rate / one,
                percentiles(measured.first),
                percentiles(measured.between)
            );
        }
    }
    Ok(())
}

fn open(backend: Backend, model: &Path) -> Result<Engine> {
    let engine = Engine::start(EngineOptions {
        families: mgraph_models::FAMILIES,
        model: model.to_owned(),
        backend,
        dtype: Float::F32,
        numerics: numerics()?,
        limits: Vec::new(),
        ctx_size: Some(256),
        room: Room { parallel: ROWS, ..Room::default() },
    });
    loop {
        match engine.health() {
            Health::Ready => return Ok(engine),
            Health::Loading(_) => thread::sleep(Duration::from_millis(20)),
            Health::Failed(why) => bail!("{why}"),
            Health::Draining => bail!("the engine ended before it began"),
        }
    }
}

fn numerics() -> Result<Numerics> {
    match env::var("MGRAPH_NUMERICS").as_deref() {
        Err(_) | Ok("fused") => Ok(Numerics::Fused),
        Ok("pinned") => Ok(Numerics::Pinned),
        Ok(other) => bail!("MGRAPH_NUMERICS is {other}: neither pinned nor fused"),
    }
}

struct Measured {
    /// Tokens of all answers per second.
    rate: f64,
    first: Vec<Duration>,
    between: Vec<Duration>,
}

/// So many requests at once, each read by a thread of its own.
fn streams(engine: &Engine, count: usize) -> Result<Measured> {
    let begun = Instant::now();
    let readers: Vec<_> = (0..count)
        .map(|stream| {
            let engine = engine.clone();
            thread::spawn(move || -> Result<Vec<Duration>> {
                // Nothing of a prompt is there from another one.
                let prompt = (0..PROMPT).map(|at| 1000 + ((at * 37 + stream * 911 + 7) % 20_000) as u32).collect();
                let mut answer = engine.submit(Request {
                    prompt,
                    pictures: Arc::default(),
                    max_tokens: ANSWER,
                    sampling: Sampling::default(),
                    stop: Stop { ignore_eos: true, ..Stop::default() },
                    shape: Shape::Text,
                    logprobs: Some(0),
                    deadline: None,
                })?;
                let mut times = Vec::new();
                while let Some(event) = answer.wait() {
                    match event {
                        Event::Piece(piece) => times.extend(piece.logprobs.iter().map(|_| begun.elapsed())),
                        Event::Done(_) => {}
                        Event::Failed(failure) => bail!("{failure}"),
                    }
                }
                Ok(times)
            })
        })
        .collect();
    let mut measured = Measured { rate: 0.0, first: Vec::new(), between: Vec::new() };
    let mut tokens = 0;
    for reader in readers {
        let times = match reader.join() {
            Ok(times) => times?,
            Err(_) => bail!("a reader panicked"),
        };
        tokens += times.len();
        measured.first.extend(times.first());
        measured.between.extend(times.windows(2).map(|pair| pair[1] - pair[0]));
    }
    measured.rate = tokens as f64 / begun.elapsed().as_secs_f64();
    Ok(measured)
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: f64| times.get(((times.len() as f64 - 1.0) * share).round() as usize).copied().unwrap_or_default();
    format!("{:.0} {:.0}", at(0.5).as_secs_f64() * 1e3, at(0.99).as_secs_f64() * 1e3)
}
