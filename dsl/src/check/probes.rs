//! A probe name occurs once in a call, as far as names can tell.
//!
//! The graphs are walked with calls inlined. Inside a loop a name needs a hole for the loop's variable; two names that
//! could come out the same must stand in arms that exclude each other. All graphs count as one call, because the
//! runtime runs `embed`, `merge` and `forward` in one piece.

use std::{borrow::Cow, collections::HashMap};

use crate::{
    diagnostic::{Code, Diagnostic},
    ir::*,
    source::Span,
};

/// What a load value is worth to a name: pieces, one after the other.
type Worth = Vec<Symbol>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Symbol {
    /// The variable of a loop that is being walked.
    Turn(usize),
    Literal(String),
    /// An integer, or some text, that the walk does not know.
    Integer,
    Text,
}

/// One character of a name, or a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Char(char),
    Digits,
    Anything,
}

struct Occurrence {
    shown: String,
    tokens: Vec<Token>,
    /// Which arm of which `if`; an `if` on config values alone is the same `if` wherever it stands.
    arms: Vec<(String, bool)>,
    span: Span,
}

struct Walk<'p> {
    program: &'p Program,
    ops_with_probes: Vec<bool>,
    occurrences: Vec<Occurrence>,
    errors: Vec<Diagnostic>,
    loops: Vec<usize>,
    /// Those of `loops` whose variable is an item of a list.
    over_lists: Vec<usize>,
    next: usize,
    arms: Vec<(String, bool)>,
}

#[derive(Clone, Default)]
struct Names<'p> {
    /// Whose fields are named; `None` in an op.
    block: Option<&'p Block>,
    parameters: HashMap<String, Worth>,
    locals: HashMap<LocalId, Worth>,
    /// Items of loops over children: block, and the arguments it got.
    items: HashMap<LocalId, (BlockId, HashMap<String, Worth>)>,
}

pub(crate) fn repeated(program: &Program) -> Vec<Diagnostic> {
    let mut walk = Walk {
        program,
        ops_with_probes: ops_with_probes(program),
        occurrences: Vec::new(),
        errors: Vec::new(),
        loops: Vec::new(),
        over_lists: Vec::new(),
        next: 0,
        arms: Vec::new(),
    };
    let model = program.block(program.model);
    for graph in model.functions.iter().filter(|f| f.graph) {
        walk.region(&graph.body, &mut Names { block: Some(model), ..Names::default() });
    }
    walk.derived_weights();
    let Walk { occurrences, mut errors, .. } = walk;
    for (i, second) in occurrences.iter().enumerate() {
        let clash = occurrences[..i].iter().find(|first| {
            let apart = first.arms.iter().any(|(which, arm)| second.arms.iter().any(|(w, a)| w == which && a != arm));
            !apart && meet(&first.tokens, &second.tokens)
        });
        if let Some(first) = clash {
            let message = format!("the probe {:?} may occur twice in a call", second.shown);
            let mut error = Diagnostic::new(Code::RepeatedProbe, second.span, message)
                .help("a name stands for one tensor of a call: give this one a name of its own");
            if first.span != second.span {
                error = error.also(first.span, format!("named {:?} here", first.shown));
            }
            errors.push(error);
        }
    }
    let mut said: Vec<Span> = Vec::new();
    errors.retain(|e| {
        let new = !said.contains(&e.span);
        said.push(e.span);
        new
    });
    errors
}

impl<'p> Walk<'p> {
    /// What is computed before any call has no probes, not even those of an op.
    fn derived_weights(&mut self) {
        for field in self.program.blocks.iter().flat_map(|block| &block.fields) {
            let FieldKind::Derived { body, .. } = &field.kind else { continue };
            let mut calls = Vec::new();
            body.body.for_each(&mut |statement| {
                if let Statement::CallOp { op, span, .. } = statement {
                    calls.push((*op, *span));
                }
            });
            for (op, span) in calls.into_iter().filter(|(op, _)| self.ops_with_probes[op.0 as usize]) {
                let name = &self.program.op(op).name;
                let message = format!("a derived weight is computed before any call, and `{name}` has probes");
                self.errors.push(Diagnostic::new(Code::DerivedWeight, span, message));
            }
        }
    }

    fn region(&mut self, region: &'p Region, names: &mut Names<'p>) {
        for statement in &region.statements {
            self.statement(statement, names);
        }
    }

    fn statement(&mut self, statement: &'p Statement, names: &mut Names<'p>) {
        match statement {
            Statement::Probe { name, span, .. } => self.probe(name, *span, names),
            Statement::Let { local, value, .. } => {
                let worth = worth(value, names);
                names.locals.insert(*local, worth);
            }
            Statement::CallOp { op, arguments, .. } => {
                if self.ops_with_probes[op.0 as usize]
                    && let OpKind::Tensor { function, .. } = &self.program.op(*op).kind
                {
                    let mut inner = Names { parameters: given(function, arguments, names), ..Names::default() };
                    self.region(&function.body, &mut inner);
                }
            }
            Statement::CallBlock { receiver, block: callee, function, arguments, .. } => {
                let callee = self.program.block(*callee);
                let function = callee.function(*function);
                let (_, mut parameters) = self.receiver(receiver, names);
                parameters.extend(given(function, arguments, names));
                let mut inner = Names { parameters, block: Some(callee), ..Names::default() };
                self.region(&function.body, &mut inner);
            }
            Statement::If { condition, then, otherwise, .. } => {
                let (plain, positive) = without_not(condition);
                let which = match config_text(&plain) {
                    Some(text) => text,
                    None => {
                        self.next += 1;
                        format!("#{}", self.next)
                    }
                };
                for (region, arm) in [(then, positive), (otherwise, !positive)] {
                    self.arms.push((which.clone(), arm));
                    self.region(region, &mut names.clone());
                    self.arms.pop();
                }
            }
            Statement::For { over, index, body, .. } => {
                self.next += 1;
                let turn = self.next;
                let mut inner = names.clone();
                match over {
                    LoopOver::Range { variable, .. } => {
                        inner.locals.insert(*variable, vec![Symbol::Turn(turn)]);
                    }
                    LoopOver::List { variable, list } => {
                        let item = match &list.ty {
                            LoadType::List(item) if **item == LoadType::Int => Symbol::Integer,
                            _ => Symbol::Text,
                        };
                        inner.locals.insert(*variable, vec![item]);
                        self.over_lists.push(turn);
                    }
                    LoopOver::Children { item, array } => {
                        if let Some((child, arguments)) = self.children(array, turn, names) {
                            inner.items.insert(*item, (child, arguments));
                        }
                    }
                    LoopOver::Values { .. } => {}
                }
                if let Some(index) = index {
                    inner.locals.insert(*index, vec![Symbol::Turn(turn)]);
                }
                self.loops.push(turn);
                self.region(body, &mut inner);
                self.loops.pop();
            }
            Statement::Prim { .. }
            | Statement::Weight { .. }
            | Statement::StateRead { .. }
            | Statement::List { .. }
            | Statement::StateWrite { .. } => {}
        }
    }

    fn child_arguments(&self, block: BlockId, arguments: &[Load], names: &Names<'p>) -> HashMap<String, Worth> {
        let parameters = &self.program.block(block).parameters;
        parameters.iter().zip(arguments).map(|(p, a)| (p.name.clone(), worth(a, names))).collect()
    }

    /// The block of an array of children, and the arguments that it gets in turn `turn`.
    fn children(&self, array: &Receiver, turn: usize, names: &Names<'p>) -> Option<(BlockId, HashMap<String, Worth>)> {
        let (before, last) = match array {
            Receiver::Field(path) => {
                let (last, path) = path.split_last()?;
                (Receiver::Field(path.to_vec()), last)
            }
            Receiver::Item { item, path } => {
                let (last, path) = path.split_last()?;
                (Receiver::Item { item: *item, path: path.to_vec() }, last)
            }
        };
        let (within, parameters) = self.receiver(&before, names);
        let FieldKind::Children { block, arguments, variable, .. } = &within?.field(*last).kind else { return None };
        let mut here = Names { parameters, block: within, ..Names::default() };
        here.locals.insert(*variable, vec![Symbol::Turn(turn)]);
        Some((*block, self.child_arguments(*block, arguments, &here)))
    }

    /// The receiver's block, and its parameters.
    fn receiver(&self, receiver: &Receiver, names: &Names<'p>) -> (Option<&'p Block>, HashMap<String, Worth>) {
        let (mut at, mut parameters, path) = match receiver {
            Receiver::Field(path) => (names.block, names.parameters.clone(), path),
            Receiver::Item { item, path } => match names.items.get(item) {
                Some((block, arguments)) => (Some(self.program.block(*block)), arguments.clone(), path),
                None => return (None, HashMap::new()),
            },
        };
        for field in path {
            let Some(FieldKind::Child { block, arguments }) = at.map(|b| &b.field(*field).kind) else {
                return (None, HashMap::new());
            };
            parameters = self.child_arguments(*block, arguments, &Names { parameters, block: at, ..Names::default() });
            at = Some(self.program.block(*block));
        }
        (at, parameters)
    }

    fn probe(&mut self, name: &[PatternPart], span: Span, names: &Names<'p>) {
        let mut tokens = Vec::new();
        let mut shown = String::new();
        let mut turns = Vec::new();
        // The last hole, while only digits have followed it: whether it is a turn.
        let mut open: Option<bool> = None;
        let mut side_by_side = false;
        for symbol in name.iter().flat_map(|part| worth_of_part(part, names)) {
            match symbol {
                Symbol::Literal(text) => {
                    tokens.extend(text.chars().map(Token::Char));
                    shown += &text;
                    open = open.filter(|_| text.chars().all(|c| c.is_ascii_digit()));
                    continue;
                }
                Symbol::Turn(turn) => {
                    tokens.push(Token::Digits);
                    turns.push(turn);
                }
                Symbol::Integer => tokens.push(Token::Digits),
                Symbol::Text => tokens.push(Token::Anything),
            }
            shown += "{..}";
            let is_turn = matches!(symbol, Symbol::Turn(_));
            side_by_side |= open.is_some_and(|before| before || is_turn);
            open = Some(is_turn);
        }
        if side_by_side {
            let message = format!("the holes of the probe {shown:?} run into each other");
            self.errors.push(
                Diagnostic::new(Code::RepeatedProbe, span, message)
                    .label("`1` and `11` read as `11` and `1`")
                    .help("put a dot or a word between them, such as `\"layer.{i}.{j}\"`"),
            );
        }
        if self.loops.iter().any(|turn| !turns.contains(turn)) {
            let missing = self.loops.iter().filter(|turn| !turns.contains(turn));
            let over_list = missing.clone().all(|turn| self.over_lists.contains(turn)) && shown.contains("{..}");
            let (label, help) = match over_list {
                true => (
                    "the items of a list may be equal",
                    "put the place into the name: `for n, i in list` counts the turns, `\"layer.{n}\"`",
                ),
                false => ("the same name each time", "put the loop's variable into the name, such as `\"layer.{i}\"`"),
            };
            let message = format!("the probe {shown:?} occurs in every turn of a loop");
            self.errors.push(Diagnostic::new(Code::RepeatedProbe, span, message).label(label).help(help));
        }
        self.occurrences.push(Occurrence { shown, tokens, arms: self.arms.clone(), span });
    }
}

fn worth(value: &Load, names: &Names<'_>) -> Worth {
    let known = match &value.kind {
        LoadKind::Int(n) => Some(vec![Symbol::Literal(n.to_string())]),
        LoadKind::Text(text) => Some(vec![Symbol::Literal(text.clone())]),
        LoadKind::Format(parts) => Some(parts.iter().flat_map(|part| worth_of_part(part, names)).collect()),
        LoadKind::Parameter(name) => names.parameters.get(name).cloned(),
        LoadKind::Local(local) => names.locals.get(local).cloned(),
        LoadKind::Member(field) => match names.block.map(|block| &block.field(*field).kind) {
            Some(FieldKind::Let(value)) => Some(worth(value, names)),
            _ => None,
        },
        _ => None,
    };
    known.unwrap_or_else(|| vec![if value.ty == LoadType::Int { Symbol::Integer } else { Symbol::Text }])
}

fn worth_of_part(part: &PatternPart, names: &Names<'_>) -> Worth {
    match part {
        PatternPart::Text(text) => vec![Symbol::Literal(text.clone())],
        PatternPart::Hole(value) => worth(value, names),
    }
}

fn given(function: &Function, arguments: &[Argument], names: &Names<'_>) -> HashMap<String, Worth> {
    let pairs = function.parameters.iter().zip(arguments);
    pairs
        .filter_map(|(parameter, argument)| match argument {
            Argument::Load(value) => Some((parameter.name.clone(), worth(value, names))),
            Argument::Value(_) => None,
        })
        .collect()
}

/// What a condition asks, and whether it holds where that does: `!c`, `c == false` and `a != b` ask what `c` and `a == b` do.
fn without_not(condition: &Load) -> (Cow<'_, Load>, bool) {
    let Load { kind, ty, span } = condition;
    let turned = |op, a: &Load, b: &Load| {
        let kind = LoadKind::Binary(op, Box::new(a.clone()), Box::new(b.clone()));
        (Cow::Owned(Load { kind, ty: ty.clone(), span: *span }), false)
    };
    match kind {
        LoadKind::Unary(LoadUnary::Not, inner) => {
            let (plain, positive) = without_not(inner);
            (plain, !positive)
        }
        LoadKind::Binary(op @ (LoadBinary::Equal | LoadBinary::NotEqual), a, b) => {
            let same = *op == LoadBinary::Equal;
            match (&a.kind, &b.kind) {
                (LoadKind::Bool(constant), _) => {
                    let (plain, positive) = without_not(b);
                    (plain, positive == (same == *constant))
                }
                (_, LoadKind::Bool(constant)) => {
                    let (plain, positive) = without_not(a);
                    (plain, positive == (same == *constant))
                }
                _ if same => (Cow::Borrowed(condition), true),
                _ => turned(LoadBinary::Equal, a, b),
            }
        }
        LoadKind::Binary(LoadBinary::GreaterEqual, a, b) => turned(LoadBinary::Less, a, b),
        LoadKind::Binary(LoadBinary::Greater, a, b) => turned(LoadBinary::LessEqual, a, b),
        _ => (Cow::Borrowed(condition), true),
    }
}

/// The text of a condition that only looks at the config.
fn config_text(value: &Load) -> Option<String> {
    Some(match &value.kind {
        LoadKind::Config(path) => path.join("."),
        LoadKind::Int(n) => n.to_string(),
        LoadKind::Float(x) => format!("{x:?}"),
        LoadKind::Bool(b) => b.to_string(),
        LoadKind::Text(t) => format!("{t:?}"),
        LoadKind::Unary(op, a) => format!("{op:?}({})", config_text(a)?),
        LoadKind::Binary(op, a, b) => format!("({} {op:?} {})", config_text(a)?, config_text(b)?),
        _ => return None,
    })
}

fn ops_with_probes(program: &Program) -> Vec<bool> {
    let probes = |region: &Region, known: &[bool]| {
        let mut any = false;
        region.for_each(&mut |statement| match statement {
            Statement::Probe { .. } => any = true,
            Statement::CallOp { op, .. } => any |= known[op.0 as usize],
            Statement::Prim { .. }
            | Statement::Let { .. }
            | Statement::Weight { .. }
            | Statement::StateRead { .. }
            | Statement::StateWrite { .. }
            | Statement::List { .. }
            | Statement::CallBlock { .. }
            | Statement::If { .. }
            | Statement::For { .. } => {}
        });
        any
    };
    let mut known = vec![false; program.ops.len()];
    loop {
        let next: Vec<bool> = program
            .ops
            .iter()
            .map(|op| match &op.kind {
                OpKind::Tensor { function, .. } => probes(&function.body, &known),
                OpKind::Load { .. } => false,
            })
            .collect();
        if next == known {
            return known;
        }
        known = next;
    }
}

/// Whether two names can come out the same: a hole for an integer takes digits, after a minus sign or not, any other hole
/// takes anything.
fn meet(mut a: &[Token], mut b: &[Token]) -> bool {
    // Most names differ in a letter at one end, and never come to the table.
    while let ([Token::Char(x), rest_a @ ..], [Token::Char(y), rest_b @ ..]) = (a, b) {
        if x != y {
            return false;
        }
        (a, b) = (rest_a, rest_b);
    }
    while let ([rest_a @ .., Token::Char(x)], [rest_b @ .., Token::Char(y)]) = (a, b) {
        if x != y {
            return false;
        }
        (a, b) = (rest_a, rest_b);
    }
    // Whether what is left from a place of each on can come out the same, from the ends backwards.
    let mut ends = vec![vec![false; b.len() + 1]; a.len() + 1];
    ends[a.len()][b.len()] = true;
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            ends[i][j] = match (a[i], b[j]) {
                (Token::Char(x), Token::Char(y)) => x == y && ends[i + 1][j + 1],
                (first, second) => {
                    takes(first, &b[j..]).any(|n| ends[i + 1][j + n])
                        || takes(second, &a[i..]).any(|n| ends[i + n][j + 1])
                }
            };
        }
    }
    ends[0][0]
}

/// How many tokens of `other` a hole can stand for; a character is no hole.
fn takes(hole: Token, other: &[Token]) -> impl Iterator<Item = usize> {
    let fits = move |(at, token): &(usize, &Token)| match (hole, token) {
        (Token::Char(_), _) => false,
        (Token::Digits, Token::Char(c)) => c.is_ascii_digit() || (*c == '-' && *at == 0),
        (Token::Digits | Token::Anything, _) => true,
    };
    1..=other.iter().enumerate().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::{Token, meet};

    fn tokens(text: &str) -> Vec<Token> {
        text.chars()
            .map(|c| match c {
                '#' => Token::Digits,
                '*' => Token::Anything,
                c => Token::Char(c),
            })
            .collect()
    }

    #[test]
    fn names_meet_where_holes_allow() {
        for (a, b, expected) in [
            ("layer.#", "layer.#", true),
            ("layer.#", "layer.12", true),
            ("layer.#", "layer.-1", true),
            ("layer.#", "layer.1-1", false),
            ("layer.#", "layer.#.attn", false),
            ("layer.#", "layer.last", false),
            ("#.attn", "*", true),
            ("a*c", "ab#", false),
            ("a*", "*b", true),
            ("embed", "embed", true),
            ("embed", "embeds", false),
            // Every way to share the letters among the holes would be 10^10 ways.
            ("*a*a*a*a*a*a*a*a*a*a*a*a#", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", false),
        ] {
            assert_eq!(meet(&tokens(a), &tokens(b)), expected, "{a} {b}");
            assert_eq!(meet(&tokens(b), &tokens(a)), expected, "{b} {a}");
        }
    }
}
