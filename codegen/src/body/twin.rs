//! Twins: what may stand in for an op in mode `fused`, tried first.

use mgraph_dsl::ir::{ParameterKind, Twin, TwinArgument, TwinBackend, TwinTarget};
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

    fn kernel(&self, path: &str, arguments: &[(Option<String>, TwinArgument)]) -> Result<TokenStream> {
        let known = self.backend.kernels();
        let Some(kernel) = known.iter().find(|k| k.path == path) else {
            let known = known.iter().map(|k| format!("`{}`", k.path)).collect::<Vec<_>>().join(", ");
            return Err(Error::UnknownKernel {
                op: self.origin.clone(),
                backend: match self.backend.twin() {
                    TwinBackend::Mlx => "mlx",
                    TwinBackend::Hlo => "hlo",
                },
                kernel: path.to_string(),
                known: if known.is_empty() { "none".to_string() } else { known },
            });
        };
        let wrong = |found: String| Error::KernelArguments {
            op: self.origin.clone(),
            kernel: path.to_string(),
            found,
            expected: kernel.parameters.iter().chain(kernel.optional).copied().collect::<Vec<_>>().join(", "),
        };
        let all: Vec<&str> = kernel.parameters.iter().chain(kernel.optional).copied().collect();
        let mut slots: Vec<Option<TokenStream>> = vec![None; all.len()];
        for (position, (name, argument)) in arguments.iter().enumerate() {
            let slot = match name {
                Some(name) => all.iter().position(|p| p == name).ok_or_else(|| wrong(format!("`{name}`")))?,
                None => position,
            };
            let value = match argument {
                TwinArgument::Value(value) => self.scope.value(*value)?.pass(),
                TwinArgument::Load(load) => self.scope.argument(load)?,
            };
            match slots.get_mut(slot) {
                Some(free @ None) => *free = Some(value),
                Some(Some(_)) => return Err(wrong(format!("`{}` twice", all[slot]))),
                None => return Err(wrong(format!("{} arguments", arguments.len()))),
            }
        }
        let mut passed = Vec::new();
        for (index, slot) in slots.into_iter().enumerate() {
            let optional = index >= kernel.parameters.len();
            passed.push(match (slot, optional) {
                (Some(value), false) => value,
                (Some(value), true) => quote!(Some(#value)),
                (None, true) => quote!(None),
                (None, false) => return Err(wrong(format!("no `{}`", all[index]))),
            });
        }
        let name = names::ident(path.rsplit("::").next().unwrap_or(path));
        Ok(quote!(kernels::#name(#(#passed),*)))
    }
}
