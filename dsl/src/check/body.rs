//! Statements and expressions: load values stay expressions, tensors become statements of the region at hand.

use std::collections::BTreeSet;

use super::scope::{Binding, Checked, Child, Home, Item, Local, Lowering, Reported, load};
use crate::{
    ast::{self, ExprKind, NumberValue},
    diagnostic::{Code, Diagnostic, suggest},
    ir::*,
    ops::{self, Call},
    source::Span,
};

impl Lowering<'_, '_> {
    // ---- entry points ----

    /// A load value.
    pub fn load(&mut self, expr: &ast::Expr) -> Checked<Load> {
        match self.expr(expr)? {
            Item::Load(value) => Ok(value),
            Item::Value(_) | Item::List(_) | Item::Tuple(_) => Err(self.error(
                Diagnostic::new(Code::WrongStage, expr.span, "a load value is needed here, this is a tensor")
                    .label("known only in a call"),
            )),
            item => {
                let found = self.describe(&item);
                self.fail(Code::TypeMismatch, expr.span, format!("a load value is needed here, this is {found}"))
            }
        }
    }

    /// A boolean load value.
    pub fn condition(&mut self, expr: &ast::Expr) -> Checked<Load> {
        match self.expr(expr)? {
            Item::Load(value) => self.coerce(value, &LoadType::Bool, "a condition"),
            Item::Value(_) => Err(self.error(
                Diagnostic::new(Code::TensorCondition, expr.span, "a condition cannot look at a tensor")
                    .label("a tensor")
                    .help("choose by a tensor with `select(c, x, y)`"),
            )),
            item => {
                let found = self.describe(&item);
                self.fail(Code::TypeMismatch, expr.span, format!("a condition is a bool, this is {found}"))
            }
        }
    }

    /// The body of an all-load op: `let`s, then a value.
    pub fn load_body(&mut self, body: &ast::Body) -> Checked<Load> {
        let (item, statements) = self.region(|this| this.body(body));
        match item? {
            Item::Load(value) => match only_lets(&statements) {
                Some(lets) => Ok(with_lets(lets, value)),
                None => self.fail(Code::WrongStage, body.span, "an op that runs at load has tensors inside"),
            },
            item => {
                let found = self.describe(&item);
                let span = body.value.as_ref().map_or(body.span, |v| v.span);
                self.fail(Code::TypeMismatch, span, format!("a load value is needed here, this is {found}"))
            }
        }
    }

    // ---- statements ----

    /// Statements, then the value. Mistakes in statements are reported and the rest is still checked.
    pub fn body(&mut self, body: &ast::Body) -> Checked<Item> {
        let mut failed = None;
        for statement in &body.statements {
            if let Err(reported) = self.statement(statement) {
                failed = Some(reported);
            }
        }
        let value = match &body.value {
            Some(value) => self.expr(value),
            None => Ok(Item::Unit),
        };
        match failed {
            Some(reported) => Err(reported),
            None => value,
        }
    }

    fn statement(&mut self, statement: &ast::Statement) -> Checked<()> {
        match statement {
            ast::Statement::Let { mutable, names, value } => {
                let item = self.expr(value);
                self.bind_pattern(*mutable, names, item, value.span)
            }
            ast::Statement::Assign { name, value } => self.assign(name, value),
            ast::Statement::Push { list, value } => {
                let _ = self.expr(value);
                self.unsupported(list.span, "a list of tensors that grows in a loop")
            }
            ast::Statement::For { index, item, iterable, body } => self.for_loop(index.as_ref(), item, iterable, body),
            ast::Statement::If(expr) | ast::Statement::Effect(expr) => self.expr(expr).map(drop),
        }
    }

    fn bind_pattern(&mut self, mutable: bool, names: &[ast::Name], item: Checked<Item>, span: Span) -> Checked<()> {
        let item = match item {
            Ok(item) => item,
            Err(reported) => {
                for name in names {
                    self.bind(name, Item::Poison, mutable);
                }
                return Err(reported);
            }
        };
        match (names, item) {
            ([name], item) => {
                let item = self.named(name, item);
                self.bind(name, item, mutable);
                Ok(())
            }
            (names, Item::Tuple(items)) if items.len() == names.len() => {
                for (name, item) in names.iter().zip(items) {
                    let item = self.named(name, item);
                    self.bind(name, item, mutable);
                }
                Ok(())
            }
            (names, item) => {
                for name in names {
                    self.bind(name, Item::Poison, mutable);
                }
                let found = self.describe(&item);
                self.fail(
                    Code::TypeMismatch,
                    span,
                    format!("{} names take a tuple of as many, this is {found}", names.len()),
                )
            }
        }
    }

    /// A load value that gets a name becomes a local.
    fn named(&mut self, name: &ast::Name, item: Item) -> Item {
        let Item::Load(value) = item else { return item };
        if name.node == "_" {
            return Item::Load(value);
        }
        let integer = value.ty == LoadType::Int;
        let list = matches!(value.ty, LoadType::List(_));
        let local = Local {
            text: name.node.clone(),
            dim: integer.then(|| self.dim_or_atom(&value)),
            length: list.then(|| self.length_of(&value)),
            value: Some(value.clone()),
        };
        let local = self.new_local(local);
        let ty = value.ty.clone();
        self.push(Statement::Let { local, name: name.node.clone(), value });
        Item::Load(load(LoadKind::Local(local), ty, name.span))
    }

    fn assign(&mut self, name: &ast::Name, value: &ast::Expr) -> Checked<()> {
        let item = self.expr(value)?;
        if let Some(binding) = self.find(&name.node) {
            let (old, mutable, defined) = (binding.item.clone(), binding.mutable, binding.span);
            if !mutable {
                let message = format!("`{}` is assigned, but was declared without `mut`", name.node);
                return Err(self.error(
                    Diagnostic::new(Code::TypeMismatch, name.span, message)
                        .help(format!("declare it with `let mut {}`", name.node))
                        .also(defined, "declared here"),
                ));
            }
            return match (old, item) {
                (Item::Poison, _) => Err(Reported),
                (Item::Value(old), Item::Value(new)) => {
                    let (old, found) = (self.ty(old).clone(), self.ty(new).clone());
                    self.expect_type(&found, &old, &format!("`{}`", name.node), value.span)?;
                    self.values[new.0 as usize].name.get_or_insert_with(|| name.node.clone());
                    if let Some(binding) = self.find_mut(&name.node) {
                        binding.item = Item::Value(new);
                    }
                    Ok(())
                }
                (Item::Load(_), Item::Load(_)) => self.unsupported(name.span, "a mutable load value"),
                (Item::List(_), _) => self.unsupported(name.span, "a mutable list of tensors"),
                (old, new) => {
                    let (old, new) = (self.describe(&old), self.describe(&new));
                    self.fail(Code::TypeMismatch, value.span, format!("`{}` is {old}, this is {new}", name.node))
                }
            };
        }
        let field = match self.home {
            Home::Block(block) => self
                .checker
                .field_id(block, &name.node)
                .and_then(|f| Some((f, self.checker.field(block, f)?.kind.clone()))),
            Home::Config | Home::Op(_) => None,
        };
        match field {
            Some((field, FieldKind::State(ty))) => {
                self.need_state_dims(&ty, name.span)?;
                let Item::Value(new) = item else {
                    let found = self.describe(&item);
                    return self.fail(Code::TypeMismatch, value.span, format!("a state is a tensor, this is {found}"));
                };
                let found = self.ty(new).clone();
                self.expect_type(&found, &Type::Tensor(ty), &format!("the state `{}`", name.node), value.span)?;
                self.push(Statement::StateWrite { field, value: new });
                Ok(())
            }
            Some(_) => {
                let message = format!("`{}` is no state, and cannot be assigned", name.node);
                self.fail(Code::StateMisuse, name.span, message)
            }
            None => {
                let message = format!("there is no `{}` to assign", name.node);
                let mut error = Diagnostic::new(Code::UnknownName, name.span, message);
                let known: Vec<String> = self.scopes.iter().flat_map(|s| s.keys().cloned()).collect();
                if let Some(near) = suggest(&name.node, known.iter().map(String::as_str)) {
                    error = error.help(format!("did you mean `{near}`?"));
                }
                Err(self.error(error))
            }
        }
    }

    fn for_loop(
        &mut self,
        index: Option<&ast::Name>,
        item: &ast::Name,
        iterable: &ast::Iterable,
        body: &ast::Body,
    ) -> Checked<()> {
        enum Each {
            Load,
            Child(BlockId, Vec<Load>, LocalId),
        }
        let local = self.new_variable(&item.node);
        let (mut over, item_type, each) = match iterable {
            ast::Iterable::Range(low, high) => {
                let (low, high) = (self.load(low)?, self.load(high)?);
                let low = self.coerce(low, &LoadType::Int, "the first index")?;
                let high = self.coerce(high, &LoadType::Int, "the end of the indices")?;
                (LoopOver::Range { variable: local, low, high }, LoadType::Int, Each::Load)
            }
            ast::Iterable::List(list) => match self.expr(list)? {
                Item::Load(value) => match value.ty.clone() {
                    LoadType::List(item) => (LoopOver::List { variable: local, list: value }, *item, Each::Load),
                    other => {
                        let message = format!(
                            "`for` takes a list, a range or an array of blocks, not {}",
                            super::load::type_name(&other)
                        );
                        return self.fail(Code::TypeMismatch, list.span, message);
                    }
                },
                Item::Children(field) => {
                    let Home::Block(block) = self.home else { return Err(Reported) };
                    let kind = self.checker.field(block, field).map(|f| f.kind.clone());
                    let Some(FieldKind::Children { block, arguments, variable, .. }) = kind else {
                        return Err(Reported);
                    };
                    let over = LoopOver::Children { item: local, field };
                    (over, LoadType::Int, Each::Child(block, arguments, variable))
                }
                Item::Value(_) => {
                    return Err(self.error(
                        Diagnostic::new(Code::TensorCondition, list.span, "`for` cannot run over a tensor")
                            .help("tensor ops work on whole axes at once"),
                    ));
                }
                Item::List(_) => return self.unsupported(list.span, "a loop over a list of tensors"),
                other => {
                    let found = self.describe(&other);
                    return self.fail(Code::TypeMismatch, list.span, format!("`for` cannot run over {found}"));
                }
            },
        };
        let index_local = index.map(|i| self.new_variable(&i.node));
        let carried_names = self.assigned(&[body]);
        let mut carried = Vec::new();
        let (result, statements) = self.region(|this| {
            for name in &carried_names {
                if let Some(Binding { item: Item::Value(initial), mutable, span }) = this.find(name).cloned() {
                    let inner = this.new_value(this.ty(initial).clone(), this.values[initial.0 as usize].span);
                    this.values[inner.0 as usize].name = Some(name.clone());
                    this.bind_silently(name, Binding { item: Item::Value(inner), mutable, span });
                    carried.push(Carried { initial, inner });
                }
            }
            if let (Some(name), Some(local)) = (index, index_local) {
                this.bind(name, Item::Load(load(LoadKind::Local(local), LoadType::Int, name.span)), false);
            }
            let bound = match each {
                Each::Load => Item::Load(load(LoadKind::Local(local), item_type, item.span)),
                Each::Child(block, arguments, variable) => {
                    let mut with = super::dims::Translation::default();
                    // The number of the turn: the index where the loop names it, else the item's own place.
                    let turn = load(LoadKind::Local(index_local.unwrap_or(local)), LoadType::Int, item.span);
                    with.locals.insert(variable, turn);
                    let arguments = arguments.iter().map(|a| this.translate(a, &with)).collect();
                    Item::Child(Child { receiver: Receiver::Item { item: local, path: Vec::new() }, block, arguments })
                }
            };
            this.bind(item, bound, false);
            // The body's own `let`s hide nothing that is carried.
            this.scopes.push(Default::default());
            let result = this.body(body);
            this.scopes.pop();
            let mut next = Vec::new();
            for name in &carried_names {
                if let Some(Binding { item: Item::Value(value), .. }) = this.find(name) {
                    next.push(*value);
                }
            }
            result.map(|_| next)
        });
        let results = result?;
        if let LoopOver::Children { item, .. } = &mut over {
            *item = local;
        }
        let mut outs = Vec::new();
        for (name, Carried { initial, .. }) in carried_names.iter().zip(&carried) {
            let (ty, span) = (self.ty(*initial).clone(), self.values[initial.0 as usize].span);
            let out = self.new_value(ty, span);
            self.values[out.0 as usize].name = Some(name.clone());
            outs.push(out);
            if let Some(binding) = self.find_mut(name) {
                binding.item = Item::Value(out);
            }
        }
        let body = Region { statements, results };
        self.push(Statement::For { outs, over, index: index_local, carried, body });
        Ok(())
    }

    /// Mutable tensors of the enclosing scopes that the bodies assign, in a fixed order.
    fn assigned(&self, bodies: &[&ast::Body]) -> Vec<String> {
        let mut names = BTreeSet::new();
        for body in bodies {
            assigned_in(body, &mut BTreeSet::new(), &mut names);
        }
        names
            .into_iter()
            .filter(|n| matches!(self.find(n), Some(Binding { item: Item::Value(_), mutable: true, .. })))
            .collect()
    }

    // ---- expressions ----

    pub fn expr(&mut self, expr: &ast::Expr) -> Checked<Item> {
        let span = expr.span;
        match &expr.kind {
            ExprKind::Number(NumberValue::Int(n)) => Ok(Item::Load(super::scope::int(*n, span))),
            ExprKind::Number(NumberValue::Float(x)) => Ok(Item::Load(load(LoadKind::Float(*x), LoadType::Float, span))),
            ExprKind::Bool(b) => Ok(Item::Load(load(LoadKind::Bool(*b), LoadType::Bool, span))),
            ExprKind::Text(text) if text.contains('{') => self.unsupported(span, "a string with holes outside a probe"),
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
                match (a?, b?) {
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
            _ => Ok(Item::List(checked)),
        }
    }

    fn comprehension(&mut self, item: &ast::Expr, each: &[ast::Each], span: Span) -> Checked<Item> {
        let (result, statements) = self.region(|this| {
            let mut lowered = Vec::new();
            for turn in each {
                let (over, ty) = match &turn.iterable {
                    ast::Iterable::Range(low, high) => {
                        let (low, high) = (this.load(low)?, this.load(high)?);
                        let low = this.coerce(low, &LoadType::Int, "the first index")?;
                        let high = this.coerce(high, &LoadType::Int, "the end of the indices")?;
                        (Over::Range(low, high), LoadType::Int)
                    }
                    ast::Iterable::List(list) => {
                        let value = this.load(list)?;
                        let LoadType::List(item) = value.ty.clone() else {
                            let message =
                                format!("`for` takes a list or a range, not {}", super::load::type_name(&value.ty));
                            return this.fail(Code::TypeMismatch, list.span, message);
                        };
                        (Over::List(value), *item)
                    }
                };
                let index = turn.index.as_ref().map(|name| {
                    let local = this.new_variable(&name.node);
                    this.bind(name, Item::Load(load(LoadKind::Local(local), LoadType::Int, name.span)), false);
                    local
                });
                let local = this.new_variable(&turn.item.node);
                this.bind(&turn.item, Item::Load(load(LoadKind::Local(local), ty, turn.item.span)), false);
                lowered.push(Each { index, item: local, over });
            }
            match this.expr(item)? {
                Item::Load(item) => Ok((item, lowered)),
                Item::Value(_) | Item::List(_) | Item::Tuple(_) => this.unsupported(span, "a comprehension of tensors"),
                other => {
                    let found = this.describe(&other);
                    this.fail(Code::TypeMismatch, item.span, format!("an item of a list cannot be {found}"))
                }
            }
        });
        let (item, each) = result?;
        if !statements.is_empty() {
            return self.unsupported(span, "a comprehension of tensors");
        }
        let ty = LoadType::List(Box::new(item.ty.clone()));
        Ok(Item::Load(load(LoadKind::Comprehension { item: Box::new(item), each }, ty, span)))
    }

    fn unary(&mut self, op: ast::UnaryOp, value: &ast::Expr, span: Span) -> Checked<Item> {
        match (op, self.expr(value)?) {
            (ast::UnaryOp::Negate, Item::Load(value)) => Ok(Item::Load(self.load_negate(value, span)?)),
            (ast::UnaryOp::Not, Item::Load(value)) => Ok(Item::Load(self.load_not(value, span)?)),
            (op, Item::Value(operand)) => self.tensor_unary(op, operand, value.span, span).map(Item::Value),
            (_, other) => {
                let found = self.describe(&other);
                self.fail(Code::TypeMismatch, value.span, format!("an operator cannot take {found}"))
            }
        }
    }

    fn branch(
        &mut self,
        condition: &ast::Expr,
        then: &ast::Body,
        otherwise: Option<&ast::Body>,
        span: Span,
    ) -> Checked<Item> {
        let condition = self.condition(condition);
        let condition = match condition {
            Ok(condition) => condition,
            Err(reported) => {
                // The arms may hold mistakes of their own, but those about absent things follow from this one.
                return Err(reported);
            }
        };
        let bodies: Vec<&ast::Body> = [Some(then), otherwise].into_iter().flatten().collect();
        let assigned = self.assigned(&bodies);
        let arm = |this: &mut Self, body: Option<&ast::Body>, positive: bool| {
            this.under(&condition, positive, |this| {
                this.region(|this| {
                    for name in &assigned {
                        if let Some(binding) = this.find(name).cloned() {
                            this.bind_silently(name, binding);
                        }
                    }
                    this.scopes.push(Default::default());
                    let item = body.map_or(Ok(Item::Unit), |body| this.body(body));
                    this.scopes.pop();
                    let mut last = Vec::new();
                    for name in &assigned {
                        if let Some(Binding { item: Item::Value(value), .. }) = this.find(name) {
                            last.push(*value);
                        }
                    }
                    item.map(|item| (item, last))
                })
            })
        };
        let (first, first_statements) = arm(self, Some(then), true);
        let (second, second_statements) = arm(self, otherwise, false);
        let ((first, first_last), (second, second_last)) = (first?, second?);
        let second = if otherwise.is_none() && !matches!(first, Item::Unit) {
            // `if c { x.. }` as a statement: the value is not used.
            if matches!(first, Item::Load(_) | Item::Value(_)) {
                return self.fail(
                    Code::TypeMismatch,
                    span,
                    "an `if` without `else` has no value: end its body with `;`",
                );
            }
            Item::Unit
        } else {
            second
        };

        if let (Item::Load(a), Item::Load(b)) = (&first, &second) {
            if let (true, Some(x), Some(y)) =
                (assigned.is_empty(), only_lets(&first_statements), only_lets(&second_statements))
            {
                let (a, b) = self.agree(a.clone(), b.clone(), span)?;
                let ty = a.ty.clone();
                let arms = [condition, with_lets(x, a), with_lets(y, b)].map(Box::new);
                let [c, a, b] = arms;
                return Ok(Item::Load(load(LoadKind::If(c, a, b), ty, span)));
            }
            return self.unsupported(span, "an `if` that gives a load value and works on tensors");
        }
        let end = |body: Option<&ast::Body>| body.and_then(|b| b.value.as_ref()).map_or(span, |v| v.span);
        let mut results = [Vec::new(), Vec::new()];
        for (results, (item, span)) in results.iter_mut().zip([(&first, end(Some(then))), (&second, end(otherwise))]) {
            *results = self.values_of(item.clone(), span)?;
        }
        let [mut first_results, mut second_results] = results;
        if first_results.len() != second_results.len() {
            let (a, b) = (self.describe(&first), self.describe(&second));
            return self.fail(Code::TypeMismatch, span, format!("one arm is {a}, the other {b}"));
        }
        let values = first_results.len();
        first_results.extend(first_last);
        second_results.extend(second_last);
        let mut outs = Vec::new();
        for (a, b) in first_results.iter().zip(&second_results) {
            let (x, y) = (self.ty(*a).clone(), self.ty(*b).clone());
            let ty = if self.same_type(&x, &y) || self.under(&condition, false, |this| this.same_type(&x, &y)) {
                x
            } else if self.under(&condition, true, |this| this.same_type(&x, &y)) {
                y
            } else {
                self.expect_type(&y, &x, "the value of the first arm", end(otherwise))?;
                x
            };
            outs.push(self.new_value(ty, span));
        }
        for (name, out) in assigned.iter().zip(&outs[values..]) {
            self.values[out.0 as usize].name = Some(name.clone());
            if let Some(binding) = self.find_mut(name) {
                binding.item = Item::Value(*out);
            }
        }
        let item = match &first {
            Item::Tuple(_) => Item::Tuple(outs[..values].iter().copied().map(Item::Value).collect()),
            Item::Value(_) => Item::Value(outs[0]),
            _ => Item::Unit,
        };
        self.push(Statement::If {
            outs,
            condition,
            then: Region { statements: first_statements, results: first_results },
            otherwise: Region { statements: second_statements, results: second_results },
        });
        Ok(item)
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
            Item::List(_) => self.unsupported(span, "a list of tensors as a value"),
            Item::Poison => Err(Reported),
            other => {
                let found = self.describe(&other);
                self.fail(Code::TypeMismatch, span, format!("a tensor is needed here, this is {found}"))
            }
        }
    }

    // ---- calls, members, subscripts ----

    fn call(&mut self, callee: &ast::Expr, arguments: &[ast::Argument], span: Span) -> Checked<Item> {
        match &callee.kind {
            ExprKind::Name(name) => {
                if let Some(Binding { item: Item::Child(child), .. }) = self.find(name) {
                    let child = child.clone();
                    return self.call_block(child, "", arguments, span);
                }
                if let Home::Block(block) = self.home
                    && self.checker.field_id(block, name).is_some_and(|f| {
                        self.checker.field(block, f).is_none_or(|f| matches!(f.kind, FieldKind::Child { .. }))
                    })
                {
                    let Item::Child(child) = self.name(name, callee.span)? else { return Err(Reported) };
                    return self.call_block(child, "", arguments, span);
                }
                if let Some(op) = self.op(name) {
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
                    return self.fail(Code::NotCallable, callee.span, format!("{found} has no functions"));
                };
                match self.child_field(&child, &name.node, name.span)? {
                    Some(inner) => self.call_block(inner, "", arguments, span),
                    None => self.call_block(child, &name.node, arguments, span),
                }
            }
            _ => self.fail(
                Code::NotCallable,
                callee.span,
                "this cannot be called: only ops, blocks and their functions can",
            ),
        }
    }

    /// The op of this name that is visible here.
    pub fn op(&mut self, name: &str) -> Option<OpId> {
        let op = self.checker.items.ops.get(name)?;
        let visible = self.sees_config || op.name.span.file == crate::source::PRELUDE;
        if visible { self.checker.reach_op(name) } else { None }
    }

    /// A child block inside a child block.
    fn child_field(&mut self, child: &Child, name: &str, span: Span) -> Checked<Option<Child>> {
        let Some(field) = self.checker.field_id(child.block, name) else { return Ok(None) };
        let entry = self.checker.field(child.block, field).ok_or(Reported)?.clone();
        let mut with = super::dims::Translation { members: Some(child.block), ..Default::default() };
        let parameters = self.checker.block_parameters(child.block)?;
        for (parameter, argument) in parameters.parameters.iter().zip(&child.arguments) {
            with.parameters.insert(parameter.name.node.clone(), argument.clone());
        }
        if let Some(condition) = &entry.condition {
            let condition = self.translate(condition, &with);
            let needed = self.facts_of(&condition, true);
            self.require_known(&needed, name, span, entry.span)?;
        }
        match entry.kind {
            FieldKind::Child { block, arguments } => {
                let arguments = arguments.iter().map(|a| self.translate(a, &with)).collect();
                let receiver = match &child.receiver {
                    Receiver::Field(path) => Receiver::Field(path.iter().copied().chain([field]).collect()),
                    Receiver::Item { item, path } => {
                        Receiver::Item { item: *item, path: path.iter().copied().chain([field]).collect() }
                    }
                };
                Ok(Some(Child { receiver, block, arguments }))
            }
            FieldKind::State(_) => {
                self.fail(Code::StateMisuse, span, format!("the state `{name}` is named only in its own block"))
            }
            FieldKind::Children { .. } => self.unsupported(span, "an array of blocks inside another block's field"),
            FieldKind::Tensor(_) | FieldKind::Matrix(_) | FieldKind::Let(_) => {
                self.fail(Code::UnknownName, span, format!("`{name}` is named only in its own block"))
            }
        }
    }

    fn member_of(&mut self, value: &ast::Expr, name: &ast::Name, span: Span) -> Checked<Item> {
        match self.expr(value)? {
            Item::Section(section) => {
                let path = [section.clone(), name.node.clone()];
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
                Some(inner) => Ok(Item::Child(inner)),
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
            },
            item => {
                let found = self.describe(&item);
                self.fail(Code::UnknownName, name.span, format!("{found} has no member `{}`", name.node))
            }
        }
    }

    /// `w.packed`, `w.codes`, ...
    fn matrix_member(&mut self, value: ValueId, shape: &Shape, name: &ast::Name, span: Span) -> Checked<Item> {
        let attribute = |attribute, ty| load(LoadKind::Matrix(value, attribute), ty, span);
        let bits = attribute(MatrixAttribute::Bits, LoadType::Int);
        let group = attribute(MatrixAttribute::Group, LoadType::Int);
        let (prim, dtype, per_word) = match name.node.as_str() {
            "packed" => return Ok(Item::Load(attribute(MatrixAttribute::Packed, LoadType::Bool))),
            "bits" => return Ok(Item::Load(bits)),
            "group" => return Ok(Item::Load(group)),
            "dense" => (Prim::MatrixDense, DType::F, None),
            "codes" => (Prim::MatrixCodes, DType::U32, Some(true)),
            "scales" => (Prim::MatrixScales, DType::F, Some(false)),
            "biases" => (Prim::MatrixBiases, DType::F, Some(false)),
            other => {
                let known = ["packed", "bits", "group", "dense", "codes", "scales", "biases"];
                let mut error =
                    Diagnostic::new(Code::UnknownName, name.span, format!("a matrix has no member `{other}`"));
                error = match suggest(other, known) {
                    Some(near) => error.help(format!("did you mean `{near}`?")),
                    None => {
                        error.help("a matrix has `packed`, `dense`, `codes`, `scales`, `biases`, `bits` and `group`")
                    }
                };
                return Err(self.error(error));
            }
        };
        let mut shape = shape.clone();
        if let Some(codes) = per_word
            && let Some(last) = shape.dims.pop()
        {
            let bits = self.dim_or_atom(&bits);
            let group = self.dim_or_atom(&group);
            let last = if codes {
                last.times(&bits).and_then(|d| d.over(&crate::dim::Dim::int(32)))
            } else {
                last.over(&group)
            };
            shape.dims.push(self.sound(last, span)?);
        }
        Ok(Item::Value(self.emit(prim, vec![value], TensorType { dtype, shape }, span)))
    }

    fn subscript(&mut self, value: &ast::Expr, slots: &[ast::Slot], span: Span) -> Checked<Item> {
        match (self.expr(value)?, slots) {
            (Item::Value(operand), slots) => match self.ty(operand).clone() {
                Type::Tensor(ty) => self.slice(operand, ty, slots, span).map(Item::Value),
                Type::Matrix(shape) => self.matrix_rows(operand, &shape, slots, span).map(Item::Value),
            },
            (Item::Load(list), [ast::Slot::At(at)]) => {
                let LoadType::List(item) = list.ty.clone() else {
                    let message = format!("{} has no items", super::load::type_name(&list.ty));
                    return self.fail(Code::TypeMismatch, value.span, message);
                };
                let at = self.load(at)?;
                let at = self.coerce(at, &LoadType::Int, "an index")?;
                Ok(Item::Load(load(LoadKind::Index(Box::new(list), Box::new(at)), *item, span)))
            }
            (Item::Load(_), _) => self.fail(Code::TypeMismatch, span, "a list is indexed by one integer"),
            (Item::List(_), _) => self.unsupported(span, "indexing a list of tensors"),
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
        if shape.pack {
            return self.fail(Code::RankMismatch, span, "rows are taken from a matrix without `..`");
        }
        let mut result = ty.shape;
        result.dims.extend(shape.dims[1..].iter().cloned());
        Ok(self.emit_typed(Prim::MatrixRows, vec![matrix, rows], Type::Matrix(result), span))
    }

    // ---- probes ----

    fn probe(&mut self, value: &ast::Expr, name: &ast::Text, span: Span) -> Checked<Item> {
        let item = self.expr(value)?;
        let Item::Value(probed) = item else {
            let found = self.describe(&item);
            return self.fail(Code::TypeMismatch, value.span, format!("a probe names a tensor, this is {found}"));
        };
        self.tensor_type(probed, value.span)?;
        let name = self.pattern(name)?;
        self.push(Statement::Probe { value: probed, name, span });
        Ok(Item::Value(probed))
    }

    /// `"layer.{i}.attn"`: text and holes. A hole is a name, or a name of a section.
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
            for word in rest[open + 1..close].split('.') {
                let name = ast::Name { node: word.trim().to_string(), span: text.span };
                item = Some(match item {
                    None => self.name(&name.node, name.span)?,
                    Some(Item::Section(section)) => match self.config_name(&[section, name.node.clone()], text.span) {
                        Some(found) => Item::Load(found?),
                        None => return self.fail(Code::UnknownName, text.span, format!("there is no `{}`", name.node)),
                    },
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
        if parts.is_empty() {
            return self.fail(Code::TypeMismatch, text.span, "a probe needs a name");
        }
        Ok(parts)
    }
}

/// The `let`s of a region that has nothing else.
fn only_lets(statements: &[Statement]) -> Option<Vec<(LocalId, Load)>> {
    statements
        .iter()
        .map(|s| match s {
            Statement::Let { local, value, .. } => Some((*local, value.clone())),
            _ => None,
        })
        .collect()
}

fn with_lets(lets: Vec<(LocalId, Load)>, value: Load) -> Load {
    if lets.is_empty() {
        return value;
    }
    let (ty, span) = (value.ty.clone(), value.span);
    load(LoadKind::Block { lets, value: Box::new(value) }, ty, span)
}

/// Names assigned in `body` that it does not declare itself.
fn assigned_in(body: &ast::Body, declared: &mut BTreeSet<String>, names: &mut BTreeSet<String>) {
    let outer = declared.clone();
    for statement in &body.statements {
        match statement {
            ast::Statement::Let { names: bound, value, .. } => {
                assigned_in_expr(value, declared, names);
                declared.extend(bound.iter().map(|n| n.node.clone()));
            }
            ast::Statement::Assign { name, value } => {
                assigned_in_expr(value, declared, names);
                if !declared.contains(&name.node) {
                    names.insert(name.node.clone());
                }
            }
            ast::Statement::Push { value, .. } => assigned_in_expr(value, declared, names),
            ast::Statement::For { body, .. } => assigned_in(body, declared, names),
            ast::Statement::If(expr) | ast::Statement::Effect(expr) => assigned_in_expr(expr, declared, names),
        }
    }
    if let Some(value) = &body.value {
        assigned_in_expr(value, declared, names);
    }
    *declared = outer;
}

/// Bodies stand in expressions only as arms of `if`.
fn assigned_in_expr(expr: &ast::Expr, declared: &mut BTreeSet<String>, names: &mut BTreeSet<String>) {
    match &expr.kind {
        ExprKind::If { condition, then, otherwise } => {
            assigned_in_expr(condition, declared, names);
            assigned_in(then, declared, names);
            if let Some(otherwise) = otherwise {
                assigned_in(otherwise, declared, names);
            }
        }
        ExprKind::Tuple(items) => items.iter().for_each(|i| assigned_in_expr(i, declared, names)),
        ExprKind::List(items) => items.iter().for_each(|i| {
            if let ast::DimExpr::Dim(i) = i {
                assigned_in_expr(i, declared, names);
            }
        }),
        ExprKind::Comprehension { item, .. } => assigned_in_expr(item, declared, names),
        ExprKind::Unary { value, .. }
        | ExprKind::Subscript { value, .. }
        | ExprKind::MemberOf { value, .. }
        | ExprKind::Probe { value, .. } => assigned_in_expr(value, declared, names),
        ExprKind::Binary { left, right, .. } => {
            assigned_in_expr(left, declared, names);
            assigned_in_expr(right, declared, names);
        }
        ExprKind::Call { callee, arguments } => {
            assigned_in_expr(callee, declared, names);
            arguments.iter().for_each(|a| assigned_in_expr(&a.value, declared, names));
        }
        ExprKind::Number(_) | ExprKind::Text(_) | ExprKind::Bool(_) | ExprKind::Name(_) => {}
    }
}
