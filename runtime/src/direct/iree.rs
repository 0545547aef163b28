//! IREE: each primitive is the method of [`Build`] that generated code calls. Many calls are recorded into one graph, which is
//! compiled and called once; every tensor that they read is a parameter of it.

use std::{cell::OnceCell, collections::BTreeMap, sync::Arc};

use mgraph_dsl::{
    bind::{StateId, WeightId},
    interpret::{Application, Domain, Number, Primitive, Store, Walked},
    ir::{self, Binary, Reduce, TwinBackend, Unary},
};

use super::{
    GraphCall, Outcome, Settings, Work,
    around::{self, Around, Backend, exactly},
    mlx::{Numbers, cuts, list, signed},
    twins,
    value::{Value, sizes},
};
use crate::{
    error::{Context as _, Result, ensure},
    hlo::{Build, BuildOptions, V, compile, emit, iree::Runtime},
    probes::Probes,
    session::Numerics,
    tensor::{DType, Tensor},
    weights::concrete,
};

/// All in one module; what each gives. A module that does not compile or run is cut in halves until the guilty call is alone.
pub(super) fn run(settings: &Settings, works: &[Work<'_>]) -> Vec<Result<Outcome>> {
    // What cannot be recorded would spoil the graph of the others.
    let alone = |work: &Work<'_>| record(settings, &mut build(settings, work), &mut Vec::new(), work).map(drop);
    let mut outcomes: Vec<Result<Outcome>> = works.iter().map(|work| alone(work).map(|()| Outcome::none())).collect();
    let sound: Vec<usize> = (0..works.len()).filter(|at| outcomes[*at].is_ok()).collect();
    let chosen: Vec<Work<'_>> = sound.iter().map(|at| works[*at]).collect();
    for (at, outcome) in sound.into_iter().zip(halved(settings, &chosen)) {
        outcomes[at] = outcome;
    }
    outcomes
}

fn halved(settings: &Settings, works: &[Work<'_>]) -> Vec<Result<Outcome>> {
    match (together(settings, works), works.len()) {
        (Ok(outcomes), _) => outcomes.into_iter().map(Ok).collect(),
        (Err(error), 1) => vec![Err(error)],
        (Err(_), count) => {
            let (first, second) = works.split_at(count / 2);
            let mut outcomes = halved(settings, first);
            outcomes.extend(halved(settings, second));
            outcomes
        }
    }
}

/// What IREE's compiler is given of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct Emitted {
    /// StableHLO: one function, `main`, which gives the results and then the probes.
    pub text: String,
    /// Its arguments in order.
    pub inputs: Vec<Tensor>,
}

pub(super) fn emitted(settings: &Settings, work: &Work<'_>) -> Result<Emitted> {
    let (mut recorder, mut inputs) = (build(settings, work), Vec::new());
    let call = record(settings, &mut recorder, &mut inputs, work)?;
    let text = emit::text(&recorder.finish(&call.outputs().collect::<Vec<_>>())?)?;
    Ok(Emitted { text, inputs })
}

/// In one module.
fn together(settings: &Settings, works: &[Work<'_>]) -> Result<Vec<Outcome>> {
    let Some(first) = works.first() else { return Ok(Vec::new()) };
    let (mut recorder, mut inputs, mut recorded) = (build(settings, first), Vec::new(), Vec::new());
    for work in works {
        recorded.push(record(settings, &mut recorder, &mut inputs, work)?);
    }
    let outputs: Vec<V> = recorded.iter().flat_map(Recorded::outputs).collect();
    let mut found = call(recorder, works, &outputs, &inputs)?.into_iter();
    let mut next = || found.next().context("IREE gave fewer results than the graph has");
    let outcome = |call: &Recorded| {
        let results = call.results.iter().map(|_| next()).collect::<Result<_>>()?;
        let probes = call.probes.iter().map(|(name, _)| Ok((name.clone(), next()?))).collect::<Result<_>>()?;
        Ok(Outcome { results, probes })
    };
    recorded.iter().map(outcome).collect()
}

fn call(recorder: Build, works: &[Work<'_>], outputs: &[V], inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    thread_local! {
        /// Belongs to its thread, as everything of IREE does.
        static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
    }
    let graph = recorder.finish(outputs)?;
    let flags = match works {
        [Work::Graph(call)] => compile::flags(tokens(call), packed(call)),
        _ => compile::flags(1, false),
    };
    let module = compile::compile(&emit::text(&graph)?, &flags)?;
    RUNTIME.with(|runtime| {
        let runtime = match runtime.get() {
            Some(runtime) => runtime,
            None => {
                let fresh = Runtime::new()?;
                runtime.get_or_init(|| fresh)
            }
        };
        let results = graph.results.iter().map(|r| graph.ty(r.value).clone()).collect();
        let program = runtime.load(&module, results)?;
        let arguments = inputs.iter().map(|tensor| runtime.upload(tensor)).collect::<Result<_>>()?;
        program.call(arguments)?.iter().map(|buffer| runtime.download(buffer)).collect()
    })
}

/// Positions times rows of the call, by which a session chooses flags: of `tokens[B, S]` and `x[B, S, ..]`, whichever is first.
fn tokens(call: &GraphCall<'_>) -> usize {
    let first = call.program.graph(call.graph).and_then(|function| function.parameters.first());
    let first = first.and_then(|first| call.inputs.iter().find(|(name, _)| *name == first.name));
    first.map_or(1, |(_, tensor)| tensor.shape.iter().take(2).product())
}

fn packed(call: &GraphCall<'_>) -> bool {
    call.bindings.weights.iter().any(|weight| matches!(weight.kind, mgraph_dsl::bind::WeightKind::Packed { .. }))
}

fn build(settings: &Settings, work: &Work<'_>) -> Build {
    let positions = match work {
        Work::Op { .. } => 0,
        Work::Graph(call) => call.positions as i64,
    };
    Build::new(BuildOptions {
        float: settings.float,
        fused: settings.numerics == Numerics::Fused,
        probes: Probes::Unread,
        positions,
        weights: Arc::new(BTreeMap::new()),
        windows: Default::default(),
        states: Arc::new(BTreeMap::new()),
    })
}

/// What one call became within a graph.
struct Recorded {
    results: Vec<V>,
    probes: Vec<(String, V)>,
}

impl Recorded {
    fn outputs(&self) -> impl Iterator<Item = V> {
        self.results.iter().chain(self.probes.iter().map(|(_, v)| v)).copied()
    }
}

fn record(settings: &Settings, build: &mut Build, inputs: &mut Vec<Tensor>, work: &Work<'_>) -> Result<Recorded> {
    let call = if let Work::Graph(call) = work { Some(*call) } else { None };
    let mut domain = Hlo { build, inputs, float: settings.float, call, around: Around::new() };
    let results = around::walk(&mut domain, work, twins(settings, TwinBackend::Hlo))?;
    let probes = domain.around.probes.into_iter().map(|(name, value)| (name, value.held)).collect();
    Ok(Recorded { results: results.into_iter().map(|value| value.held).collect(), probes })
}

struct Hlo<'c, 'b> {
    build: &'b mut Build,
    /// Of the graph, in order.
    inputs: &'b mut Vec<Tensor>,
    float: DType,
    call: Option<&'c GraphCall<'c>>,
    around: Around<Value<V>>,
}

impl Hlo<'_, '_> {
    fn value(&self, v: V) -> Value<V> {
        let ty = self.build.ty(v);
        Value::new(v, ty.dtype, &ty.shape)
    }
}

impl Backend for Hlo<'_, '_> {
    fn bring(&mut self, tensor: &Tensor) -> Result<Value<V>> {
        let wanted = tensor.len() * tensor.dtype.size();
        ensure!(tensor.bytes.len() == wanted, "{} bytes where {wanted} fill the shape", tensor.bytes.len());
        self.inputs.push(tensor.clone());
        let v = self.build.input(tensor.dtype, &sizes(&tensor.shape));
        Ok(self.value(v))
    }

    fn around(&mut self) -> &mut Around<Value<V>> {
        &mut self.around
    }
}

impl Domain for Hlo<'_, '_> {
    type Tensor = Value<V>;

    fn family_dtype(&self) -> ir::DType {
        around::family(self.float)
    }

    fn apply(&mut self, application: &Application<'_>, operands: &[&Value<V>]) -> Result<Value<V>, String> {
        let dtype = concrete(application.dtype, self.float);
        let v = primitive(self.build, application.primitive, dtype, &sizes(application.shape), operands)?;
        match self.build.fault() {
            Some(fault) => Err(fault.to_owned()),
            None => Ok(self.value(v)),
        }
    }

    fn weight(&mut self, _: Walked<'_>, id: WeightId) -> Result<Store<Value<V>>, String> {
        around::weight(self, self.call, id)
    }

    fn read(&mut self, id: StateId) -> Result<Value<V>, String> {
        around::read(self, self.call, self.float, id)
    }

    fn write(&mut self, id: StateId, value: Value<V>) -> Result<(), String> {
        self.around.states.insert(id, value);
        Ok(())
    }

    fn probe(&mut self, name: String, value: &Value<V>) -> Result<Option<Value<V>>, String> {
        around::probe(self, name, value)?;
        Ok(None)
    }
}

fn primitive(cx: &mut Build, op: &Primitive, dtype: DType, shape: &[i64], operands: &[&Value<V>]) -> Result<V, String> {
    let one = || exactly(operands).map(|[x]| x.held);
    let two = || exactly(operands).map(|[x, y]| (x.held, y.held));
    let three = || exactly(operands).map(|[x, y, z]| (x.held, y.held, z.held));
    Ok(match op {
        Primitive::Unary(op) => {
            let x = one()?;
            match op {
                Unary::Negate => cx.negate(x),
                Unary::Abs => cx.abs(x),
                Unary::Exp => cx.exponential(x),
                Unary::Log => cx.log(x),
                Unary::Sqrt => cx.sqrt(x),
                Unary::Rsqrt => cx.rsqrt(x),
                Unary::Tanh => cx.tanh(x),
                Unary::Sin => cx.sine(x),
                Unary::Cos => cx.cosine(x),
                Unary::Sigmoid => cx.logistic(x),
                Unary::Erf => cx.erf(x),
                Unary::Not => cx.not(x),
            }
        }
        Primitive::Binary(op) => {
            let (x, y) = two()?;
            match op {
                Binary::Add => cx.add(x, y),
                Binary::Subtract => cx.subtract(x, y),
                Binary::Multiply => cx.multiply(x, y),
                Binary::Divide => cx.divide(x, y),
                Binary::Remainder => cx.remainder(x, y),
                Binary::Min => cx.minimum(x, y),
                Binary::Max => cx.maximum(x, y),
                Binary::And => cx.and(x, y),
                Binary::Or => cx.or(x, y),
                Binary::ShiftLeft => cx.shift_left(x, y),
                Binary::ShiftRight => cx.shift_right(x, y),
            }
        }
        Primitive::Compare(op) => {
            let (x, y) = two()?;
            cx.compare(*op, x, y)
        }
        Primitive::Select => {
            let (c, x, y) = three()?;
            cx.select(c, x, y)
        }
        Primitive::Convert => cx.convert(one()?, dtype),
        Primitive::Constant(Number::Float(number)) => cx.number(*number, dtype),
        Primitive::Constant(Number::Int(number)) => cx.integer(*number, dtype),
        Primitive::Constant(Number::Bool(truth)) => cx.integer(i64::from(*truth), dtype),
        Primitive::ConstantList(numbers) => match list(numbers) {
            Numbers::Floats(floats) => cx.numbers(&floats, dtype),
            Numbers::Ints(ints) => cx.integers(&ints, dtype),
        },
        Primitive::Iota => cx.iota(shape.iter().product()),
        Primitive::Reshape => cx.reshape(one()?, shape),
        Primitive::Transpose(permutation) => cx.transpose(one()?, permutation),
        Primitive::Broadcast => cx.broadcast(one()?, shape),
        Primitive::Concat { axis } => {
            let parts: Vec<V> = operands.iter().map(|part| part.held).collect();
            cx.concat(&parts, *axis as i32)
        }
        Primitive::Slice(slots) => cx.cut(one()?, &cuts(slots)),
        Primitive::Reduce { op, axes } => {
            let (x, axes) = (one()?, signed(axes));
            match op {
                Reduce::Sum => cx.sum(x, &axes),
                Reduce::Maximum => cx.maximum_along(x, &axes),
                Reduce::Any => cx.any_along(x, &axes),
            }
        }
        Primitive::Dot => {
            let (x, w) = two()?;
            cx.dot(x, w)
        }
        Primitive::Matmul => {
            let (x, y) = two()?;
            cx.matmul(x, y)
        }
        Primitive::Take { axis } => {
            let (x, ids) = two()?;
            cx.take(x, ids, *axis as i32)
        }
        Primitive::TakeAlong { axis } => {
            let (x, ids) = two()?;
            cx.take_along(x, ids, *axis as i32)
        }
        Primitive::TopKValues(k) => cx.top_k_values(one()?, *k as i64),
        Primitive::TopKIndices(k) => cx.top_k_indices(one()?, *k as i64),
        Primitive::Update { axis } => {
            let (state, x, positions) = three()?;
            cx.update(state, x, positions, *axis as i32)
        }
    })
}
