//! Who is measured: ours in a child process, peers as programs in `benches/peers/`, each once per call, with its own peak memory.

use std::{
    collections::BTreeSet,
    env,
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

/// Set in the child that measures one of ours.
const CHILD: &str = "MGRAPH_BENCH_CHILD";
/// A measurement longer than this is not repeated: noise has averaged out within it, and rounds would take minutes.
const LONG_S: f64 = 15.0;

/// How much is run.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub prefill: usize,
    pub decode: usize,
    pub rounds: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    pub prefill_tok_s: f64,
    pub decode_tok_s: f64,
    pub peak_rss_bytes: u64,
    /// Time of cores for a decoded token, which other work on the machine does not stretch.
    pub decode_cpu_ms: f64,
    /// What was decoded, greedily.
    pub tokens: Vec<u32>,
}

/// One name in the tables, and how to measure it once.
pub struct Contender {
    pub who: &'static str,
    /// The model or its weights, as the table calls them.
    pub what: &'static str,
    run: Box<dyn Fn() -> Result<Measured>>,
}

impl Contender {
    /// `who`: `MLX` or `IREE`.
    pub fn ours(who: &'static str, what: &'static str, dir: &Path, load: Load) -> Contender {
        let case = format!("{who} {} {} {}", load.prefill, load.decode, dir.display());
        Contender { who, what, run: Box::new(move || measure(Command::new(env::current_exe()?).env(CHILD, &case))) }
    }

    /// A program of `benches/peers/`.
    pub fn peer(who: &'static str, what: &'static str, script: &str, model: &Path, load: Load) -> Contender {
        let (script, model) = (peers().join(script), model.to_owned());
        let counts = [load.prefill.to_string(), load.decode.to_string()];
        Contender { who, what, run: Box::new(move || measure(Command::new(&script).arg(&model).args(&counts))) }
    }
}

pub fn peers() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/peers")
}

impl Measured {
    fn seconds(&self, load: Load) -> f64 {
        load.prefill as f64 / self.prefill_tok_s + load.decode as f64 / self.decode_tok_s
    }

    fn best(self, other: Measured) -> Measured {
        Measured {
            prefill_tok_s: self.prefill_tok_s.max(other.prefill_tok_s),
            decode_tok_s: self.decode_tok_s.max(other.decode_tok_s),
            peak_rss_bytes: self.peak_rss_bytes.min(other.peak_rss_bytes),
            decode_cpu_ms: self.decode_cpu_ms.min(other.decode_cpu_ms),
            tokens: self.tokens,
        }
    }
}

/// The best of each over interleaved rounds.
pub fn rounds(contenders: &[Contender], load: Load) -> Result<Vec<Measured>> {
    let mut best: Vec<Option<Measured>> = contenders.iter().map(|_| None).collect();
    let mut long = vec![false; contenders.len()];
    for round in 1..=load.rounds {
        for ((contender, best), long) in contenders.iter().zip(&mut best).zip(&mut long) {
            if *long {
                continue;
            }
            let Contender { who, what, run } = contender;
            let measured = run().with_context(|| format!("{who} {what}"))?;
            let Measured { prefill_tok_s, decode_tok_s, decode_cpu_ms, .. } = measured;
            eprintln!(
                "round {round} of {}: {who} {what}: prefill {prefill_tok_s:.1} tok/s, decode {decode_tok_s:.1} tok/s and \
                 {decode_cpu_ms:.1} ms of a core per token",
                load.rounds
            );
            *long = measured.seconds(load) > LONG_S;
            *best = Some(match best.take() {
                Some(before) => before.best(measured),
                None => measured,
            });
        }
    }
    Ok(best.into_iter().flatten().collect())
}

/// The measurement in the child that [`Contender::ours`] starts; `None` in the bench itself.
pub fn child() -> Option<Result<()>> {
    let case = env::var(CHILD).ok()?;
    Some(measured(&case).and_then(|measured| {
        println!("{}", serde_json::to_string(&measured)?);
        Ok(())
    }))
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
fn measured(case: &str) -> Result<Measured> {
    let mut parts = case.splitn(4, ' ');
    let mut next = || parts.next().context("a case is a backend, two counts and a directory");
    let backend = match next()? {
        "MLX" => Backend::Mlx,
        "IREE" => Backend::Iree,
        other => bail!("unknown backend {other}"),
    };
    let (prefill, decode): (usize, usize) = (next()?.parse()?, next()?.parse()?);
    let model = Model::open(&PathBuf::from(next()?), mgraph_models::FAMILIES)?;
    let options = SessionOptions {
        rows: 1,
        capacity: prefill + decode,
        max_chunk: prefill,
        dtype: Float::F32,
        numerics: numerics()?,
        probes: Probes::Unread,
    };
    let mut session = backend::open(backend, &model, options)?;
    // The same ids as the peers' programs use.
    let prompt: Vec<u32> = (0..prefill as u32).map(|i| 1000 + (i * 37) % 7000).collect();
    let shapes = engine::shapes(session.as_ref(), &prompt);
    session.prepare(&shapes, &mut |step| eprintln!("{step}"))?;
    engine::prefill(session.as_mut(), &prompt)?;
    session.step(&Batch::row(&[1000], prefill, 1), None)?;
    session.reset()?;

    let begun = Instant::now();
    let logits = engine::prefill(session.as_mut(), &prompt)?;
    let prefill_s = begun.elapsed().as_secs_f64();
    let mut tokens = vec![greedy(&logits)];
    let (begun, cpu) = (Instant::now(), usage()?.cpu_s);
    for k in 0..decode {
        let logits = session.step(&Batch::row(&[tokens[k] as i32], prefill + k, 1), None)?.to_f32();
        tokens.push(greedy(&logits));
    }
    let decode_s = begun.elapsed().as_secs_f64();
    let used = usage()?;
    Ok(Measured {
        prefill_tok_s: prefill as f64 / prefill_s,
        decode_tok_s: decode as f64 / decode_s,
        peak_rss_bytes: used.peak_rss_bytes,
        decode_cpu_ms: 1e3 * (used.cpu_s - cpu) / decode as f64,
        tokens,
    })
}

fn greedy(logits: &[f32]) -> u32 {
    logits.iter().enumerate().fold(0, |best, (i, v)| if *v > logits[best] { i } else { best }) as u32
}

/// `MGRAPH_NUMERICS=pinned` measures what `pinned` costs.
fn numerics() -> Result<Numerics> {
    match env::var("MGRAPH_NUMERICS").as_deref() {
        Err(_) | Ok("fused") => Ok(Numerics::Fused),
        Ok("pinned") => Ok(Numerics::Pinned),
        Ok(other) => bail!("MGRAPH_NUMERICS is {other}: neither pinned nor fused"),
    }
}

struct Usage {
    cpu_s: f64,
    peak_rss_bytes: u64,
}

/// Of this process so far.
fn usage() -> Result<Usage> {
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid rusage to be written to.
    let status = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    ensure!(status == 0, "getrusage failed");
    // Kilobytes on Linux, bytes on macOS.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Ok(Usage {
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        peak_rss_bytes: usage.ru_maxrss as u64 * unit,
    })
}

/// Who computes something else is no peer: all must decode the same tokens.
pub fn agree(contenders: &[Contender], best: &[Measured]) -> Result<()> {
    let mut all = contenders.iter().zip(best);
    let Some((first, said)) = all.next() else { bail!("nobody was measured") };
    let distinct = said.tokens.iter().collect::<BTreeSet<_>>().len();
    // Greedy decoding of random weights soon repeats itself; a model that says one thing over and over agrees with anything.
    ensure!(distinct >= 4, "{} decoded {distinct} different tokens: to agree on so few says little", first.who);
    for (other, m) in all {
        let at = said.tokens.iter().zip(&m.tokens).position(|(a, b)| a != b);
        let at = at.or((said.tokens.len() != m.tokens.len()).then(|| said.tokens.len().min(m.tokens.len())));
        if let Some(at) = at {
            bail!(
                "{} and {} do not compute the same ({}): at token {at} of {} and {} they decoded {:?} and {:?}",
                first.who,
                other.who,
                first.what,
                said.tokens.len(),
                m.tokens.len(),
                said.tokens.get(at),
                m.tokens.get(at)
            );
        }
    }
    Ok(())
}

/// Whether the environment of an optional peer is installed; says what installs it otherwise.
pub fn available(root: &Path, script: &str) -> bool {
    let folder = match script {
        "transformers" => "torch",
        "keras-hub" => "jax",
        _ => "py",
    };
    let there = root.join(".toolchain/bench").join(folder).join("requirements.txt").is_file();
    if !there {
        eprintln!("without {script}: `tests/benches/peers/setup {folder}` installs it");
    }
    there
}
