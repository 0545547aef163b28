//! Items, and the rows of config, blocks, contracts: aligned in columns over the whole list.

use pest::iterators::Pair;

use super::columns::{Row, align};
use super::layout::{Break, Group, LEVEL, Op};
use super::write::{Braces, Writer};
use crate::parser::grammar::Rule;

/// Lists of declarations have a line for each; one alone may stay on the line of its braces.
const DECLARATIONS: Braces = Braces { on_one_line: 1, group: Group::Plain };
/// `numerics { tf32 forbid contraction forbid }`
const POLICIES: Braces = Braces { on_one_line: usize::MAX, group: Group::Plain };

impl<'t> Writer<'t> {
    pub fn item(&mut self, pair: Pair<'t, Rule>) {
        match pair.as_rule() {
            Rule::config | Rule::block | Rule::model => {
                self.push(Op::Definition);
                self.declarations(pair, DECLARATIONS);
                self.push(Op::DefinitionEnd);
            }
            Rule::contract => self.declarations(pair, DECLARATIONS),
            Rule::numerics => self.declarations(pair, POLICIES),
            Rule::processor => {
                let mut parts = pair.into_inner();
                if let Some(word) = parts.next() {
                    self.token(word);
                    self.say(" ");
                }
                self.call(parts);
            }
            Rule::op => self.function(pair),
            _ => self.words(pair),
        }
    }

    /// A head, and declarations in braces.
    fn declarations(&mut self, pair: Pair<'t, Rule>, style: Braces) {
        let mut braces = Vec::new();
        let mut first = true;
        for part in pair.into_inner() {
            if !braces.is_empty() || part.as_rule() == Rule::open_brace {
                braces.push(part);
                continue;
            }
            if !std::mem::take(&mut first) && part.as_rule() != Rule::parameters {
                self.say(" ");
            }
            match part.as_rule() {
                Rule::parameters => self.parameters(part),
                Rule::source | Rule::condition => self.clause(part),
                Rule::keys => self.alternatives(part),
                _ => self.token(part),
            }
        }
        self.say(" ");
        let mut rows = Vec::new();
        self.in_braces(braces, style, |this, entry| rows.extend(this.declaration(entry)));
        align(&mut self.ops, &rows);
    }

    fn declaration(&mut self, pair: Pair<'t, Rule>) -> Option<Row> {
        match pair.as_rule() {
            Rule::setting | Rule::member => {
                let mut row = None;
                for inner in pair.into_inner() {
                    row = self.declaration(inner);
                }
                return row;
            }
            Rule::option | Rule::field => return Some(self.field(pair)),
            Rule::contract_line => return Some(self.contract_line(pair)),
            Rule::section => self.declarations(pair, DECLARATIONS),
            Rule::function | Rule::graph => self.function(pair),
            Rule::derived => self.derived(pair),
            Rule::limit | Rule::require | Rule::state => self.sentence(pair),
            _ => self.words(pair),
        }
        None
    }

    /// Words, types and values with blanks between them, but none before `:`.
    fn sentence(&mut self, pair: Pair<'t, Rule>) {
        for (index, part) in pair.into_inner().enumerate() {
            if index > 0 && part.as_rule() != Rule::colon {
                self.say(" ");
            }
            self.any_type(part);
        }
    }

    /// `let name = value if condition`
    fn derived(&mut self, pair: Pair<'t, Rule>) {
        self.group(Group::Plain, |this| {
            for (index, part) in pair.into_inner().enumerate() {
                if part.as_rule() == Rule::condition {
                    this.indented(LEVEL, |this| {
                        this.may_break(Break::Fill);
                        this.clause(part);
                    });
                    continue;
                }
                if index > 0 {
                    this.say(" ");
                }
                this.any_type(part);
            }
        });
    }

    /// `if condition`, `else value`, `as place`
    fn clause(&mut self, pair: Pair<'t, Rule>) {
        let is_source = pair.as_rule() == Rule::source;
        if is_source {
            return self.alternatives(pair);
        }
        for (index, part) in pair.into_inner().enumerate() {
            if index > 0 {
                self.say(" ");
            }
            self.any_type(part);
        }
    }

    /// `"a" | "b"`, breaking before `|`.
    fn alternatives(&mut self, pair: Pair<'t, Rule>) {
        self.group(Group::Plain, |this| {
            this.indented(LEVEL, |this| {
                for (index, part) in pair.into_inner().enumerate() {
                    if part.as_rule() == Rule::bar {
                        this.may_break(Break::Fill);
                    } else if index > 0 {
                        this.say(" ");
                    }
                    if part.as_rule() == Rule::place { this.place(part) } else { this.token(part) }
                }
            });
        });
    }

    /// `"a" + "b"[0..n]`
    fn place(&mut self, pair: Pair<'t, Rule>) {
        for part in pair.into_inner() {
            if part.as_rule() == Rule::plus {
                self.may_break(Break::Fill);
                self.token(part);
                self.say(" ");
                continue;
            }
            for part in part.into_inner() {
                if part.as_rule() == Rule::rows {
                    for part in part.into_inner() {
                        if part.as_rule() == Rule::range { self.range(part) } else { self.token(part) }
                    }
                } else {
                    self.token(part);
                }
            }
        }
    }

    /// A config field or a field of a block: name, type, and clauses.
    fn field(&mut self, pair: Pair<'t, Rule>) -> Row {
        let is_config = pair.as_rule() == Rule::option;
        self.row(pair, |this, row, part| match part.as_rule() {
            Rule::name => this.token(part),
            Rule::colon => {
                this.token(part);
                this.name_ends(row);
            }
            Rule::value_type | Rule::field_type => {
                // Long types of config fields stand out of their column.
                let counts =
                    part.as_rule() == Rule::field_type || part.as_str().trim().bytes().all(|b| b.is_ascii_lowercase());
                this.cell(row, counts, |this| this.any_type(part));
            }
            // A cell that `keys` goes on with.
            Rule::equals => this.cell(row, true, |this| this.token(part)),
            Rule::keys => {
                this.say(" ");
                this.alternatives(part);
            }
            Rule::otherwise => this.more(|this| this.clause(part)),
            Rule::condition if is_config => this.more(|this| this.clause(part)),
            _ => this.cell(row, true, |this| this.clause(part)),
        })
    }

    /// `"adapter.*" max_abs 0.05 rtol 1e-5`
    fn contract_line(&mut self, pair: Pair<'t, Rule>) -> Row {
        self.row(pair, |this, row, part| {
            if part.as_rule() == Rule::string {
                this.token(part);
                this.name_ends(row);
            } else {
                this.cell(row, false, |this| this.words(part));
            }
        })
    }

    /// `type Hidden = F[B, S, hidden]`
    pub fn type_alias(&mut self, pair: Pair<'t, Rule>) -> Row {
        self.row(pair, |this, row, part| match part.as_rule() {
            Rule::kw_type => {
                this.token(part);
                this.say(" ");
            }
            Rule::name => {
                this.token(part);
                this.name_ends(row);
            }
            Rule::equals => {
                this.token(part);
                this.say(" ");
            }
            _ => this.any_type(part),
        })
    }
}
