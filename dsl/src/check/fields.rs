//! Fields of a block: weights and their stored places, children and their arguments, conditions.

use super::{
    Checker,
    calls::Bound,
    dims::Translation,
    scope::{Binding, Checked, FreeDims, Item, Lowering, load},
    signature::{ParameterType, Signature},
    types::Written,
};
use crate::{
    ast,
    diagnostic::{Code, Diagnostic},
    ir::*,
    source::Span,
};

impl Lowering<'_, '_> {
    pub fn bind_parameters(&mut self, parameters: &Signature) {
        for parameter in &parameters.parameters {
            if let ParameterType::Load { ty, length } = &parameter.ty {
                if let Some(length) = length {
                    self.lengths.insert(parameter.name.node.clone(), length.clone());
                }
                let kind = LoadKind::Parameter(parameter.name.node.clone());
                let item = Item::Load(load(kind, ty.clone(), parameter.name.span));
                self.bind_silently(&parameter.name.node, Binding { item, mutable: false, span: parameter.name.span });
            }
        }
    }

    /// Reads `if condition`, and makes it known for the rest of this lowering.
    pub fn member_condition(&mut self, condition: Option<&ast::Expr>) -> Checked<(Option<Load>, Vec<String>)> {
        let Some(condition) = condition else { return Ok((None, Vec::new())) };
        let condition = self.condition(condition)?;
        let needed = self.facts_of(&condition, true);
        self.believe(&condition, true);
        Ok((Some(condition), needed))
    }

    fn block_id(&mut self, name: &ast::Name) -> Checked<BlockId> {
        let Some(block) = self.checker.reach_block(&name.node) else {
            let mut error = Diagnostic::new(Code::UnknownName, name.span, format!("there is no block `{}`", name.node))
                .label("not known");
            let known: Vec<&str> = self.checker.items.blocks.keys().copied().collect();
            if let Some(near) = crate::diagnostic::suggest(&name.node, known) {
                error = error.help(format!("did you mean `{near}`?"));
            }
            return Err(self.error(error));
        };
        self.name_used(name.span, self.checker.block_span(block));
        if !self.checker.is_complete(block) {
            let message = format!("the block `{}` contains itself", name.node);
            return self.fail(Code::RecursiveDefinition, name.span, message);
        }
        Ok(block)
    }

    pub fn child(&mut self, child: &ast::Child) -> Checked<FieldKind> {
        let block = self.block_id(&child.block)?;
        let arguments = self.block_arguments(block, &child.arguments, child.block.span)?;
        Ok(FieldKind::Child { block, arguments })
    }

    pub fn children(
        &mut self,
        child: &ast::Child,
        variable: &ast::Name,
        low: &ast::Expr,
        high: &ast::Expr,
    ) -> Checked<FieldKind> {
        let block = self.block_id(&child.block)?;
        let low = self.load(low)?;
        let low = self.coerce(low, &LoadType::Int, "the first index")?;
        let high = self.load(high)?;
        let high = self.coerce(high, &LoadType::Int, "the end of the indices")?;
        let local = self.new_variable(&variable.node);
        self.bind(variable, Item::Load(load(LoadKind::Local(local), LoadType::Int, variable.span)), false);
        let arguments = self.block_arguments(block, &child.arguments, child.block.span)?;
        Ok(FieldKind::Children { block, arguments, variable: local, low, high })
    }

    fn block_arguments(&mut self, block: BlockId, arguments: &[ast::Argument], span: Span) -> Checked<Vec<Load>> {
        let parameters = self.checker.block_parameters(block)?;
        let name = self.checker.block_name(block).to_string();
        let bound = self.arguments(&name, &parameters, arguments, Translation::default(), span)?;
        let mut loads = Vec::new();
        for argument in bound {
            match argument {
                Bound::Load(value) => loads.push(value),
                Bound::Value(_, span) => {
                    return self.fail(Code::WrongStage, span, "a block parameter is a load value, this is a tensor");
                }
            }
        }
        Ok(loads)
    }

    pub fn weight_or_block(&mut self, ty: &ast::Type) -> Checked<FieldKind> {
        if let ast::TypeKind::Named { name, shape: None } = &ty.kind
            && self.checker.items.blocks.contains_key(name.node.as_str())
        {
            let block = self.block_id(name)?;
            let arguments = self.block_arguments(block, &[], name.span)?;
            return Ok(FieldKind::Child { block, arguments });
        }
        let free = |shape: &Shape| {
            shape.dims.iter().flat_map(|d| d.atoms()).any(|a| matches!(a.load.kind, LoadKind::Free(_))) || shape.pack
        };
        self.free_dims = FreeDims::Collect;
        let written = self.written(ty)?;
        self.free_dims = FreeDims::None;
        let (kind, shape) = match written {
            Written::Tensor(tensor) => (FieldKind::Tensor(tensor.clone()), tensor.shape),
            Written::Matrix(shape) => (FieldKind::Matrix(shape.clone()), shape),
            Written::Load { .. } | Written::Tuple(_) | Written::List { .. } => {
                return Err(self.error(
                    Diagnostic::new(Code::TypeMismatch, ty.span, "a field is a weight or a block")
                        .help("load values are `let`s and parameters"),
                ));
            }
        };
        if free(&shape) {
            let message = "the shape of a weight is known at load: it has no free dims";
            return self.fail(Code::UnboundDim, ty.span, message);
        }
        Ok(kind)
    }

    pub fn stored(&mut self, source: &ast::StoredAs) -> Checked<Stored> {
        self.checker.stored_paths(source)?;
        let mut places = Vec::new();
        for place in &source.places {
            let mut parts = Vec::new();
            for part in place {
                let rows = match &part.rows {
                    None => None,
                    Some((low, high)) => {
                        let (low, high) = (self.load(low)?, self.load(high)?);
                        let low = self.coerce(low, &LoadType::Int, "the first row")?;
                        let high = self.coerce(high, &LoadType::Int, "the end of the rows")?;
                        Some((low, high))
                    }
                };
                if part.path.node.matches("{}").count() > 1 {
                    return self.fail(Code::DoublyClaimed, part.path.span, "a stored path has one hole `{}` at most");
                }
                self.checker.no_names_in_holes(&part.path)?;
                parts.push(StoredPart { path: part.path.node.clone(), rows });
            }
            places.push(parts);
        }
        Ok(Stored { places })
    }
}

impl Checker<'_> {
    /// Stored paths are known before any name is: their one hole is `{}`.
    pub fn no_names_in_holes(&mut self, path: &ast::Text) -> Checked<()> {
        if !path.node.replace("{}", "").contains(['{', '}']) {
            return Ok(());
        }
        let message = "a stored path names nothing in a hole";
        let error = Diagnostic::new(Code::DoublyClaimed, path.span, message);
        Err(self.report(error.help(
            "`{}` is the number of a stacked weight; `[Child(i) for i in 0..n]` numbers what is stored one by one",
        )))
    }
}
