//! The domain of numbers: tensors, weights read when first used, states kept per slot.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    domain::{Application, Domain, Number, Primitive, Store, Typed},
    ops::{contract, elementwise, index, reduce, round::from_wide, shape},
    tensor::{Data, Tensor},
    walk::{Walk, Walked},
    weights::{ReadWeight, Reader},
};
use crate::{
    bind::{Bindings, State, StateDim, StateId, WeightId, WeightKind},
    ir::{DType, OpId},
};

/// How floats are held and computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// f32; results of `f16` and `bf16` are rounded to those.
    Single,
    /// f64 whatever the declared dtype: what the family means, without rounding.
    Double,
}

/// Given a probe's name and value, what stands for the value from there on; `None` for itself.
pub type Feed = Box<dyn FnMut(&str, &Tensor) -> Option<Tensor> + Send>;

pub(super) struct Numeric {
    pub precision: Precision,
    pub family: DType,
    pub bindings: Arc<Bindings>,
    pub read: ReadWeight,
    pub feed: Option<Feed>,
    pub weights: BTreeMap<WeightId, Store<Tensor>>,
    pub kept: BTreeMap<(OpId, Vec<WeightId>), Vec<Tensor>>,
    /// The state of one request, without the axis of rows; positions as far as they were shown. Absent is zero.
    pub held: BTreeMap<(StateId, usize), Tensor>,
    pub call: Call,
}

/// What lasts for one call.
#[derive(Default)]
pub(super) struct Call {
    pub slots: Vec<usize>,
    pub positions: usize,
    pub live: BTreeMap<StateId, Tensor>,
    pub written: Vec<StateId>,
    pub probes: Vec<(String, Tensor)>,
}

impl Numeric {
    pub fn new(bindings: Arc<Bindings>, family: DType, precision: Precision, read: ReadWeight) -> Numeric {
        Numeric {
            precision,
            family: if family == DType::F { DType::F32 } else { family },
            bindings,
            read,
            feed: None,
            weights: BTreeMap::new(),
            kept: BTreeMap::new(),
            held: BTreeMap::new(),
            call: Call::default(),
        }
    }

    /// A tensor as this run holds it: in an f64 run, floats of every declared dtype are f64.
    pub fn input(&self, tensor: Tensor) -> Tensor {
        let float = matches!(tensor.dtype(), DType::F64 | DType::F32 | DType::F16 | DType::BF16);
        match self.precision {
            Precision::Double if float => {
                let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
                Tensor::new(dtype, shape, tensor.to_f64()).unwrap_or(tensor)
            }
            Precision::Double | Precision::Single => tensor,
        }
    }

    /// A derived weight, computed with `F` = f32 from inputs that are not kept, and only then rounded to `dtype`.
    fn derived(&mut self, over: Walked<'_>, id: WeightId, dtype: DType) -> Result<Tensor, String> {
        let family = std::mem::replace(&mut self.family, DType::F32);
        let (weights, kept) = (std::mem::take(&mut self.weights), std::mem::take(&mut self.kept));
        let computed = Walk::new(over, self, 0).derived(id);
        (self.family, self.weights, self.kept) = (family, weights, kept);
        let wide = computed.map_err(|fault| fault.to_string())?;
        if wide.dtype() == dtype {
            return Ok(wide);
        }
        self.made(wide.shape(), dtype, self.data(&wide.to_f64(), dtype))
    }

    fn data(&self, wide: &[f64], dtype: DType) -> Data {
        from_wide(wide, dtype, self.precision == Precision::Double)
    }

    fn made(&self, shape: &[usize], dtype: DType, data: Data) -> Result<Tensor, String> {
        Tensor::new(dtype, shape.to_vec(), data).ok_or_else(|| format!("the elements do not fill {dtype:?}{shape:?}"))
    }

    fn numbers(&self, numbers: &[Number], dtype: DType) -> Data {
        // i64 to i32 or u32 by way of f64 is exact: those have 32 bits, f64 has 53.
        let wide: Vec<f64> = numbers
            .iter()
            .map(|n| match n {
                Number::Int(n) => *n as f64,
                Number::Float(x) => *x,
                Number::Bool(b) => f64::from(u8::from(*b)),
            })
            .collect();
        self.data(&wide, dtype)
    }

    fn state_dtype(&self, state: &State) -> DType {
        if state.dtype == DType::F { self.family } else { state.dtype }
    }

    /// The shape of a state in this call, with the axis of rows first.
    fn shape(&self, state: &State, positions: usize) -> Vec<usize> {
        let rows = self.call.slots.len();
        let dims = state.dims.iter().map(|d| match d {
            StateDim::Rows => rows,
            StateDim::Positions => positions,
            StateDim::Size(n) => *n as usize,
        });
        dims.collect()
    }

    fn state(&self, id: StateId) -> Result<&State, String> {
        self.bindings.states.get(id.0).ok_or_else(|| format!("there is no state {}", id.0))
    }

    /// Keep what the call wrote. Positions beyond those shown stay as they were.
    pub fn commit(&mut self) -> Result<(), String> {
        let Call { slots, live, written, .. } = std::mem::take(&mut self.call);
        for id in written {
            let Some(whole) = live.get(&id) else { continue };
            let axis = self.state(id)?.positions();
            for (row, slot) in slots.iter().enumerate() {
                let mut cuts: Vec<_> =
                    whole.shape().iter().map(|n| super::Cut { start: 0, end: *n, keep: true }).collect();
                if let Some(first) = cuts.first_mut() {
                    *first = super::Cut { start: row, end: row + 1, keep: false };
                }
                let mut new = shape::slice(whole, &cuts)?;
                // The row axis is gone, so the axis of positions is one to the left.
                if let (Some(axis), Some(old)) = (axis.and_then(|a| a.checked_sub(1)), self.held.get(&(id, *slot)))
                    && old.shape()[axis] > new.shape()[axis]
                {
                    new = shape::concat(&[&new, &range(old, axis, new.shape()[axis], old.shape()[axis])?], axis)?;
                }
                self.held.insert((id, *slot), new);
            }
        }
        Ok(())
    }
}

/// `x` from `start` to `end` along one axis.
pub(super) fn range(x: &Tensor, axis: usize, start: usize, end: usize) -> Result<Tensor, String> {
    let cuts = x.shape().iter().enumerate().map(|(a, n)| match a == axis {
        true => super::Cut { start, end, keep: true },
        false => super::Cut { start: 0, end: *n, keep: true },
    });
    shape::slice(x, &cuts.collect::<Vec<_>>())
}

impl Domain for Numeric {
    type Tensor = Tensor;

    fn family_dtype(&self) -> DType {
        self.family
    }

    fn apply(&mut self, application: &Application<'_>, operands: &[&Tensor]) -> Result<Tensor, String> {
        let &Application { primitive, dtype, shape, .. } = application;
        let count = |n: usize| format!("takes {n} operands, not {}", operands.len());
        let one = || if let [x] = operands { Ok(*x) } else { Err(count(1)) };
        let two = || if let [x, y] = operands { Ok((*x, *y)) } else { Err(count(2)) };
        let three = || if let [x, y, z] = operands { Ok((*x, *y, *z)) } else { Err(count(3)) };
        match primitive {
            Primitive::Unary(op) => self.made(shape, dtype, elementwise::unary(*op, one()?)?),
            Primitive::Binary(op) => {
                let (x, y) = two()?;
                self.made(shape, dtype, elementwise::binary(*op, shape, x, y)?)
            }
            Primitive::Compare(op) => {
                let (x, y) = two()?;
                self.made(shape, dtype, elementwise::compare(*op, shape, x, y)?)
            }
            Primitive::Select => {
                let (c, x, y) = three()?;
                self.made(shape, dtype, elementwise::select(shape, c, x, y)?)
            }
            Primitive::Convert => self.made(shape, dtype, self.data(&one()?.to_f64(), dtype)),
            Primitive::Constant(number) => self.made(shape, dtype, self.numbers(&[*number], dtype)),
            Primitive::ConstantList(numbers) => self.made(shape, dtype, self.numbers(numbers, dtype)),
            Primitive::Iota => {
                let length = shape.iter().product::<usize>();
                let length = i32::try_from(length).map_err(|_| format!("{length} numbers do not fit into i32"))?;
                self.made(shape, dtype, (0..length).collect::<Vec<i32>>().into())
            }
            Primitive::Reshape => one()?.reshaped(shape),
            Primitive::Transpose(permutation) => shape::transpose(one()?, permutation),
            Primitive::Broadcast => shape::broadcast(one()?, shape),
            Primitive::Concat { axis } => shape::concat(operands, *axis),
            Primitive::Slice(cuts) => shape::slice(one()?, cuts),
            Primitive::Reduce { op, axes } => reduce::reduce(*op, one()?, axes),
            Primitive::Dot => two().and_then(|(x, w)| contract::dot(x, w)),
            Primitive::Matmul => two().and_then(|(x, y)| contract::matmul(x, y)),
            Primitive::Take { axis } => two().and_then(|(x, ids)| index::take(x, ids, *axis)),
            Primitive::TakeAlong { axis } => two().and_then(|(x, ids)| index::take_along(x, ids, *axis)),
            Primitive::TopKValues(k) => self.made(shape, dtype, reduce::top_k(one()?, *k, false)?),
            Primitive::TopKIndices(k) => self.made(shape, dtype, reduce::top_k(one()?, *k, true)?),
            Primitive::Update { axis } => {
                three().and_then(|(state, x, positions)| index::update(state, x, positions, *axis))
            }
        }
    }

    fn weight(&mut self, over: Walked<'_>, id: WeightId) -> Result<Store<Tensor>, String> {
        if let Some(store) = self.weights.get(&id) {
            return Ok(store.clone());
        }
        let weight = self.bindings.weights.get(id.0).ok_or_else(|| format!("there is no weight {}", id.0))?;
        let dtype = if weight.dtype == DType::F { self.family } else { weight.dtype };
        let store = match weight.kind {
            WeightKind::Derived => Store::Dense(self.derived(over, id, dtype)?),
            WeightKind::Tensor | WeightKind::Matrix | WeightKind::Packed { .. } => {
                Reader { read: &self.read, precision: self.precision }.weight(weight, dtype)?
            }
        };
        self.weights.insert(id, store.clone());
        Ok(store)
    }

    fn read(&mut self, id: StateId) -> Result<Tensor, String> {
        if let Some(live) = self.call.live.get(&id) {
            return Ok(live.clone());
        }
        let state = self.state(id)?;
        let (positions, axis) = (self.call.positions, state.positions());
        let dtype = self.state_dtype(state);
        let row_shape: Vec<usize> = [&[1], self.shape(state, positions).get(1..).unwrap_or_default()].concat();
        let zeros = |shape: &[usize]| {
            let count = shape.iter().product();
            self.made(shape, dtype, self.data(&vec![0.0; count], dtype))
        };
        let mut rows = Vec::new();
        for slot in &self.call.slots {
            let Some(held) = self.held.get(&(id, *slot)) else {
                rows.push(zeros(&row_shape)?);
                continue;
            };
            let mut row = held.reshaped(&[&[1], held.shape()].concat())?;
            if let Some(axis) = axis {
                let known = row.shape()[axis];
                if known > positions {
                    row = range(&row, axis, 0, positions)?;
                } else if known < positions {
                    let mut rest = row.shape().to_vec();
                    rest[axis] = positions - known;
                    row = shape::concat(&[&row, &zeros(&rest)?], axis)?;
                }
            }
            rows.push(row);
        }
        let whole = shape::concat(&rows.iter().collect::<Vec<_>>(), 0)?;
        self.call.live.insert(id, whole.clone());
        Ok(whole)
    }

    fn write(&mut self, id: StateId, value: Tensor) -> Result<(), String> {
        let state = self.state(id)?;
        let (dtype, shape) = (self.state_dtype(state), self.shape(state, self.call.positions));
        if value.dtype() != dtype || value.shape() != shape {
            let found = (value.dtype(), value.shape().to_vec());
            return Err(format!("state `{}` is {dtype:?}{shape:?}, not {:?}{:?}", state.path, found.0, found.1));
        }
        self.call.live.insert(id, value);
        if !self.call.written.contains(&id) {
            self.call.written.push(id);
        }
        Ok(())
    }

    fn probe(&mut self, name: String, value: &Tensor) -> Result<Option<Tensor>, String> {
        if self.call.probes.iter().any(|(n, _)| *n == name) {
            return Err(format!("the probe name {name:?} occurs twice in this call"));
        }
        let fed = self.feed.as_mut().and_then(|feed| feed(&name, value));
        self.call.probes.push((name, value.clone()));
        Ok(fed)
    }

    fn recall(&self, op: OpId, weights: &[WeightId]) -> Option<Vec<Tensor>> {
        if weights.is_empty() {
            return None;
        }
        self.kept.get(&(op, weights.to_vec())).cloned()
    }

    fn keep(&mut self, op: OpId, weights: &[WeightId], results: &[Tensor]) {
        self.kept.insert((op, weights.to_vec()), results.to_vec());
    }
}
