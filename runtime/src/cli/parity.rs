//! `mlxcel parity`: executors beside a reference, stage by stage; a table flushed line by line, and a file for machines.

mod page;
mod plot;
mod report;
mod table;

use std::{
    io::{self, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use mgraph_dsl::pattern;

use self::{report::Report, table::Table};
use super::{
    Verdict,
    family::FamilyFile,
    input,
    limits::Limits,
    progress::{Progress, SILENCE, note},
    whole::Whole,
};
use crate::{
    backend::Backend,
    error::{Context, Result, bail, ensure},
    family::Family,
    model::Model,
    parity::{self, Golden, Parts, Tally, Watch},
    session::{self, Float, Numerics},
};

#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("against").required(true).multiple(true).args(["b", "reference"])))]
pub struct Arguments {
    /// Checkpoint directory
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// The executor to judge
    #[arg(long, value_enum)]
    a: Backend,
    /// A second executor: what `a` is compared with or, beside --ref, judged too
    #[arg(long, value_enum)]
    b: Option<Backend>,
    /// Reference numbers: a file with inputs as `input.*` and stages by probe name, or `reference`, which is the interpreter
    #[arg(long = "ref", value_name = "FILE.safetensors|reference")]
    reference: Option<PathBuf>,
    /// What to run where no file of reference numbers says it: token ids such as 5,6,7, a text, or such a file
    #[arg(long, value_name = "IDS|TEXT|FILE.safetensors")]
    input: Option<String>,
    /// Greedy steps after --input [default: 8]
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// A variant that FILE holds, as `NAME/..`: the same checkpoint on other inputs
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Only the stages of these names; `*` is any run of characters
    #[arg(long, value_name = "GLOB")]
    stages: Option<String>,
    /// Compute every stage from the reference's values of the stages before it, so that what is wrong stands alone. Greedy
    /// steps and the padded batch are left out
    #[arg(long, conflicts_with_all = ["cumulative", "steps"])]
    isolated: bool,
    /// Compute every stage from the executor's own values, so that an error is seen to spread [default]
    #[arg(long)]
    cumulative: bool,
    /// Go on after a stage that diverged
    #[arg(long)]
    all: bool,
    /// Also write what was compared, with versions, flags and digests, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write it as one page with plots that any browser shows
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// `pinned`: op order exactly as written; `fused`: declared twins may stand in
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

/// Where the numbers come from that are taken for right.
enum Reference {
    File(PathBuf, Golden),
    Executor(Backend),
}

impl Arguments {
    /// The reference, and who is judged by it.
    fn sides(&self) -> Result<(Reference, Vec<Backend>)> {
        let judged = [self.a].into_iter().chain(self.b);
        match (&self.reference, self.b) {
            (Some(path), _) if path.as_os_str() == "reference" => {
                Ok((Reference::Executor(Backend::Reference), judged.collect()))
            }
            (Some(path), _) => {
                ensure!(
                    self.input.is_none() && self.steps.is_none(),
                    "{} brings its own inputs: leave out --input and --steps, or give --ref reference",
                    path.display()
                );
                Ok((Reference::File(path.clone(), self.open(path)?), judged.collect()))
            }
            (None, Some(b)) => Ok((Reference::Executor(b), vec![self.a])),
            (None, None) => bail!("there is nothing to compare with: give --b or --ref"),
        }
    }

    fn settings(&self, backend: Backend) -> parity::Settings {
        parity::Settings { backend, numerics: self.numerics, dtype: self.dtype }
    }

    fn open(&self, file: &Path) -> Result<Golden> {
        input::open(file, self.variant.as_deref())
    }

    /// What an executor is to run as the reference.
    fn inputs(&self, model: &Model) -> Result<Golden> {
        let Some(input) = &self.input else {
            bail!(
                "two executors are compared on --input: token ids such as 5,6,7, a text, or a file with input.input_ids"
            )
        };
        let given = input::Given { model: &self.model, input, variant: self.variant.as_deref(), steps: self.steps() };
        given.golden(model)
    }

    fn steps(&self) -> usize {
        self.steps.unwrap_or(if self.isolated { 0 } else { 8 })
    }

    fn wants(&self, stage: &str) -> bool {
        self.stages.as_ref().is_none_or(|glob| pattern::matches(glob, stage))
    }
}

pub fn run(families: &'static [&'static Family], arguments: Arguments) -> Result<Verdict> {
    let (reference, judged) = arguments.sides()?;
    let json = arguments.json.as_deref().map(Whole::open).transpose()?;
    let html = arguments.html.as_deref().map(Whole::open).transpose()?;
    let progress = Rc::new(Progress::with_silence(Duration::from_millis(arguments.heartbeat.max(1))));
    let step: session::Progress = {
        let progress = Rc::clone(&progress);
        Rc::new(move |message| progress.step(message))
    };
    progress.step(&format!("opening {}", arguments.model.display()));
    let model = Model::open_with(&arguments.model, &arguments.family.or(families)?, arguments.limits.given()?)?;
    let mut parts = Parts::start();
    let made;
    let golden = match &reference {
        Reference::File(_, golden) => golden,
        Reference::Executor(backend) => {
            let inputs = arguments.inputs(&model)?;
            let (settings, steps) = (arguments.settings(*backend), arguments.steps());
            made = parity::made_in_parts(&model, &inputs, settings, steps, &step, &mut parts)?;
            &made
        }
    };
    ensure!(
        golden.names().any(|stage| arguments.wants(stage)),
        "no stage is called as --stages asks; there are {}",
        golden.stages().join(", ")
    );
    let mut report = Report::new(&model, golden, &arguments, &reference, &judged)?;
    let mut all = Tally::default();
    let ran = judged.into_iter().try_for_each(|backend| {
        let tally = compare(&model, golden, &arguments, backend, (&progress, &step), &mut report, &mut parts)?;
        all.within += tally.within;
        all.diverged += tally.diverged;
        all.unjudged += tally.unjudged;
        Ok(())
    });
    progress.finish();
    note(&parts);
    let finished = report.finished(all, ran.as_ref().err());
    if let Some(json) = json {
        json.write(&finished.json())?;
    }
    if let Some(html) = html {
        html.write(&finished.html()?)?;
    }
    ran?;
    if arguments.isolated && golden.names().any(|name| name.starts_with("decode.") || name.starts_with("batch.")) {
        note(format_args!("isolated: the greedy steps and the padded batch of {} were left out", golden.path()));
    }
    if all.unjudged > 0 {
        note(format_args!(
            "{} of {} rows have no verdict: nothing says what they may differ by. Family {} declares no `contract` for them, \
             and no file beside the reference tells its noise",
            all.unjudged,
            all.rows(),
            model.family.name
        ));
    }
    Ok(if all.diverged == 0 { Verdict::Done } else { Verdict::Diverged })
}

/// One executor beside the reference: its table on standard output, its rows in the report.
fn compare(
    model: &Arc<Model>,
    golden: &Golden,
    arguments: &Arguments,
    backend: Backend,
    (progress, step): (&Progress, &session::Progress),
    report: &mut Report,
    parts: &mut Parts,
) -> Result<Tally> {
    let table = Table::new(golden.names().filter(|name| arguments.wants(name)));
    let mut out = io::stdout().lock();
    let mut written = progress.aside(|| {
        writeln!(out, "{backend} beside {}", golden.path())?;
        table.head(&mut out)
    });
    let mut on_row = |row: &parity::Row| {
        report.add(backend, row);
        written = progress.aside(|| table.row(&mut out, row));
        let stop = written.is_err() || (row.verdict() == parity::Verdict::Diverged && !arguments.all);
        if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let watch =
        Watch { wanted: &|stage| arguments.wants(stage), progress: Rc::clone(step), on_row: &mut on_row, parts };
    let run = if arguments.isolated { parity::isolated } else { parity::watched };
    let tally = run(model, golden, arguments.settings(backend), watch).with_context(|| backend.to_string());
    written.context("writing the table to standard output")?;
    tally
}
