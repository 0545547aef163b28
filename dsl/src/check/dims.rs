//! Load expressions as dims and as canonical text, and their translation from a callee's names into a caller's.

use std::collections::HashMap;

use super::scope::{Lowering, load};
use crate::{
    dim::{Atom, Dim, DimError},
    ir::*,
    source::Span,
};

/// What a callee's names are, seen from the caller.
#[derive(Debug, Clone, Default)]
pub(crate) struct Translation {
    pub parameters: HashMap<String, Load>,
    pub free: HashMap<String, Dim>,
    pub locals: HashMap<LocalId, Load>,
    pub values: HashMap<ValueId, ValueId>,
    /// Load `let`s of this block are opened.
    pub members: Option<BlockId>,
    /// What `..` stands for.
    pub pack: Option<Shape>,
}

impl Lowering<'_, '_> {
    /// The normal form. What is no polynomial is an atom known by its text.
    pub fn dim_of(&self, value: &Load) -> Result<Dim, DimError> {
        let atom = || Dim::atom(Atom { text: self.structure(value), load: Box::new(value.clone()) });
        Ok(match &value.kind {
            LoadKind::Int(n) => Dim::int(*n),
            LoadKind::Dim(dim) => dim.clone(),
            LoadKind::Config(path) => match self.checker.config.dim(path) {
                Some(dim) => dim.clone(),
                None => atom(),
            },
            LoadKind::Member(field) => match self.member_let(*field) {
                Some(defined) => self.dim_of(&defined)?,
                None => atom(),
            },
            LoadKind::Local(local) => match &self.checker.locals[local.0 as usize].dim {
                Some(dim) => dim.clone(),
                None => atom(),
            },
            LoadKind::Unary(LoadUnary::Negate, inner) => self.dim_of(inner)?.times(&Dim::int(-1))?,
            LoadKind::Binary(LoadBinary::Add, a, b) => self.dim_of(a)?.plus(&self.dim_of(b)?)?,
            LoadKind::Binary(LoadBinary::Subtract, a, b) => self.dim_of(a)?.minus(&self.dim_of(b)?)?,
            LoadKind::Binary(LoadBinary::Multiply, a, b) => self.dim_of(a)?.times(&self.dim_of(b)?)?,
            LoadKind::Binary(LoadBinary::Divide, a, b) => self.dim_of(a)?.over(&self.dim_of(b)?)?,
            LoadKind::Call(LoadFunction::Len, arguments) if arguments.len() == 1 => self.length_of(&arguments[0]),
            LoadKind::Parameter(_)
            | LoadKind::Free(_)
            | LoadKind::Size(_)
            | LoadKind::Matrix(..)
            | LoadKind::Float(_)
            | LoadKind::Bool(_)
            | LoadKind::Text(_)
            | LoadKind::Format(_)
            | LoadKind::Pi
            | LoadKind::Unary(..)
            | LoadKind::Binary(..)
            | LoadKind::Call(..)
            | LoadKind::Op(..)
            | LoadKind::If(..)
            | LoadKind::List(_)
            | LoadKind::Comprehension { .. }
            | LoadKind::Index(..)
            | LoadKind::Block { .. } => atom(),
        })
    }

    /// As [`Self::dim_of`], where any integer will do: one that divides by a sum is an atom.
    pub fn dim_or_atom(&self, value: &Load) -> Dim {
        self.dim_of(value)
            .unwrap_or_else(|_| Dim::atom(Atom { text: self.structure(value), load: Box::new(value.clone()) }))
    }

    /// The number of items of a load list.
    pub fn length_of(&self, list: &Load) -> Dim {
        let unknown = || {
            let kind = LoadKind::Call(LoadFunction::Len, vec![list.clone()]);
            let text = format!("len({})", self.text(list));
            Dim::atom(Atom { text, load: Box::new(load(kind, LoadType::Int, list.span)) })
        };
        match &list.kind {
            LoadKind::Config(path) => self.checker.config.length(path).cloned().unwrap_or_else(unknown),
            LoadKind::Parameter(name) => self.lengths.get(name).cloned().unwrap_or_else(unknown),
            LoadKind::Local(local) => self.checker.locals[local.0 as usize].length.clone().unwrap_or_else(unknown),
            LoadKind::Member(field) => match self.member_let(*field) {
                Some(defined) => self.length_of(&defined),
                None => unknown(),
            },
            LoadKind::List(items) => Dim::int(items.len() as i64),
            LoadKind::If(_, a, b) => {
                let (a, b) = (self.length_of(a), self.length_of(b));
                if self.equations.equal(&a, &b) { a } else { unknown() }
            }
            LoadKind::Block { value, .. } => self.length_of(value),
            LoadKind::Comprehension { each, .. } => match each.as_slice() {
                [Each { over: Over::List(list), .. }] => self.length_of(list),
                [Each { over: Over::Range(low, high), .. }] => {
                    self.dim_or_atom(high).minus(&self.dim_or_atom(low)).unwrap_or_else(|_| unknown())
                }
                _ => unknown(),
            },
            LoadKind::Op(op, arguments) => self.length_of_call(*op, arguments).unwrap_or_else(unknown),
            _ => unknown(),
        }
    }

    fn member_let(&self, field: FieldId) -> Option<Load> {
        let super::scope::Home::Block(block) = self.home else { return None };
        self.checker.member_let(block, field).cloned()
    }

    /// Two load values with one text are equal. `let`s are opened, integers printed in normal form.
    pub fn text(&self, value: &Load) -> String {
        match value.ty {
            LoadType::Int => match self.dim_of(value) {
                Ok(dim) => dim.to_string(),
                Err(_) => self.structure(value),
            },
            LoadType::Float | LoadType::Bool | LoadType::Text | LoadType::List(_) => self.structure(value),
        }
    }

    /// The text of a `let`: that of its value, or its name where the value is a list or the text grows too long.
    pub fn text_of_let(&self, name: &str, value: &Load) -> String {
        let list = matches!(value.ty, LoadType::List(_));
        let text = if list { None } else { Some(self.text(value)) };
        match text {
            Some(text) if text.len() <= 2000 => text,
            // A name that hides another must not read the same.
            _ if self.find(name).is_some() => format!("{name}#{}", self.checker.locals.len()),
            _ => name.to_string(),
        }
    }

    fn texts(&self, values: &[Load]) -> String {
        values.iter().map(|v| without_parentheses(self.text(v))).collect::<Vec<_>>().join(", ")
    }

    pub fn value_text(&self, value: ValueId) -> String {
        let name = |v: &Value| v.name.clone().unwrap_or_else(|| "_".into());
        let own = name(&self.values[value.0 as usize]);
        let clashes = self.values[..value.0 as usize].iter().filter(|v| name(v) == own).count();
        if clashes == 0 { own } else { format!("{own}#{}", value.0) }
    }

    fn structure(&self, value: &Load) -> String {
        match &value.kind {
            LoadKind::Int(n) => n.to_string(),
            LoadKind::Float(x) => format!("{x:?}"),
            LoadKind::Bool(b) => b.to_string(),
            LoadKind::Text(t) => format!("{t:?}"),
            LoadKind::Format(parts) => {
                let parts = parts.iter().map(|part| match part {
                    PatternPart::Text(text) => text.clone(),
                    PatternPart::Hole(value) => format!("{{{}}}", self.text(value)),
                });
                format!("{:?}", parts.collect::<String>())
            }
            LoadKind::Pi => "pi".into(),
            LoadKind::Config(path) => self.checker.config.text(path).unwrap_or_else(|| path.join(".")),
            LoadKind::Parameter(name) | LoadKind::Free(name) => name.clone(),
            LoadKind::Member(field) => match self.member_let(*field) {
                Some(defined) => self.text(&defined),
                None => format!("member {}", field.0),
            },
            LoadKind::Local(local) => self.checker.locals[local.0 as usize].text.clone(),
            LoadKind::Dim(dim) => dim.to_string(),
            LoadKind::Size(value) => format!("size({})", self.value_text(*value)),
            LoadKind::Matrix(value, attribute) => {
                let attribute = match attribute {
                    MatrixAttribute::Packed => "packed",
                    MatrixAttribute::Bits => "bits",
                    MatrixAttribute::Group => "group",
                };
                format!("{}.{attribute}", self.value_text(*value))
            }
            LoadKind::Unary(LoadUnary::Negate, inner) => format!("-{}", self.text(inner)),
            LoadKind::Unary(LoadUnary::Not, inner) => format!("!{}", self.text(inner)),
            LoadKind::Unary(LoadUnary::ToFloat, inner) => self.text(inner),
            LoadKind::Binary(op, a, b) => {
                let (a, b) = (self.text(a), self.text(b));
                match op {
                    LoadBinary::Equal | LoadBinary::NotEqual if b < a => format!("({b} {} {a})", symbol(*op)),
                    LoadBinary::Greater => format!("({b} < {a})"),
                    LoadBinary::GreaterEqual => format!("({b} <= {a})"),
                    _ => format!("({a} {} {b})", symbol(*op)),
                }
            }
            LoadKind::Call(function, arguments) => {
                format!("{}({})", super::load::function_name(*function), self.texts(arguments))
            }
            LoadKind::Op(op, arguments) => {
                format!("{}({})", self.checker.op_name(*op), self.texts(arguments))
            }
            LoadKind::If(c, a, b) => {
                format!("if {} {{ {} }} else {{ {} }}", self.text(c), self.text(a), self.text(b))
            }
            LoadKind::List(items) => format!("[{}]", self.texts(items)),
            LoadKind::Comprehension { item, each } => {
                let mut text = format!("[{}", self.text(item));
                for Each { index, item, over } in each {
                    let name = |local: LocalId| self.checker.locals[local.0 as usize].text.clone();
                    let index = index.map_or(String::new(), |i| format!("{}, ", name(i)));
                    let over = match over {
                        Over::Range(low, high) => format!("{}..{}", self.text(low), self.text(high)),
                        Over::List(list) => self.text(list),
                    };
                    text += &format!(" for {index}{} in {over}", name(*item));
                }
                text + "]"
            }
            LoadKind::Index(list, at) => format!("{}[{}]", self.text(list), self.text(at)),
            LoadKind::Block { value, .. } => self.text(value),
        }
    }

    pub fn translate(&self, value: &Load, with: &Translation) -> Load {
        let go = |v: &Load| self.translate(v, with);
        let all = |vs: &[Load]| vs.iter().map(go).collect::<Vec<_>>();
        let kind = match &value.kind {
            LoadKind::Parameter(name) => match with.parameters.get(name) {
                Some(argument) => return argument.clone(),
                None => value.kind.clone(),
            },
            LoadKind::Free(name) => match with.free.get(name) {
                Some(dim) => LoadKind::Dim(dim.clone()),
                None => value.kind.clone(),
            },
            LoadKind::Member(field) => match with.members.and_then(|block| self.checker.member_let(block, *field)) {
                Some(defined) => return self.translate(defined, with),
                None => value.kind.clone(),
            },
            LoadKind::Local(local) => match with.locals.get(local) {
                Some(argument) => return argument.clone(),
                None => value.kind.clone(),
            },
            LoadKind::Format(parts) => {
                let parts = parts.iter().map(|part| match part {
                    PatternPart::Text(text) => PatternPart::Text(text.clone()),
                    PatternPart::Hole(value) => PatternPart::Hole(go(value)),
                });
                return Load::text(parts.collect(), value.span);
            }
            LoadKind::Dim(dim) => LoadKind::Dim(self.translate_dim(dim, with).unwrap_or_else(|_| dim.clone())),
            LoadKind::Size(v) => LoadKind::Size(*with.values.get(v).unwrap_or(v)),
            LoadKind::Matrix(v, a) => LoadKind::Matrix(*with.values.get(v).unwrap_or(v), *a),
            LoadKind::Unary(op, a) => LoadKind::Unary(*op, Box::new(go(a))),
            LoadKind::Binary(op, a, b) => LoadKind::Binary(*op, Box::new(go(a)), Box::new(go(b))),
            LoadKind::Call(f, arguments) => LoadKind::Call(*f, all(arguments)),
            LoadKind::Op(op, arguments) => LoadKind::Op(*op, all(arguments)),
            LoadKind::If(c, a, b) => LoadKind::If(Box::new(go(c)), Box::new(go(a)), Box::new(go(b))),
            LoadKind::List(items) => LoadKind::List(all(items)),
            LoadKind::Index(a, b) => LoadKind::Index(Box::new(go(a)), Box::new(go(b))),
            LoadKind::Comprehension { item, each } => LoadKind::Comprehension {
                item: Box::new(go(item)),
                each: each
                    .iter()
                    .map(|e| Each {
                        over: match &e.over {
                            Over::Range(low, high) => Over::Range(go(low), go(high)),
                            Over::List(list) => Over::List(go(list)),
                        },
                        ..e.clone()
                    })
                    .collect(),
            },
            LoadKind::Block { lets, value } => LoadKind::Block {
                lets: lets.iter().map(|(local, v)| (*local, go(v))).collect(),
                value: Box::new(go(value)),
            },
            LoadKind::Int(_)
            | LoadKind::Float(_)
            | LoadKind::Bool(_)
            | LoadKind::Text(_)
            | LoadKind::Pi
            | LoadKind::Config(_) => value.kind.clone(),
        };
        Load { kind, ty: value.ty.clone(), span: value.span }
    }

    pub fn translate_dim(&self, dim: &Dim, with: &Translation) -> Result<Dim, DimError> {
        dim.substitute(&|atom: &Atom| Some(self.dim_or_atom(&self.translate(&atom.load, with)))).and_then(Dim::bounded)
    }

    pub fn translate_shape(&self, shape: &Shape, with: &Translation) -> Result<Shape, DimError> {
        let mut result = match (&with.pack, shape.pack) {
            (Some(pack), true) => pack.clone(),
            (_, pack) => Shape { pack, dims: Vec::new() },
        };
        for dim in &shape.dims {
            result.dims.push(self.translate_dim(dim, with)?);
        }
        Ok(result)
    }

    pub fn same(&self, a: &Dim, b: &Dim) -> bool {
        self.equations.equal(a, b)
    }

    /// Whether `dim` is provably `bound` or more. Free dims and config dims are positive, and so is what `axes` hold.
    pub fn at_least(&self, dim: &Dim, bound: i64, axes: &[Dim]) -> bool {
        self.equations.reduce(dim).at_least(bound, &|atom| match &atom.load.kind {
            LoadKind::Free(_) => true,
            LoadKind::Config(path) if self.checker.config.is_count(path) => true,
            _ => axes.iter().any(|axis| axis.as_atom() == Some(atom)),
        })
    }

    /// Whether `low < high`, provably.
    pub fn below(&self, low: &Dim, high: &Dim, axes: &[Dim]) -> bool {
        high.minus(low).is_ok_and(|difference| self.at_least(&difference, 1, axes))
    }

    pub fn same_shape(&self, a: &Shape, b: &Shape) -> bool {
        a.pack == b.pack && a.dims.len() == b.dims.len() && a.dims.iter().zip(&b.dims).all(|(x, y)| self.same(x, y))
    }

    /// A dim as a number.
    pub fn number(&self, dim: &Dim, span: Span) -> Load {
        if let Some(n) = dim.as_int() {
            return load(LoadKind::Int(n), LoadType::Int, span);
        }
        match dim.as_atom() {
            Some(atom) => Load { span, ..(*atom.load).clone() },
            None => load(LoadKind::Dim(dim.clone()), LoadType::Int, span),
        }
    }
}

/// `(a + b)` between commas is `a + b`.
fn without_parentheses(text: String) -> String {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    let mut first_closed = None;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    first_closed.get_or_insert(at);
                }
            }
            _ => {}
        }
    }
    let whole = text.starts_with('(') && first_closed == Some(text.len() - 1);
    if whole { text[1..text.len() - 1].to_string() } else { text }
}

pub(crate) fn symbol(op: LoadBinary) -> &'static str {
    match op {
        LoadBinary::Add => "+",
        LoadBinary::Subtract => "-",
        LoadBinary::Multiply => "*",
        LoadBinary::Divide => "/",
        LoadBinary::Remainder => "%",
        LoadBinary::ShiftLeft => "<<",
        LoadBinary::Equal => "==",
        LoadBinary::NotEqual => "!=",
        LoadBinary::Less => "<",
        LoadBinary::LessEqual => "<=",
        LoadBinary::Greater => ">",
        LoadBinary::GreaterEqual => ">=",
        LoadBinary::And => "&",
        LoadBinary::Or => "|",
        LoadBinary::In => "in",
    }
}
