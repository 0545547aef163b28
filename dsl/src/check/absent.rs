//! Path conditions: what is known to hold where an expression stands, so that a thing declared with `if` may be named.
//!
//! A condition is a set of facts, each a canonical text. `c` is known when each of its facts is. There is no reasoning
//! beyond opening `let`s, splitting at `&` (and at `|` under a `!`), and turning a negated comparison around.

use super::scope::{Checked, Home, Lowering};
use crate::{
    diagnostic::{Code, Diagnostic},
    ir::*,
    source::Span,
};

impl Lowering<'_, '_> {
    /// What holds when `condition` is `positive`.
    pub fn facts_of(&self, condition: &Load, positive: bool) -> Vec<String> {
        self.literals(condition, positive).into_iter().map(|(fact, _)| fact).collect()
    }

    /// Each fact with its negation.
    fn literals(&self, condition: &Load, positive: bool) -> Vec<(String, String)> {
        let leaf = || {
            let (yes, no) = (self.text(condition), format!("!{}", self.text(condition)));
            vec![if positive { (yes, no) } else { (no, yes) }]
        };
        let opened = match &condition.kind {
            LoadKind::Unary(LoadUnary::Not, inner) => return self.literals(inner, !positive),
            LoadKind::Bool(b) if *b == positive => return Vec::new(),
            LoadKind::Binary(LoadBinary::And, a, b) if positive => return self.both(a, b, positive),
            LoadKind::Binary(LoadBinary::Or, a, b) if !positive => return self.both(a, b, positive),
            // `c == false` is `!c`.
            LoadKind::Binary(op @ (LoadBinary::Equal | LoadBinary::NotEqual), a, b) if a.ty == LoadType::Bool => {
                let same = *op == LoadBinary::Equal;
                match (&a.kind, &b.kind) {
                    (LoadKind::Bool(constant), _) => return self.literals(b, positive == (same == *constant)),
                    (_, LoadKind::Bool(constant)) => return self.literals(a, positive == (same == *constant)),
                    _ => return self.compared(condition, (*op, a, b), positive),
                }
            }
            LoadKind::Binary(op, a, b) if negated(*op).is_some() => {
                return self.compared(condition, (*op, a, b), positive);
            }
            LoadKind::Binary(..) => return leaf(),
            LoadKind::Config(path) => self.checker.config.defined_as(path).cloned(),
            LoadKind::Local(local) => self.checker.locals[local.0 as usize].value.clone(),
            LoadKind::Member(field) => match self.home {
                Home::Block(block) => self.checker.member_let(block, *field).cloned(),
                Home::Config | Home::Op(_) => None,
            },
            _ => None,
        };
        match opened {
            Some(value) => self.literals(&value, positive),
            None => leaf(),
        }
    }

    /// The fact of a comparison and its negation, a negated comparison turned around.
    fn compared(
        &self,
        condition: &Load,
        (op, a, b): (LoadBinary, &Load, &Load),
        positive: bool,
    ) -> Vec<(String, String)> {
        let text = |op| {
            let kind = LoadKind::Binary(op, Box::new(a.clone()), Box::new(b.clone()));
            self.text(&Load { kind, ty: LoadType::Bool, span: condition.span })
        };
        let (yes, no) = (text(op), negated(op).map_or_else(|| format!("!{}", text(op)), text));
        vec![if positive { (yes, no) } else { (no, yes) }]
    }

    fn both(&self, a: &Load, b: &Load, positive: bool) -> Vec<(String, String)> {
        let mut facts = self.literals(a, positive);
        facts.extend(self.literals(b, positive));
        facts
    }

    /// Whether two conditions cannot hold together, as far as their texts tell.
    pub fn exclusive(&self, a: &Load, b: &Load) -> bool {
        let facts = self.facts_of(b, true);
        if self.literals(a, true).iter().any(|(_, negation)| facts.contains(negation)) {
            return true;
        }
        let (a, b) = (self.choices(a), self.choices(b));
        a.iter().any(|(what, is)| b.iter().any(|(w, other)| what == w && is != other))
    }

    /// The `name == constant` among the facts of a condition.
    fn choices(&self, condition: &Load) -> Vec<(String, String)> {
        let constant = |l: &Load| matches!(l.kind, LoadKind::Text(_) | LoadKind::Int(_));
        match &condition.kind {
            LoadKind::Binary(LoadBinary::And, a, b) => {
                let mut choices = self.choices(a);
                choices.extend(self.choices(b));
                choices
            }
            LoadKind::Binary(LoadBinary::Equal, a, b) if constant(b) => vec![(self.text(a), self.text(b))],
            LoadKind::Binary(LoadBinary::Equal, a, b) if constant(a) => vec![(self.text(b), self.text(a))],
            LoadKind::Config(path) => {
                self.checker.config.defined_as(path).cloned().map_or(Vec::new(), |value| self.choices(&value))
            }
            _ => Vec::new(),
        }
    }

    /// Runs `inside` where `condition` is known to be `positive`: its facts, and the equations between dims among them.
    pub fn under<T>(&mut self, condition: &Load, positive: bool, inside: impl FnOnce(&mut Self) -> T) -> T {
        let (facts, equations) = (self.facts.len(), self.equations.clone());
        self.believe(condition, positive);
        let result = inside(self);
        self.facts.truncate(facts);
        self.equations = equations;
        result
    }

    /// Makes known that `condition` is `positive`.
    pub fn believe(&mut self, condition: &Load, positive: bool) {
        self.facts.extend(self.facts_of(condition, positive));
        if positive {
            self.assume(condition);
        }
        self.believe_sections();
    }

    /// Believes the requirements of the sections that are known to exist here.
    pub fn believe_sections(&mut self) {
        if self.checker.conditional.is_empty() || !self.sees_config {
            return;
        }
        for (needed, required) in self.checker.conditional.clone() {
            if self.known(&needed) {
                let facts = self.facts_of(&required, true);
                self.facts.extend(facts);
                self.assume(&required);
            }
        }
    }

    /// Believes the equations between integers that `condition` states.
    fn assume(&mut self, condition: &Load) {
        match &condition.kind {
            LoadKind::Binary(LoadBinary::And, a, b) => {
                self.assume(a);
                self.assume(b);
            }
            LoadKind::Binary(LoadBinary::Equal, a, b) if a.ty == LoadType::Int => {
                let (a, b) = (self.dim_or_atom(a), self.dim_or_atom(b));
                self.equations.assume(&a, &b);
            }
            LoadKind::Config(path) => {
                if let Some(value) = self.checker.config.defined_as(path).cloned() {
                    self.assume(&value);
                }
            }
            _ => {}
        }
    }

    pub fn known(&self, needed: &[String]) -> bool {
        needed.iter().all(|fact| self.facts.contains(fact))
    }

    /// An error unless all `needed` facts are known; `written` is the condition as it was declared.
    pub fn require_known(
        &mut self,
        needed: &[String],
        written: &str,
        what: &str,
        span: Span,
        defined: Span,
    ) -> Checked<()> {
        if self.known(needed) {
            return Ok(());
        }
        Err(self.error(
            Diagnostic::new(Code::MaybeAbsent, span, format!("`{what}` exists only where `{written}` holds"))
                .label("may be absent here")
                .help(format!("use it inside `if {written} {{ .. }}`"))
                .also(defined, "declared with this condition"),
        ))
    }

    /// A condition as written.
    pub fn written_condition(&self, condition: &Load) -> String {
        self.checker.sources.text(condition.span).to_string()
    }
}

fn negated(op: LoadBinary) -> Option<LoadBinary> {
    Some(match op {
        LoadBinary::Equal => LoadBinary::NotEqual,
        LoadBinary::NotEqual => LoadBinary::Equal,
        LoadBinary::Less => LoadBinary::GreaterEqual,
        LoadBinary::LessEqual => LoadBinary::Greater,
        LoadBinary::Greater => LoadBinary::LessEqual,
        LoadBinary::GreaterEqual => LoadBinary::Less,
        LoadBinary::Add
        | LoadBinary::Subtract
        | LoadBinary::Multiply
        | LoadBinary::Divide
        | LoadBinary::Remainder
        | LoadBinary::ShiftLeft
        | LoadBinary::And
        | LoadBinary::Or
        | LoadBinary::In => return None,
    })
}
