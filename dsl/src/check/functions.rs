//! Ops: their signatures when they are first called, their bodies later, and what may not contain itself.

use super::{
    Checker, Pending,
    scope::{Binding, Checked, FreeDims, Home, Item, Lowering, Reported},
    signature::{ParameterType, Results, Signature},
};
use crate::{
    ast,
    diagnostic::{Code, Diagnostic},
    dim::Dim,
    ir::*,
    source::{PRELUDE, Span},
};

#[derive(Debug)]
pub(crate) struct OpEntry<'a> {
    ast: &'a ast::Op,
    signature: Option<Signature>,
    kind: Option<OpKind>,
    /// Ops that the body and the twins call.
    pub calls: Vec<(OpId, Span)>,
}

impl OpEntry<'_> {
    pub fn finish(self) -> Option<Op> {
        let name = self.ast.name.node.clone();
        Some(Op { name, doc: self.ast.doc.clone(), kind: self.kind?, span: self.ast.name.span })
    }
}

impl<'a> Checker<'a> {
    pub fn op_name(&self, op: OpId) -> String {
        self.ops[op.0 as usize].ast.name.node.clone()
    }

    pub fn op_span(&self, op: OpId) -> Span {
        self.ops[op.0 as usize].ast.name.span
    }

    pub fn op_signature(&self, op: OpId) -> Checked<Signature> {
        self.ops[op.0 as usize].signature.clone().ok_or(Reported)
    }

    pub fn called(&mut self, by: Home, op: OpId, span: Span) {
        if let Home::Op(caller) = by {
            self.ops[caller.0 as usize].calls.push((op, span));
        }
    }

    /// The op of this name, checked from now on. `None` when there is none.
    pub fn reach_op(&mut self, name: &str) -> Option<OpId> {
        if let Some(id) = self.op_ids.get(name) {
            return Some(*id);
        }
        let op = self.items.ops.get(name).copied()?;
        let id = OpId(self.ops.len() as u32);
        self.op_ids.insert(&op.name.node, id);
        self.ops.push(OpEntry { ast: op, signature: None, kind: None, calls: Vec::new() });
        let mut lowering = Lowering::new(self, Home::Op(id), op.name.span.file != PRELUDE);
        let signature = lowering.signature(&op.parameters, Some(&op.result), op.name.span);
        self.ops[id.0 as usize].signature = signature.ok();
        self.pending.push_back(Pending::Op(id));
        Some(id)
    }

    pub fn check_op(&mut self, id: OpId) {
        let entry = &self.ops[id.0 as usize];
        let op = entry.ast;
        let Some(signature) = entry.signature.clone() else { return };
        let kind = if signature.is_load() {
            self.check_load_op(id, op, &signature)
        } else {
            self.check_tensor_op(id, op, &signature)
        };
        self.ops[id.0 as usize].kind = kind.ok();
    }

    fn check_load_op(&mut self, id: OpId, op: &'a ast::Op, signature: &Signature) -> Checked<OpKind> {
        if let Some(twin) = op.twins.first() {
            let message = "an op that runs at load has no twin";
            return Err(self.report(Diagnostic::new(Code::WrongStage, twin.backend.span, message)));
        }
        let Results::Load { ty, length } = &signature.results else { return Err(Reported) };
        let mut lowering = Lowering::new(self, Home::Op(id), op.name.span.file != PRELUDE);
        lowering.enter(signature, false);
        let body = lowering.load_body(&op.body)?;
        let body = lowering.coerce(body, ty, &format!("the value of `{}`", op.name.node))?;
        if let Some(length) = length {
            let found = lowering.length_of(&body);
            if !lowering.same(&found, length) {
                let message = format!("the list has `{found}` items, `{}` declares `{length}`", op.name.node);
                return lowering.dim_mismatch(message, &found, length, body.span);
            }
        }
        let parameters = load_parameters(signature);
        let dims = signature
            .free
            .iter()
            .filter_map(|f| match f.source {
                DimSource::Length { parameter } => Some(LoadDim { name: f.name.clone(), parameter }),
                DimSource::Axis { .. } | DimSource::Positions => None,
            })
            .collect();
        Ok(OpKind::Load { parameters, dims, body })
    }

    fn check_tensor_op(&mut self, id: OpId, op: &'a ast::Op, signature: &Signature) -> Checked<OpKind> {
        let mut lowering = Lowering::new(self, Home::Op(id), op.name.span.file != PRELUDE);
        lowering.enter(signature, true);
        let body = lowering.function_body(&op.body, signature);
        let twins = lowering.twins(op, signature);
        let function = lowering.finish(op.name.node.clone(), op.doc.clone(), false, signature, body?, op.name.span);
        Ok(OpKind::Tensor { function, twins: twins? })
    }

    /// Ops and blocks are finite trees: none may reach itself.
    pub fn check_recursion(&mut self) {
        let calls: Vec<Vec<(OpId, Span)>> = self.ops.iter().map(|o| o.calls.clone()).collect();
        let mut state = vec![0u8; calls.len()];
        for start in 0..calls.len() {
            let mut found = None;
            visit(start, &calls, &mut state, &mut found);
            if let Some((op, span)) = found {
                let name = self.op_name(op);
                self.report(
                    Diagnostic::new(Code::RecursiveDefinition, span, format!("the op `{name}` calls itself"))
                        .label("leads back to it")
                        .help("ops are finite; iterate with `for` or a comprehension"),
                );
            }
        }
    }
}

fn tensors(n: usize) -> String {
    if n == 1 { "one tensor".into() } else { format!("{n} tensors") }
}

/// Depth first; the first edge back to an op on the path.
fn visit(op: usize, calls: &[Vec<(OpId, Span)>], state: &mut [u8], found: &mut Option<(OpId, Span)>) {
    if state[op] != 0 {
        return;
    }
    state[op] = 1;
    for (callee, span) in &calls[op] {
        match state[callee.0 as usize] {
            1 => *found = found.or(Some((*callee, *span))),
            _ => visit(callee.0 as usize, calls, state, found),
        }
    }
    state[op] = 2;
}

pub(crate) fn load_parameters(signature: &Signature) -> Vec<LoadParameter> {
    signature
        .parameters
        .iter()
        .filter_map(|p| match &p.ty {
            ParameterType::Load { ty, .. } => Some(LoadParameter { name: p.name.node.clone(), ty: ty.clone() }),
            ParameterType::Value(_) => None,
        })
        .collect()
}

impl Lowering<'_, '_> {
    /// Binds the parameters and free dims of the function whose body comes next.
    pub fn enter(&mut self, signature: &Signature, tensors: bool) {
        self.free_dims = FreeDims::Bound;
        self.free = signature.free.clone();
        self.float = signature.float;
        self.call_stage = tensors;
        for parameter in &signature.parameters {
            let item = match &parameter.ty {
                ParameterType::Value(ty) => {
                    let value = self.new_value(ty.clone(), parameter.name.span);
                    self.values[value.0 as usize].name = Some(parameter.name.node.clone());
                    Item::Value(value)
                }
                ParameterType::Load { ty, length } => {
                    if let Some(length) = length {
                        self.lengths.insert(parameter.name.node.clone(), length.clone());
                    }
                    let kind = LoadKind::Parameter(parameter.name.node.clone());
                    Item::Load(super::scope::load(kind, ty.clone(), parameter.name.span))
                }
            };
            self.item_found(parameter.name.span, &item);
            let binding = Binding { item, mutable: parameter.mutable, span: parameter.name.span };
            self.bind_silently(&parameter.name.node, binding);
        }
    }

    /// The body of a function with tensor results.
    pub fn function_body(&mut self, body: &ast::Body, signature: &Signature) -> Checked<Region> {
        let Results::Values(types) = &signature.results else { return Err(Reported) };
        let (item, statements) = self.region(|this| this.body(body).and_then(|item| this.settled(item, body)));
        let end = body.value.as_ref().map_or(body.span, |v| v.span);
        let item = item?;
        let results = match (&item, types.as_slice()) {
            (Item::Unit, []) => Vec::new(),
            (Item::Unit, _) => {
                return self.fail(Code::TypeMismatch, end, "the body has no value, but a result is declared");
            }
            (item, []) => {
                if let Some(value) = &body.value {
                    self.unread(item, value, "declare the result of the function: `-> F[..]`")?;
                }
                Vec::new()
            }
            _ => self.values_of(item, end)?,
        };
        if results.len() != types.len() {
            let message =
                format!("the body gives {}, the signature declares {}", tensors(results.len()), tensors(types.len()));
            return self.fail(Code::TypeMismatch, end, message);
        }
        for (value, ty) in results.iter().zip(types) {
            let found = self.ty(*value).clone();
            self.expect_type(&found, ty, "the result", end)?;
        }
        Ok(Region { statements, results })
    }

    pub fn finish(
        self,
        name: String,
        doc: String,
        graph: bool,
        signature: &Signature,
        body: Region,
        span: Span,
    ) -> Function {
        let mut values = 0..;
        let parameters = signature
            .parameters
            .iter()
            .map(|p| Parameter {
                name: p.name.node.clone(),
                kind: match (&p.ty, p) {
                    (ParameterType::Value(_), _) => ParameterKind::Value(ValueId(values.next().unwrap_or_default())),
                    (ParameterType::Load { ty, .. }, _) => ParameterKind::Load(ty.clone()),
                },
            })
            .collect();
        let results = match &signature.results {
            Results::Values(types) => types.clone(),
            Results::Load { .. } => Vec::new(),
        };
        Function {
            name,
            doc,
            graph,
            parameters,
            results,
            free: self.free,
            pack: signature.pack.clone(),
            float: signature.float,
            values: self.values,
            body,
            span,
        }
    }

    /// The body of a derived weight: no parameters, and `F` is the family's.
    pub fn finish_derived(self, name: String, ty: TensorType, body: Region, span: Span) -> Function {
        Function {
            name,
            doc: String::new(),
            graph: false,
            parameters: Vec::new(),
            results: vec![Type::Tensor(ty)],
            free: Vec::new(),
            pack: None,
            float: FloatSource::Family,
            values: self.values,
            body,
            span,
        }
    }

    /// The length that a call of an all-load op declares for its result.
    pub fn length_of_call(&self, op: OpId, arguments: &[Load]) -> Option<Dim> {
        let signature = self.checker.op_signature(op).ok()?;
        let Results::Load { length: Some(length), .. } = &signature.results else { return None };
        let mut with = super::dims::Translation::default();
        for (parameter, argument) in signature.parameters.iter().zip(arguments) {
            with.parameters.insert(parameter.name.node.clone(), argument.clone());
        }
        for free in &signature.free {
            if let DimSource::Length { parameter } = free.source {
                with.free.insert(free.name.clone(), self.length_of(arguments.get(parameter)?));
            }
        }
        self.translate_dim(length, &with).ok()
    }
}
