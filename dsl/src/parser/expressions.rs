//! Expressions: precedence, postfix forms, branches, lists.

use std::sync::LazyLock;

use pest::iterators::Pair;
use pest::pratt_parser::{Assoc, Op, PrattParser};

use super::build::{Builder, Children, outside_grammar};
use super::words::Rule;
use crate::ast::{
    Argument, BinaryOp, Body, DimExpr, Each, Expr, ExprKind, Iterable, NumberValue, Slot, Spanned, UnaryOp,
};
use crate::diagnostic::{Code, Diagnostic};
use crate::source::Span;

/// The table of the language reference, loosest first. All associate to the left.
const INFIX: &[&[Rule]] = &[
    &[Rule::or],
    &[Rule::and],
    &[Rule::equal, Rule::not_equal, Rule::less, Rule::less_equal, Rule::greater, Rule::greater_equal, Rule::inside],
    &[Rule::shift_left, Rule::shift_right],
    &[Rule::add, Rule::subtract],
    &[Rule::multiply, Rule::divide, Rule::remainder],
];

/// How tightly an operator between two values binds; `None` for everything else.
pub fn tightness(rule: Rule) -> Option<usize> {
    INFIX.iter().position(|level| level.contains(&rule))
}

static PRECEDENCE: LazyLock<PrattParser<Rule>> = LazyLock::new(|| {
    let levels = INFIX.iter().filter_map(|level| {
        level.iter().map(|rule| Op::infix(*rule, Assoc::Left)).reduce(|operators, operator| operators | operator)
    });
    levels.fold(PrattParser::new(), PrattParser::op).op(Op::prefix(Rule::negate) | Op::prefix(Rule::not)).op(
        Op::postfix(Rule::call)
            | Op::postfix(Rule::subscript)
            | Op::postfix(Rule::member_of)
            | Op::postfix(Rule::probe),
    )
});

impl Builder<'_> {
    pub fn expr(&self, pair: Pair<'_, Rule>) -> Expr {
        let span = self.place(&pair);
        let chain = pair.into_inner();
        self.deeper(chain.len(), span, harmless(span), || {
            PRECEDENCE
                .map_primary(|pair| self.primary(pair))
                .map_prefix(|op, value| self.prefix(op, value))
                .map_postfix(|value, op| self.postfix(value, op))
                .map_infix(|left, op, right| self.infix(left, op, right))
                .parse(chain)
        })
    }

    fn primary(&self, pair: Pair<'_, Rule>) -> Expr {
        let span = self.place(&pair);
        let kind = match pair.as_rule() {
            Rule::number => ExprKind::Number(self.number(pair).value),
            Rule::string => ExprKind::Text(self.string(pair).node),
            Rule::truth => ExprKind::Bool(pair.as_str() == "true"),
            Rule::name => ExprKind::Name(pair.as_str().to_string()),
            Rule::branch => return self.branch(pair),
            Rule::list => self.list(pair),
            Rule::group => {
                let mut values = Children::of(pair).all(Rule::expr, |pair| self.expr(pair));
                match values.pop() {
                    Some(only) if values.is_empty() => only.kind,
                    last => {
                        values.extend(last);
                        ExprKind::Tuple(values)
                    }
                }
            }
            other => outside_grammar(other),
        };
        Expr { kind, span }
    }

    fn prefix(&self, op: Pair<'_, Rule>, value: Expr) -> Expr {
        let span = self.place(&op).to(value.span);
        let op = if op.as_rule() == Rule::not { UnaryOp::Not } else { UnaryOp::Negate };
        Expr { kind: ExprKind::Unary { op, value: Box::new(value) }, span }
    }

    fn infix(&self, left: Expr, op: Pair<'_, Rule>, right: Expr) -> Expr {
        let span = left.span.to(right.span);
        let node = match op.as_rule() {
            Rule::or => BinaryOp::Or,
            Rule::and => BinaryOp::And,
            Rule::equal => BinaryOp::Equal,
            Rule::not_equal => BinaryOp::NotEqual,
            Rule::less => BinaryOp::Less,
            Rule::less_equal => BinaryOp::LessEqual,
            Rule::greater => BinaryOp::Greater,
            Rule::greater_equal => BinaryOp::GreaterEqual,
            Rule::inside => BinaryOp::In,
            Rule::shift_left => BinaryOp::ShiftLeft,
            Rule::shift_right => BinaryOp::ShiftRight,
            Rule::add => BinaryOp::Add,
            Rule::subtract => BinaryOp::Subtract,
            Rule::multiply => BinaryOp::Multiply,
            Rule::divide => BinaryOp::Divide,
            Rule::remainder => BinaryOp::Remainder,
            other => outside_grammar(other),
        };
        let op = Spanned { node, span: self.place(&op) };
        Expr { kind: ExprKind::Binary { op, left: Box::new(left), right: Box::new(right) }, span }
    }

    fn postfix(&self, value: Expr, op: Pair<'_, Rule>) -> Expr {
        let place = self.place(&op);
        let span = value.span.to(place);
        let rule = op.as_rule();
        let mut parts = Children::of(op);
        let value = Box::new(value);
        let kind = match rule {
            Rule::call => ExprKind::Call { callee: value, arguments: self.arguments(parts.maybe(Rule::arguments)) },
            Rule::subscript => {
                let slots = parts.all(Rule::slot, |pair| self.slot(pair));
                if slots.is_empty() {
                    self.error(Diagnostic::new(Code::UnexpectedToken, place, "expected an index between `[` and `]`"));
                }
                ExprKind::Subscript { value, slots }
            }
            Rule::member_of => ExprKind::MemberOf { value, name: self.name(parts.one(Rule::name)) },
            Rule::probe => ExprKind::Probe { value, name: self.string(parts.one(Rule::string)) },
            other => outside_grammar(other),
        };
        Expr { kind, span }
    }

    fn slot(&self, pair: Pair<'_, Rule>) -> Slot {
        let mut parts = Children::of(pair);
        if let Some(rest) = parts.maybe(Rule::rest) {
            return Slot::Rest(self.place(&rest));
        }
        let first = self.expr(parts.one(Rule::expr));
        match parts.maybe(Rule::expr) {
            Some(high) => Slot::Range(first, self.expr(high)),
            None if first.kind == ExprKind::Name("_".into()) => Slot::Whole(first.span),
            None => Slot::At(first),
        }
    }

    pub fn arguments(&self, pair: Option<Pair<'_, Rule>>) -> Vec<Argument> {
        let Some(pair) = pair else { return Vec::new() };
        Children::of(pair).all(Rule::argument, |pair| {
            let mut parts = Children::of(pair);
            let name = parts.maybe(Rule::argument_name).map(|pair| self.name(Children::of(pair).one(Rule::name)));
            Argument { name, value: self.expr(parts.one(Rule::expr)) }
        })
    }

    fn list(&self, pair: Pair<'_, Rule>) -> ExprKind {
        let mut parts = Children::of(pair);
        let mut items = parts.all(Rule::dim, |pair| self.dim(pair));
        let each = parts.all(Rule::each, |pair| self.each(pair));
        if each.is_empty() {
            return ExprKind::List(items);
        }
        let item = match items.pop() {
            Some(DimExpr::Dim(item)) => item,
            Some(DimExpr::Rest(span)) => {
                let error = Diagnostic::new(Code::UnexpectedToken, span, "`..` cannot be computed for each turn");
                self.error(error.help("write the value of one turn before `for`"));
                harmless(span)
            }
            None => outside_grammar(Rule::list),
        };
        ExprKind::Comprehension { item: Box::new(item), each }
    }

    fn each(&self, pair: Pair<'_, Rule>) -> Each {
        let mut parts = Children::of(pair);
        let (index, item) = self.each_names(parts.one(Rule::each_names));
        let iterable: Iterable = self.iterable(parts.one(Rule::iterable));
        Each { index, item, iterable }
    }

    /// `else if` nests in the tree, and is flat in the grammar.
    pub fn branch(&self, pair: Pair<'_, Rule>) -> Expr {
        let span = self.place(&pair);
        let mut parts = Children::of(pair);
        let condition = parts.one(Rule::expr);
        let then = parts.one(Rule::body);
        let more = parts.all(Rule::else_if, |pair| pair);
        let last = parts.maybe(Rule::body);
        self.deeper(more.len() + 1, span, harmless(span), || {
            let first = (span, self.expr(condition), self.body(then));
            let more = more.into_iter().map(|pair| {
                // The span begins at the `if`, behind `else`.
                let word = pair.clone().into_inner().nth(1).map_or(span, |word| self.place(&word));
                let mut parts = Children::of(pair);
                (word, self.expr(parts.one(Rule::expr)), self.body(parts.one(Rule::body)))
            });
            let arms: Vec<_> = std::iter::once(first).chain(more).collect();
            let otherwise = last.map(|pair| self.body(pair));
            nest(arms, otherwise, span)
        })
    }
}

fn nest(arms: Vec<(Span, Expr, Body)>, mut last: Option<Body>, whole: Span) -> Expr {
    let mut chain: Option<Expr> = None;
    for (start, condition, then) in arms.into_iter().rev() {
        let span = start.to(whole);
        let otherwise = match chain.take() {
            Some(branch) => {
                let span = branch.span;
                Some(Body { statements: Vec::new(), value: Some(Box::new(branch)), span })
            }
            None => last.take(),
        };
        chain = Some(Expr { kind: ExprKind::If { condition: Box::new(condition), then, otherwise }, span });
    }
    chain.unwrap_or_else(|| harmless(whole))
}

/// Stands where a mistake was noted; the tree that holds it is thrown away.
fn harmless(span: Span) -> Expr {
    Expr { kind: ExprKind::Number(NumberValue::Int(0)), span }
}
