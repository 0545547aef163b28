//! Where an expression stands: what it can name, what is known there, and the statements made so far.

use std::collections::{BTreeMap, HashMap};

use super::Checker;
use crate::{
    ast,
    diagnostic::{Code, Diagnostic},
    dim::{Dim, Equations},
    ir::*,
    source::Span,
};

/// A mistake that was already reported. Whoever meets it says nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reported;

pub(crate) type Checked<T> = Result<T, Reported>;

/// What an expression is while it is lowered.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    /// A tensor, a matrix, or a list of tensors that is as long as a dim.
    Value(ValueId),
    Load(Load),
    Tuple(Vec<Item>),
    /// A list literal that holds tensors, each of its own type.
    List(Vec<Item>),
    /// `let mut seen = []`, until a loop has filled it.
    Growing(Growing),
    Child(Child),
    /// An array of children, which only a `for` can use.
    Children(Children),
    /// A config section, which only `.field` can use.
    Section(String),
    /// The value of a body without one.
    Unit,
    /// Came from a mistake.
    Poison,
}

/// A block instance: how to reach it, and its parameters as seen from here.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub receiver: Receiver,
    pub block: BlockId,
    pub arguments: Vec<Load>,
}

/// An array of children: `arguments` may use `variable`, everything else is as seen from here.
#[derive(Debug, Clone)]
pub(crate) struct Children {
    pub array: Receiver,
    pub block: BlockId,
    pub arguments: Vec<Load>,
    pub variable: LocalId,
    pub low: Load,
    pub high: Load,
}

/// An empty list. Only a loop that stands directly in the region of its `let` may fill it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growing {
    /// How many regions are open there.
    pub region: usize,
}

/// A turn of a loop, and what it adds to which lists.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    /// How many regions are open in the loop's body.
    pub region: usize,
    pub pushed: Vec<(ast::Name, ValueId)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Binding {
    pub item: Item,
    pub mutable: bool,
    pub span: Span,
}

/// A load-stage local.
#[derive(Debug, Clone)]
pub(crate) struct Local {
    /// What the author calls it.
    pub name: String,
    /// Of a variable its name, of a `let` the text of its value.
    pub text: String,
    pub value: Option<Load>,
    /// For integers that are polynomials.
    pub dim: Option<Dim>,
    /// For lists.
    pub length: Option<Dim>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    Config,
    Block(BlockId),
    Op(OpId),
}

/// How a name that begins with a capital is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FreeDims {
    /// There is no call here: config, fields.
    None,
    /// Collect them: a signature is being read.
    Collect,
    /// Those of the signature, and `T` of the runtime when in a block.
    Bound,
}

/// One expression, function, or member being lowered.
pub(crate) struct Lowering<'c, 'a> {
    pub checker: &'c mut Checker<'a>,
    pub home: Home,
    /// Prelude items see no config.
    pub sees_config: bool,
    pub section: Option<String>,
    /// Tensors exist here.
    pub call_stage: bool,
    /// The value of a block's `let`: tensors exist, but no call does.
    pub derived: bool,
    /// `size(x)` may stand here.
    pub in_condition_of_twin: bool,
    pub free_dims: FreeDims,
    pub free: Vec<FreeDim>,
    pub float: FloatSource,
    pub scopes: Vec<HashMap<String, Binding>>,
    pub values: Vec<Value>,
    pub regions: Vec<Vec<Statement>>,
    /// The loops around, innermost last.
    pub turns: Vec<Turn>,
    /// Lengths of list parameters that declare one.
    pub lengths: HashMap<String, Dim>,
    /// Conditions that hold here, as canonical text.
    pub facts: Vec<String>,
    pub equations: Equations,
    /// Fields read in enclosing regions, so that each weight is named once.
    pub weights: Vec<BTreeMap<FieldId, ValueId>>,
}

impl<'c, 'a> Lowering<'c, 'a> {
    pub fn new(checker: &'c mut Checker<'a>, home: Home, sees_config: bool) -> Self {
        let (facts, equations) =
            if sees_config { (checker.facts.clone(), checker.equations.clone()) } else { Default::default() };
        Lowering {
            checker,
            home,
            sees_config,
            section: None,
            call_stage: false,
            derived: false,
            in_condition_of_twin: false,
            free_dims: FreeDims::None,
            free: Vec::new(),
            float: FloatSource::Family,
            scopes: vec![HashMap::new()],
            values: Vec::new(),
            regions: vec![Vec::new()],
            turns: Vec::new(),
            lengths: HashMap::new(),
            facts,
            equations,
            weights: vec![BTreeMap::new()],
        }
    }

    pub fn error(&mut self, diagnostic: Diagnostic) -> Reported {
        self.checker.report(diagnostic)
    }

    pub fn fail<T>(&mut self, code: Code, span: Span, message: impl Into<String>) -> Checked<T> {
        Err(self.error(Diagnostic::new(code, span, message)))
    }

    /// Binds a local name. `_` binds nothing.
    pub fn bind(&mut self, name: &ast::Name, item: Item, mutable: bool) {
        self.item_found(name.span, &item);
        if name.node == "_" {
            return;
        }
        self.check_hiding(name);
        if let Item::Value(value) = item {
            self.values[value.0 as usize].name.get_or_insert_with(|| name.node.clone());
        }
        self.bind_silently(&name.node, Binding { item, mutable, span: name.span });
    }

    pub fn bind_silently(&mut self, name: &str, binding: Binding) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_string(), binding);
        }
    }

    pub fn check_hiding(&mut self, name: &ast::Name) {
        if self.sees_config
            && let Some(span) = self.checker.config.defined_at(&name.node)
        {
            self.error(
                Diagnostic::new(Code::HidesConfigName, name.span, format!("`{}` hides the config name", name.node))
                    .label("hides it")
                    .help("choose another name: config names mean the same in the whole file")
                    .also(span, "defined here"),
            );
        }
    }

    pub fn find(&self, name: &str) -> Option<&Binding> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    pub fn find_mut(&mut self, name: &str) -> Option<&mut Binding> {
        self.scopes.iter_mut().rev().find_map(|scope| scope.get_mut(name))
    }

    pub fn new_local(&mut self, local: Local) -> LocalId {
        self.checker.locals.push(local);
        LocalId(self.checker.locals.len() as u32 - 1)
    }

    /// A loop variable: an atom whose text is its name, made unique where it hides another.
    pub fn new_variable(&mut self, name: &str) -> LocalId {
        let mut text = name.to_string();
        while self.find(&text).is_some() {
            text.push('\'');
        }
        self.new_local(Local { name: name.to_string(), text, value: None, dim: None, length: None })
    }

    pub fn new_value(&mut self, ty: Type, span: Span) -> ValueId {
        self.values.push(Value { ty, name: None, span });
        ValueId(self.values.len() as u32 - 1)
    }

    pub fn push(&mut self, statement: Statement) {
        if let Some(region) = self.regions.last_mut() {
            region.push(statement);
        }
    }

    pub fn emit(&mut self, op: Prim, arguments: Vec<ValueId>, ty: TensorType, span: Span) -> ValueId {
        self.emit_typed(op, arguments, Type::Tensor(ty), span)
    }

    pub fn emit_typed(&mut self, op: Prim, arguments: Vec<ValueId>, ty: Type, span: Span) -> ValueId {
        let out = self.new_value(ty, span);
        self.push(Statement::Prim { out, op, arguments, span });
        out
    }

    pub fn ty(&self, value: ValueId) -> &Type {
        &self.values[value.0 as usize].ty
    }

    /// The type of a tensor; a matrix is an error.
    pub fn tensor_type(&mut self, value: ValueId, span: Span) -> Checked<TensorType> {
        match self.ty(value).clone() {
            Type::Tensor(ty) => Ok(ty),
            Type::Matrix(_) => Err(self.error(
                Diagnostic::new(Code::PackedMisuse, span, "a matrix that may be packed is used as a tensor")
                    .label("a `Q`")
                    .help("multiply by it with `linear(x, w)`, or take rows with `lookup(w, ids)`"),
            )),
            Type::List { .. } => {
                let found = self.describe(&Item::Value(value));
                Err(self.error(
                    Diagnostic::new(Code::TypeMismatch, span, format!("a tensor is needed here, this is {found}"))
                        .help("take one with `list[i]`, or all of them with `concat(list, axis)`"),
                ))
            }
        }
    }

    /// Runs `inside` with a region and a scope of its own, and gives the statements it made.
    pub fn region<T>(&mut self, inside: impl FnOnce(&mut Self) -> T) -> (T, Vec<Statement>) {
        self.regions.push(Vec::new());
        self.scopes.push(HashMap::new());
        self.weights.push(BTreeMap::new());
        let result = inside(self);
        self.weights.pop();
        self.scopes.pop();
        (result, self.regions.pop().unwrap_or_default())
    }
}

pub(crate) fn load(kind: LoadKind, ty: LoadType, span: Span) -> Load {
    Load { kind, ty, span }
}

pub(crate) fn int(n: i64, span: Span) -> Load {
    load(LoadKind::Int(n), LoadType::Int, span)
}
