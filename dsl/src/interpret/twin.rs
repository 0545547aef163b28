//! What stands in for an op in mode `fused`: another op, or a kernel of the domain.

use super::{
    domain::Domain,
    fault::Fault,
    frame::{Cell, Frame},
    walk::{Operand, Values, Walk},
};
use crate::{
    ir::{Twin, TwinArgument, TwinTarget},
    kernels, load,
    source::Span,
};

impl<'p, D: Domain> Walk<'p, '_, D> {
    /// The results of a twin, given the op's frame and arguments; `None` where its condition does not hold, or where the domain
    /// has no kernels.
    pub(super) fn twin(
        &mut self,
        twin: &'p Twin,
        mut frame: Frame<'p, D::Tensor>,
        arguments: &[Operand<D::Tensor>],
        span: Span,
    ) -> Result<Option<Values<D>>, Fault> {
        let holds = match &twin.when {
            Some(when) => load::truth(when, &frame).map_err(|e| self.load(e))?,
            None => true,
        };
        if !holds {
            return Ok(None);
        }
        match &twin.target {
            TwinTarget::Op(other) => self.op(*other, arguments.to_vec(), span).map(Some),
            TwinTarget::Kernel { path, setup, arguments } => {
                for statement in setup {
                    self.statement(statement, &mut frame)?;
                }
                let passed = self.kernel_arguments(twin, path, arguments, &frame)?;
                let Some(made) = self.domain.kernel(path, &passed) else { return Ok(None) };
                let cell = Cell::Tensor(made.map_err(|m| self.fault(twin.span, format!("{path}: {m}")))?);
                if let Some(result) = frame.function.body.results.first() {
                    self.check(*result, &cell, &frame, &format!("what `{path}` gives"))?;
                }
                Ok(Some(vec![cell]))
            }
        }
    }

    /// In the order of the kernel's parameters. The checker has put the arguments into it; what may be left out has its name.
    fn kernel_arguments(
        &self,
        twin: &Twin,
        path: &str,
        arguments: &[(Option<String>, TwinArgument)],
        frame: &Frame<'p, D::Tensor>,
    ) -> Result<Vec<Option<Operand<D::Tensor>>>, Fault> {
        let kernel = kernels::of(twin.backend).find(|kernel| kernel.path == path);
        let kernel = kernel.ok_or_else(|| self.fault(twin.span, format!("there is no kernel `{path}`")))?;
        let mut given = arguments.iter().peekable();
        let mut passed = Vec::new();
        for parameter in kernel.parameters {
            let here = |(name, _): &&(Option<String>, TwinArgument)| match name {
                Some(name) => name == parameter.name,
                None => !parameter.optional,
            };
            passed.push(match given.next_if(here) {
                Some((_, TwinArgument::Value(value))) => Some(self.cell(*value, frame)?.into()),
                Some((_, TwinArgument::Load(load))) => Some(Operand::Load(self.evaluate(load, frame)?)),
                None if parameter.optional => None,
                None => return Err(self.fault(twin.span, format!("`{path}` is given no `{}`", parameter.name))),
            });
        }
        Ok(passed)
    }
}
