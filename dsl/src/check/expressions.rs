//! Expressions: load values stay expressions, tensors become statements of the region at hand.

use super::scope::{Binding, Checked, Child, Children, Home, Item, Lowering, Reported, load};
use crate::{
    ast::{self, ExprKind, NumberValue},
    diagnostic::{Code, Diagnostic, suggest},
    ir::*,
    ops::{self, Call},
    source::Span,
};

impl Lowering<'_, '_> {
    pub fn expr(&mut self, expr: &ast::Expr) -> Checked<Item> {
        let item = self.expr_of_kind(expr)?;
        self.item_found(expr.span, &item);
        Ok(item)
    }

    fn expr_of_kind(&mut self, expr: &ast::Expr) -> Checked<Item> {
        let span = expr.span;
        match &expr.kind {
            ExprKind::Number(NumberValue::Int(n)) => Ok(Item::Load(super::scope::int(*n, span))),
            ExprKind::Number(NumberValue::Float(x)) => Ok(Item::Load(load(LoadKind::Float(*x), LoadType::Float, span))),
            ExprKind::Bool(b) => Ok(Item::Load(load(LoadKind::Bool(*b), LoadType::Bool, span))),
            ExprKind::Text(text) if text.contains('{') => {
                let parts = self.pattern(&ast::Text { node: text.clone(), span })?;
                Ok(Item::Load(Load::text(parts, span)))
            }
            ExprKind::Text(text) => Ok(Item::Load(load(LoadKind::Text(text.clone()), LoadType::Text, span))),
            ExprKind::Name(name) => self.name(name, span),
            ExprKind::Tuple(items) => {
                let items: Vec<_> = items.iter().map(|i| self.expr(i)).collect();
                Ok(Item::Tuple(items.into_iter().collect::<Checked<_>>()?))
            }
            ExprKind::List(items) => self.list(items, span),
            ExprKind::Comprehension { item, each } => self.comprehension(item, each, span),
            ExprKind::Unary { op, value } => self.unary(*op, value, span),
            ExprKind::Binary { op, left, right } => {
                let (a, b) = (self.expr(left), self.expr(right));
                let (a, b) = (a?, b?);
                self.operand(&a, left.span)?;
                self.operand(&b, right.span)?;
                match (a, b) {
                    (Item::Load(a), Item::Load(b)) => Ok(Item::Load(self.load_binary(op.node, a, b, span)?)),
                    (a, b) => self.tensor_binary(op.node, (a, left.span), (b, right.span), span).map(Item::Value),
                }
            }
            ExprKind::If { condition, then, otherwise } => self.branch(condition, then, otherwise.as_ref(), span),
            ExprKind::Call { callee, arguments } => self.call(callee, arguments, span),
            ExprKind::Subscript { value, slots } => self.subscript(value, slots, span),
            ExprKind::MemberOf { value, name } => self.member_of(value, name, span),
            ExprKind::Probe { value, name } => self.probe(value, name, span),
        }
    }

    fn list(&mut self, items: &[ast::DimExpr], span: Span) -> Checked<Item> {
        let mut checked = Vec::new();
        let mut failed = None;
        for item in items {
            match item {
                ast::DimExpr::Rest(span) => {
                    failed = self.fail::<()>(Code::TypeMismatch, *span, "`..` stands in shapes only").err();
                }
                ast::DimExpr::Dim(item) => match self.expr(item) {
                    Ok(item) => checked.push(item),
                    Err(reported) => failed = Some(reported),
                },
            }
        }
        if let Some(reported) = failed {
            return Err(reported);
        }
        let loads: Option<Vec<Load>> =
            checked.iter().map(|i| if let Item::Load(l) = i { Some(l.clone()) } else { None }).collect();
        match loads {
            Some(loads) if !(loads.is_empty() && self.call_stage) => Ok(Item::Load(self.load_list(loads, span)?)),
            _ => {
                let spans = items.iter().map(|item| match item {
                    ast::DimExpr::Rest(span) => *span,
                    ast::DimExpr::Dim(item) => item.span,
                });
                self.list_of_tensors(&checked, &spans.collect::<Vec<_>>())?;
                Ok(Item::List(checked))
            }
        }
    }

    fn unary(&mut self, op: ast::UnaryOp, value: &ast::Expr, span: Span) -> Checked<Item> {
        match (op, self.expr(value)?) {
            (ast::UnaryOp::Negate, Item::Load(value)) => Ok(Item::Load(self.load_negate(value, span)?)),
            (ast::UnaryOp::Not, Item::Load(value)) => Ok(Item::Load(self.load_not(value, span)?)),
            (op, Item::Value(operand)) => self.tensor_unary(op, operand, value.span, span).map(Item::Value),
            (_, other) => {
                self.operand(&other, value.span)?;
                Err(Reported)
            }
        }
    }

    /// Operators take load values and tensors, one by one.
    fn operand(&mut self, item: &Item, span: Span) -> Checked<()> {
        let help = match item {
            Item::Load(_) | Item::Value(_) => return Ok(()),
            Item::Poison => return Err(Reported),
            Item::Section(_) => "name one of its fields, `section.field`",
            Item::Child(_) => "call it, or one of its functions",
            Item::Children(_) => "loop over it with `for`",
            Item::Tuple(_) => "give its parts names with `let (a, b) = ..`",
            Item::List(_) | Item::Growing(_) => "put its tensors together with `concat`, or loop over them",
            Item::Unit => return self.fail(Code::TypeMismatch, span, "an operator takes values, and this gives none"),
        };
        let message = format!("an operator cannot take {}", self.describe(item));
        Err(self.error(Diagnostic::new(Code::TypeMismatch, span, message).help(help)))
    }

    /// The tensors of an item.
    pub fn values_of(&mut self, item: Item, span: Span) -> Checked<Vec<ValueId>> {
        match item {
            Item::Value(value) => Ok(vec![value]),
            Item::Unit => Ok(Vec::new()),
            Item::Tuple(items) => {
                let values: Vec<_> = items.into_iter().map(|i| self.values_of(i, span)).collect();
                Ok(values.into_iter().collect::<Checked<Vec<_>>>()?.concat())
            }
            Item::Load(value) => Err(self.error(
                Diagnostic::new(
                    Code::TypeMismatch,
                    span,
                    format!("a tensor is needed here, this is {}", super::load::type_name(&value.ty)),
                )
                .help("make it a constant tensor with a cast, such as `F(0.0)`"),
            )),
            Item::List(items) => Ok(vec![self.list_value(items, span)?]),
            Item::Poison => Err(Reported),
            other => {
                let found = self.describe(&other);
                self.fail(Code::TypeMismatch, span, format!("a tensor is needed here, this is {found}"))
            }
        }
    }

    fn call(&mut self, callee: &ast::Expr, arguments: &[ast::Argument], span: Span) -> Checked<Item> {
        match &callee.kind {
            ExprKind::Name(name) => {
                if let Some(Binding { item: Item::Child(child), span: bound, .. }) = self.find(name) {
                    let (child, bound) = (child.clone(), *bound);
                    self.name_used(callee.span, bound);
                    return self.call_block(child, "", arguments, span);
                }
                if let Home::Block(block) = self.home
                    && let Some(field) = self.checker.field_id(block, name)
                    && self.checker.field(block, field).is_none_or(|f| matches!(f.kind, FieldKind::Child { .. }))
                {
                    // A local of the same name is not looked at: values cannot be called.
                    let Item::Child(child) = self.member(block, field, callee.span)? else { return Err(Reported) };
                    return self.call_block(child, "", arguments, span);
                }
                if let Some(op) = self.op(name) {
                    self.name_used(callee.span, self.checker.op_span(op));
                    return self.call_op(op, arguments, span);
                }
                if let Some(item) = ops::lower(self, &Call { name, arguments, span }) {
                    return item;
                }
                for argument in arguments {
                    let _ = self.expr(&argument.value);
                }
                Err(self.unknown_callee(name, callee.span))
            }
            ExprKind::MemberOf { value, name } => {
                let item = self.expr(value)?;
                let Item::Child(child) = item else {
                    let found = self.describe(&item);
                    let mut error =
                        Diagnostic::new(Code::NotCallable, callee.span, format!("{found} has no functions"));
                    if self.op(&name.node).is_some() || ops::primitive(&name.node).is_some() {
                        let name = &name.node;
                        error = error.help(format!("an op is called with its tensor as an argument: `{name}(..)`"));
                    }
                    return Err(self.error(error));
                };
                match self.child_field(&child, &name.node, name.span)? {
                    Some(Item::Child(inner)) => self.call_block(inner, "", arguments, span),
                    Some(other) => {
                        let found = self.describe(&other);
                        self.fail(Code::NotCallable, callee.span, format!("{found} cannot be called"))
                    }
                    None => {
                        if let Some(defined) = self.checker.function_span(child.block, &name.node) {
                            self.name_used(name.span, defined);
                        }
                        self.call_block(child, &name.node, arguments, span)
                    }
                }
            }
            other => {
                let message = "this cannot be called: only ops, blocks and their functions can";
                let mut error = Diagnostic::new(Code::NotCallable, callee.span, message);
                if let ExprKind::Subscript { value, .. } = other
                    && let ExprKind::Name(array) = &value.kind
                    && let Home::Block(block) = self.home
                    && self.find(array).is_none()
                    && self.checker.field_id(block, array).is_some()
                {
                    error = error.help(format!(
                        "the blocks of an array are called in a loop, `for item in {array} {{ x = item(x); }}`"
                    ));
                }
                Err(self.error(error))
            }
        }
    }

    /// The op of this name that is visible here.
    pub fn op(&mut self, name: &str) -> Option<OpId> {
        let op = self.checker.items.ops.get(name)?;
        let visible = self.sees_config || op.name.span.file == crate::source::PRELUDE;
        if visible { self.checker.reach_op(name) } else { None }
    }

    /// A child block, or an array of them, inside a child block.
    fn child_field(&mut self, child: &Child, name: &str, span: Span) -> Checked<Option<Item>> {
        let Some(field) = self.checker.field_id(child.block, name) else { return Ok(None) };
        let entry = self.checker.field(child.block, field).ok_or(Reported)?.clone();
        self.name_used(span, entry.span);
        let mut with = super::dims::Translation { members: Some(child.block), ..Default::default() };
        let parameters = self.checker.block_parameters(child.block)?;
        for (parameter, argument) in parameters.parameters.iter().zip(&child.arguments) {
            with.parameters.insert(parameter.name.node.clone(), argument.clone());
        }
        if let Some(condition) = &entry.condition {
            let condition = self.translate(condition, &with);
            let needed = self.facts_of(&condition, true);
            let written = self.written_condition(&condition);
            self.require_known(&needed, &written, name, span, entry.span)?;
        }
        let below = match &child.receiver {
            Receiver::Field(path) => Receiver::Field(path.iter().copied().chain([field]).collect()),
            Receiver::Item { item, path } => {
                Receiver::Item { item: *item, path: path.iter().copied().chain([field]).collect() }
            }
        };
        match entry.kind {
            FieldKind::Child { block, arguments } => {
                let arguments = arguments.iter().map(|a| self.translate(a, &with)).collect();
                Ok(Some(Item::Child(Child { receiver: below, block, arguments })))
            }
            FieldKind::Children { block, arguments, variable, low, high } => {
                let arguments = arguments.iter().map(|a| self.translate(a, &with)).collect();
                let (low, high) = (self.translate(&low, &with), self.translate(&high, &with));
                Ok(Some(Item::Children(Children { array: below, block, arguments, variable, low, high })))
            }
            FieldKind::State(_) => {
                self.fail(Code::StateMisuse, span, format!("the state `{name}` is named only in its own block"))
            }
            FieldKind::Tensor(_) | FieldKind::Matrix(_) | FieldKind::Let(_) | FieldKind::Derived { .. } => {
                self.fail(Code::UnknownName, span, format!("`{name}` is named only in its own block"))
            }
        }
    }

    fn member_of(&mut self, value: &ast::Expr, name: &ast::Name, span: Span) -> Checked<Item> {
        match self.expr(value)? {
            Item::Section(section) => {
                let path = [section.clone(), name.node.clone()];
                self.config_name_used(name.span, &path);
                if let Some(found) = self.config_name(&path, span) {
                    return found.map(Item::Load);
                }
                let message = format!("the section `{section}` has no `{}`", name.node);
                let mut error = Diagnostic::new(Code::UnknownName, name.span, message).label("not known");
                let known: Vec<String> = self.checker.config.section_names(&section).map(str::to_string).collect();
                if let Some(near) = suggest(&name.node, known.iter().map(String::as_str)) {
                    error = error.help(format!("did you mean `{section}.{near}`?"));
                }
                Err(self.error(error))
            }
            Item::Child(child) => match self.child_field(&child, &name.node, name.span)? {
                Some(inner) => Ok(inner),
                None => {
                    let message =
                        format!("the block `{}` has no field `{}`", self.checker.block_name(child.block), name.node);
                    self.fail(Code::UnknownName, name.span, message)
                }
            },
            Item::Value(value) => match self.ty(value).clone() {
                Type::Matrix(shape) => self.matrix_member(value, &shape, name, span),
                Type::Tensor(_) => {
                    let message = format!("a tensor has no member `{}`", name.node);
                    self.fail(Code::UnknownName, name.span, message)
                }
                Type::List { .. } => {
                    let message = format!("a list of tensors has no member `{}`", name.node);
                    self.fail(Code::UnknownName, name.span, message)
                }
            },
            item => {
                let found = self.describe(&item);
                self.fail(Code::UnknownName, name.span, format!("{found} has no member `{}`", name.node))
            }
        }
    }

    /// `w.packed`, `w.codes`, ...
    fn matrix_member(&mut self, value: ValueId, shape: &Shape, name: &ast::Name, span: Span) -> Checked<Item> {
        if span.file != crate::source::PRELUDE {
            return Err(self.error(
                Diagnostic::new(Code::PackedMisuse, span, "only the prelude looks inside a matrix")
                    .help("multiply by it with `linear(x, w)`, or take rows with `lookup(w, ids)`"),
            ));
        }
        let attribute = |attribute, ty| load(LoadKind::Matrix(value, attribute), ty, span);
        let bits = attribute(MatrixAttribute::Bits, LoadType::Int);
        let group = attribute(MatrixAttribute::Group, LoadType::Int);
        /// What the last axis of a part of a packed matrix counts.
        enum Last {
            /// Units of so many bits that hold the codes.
            Bits(i64),
            Groups,
        }
        let (prim, dtype, last) = match name.node.as_str() {
            "packed" => return Ok(Item::Load(attribute(MatrixAttribute::Packed, LoadType::Bool))),
            "bits" => return Ok(Item::Load(bits)),
            "group" => return Ok(Item::Load(group)),
            "dense" => (Prim::MatrixDense, DType::F, None),
            "codes" => (Prim::MatrixCodes, DType::U32, Some(Last::Bits(32))),
            "bytes" => (Prim::MatrixBytes, DType::U8, Some(Last::Bits(8))),
            "scales" => (Prim::MatrixScales, DType::F, Some(Last::Groups)),
            "biases" => (Prim::MatrixBiases, DType::F, Some(Last::Groups)),
            other => {
                let known = ["packed", "bits", "group", "dense", "codes", "bytes", "scales", "biases"];
                let mut error =
                    Diagnostic::new(Code::UnknownName, name.span, format!("a matrix has no member `{other}`"));
                error = match suggest(other, known) {
                    Some(near) => error.help(format!("did you mean `{near}`?")),
                    None => error.help(format!("a matrix has `{}`", known.join("`, `"))),
                };
                return Err(self.error(error));
            }
        };
        let mut shape = shape.clone();
        if let Some(last) = last
            && let Some(columns) = shape.dims.pop()
        {
            let count = match last {
                Last::Bits(unit) => {
                    columns.times(&self.dim_or_atom(&bits)).and_then(|d| d.over(&crate::dim::Dim::int(unit)))
                }
                Last::Groups => columns.over(&self.dim_or_atom(&group)),
            };
            shape.dims.push(self.sound(count, span)?);
        }
        Ok(Item::Value(self.emit(prim, vec![value], TensorType { dtype, shape }, span)))
    }

    fn subscript(&mut self, value: &ast::Expr, slots: &[ast::Slot], span: Span) -> Checked<Item> {
        match (self.expr(value)?, slots) {
            (Item::Value(operand), slots) => match self.ty(operand).clone() {
                Type::Tensor(ty) => self.slice(operand, ty, slots, span).map(Item::Value),
                Type::Matrix(shape) => self.matrix_rows(operand, &shape, slots, span).map(Item::Value),
                Type::List { .. } => self.list_item(Item::Value(operand), slots, span),
            },
            (Item::List(items), slots) => self.list_item(Item::List(items), slots, span),
            (Item::Load(list), [ast::Slot::At(at)]) => {
                let LoadType::List(item) = list.ty.clone() else {
                    let message = format!("{} has no items", super::load::type_name(&list.ty));
                    return self.fail(Code::TypeMismatch, value.span, message);
                };
                let at = self.load(at)?;
                let at = self.coerce(at, &LoadType::Int, "an index")?;
                let found = load(LoadKind::Index(Box::new(list), Box::new(at)), *item, span);
                Ok(Item::Load(self.computable(found)?))
            }
            (Item::Load(_), _) => self.fail(Code::TypeMismatch, span, "a list is indexed by one integer"),
            (other, _) => {
                let found = self.describe(&other);
                self.fail(Code::TypeMismatch, value.span, format!("{found} has no items"))
            }
        }
    }

    fn matrix_rows(&mut self, matrix: ValueId, shape: &Shape, slots: &[ast::Slot], span: Span) -> Checked<ValueId> {
        let [ast::Slot::At(ids)] = slots else {
            return self.fail(Code::PackedMisuse, span, "a matrix takes row indices only, `w[ids]`");
        };
        let item = self.expr(ids)?;
        let Item::Value(rows) = item else {
            return self.fail(Code::TypeMismatch, ids.span, "the rows of a matrix are named by an i32 tensor");
        };
        let ty = self.tensor_type(rows, ids.span)?;
        if ty.dtype != DType::I32 {
            return self.fail(Code::DtypeMismatch, ids.span, "the rows of a matrix are named by an i32 tensor");
        }
        if span.file != crate::source::PRELUDE {
            return Err(self.error(
                Diagnostic::new(Code::PackedMisuse, span, "only the prelude looks inside a matrix")
                    .help("take rows with `lookup(w, ids)`"),
            ));
        }
        if shape.pack {
            return self.fail(Code::RankMismatch, span, "rows are taken from a matrix without `..`");
        }
        let mut result = ty.shape;
        result.dims.extend(shape.dims[1..].iter().cloned());
        Ok(self.emit_typed(Prim::MatrixRows, vec![matrix, rows], Type::Matrix(result), span))
    }

    fn probe(&mut self, value: &ast::Expr, name: &ast::Text, span: Span) -> Checked<Item> {
        let item = self.expr(value)?;
        let Item::Value(probed) = item else {
            let found = self.describe(&item);
            return self.fail(Code::TypeMismatch, value.span, format!("a probe names a tensor, this is {found}"));
        };
        let ty = self.tensor_type(probed, value.span)?;
        if self.derived {
            let message = "a derived weight is computed before any call, and has no probe";
            return self.fail(Code::DerivedWeight, span, message);
        }
        if name.node.is_empty() {
            return self.fail(Code::TypeMismatch, name.span, "a probe needs a name");
        }
        let name = self.pattern(name)?;
        let out = self.new_value(Type::Tensor(ty), span);
        self.push(Statement::Probe { out, value: probed, name, span });
        Ok(Item::Value(out))
    }

    /// `"layer.{i}.attn"`, the name of a probe or a load value: text and holes. A hole is a name, or a name of a section.
    fn pattern(&mut self, text: &ast::Text) -> Checked<Vec<PatternPart>> {
        let mut parts = Vec::new();
        let mut rest = text.node.as_str();
        while let Some(open) = rest.find('{') {
            let Some(close) = rest[open..].find('}').map(|c| open + c) else {
                return self.fail(Code::TypeMismatch, text.span, "a hole `{..}` that is never closed");
            };
            if open > 0 {
                parts.push(PatternPart::Text(rest[..open].to_string()));
            }
            let mut item = None;
            let hole = &rest[open + 1..close];
            let is_name = |word: &str| {
                !word.starts_with(|c: char| c.is_ascii_digit())
                    && !word.is_empty()
                    && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            };
            if !hole.split('.').all(|word| is_name(word.trim())) {
                let message = match hole.trim() {
                    "" => "a hole holds a name, and this one is empty".into(),
                    hole => format!("a hole holds a name, not `{hole}`"),
                };
                return Err(self.error(
                    Diagnostic::new(Code::TypeMismatch, text.span, message)
                        .help("give the value a name with `let`, and write that"),
                ));
            }
            for word in hole.split('.') {
                let name = ast::Name { node: word.trim().to_string(), span: text.span };
                item = Some(match item {
                    None => self.name(&name.node, name.span)?,
                    Some(Item::Section(section)) => {
                        let path = [section, name.node.clone()];
                        self.config_name_used(text.span, &path);
                        match self.config_name(&path, text.span) {
                            Some(found) => Item::Load(found?),
                            None => {
                                let message = format!("there is no `{}`", name.node);
                                return self.fail(Code::UnknownName, text.span, message);
                            }
                        }
                    }
                    Some(_) => return self.fail(Code::TypeMismatch, text.span, "a hole holds a name"),
                });
            }
            match item {
                Some(Item::Load(value)) if matches!(value.ty, LoadType::Int | LoadType::Text) => {
                    parts.push(PatternPart::Hole(value));
                }
                _ => {
                    return self.fail(Code::TypeMismatch, text.span, "a hole holds an integer or a name known at load");
                }
            }
            rest = &rest[close + 1..];
        }
        if !rest.is_empty() {
            parts.push(PatternPart::Text(rest.to_string()));
        }
        Ok(parts)
    }
}
