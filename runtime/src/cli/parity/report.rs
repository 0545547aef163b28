//! The parity report: versions, flags and digests of what ran, and every row. Written for machines here, for people by
//! [`page`](super::page).

use std::{fs::File, io, path::Path};

use serde_json::{Value, json};

use super::{
    Arguments, Reference,
    page::{self, Pictures},
    plot::{self, Mark},
};
use crate::{
    backend::Backend,
    error::{Context, Error, Result},
    hlo::compile,
    mlx,
    model::Model,
    parity::{Golden, Map, Outcome, Row, Tally, Ulps, Verdict, compare::Difference},
};

/// What decides how the backends compute, where it is set.
const VARIABLES: [&str; 2] = [crate::hlo::iree::THREADS_VARIABLE, mlx::TF32_VARIABLE];

/// Integer inputs of so many elements are written out.
const SHORT: usize = 256;

pub(super) struct Report {
    about: Value,
    rows: Vec<Value>,
    marks: Vec<Mark>,
    executors: Vec<Backend>,
    /// Where the first row that diverged differs; `None` until one does, and where its tensors cannot be subtracted.
    map: Option<(Map, Vec<usize>)>,
    diverged: bool,
}

impl Report {
    pub(super) fn new(
        model: &Model,
        golden: &Golden,
        arguments: &Arguments,
        reference: &Reference,
        judged: &[Backend],
    ) -> Result<Report> {
        let (file, ran) = match reference {
            Reference::File(path, _) => (Some(digest(path)?), None),
            Reference::Executor(backend) => (None, Some(*backend)),
        };
        let compiler = judged.iter().copied().chain(ran).any(|backend| backend == Backend::Iree).then(compiler);
        let numerics = model.program.numerics;
        let allowed = |allowed: bool| if allowed { "allow" } else { "forbid" };
        let about = json!({
            "executors": judged.iter().map(Backend::to_string).collect::<Vec<_>>(),
            "inputs": inputs(golden),
            "versions": {
                "mlxcel": env!("CARGO_PKG_VERSION"),
                "language": mgraph_dsl::LANGUAGE_VERSION,
                "mlx": mlx::version(),
                "mlx_c": mlx::C_VERSION,
                "iree_runtime": crate::hlo::iree::VERSION,
                "iree_compiler": compiler,
                "machine": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            },
            "threads": {
                "cores": std::thread::available_parallelism().map_or(1, usize::from),
                "iree": crate::hlo::iree::threads(),
                "mlx": mlx::threads(),
            },
            "flags": {
                "a": arguments.a.to_string(),
                "b": arguments.b.map(|b| b.to_string()),
                "reference": golden.path(),
                "variant": arguments.variant,
                "input": arguments.input,
                "stages": arguments.stages,
                "all": arguments.all,
                "mode": if arguments.isolated { "isolated" } else { "cumulative" },
                "numerics": format!("{:?}", arguments.numerics).to_lowercase(),
                "dtype": format!("{:?}", arguments.dtype).to_lowercase(),
                "iree": compile::FLAGS,
                "environment": null,
            },
            "family": {
                "name": model.family.name, "file": model.family.file, "digest": model.program.digest,
                "tf32": allowed(numerics.tf32), "contraction": allowed(numerics.contraction),
            },
            "digests": { "config": digest(&model.checkpoint.dir().join("config.json"))?, "reference": file },
        });
        let (rows, marks) = (Vec::new(), Vec::new());
        Ok(Report { about, rows, marks, executors: judged.to_vec(), map: None, diverged: false })
    }

    pub(super) fn add(&mut self, backend: Backend, row: &Row) {
        let mut object = json!({
            "executor": backend.to_string(), "stage": row.stage, "source": row.source, "verdict": verdict(row.verdict()),
        });
        if let Some(reason) = &row.kept {
            object["kept"] = json!(reason);
        }
        match &row.outcome {
            Outcome::Compared { shape, difference, bound, basis } => {
                object["shape"] = json!(shape);
                object["difference"] = numbers(difference);
                let (max_abs, rtol, rms) = (bound.max_abs, bound.rtol, bound.rms);
                object["bound"] = json!({ "basis": basis.to_string(), "max_abs": max_abs, "rtol": rtol, "rms": rms });
            }
            Outcome::Mismatch(reason) => object["reason"] = json!(reason),
            Outcome::NotProbed => object["reason"] = json!("the family has no probe of this name"),
        }
        if row.verdict() == Verdict::Diverged && !self.diverged {
            self.diverged = true;
            self.about["first_divergence"] = json!({
                "row": self.rows.len(), "stage": row.stage, "executor": backend.to_string(), "source": row.source,
            });
            self.map = match &row.outcome {
                Outcome::Compared { difference, .. } => {
                    difference.map.clone().zip(difference.worst.as_ref().map(|worst| worst.index.clone()))
                }
                Outcome::Mismatch(_) | Outcome::NotProbed => None,
            };
        }
        let executor = self.executors.iter().position(|executor| *executor == backend).unwrap_or(0);
        self.marks.push(mark(executor, row));
        self.rows.push(object);
    }

    /// `failure`: what ended the run before its end, other than a divergence.
    pub(super) fn finished(mut self, tally: Tally, failure: Option<&Error>) -> Finished {
        let (code, verdict) = match (failure, tally.diverged) {
            (Some(_), _) => (2, "could not run"),
            (None, 0) => (0, "agreed"),
            (None, _) => (1, "diverged"),
        };
        let set = |name: &&str| Some(((*name).to_owned(), json!(std::env::var(name).ok()?)));
        let environment: serde_json::Map<String, Value> = VARIABLES.iter().filter_map(set).collect();
        self.about["flags"]["environment"] = Value::Object(environment);
        if !self.diverged {
            self.about["first_divergence"] = Value::Null;
        }
        self.about["exit"] =
            json!({ "code": code, "verdict": verdict, "error": failure.map(|error| format!("{error:#}")) });
        self.about["tally"] = json!({ "within": tally.within, "diverged": tally.diverged, "unjudged": tally.unjudged });
        self.about["rows"] = Value::Array(self.rows);
        Finished { report: self.about, marks: self.marks, map: self.map }
    }
}

/// All that is known of a run.
pub(super) struct Finished {
    report: Value,
    marks: Vec<Mark>,
    map: Option<(Map, Vec<usize>)>,
}

impl Finished {
    pub(super) fn json(&self) -> String {
        format!("{:#}\n", self.report)
    }

    pub(super) fn html(&self) -> Result<String> {
        let plot = if self.marks.is_empty() { None } else { Some(plot::error_by_stage(&self.marks)?) };
        let heat = self.map.as_ref().map(|(map, worst)| plot::heat(map, worst)).transpose()?;
        page::page(&self.report, &Pictures { plot, heat })
    }
}

fn mark(executor: usize, row: &Row) -> Mark {
    let (error, bound) = match &row.outcome {
        Outcome::Compared { difference: d, bound, .. } => {
            // Of the worst element, as the comparison has it.
            let size = d.worst.as_ref().map_or(0.0, |worst| worst.b.abs());
            let relative = bound.rtol.map(|rtol| rtol * if size.is_finite() { size } else { 0.0 });
            let allowed = match (bound.max_abs, relative) {
                (None, None) => bound.rms,
                (abs, relative) => Some(abs.unwrap_or(0.0) + relative.unwrap_or(0.0)),
            };
            (Some(d.max_abs), allowed)
        }
        Outcome::Mismatch(_) | Outcome::NotProbed => (None, None),
    };
    Mark { executor, stage: row.stage.clone(), error, bound, diverged: row.verdict() == Verdict::Diverged }
}

/// What the executors were fed.
fn inputs(golden: &Golden) -> Value {
    let told = golden.with_prefix("input.").into_iter().map(|(name, tensor)| {
        let dtype = format!("{:?}", tensor.dtype).to_lowercase();
        let short = !tensor.dtype.is_float() && tensor.len() <= SHORT;
        let values = short.then(|| tensor.to_f64().into_iter().map(|value| value as i64).collect::<Vec<_>>());
        let hash = blake3::hash(&tensor.bytes).to_hex().to_string();
        json!({ "name": name, "dtype": dtype, "shape": tensor.shape, "values": values, "digest": hash })
    });
    told.collect()
}

/// The compiler of IREE, which tells its version only where it is loaded.
fn compiler() -> Value {
    match compile::library() {
        Ok(library) => json!({
            "library": library.display().to_string(),
            "revision": compile::revision(&library).ok(),
            "identity": compile::identity(&library).ok(),
        }),
        Err(error) => json!(format!("{error:#}")),
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Within => "within",
        Verdict::Diverged => "diverged",
        Verdict::Unjudged => "unjudged",
    }
}

fn numbers(difference: &Difference) -> Value {
    let d = difference;
    json!({
        "max_abs": number(d.max_abs), "rms": number(d.rms), "rtol": number(d.max_rel), "scale": number(d.scale),
        "outside": d.outside,
        "ulps": d.ulps.as_ref().map(|ulps| json!({
            "dtype": format!("{:?}", ulps.dtype).to_lowercase(), "up_to": Ulps::UP_TO, "counts": ulps.counts,
        })),
        "worst": d.worst.as_ref().map(|worst| json!({
            "index": worst.index, "a": number(worst.a), "b": number(worst.b),
            "a_bits": worst.a_bits, "b_bits": worst.b_bits,
        })),
    })
}

/// JSON has no infinities and no NaN; they are texts.
fn number(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { json!(x.to_string()) }
}

/// blake3 of a file, in hex.
fn digest(path: &Path) -> Result<String> {
    let mut hash = blake3::Hasher::new();
    let copied = File::open(path).and_then(|mut file| io::copy(&mut file, &mut hash));
    copied.with_context(|| format!("reading {}", path.display()))?;
    Ok(hash.finalize().to_hex().to_string())
}
