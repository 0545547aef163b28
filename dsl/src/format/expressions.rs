//! Expressions, bodies and statements.

use pest::iterators::{Pair, Pairs};

use super::layout::{Break, Group, LEVEL};
use super::write::{Braces, Writer};
use crate::parser::grammar::{Rule, tightness};

/// A body of more statements has a line for each.
const BODY: Braces = Braces { on_one_line: 2, group: Group::Plain };

impl<'t> Writer<'t> {
    pub fn expr(&mut self, pair: Pair<'t, Rule>) {
        let chain: Vec<_> = pair.into_inner().collect();
        self.chain(&chain);
    }

    /// Operands and operators: breaks before the loosest operators first.
    fn chain(&mut self, chain: &[Pair<'t, Rule>]) {
        let Some(loosest) = chain.iter().filter_map(|pair| tightness(pair.as_rule())).min() else {
            return self.operand(chain);
        };
        let is_operator = |pair: &Pair<'t, Rule>| tightness(pair.as_rule()) == Some(loosest);
        let mut operators = chain.iter().filter(|pair| is_operator(pair));
        let mut operands = chain.split(is_operator).peekable();
        self.group(Group::Plain, |this| {
            // A first operand that is a chain itself is indented with the others, to be told from this one.
            if let Some(first) = operands.next_if(|first| first.iter().all(|pair| tightness(pair.as_rule()).is_none()))
            {
                this.chain(first);
            } else if let Some(first) = operands.next() {
                this.indented(LEVEL, |this| this.chain(first));
            }
            this.indented(LEVEL, |this| {
                for (operator, operand) in operators.by_ref().zip(operands) {
                    this.may_break(Break::Blank);
                    this.token(operator.clone());
                    this.say(" ");
                    this.chain(operand);
                }
            });
        });
    }

    /// A value with the operators that stand close to it.
    fn operand(&mut self, parts: &[Pair<'t, Rule>]) {
        for part in parts {
            match part.as_rule() {
                Rule::call | Rule::subscript => self.bracketed(part.clone().into_inner()),
                Rule::probe => {
                    for token in part.clone().into_inner() {
                        self.say(" ");
                        self.token(token);
                    }
                }
                Rule::member_of => part.clone().into_inner().for_each(|token| self.token(token)),
                Rule::branch => self.branch(part.clone(), false),
                Rule::list => self.list(part.clone()),
                Rule::group => self.brackets(part.clone().into_inner().collect(), Self::expr),
                _ => self.token(part.clone()),
            }
        }
    }

    /// Something in brackets, which may stand one rule below: `(arguments)`, `[slots]`, `[dims]`.
    pub fn bracketed(&mut self, pairs: Pairs<'t, Rule>) {
        let parts = pairs.flat_map(|part| match part.as_rule() {
            Rule::arguments => part.into_inner().collect(),
            _ => vec![part],
        });
        let parts = parts.collect();
        self.brackets(parts, Self::part);
    }

    /// An argument, a slot, or a dim: `..`, `a..b`, `name = value`, or an expression.
    pub fn part(&mut self, pair: Pair<'t, Rule>) {
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::expr => self.expr(part),
                Rule::argument_name => {
                    self.words(part);
                    self.say(" ");
                }
                _ => self.token(part),
            }
        }
    }

    /// `[a, b]` or `[a for b in c]`
    fn list(&mut self, pair: Pair<'t, Rule>) {
        let parts: Vec<_> = pair.into_inner().collect();
        if !parts.iter().any(|part| part.as_rule() == Rule::each) {
            return self.brackets(parts, Self::part);
        }
        self.group(Group::Plain, |this| {
            let count = parts.len();
            for (index, part) in parts.into_iter().enumerate() {
                match part.as_rule() {
                    Rule::each => {
                        this.indented(LEVEL, |this| {
                            this.may_break(Break::Blank);
                            this.each(part);
                        });
                    }
                    Rule::dim => this.indented(LEVEL, |this| {
                        this.may_break(Break::Nothing);
                        this.part(part);
                    }),
                    _ => {
                        if index + 1 == count {
                            this.may_break(Break::Nothing);
                        }
                        this.token(part);
                    }
                }
            }
        });
    }

    /// `for i, x in list`
    fn each(&mut self, pair: Pair<'t, Rule>) {
        for (index, part) in pair.into_inner().enumerate() {
            if index > 0 {
                self.say(" ");
            }
            self.loop_part(part);
        }
    }

    fn loop_part(&mut self, part: Pair<'t, Rule>) {
        match part.as_rule() {
            Rule::each_names => self.names(part),
            Rule::iterable => self.range(part),
            Rule::body => self.body(part, Group::Plain),
            _ => self.token(part),
        }
    }

    /// `a..b`, or only `a`
    pub fn range(&mut self, pair: Pair<'t, Rule>) {
        for part in pair.into_inner() {
            if part.as_rule() == Rule::expr { self.expr(part) } else { self.token(part) }
        }
    }

    /// `i, x`
    fn names(&mut self, pair: Pair<'t, Rule>) {
        for part in pair.into_inner() {
            if part.as_rule() == Rule::comma {
                self.token(part);
                self.say(" ");
            } else {
                self.token(part);
            }
        }
    }

    /// `if a { b } else { c }`
    fn branch(&mut self, pair: Pair<'t, Rule>, is_statement: bool) {
        let mut parts = Vec::new();
        for part in pair.into_inner() {
            if part.as_rule() == Rule::else_if { parts.extend(part.into_inner()) } else { parts.push(part) }
        }
        let arms = parts.iter().filter(|part| part.as_rule() == Rule::body);
        let is_short =
            arms.clone().all(|arm| self.is_one_line(arm) && arm.clone().into_inner().count() <= 2 + BODY.on_one_line);
        let in_pieces = !is_statement && is_short;
        let group = if in_pieces { Group::Branch } else { Group::Plain };
        let mut after_else = false;
        let write = |this: &mut Self| {
            for part in parts {
                match part.as_rule() {
                    Rule::kw_else => {
                        if in_pieces {
                            this.may_break(Break::Else)
                        } else {
                            this.say(" ")
                        }
                        this.token(part);
                        after_else = true;
                        continue;
                    }
                    Rule::kw_if => {
                        if after_else {
                            this.say(" ");
                        }
                        this.token(part);
                    }
                    Rule::expr => {
                        this.say(" ");
                        this.expr(part);
                    }
                    _ => {
                        this.say(" ");
                        this.body(part, Group::Plain);
                    }
                }
                after_else = false;
            }
        };
        if in_pieces { self.group(group, write) } else { write(self) }
    }

    pub fn body(&mut self, pair: Pair<'t, Rule>, group: Group) {
        self.in_braces(pair.into_inner().collect(), Braces { group, ..BODY }, Self::statement);
    }

    /// Parts that begin with `{` and end with `}`.
    pub fn in_braces(
        &mut self,
        mut parts: Vec<Pair<'t, Rule>>,
        style: Braces,
        entry: impl FnMut(&mut Self, Pair<'t, Rule>),
    ) {
        if parts.len() >= 2
            && let Some(close) = parts.pop()
        {
            let open = parts.remove(0);
            self.braces(open, parts, close, style, entry);
        }
    }

    fn statement(&mut self, pair: Pair<'t, Rule>) {
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::branch => self.branch(inner, true),
                Rule::for_statement => self.each(inner),
                _ => self.simple_statement(inner),
            }
        }
    }

    /// `let x = value;`, `x = value;`, `value;`
    fn simple_statement(&mut self, pair: Pair<'t, Rule>) {
        let mut first = true;
        for part in pair.into_inner() {
            let closes = matches!(part.as_rule(), Rule::semi | Rule::ended);
            if !std::mem::take(&mut first) && !closes {
                self.say(" ");
            }
            match part.as_rule() {
                Rule::expr => self.expr(part),
                Rule::mutable | Rule::ended => self.words(part),
                Rule::pattern => self.pattern(part),
                _ => self.token(part),
            }
        }
    }

    /// `x`, `(x, y)`
    fn pattern(&mut self, pair: Pair<'t, Rule>) {
        let parts: Vec<_> = pair.into_inner().collect();
        if parts.len() > 1 {
            self.brackets(parts, Self::token);
        } else {
            parts.into_iter().for_each(|part| self.token(part));
        }
    }
}
