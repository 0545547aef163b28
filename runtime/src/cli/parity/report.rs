//! The parity report for machines: versions, flags and digests of what ran, and every row.

use std::{fs::File, io, path::Path};

use serde_json::{Value, json};

use super::{Arguments, Reference};
use crate::{
    backend::Backend,
    error::{Context, Result},
    hlo::compile,
    mlx,
    model::Model,
    parity::{Golden, Outcome, Row, Tally, Ulps, Verdict, compare::Difference},
};

/// What decides how the backends compute, where it is set.
const VARIABLES: [&str; 2] = [crate::hlo::iree::THREADS_VARIABLE, "MLX_ENABLE_TF32"];

pub(super) struct Report {
    about: Value,
    rows: Vec<Value>,
}

impl Report {
    pub(super) fn new(model: &Model, golden: &Golden, arguments: &Arguments, reference: &Reference) -> Result<Report> {
        let set = |name: &str| std::env::var(name).ok();
        let environment: serde_json::Map<String, Value> =
            VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), json!(set(name)?)))).collect();
        let compiler = compile::library().ok().map(
            |library| json!({ "library": library.display().to_string(), "identity": compile::identity(&library).ok() }),
        );
        let file = match reference {
            Reference::File(path, _) => Some(digest(path)?),
            Reference::Executor(_) => None,
        };
        let numerics = model.program.numerics;
        let about = json!({
            "versions": {
                "mlxcel": env!("CARGO_PKG_VERSION"),
                "language": mgraph_dsl::LANGUAGE_VERSION,
                "mlx": mlx::version(),
                "iree_compiler": compiler,
                "machine": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            },
            "flags": {
                "a": arguments.a.to_string(),
                "b": arguments.b.map(|b| b.to_string()),
                "reference": golden.path(),
                "input": arguments.input,
                "stages": arguments.stages,
                "all": arguments.all,
                "numerics": format!("{:?}", arguments.numerics).to_lowercase(),
                "dtype": format!("{:?}", arguments.dtype).to_lowercase(),
                "iree": compile::FLAGS,
                "environment": environment,
            },
            "family": {
                "name": model.family.name, "file": model.family.file, "digest": model.program.digest,
                "tf32": numerics.tf32, "contraction": numerics.contraction,
            },
            "digests": { "config": digest(&model.checkpoint.dir().join("config.json"))?, "reference": file },
        });
        Ok(Report { about, rows: Vec::new() })
    }

    pub(super) fn add(&mut self, backend: Backend, row: &Row) {
        let mut object = json!({
            "executor": backend.to_string(), "stage": row.stage, "source": row.source, "verdict": verdict(row.verdict()),
        });
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
        self.rows.push(object);
    }

    pub(super) fn finished(mut self, tally: Tally) -> Value {
        self.about["tally"] = json!({ "within": tally.within, "diverged": tally.diverged, "unjudged": tally.unjudged });
        self.about["rows"] = Value::Array(self.rows);
        self.about
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
