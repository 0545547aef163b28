//! What a call of an op or a function gives and gets: parameter types, and which of them bind the free dims.

use super::{
    loops::any_part,
    scope::{Binding, Checked, Home, Item, Lowering, load},
    types::{Written, plain_load_type},
};
use crate::{
    ast,
    diagnostic::{Code, Diagnostic},
    dim::Dim,
    ir::*,
    source::Span,
};

#[derive(Debug, Clone)]
pub(crate) struct Signature {
    pub parameters: Vec<SignatureParameter>,
    pub results: Results,
    pub free: Vec<FreeDim>,
    pub pack: Option<PackSource>,
    pub float: FloatSource,
}

#[derive(Debug, Clone)]
pub(crate) struct SignatureParameter {
    pub name: ast::Name,
    pub mutable: bool,
    pub ty: ParameterType,
    pub default: Option<Load>,
}

#[derive(Debug, Clone)]
pub(crate) enum ParameterType {
    Value(Type),
    Load { ty: LoadType, length: Option<Dim> },
}

#[derive(Debug, Clone)]
pub(crate) enum Results {
    Values(Vec<Type>),
    Load { ty: LoadType, length: Option<Dim> },
}

impl Signature {
    /// Every parameter and the result are load values.
    pub fn is_load(&self) -> bool {
        matches!(self.results, Results::Load { .. })
    }
}

impl Lowering<'_, '_> {
    /// Reads a signature, and binds its load parameters in the present scope.
    pub fn signature(
        &mut self,
        parameters: &[ast::Parameter],
        result: Option<&ast::Type>,
        span: Span,
    ) -> Checked<Signature> {
        let mut failed = None;
        let placeholder = Shape { pack: false, dims: Vec::new() };
        for (i, parameter) in parameters.iter().enumerate() {
            if let Some(first) = parameters[..i].iter().find(|p| p.name.node == parameter.name.node) {
                failed = Some(self.checker.twice(&parameter.name, first.name.span));
            }
            self.check_hiding(&parameter.name);
            if let Some(ty) = plain_load_type(&parameter.ty) {
                let item = Item::Load(load(LoadKind::Parameter(parameter.name.node.clone()), ty, parameter.name.span));
                let binding = Binding { item, mutable: false, span: parameter.name.span };
                self.bind_silently(&parameter.name.node, binding);
            } else {
                // Values are numbered as in the function; of a matrix, `w.bits` and `w.group` may stand in shapes.
                let matrix = matches!(&parameter.ty.kind, ast::TypeKind::Named { name, .. } if name.node == "Q");
                let shape = placeholder.clone();
                let ty = if matrix { Type::Matrix(shape) } else { Type::Tensor(TensorType { dtype: DType::F, shape }) };
                let value = self.new_value(ty, parameter.name.span);
                self.values[value.0 as usize].name = Some(parameter.name.node.clone());
                if matrix {
                    let binding = Binding { item: Item::Value(value), mutable: false, span: parameter.name.span };
                    self.bind_silently(&parameter.name.node, binding);
                }
            }
        }
        let mut read = Vec::new();
        for (i, parameter) in parameters.iter().enumerate() {
            match self.parameter(parameter, &parameters[i..]) {
                Ok(parameter) => read.push(parameter),
                Err(reported) => failed = Some(reported),
            }
        }
        let results = match result {
            None => Ok(Results::Values(Vec::new())),
            Some(ty) => self.collecting(|this| this.written(ty)).and_then(|w| self.results(w, ty.span)),
        };
        if let Some(reported) = failed {
            return Err(reported);
        }
        let mut signature =
            Signature { parameters: read, results: results?, free: Vec::new(), pack: None, float: FloatSource::Family };
        self.bind_free_dims(&mut signature, parameters, result.map_or(span, |r| r.span))?;
        if let Home::Op(_) = self.home {
            let float = |p: &SignatureParameter| match &p.ty {
                ParameterType::Value(ty) => ty.dtype().is_none_or(|dtype| dtype == DType::F),
                ParameterType::Load { .. } => false,
            };
            if let Some(i) = signature.parameters.iter().position(float) {
                signature.float = FloatSource::Parameter(i);
            }
        }
        if signature.is_load()
            && let Some(tensor) = signature.parameters.iter().find(|p| matches!(p.ty, ParameterType::Value(_)))
        {
            return Err(self.error(
                Diagnostic::new(Code::WrongStage, span, "a load value cannot come from a tensor")
                    .also(tensor.name.span, "this parameter is a tensor"),
            ));
        }
        Ok(signature)
    }

    /// `later` begins with the parameter itself.
    fn parameter(&mut self, parameter: &ast::Parameter, later: &[ast::Parameter]) -> Checked<SignatureParameter> {
        let ty = match self.collecting(|this| this.written(&parameter.ty))? {
            Written::Tensor(ty) => ParameterType::Value(Type::Tensor(ty)),
            Written::Matrix(shape) => ParameterType::Value(Type::Matrix(shape)),
            Written::List { item, length } => ParameterType::Value(Type::List { item, length }),
            Written::Load { ty, length } => ParameterType::Load { ty, length },
            Written::Tuple(_) => {
                return self.fail(Code::TypeMismatch, parameter.ty.span, "a parameter is one value, not a tuple");
            }
        };
        let default = match (&parameter.default, &ty) {
            (None, _) => None,
            (Some(value), ParameterType::Load { ty, .. }) => {
                let value = self.load(value)?;
                let unset = |p: &ast::Parameter| {
                    any_part(&value, &|part| matches!(&part.kind, LoadKind::Parameter(name) if *name == p.name.node))
                };
                if let Some(later) = later.iter().find(|p| unset(p)) {
                    let (own, named) = (&parameter.name.node, &later.name.node);
                    let message = match own == named {
                        true => format!("the default of `{own}` names `{own}` itself"),
                        false => format!("the default of `{own}` names `{named}`, which comes after it"),
                    };
                    return Err(self.error(
                        Diagnostic::new(Code::UnknownName, value.span, message)
                            .help("a default may name the parameters before its own"),
                    ));
                }
                Some(self.coerce(value, ty, &format!("the default of `{}`", parameter.name.node))?)
            }
            (Some(value), ParameterType::Value(_)) => {
                return self.fail(Code::TypeMismatch, value.span, "a tensor parameter has no default");
            }
        };
        if parameter.mutable && matches!(ty, ParameterType::Load { .. }) {
            return Err(self.load_value_changes(&parameter.name));
        }
        Ok(SignatureParameter { name: parameter.name.clone(), mutable: parameter.mutable, ty, default })
    }

    fn results(&mut self, written: Written, span: Span) -> Checked<Results> {
        Ok(match written {
            Written::Tensor(ty) => Results::Values(vec![Type::Tensor(ty)]),
            Written::Matrix(shape) => Results::Values(vec![Type::Matrix(shape)]),
            Written::List { item, length } => Results::Values(vec![Type::List { item, length }]),
            Written::Load { ty, length } => Results::Load { ty, length },
            Written::Tuple(items) => {
                let mut types = Vec::new();
                for item in items {
                    match item {
                        Written::Tensor(ty) => types.push(Type::Tensor(ty)),
                        Written::Matrix(shape) => types.push(Type::Matrix(shape)),
                        Written::List { item, length } => types.push(Type::List { item, length }),
                        Written::Load { .. } | Written::Tuple(_) => {
                            return self.fail(
                                Code::TypeMismatch,
                                span,
                                "the values of a tuple are tensors, matrices and lists of tensors",
                            );
                        }
                    }
                }
                Results::Values(types)
            }
        })
    }

    /// A free dim is bound by the first parameter in whose shape it stands alone.
    fn bind_free_dims(&mut self, signature: &mut Signature, written: &[ast::Parameter], result: Span) -> Checked<()> {
        let mut free: Vec<FreeDim> = Vec::new();
        let mut bind = |dim: &Dim, source: DimSource| {
            if let Some(LoadKind::Free(name)) = dim.as_atom().map(|a| &a.load.kind)
                && free.iter().all(|f| f.name != *name)
            {
                free.push(FreeDim { name: name.clone(), source });
            }
        };
        for (i, parameter) in signature.parameters.iter().enumerate() {
            match &parameter.ty {
                ParameterType::Value(ty) => {
                    let shape = ty.shape();
                    if shape.pack && signature.pack.is_none() {
                        signature.pack = Some(PackSource { parameter: i, trailing: shape.dims.len() });
                    }
                    for (axis, dim) in shape.dims.iter().enumerate() {
                        bind(dim, DimSource::Axis { parameter: i, axis: axis as i32 - shape.dims.len() as i32 });
                    }
                    if let Type::List { length, .. } = ty {
                        bind(length, DimSource::Length { parameter: i });
                    }
                }
                ParameterType::Load { length: Some(length), .. } => bind(length, DimSource::Length { parameter: i }),
                ParameterType::Load { length: None, .. } => {}
            }
        }
        let mut failed = None;
        for (parameter, written) in signature.parameters.iter().zip(written) {
            let dims: Vec<&Dim> = match &parameter.ty {
                ParameterType::Value(ty) => ty.dims().collect(),
                ParameterType::Load { length, .. } => length.iter().collect(),
            };
            for name in unbound(&dims, &free) {
                let message = format!("nothing binds the free dim `{name}`");
                failed = Some(self.error(
                    Diagnostic::new(Code::UnboundDim, written.ty.span, message).label("only part of a compound dim").help(
                        format!("a parameter binds `{name}` where it stands alone; or make it a parameter, `{name}: dim`"),
                    ),
                ));
                free.push(FreeDim { name, source: DimSource::Positions });
            }
        }
        if let Results::Values(types) = &signature.results {
            let dims: Vec<&Dim> = types.iter().flat_map(Type::dims).collect();
            for name in unbound(&dims, &free) {
                let runtime = name == "T" && matches!(self.home, Home::Block(_));
                if !runtime {
                    let message = format!("nothing binds the free dim `{name}` of the result");
                    failed = Some(
                        self.error(
                            Diagnostic::new(Code::UnboundDim, result, message)
                                .help(format!("a parameter binds `{name}` where it stands alone in its shape")),
                        ),
                    );
                }
                free.push(FreeDim { name, source: DimSource::Positions });
            }
            if types.iter().any(|ty| ty.shape().pack) && signature.pack.is_none() {
                failed = Some(
                    self.error(
                        Diagnostic::new(Code::UnboundDim, result, "nothing binds `..` of the result")
                            .help("a parameter binds `..` by having it in its shape"),
                    ),
                );
            }
        } else if let Results::Load { length: Some(length), .. } = &signature.results {
            for name in unbound(&[length], &free) {
                let message = format!("nothing binds the free dim `{name}` of the result");
                failed = Some(self.error(Diagnostic::new(Code::UnboundDim, result, message)));
            }
        }
        signature.free = free;
        failed.map_or(Ok(()), Err)
    }
}

fn unbound(dims: &[&Dim], free: &[FreeDim]) -> Vec<String> {
    let mut names = Vec::new();
    for atom in dims.iter().flat_map(|d| d.atoms()) {
        if let LoadKind::Free(name) = &atom.load.kind
            && free.iter().all(|f| f.name != *name)
            && !names.contains(name)
        {
            names.push(name.clone());
        }
    }
    names
}
