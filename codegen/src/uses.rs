//! Where values are used: the last point at which each is read (for shadowing), and how often (for states updated in
//! place). Points number the statements of a function in textual order.

use std::collections::HashMap;

use mgraph_dsl::{
    dim::Dim,
    ir::{Argument, Function, Load, LoadKind, LoopOver, PatternPart, Prim, Region, SliceSlot, Statement, ValueId},
};

#[derive(Debug, Default)]
pub(crate) struct Uses {
    last: HashMap<ValueId, usize>,
    count: HashMap<ValueId, usize>,
    point: usize,
}

impl Uses {
    pub fn of(function: &Function) -> Uses {
        let mut uses = Uses::default();
        uses.region(function, &function.body);
        uses
    }

    /// The last point that reads `value`; 0 where nothing does.
    pub fn last(&self, value: ValueId) -> usize {
        self.last.get(&value).copied().unwrap_or(0)
    }

    pub fn count(&self, value: ValueId) -> usize {
        self.count.get(&value).copied().unwrap_or(0)
    }

    fn read(&mut self, value: ValueId) {
        self.last.insert(value, self.point);
        *self.count.entry(value).or_default() += 1;
    }

    fn load(&mut self, load: &Load) {
        values_of(load, &mut |v| self.read(v));
    }

    /// A region takes one point for each statement and one for its end.
    fn region(&mut self, function: &Function, region: &Region) {
        for statement in &region.statements {
            self.point += 1;
            self.statement(function, statement);
        }
        self.point += 1;
        for value in &region.results {
            self.read(*value);
        }
    }

    fn statement(&mut self, function: &Function, statement: &Statement) {
        match statement {
            Statement::Prim { out, op, arguments, .. } => {
                arguments.iter().for_each(|v| self.read(*v));
                match op {
                    Prim::Constant(load)
                    | Prim::ConstantList(load)
                    | Prim::TopKValues(load)
                    | Prim::TopKIndices(load)
                    | Prim::Item(load) => {
                        self.load(load);
                    }
                    Prim::Slice(slots) => {
                        for slot in slots {
                            match slot {
                                SliceSlot::Whole => {}
                                SliceSlot::At(at) => self.load(at),
                                SliceSlot::Range(low, high) => {
                                    self.load(low);
                                    self.load(high);
                                }
                            }
                        }
                    }
                    Prim::Unary(_)
                    | Prim::Binary(_)
                    | Prim::Compare(_)
                    | Prim::Select
                    | Prim::Convert
                    | Prim::Iota
                    | Prim::Reshape
                    | Prim::Transpose(_)
                    | Prim::Broadcast
                    | Prim::Concat { .. }
                    | Prim::ConcatList { .. }
                    | Prim::Reduce { .. }
                    | Prim::Dot
                    | Prim::Matmul
                    | Prim::Take { .. }
                    | Prim::TakeAlong { .. }
                    | Prim::Update { .. }
                    | Prim::MatrixDense
                    | Prim::MatrixCodes
                    | Prim::MatrixBytes
                    | Prim::MatrixScales
                    | Prim::MatrixBiases
                    | Prim::MatrixRows => {}
                }
                for dim in function.value(*out).ty.dims() {
                    values_of_dim(dim, &mut |v| self.read(v));
                }
            }
            Statement::Let { value, .. } => self.load(value),
            Statement::Weight { .. } | Statement::StateRead { .. } => {}
            Statement::StateWrite { value, .. } => self.read(*value),
            Statement::CallOp { arguments, .. } | Statement::CallBlock { arguments, .. } => {
                for argument in arguments {
                    match argument {
                        Argument::Value(value) => self.read(*value),
                        Argument::Load(load) => self.load(load),
                    }
                }
            }
            Statement::Probe { value, name, .. } => {
                self.read(*value);
                for part in name {
                    if let PatternPart::Hole(load) = part {
                        self.load(load);
                    }
                }
            }
            Statement::If { condition, then, otherwise, .. } => {
                self.load(condition);
                self.region(function, then);
                self.region(function, otherwise);
            }
            Statement::List { items, .. } => items.iter().for_each(|v| self.read(*v)),
            Statement::For { over, carried, collected, body, .. } => {
                match over {
                    LoopOver::Range { low, high, .. } => {
                        self.load(low);
                        self.load(high);
                    }
                    LoopOver::List { list, .. } => self.load(list),
                    LoopOver::Children { .. } => {}
                    LoopOver::Values { list, .. } => self.read(*list),
                }
                carried.iter().for_each(|c| self.read(c.initial));
                self.region(function, body);
                // The turn ends with pushes and an assignment to what is carried.
                collected.iter().for_each(|c| self.read(c.item));
                carried.iter().for_each(|c| self.read(c.inner));
            }
        }
    }
}

/// Every tensor or matrix whose size or packing `load` asks for.
fn values_of(load: &Load, found: &mut dyn FnMut(ValueId)) {
    if let LoadKind::Size(value) | LoadKind::Matrix(value, _) = &load.kind {
        found(*value);
    }
    load.for_each_part(&mut |part| values_of(part, found));
}

fn values_of_dim(dim: &Dim, found: &mut dyn FnMut(ValueId)) {
    dim.atoms().for_each(|atom| values_of(&atom.load, found));
}
