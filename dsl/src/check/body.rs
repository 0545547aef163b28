//! Bodies: statements in order, assignments, and the two arms of an `if`.

use std::collections::BTreeSet;

use super::bounds::Named;
use super::scope::{Binding, Checked, Home, Item, Local, Lowering, Reported, load};
use crate::{
    ast::{self, ExprKind},
    diagnostic::{Code, Diagnostic},
    ir::*,
    source::Span,
};

impl Lowering<'_, '_> {
    /// A load value.
    pub fn load(&mut self, expr: &ast::Expr) -> Checked<Load> {
        match self.expr(expr)? {
            Item::Load(value) => Ok(value),
            Item::Value(_) | Item::List(_) | Item::Tuple(_) | Item::Growing(_) => Err(self.error(
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
                None => Err(self.error(
                    Diagnostic::new(Code::WrongStage, body.span, "an op that runs at load is `let`s and a value")
                        .help("instead of a loop, make a list with a comprehension; tensors exist in calls only"),
                )),
            },
            item => {
                let found = self.describe(&item);
                let span = body.value.as_ref().map_or(body.span, |v| v.span);
                self.fail(Code::TypeMismatch, span, format!("a load value is needed here, this is {found}"))
            }
        }
    }

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
            ast::Statement::Push { list, value } => self.push_to(list, value),
            ast::Statement::For { index, item, iterable, body } => self.for_loop(index.as_ref(), item, iterable, body),
            ast::Statement::If(expr) | ast::Statement::Effect(expr) => {
                let item = self.expr(expr)?;
                let help = match &expr.kind {
                    ExprKind::If { .. } => "give it a name with `let`, or assign in its arms: `x = ..;`",
                    ExprKind::Call { .. } => {
                        "give it a name with `let`; a call that is made for what it does to a state is `let _ = ..;`"
                    }
                    _ => "give it a name with `let`, or assign it: `x = ..;`",
                };
                self.unread(&item, expr, help)
            }
        }
    }

    /// An error where a value is given to nobody. A probe is an act of its own.
    pub fn unread(&mut self, item: &Item, expr: &ast::Expr, help: &str) -> Checked<()> {
        match (item, &expr.kind) {
            (Item::Unit, _) | (_, ExprKind::Probe { .. }) => Ok(()),
            (Item::Poison, _) => Err(Reported),
            (item, _) => {
                let message = format!("nobody reads this value, {}", self.describe(item));
                Err(self.error(Diagnostic::new(Code::TypeMismatch, expr.span, message).help(help)))
            }
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
            ([name], Item::List(items)) if mutable && items.is_empty() => {
                let list = self.growing();
                self.bind(name, list, mutable);
                Ok(())
            }
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
        let Ok(measure) = self.measured(name, &value) else { return Item::Poison };
        let integer = value.ty == LoadType::Int;
        let list = matches!(value.ty, LoadType::List(_));
        let local = Local {
            name: name.node.clone(),
            text: self.text_of_let(&name.node, &value),
            dim: integer.then(|| self.dim_or_atom(&value)),
            length: list.then(|| self.length_of(&value)),
            value: Some(value.clone()),
        };
        let local = self.new_local(local);
        self.remember(Named::Local(local), measure);
        let ty = value.ty.clone();
        self.push(Statement::Let { local, name: name.node.clone(), value });
        Item::Load(load(LoadKind::Local(local), ty, name.span))
    }

    fn assign(&mut self, name: &ast::Name, value: &ast::Expr) -> Checked<()> {
        let item = self.expr(value)?;
        if let Some(binding) = self.find(&name.node) {
            let (old, mutable, defined) = (binding.item.clone(), binding.mutable, binding.span);
            self.name_used(name.span, defined);
            if !mutable {
                let message = format!("`{}` is assigned, but was declared without `mut`", name.node);
                return Err(self.error(
                    Diagnostic::new(Code::NotMutable, name.span, message)
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
                (Item::Load(_), Item::Load(_)) => Err(self.load_value_changes(name)),
                (Item::List(_) | Item::Growing(_), _) => {
                    let message = format!("`{}` is a list, and a list is never assigned", name.node);
                    Err(self.error(
                        Diagnostic::new(Code::NotMutable, name.span, message)
                            .help("a loop fills an empty list with `push`; give another list another name"),
                    ))
                }
                (old, new) => {
                    let (old, new) = (self.describe(&old), self.describe(&new));
                    self.fail(Code::TypeMismatch, value.span, format!("`{}` is {old}, this is {new}", name.node))
                }
            };
        }
        let field = match self.home {
            Home::Block(block) => self.checker.field_id(block, &name.node).and_then(|f| {
                let entry = self.checker.field(block, f)?;
                Some((f, entry.kind.clone(), entry.span))
            }),
            Home::Config | Home::Op(_) => None,
        };
        match field {
            Some((field, FieldKind::State(ty), defined)) => {
                self.name_used(name.span, defined);
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
                Err(self.unknown_local(name, message))
            }
        }
    }

    /// Only tensors change: a dim, or a text in a probe's name, that changed would mean two things at once.
    pub fn load_value_changes(&mut self, name: &ast::Name) -> Reported {
        let message = format!("`{}` is a load value, and a load value never changes", name.node);
        self.error(Diagnostic::new(Code::NotMutable, name.span, message).label("known before the call").help(
            "give the new value a name of its own with `let`; choose between two with `let n = if c { a } else { b };`",
        ))
    }

    pub fn branch(
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
        let mut assigned = BTreeSet::new();
        bodies.iter().for_each(|body| assigned_in(body, &mut BTreeSet::new(), &mut assigned));
        let assigned = self.mutable_tensors(assigned);
        let arm = |this: &mut Self, body: Option<&ast::Body>, positive: bool| {
            this.under(&condition, positive, |this| {
                this.region(|this| {
                    for name in &assigned {
                        if let Some(binding) = this.find(name).cloned() {
                            this.bind_silently(name, binding);
                        }
                    }
                    this.scopes.push(Default::default());
                    let item = body.map_or(Ok(Item::Unit), |body| {
                        let item = this.body(body)?;
                        this.settled(item, body)
                    });
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
                    "an `if` without `else` has no value: assign in its body, `x = ..;`",
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
            return Err(self.error(
                Diagnostic::new(Code::WrongStage, span, "this `if` gives a load value, and works on tensors")
                    .help("choose the load value in an `if` of its own"),
            ));
        }
        let end = |body: Option<&ast::Body>| body.and_then(|b| b.value.as_ref()).map_or(span, |v| v.span);
        let mut results = [Vec::new(), Vec::new()];
        for (results, (item, span)) in results.iter_mut().zip([(&first, end(Some(then))), (&second, end(otherwise))]) {
            *results = self.values_of(item.clone(), span)?;
        }
        let [mut first_results, mut second_results] = results;
        if first_results.len() != second_results.len() {
            let (a, b) = (self.describe(&first), self.describe(&second));
            return self.fail(Code::TypeMismatch, span, format!("one arm gives {a}, the other {b}"));
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
pub(super) fn assigned_in(body: &ast::Body, declared: &mut BTreeSet<String>, names: &mut BTreeSet<String>) {
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
pub(super) fn assigned_in_expr(expr: &ast::Expr, declared: &mut BTreeSet<String>, names: &mut BTreeSet<String>) {
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
