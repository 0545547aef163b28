//! Bodies and their statements.

use pest::iterators::Pair;

use super::build::{Builder, Children, outside_grammar};
use super::words::Rule;
use crate::ast::{Body, Expr, ExprKind, Iterable, Name, Statement};
use crate::diagnostic::{Code, Diagnostic};
use crate::source::Span;

impl Builder<'_> {
    pub fn body(&self, pair: Pair<'_, Rule>) -> Body {
        let span = self.place(&pair);
        let mut body = Body { statements: Vec::new(), value: None, span };
        let mut parts = Children::of(pair);
        let mut next = parts.any();
        while let Some(pair) = next {
            next = parts.any();
            let is_last = next.is_none();
            match self.statement(pair) {
                (Statement::Effect(value), false) if is_last => body.value = Some(Box::new(value)),
                (Statement::If(branch), _) if is_last && has_value(&branch) => body.value = Some(Box::new(branch)),
                (statement, ended) => {
                    match (&statement, &next) {
                        (Statement::Effect(value), _) if !ended => self.missing_semicolon(value),
                        (Statement::If(branch), Some(next))
                            if has_value(branch) && next.as_str().starts_with(['-', '[']) =>
                        {
                            self.branch_goes_on(branch, self.place(next));
                        }
                        _ => {}
                    }
                    body.statements.push(statement);
                }
            }
        }
        body
    }

    /// A statement, and whether it is ended: an expression without `;` is the value of its body, if it is the last.
    fn statement(&self, pair: Pair<'_, Rule>) -> (Statement, bool) {
        let inner = Children::of(pair).first();
        let rule = inner.as_rule();
        if rule == Rule::branch {
            return (Statement::If(self.branch(inner)), true);
        }
        let mut parts = Children::of(inner);
        let statement = match rule {
            Rule::let_statement => Statement::Let {
                mutable: parts.maybe(Rule::mutable).is_some(),
                names: Children::of(parts.one(Rule::pattern)).all(Rule::name, |pair| self.name(pair)),
                value: self.expr(parts.one(Rule::expr)),
            },
            Rule::for_statement => {
                let (index, item) = self.each_names(parts.one(Rule::each_names));
                let iterable = self.iterable(parts.one(Rule::iterable));
                Statement::For { index, item, iterable, body: self.body(parts.one(Rule::body)) }
            }
            Rule::assign => {
                let name = self.name(parts.one(Rule::name));
                Statement::Assign { name, value: self.expr(parts.one(Rule::expr)) }
            }
            Rule::effect => {
                let value = self.expr(parts.one(Rule::expr));
                if parts.maybe(Rule::ended).is_none() {
                    return (Statement::Effect(value), false);
                }
                push_or_effect(value)
            }
            other => outside_grammar(other),
        };
        (statement, true)
    }

    pub fn each_names(&self, pair: Pair<'_, Rule>) -> (Option<Name>, Name) {
        let mut parts = Children::of(pair);
        let first = self.name(parts.one(Rule::name));
        match parts.maybe(Rule::name) {
            Some(second) => (Some(first), self.name(second)),
            None => (None, first),
        }
    }

    pub fn iterable(&self, pair: Pair<'_, Rule>) -> Iterable {
        let mut parts = Children::of(pair);
        let first = self.expr(parts.one(Rule::expr));
        match parts.maybe(Rule::expr) {
            Some(high) => Iterable::Range(first, self.expr(high)),
            None => Iterable::List(first),
        }
    }

    fn missing_semicolon(&self, value: &Expr) {
        let end = Span { start: value.span.end, ..value.span };
        let error = Diagnostic::new(Code::UnexpectedToken, end, "expected `;` after this expression");
        let help = match &value.kind {
            ExprKind::Name(word) if word == "return" => "the last expression of a body, without `;`, is its value",
            ExprKind::Name(word) if word == "while" => {
                "loops run over ranges and lists that are known at load: `for i in 0..n { .. }`"
            }
            _ => "only the last expression of a body, its value, has no `;`",
        };
        self.error(error.help(help).also(value.span, "this one"));
    }

    fn branch_goes_on(&self, branch: &Expr, next: Span) {
        let sentence = "an `if` that begins a statement ends at its `}`";
        let error = Diagnostic::new(Code::UnexpectedToken, next, sentence).label("this begins a new expression");
        self.error(error.help("put the `if` into parentheses to go on with its value").also(branch.span, "this `if`"));
    }
}

/// `list.push(x);` is a statement of its own.
fn push_or_effect(value: Expr) -> Statement {
    if let ExprKind::Call { callee, arguments } = &value.kind
        && let ExprKind::MemberOf { value: list, name } = &callee.kind
        && let ExprKind::Name(list_name) = &list.kind
        && let [argument] = arguments.as_slice()
        && name.node == "push"
        && argument.name.is_none()
    {
        let list = Name { node: list_name.clone(), span: list.span };
        return Statement::Push { list, value: argument.value.clone() };
    }
    Statement::Effect(value)
}

/// Whether an arm ends in an expression. An `if` without one, or without `else`, only acts.
fn has_value(branch: &Expr) -> bool {
    let ends = |body: &Body| body.value.is_some();
    matches!(&branch.kind, ExprKind::If { then, otherwise: Some(otherwise), .. } if ends(then) || ends(otherwise))
}
