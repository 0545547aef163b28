//! `fused BACKEND NAME(ARGS) when CONDITION within TOLERANCE`: what may stand in for an op.
//!
//! A single name that is another op means that op, which must have the same signature and gets the same arguments; any
//! other path is a kernel of the backend, and stands in [`kernels::KERNELS`].

use super::{
    scope::{Checked, Item, Lowering, Reported},
    signature::{ParameterType, Results, Signature},
    types::type_text,
};
use crate::{
    ast,
    diagnostic::{Code, Diagnostic, suggest},
    ir::*,
    kernels::{self, Kind, Parameter},
    source::Span,
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
            None => self.kernel(backend, twin, span)?,
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

    fn kernel(&mut self, backend: TwinBackend, twin: &ast::Twin, span: Span) -> Checked<TwinTarget> {
        let path = twin.path.iter().map(|n| n.node.as_str()).collect::<Vec<_>>().join("::");
        let Some(kernel) = kernels::of(backend).find(|kernel| kernel.path == path) else {
            return Err(self.unknown_kernel(backend, &path, span));
        };
        let parameters = kernel.parameters;
        let names: Vec<(&str, bool)> = parameters.iter().map(|p| (p.name, p.optional)).collect();
        let places = self.place(&path, &names, &twin.arguments, span)?;
        let named: Vec<&str> =
            twin.arguments.iter().filter_map(|argument| Some(argument.name.as_ref()?.node.as_str())).collect();
        let (arguments, setup) = self.region(|this| {
            let given = parameters.iter().zip(places).filter_map(|(parameter, place)| Some((parameter, place?)));
            given
                .map(|(parameter, expr)| {
                    let value = this.kernel_argument(&path, parameter, expr)?;
                    let named = parameter.optional || named.contains(&parameter.name);
                    Ok((named.then(|| parameter.name.to_owned()), value))
                })
                .collect::<Checked<Vec<_>>>()
        });
        Ok(TwinTarget::Kernel { path, setup, arguments: arguments? })
    }

    fn kernel_argument(&mut self, path: &str, parameter: &Parameter, expr: &ast::Expr) -> Checked<TwinArgument> {
        let what = format!("`{}` of kernel `{path}`", parameter.name);
        let item = self.expr(expr)?;
        match (parameter.kind, item) {
            (Kind::Tensor, Item::Value(value)) if matches!(self.ty(value), Type::Tensor(_)) => {
                Ok(TwinArgument::Value(value))
            }
            (Kind::Matrix, Item::Value(value)) if matches!(self.ty(value), Type::Matrix(_)) => {
                Ok(TwinArgument::Value(value))
            }
            (kind, Item::Load(value)) if let Some(ty) = kind.load() => {
                Ok(TwinArgument::Load(self.coerce(value, &ty, &what)?))
            }
            (kind, other) => {
                let message = format!("{what} is {}, not {}", kind.text(), self.describe(&other));
                self.fail(Code::TypeMismatch, expr.span, message)
            }
        }
    }

    fn unknown_kernel(&mut self, backend: TwinBackend, path: &str, span: Span) -> Reported {
        let (name, known) = (backend.name(), kernels::of(backend).map(|kernel| kernel.path));
        let elsewhere = kernels::KERNELS.iter().find(|kernel| kernel.path == path);
        let near = suggest(path, known.clone())
            .or_else(|| known.clone().find(|kernel| kernel.rsplit("::").next() == path.rsplit("::").next()));
        let help = match (elsewhere, near) {
            (Some(other), _) => {
                format!("that is a kernel of `{}`; here an op of the same signature may stand in", other.backend.name())
            }
            (None, Some(near)) => format!("did you mean `{near}`?"),
            (None, None) => match known.map(|kernel| format!("`{kernel}`")).collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => format!("`{name}` has no kernels; name another op of the same signature"),
                known => format!("name another op of the same signature, or one of {known}"),
            },
        };
        let message = format!("there is no op and no {name} kernel `{path}`");
        self.error(Diagnostic::new(Code::UnknownName, span, message).label("not known").help(help))
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
