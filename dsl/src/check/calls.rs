//! Calls of ops and of block functions: arguments to parameters, free dims and `..` and `F` bound from the arguments,
//! everything else checked against them.

use super::{
    dims::Translation,
    load::type_name,
    scope::{Checked, Child, Home, Item, Lowering, Reported, load},
    signature::{ParameterType, Results, Signature},
    types::{is_float, shape_text, type_text, value_text},
};
use crate::{
    ast,
    diagnostic::{Code, Diagnostic, suggest},
    ir::*,
    source::Span,
};

/// An argument in the place of its parameter.
#[derive(Debug, Clone)]
pub(crate) enum Bound {
    Value(ValueId, Span),
    Load(Load),
}

impl Lowering<'_, '_> {
    /// `arguments` in the order of `names`; positional ones first. The expressions are not looked at.
    pub fn place<'e>(
        &mut self,
        callee: &str,
        names: &[(&str, bool)],
        arguments: &'e [ast::Argument],
        span: Span,
    ) -> Checked<Vec<Option<&'e ast::Expr>>> {
        let mut places: Vec<Option<&ast::Expr>> = vec![None; names.len()];
        let mut named = false;
        for (i, argument) in arguments.iter().enumerate() {
            let at = match &argument.name {
                None if named => {
                    let message = "a positional argument after a named one";
                    return self.fail(Code::WrongArguments, argument.value.span, message);
                }
                None => i,
                Some(name) => {
                    named = true;
                    match names.iter().position(|(n, _)| *n == name.node) {
                        Some(at) => at,
                        None => {
                            let message = format!("`{callee}` has no parameter `{}`", name.node);
                            let mut error = Diagnostic::new(Code::WrongArguments, name.span, message);
                            if let Some(near) = suggest(&name.node, names.iter().map(|(n, _)| *n)) {
                                error = error.help(format!("did you mean `{near}`?"));
                            }
                            return Err(self.error(error));
                        }
                    }
                }
            };
            match places.get_mut(at) {
                Some(place @ None) => *place = Some(&argument.value),
                Some(Some(_)) => {
                    let message = format!("`{}` of `{callee}` is given twice", names[at].0);
                    return self.fail(Code::WrongArguments, argument.value.span, message);
                }
                None => {
                    let message = format!("`{callee}` takes {}, {} are given", count(names.len()), arguments.len());
                    return self.fail(Code::WrongArguments, argument.value.span, message);
                }
            }
        }
        let missing: Vec<String> = names
            .iter()
            .zip(&places)
            .filter(|((_, optional), place)| !optional && place.is_none())
            .map(|((name, _), _)| format!("`{name}`"))
            .collect();
        if !missing.is_empty() {
            let message = format!("`{callee}` needs {}", missing.join(", "));
            return self.fail(Code::WrongArguments, span, message);
        }
        Ok(places)
    }

    /// One argument per parameter: evaluated, defaults filled in, of the right stage. A default names earlier parameters, and
    /// what `with` has of the callee's block; both are put in the caller's words.
    pub fn arguments(
        &mut self,
        callee: &str,
        signature: &Signature,
        arguments: &[ast::Argument],
        mut with: Translation,
        span: Span,
    ) -> Checked<Vec<Bound>> {
        let names: Vec<(&str, bool)> =
            signature.parameters.iter().map(|p| (p.name.node.as_str(), p.default.is_some())).collect();
        let places = self.place(callee, &names, arguments, span)?;
        for name in arguments.iter().filter_map(|a| a.name.as_ref()) {
            if let Some(parameter) = signature.parameters.iter().find(|p| p.name.node == name.node) {
                self.name_used(name.span, parameter.name.span);
            }
        }
        let mut bound = Vec::new();
        let mut failed = None;
        let mut values = 0..;
        for (parameter, place) in signature.parameters.iter().zip(places) {
            let value = match parameter.ty {
                ParameterType::Value(_) => values.next().map(ValueId),
                ParameterType::Load { .. } => None,
            };
            let argument = match (place, &parameter.default) {
                (Some(expr), _) => self.expr(expr).and_then(|item| {
                    let what = format!("`{}` of `{callee}`", parameter.name.node);
                    self.argument(item, &parameter.ty, &what, expr.span)
                }),
                (None, Some(_)) if failed.is_some() => Err(Reported),
                (None, Some(default)) => Ok(Bound::Load(self.translate(default, &with))),
                (None, None) => Err(Reported),
            };
            match argument {
                Ok(argument) => {
                    match &argument {
                        Bound::Load(load) => drop(with.parameters.insert(parameter.name.node.clone(), load.clone())),
                        Bound::Value(given, _) => drop(value.map(|value| with.values.insert(value, *given))),
                    }
                    bound.push(argument);
                }
                Err(reported) => failed = Some(reported),
            }
        }
        failed.map_or(Ok(bound), Err)
    }

    fn argument(&mut self, item: Item, wanted: &ParameterType, what: &str, span: Span) -> Checked<Bound> {
        match (wanted, item) {
            (ParameterType::Load { ty, .. }, Item::Load(value)) => Ok(Bound::Load(self.coerce(value, ty, what)?)),
            (ParameterType::Load { ty, .. }, Item::Value(_)) => Err(self.error(
                Diagnostic::new(
                    Code::WrongStage,
                    span,
                    format!("{what} is {} known at load, this is a tensor", type_name(ty)),
                )
                .label("a tensor"),
            )),
            (ParameterType::Value(_), Item::Value(value)) => Ok(Bound::Value(value, span)),
            (ParameterType::Value(Type::List { .. }), Item::List(items)) => {
                Ok(Bound::Value(self.list_value(items, span)?, span))
            }
            (ParameterType::Value(ty), Item::Load(value)) => {
                let message = format!("{what} is {}, this is {}", value_text(ty), type_name(&value.ty));
                let mut error = Diagnostic::new(Code::TypeMismatch, span, message);
                if let Type::Tensor(_) = ty {
                    error = error.help("make it a constant tensor with a cast, such as `F(0.5)` or `f32(list)`");
                }
                Err(self.error(error))
            }
            (_, item) => {
                let found = self.describe(&item);
                self.fail(Code::TypeMismatch, span, format!("{what} cannot be {found}"))
            }
        }
    }

    pub fn describe(&self, item: &Item) -> String {
        match item {
            Item::Value(value) => value_text(self.ty(*value)),
            Item::Load(value) => type_name(&value.ty),
            Item::Tuple(items) => format!("a tuple of {}", items.len()),
            Item::List(_) => "a list of tensors".into(),
            Item::Growing(_) => "an empty list".into(),
            Item::Child(child) => format!("a block `{}`", self.checker.block_name(child.block)),
            Item::Children(_) => "an array of blocks".into(),
            Item::Section(name) => format!("the config section `{name}`"),
            Item::Unit | Item::Poison => "nothing".into(),
        }
    }

    pub fn call_op(&mut self, op: OpId, arguments: &[ast::Argument], span: Span) -> Checked<Item> {
        self.checker.called(self.home, op, span);
        let name = self.checker.op_name(op);
        let signature = match self.checker.op_signature(op) {
            Ok(signature) => signature,
            Err(reported) => {
                // The arguments may hold mistakes of their own.
                for argument in arguments {
                    let _ = self.expr(&argument.value);
                }
                return Err(reported);
            }
        };
        let bound = self.arguments(&name, &signature, arguments, Translation::default(), span)?;
        let mut with = self.translation(&name, &signature, &bound, span)?;
        if let Results::Load { ty, .. } = &signature.results {
            self.check_lengths(&name, &signature, &bound, &with)?;
            let loads = bound.into_iter().filter_map(|b| if let Bound::Load(l) = b { Some(l) } else { None }).collect();
            return Ok(Item::Load(load(LoadKind::Op(op, loads), ty.clone(), span)));
        }
        if !self.call_stage {
            return self.fail(
                Code::WrongStage,
                span,
                format!("`{name}` gives a tensor, which is not known before a call"),
            );
        }
        let float = self.float_of(&name, &signature, &bound, span)?;
        self.check_values(&name, &signature, &bound, &mut with, float)?;
        let outs = self.call_results(&signature, &with, float, span)?;
        let arguments = bound.into_iter().map(Bound::into_argument).collect();
        self.push(Statement::CallOp { outs: outs.clone(), op, arguments, span });
        Ok(results(outs))
    }

    pub fn call_block(
        &mut self,
        child: Child,
        function: &str,
        arguments: &[ast::Argument],
        span: Span,
    ) -> Checked<Item> {
        let block = self.checker.block_name(child.block).to_string();
        let shown = if function.is_empty() { block.clone() } else { format!("{block}.{function}") };
        let Some((id, signature)) = self.checker.block_function(child.block, function) else {
            let known = self.checker.function_names(child.block);
            let message = if function.is_empty() {
                format!("the block `{block}` has no `fn` without a name, so it cannot be called")
            } else {
                format!("the block `{block}` has no function `{function}`")
            };
            let mut error = Diagnostic::new(Code::NotCallable, span, message);
            let named: Vec<&str> = known.iter().map(String::as_str).filter(|n| !n.is_empty()).collect();
            if let Some(near) = suggest(function, named.iter().copied()) {
                error = error.help(format!("did you mean `{near}`?"));
            } else if !named.is_empty() {
                error = error.help(format!("it has `{}`", named.join("`, `")));
            }
            return Err(self.error(error));
        };
        let signature = signature?;
        if !self.call_stage {
            return self.fail(
                Code::WrongStage,
                span,
                format!("`{shown}` gives a tensor, which is not known before a call"),
            );
        }
        let parameters = self.checker.block_parameters(child.block)?;
        let names = parameters.parameters.iter().map(|p| p.name.node.clone());
        let own = Translation {
            parameters: names.zip(child.arguments.iter().cloned()).collect(),
            members: Some(child.block),
            ..Default::default()
        };
        let bound = self.arguments(&shown, &signature, arguments, own.clone(), span)?;
        let mut with = self.translation(&shown, &signature, &bound, span)?;
        for (name, argument) in own.parameters {
            with.parameters.entry(name).or_insert(argument);
        }
        with.members = own.members;
        if self.checker.has_state(child.block) {
            for name in ["B", "T"] {
                if let Some(dim) = with.free.get(name)
                    && !matches!(dim.as_atom().map(|a| &a.load.kind), Some(LoadKind::Free(n)) if n == name)
                {
                    let message = format!("`{shown}` holds state, and gets `{dim}` for its `{name}`");
                    return Err(self.error(
                        Diagnostic::new(Code::StateMisuse, span, message)
                            .help("`B` and `T` of a block with state are the rows and positions of the whole call"),
                    ));
                }
            }
        }
        self.check_values(&shown, &signature, &bound, &mut with, DType::F)?;
        let outs = self.call_results(&signature, &with, DType::F, span)?;
        let arguments = bound.into_iter().map(Bound::into_argument).collect();
        let receiver = child.receiver;
        self.push(Statement::CallBlock {
            outs: outs.clone(),
            receiver,
            block: child.block,
            function: id,
            arguments,
            span,
        });
        Ok(results(outs))
    }

    /// Free dims and `..` from the arguments, in the caller's names.
    fn translation(
        &mut self,
        callee: &str,
        signature: &Signature,
        bound: &[Bound],
        span: Span,
    ) -> Checked<Translation> {
        let mut with = Translation::default();
        let mut values = 0..;
        let mut failed = None;
        for (parameter, argument) in signature.parameters.iter().zip(bound) {
            match (&parameter.ty, argument) {
                (ParameterType::Load { .. }, Bound::Load(value)) => {
                    with.parameters.insert(parameter.name.node.clone(), value.clone());
                }
                (ParameterType::Value(ty), Bound::Value(value, span)) => {
                    with.values.insert(ValueId(values.next().unwrap_or_default()), *value);
                    if let Err(reported) = self.check_rank(callee, &parameter.name.node, ty, *value, *span) {
                        failed = Some(reported);
                    }
                }
                _ => failed = Some(Reported),
            }
        }
        if let Some(reported) = failed {
            return Err(reported);
        }
        let shape_of = |this: &Self, parameter: usize| match bound.get(parameter) {
            Some(Bound::Value(value, _)) => Some(this.ty(*value).shape().clone()),
            _ => None,
        };
        if let Some(pack) = &signature.pack
            && let Some(mut shape) = shape_of(self, pack.parameter)
        {
            shape.dims.truncate(shape.dims.len() - pack.trailing);
            with.pack = Some(shape);
        }
        for free in &signature.free {
            let dim = match &free.source {
                DimSource::Positions => continue,
                DimSource::Axis { parameter, axis } => shape_of(self, *parameter)
                    .and_then(|s| s.dims.get((s.dims.len() as i64 + i64::from(*axis)) as usize).cloned()),
                DimSource::Length { parameter } => match bound.get(*parameter) {
                    Some(Bound::Load(list)) => Some(self.length_of(list)),
                    Some(Bound::Value(list, _)) => match self.ty(*list) {
                        Type::List { length, .. } => Some(length.clone()),
                        Type::Tensor(_) | Type::Matrix(_) => None,
                    },
                    None => None,
                },
            };
            match dim {
                Some(dim) => with.free.insert(free.name.clone(), dim),
                None => {
                    return self.fail(Code::UnboundDim, span, format!("nothing binds `{}` of `{callee}`", free.name));
                }
            };
        }
        Ok(with)
    }

    fn check_rank(&mut self, callee: &str, parameter: &str, wanted: &Type, value: ValueId, span: Span) -> Checked<()> {
        let found = self.ty(value).clone();
        let (wanted_shape, found_shape) = match (wanted, &found) {
            (Type::Tensor(a), Type::Tensor(b)) => (&a.shape, &b.shape),
            (Type::Matrix(a), Type::Matrix(b)) => (a, b),
            (Type::List { item: a, .. }, Type::List { item: b, .. }) => (&a.shape, &b.shape),
            (Type::List { .. }, _) | (_, Type::List { .. }) => {
                let (wanted, found) = (value_text(wanted), value_text(&found));
                let message = format!("`{parameter}` of `{callee}` is {wanted}, this is {found}");
                return self.fail(Code::TypeMismatch, span, message);
            }
            (Type::Tensor(_), Type::Matrix(_)) => {
                return self.tensor_type(value, span).map(drop);
            }
            (Type::Matrix(_), Type::Tensor(_)) => {
                return Err(self.error(
                    Diagnostic::new(
                        Code::TypeMismatch,
                        span,
                        format!(
                            "`{parameter}` of `{callee}` is a matrix {}, this is {}",
                            type_text(wanted),
                            type_text(&found)
                        ),
                    )
                    .help("declare the weight as `Q[..]`, or use `dot(x, w)` for a dense one"),
                ));
            }
        };
        let fits = if wanted_shape.pack {
            found_shape.dims.len() >= wanted_shape.dims.len()
        } else {
            !found_shape.pack && found_shape.dims.len() == wanted_shape.dims.len()
        };
        if fits {
            return Ok(());
        }
        let message = format!("`{parameter}` of `{callee}` is {}, this is {}", type_text(wanted), type_text(&found));
        Err(self.error(Diagnostic::new(Code::RankMismatch, span, message).label("another number of axes")))
    }

    /// What `F` of the callee is here.
    fn float_of(&mut self, callee: &str, signature: &Signature, bound: &[Bound], span: Span) -> Checked<DType> {
        match signature.float {
            FloatSource::Parameter(i) => match bound.get(i) {
                Some(Bound::Value(value, span)) => match self.ty(*value).clone() {
                    Type::Matrix(_) => Ok(DType::F),
                    Type::Tensor(ty) | Type::List { item: ty, .. } if is_float(ty.dtype) => Ok(ty.dtype),
                    Type::Tensor(ty) | Type::List { item: ty, .. } => {
                        let parameter = &signature.parameters[i].name.node;
                        let message = format!("`{parameter}` of `{callee}` takes floats, this is {}", ty.dtype.name());
                        Err(self.error(
                            Diagnostic::new(Code::DtypeMismatch, *span, message)
                                .help("write the cast that is meant, `F(x)` or `f32(x)`"),
                        ))
                    }
                },
                _ => Err(Reported),
            },
            FloatSource::Family => {
                let Results::Values(types) = &signature.results else { return Ok(DType::F) };
                let mentions = types.iter().any(|t| t.dtype() == Some(DType::F));
                if mentions && matches!(self.home, Home::Op(_)) && self.float != FloatSource::Family {
                    let message = format!(
                        "`{callee}` gives the family's float, which may differ from `F` of this op's arguments"
                    );
                    return self.fail(Code::DtypeMismatch, span, message);
                }
                Ok(DType::F)
            }
        }
    }

    /// Every shape and dtype against the parameters, and list lengths.
    fn check_values(
        &mut self,
        callee: &str,
        signature: &Signature,
        bound: &[Bound],
        with: &mut Translation,
        float: DType,
    ) -> Checked<()> {
        self.check_lengths(callee, signature, bound, with)?;
        let mut failed = None;
        for (parameter, argument) in signature.parameters.iter().zip(bound) {
            if let (ParameterType::Value(wanted), Bound::Value(value, span)) = (&parameter.ty, argument) {
                let found = self.ty(*value).clone();
                let needed = self.translate_type(wanted, with, float, *span)?;
                let what = format!("`{}` of `{callee}`", parameter.name.node);
                if let Err(reported) = self.expect_declared(&found, &needed, Some(wanted), &what, *span) {
                    failed = Some(reported);
                }
                if matches!(wanted, Type::Matrix(_)) && float != DType::F {
                    let message = format!("{what} is in the family's float, the other arguments are {}", float.name());
                    failed = self.fail::<()>(Code::DtypeMismatch, *span, message).err();
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn check_lengths(
        &mut self,
        callee: &str,
        signature: &Signature,
        bound: &[Bound],
        with: &Translation,
    ) -> Checked<()> {
        for (parameter, argument) in signature.parameters.iter().zip(bound) {
            if let (ParameterType::Load { length: Some(length), .. }, Bound::Load(list)) = (&parameter.ty, argument) {
                let needed = self.translate_dim(length, with);
                let needed = self.sound(needed, list.span)?;
                let found = self.length_of(list);
                if !self.same(&found, &needed) {
                    let name = &parameter.name.node;
                    let declared = match length.to_string() {
                        own if own == needed.to_string() => format!("`{own}`"),
                        own => format!("`{own}` (here `{needed}`)"),
                    };
                    let message = format!("`{name}` of `{callee}` has {declared} items, this list has `{found}`");
                    return self.dim_mismatch(message, &found, &needed, list.span);
                }
            }
        }
        Ok(())
    }

    pub fn translate_type(&mut self, ty: &Type, with: &Translation, float: DType, span: Span) -> Checked<Type> {
        let shape = self.translate_shape(ty.shape(), with);
        let shape = self.sound(shape, span)?;
        let dtype = |dtype| if dtype == DType::F { float } else { dtype };
        Ok(match ty {
            Type::Tensor(ty) => Type::Tensor(TensorType { dtype: dtype(ty.dtype), shape }),
            Type::Matrix(_) => Type::Matrix(shape),
            Type::List { item, length } => {
                let length = self.translate_dim(length, with);
                let item = TensorType { dtype: dtype(item.dtype), shape };
                Type::List { item, length: self.sound(length, span)? }
            }
        })
    }

    fn call_results(
        &mut self,
        signature: &Signature,
        with: &Translation,
        float: DType,
        span: Span,
    ) -> Checked<Vec<ValueId>> {
        let Results::Values(types) = &signature.results else { return Err(Reported) };
        let mut outs = Vec::new();
        for ty in types {
            let ty = self.translate_type(ty, with, float, span)?;
            // A result that shows `T` makes this function know it.
            if let Type::Tensor(tensor) | Type::List { item: tensor, .. } = &ty {
                self.need_state_dims(tensor, span)?;
            }
            outs.push(self.new_value(ty, span));
        }
        Ok(outs)
    }

    /// An error unless `found` is `needed`.
    pub fn expect_type(&mut self, found: &Type, needed: &Type, what: &str, span: Span) -> Checked<()> {
        self.expect_declared(found, needed, None, what, span)
    }

    /// As [`Self::expect_type`]; `declared` is how the callee writes `needed`.
    fn expect_declared(
        &mut self,
        found: &Type,
        needed: &Type,
        declared: Option<&Type>,
        what: &str,
        span: Span,
    ) -> Checked<()> {
        let (found_shape, needed_shape) = match (found, needed) {
            (Type::Tensor(a), Type::Tensor(b)) | (Type::List { item: a, .. }, Type::List { item: b, .. }) => {
                if a.dtype != b.dtype {
                    let message = format!("{what} is {}, this is {}", b.dtype.name(), a.dtype.name());
                    let mut error = Diagnostic::new(Code::DtypeMismatch, span, message).label(type_text(found));
                    error = error.help(format!(
                        "dtypes are never converted silently: write `{}(..)` where it is meant",
                        b.dtype.name()
                    ));
                    return Err(self.error(error));
                }
                (&a.shape, &b.shape)
            }
            (Type::Matrix(a), Type::Matrix(b)) => (a, b),
            _ => {
                let message = format!("{what} is {}, this is {}", type_text(needed), type_text(found));
                return self.fail(Code::TypeMismatch, span, message);
            }
        };
        if found_shape.pack != needed_shape.pack || found_shape.dims.len() != needed_shape.dims.len() {
            let message = format!("{what} is {}, this is {}", type_text(needed), type_text(found));
            return Err(self.error(Diagnostic::new(Code::RankMismatch, span, message).label("another number of axes")));
        }
        for (i, (a, b)) in found_shape.dims.iter().zip(&needed_shape.dims).enumerate() {
            if self.same(a, b) {
                continue;
            }
            let declared = match declared {
                Some(declared) if type_text(declared) != type_text(needed) => {
                    format!("{} (here {})", type_text(declared), type_text(needed))
                }
                _ => type_text(needed),
            };
            let axis = i as i64 - found_shape.dims.len() as i64;
            let message = format!("{what} is {declared}, this is {}: axis {axis} differs", type_text(found));
            return self.dim_mismatch(message, a, b, span);
        }
        if let (Type::List { length: a, .. }, Type::List { length: b, .. }) = (found, needed)
            && !self.same(a, b)
        {
            let message = format!("{what} has `{b}` items, this list has `{a}`");
            return self.dim_mismatch(message, a, b, span);
        }
        Ok(())
    }

    pub fn same_type(&self, a: &Type, b: &Type) -> bool {
        match (a, b) {
            (Type::Tensor(a), Type::Tensor(b)) => a.dtype == b.dtype && self.same_shape(&a.shape, &b.shape),
            (Type::Matrix(a), Type::Matrix(b)) => self.same_shape(a, b),
            (Type::List { item: a, length: m }, Type::List { item: b, length: n }) => {
                a.dtype == b.dtype && self.same_shape(&a.shape, &b.shape) && self.same(m, n)
            }
            (Type::Tensor(_) | Type::Matrix(_) | Type::List { .. }, _) => false,
        }
    }

    pub fn shape_of(&self, shape: &Shape) -> String {
        format!("[{}]", shape_text(shape))
    }
}

impl Bound {
    fn into_argument(self) -> Argument {
        match self {
            Bound::Value(value, _) => Argument::Value(value),
            Bound::Load(value) => Argument::Load(value),
        }
    }
}

fn results(mut outs: Vec<ValueId>) -> Item {
    match outs.len() {
        0 => Item::Unit,
        1 => Item::Value(outs.remove(0)),
        _ => Item::Tuple(outs.into_iter().map(Item::Value).collect()),
    }
}

fn count(n: usize) -> String {
    match n {
        0 => "no arguments".into(),
        1 => "one argument".into(),
        n => format!("{n} arguments"),
    }
}
