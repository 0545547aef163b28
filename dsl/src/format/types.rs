//! Types of values, tensors and config fields, and the heads of functions.

use pest::iterators::{Pair, Pairs};

use super::layout::{Break, Group, LEVEL, Op};
use super::write::Writer;
use crate::parser::grammar::Rule;

impl<'t> Writer<'t> {
    /// A type of any sort, or one place of a shape.
    pub fn any_type(&mut self, pair: Pair<'t, Rule>) {
        match pair.as_rule() {
            Rule::tensor_type | Rule::value_type | Rule::dim | Rule::constant | Rule::field_type => {
                pair.into_inner().for_each(|inner| self.any_type(inner));
            }
            Rule::expr => self.expr(pair),
            Rule::tuple_type => self.brackets(pair.into_inner().collect(), Self::any_type),
            Rule::shape => self.brackets(pair.into_inner().collect(), Self::any_type),
            Rule::list_type => {
                for part in pair.into_inner() {
                    let is_length = part.as_rule() == Rule::expr;
                    if is_length {
                        self.say(" ");
                    }
                    self.any_type(part);
                }
            }
            Rule::one_of => {
                let mut parts: Vec<_> = pair.into_inner().collect();
                self.token(parts.remove(0));
                self.brackets(parts, Self::any_type);
            }
            Rule::named_type | Rule::index | Rule::value_list => {
                pair.into_inner().for_each(|inner| self.any_type(inner));
            }
            Rule::child => self.call(pair.into_inner()),
            Rule::array => self.array(pair),
            _ => self.token(pair),
        }
    }

    /// `Linear(hidden, inner)`: a name and its arguments in parentheses.
    pub fn call(&mut self, mut parts: Pairs<'t, Rule>) {
        if let Some(name) = parts.next() {
            self.token(name);
        }
        self.bracketed(parts);
    }

    /// `[Layer(i) for i in 0..depth]`
    fn array(&mut self, pair: Pair<'t, Rule>) {
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::child => self.call(part.into_inner()),
                Rule::open_bracket | Rule::close_bracket => self.token(part),
                Rule::range => {
                    self.say(" ");
                    self.range(part);
                }
                _ => {
                    self.say(" ");
                    self.token(part);
                }
            }
        }
    }

    /// Parameters that do not fit on the line of their parentheses fill lines between them.
    pub fn parameters(&mut self, pair: Pair<'t, Rule>) {
        let parts: Vec<_> = pair.into_inner().collect();
        let end = parts.len() - 1;
        let breaks = end > 1;
        self.push(Op::Open(Group::Plain));
        for (index, part) in parts.into_iter().enumerate() {
            match part.as_rule() {
                Rule::open_paren => {
                    self.token(part);
                    self.push(Op::Indent(LEVEL));
                    if breaks {
                        self.may_break(Break::Nothing);
                    }
                }
                Rule::close_paren => {
                    self.push(Op::Dedent);
                    if breaks {
                        self.may_break(Break::Nothing);
                    }
                    self.token(part);
                }
                Rule::comma if index + 1 == end => self.leave_out(&part),
                Rule::comma => {
                    self.token(part);
                    self.may_break(Break::Fill);
                }
                _ => self.parameter(part),
            }
        }
        self.push(Op::Close);
    }

    /// `mut x: T = value`
    fn parameter(&mut self, pair: Pair<'t, Rule>) {
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::mutable => {
                    self.words(part);
                    self.say(" ");
                }
                Rule::tensor_type => {
                    self.say(" ");
                    self.any_type(part);
                }
                Rule::default => {
                    self.say(" ");
                    self.default(part);
                }
                _ => self.token(part),
            }
        }
    }

    fn default(&mut self, pair: Pair<'t, Rule>) {
        for part in pair.into_inner() {
            if part.as_rule() == Rule::expr {
                self.say(" ");
                self.expr(part);
            } else {
                self.token(part);
            }
        }
    }

    /// An op, a `fn` or a `graph`. A head that does not fit on the line breaks before `->` and has its `{` below it; if the parameters do not fit,
    /// they stand between the parentheses. The `{` of an op with twins stands below them.
    pub fn function(&mut self, pair: Pair<'t, Rule>) {
        let mut parts = Vec::new();
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::signature => {
                    for part in part.into_inner() {
                        if part.as_rule() == Rule::result { parts.extend(part.into_inner()) } else { parts.push(part) }
                    }
                }
                _ => parts.push(part),
            }
        }
        self.push(Op::Definition);
        self.push(Op::Open(Group::Head));
        let mut is_named = false;
        for part in parts {
            match part.as_rule() {
                Rule::name => {
                    self.say(" ");
                    self.token(part);
                    is_named = true;
                }
                Rule::parameters => {
                    if !is_named {
                        self.say(" ");
                    }
                    self.parameters(part);
                }
                Rule::arrow => {
                    self.push(Op::Indent(LEVEL));
                    self.may_break(Break::Fill);
                    self.token(part);
                }
                Rule::tensor_type => {
                    self.say(" ");
                    self.any_type(part);
                    self.push(Op::Dedent);
                }
                Rule::twin => self.indented(LEVEL, |this| {
                    let start = this.start_of(&part);
                    this.before_entry(start, true);
                    this.twin(part);
                }),
                Rule::body => {
                    self.may_break(Break::Brace);
                    self.push(Op::Close);
                    self.body(part, Group::Body);
                }
                _ => self.token(part),
            }
        }
        self.push(Op::DefinitionEnd);
    }

    /// `fused mlx fast::rms_norm(x, weight, eps) when .. within 4 ulp`
    fn twin(&mut self, pair: Pair<'t, Rule>) {
        self.group(Group::Plain, |this| {
            this.push(Op::Indent(LEVEL));
            let mut call = Vec::new();
            for part in pair.into_inner() {
                match part.as_rule() {
                    Rule::kw_fused => this.token(part),
                    Rule::name => {
                        this.say(" ");
                        this.token(part);
                    }
                    Rule::twin_path => {
                        this.say(" ");
                        part.into_inner().for_each(|word| this.token(word));
                    }
                    Rule::arguments => call.extend(part.into_inner()),
                    Rule::open_paren => call.push(part),
                    Rule::close_paren => {
                        call.push(part);
                        this.brackets(std::mem::take(&mut call), Self::part);
                    }
                    Rule::when => {
                        this.may_break(Break::Fill);
                        for part in part.into_inner() {
                            if part.as_rule() == Rule::expr {
                                this.say(" ");
                                this.expr(part);
                            } else {
                                this.token(part);
                            }
                        }
                    }
                    Rule::kw_within => {
                        this.may_break(Break::Fill);
                        this.token(part);
                    }
                    _ => {
                        this.say(" ");
                        this.within(part);
                    }
                }
            }
            this.push(Op::Dedent);
        });
    }

    /// `4 ulp`, `1e-5 of sum`
    fn within(&mut self, pair: Pair<'t, Rule>) {
        for (index, part) in pair.into_inner().enumerate() {
            if index > 0 {
                self.say(" ");
            }
            if part.as_rule() == Rule::of_sum { self.words(part) } else { self.token(part) }
        }
    }
}
