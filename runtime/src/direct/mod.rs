//! Programs that are known only at run time, on any executor, without generated Rust: the interpreter's walk over a backend's own
//! values. Each primitive calls the function that generated code calls for it, so what is shown here of an op holds of the families.
//!
//! For tests and for replaying reduced divergences: nothing is kept between calls.

mod around;
mod iree;
mod many;
mod mlx;
mod reference;
mod value;

use std::sync::Arc;

use mgraph_dsl::{
    bind::Bindings,
    config::Resolved,
    interpret::Operand,
    ir::{Program, TwinBackend},
};

pub use self::{iree::Emitted, many::Many};
pub(crate) use self::{reference::host, value::declared};
use crate::{
    backend::Backend,
    error::Result,
    model::Model,
    session::Numerics,
    tensor::{DType, Tensor},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// In `fused`, twins stand in as in a session of the backend; the interpreter has none.
    pub numerics: Numerics,
    /// What `F` is.
    pub float: DType,
}

/// A graph of a program, with everything that it reads. States begin at zero.
#[derive(Clone)]
pub struct GraphCall<'a> {
    pub program: &'a Arc<Program>,
    pub resolved: &'a Arc<Resolved>,
    pub bindings: &'a Arc<Bindings>,
    pub stored: ReadStored,
    pub graph: &'a str,
    /// By parameter name, in any order.
    pub inputs: &'a [(&'a str, Tensor)],
    /// Of states.
    pub rows: usize,
    /// `T`
    pub positions: usize,
}

/// Gives the bytes of a stored tensor, little-endian, by its name in the checkpoint.
pub type ReadStored = Arc<dyn Fn(&str) -> std::result::Result<Vec<u8>, String> + Send + Sync>;

impl<'a> GraphCall<'a> {
    /// A graph of an opened model.
    pub fn of_model(
        model: &'a Model,
        graph: &'a str,
        inputs: &'a [(&'a str, Tensor)],
        rows: usize,
        positions: usize,
    ) -> GraphCall<'a> {
        let checkpoint = model.checkpoint.clone();
        let stored = move |name: &str| Ok(checkpoint.bytes(name).map_err(|e| format!("{e:#}"))?.to_vec());
        GraphCall {
            program: &model.program,
            resolved: &model.resolved,
            bindings: &model.bindings,
            stored: Arc::new(stored),
            graph,
            inputs,
            rows,
            positions,
        }
    }
}

/// What a graph gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub results: Vec<Tensor>,
    /// In order of evaluation.
    pub probes: Vec<(String, Tensor)>,
}

/// One op of a program on given operands.
///
/// Errors: operands that the op does not take, with the place in the source; what the backend cannot do.
pub fn op(
    backend: Backend,
    settings: &Settings,
    program: &Program,
    name: &str,
    operands: Vec<Operand<Tensor>>,
) -> Result<Vec<Tensor>> {
    let mut many = Many::new(backend, *settings);
    many.add(program, name, operands);
    let outcome = many.run().pop();
    outcome.unwrap_or_else(|| Ok(Vec::new()))
}

/// A graph of a program, called once.
///
/// Errors: as [`op`]; weights that cannot be read.
pub fn graph(backend: Backend, settings: &Settings, call: &GraphCall<'_>) -> Result<Outcome> {
    let work = Work::Graph(call);
    match backend {
        Backend::Mlx => mlx::run(settings, &work),
        Backend::Iree => iree::run(settings, &[work]).pop().unwrap_or_else(|| Ok(Outcome::none())),
        Backend::Reference => reference::run(settings, &work),
    }
}

/// An op as StableHLO, without running it.
///
/// Errors: as [`op`].
pub fn emitted_op(settings: &Settings, program: &Program, name: &str, operands: &[Operand<Tensor>]) -> Result<Emitted> {
    iree::emitted(settings, &Work::Op { program, name, operands })
}

/// A graph as StableHLO, without running it.
///
/// Errors: as [`graph`].
pub fn emitted_graph(settings: &Settings, call: &GraphCall<'_>) -> Result<Emitted> {
    iree::emitted(settings, &Work::Graph(call))
}

impl Outcome {
    fn none() -> Outcome {
        Outcome { results: Vec::new(), probes: Vec::new() }
    }
}

/// What is to be run.
#[derive(Clone, Copy)]
enum Work<'a> {
    Op { program: &'a Program, name: &'a str, operands: &'a [Operand<Tensor>] },
    Graph(&'a GraphCall<'a>),
}

fn twins(settings: &Settings, backend: TwinBackend) -> Option<TwinBackend> {
    (settings.numerics == Numerics::Fused).then_some(backend)
}
