//! Twins: what may stand in for an op in mode `fused`, tried first.

use mgraph_dsl::{
    ir::{ParameterKind, Twin, TwinArgument, TwinTarget},
    kernels,
};
use proc_macro2::TokenStream;
use quote::quote;

use super::Body;
use crate::{
    code::Level,
    error::{Error, Result},
    names,
};

impl Body<'_> {
    pub(super) fn twin(&mut self, twin: &Twin) -> Result<TokenStream> {
        let names = self.names.clone();
        let when = match &twin.when {
            Some(load) => {
                let condition = self.scope.scalar(load)?.at(Level::And);
                quote!(&& #condition)
            }
            None => TokenStream::new(),
        };
        let (setup, call) = match &twin.target {
            TwinTarget::Op(id) => {
                let op = names::ident(&self.home.program.op(*id).name);
                let arguments = self.function.parameters.iter().map(|p| match &p.kind {
                    ParameterKind::Value(value) => Ok(self.scope.value(*value)?.pass()),
                    ParameterKind::Load(_) => self.load_parameter(&p.name),
                });
                let arguments = arguments.collect::<Result<Vec<_>>>()?;
                (TokenStream::new(), quote!(prelude::#op(cx, #(#arguments),*)))
            }
            TwinTarget::Kernel { path, setup, arguments } => {
                let mut lines = TokenStream::new();
                for statement in setup {
                    let step = self.statement(statement, None)?;
                    lines.extend(self.bind(step, usize::MAX)?);
                }
                (lines, self.kernel(path, arguments)?)
            }
        };
        self.names = names;
        Ok(quote!(if cx.fused() #when { #setup return #call; }))
    }

    /// The checker has put the arguments into the order of the parameters; what may be left out has its name.
    fn kernel(&self, path: &str, arguments: &[(Option<String>, TwinArgument)]) -> Result<TokenStream> {
        let kernel = kernels::of(self.backend.twin()).find(|kernel| kernel.path == path);
        let kernel = kernel.ok_or_else(|| Error::Ir(format!("{} names no kernel: `{path}`", self.origin)))?;
        let mut given = arguments.iter().peekable();
        let mut passed = Vec::new();
        for parameter in kernel.parameters {
            let here = |(name, _): &&(Option<String>, TwinArgument)| match name {
                Some(name) => name == parameter.name,
                None => !parameter.optional,
            };
            let value = match given.next_if(here) {
                Some((_, TwinArgument::Value(value))) => self.scope.value(*value)?.pass(),
                Some((_, TwinArgument::Load(load))) => self.scope.argument(load)?,
                None if parameter.optional => {
                    passed.push(quote!(None));
                    continue;
                }
                None => return Err(Error::Ir(format!("{} gives `{path}` no `{}`", self.origin, parameter.name))),
            };
            passed.push(if parameter.optional { quote!(Some(#value)) } else { value });
        }
        let name = names::ident(path.rsplit("::").next().unwrap_or(path));
        Ok(quote!(kernels::#name(#(#passed),*)))
    }
}
