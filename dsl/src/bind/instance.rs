//! The block tree of one checkpoint: parameters evaluated, conditions decided.

use std::collections::BTreeMap;

use super::{StateId, WeightId};
use crate::{
    config::Resolved,
    ir::{BlockId, FieldId, Load, LocalId, Program},
    load::{Environment, LoadError, Val, evaluate},
};

#[derive(Debug, Clone)]
pub struct Instance {
    pub block: BlockId,
    /// Dotted field names and indices; `""` for the model.
    pub path: String,
    pub parameters: BTreeMap<String, Val>,
    /// By [`FieldId`].
    pub fields: Vec<Slot>,
}

#[derive(Debug, Clone)]
pub enum Slot {
    /// The field's condition does not hold.
    Absent,
    Weight(WeightId),
    Child(Box<Instance>),
    Children(Vec<Instance>),
    State(StateId),
    Let(Val),
}

impl Instance {
    pub(crate) fn empty(block: BlockId) -> Instance {
        Instance { block, path: String::new(), parameters: BTreeMap::new(), fields: Vec::new() }
    }

    pub fn slot(&self, field: FieldId) -> Option<&Slot> {
        self.fields.get(field.0 as usize)
    }

    /// The instance in this tree, and its field, that a weight belongs to.
    pub fn owner(&self, weight: WeightId) -> Option<(&Instance, FieldId)> {
        self.fields.iter().enumerate().find_map(|(at, slot)| match slot {
            Slot::Weight(id) => (*id == weight).then_some((self, FieldId(at as u32))),
            Slot::Child(child) => child.owner(weight),
            Slot::Children(children) => children.iter().find_map(|child| child.owner(weight)),
            Slot::Absent | Slot::State(_) | Slot::Let(_) => None,
        })
    }

    /// Along a path of single children.
    pub fn child(&self, path: &[FieldId]) -> Option<&Instance> {
        path.iter().try_fold(self, |instance, field| match instance.slot(*field)? {
            Slot::Child(child) => Some(&**child),
            Slot::Absent | Slot::Weight(_) | Slot::Children(_) | Slot::State(_) | Slot::Let(_) => None,
        })
    }
}

/// The names that a block's own expressions may use.
pub struct InstanceNames<'a> {
    pub program: &'a Program,
    pub resolved: &'a Resolved,
    pub instance: &'a Instance,
}

impl Environment for InstanceNames<'_> {
    fn program(&self) -> &Program {
        self.program
    }
    fn config(&self, path: &[String]) -> Option<Val> {
        self.resolved.get(path).cloned()
    }
    fn parameter(&self, name: &str) -> Option<Val> {
        self.instance.parameters.get(name).cloned()
    }
    fn member(&self, field: FieldId) -> Option<Val> {
        match self.instance.slot(field)? {
            Slot::Let(value) => Some(value.clone()),
            Slot::Absent | Slot::Weight(_) | Slot::Child(_) | Slot::Children(_) | Slot::State(_) => None,
        }
    }
}

/// With one local more: the variable of an array field.
struct WithLocal<'a> {
    outer: &'a InstanceNames<'a>,
    local: (LocalId, i64),
}

impl Environment for WithLocal<'_> {
    fn program(&self) -> &Program {
        self.outer.program
    }
    fn config(&self, path: &[String]) -> Option<Val> {
        self.outer.config(path)
    }
    fn parameter(&self, name: &str) -> Option<Val> {
        self.outer.parameter(name)
    }
    fn member(&self, field: FieldId) -> Option<Val> {
        self.outer.member(field)
    }
    fn local(&self, local: LocalId) -> Option<Val> {
        (local == self.local.0).then_some(Val::Int(self.local.1))
    }
}

pub(super) fn evaluate_in(
    names: &InstanceNames<'_>,
    local: Option<(LocalId, i64)>,
    load: &Load,
) -> Result<Val, LoadError> {
    match local {
        Some(local) => evaluate(load, &WithLocal { outer: names, local }),
        None => evaluate(load, names),
    }
}
