//! A case on disk: the ops as a file of the language, their operands and both results as tensors, and how to run it again.

use std::{collections::HashMap, fs, path::Path};

use mgraph_dsl::{
    format::format as canonical,
    interpret::Operand,
    ir::Program,
    trace::{Node, What},
};
use safetensors::{SafeTensors, tensor::TensorView};

use super::{
    Found, Slices,
    search::shown,
    text::{self, Slice},
};
use crate::{
    backend::Backend,
    direct::{self, Settings},
    error::{Context, Result, anyhow, ensure},
    mlx,
    parity::compare::{Bound, Difference, compare},
    session::{Float, Numerics},
    tensor::Tensor,
};

pub const FILE: &str = "case.mgraph";
pub const TENSORS: &str = "case.safetensors";
const README: &str = "README.md";
/// The op of the file.
const OP: &str = "case";

/// A slice with its operands, apart from the model it was found in.
#[derive(Debug)]
pub struct Case {
    /// Of the file.
    pub text: String,
    /// Of the parameters, in order.
    pub operands: Vec<Tensor>,
    /// What was found, by executor.
    pub results: [(Backend, Tensor); 2],
    pub numerics: Numerics,
    pub dtype: Float,
    pub bound: Bound,
    /// How many ops it has.
    pub ops: usize,
}

impl Case {
    /// `how`: the command and what it ran on, for the head of the file.
    pub fn of(slices: &Slices<'_>, found: Found, dtype: Float, how: &str) -> Result<Case> {
        let subject = slices.subject;
        let slice = Slice::new(&subject.trace, found.computed.clone());
        let program = &slices.model.program;
        let place = |node: &Node| place(program, node);
        let pair = slices.pair;
        let last = subject.node(slice.result()?);
        let mut head = vec![
            format!("A divergence that `mlxcel reduce` found in family {}, {how}.", program.name),
            format!(
                "{}: {} in graph {}{}.",
                place(last),
                shown(last),
                subject.graph,
                match slices.stage(slice.result()?) {
                    Some(stage) => format!(", stage {stage}"),
                    None => String::new(),
                }
            ),
            format!(
                "{} and {} differ by {}; allowed is {}.",
                pair.a,
                pair.b,
                measured(&found.difference),
                told(found.bound)
            ),
            format!(
                "mgraph {}, MLX {}, IREE {}; {} numerics, F is {}; {} {}.",
                env!("CARGO_PKG_VERSION"),
                mlx::version().as_deref().unwrap_or("of unknown version"),
                crate::hlo::iree::VERSION,
                value_name(&pair.settings.numerics),
                value_name(&dtype),
                std::env::consts::OS,
                std::env::consts::ARCH
            ),
            format!("`mlxcel replay DIR` runs it again on what is in {TENSORS}:"),
        ];
        for (at, id) in slice.inputs.iter().enumerate() {
            let node = subject.node(*id);
            head.push(format!(
                "x{at}: {}",
                match &node.what {
                    What::Input(name) => format!("input {name}"),
                    What::Weight { path, .. } => format!("weight {path}"),
                    What::State(path) => format!("state {path}"),
                    What::Primitive(primitive) =>
                        format!("what {} gave the reference at {}", primitive.name(), place(node)),
                    What::Kernel { path, .. } => format!("what {path} gave the reference"),
                }
            ));
        }
        let head: String = head.iter().map(|line| format!("// {line}\n")).collect();
        let note = |node: &Node| {
            Some(format!(
                "{}{}",
                place(node),
                node.probes.iter().map(|probe| format!(" @ {probe:?}")).collect::<String>()
            ))
        };
        let op = format!("op {OP}{}", slice.text(&note)?);
        let whole = format!("{head}\n{}", text::family(&op, program.numerics.tf32));
        let text = canonical(FILE, &whole).map_err(|failed| anyhow!("{failed}"))?;
        let [a, b] = found.results;
        let case = Case {
            text,
            operands: slice.inputs.iter().map(|id| subject.values[id.0].clone()).collect(),
            results: [(pair.a, a), (pair.b, b)],
            numerics: pair.settings.numerics,
            dtype,
            bound: found.bound,
            ops: slice.computed.len(),
        };
        Ok(case)
    }

    /// Runs it again. What the two give, and how far they are apart.
    pub fn replay(&self, a: Backend, b: Backend, bound: Option<Bound>) -> Result<Difference> {
        let program = text::of_file(FILE, &self.text)?;
        let [a, b] = [a, b].map(|backend| self.run(&program, backend).with_context(|| format!("on {backend}")));
        compare(&a?, &b?, bound.unwrap_or(self.bound)).map_err(|said| anyhow!("the results do not compare: {said}"))
    }

    fn run(&self, program: &Program, backend: Backend) -> Result<Tensor> {
        let settings = Settings { numerics: self.numerics, float: self.dtype.dtype() };
        let operands = self.operands.iter().cloned().map(Operand::Tensor).collect();
        direct::op(backend, &settings, program, OP, operands)?.pop().context("an op has a result")
    }

    /// Into a folder that exists.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let mut tensors: Vec<(String, &Tensor)> =
            self.operands.iter().enumerate().map(|(i, x)| (format!("x{i}"), x)).collect();
        tensors.extend(self.results.iter().map(|(backend, tensor)| (format!("result.{backend}"), tensor)));
        let mut views = Vec::new();
        for (name, tensor) in &tensors {
            views.push((name.as_str(), TensorView::new(tensor.dtype.stored(), tensor.shape.clone(), &tensor.bytes)?));
        }
        let [(a, _), (b, _)] = &self.results;
        let mut about: HashMap<String, String> = [
            ("a", a.to_string()),
            ("b", b.to_string()),
            ("numerics", value_name(&self.numerics)),
            ("dtype", value_name(&self.dtype)),
            ("ops", self.ops.to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into();
        let limits = [("max_abs", self.bound.max_abs), ("rtol", self.bound.rtol), ("rms", self.bound.rms)];
        about.extend(limits.into_iter().filter_map(|(key, limit)| Some((key.to_owned(), format!("{:?}", limit?)))));
        let bytes = safetensors::serialize(views, Some(about))?;
        let readme = format!(
            "`{FILE}` holds {} that {a} and {b} compute differently, on the tensors of `{TENSORS}`: what happened is told at its head.\n\n\
             Run it again with `mlxcel replay DIR`, on other executors with `--a` and `--b`: exit code 1 while it diverges, 0 when it no longer does.\n",
            if self.ops == 1 { "an op".to_owned() } else { format!("{} ops", self.ops) }
        );
        for (name, content) in [(TENSORS, bytes.as_slice()), (README, readme.as_bytes()), (FILE, self.text.as_bytes())]
        {
            let path = dir.join(name);
            fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// Errors: files that are missing, cannot be read, or were not written by [`Case::write`].
    pub fn read(dir: &Path) -> Result<Case> {
        let (file, tensors) = (dir.join(FILE), dir.join(TENSORS));
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let bytes = fs::read(&tensors).with_context(|| format!("reading {}", tensors.display()))?;
        Case::of_parts(text, &bytes).with_context(|| format!("{} is not a case", tensors.display()))
    }

    fn of_parts(text: String, bytes: &[u8]) -> Result<Case> {
        let held = SafeTensors::deserialize(bytes)?;
        let (_, metadata) = SafeTensors::read_metadata(bytes)?;
        let about = metadata.metadata().clone().unwrap_or_default();
        let get = |key: &str| about.get(key).with_context(|| format!("its metadata has no {key}"));
        let number = |key: &str| {
            about.get(key).map(|value| value.parse::<f64>().with_context(|| format!("{key} is {value}"))).transpose()
        };
        let named = |name: &str| tensor(&held.tensor(name)?).with_context(|| format!("tensor {name}"));
        let (a, b): (Backend, Backend) = (named_value(get("a")?)?, named_value(get("b")?)?);
        let present = |at: &usize| held.names().iter().any(|name| *name == format!("x{at}"));
        let operands = (0..).take_while(present).map(|at| named(&format!("x{at}"))).collect::<Result<Vec<_>>>()?;
        ensure!(!operands.is_empty(), "it holds no operand x0");
        Ok(Case {
            text,
            operands,
            results: [(a, named(&format!("result.{a}"))?), (b, named(&format!("result.{b}"))?)],
            numerics: named_value(get("numerics")?)?,
            dtype: named_value(get("dtype")?)?,
            bound: Bound { max_abs: number("max_abs")?, rtol: number("rtol")?, rms: number("rms")? },
            ops: get("ops")?.parse().context("ops is no number")?,
        })
    }
}

/// `prelude.mgraph:12 (rms_norm)`
fn place(program: &Program, node: &Node) -> String {
    let origin = if node.origin.is_empty() { "the call" } else { &node.origin };
    match node.span {
        Some(span) => {
            let sources = &program.sources;
            format!("{}:{} ({origin})", sources.get(span.file).name, sources.line_column(span).0)
        }
        None => origin.to_owned(),
    }
}

/// `max_abs 1.2e-7 at [0, 3]: 0x3f.. beside 0x3f..`
pub fn measured(difference: &Difference) -> String {
    let most = format!("max_abs {:.3e}", difference.max_abs);
    match &difference.worst {
        Some(worst) => format!(
            "{most}, worst at {:?}: {} ({:?}) beside {} ({:?})",
            worst.index, worst.a_bits, worst.a, worst.b_bits, worst.b
        ),
        None => most,
    }
}

pub fn told(bound: Bound) -> String {
    let limits = [("max_abs", bound.max_abs), ("rtol", bound.rtol), ("rms", bound.rms)];
    let limits: Vec<String> =
        limits.iter().filter_map(|(name, limit)| Some(format!("{name} {:.3e}", (*limit)?))).collect();
    if limits.is_empty() { "anything".to_owned() } else { limits.join(" + ") }
}

fn value_name<T: clap::ValueEnum>(value: &T) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn named_value<T: clap::ValueEnum>(name: &str) -> Result<T> {
    T::from_str(name, false).map_err(|said| anyhow!("{name}: {said}"))
}

fn tensor(view: &TensorView<'_>) -> Result<Tensor> {
    Tensor::of_stored(view).with_context(|| format!("dtype {:?} is none of the language", view.dtype()))
}
