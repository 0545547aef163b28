//! Which stored tensor every weight is, for one config and one checkpoint: the block tree with its parameters evaluated,
//! the weights with where their bytes lie, and the states in their canonical order.
//!
//! Knows names, shapes and dtypes of stored tensors, not their bytes. Everything that does not fit is told at once.
//!
//! **Order.** Weights and states are numbered depth first, fields in file order, items of an array in order. The runtime
//! and both emitters pass states in this order.

mod fault;
mod instance;
mod packed;
mod place;

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

pub use fault::BindFault;
pub use instance::{Instance, InstanceNames, Slot};

use crate::{
    config::Resolved,
    diagnostic::suggest,
    ir::{BlockId, DType, Field, FieldKind, Load, LoadKind, LocalId, Program, Shape, TensorType},
    load::{self, LoadError, Val},
    pattern,
};
use fault::Claim;
use instance::evaluate_in;
use place::{Base, join};

/// Index into [`Bindings::weights`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub usize);

/// Index into [`Bindings::states`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub usize);

/// What the binder needs to know of a stored tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub shape: Vec<u64>,
    pub dtype: StoredDtype,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoredDtype {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    U32,
    U8,
    Bool,
    /// Anything else a checkpoint may hold; no weight can be bound to it.
    Other,
}

impl StoredDtype {
    pub fn is_float(self) -> bool {
        matches!(self, StoredDtype::F64 | StoredDtype::F32 | StoredDtype::F16 | StoredDtype::BF16)
    }
}

#[derive(Debug, Clone)]
pub struct Bindings {
    pub root: Instance,
    pub weights: Vec<Weight>,
    pub states: Vec<State>,
    /// Stored tensors that no field claims and the family excuses, by the `ignore` pattern that does, from the checkpoint's root.
    pub ignored: BTreeMap<String, Vec<String>>,
}

impl Bindings {
    /// For single ops of a program, which read neither weights nor states.
    pub fn none(program: &Program) -> Bindings {
        Bindings {
            root: Instance::empty(program.model),
            weights: Vec::new(),
            states: Vec::new(),
            ignored: BTreeMap::new(),
        }
    }
}

/// One weight: its field path is its name everywhere but in the checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    /// Dotted field names and indices: `layers.3.self_attn.q_proj.weight`.
    pub path: String,
    pub kind: WeightKind,
    /// The dtype of the value; `F` is the family's. Of a packed matrix: of its scales and biases.
    pub dtype: DType,
    /// Of the dense value.
    pub shape: Vec<u64>,
    /// Concatenated along the first axis. Of a derived weight none.
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightKind {
    Tensor,
    Matrix,
    /// Codes, scales and biases; `bits` per code, one scale and bias per `group` columns.
    Packed {
        bits: u32,
        group: u32,
    },
    /// Computed once from others ([`FieldKind::Derived`]); nothing is stored for it.
    Derived,
}

/// Stored tensors that make one stretch of a weight's first axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub source: Source,
    /// Only these rows of the first axis (of each stored tensor, or of the stack).
    pub rows: Option<(u64, u64)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    One(Piece),
    /// One per index of a new first axis.
    Stacked(Vec<Piece>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The dense tensor, or the codes.
    pub name: String,
    pub dtype: StoredDtype,
    /// As stored.
    pub shape: Vec<u64>,
    pub scales: Option<PackedSide>,
}

/// Beside the codes of a packed matrix; both of one shape and dtype.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedSide {
    pub scales: String,
    pub biases: String,
    pub dtype: StoredDtype,
    pub shape: Vec<u64>,
}

impl Source {
    pub fn pieces(&self) -> &[Piece] {
        match self {
            Source::One(piece) => std::slice::from_ref(piece),
            Source::Stacked(pieces) => pieces,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub path: String,
    pub dtype: DType,
    pub dims: Vec<StateDim>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateDim {
    /// `B`: the rows of a call.
    Rows,
    /// `T`: the positions shown in a call.
    Positions,
    Size(u64),
}

impl State {
    /// The axis of positions.
    pub fn positions(&self) -> Option<usize> {
        self.dims.iter().position(|d| *d == StateDim::Positions)
    }
}

/// Bits and group size that the config declares for the module at a stored path.
pub type Quantization<'a> = &'a dyn Fn(&str) -> Option<(u32, u32)>;

pub fn bind(
    program: &Program,
    resolved: &Resolved,
    stored: &BTreeMap<String, Stored>,
    quantization: Quantization<'_>,
) -> Result<Bindings, Vec<BindFault>> {
    let binder = Binder { program, resolved, stored, quantization, blocks: Cell::new(0) };
    let mut best: Option<(Draft, Instance)> = None;
    for root in &program.roots {
        let mut draft = Draft::default();
        let bases = [Base { path: root.clone(), rows: None }];
        let tree = binder.block(program.model, BTreeMap::new(), "", &bases, &mut draft);
        let better = best.as_ref().is_none_or(|(b, _)| draft.missing < b.missing);
        if better {
            best = Some((draft, tree));
        }
    }
    // `roots` is never empty (`[""]` when not written); were it, an empty family would bind to nothing.
    let (mut draft, root) = best.unwrap_or_else(|| (Draft::default(), Instance::empty(program.model)));
    if binder.blocks.get() >= MAX_BLOCKS {
        let error = format!("this config asks for more than {MAX_BLOCKS} blocks");
        return Err(vec![BindFault::Load { field: "model".into(), error }]);
    }
    let ignored = binder.settle(&mut draft);
    if draft.faults.is_empty() {
        Ok(Bindings { root, weights: draft.weights, states: draft.states, ignored })
    } else {
        Err(draft.faults)
    }
}

struct Binder<'a> {
    program: &'a Program,
    resolved: &'a Resolved,
    stored: &'a BTreeMap<String, Stored>,
    quantization: Quantization<'a>,
    /// How many block instances were made, those of ways that lost too.
    blocks: Cell<usize>,
}

/// What one way to bind a subtree gives. Ways that lose are dropped.
#[derive(Default)]
struct Draft {
    /// How many weights and states come before this draft's.
    before: (usize, usize),
    weights: Vec<Weight>,
    states: Vec<State>,
    faults: Vec<BindFault>,
    /// Stored tensors without which something required does not exist.
    missing: usize,
    claims: Vec<Claim>,
    ignores: Vec<String>,
}

impl Draft {
    /// A draft that goes on where this one stands, so that ids continue.
    fn fork(&self) -> Draft {
        let before = (self.before.0 + self.weights.len(), self.before.1 + self.states.len());
        Draft { before, ..Draft::default() }
    }

    fn join(&mut self, branch: Draft) {
        let Draft { before: _, weights, states, faults, missing, claims, ignores } = branch;
        self.weights.extend(weights);
        self.states.extend(states);
        self.faults.extend(faults);
        self.missing += missing;
        self.claims.extend(claims);
        self.ignores.extend(ignores);
    }

    fn weight(&mut self, weight: Weight) -> WeightId {
        self.weights.push(weight);
        WeightId(self.before.0 + self.weights.len() - 1)
    }

    fn state(&mut self, state: State) -> StateId {
        self.states.push(state);
        StateId(self.before.1 + self.states.len() - 1)
    }
}

/// More absent tensors than anyone reads of. A config that asks for 10^12 layers has to end in an error, not in all memory.
const HOPELESS: usize = 4096;
/// More blocks than any model has, also where every place of every block is tried.
const MAX_BLOCKS: usize = 1 << 18;

impl Binder<'_> {
    fn block(
        &self,
        id: BlockId,
        parameters: BTreeMap<String, Val>,
        path: &str,
        bases: &[Base],
        draft: &mut Draft,
    ) -> Instance {
        let block = self.program.block(id);
        self.blocks.set(self.blocks.get() + 1);
        if self.blocks.get() >= MAX_BLOCKS {
            return Instance {
                block: id,
                path: path.to_owned(),
                parameters,
                fields: vec![Slot::Absent; block.fields.len()],
            };
        }
        for (base, pattern) in bases.iter().flat_map(|b| block.ignores.iter().map(move |p| (b, p))) {
            draft.ignores.push(join(&base.path.replace("{}", "*"), pattern));
        }
        let mut instance = Instance { block: id, path: path.to_owned(), parameters, fields: Vec::new() };
        for field in &block.fields {
            let slot = match self.field(field, &instance, bases, draft) {
                Ok(slot) => slot,
                Err(error) => {
                    draft.faults.push(self.load_fault(&join(path, &field.name), error));
                    Slot::Absent
                }
            };
            instance.fields.push(slot);
        }
        instance
    }

    fn load_fault(&self, field: &str, error: LoadError) -> BindFault {
        BindFault::Load { field: field.to_owned(), error: error.located(&self.program.sources) }
    }

    fn field(&self, field: &Field, instance: &Instance, bases: &[Base], draft: &mut Draft) -> Result<Slot, LoadError> {
        let names = InstanceNames { program: self.program, resolved: self.resolved, instance };
        if let Some(condition) = &field.condition
            && !load::truth(condition, &names)?
        {
            return Ok(Slot::Absent);
        }
        match &field.kind {
            FieldKind::Let(value) => return load::evaluate(value, &names).map(Slot::Let),
            FieldKind::State(ty) => return self.state(field, ty, instance, draft).map(Slot::State),
            FieldKind::Derived { ty, .. } => return self.derived(field, ty, instance, draft).map(Slot::Weight),
            FieldKind::Tensor(_) | FieldKind::Matrix(_) | FieldKind::Child { .. } | FieldKind::Children { .. } => {}
        }
        // Most fields have one place, or none written, which is their name: nothing to choose.
        if let [] | [_] = field.stored.places.as_slice() {
            let only = field.stored.places.first().map_or(&[][..], Vec::as_slice);
            let below = place::below(bases, only, &field.name, &names)?;
            return self.at(field, instance, &below, draft);
        }
        let mut best: Option<(Draft, Slot)> = None;
        for place in &field.stored.places {
            let below = place::below(bases, place, &field.name, &names)?;
            let mut branch = draft.fork();
            let slot = self.at(field, instance, &below, &mut branch)?;
            let complete = branch.missing == 0;
            if best.as_ref().is_none_or(|(b, _)| branch.missing < b.missing) {
                best = Some((branch, slot));
            }
            if complete {
                break;
            }
        }
        Ok(match best {
            Some((branch, slot)) => {
                draft.join(branch);
                slot
            }
            None => Slot::Absent,
        })
    }

    /// A weight or child at one of its places.
    fn at(&self, field: &Field, instance: &Instance, bases: &[Base], draft: &mut Draft) -> Result<Slot, LoadError> {
        let path = join(&instance.path, &field.name);
        let names = InstanceNames { program: self.program, resolved: self.resolved, instance };
        let parameters = |block: BlockId, arguments: &[Load], local: Option<(LocalId, i64)>| {
            let named = self.program.block(block).parameters.iter().zip(arguments);
            let values = named.map(|(p, a)| Ok((p.name.clone(), evaluate_in(&names, local, a)?)));
            values.collect::<Result<_, LoadError>>()
        };
        match &field.kind {
            FieldKind::Tensor(TensorType { dtype, shape }) => {
                self.weight(field, shape, *dtype, false, instance, bases, draft).map(Slot::Weight)
            }
            FieldKind::Matrix(shape) => {
                self.weight(field, shape, DType::F, true, instance, bases, draft).map(Slot::Weight)
            }
            FieldKind::Child { block, arguments } => {
                let parameters = parameters(*block, arguments, None)?;
                Ok(Slot::Child(Box::new(self.block(*block, parameters, &path, bases, draft))))
            }
            FieldKind::Children { block, arguments, variable, low, high } => {
                let bound = |l: &Load| match load::evaluate(l, &names)? {
                    Val::Int(n) => Ok(n),
                    other => {
                        let kind = load::LoadErrorKind::Kind { expected: "an integer", found: other.to_string() };
                        Err(LoadError::new(l.span, kind))
                    }
                };
                let mut items = Vec::new();
                for i in bound(low)?..bound(high)? {
                    if draft.missing > HOPELESS || self.blocks.get() >= MAX_BLOCKS {
                        break;
                    }
                    let parameters = parameters(*block, arguments, Some((*variable, i)))?;
                    let index = i.to_string();
                    let below: Vec<Base> = bases.iter().map(|b| Base { path: join(&b.path, &index), ..*b }).collect();
                    items.push(self.block(*block, parameters, &join(&path, &index), &below, draft));
                }
                Ok(Slot::Children(items))
            }
            FieldKind::State(ty) => self.state(field, ty, instance, draft).map(Slot::State),
            FieldKind::Derived { ty, .. } => self.derived(field, ty, instance, draft).map(Slot::Weight),
            FieldKind::Let(value) => load::evaluate(value, &names).map(Slot::Let),
        }
    }

    fn state(
        &self,
        field: &Field,
        ty: &TensorType,
        instance: &Instance,
        draft: &mut Draft,
    ) -> Result<StateId, LoadError> {
        let names = InstanceNames { program: self.program, resolved: self.resolved, instance };
        let dims = ty.shape.dims.iter().map(|dim| match dim.as_atom().map(|atom| &atom.load.kind) {
            Some(LoadKind::Free(name)) if name == "B" => Ok(StateDim::Rows),
            Some(LoadKind::Free(name)) if name == "T" => Ok(StateDim::Positions),
            _ => load::extent(dim, field.span, &names).map(|n| StateDim::Size(n as u64)),
        });
        let dims = dims.collect::<Result<_, _>>()?;
        Ok(draft.state(State { path: join(&instance.path, &field.name), dtype: ty.dtype, dims }))
    }

    fn derived(
        &self,
        field: &Field,
        ty: &TensorType,
        instance: &Instance,
        draft: &mut Draft,
    ) -> Result<WeightId, LoadError> {
        let names = InstanceNames { program: self.program, resolved: self.resolved, instance };
        let shape = sizes(&ty.shape, field, &names)?;
        let path = join(&instance.path, &field.name);
        Ok(draft.weight(Weight { path, kind: WeightKind::Derived, dtype: ty.dtype, shape, parts: Vec::new() }))
    }

    #[expect(clippy::too_many_arguments, reason = "a weight is all of this, once")]
    fn weight(
        &self,
        field: &Field,
        shape: &Shape,
        dtype: DType,
        matrix: bool,
        instance: &Instance,
        bases: &[Base],
        draft: &mut Draft,
    ) -> Result<WeightId, LoadError> {
        let names = InstanceNames { program: self.program, resolved: self.resolved, instance };
        let sizes = sizes(shape, field, &names)?;
        let path = join(&instance.path, &field.name);
        let wanted =
            place::Wanted { path: &path, shape, sizes: &sizes, dtype, matrix, parts: bases.len(), names: &names };
        let (kind, parts) = self.parts(&wanted, bases, draft);
        Ok(draft.weight(Weight { path, kind, dtype, shape: sizes, parts }))
    }

    /// Faults that only the whole shows: double claims, and stored tensors or rows that nothing claims. Those that the family
    /// excuses are given back, by pattern.
    fn settle(&self, draft: &mut Draft) -> BTreeMap<String, Vec<String>> {
        let mut by_name: BTreeMap<&str, Vec<&Claim>> = BTreeMap::new();
        for claim in &draft.claims {
            by_name.entry(&claim.name).or_default().push(claim);
        }
        let mut told = Vec::new();
        for (name, claims) in &by_name {
            told.extend(fault::overlaps(name, claims, self.stored));
        }
        let mut ignored: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, stored) in self.stored.iter().filter(|(name, _)| !by_name.contains_key(name.as_str())) {
            match draft.ignores.iter().find(|pattern| pattern::matches(pattern, name)) {
                Some(pattern) => ignored.entry(pattern.clone()).or_default().push(name.clone()),
                None => told.push(BindFault::Unclaimed { name: name.clone(), shape: stored.shape.clone() }),
            }
        }
        let spare: Vec<&str> = self.stored.keys().map(String::as_str).filter(|k| !by_name.contains_key(k)).collect();
        // Edit distances of everything to everything would take long on a checkpoint of another family.
        for fault in draft.faults.iter_mut().take(32) {
            if let BindFault::Missing { name, near, .. } = fault {
                *near = suggest(name, spare.iter().copied()).map(str::to_owned);
            }
        }
        draft.faults.extend(told);
        let mut seen = BTreeSet::new();
        draft.faults.retain(|fault| seen.insert(fault.to_string()));
        ignored
    }
}

fn sizes(shape: &Shape, field: &Field, names: &InstanceNames<'_>) -> Result<Vec<u64>, LoadError> {
    shape.dims.iter().map(|d| load::extent(d, field.span, names).map(|n| n as u64)).collect()
}

#[cfg(test)]
mod tests;
