//! One function being evaluated: its values, names and sizes.

use std::collections::BTreeMap;

use super::domain::{Matrix, Store, Typed};
use crate::{
    bind::{Instance, Slot},
    config::Resolved,
    ir::{DType, FieldId, Function, LocalId, MatrixAttribute, Program, ValueId},
    load::{Environment, Val},
};

/// A value of a function.
#[derive(Debug, Clone)]
pub(super) enum Cell<T> {
    Tensor(T),
    Matrix(Matrix<T>),
    /// Of one type.
    List(Vec<T>),
}

impl<T: Typed> Cell<T> {
    /// For faults.
    pub fn kind(&self) -> &'static str {
        match self {
            Cell::Tensor(_) => "a tensor",
            Cell::Matrix(_) => "a matrix",
            Cell::List(_) => "a list",
        }
    }

    /// Of a list: of its first item.
    pub fn shape(&self) -> &[usize] {
        match self {
            Cell::Tensor(tensor) => tensor.shape(),
            Cell::Matrix(matrix) => &matrix.shape,
            Cell::List(items) => items.first().map_or(&[], Typed::shape),
        }
    }
}

pub(super) struct Frame<'p, T> {
    pub program: &'p Program,
    pub resolved: &'p Resolved,
    pub function: &'p Function,
    /// The block whose function it is; `None` in an op.
    pub instance: Option<&'p Instance>,
    /// `rms_norm`, `Attention.fn`.
    pub origin: String,
    pub parameters: Vec<(&'p str, Val)>,
    pub locals: BTreeMap<LocalId, Val>,
    /// The children that loops over arrays stand at.
    pub items: BTreeMap<LocalId, &'p Instance>,
    pub free: Vec<(&'p str, i64)>,
    pub pack: Vec<usize>,
    /// What `F` is here.
    pub float: DType,
    pub values: Vec<Option<Cell<T>>>,
}

impl<T> Frame<'_, T> {
    pub fn dtype(&self, dtype: DType) -> DType {
        if dtype == DType::F { self.float } else { dtype }
    }

    pub fn get(&self, value: ValueId) -> Option<&Cell<T>> {
        self.values.get(value.0 as usize)?.as_ref()
    }

    pub fn set(&mut self, value: ValueId, cell: Cell<T>) {
        if let Some(slot) = self.values.get_mut(value.0 as usize) {
            *slot = Some(cell);
        }
    }
}

impl<T: Typed> Environment for Frame<'_, T> {
    fn program(&self) -> &Program {
        self.program
    }
    fn config(&self, path: &[String]) -> Option<Val> {
        self.resolved.get(path).cloned()
    }
    fn parameter(&self, name: &str) -> Option<Val> {
        let own = self.parameters.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
        own.or_else(|| self.instance?.parameters.get(name).cloned())
    }
    fn member(&self, field: FieldId) -> Option<Val> {
        match self.instance?.slot(field)? {
            Slot::Let(value) => Some(value.clone()),
            Slot::Absent | Slot::Weight(_) | Slot::Child(_) | Slot::Children(_) | Slot::State(_) => None,
        }
    }
    fn local(&self, local: LocalId) -> Option<Val> {
        self.locals.get(&local).cloned()
    }
    fn free(&self, name: &str) -> Option<i64> {
        self.free.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }
    fn size(&self, value: ValueId) -> Option<i64> {
        Some(self.get(value)?.shape().iter().product::<usize>() as i64)
    }
    fn matrix(&self, value: ValueId, attribute: MatrixAttribute) -> Option<Val> {
        let Cell::Matrix(matrix) = self.get(value)? else { return None };
        match (&matrix.store, attribute) {
            (Store::Dense(_), MatrixAttribute::Packed) => Some(Val::Bool(false)),
            (Store::Packed { .. }, MatrixAttribute::Packed) => Some(Val::Bool(true)),
            (Store::Packed { bits, .. }, MatrixAttribute::Bits) => Some(Val::Int(i64::from(*bits))),
            (Store::Packed { group, .. }, MatrixAttribute::Group) => Some(Val::Int(i64::from(*group))),
            (Store::Dense(_), MatrixAttribute::Bits | MatrixAttribute::Group) => None,
        }
    }
}
