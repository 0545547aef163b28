//! `mlxcel reduce`: a divergence as a file of the language with its tensors.

use std::{
    cell::Cell,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    Verdict,
    family::FamilyFile,
    input,
    limits::Limits,
    progress::{Progress, SILENCE, note},
};
use crate::{
    backend::Backend,
    direct::Settings,
    error::{Context, Result, bail, ensure},
    family::Family,
    model::Model,
    parity::{Golden, compare::Bound},
    reduce::{self, AT_MOST, Case, FILE, Found, Pair, Slices, measured, told},
    session::{Float, Numerics},
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Checkpoint directory
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// The executor to judge
    #[arg(long, value_enum)]
    a: Backend,
    /// What `a` is compared with [default: reference] or, beside --ref, judged after it
    #[arg(long, value_enum)]
    b: Option<Backend>,
    /// `reference`: judge both executors beside the interpreter; a file: each stage also begins with its numbers
    #[arg(long = "ref", value_name = "FILE.safetensors|reference")]
    reference: Option<PathBuf>,
    /// What to run where no file of reference numbers says it: token ids such as 5,6,7, a text, or such a file
    #[arg(long, value_name = "IDS|TEXT|FILE.safetensors")]
    input: Option<String>,
    /// A variant that FILE holds, as `NAME/..`: the same checkpoint on other inputs
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Only the ops that lead to this stage from the stages before it
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
    /// The largest difference allowed of any element [default: each op's own bound, the family's contract for several together]
    #[arg(long, value_name = "MAX_ABS")]
    bound: Option<f64>,
    /// A folder for the case, made where it is missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// `pinned`: op order exactly as written; `fused`: IREE may contract. Declared twins do not stand in here
    #[arg(long, value_enum, default_value_t = Numerics::Pinned)]
    numerics: Numerics,
    /// Activation dtype
    #[arg(long, value_enum, default_value_t = Float::F32)]
    dtype: Float,
    /// How long nothing may be said, for tests
    #[arg(long, hide = true, value_name = "MS", default_value_t = SILENCE.as_millis() as u64)]
    heartbeat: u64,
    #[command(flatten)]
    family: FamilyFile,
    #[command(flatten)]
    limits: Limits,
}

impl Arguments {
    /// Who is compared with whom, one after the other.
    fn pairs(&self) -> Result<Vec<[Backend; 2]>> {
        let pairs = match (&self.reference, self.b) {
            (None, b) => vec![[self.a, b.unwrap_or(Backend::Reference)]],
            (Some(_), b) => {
                [Some(self.a), b].into_iter().flatten().map(|judged| [judged, Backend::Reference]).collect()
            }
        };
        ensure!(
            pairs.iter().all(|[a, b]| a != b),
            "{} compared with itself is the same: name another executor with --a or --b",
            self.a
        );
        Ok(pairs)
    }

    /// The file of --ref.
    fn file(&self) -> Option<&Path> {
        self.reference.as_deref().filter(|path| path.as_os_str() != "reference")
    }

    fn golden(&self, model: &Model) -> Result<Golden> {
        match (self.file(), &self.input) {
            (Some(file), None) => input::open(file, self.variant.as_deref()),
            (Some(file), Some(_)) => bail!("{} brings its own inputs: leave out --input", file.display()),
            (None, Some(input)) => {
                input::Given { model: &self.model, input, variant: self.variant.as_deref(), steps: 0 }.golden(model)
            }
            (None, None) => bail!("there is nothing to run: give --input or a file as --ref"),
        }
    }
}

pub fn run(families: &'static [&'static Family], arguments: Arguments) -> Result<Verdict> {
    let pairs = arguments.pairs()?;
    ensure!(arguments.bound.is_none_or(|bound| bound >= 0.0), "--bound is no distance: give 0 or more");
    fs::create_dir_all(&arguments.out).with_context(|| format!("making {}", arguments.out.display()))?;
    let progress = Progress::with_silence(Duration::from_millis(arguments.heartbeat.max(1)));
    progress.step(&format!("opening {}", arguments.model.display()));
    let model = Model::open_with(&arguments.model, &arguments.family.or(families)?, arguments.limits.given()?)?;
    let golden = arguments.golden(&model)?;
    let step = |message: &str| progress.step(message);
    let (not_run, mut stage_seen, mut found) = (Cell::new(0), arguments.stage.is_none(), None);
    reduce::subjects(&model, &golden, arguments.dtype, arguments.file().is_some(), &step, |subject| {
        let wanted = arguments.stage.as_deref();
        stage_seen |=
            subject.trace.nodes.iter().any(|node| node.probes.iter().any(|probe| Some(probe.as_str()) == wanted));
        for [a, b] in &pairs {
            let settings = Settings { numerics: arguments.numerics, float: arguments.dtype.dtype() };
            let bound = arguments.bound.map(|max_abs| Bound { max_abs: Some(max_abs), ..Bound::default() });
            let pair = Pair { a: *a, b: *b, settings, bound };
            let slices = Slices { model: &model, subject, pair, progress: &step, not_run: &not_run };
            if let Some(diverged) = reduce::search(&slices, wanted)? {
                found = Some(written(&slices, diverged, &arguments, golden.path())?);
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    progress.finish();
    if let (Some(stage), false, None) = (&arguments.stage, stage_seen, &found) {
        bail!("no call has a stage {stage}; `mlxcel parity` lists the stages");
    }
    let mut out = io::stdout().lock();
    match found {
        Some(told) => {
            write!(out, "{told}").context("writing to standard output")?;
            Ok(Verdict::Diverged)
        }
        None => {
            writeln!(out, "nothing diverges: neither an op alone nor ops together, on {}", golden.path())
                .context("writing to standard output")?;
            if not_run.get() > 0 {
                bail!("nothing diverged, but {} slices could not be run and were not judged", not_run.get());
            }
            Ok(Verdict::Done)
        }
    }
}

/// Writes the case; what is said of it.
fn written(slices: &Slices<'_>, found: Found, arguments: &Arguments, path: &str) -> Result<String> {
    let (difference, bound, pair) = (measured(&found.difference), told(found.bound), slices.pair);
    let case = Case::of(slices, found, arguments.dtype, &format!("on {path}"))?;
    case.write(&arguments.out)?;
    if case.ops > AT_MOST {
        note(format_args!(
            "{} ops are more than the {AT_MOST} of a small case, but no fewer of them diverge",
            case.ops
        ));
    }
    let ops = if case.ops == 1 { "1 op".to_owned() } else { format!("{} ops", case.ops) };
    let about = case.text.lines().nth(1).map(|line| line.trim_start_matches("// ")).unwrap_or_default();
    let out = arguments.out.display();
    Ok(format!(
        "{about}\n{} beside {}: {difference}; allowed: {bound}\n{ops} in {}, which `mlxcel replay {out}` runs again\n",
        pair.a,
        pair.b,
        arguments.out.join(FILE).display()
    ))
}
