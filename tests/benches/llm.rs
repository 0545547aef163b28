//! Prefill and decode speed and peak memory of the real model, ours beside mlx-lm and llama.cpp, measured in one run.
//!
//! `make bench` prepares the model and the peers. Every measurement is a process of its own, so that its peak memory is
//! its own; rounds are interleaved, and the best of each is reported, because noise only ever slows a run down.
//! Peers live in `benches/peers/`: programs that print `{"prefill_tok_s", "decode_tok_s", "peak_rss_bytes"}`.

#[path = "expand.rs"]
mod expand;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use mgraph_runtime::{
    backend::{self, Backend},
    engine,
    error::{Context, Result, bail, ensure},
    model::Model,
    probes::Probes,
    session::{Batch, Float, Numerics, SessionOptions},
};
use serde::{Deserialize, Serialize};

const PREFILL: usize = 256;
const DECODE: usize = 128;
const ROUNDS: usize = 3;
/// Set in the child that measures one of ours.
const CHILD: &str = "MGRAPH_BENCH_CHILD";

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Measured {
    prefill_tok_s: f64,
    decode_tok_s: f64,
    peak_rss_bytes: u64,
}

/// Measures one contender once, in a process of its own.
type Measure = Box<dyn Fn() -> Result<Measured>>;

impl Measured {
    fn best(self, other: Measured) -> Measured {
        Measured {
            prefill_tok_s: self.prefill_tok_s.max(other.prefill_tok_s),
            decode_tok_s: self.decode_tok_s.max(other.decode_tok_s),
            peak_rss_bytes: self.peak_rss_bytes.min(other.peak_rss_bytes),
        }
    }
}

fn main() -> Result<()> {
    if let Ok(case) = env::var(CHILD) {
        let measured = child(&case)?;
        println!("{}", serde_json::to_string(&measured)?);
        return Ok(());
    }
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let models = root.join(".toolchain/models");
    let packed = models.join("smollm2-135m-instruct");
    let gguf = models.join("smollm2-135m-instruct.gguf");
    ensure!(packed.is_dir() && gguf.is_file(), "the real model is not here: `make model` fetches and imports it");
    let dense = models.join("smollm2-135m-instruct-f32");
    expand::to_f32(&packed, &dense)?;

    let peers = root.join("tests/benches/peers");
    let ours = |backend: &str, dir: &Path| -> Measure {
        let case = format!("{backend} {}", dir.display());
        Box::new(move || measure(Command::new(env::current_exe()?).env(CHILD, &case)))
    };
    let peer = |script: &str, model: &Path| -> Measure {
        let (script, model) = (peers.join(script), model.to_owned());
        Box::new(move || measure(Command::new(&script).arg(&model).args([PREFILL.to_string(), DECODE.to_string()])))
    };
    let cases: Vec<(&str, &str, Measure)> = vec![
        ("mlx-lm", "Q4_1", peer("mlx-lm", &packed)),
        ("MLX", "Q4_1", ours("mlx", &packed)),
        ("mlx-lm", "f32", peer("mlx-lm", &dense)),
        ("MLX", "f32", ours("mlx", &dense)),
        ("llama.cpp", "Q4_1", peer("llama-cpp", &gguf)),
        ("IREE", "Q4_1", ours("iree", &packed)),
        ("IREE", "f32", ours("iree", &dense)),
    ];

    let mut best: Vec<Option<Measured>> = vec![None; cases.len()];
    for round in 1..=ROUNDS {
        for ((who, weights, run), best) in cases.iter().zip(&mut best) {
            eprintln!("round {round} of {ROUNDS}: {who} {weights}");
            let measured = run().with_context(|| format!("{who} {weights}"))?;
            *best = Some(best.map_or(measured, |b| b.best(measured)));
        }
    }
    let best: Vec<Measured> = best.into_iter().flatten().collect();
    table(&cases.iter().map(|(who, weights, _)| (*who, *weights)).collect::<Vec<_>>(), &best, &packed)
}

fn measure(command: &mut Command) -> Result<Measured> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("{command:?} failed ({}):\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let line = text.lines().last().context("no output")?;
    serde_json::from_str(line).with_context(|| format!("not a measurement: {line}"))
}

/// One of ours: a warm-up so that nothing compiles while time is taken, then prefill and greedy decode.
fn child(case: &str) -> Result<Measured> {
    let (backend, dir) = case.split_once(' ').context("backend and directory")?;
    let backend = match backend {
        "mlx" => Backend::Mlx,
        "iree" => Backend::Iree,
        other => bail!("unknown backend {other}"),
    };
    let model = Model::open(&PathBuf::from(dir), mgraph_models::FAMILIES)?;
    let options = SessionOptions {
        rows: 1,
        capacity: PREFILL + DECODE,
        max_chunk: PREFILL,
        dtype: Float::F32,
        numerics: numerics()?,
        probes: Probes::Unread,
    };
    let mut session = backend::open(backend, &model, options)?;
    // The same ids as the peers' programs use.
    let prompt: Vec<u32> = (0..PREFILL as u32).map(|i| 1000 + (i * 37) % 20000).collect();
    let shapes = engine::shapes(session.as_ref(), &prompt);
    session.prepare(&shapes, &mut |step| eprintln!("{step}"))?;
    engine::prefill(session.as_mut(), &prompt)?;
    session.step(&Batch::row(&[1000], PREFILL, 1), None)?;
    session.reset()?;

    let begun = Instant::now();
    let mut logits = engine::prefill(session.as_mut(), &prompt)?;
    let prefill = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    for k in 0..DECODE {
        let next = logits.iter().enumerate().fold(0, |b, (i, v)| if *v > logits[b] { i } else { b });
        logits = session.step(&Batch::row(&[next as i32], PREFILL + k, 1), None)?.to_f32();
    }
    let decode = begun.elapsed().as_secs_f64();
    Ok(Measured {
        prefill_tok_s: PREFILL as f64 / prefill,
        decode_tok_s: DECODE as f64 / decode,
        peak_rss_bytes: peak_rss()?,
    })
}

/// `MGRAPH_NUMERICS=pinned` measures what `pinned` costs.
fn numerics() -> Result<Numerics> {
    match env::var("MGRAPH_NUMERICS").as_deref() {
        Err(_) | Ok("fused") => Ok(Numerics::Fused),
        Ok("pinned") => Ok(Numerics::Pinned),
        Ok(other) => bail!("MGRAPH_NUMERICS is {other}: neither pinned nor fused"),
    }
}

fn peak_rss() -> Result<u64> {
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid rusage to be written to.
    let status = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    ensure!(status == 0, "getrusage failed");
    // Kilobytes on Linux, bytes on macOS.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    Ok(usage.ru_maxrss as u64 * unit)
}

/// Ours beside the peer that the mark is set against: MLX beside mlx-lm on the same weights, IREE beside llama.cpp.
fn table(names: &[(&str, &str)], best: &[Measured], packed: &Path) -> Result<()> {
    let find = |who: &str, weights: &str| names.iter().position(|n| *n == (who, weights)).map(|i| best[i]);
    let checkpoint = fs::metadata(packed.join("model.safetensors"))?.len() as f64;
    println!(
        "\nprefill {PREFILL} tokens, decode {DECODE}; best of {ROUNDS} interleaved rounds; ratios to the peer named"
    );
    println!("{:10} {:6} {:>14} {:>14} {:>11}  beside", "who", "weights", "prefill tok/s", "decode tok/s", "peak MB");
    for ((who, weights), m) in names.iter().zip(best) {
        let peer = match *who {
            "MLX" => Some("mlx-lm"),
            "IREE" => Some("llama.cpp"),
            _ => None,
        };
        let beside = peer.and_then(|p| Some((p, find(p, weights).or_else(|| find(p, "Q4_1"))?))).map(|(p, other)| {
            format!(
                "{p}: prefill {:.2}x, decode {:.2}x",
                m.prefill_tok_s / other.prefill_tok_s,
                m.decode_tok_s / other.decode_tok_s
            )
        });
        let peak = m.peak_rss_bytes as f64 / 1e6;
        println!(
            "{who:10} {weights:6} {:>14.1} {:>14.1} {peak:>11.0}  {}",
            m.prefill_tok_s,
            m.decode_tok_s,
            beside.unwrap_or_default()
        );
    }
    println!("checkpoint Q4_1: {:.0} MB", checkpoint / 1e6);
    Ok(())
}
