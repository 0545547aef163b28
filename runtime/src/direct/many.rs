//! Many ops run together, because a module costs IREE's compiler 0.3 s before it has an op.

use mgraph_dsl::{interpret::Operand, ir::Program};

use super::{Settings, Work, iree, mlx, reference};
use crate::{backend::Backend, error::Result, tensor::Tensor};

/// Calls in one module: fewer pay for modules, more wait for each other.
const BATCH: usize = 64;

/// Independent calls of ops, of one program or several.
pub struct Many<'p> {
    backend: Backend,
    settings: Settings,
    calls: Vec<Call<'p>>,
}

struct Call<'p> {
    program: &'p Program,
    name: String,
    operands: Vec<Operand<Tensor>>,
}

impl Call<'_> {
    fn work(&self) -> Work<'_> {
        Work::Op { program: self.program, name: &self.name, operands: &self.operands }
    }
}

impl<'p> Many<'p> {
    pub fn new(backend: Backend, settings: Settings) -> Many<'p> {
        Many { backend, settings, calls: Vec::new() }
    }

    /// One op on given operands; its place among the results.
    pub fn add(&mut self, program: &'p Program, name: &str, operands: Vec<Operand<Tensor>>) -> usize {
        self.calls.push(Call { program, name: name.to_owned(), operands });
        self.calls.len() - 1
    }

    /// The results of every call, or why it has none: a call that fails leaves the others alone.
    pub fn run(self) -> Vec<Result<Vec<Tensor>>> {
        let mut all = Vec::with_capacity(self.calls.len());
        for calls in self.calls.chunks(BATCH) {
            let works: Vec<Work<'_>> = calls.iter().map(Call::work).collect();
            let each = |run: fn(&Settings, &Work<'_>) -> Result<super::Outcome>| {
                works.iter().map(|work| run(&self.settings, work)).collect()
            };
            let outcomes: Vec<Result<super::Outcome>> = match self.backend {
                Backend::Mlx => each(mlx::run),
                Backend::Reference => each(reference::run),
                Backend::Iree => iree::run(&self.settings, &works),
            };
            all.extend(outcomes.into_iter().map(|outcome| outcome.map(|outcome| outcome.results)));
        }
        all
    }
}
