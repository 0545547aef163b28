//! Where an expression stands: how the names it may use are reached in Rust, and which of them it turned out to use.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashMap},
};

use mgraph_dsl::ir::{Block, FieldId, Load, LoadKind, LocalId, Program, ValueId};
use proc_macro2::Ident;
use quote::{format_ident, quote};

use crate::{
    backend::Operand,
    code::{Code, Level},
    config::Configs,
    error::{Error, Result},
    names,
};

/// How names are reached from where the expression stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// In a load function or constructor: parameters and members are variables.
    Variables,
    /// In a method of the block: its parameters and members are fields of `self`.
    Method,
}

/// What an expression used of the names a function binds at its beginning.
#[derive(Debug, Default)]
pub(crate) struct Used {
    pub config: Cell<bool>,
    pub float: Cell<bool>,
    pub lead: Cell<bool>,
    pub free: RefCell<BTreeSet<String>>,
    pub members: RefCell<BTreeSet<String>>,
}

/// A load local: its variable, and whether that is a reference already.
#[derive(Debug, Clone)]
struct Local {
    ident: Ident,
    reference: bool,
}

pub(crate) struct Scope<'p> {
    pub program: &'p Program,
    pub configs: &'p Configs,
    pub block: Option<&'p Block>,
    pub place: Where,
    /// Load parameters of the function itself, which are variables wherever it is.
    pub parameters: HashMap<String, Ident>,
    /// The free dims of the function, which its beginning binds.
    pub dims: Vec<Ident>,
    pub used: Used,
    locals: RefCell<HashMap<LocalId, Local>>,
    /// The variable or field that holds a tensor or matrix.
    pub values: RefCell<HashMap<ValueId, Operand>>,
}

impl<'p> Scope<'p> {
    pub fn new(program: &'p Program, configs: &'p Configs, block: Option<&'p Block>, place: Where) -> Scope<'p> {
        Scope {
            program,
            configs,
            block,
            place,
            parameters: HashMap::new(),
            dims: Vec::new(),
            used: Used::default(),
            locals: RefCell::default(),
            values: RefCell::default(),
        }
    }

    pub fn bind_local(&self, local: LocalId, ident: Ident, reference: bool) {
        self.locals.borrow_mut().insert(local, Local { ident, reference });
    }

    /// The variable of a load local, by the author's name where that hides nothing that is still needed.
    pub fn variable(&self, local: LocalId) -> Ident {
        let wanted = self.program.local(local);
        let taken = |name: &Ident| {
            self.parameters.values().any(|known| known == name)
                || self.locals.borrow().values().any(|known| known.ident == *name)
                || self.dims.contains(name)
                || self.place == Where::Variables && self.has_member(name)
        };
        let wanted = names::ident(if wanted == "_" { "i" } else { wanted });
        let mut found = wanted.clone();
        let mut number = 2;
        while taken(&found) {
            found = format_ident!("{wanted}_{number}");
            number += 1;
        }
        found
    }

    /// The local is out of scope: its name may be used again.
    pub fn release(&self, local: LocalId) {
        self.locals.borrow_mut().remove(&local);
    }

    fn has_member(&self, name: &Ident) -> bool {
        let block = self.block.iter();
        let mut members =
            block.flat_map(|b| b.parameters.iter().map(|p| &p.name).chain(b.fields.iter().map(|f| &f.name)));
        members.any(|member| names::ident(member) == *name)
    }

    pub fn value(&self, value: ValueId) -> Result<Operand> {
        let values = self.values.borrow();
        values.get(&value).cloned().ok_or_else(|| Error::Ir(format!("value {} is used before it is made", value.0)))
    }

    /// A parameter, member or config value as a place: what a field access or variable denotes.
    pub fn place(&self, load: &Load) -> Result<Option<(Code, bool)>> {
        Ok(Some(match &load.kind {
            LoadKind::Config(path) => {
                self.used.config.set(true);
                (self.configs.access(path)?, false)
            }
            LoadKind::Parameter(name) => match self.parameters.get(name) {
                Some(ident) => (Code::atom(quote!(#ident)), true),
                None => (self.member_named(name, false), self.place == Where::Variables),
            },
            LoadKind::Member(field) => (self.member(*field)?, false),
            LoadKind::Local(local) => {
                let locals = self.locals.borrow();
                let Some(Local { ident, reference }) = locals.get(local) else {
                    return Err(Error::Ir(format!("load local {} is used before it is made", local.0)));
                };
                (Code::atom(quote!(#ident)), *reference)
            }
            LoadKind::Index(list, index) => {
                let (list, index) = (self.borrowed(list)?, self.scalar(index)?.tokens);
                (Code::new(Level::Prefix, quote!(*item(#list, #index)?)), false)
            }
            _ => return Ok(None),
        }))
    }

    fn member(&self, id: FieldId) -> Result<Code> {
        let block = self.block.ok_or_else(|| Error::Ir("a member outside a block".into()))?;
        let field = block.field(id);
        Ok(self.member_named(&field.name, field.condition.is_some()))
    }

    fn member_named(&self, name: &str, conditional: bool) -> Code {
        let ident = names::ident(name);
        self.used.members.borrow_mut().insert(name.to_string());
        let place = match self.place {
            Where::Method => quote!(self.#ident),
            Where::Variables => quote!(#ident),
        };
        if conditional { Code::new(Level::Prefix, quote!(*present(&#place, #name)?)) } else { Code::atom(place) }
    }
}
