//! Where values over positions are cut to those that a state still holds: at the beginning of a block's function that takes them
//! as arguments and calls one child with state. Behind that place every axis of positions comes from the arguments or the state.

use std::collections::BTreeSet;

use crate::{
    bind::{Instance, Slot},
    dim::Dim,
    ir::{
        Block, DimSource, Field, FieldId, FieldKind, Function, LoadKind, OpKind, ParameterKind, Prim, Program,
        Receiver, Region, Statement, Type,
    },
};

/// What a function cuts of its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The child with state.
    pub child: FieldId,
    /// A state of it, which tells the positions.
    pub state: FieldId,
    /// Parameters of the function by index, each with its axis of positions, from the back.
    pub parameters: Vec<(usize, i32)>,
}

/// What this function of a block cuts; `None` where it has no argument over positions, no child with state or several, or makes
/// an axis of positions of its own.
pub fn cut(program: &Program, block: &Block, function: &Function) -> Option<Cut> {
    if function.graph || function.results.iter().any(|ty| ty.dims().any(is_positions)) {
        return None;
    }
    let mut parameters = Vec::new();
    for (at, parameter) in function.parameters.iter().enumerate() {
        let ParameterKind::Value(value) = parameter.kind else { continue };
        let Type::Tensor(ty) = &function.value(value).ty else { continue };
        let dims = ty.shape.dims.iter().enumerate().filter(|(_, dim)| is_positions(dim));
        let axes: Vec<i32> = dims.map(|(axis, _)| axis as i32 - ty.shape.dims.len() as i32).collect();
        match axes[..] {
            [] => {}
            [axis] => parameters.push((at, axis)),
            _ => return None,
        }
    }
    let mut children = BTreeSet::new();
    let mut foreign = false;
    function.body.for_each(&mut |statement| match statement {
        Statement::CallBlock { receiver: Receiver::Field(path), block: called, .. } => {
            let holds = program.block(*called).fields.iter().any(has_positions);
            match path[..] {
                [child] if holds => drop(children.insert((child, *called))),
                _ => foreign |= holds,
            }
        }
        Statement::CallBlock { receiver: Receiver::Item { .. }, block: called, .. } => {
            foreign |= program.block(*called).fields.iter().any(has_positions);
        }
        Statement::StateRead { .. } | Statement::StateWrite { .. } => foreign = true,
        Statement::Prim { .. }
        | Statement::Let { .. }
        | Statement::Weight { .. }
        | Statement::CallOp { .. }
        | Statement::Probe { .. }
        | Statement::If { .. }
        | Statement::List { .. }
        | Statement::For { .. } => {}
    });
    let (child, holder) = children.pop_first()?;
    let several = !children.is_empty() || foreign || parameters.is_empty();
    if several
        || block.field(child).condition.is_some()
        || makes_positions(program, &function.body, &mut BTreeSet::new())
    {
        return None;
    }
    let state = program.block(holder).fields.iter().position(|f| has_positions(f) && f.condition.is_none())?;
    Some(Cut { child, state: FieldId(state as u32), parameters })
}

/// The states of each child that a function cuts for, and no function reaches otherwise.
pub(super) fn cuttable(program: &Program, root: &Instance) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    collect(program, root, &mut found);
    found
}

fn collect(program: &Program, instance: &Instance, found: &mut Vec<Vec<String>>) {
    let block = program.block(instance.block);
    for (at, slot) in instance.fields.iter().enumerate() {
        match slot {
            Slot::Child(child) => {
                if calls_only_cut(program, block, FieldId(at as u32)) {
                    found.push(states(program, child));
                }
                collect(program, child, found);
            }
            Slot::Children(children) => children.iter().for_each(|child| collect(program, child, found)),
            Slot::Absent | Slot::Weight(_) | Slot::State(_) | Slot::Let(_) => {}
        }
    }
}

/// The paths of the states with positions that an instance holds itself.
fn states(program: &Program, instance: &Instance) -> Vec<String> {
    let fields = program.block(instance.block).fields.iter().zip(&instance.fields);
    let held = fields.filter(|(field, slot)| matches!(slot, Slot::State(_)) && has_positions(field));
    held.map(|(field, _)| format!("{}.{}", instance.path, field.name)).collect()
}

/// Whether the child has state, every function of its block that calls it cuts for it, and no other block reaches past.
fn calls_only_cut(program: &Program, block: &Block, child: FieldId) -> bool {
    let FieldKind::Child { block: holder, .. } = &block.field(child).kind else { return false };
    let held = &program.block(*holder).fields;
    if !held.iter().any(has_positions) {
        return false;
    }
    let mut inside = 0;
    for function in &block.functions {
        let mut calls = false;
        function.body.for_each(&mut |statement| {
            if let Statement::CallBlock { receiver: Receiver::Field(path), .. } = statement {
                calls |= path[..] == [child];
            }
        });
        if calls {
            inside += 1;
            if cut(program, block, function).is_none_or(|cut| cut.child != child) {
                return false;
            }
        }
    }
    // Through a longer path: `layer.attention.cache(..)`.
    let past = |region: &Region| {
        let mut past = false;
        region.for_each(&mut |statement| {
            if let Statement::CallBlock { receiver, block: called, .. } = statement {
                let long = match receiver {
                    Receiver::Field(path) => path.len() > 1,
                    Receiver::Item { .. } => true,
                };
                past |= long && called == holder;
            }
        });
        past
    };
    inside > 0 && !program.blocks.iter().flat_map(|block| &block.functions).any(|function| past(&function.body))
}

pub(super) fn has_positions(field: &Field) -> bool {
    match &field.kind {
        FieldKind::State(ty) => ty.shape.dims.iter().any(is_positions),
        FieldKind::Tensor(_)
        | FieldKind::Matrix(_)
        | FieldKind::Child { .. }
        | FieldKind::Children { .. }
        | FieldKind::Let(_)
        | FieldKind::Derived { .. } => false,
    }
}

/// `T` by itself.
fn is_positions(dim: &Dim) -> bool {
    dim.as_atom().is_some_and(|atom| matches!(&atom.load.kind, LoadKind::Free(name) if name == "T"))
}

/// Whether a function that is called from here asks the runtime how many positions there are: an axis of so many would not be cut.
fn makes_positions(program: &Program, region: &Region, seen: &mut BTreeSet<*const Function>) -> bool {
    let mut makes = false;
    each_called(program, region, seen, &mut |function, op| {
        let asks = op.is_none() && function.free.iter().any(|dim| dim.source == DimSource::Positions);
        makes |= asks && computes(&function.body);
    });
    makes
}

/// The names of the ops that functions which cut reach.
pub(super) fn ops_within(program: &Program) -> BTreeSet<&str> {
    let mut seen = BTreeSet::new();
    let mut names = BTreeSet::new();
    for block in &program.blocks {
        for function in block.functions.iter().filter(|function| cut(program, block, function).is_some()) {
            each_called(program, &function.body, &mut seen, &mut |_, op| names.extend(op));
        }
    }
    names
}

/// Every function that a region calls, and that those call, with its name where it is an op.
fn each_called<'p>(
    program: &'p Program,
    region: &Region,
    seen: &mut BTreeSet<*const Function>,
    visit: &mut dyn FnMut(&'p Function, Option<&'p str>),
) {
    region.for_each(&mut |statement| {
        let (function, name) = match statement {
            Statement::CallOp { op, .. } => match &program.op(*op).kind {
                OpKind::Tensor { function, .. } => (function, Some(program.op(*op).name.as_str())),
                OpKind::Load { .. } => return,
            },
            Statement::CallBlock { block, function, .. } => (program.block(*block).function(*function), None),
            Statement::Prim { .. }
            | Statement::Let { .. }
            | Statement::Weight { .. }
            | Statement::StateRead { .. }
            | Statement::StateWrite { .. }
            | Statement::Probe { .. }
            | Statement::If { .. }
            | Statement::List { .. }
            | Statement::For { .. } => return,
        };
        if seen.insert(std::ptr::from_ref(function)) {
            visit(function, name);
            each_called(program, &function.body, seen, visit);
        }
    });
}

/// Whether anything but states, weights and updates is computed here: only that may write out a shape.
fn computes(region: &Region) -> bool {
    let mut computes = false;
    region.for_each(&mut |statement| match statement {
        Statement::Prim { op, .. } => computes |= !matches!(op, Prim::Update { .. }),
        Statement::Let { .. } | Statement::CallOp { .. } | Statement::CallBlock { .. } => computes = true,
        Statement::Weight { .. }
        | Statement::StateRead { .. }
        | Statement::StateWrite { .. }
        | Statement::Probe { .. }
        | Statement::If { .. }
        | Statement::List { .. }
        | Statement::For { .. } => {}
    });
    computes
}
