//! `fused BACKEND NAME(ARGS) when CONDITION within TOLERANCE`: what may stand in for an op.
//!
//! A single name that is another op means that op, which must have the same signature and gets the same arguments; any
//! other path is a kernel of the backend, and the emitter's list says whether it exists.

use super::{
    scope::{Checked, Item, Lowering},
    signature::{ParameterType, Results, Signature},
    types::type_text,
};
use crate::{
    ast,
    diagnostic::{Code, Diagnostic},
    ir::*,
};

impl Lowering<'_, '_> {
    pub fn twins(&mut self, op: &ast::Op, signature: &Signature) -> Checked<Vec<Twin>> {
        let twins: Vec<_> = op.twins.iter().map(|twin| self.twin(op, twin, signature)).collect();
        twins.into_iter().collect()
    }

    fn twin(&mut self, op: &ast::Op, twin: &ast::Twin, signature: &Signature) -> Checked<Twin> {
        let backend = match twin.backend.node.as_str() {
            "mlx" => TwinBackend::Mlx,
            "hlo" => TwinBackend::Hlo,
            other => {
                let message = format!("there is no backend `{other}`");
                return Err(self.error(
                    Diagnostic::new(Code::UnknownName, twin.backend.span, message).help("backends are `mlx` and `hlo`"),
                ));
            }
        };
        let span = twin.path.first().map_or(twin.backend.span, |first| first.span);
        let other = match twin.path.as_slice() {
            [name] if name.node != op.name.node => self.op(&name.node),
            _ => None,
        };
        let target = match other {
            Some(other) => self.op_twin(other, twin, signature)?,
            None => self.kernel(twin)?,
        };
        self.in_condition_of_twin = true;
        let when = twin.when.as_ref().map(|when| self.condition(when)).transpose();
        self.in_condition_of_twin = false;
        let within = match twin.within.node {
            ast::Within::Ulp(n) => Within::Ulp(n),
            ast::Within::OfSum(x) => Within::OfSum(x),
        };
        Ok(Twin { backend, target, when: when?, within, span })
    }

    fn op_twin(&mut self, other: OpId, twin: &ast::Twin, signature: &Signature) -> Checked<TwinTarget> {
        let span = twin.path.first().map_or(twin.backend.span, |first| first.span);
        self.checker.called(self.home, other, span);
        let theirs = self.checker.op_signature(other)?;
        let defined = self.checker.op_span(other);
        self.name_used(span, defined);
        if !same_signature(signature, &theirs) {
            return Err(self.error(
                Diagnostic::new(Code::WrongArguments, span, "a twin has the signature of the op it stands for")
                    .label("another signature")
                    .also(defined, "defined here"),
            ));
        }
        let straight = twin.arguments.len() == signature.parameters.len()
            && twin.arguments.iter().zip(&signature.parameters).all(|(argument, parameter)| {
                argument.name.is_none()
                    && matches!(&argument.value.kind, ast::ExprKind::Name(n) if *n == parameter.name.node)
            });
        if !straight {
            let message = "an op that stands in gets the parameters as they are, in order";
            return self.fail(Code::WrongArguments, span, message);
        }
        for (argument, parameter) in twin.arguments.iter().zip(&signature.parameters) {
            self.name_used(argument.value.span, parameter.name.span);
        }
        Ok(TwinTarget::Op(other))
    }

    fn kernel(&mut self, twin: &ast::Twin) -> Checked<TwinTarget> {
        let path = twin.path.iter().map(|n| n.node.as_str()).collect::<Vec<_>>().join("::");
        let (arguments, setup) = self.region(|this| {
            twin.arguments
                .iter()
                .map(|argument| {
                    let name = argument.name.as_ref().map(|n| n.node.clone());
                    let value = match this.expr(&argument.value)? {
                        Item::Value(value) => TwinArgument::Value(value),
                        Item::Load(value) => TwinArgument::Load(value),
                        other => {
                            let found = this.describe(&other);
                            let message = format!("a kernel takes tensors and load values, not {found}");
                            return this.fail(Code::TypeMismatch, argument.value.span, message);
                        }
                    };
                    Ok((name, value))
                })
                .collect::<Checked<Vec<_>>>()
        });
        Ok(TwinTarget::Kernel { path, setup, arguments: arguments? })
    }
}

/// Parameters of the same types in the same order, and the same results; names of parameters may differ.
fn same_signature(a: &Signature, b: &Signature) -> bool {
    let parameter = |x: &ParameterType, y: &ParameterType| match (x, y) {
        (ParameterType::Value(x), ParameterType::Value(y)) => type_text(x) == type_text(y),
        (ParameterType::Load { ty: x, length: m }, ParameterType::Load { ty: y, length: n }) => x == y && m == n,
        _ => false,
    };
    let results = match (&a.results, &b.results) {
        (Results::Values(x), Results::Values(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| type_text(x) == type_text(y))
        }
        _ => false,
    };
    results
        && a.parameters.len() == b.parameters.len()
        && a.parameters.iter().zip(&b.parameters).all(|(x, y)| parameter(&x.ty, &y.ty))
}
