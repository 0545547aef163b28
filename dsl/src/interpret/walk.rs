//! The walk over functions, in order of evaluation, for any domain.

use super::{
    domain::{Application, Domain, Matrix, Primitive, Store, Typed},
    fault::Fault,
    frame::{Cell, Frame},
    prepare::{Unprepared, prepare},
};
use crate::{
    bind::{Bindings, Instance, Slot, WeightId},
    config::Resolved,
    ir::{
        Argument, Carried, Collected, DType, DimSource, FieldId, FieldKind, FloatSource, Function, Load, LoopOver,
        OpId, OpKind, ParameterKind, PatternPart, Prim, Program, Receiver, Region, Shape, Statement, TwinBackend, Type,
        ValueId,
    },
    load::{self, LoadError, LoadErrorKind, Val},
    source::Span,
};

/// What a walk reads.
#[derive(Clone, Copy)]
pub struct Walked<'p> {
    pub program: &'p Program,
    pub resolved: &'p Resolved,
    pub bindings: &'p Bindings,
}

pub struct Walk<'p, 'd, D: Domain> {
    pub over: Walked<'p>,
    pub domain: &'d mut D,
    /// `T`: how many positions states show in this call.
    pub positions: usize,
    /// Ops are replaced by what this backend's mode `fused` takes: other ops, and the kernels that the domain has.
    pub twins: Option<TwinBackend>,
    probes: usize,
}

pub(super) type Values<D> = Vec<Cell<<D as Domain>::Tensor>>;

/// An argument on its way into a function.
#[derive(Debug, Clone)]
pub enum Operand<T> {
    Tensor(T),
    Matrix(Matrix<T>),
    List(Vec<T>),
    Load(Val),
}

impl<T> From<Cell<T>> for Operand<T> {
    fn from(cell: Cell<T>) -> Self {
        match cell {
            Cell::Tensor(tensor) => Operand::Tensor(tensor),
            Cell::Matrix(matrix) => Operand::Matrix(matrix),
            Cell::List(items) => Operand::List(items),
        }
    }
}

impl<'p, 'd, D: Domain> Walk<'p, 'd, D> {
    pub fn new(over: Walked<'p>, domain: &'d mut D, positions: usize) -> Self {
        Walk { over, domain, positions, twins: None, probes: 0 }
    }

    /// Call a graph of the model. `inputs` are by parameter name, in any order, each exactly once.
    pub fn graph(&mut self, name: &str, inputs: &[(&str, D::Tensor)]) -> Result<Vec<D::Tensor>, Fault> {
        let program = self.over.program;
        let model = program.block(program.model);
        let Some(function) = program.graph(name) else {
            let graphs: Vec<&str> = model.functions.iter().filter(|f| f.graph).map(|f| f.name.as_str()).collect();
            let message = format!("family {} has no graph `{name}`; it has {}", program.name, graphs.join(", "));
            return Err(Fault::new(&program.sources, model.span, message));
        };
        let fault = |message: String| Fault::new(&program.sources, function.span, message);
        let mut passed = Vec::new();
        for parameter in &function.parameters {
            let found = inputs.iter().find(|(n, _)| *n == parameter.name);
            let (_, tensor) = found.ok_or_else(|| fault(format!("graph `{name}` needs input `{}`", parameter.name)))?;
            passed.push(Operand::Tensor(tensor.clone()));
        }
        if let Some((extra, _)) = inputs.iter().find(|(n, _)| !function.parameters.iter().any(|p| p.name == *n)) {
            return Err(fault(format!("graph `{name}` has no input `{extra}`")));
        }
        let root = &self.over.bindings.root;
        let results = self.function(function, Some(root), format!("model.{name}"), passed, function.span)?;
        Ok(tensors(results))
    }

    /// Call one op of the program.
    pub fn named_op(&mut self, name: &str, operands: Vec<Operand<D::Tensor>>) -> Result<Vec<D::Tensor>, Fault> {
        let program = self.over.program;
        let Some(at) = program.ops.iter().position(|op| op.name == name) else {
            let span = program.block(program.model).span;
            return Err(self.fault(span, format!("family {} reaches no op `{name}`", program.name)));
        };
        let results = self.op(OpId(at as u32), operands, program.ops[at].span)?;
        Ok(tensors(results))
    }

    /// The value of a derived weight, with `F` as the domain has it at present.
    pub fn derived(&mut self, id: WeightId) -> Result<D::Tensor, Fault> {
        let Walked { program, bindings, .. } = self.over;
        let missing = || {
            let span = program.block(program.model).span;
            let path = bindings.weights.get(id.0).map_or("", |weight| &weight.path);
            Fault::new(&program.sources, span, format!("the weight `{path}` is not derived"))
        };
        let (instance, field) = bindings.root.owner(id).ok_or_else(missing)?;
        let block = program.block(instance.block);
        let FieldKind::Derived { body, .. } = &block.field(field).kind else { return Err(missing()) };
        let origin = format!("{}.{}", block.name, body.name);
        let mut results = tensors(self.function(body, Some(instance), origin, Vec::new(), body.span)?);
        results.pop().ok_or_else(missing)
    }

    pub(super) fn fault(&self, span: Span, message: impl Into<String>) -> Fault {
        Fault::new(&self.over.program.sources, span, message)
    }

    pub(super) fn load(&self, error: LoadError) -> Fault {
        Fault::load(&self.over.program.sources, &error)
    }

    pub(super) fn evaluate(&self, load: &Load, frame: &Frame<'_, D::Tensor>) -> Result<Val, Fault> {
        load::evaluate(load, frame).map_err(|e| self.load(e))
    }

    fn shape(&self, shape: &Shape, span: Span, frame: &Frame<'_, D::Tensor>) -> Result<Vec<usize>, Fault> {
        let pack: &[usize] = if shape.pack { &frame.pack } else { &[] };
        let dims = shape.dims.iter().map(|dim| load::extent(dim, span, frame).map_err(|e| self.load(e)));
        pack.iter().map(|n| Ok(*n)).chain(dims).collect()
    }

    /// Holds a value against its declared type.
    pub(super) fn check(
        &self,
        value: ValueId,
        cell: &Cell<D::Tensor>,
        frame: &Frame<'_, D::Tensor>,
        what: &str,
    ) -> Result<(), Fault> {
        let declared = frame.function.value(value);
        let fault = |found: String, wanted: String| {
            self.fault(declared.span, format!("{what} is {found} where {wanted} is declared"))
        };
        let items = match (&declared.ty, cell) {
            (Type::Tensor(_), Cell::Tensor(tensor)) => std::slice::from_ref(tensor),
            (Type::Matrix(_), Cell::Matrix(_)) => &[],
            (Type::List { length, .. }, Cell::List(items)) => {
                let expected = load::extent(length, declared.span, frame).map_err(|e| self.load(e))?;
                if expected != items.len() {
                    return Err(fault(format!("a list of {}", items.len()), format!("one of {expected}")));
                }
                items
            }
            (ty, cell) => {
                let wanted = match ty {
                    Type::Tensor(_) => "a tensor",
                    Type::Matrix(_) => "a matrix",
                    Type::List { .. } => "a list",
                };
                return Err(fault(cell.kind().into(), wanted.into()));
            }
        };
        let expected = self.shape(declared.ty.shape(), declared.span, frame)?;
        let name = |dtype: Option<DType>| dtype.map_or("Q", DType::name);
        let dtype = declared.ty.dtype().map(|dtype| frame.dtype(dtype));
        let different = |found: Option<DType>, shape: &[usize]| {
            fault(format!("{}{shape:?}", name(found)), format!("{}{expected:?}", name(dtype)))
        };
        if let Cell::Matrix(matrix) = cell
            && matrix.shape != expected
        {
            return Err(different(None, &matrix.shape));
        }
        match items.iter().find(|item| Some(item.dtype()) != dtype || item.shape() != expected) {
            Some(item) => Err(different(Some(item.dtype()), item.shape())),
            None => Ok(()),
        }
    }

    fn function(
        &mut self,
        function: &'p Function,
        instance: Option<&'p Instance>,
        origin: String,
        arguments: Vec<Operand<D::Tensor>>,
        span: Span,
    ) -> Result<Values<D>, Fault> {
        let mut frame = self.frame(function, instance, origin, arguments, span)?;
        let results = self.region(&function.body, &mut frame)?;
        for (i, (value, cell)) in function.body.results.iter().zip(&results).enumerate() {
            self.check(*value, cell, &frame, &format!("result {i} of `{}`", frame.origin))?;
        }
        Ok(results)
    }

    /// Parameters bound; then the sizes they tell; then each held against its declaration.
    fn frame(
        &mut self,
        function: &'p Function,
        instance: Option<&'p Instance>,
        origin: String,
        arguments: Vec<Operand<D::Tensor>>,
        span: Span,
    ) -> Result<Frame<'p, D::Tensor>, Fault> {
        if arguments.len() != function.parameters.len() {
            let (given, wanted) = (arguments.len(), function.parameters.len());
            return Err(self.fault(span, format!("`{origin}` takes {wanted} arguments and is given {given}")));
        }
        let mut frame = Frame {
            program: self.over.program,
            resolved: self.over.resolved,
            function,
            instance,
            origin,
            parameters: Vec::new(),
            locals: Default::default(),
            items: Default::default(),
            free: Vec::new(),
            pack: Vec::new(),
            float: self.domain.family_dtype(),
            values: (0..function.values.len()).map(|_| None).collect(),
        };
        let mut shapes: Vec<Option<Vec<usize>>> = Vec::new();
        let mut lengths: Vec<Option<usize>> = Vec::new();
        let mut values = Vec::new();
        for (at, (parameter, argument)) in function.parameters.iter().zip(arguments).enumerate() {
            let (value, cell) = match (&parameter.kind, argument) {
                (ParameterKind::Load(_), Operand::Load(value)) => {
                    shapes.push(None);
                    lengths.push(value.as_list().map(<[Val]>::len));
                    frame.parameters.push((&parameter.name, value));
                    continue;
                }
                (ParameterKind::Value(value), Operand::Tensor(tensor)) => (*value, Cell::Tensor(tensor)),
                (ParameterKind::Value(value), Operand::Matrix(matrix)) => (*value, Cell::Matrix(matrix)),
                (ParameterKind::Value(value), Operand::List(items)) => (*value, Cell::List(items)),
                (ParameterKind::Value(_), Operand::Load(_))
                | (ParameterKind::Load(_), Operand::Tensor(_) | Operand::Matrix(_) | Operand::List(_)) => {
                    let message = format!("argument `{}` of `{}` is of the wrong stage", parameter.name, frame.origin);
                    return Err(self.fault(span, message));
                }
            };
            let (first, length) = match &cell {
                Cell::Tensor(tensor) => (Some(tensor), None),
                Cell::Matrix(_) => (None, None),
                Cell::List(items) => (items.first(), Some(items.len())),
            };
            if let (FloatSource::Parameter(source), Some(first)) = (function.float, first)
                && source == at
            {
                frame.float = first.dtype();
            }
            shapes.push(if length == Some(0) { None } else { Some(cell.shape().to_vec()) });
            lengths.push(length);
            values.push((value, parameter.name.as_str()));
            frame.set(value, cell);
        }
        for dim in &function.free {
            let size = match &dim.source {
                DimSource::Axis { parameter, axis } => shapes.get(*parameter).and_then(|shape| {
                    let shape = shape.as_ref()?;
                    let at =
                        if *axis < 0 { shape.len().checked_sub(axis.unsigned_abs() as usize)? } else { *axis as usize };
                    shape.get(at).copied()
                }),
                DimSource::Length { parameter } => lengths.get(*parameter).copied().flatten(),
                DimSource::Positions => Some(self.positions),
            };
            let size = size.ok_or_else(|| {
                self.fault(span, format!("the size `{}` of `{}` cannot be read", dim.name, frame.origin))
            })?;
            frame.free.push((&dim.name, size as i64));
        }
        if let Some(pack) = &function.pack {
            let shape = shapes.get(pack.parameter).cloned().flatten().unwrap_or_default();
            frame.pack = shape[..shape.len().saturating_sub(pack.trailing)].to_vec();
        }
        for (value, name) in values {
            if let Some(cell) = frame.get(value) {
                self.check(value, cell, &frame, &format!("argument `{name}` of `{}`", frame.origin))?;
            }
        }
        Ok(frame)
    }

    fn region(&mut self, region: &'p Region, frame: &mut Frame<'p, D::Tensor>) -> Result<Values<D>, Fault> {
        for statement in &region.statements {
            self.statement(statement, frame)?;
        }
        region.results.iter().map(|value| self.cell(*value, frame)).collect()
    }

    pub(super) fn cell(&self, value: ValueId, frame: &Frame<'_, D::Tensor>) -> Result<Cell<D::Tensor>, Fault> {
        frame.get(value).cloned().ok_or_else(|| {
            let message = format!("value {} of `{}` is used before it is computed", value.0, frame.origin);
            self.fault(frame.function.span, message)
        })
    }

    fn tensor(&self, value: ValueId, frame: &Frame<'_, D::Tensor>) -> Result<D::Tensor, Fault> {
        match self.cell(value, frame)? {
            Cell::Tensor(tensor) => Ok(tensor),
            other @ (Cell::Matrix(_) | Cell::List(_)) => {
                let span = frame.function.value(value).span;
                Err(self.fault(span, format!("value {} of `{}` is {}", value.0, frame.origin, other.kind())))
            }
        }
    }

    fn assign(&self, outs: &[ValueId], cells: Values<D>, frame: &mut Frame<'_, D::Tensor>) {
        for (out, cell) in outs.iter().zip(cells) {
            frame.set(*out, cell);
        }
    }

    pub(super) fn statement(
        &mut self,
        statement: &'p Statement,
        frame: &mut Frame<'p, D::Tensor>,
    ) -> Result<(), Fault> {
        match statement {
            Statement::Prim { out, op, arguments, span } => {
                let cell = self.prim(*out, op, arguments, *span, frame)?;
                self.check(*out, &cell, frame, "this")?;
                frame.set(*out, cell);
            }
            Statement::Let { local, value, .. } => {
                let value = self.evaluate(value, frame)?;
                frame.locals.insert(*local, value);
            }
            Statement::Weight { out, field } => {
                let cell = self.weight(*out, *field, frame)?;
                self.check(*out, &cell, frame, "this weight")?;
                frame.set(*out, cell);
            }
            Statement::StateRead { out, field } => {
                let span = frame.function.value(*out).span;
                let id = self.state(*field, span, frame)?;
                let tensor = self.domain.read(id).map_err(|m| self.fault(span, m))?;
                let cell = Cell::Tensor(tensor);
                self.check(*out, &cell, frame, "this state")?;
                frame.set(*out, cell);
            }
            Statement::StateWrite { field, value } => {
                let span = frame.function.value(*value).span;
                let id = self.state(*field, span, frame)?;
                let tensor = self.tensor(*value, frame)?;
                self.domain.write(id, tensor).map_err(|m| self.fault(span, m))?;
            }
            Statement::CallOp { outs, op, arguments, span } => {
                let passed = self.pass(arguments, frame)?;
                let results = self.op(*op, passed, *span)?;
                self.assign(outs, results, frame);
            }
            Statement::CallBlock { outs, receiver, block, function, arguments, span } => {
                let instance = self.receiver(receiver, *span, frame)?;
                let block = self.over.program.block(*block);
                let function = block.function(*function);
                let name = if function.name.is_empty() { "fn" } else { &function.name };
                let origin = format!("{}.{name}", block.name);
                let passed = self.pass(arguments, frame)?;
                let results = self.function(function, Some(instance), origin, passed, *span)?;
                self.assign(outs, results, frame);
            }
            Statement::Probe { out, value, name, span } => {
                let mut text = String::new();
                for part in name {
                    match part {
                        PatternPart::Text(t) => text.push_str(t),
                        PatternPart::Hole(load) => text.push_str(&self.evaluate(load, frame)?.in_name()),
                    }
                }
                let tensor = self.tensor(*value, frame)?;
                self.probes += 1;
                self.domain.probed_at(&text, *span);
                let other = self.domain.probe(text, &tensor).map_err(|m| self.fault(*span, m))?;
                let cell = Cell::Tensor(other.unwrap_or(tensor));
                self.check(*out, &cell, frame, "what stands for this probe")?;
                frame.set(*out, cell);
            }
            Statement::If { outs, condition, then, otherwise } => {
                let holds = load::truth(condition, frame).map_err(|e| self.load(e))?;
                self.domain.branched(condition.span, holds);
                let results = self.region(if holds { then } else { otherwise }, frame)?;
                self.assign(outs, results, frame);
            }
            Statement::List { out, items } => {
                let items = items.iter().map(|item| self.tensor(*item, frame)).collect::<Result<_, _>>()?;
                let cell = Cell::List(items);
                self.check(*out, &cell, frame, "this list")?;
                frame.set(*out, cell);
            }
            Statement::For { outs, over, index, carried, collected, body } => {
                let turns = self.turns(over, frame)?;
                let mut lists: Vec<Vec<D::Tensor>> = vec![Vec::new(); collected.len()];
                for Carried { initial, inner } in carried {
                    let cell = self.cell(*initial, frame)?;
                    frame.set(*inner, cell);
                }
                for (at, turn) in turns.into_iter().enumerate() {
                    if let Some(index) = index {
                        frame.locals.insert(*index, Val::Int(at as i64));
                    }
                    match (turn, over) {
                        (Turn::Val(value), LoopOver::Range { variable, .. } | LoopOver::List { variable, .. }) => {
                            frame.locals.insert(*variable, value);
                        }
                        (Turn::Child(child), LoopOver::Children { item, .. }) => {
                            frame.items.insert(*item, child);
                        }
                        (Turn::Tensor(tensor), LoopOver::Values { item, .. }) => {
                            frame.set(*item, Cell::Tensor(tensor));
                        }
                        // `turns` gives what `over` runs over.
                        (Turn::Val(_), LoopOver::Children { .. } | LoopOver::Values { .. })
                        | (Turn::Child(_), LoopOver::Range { .. } | LoopOver::List { .. } | LoopOver::Values { .. })
                        | (
                            Turn::Tensor(_),
                            LoopOver::Range { .. } | LoopOver::List { .. } | LoopOver::Children { .. },
                        ) => {}
                    }
                    let results = self.region(body, frame)?;
                    for (Collected { item, .. }, list) in collected.iter().zip(&mut lists) {
                        list.push(self.tensor(*item, frame)?);
                    }
                    for (Carried { inner, .. }, cell) in carried.iter().zip(results) {
                        frame.set(*inner, cell);
                    }
                }
                for (out, Carried { inner, .. }) in outs.iter().zip(carried) {
                    let cell = self.cell(*inner, frame)?;
                    frame.set(*out, cell);
                }
                for (Collected { out, .. }, list) in collected.iter().zip(lists) {
                    let cell = Cell::List(list);
                    self.check(*out, &cell, frame, "this list")?;
                    frame.set(*out, cell);
                }
            }
        }
        Ok(())
    }

    fn turns(&self, over: &LoopOver, frame: &Frame<'p, D::Tensor>) -> Result<Vec<Turn<'p, D::Tensor>>, Fault> {
        match over {
            LoopOver::Range { low, high, .. } => {
                let bound = |l: &Load| match self.evaluate(l, frame)? {
                    Val::Int(n) => Ok(n),
                    other => Err(self.kind(l, "an integer", other)),
                };
                Ok((bound(low)?..bound(high)?).map(|n| Turn::Val(Val::Int(n))).collect())
            }
            LoopOver::List { list, .. } => match self.evaluate(list, frame)? {
                Val::List(items) => Ok(items.into_iter().map(Turn::Val).collect()),
                other => Err(self.kind(list, "a list", other)),
            },
            LoopOver::Children { array, .. } => {
                let (start, path) = match array {
                    Receiver::Field(path) => (frame.instance, path),
                    Receiver::Item { item, path } => (frame.items.get(item).copied(), path),
                };
                let slot = path.split_last().and_then(|(last, path)| start?.child(path)?.slot(*last));
                match slot {
                    Some(Slot::Children(children)) => Ok(children.iter().map(Turn::Child).collect()),
                    Some(Slot::Absent | Slot::Weight(_) | Slot::Child(_) | Slot::State(_) | Slot::Let(_)) | None => {
                        Err(self.fault(frame.function.span, format!("`{}` loops over no array", frame.origin)))
                    }
                }
            }
            LoopOver::Values { list, .. } => Ok(self.list(*list, frame)?.into_iter().map(Turn::Tensor).collect()),
        }
    }

    fn list(&self, value: ValueId, frame: &Frame<'_, D::Tensor>) -> Result<Vec<D::Tensor>, Fault> {
        match self.cell(value, frame)? {
            Cell::List(items) => Ok(items),
            other @ (Cell::Tensor(_) | Cell::Matrix(_)) => {
                let span = frame.function.value(value).span;
                Err(self.fault(span, format!("value {} of `{}` is {}", value.0, frame.origin, other.kind())))
            }
        }
    }

    fn kind(&self, load: &Load, expected: &'static str, found: Val) -> Fault {
        self.load(LoadError::new(load.span, LoadErrorKind::Kind { expected, found: found.to_string() }))
    }

    fn state(&self, field: FieldId, span: Span, frame: &Frame<'_, D::Tensor>) -> Result<crate::bind::StateId, Fault> {
        match frame.instance.and_then(|i| i.slot(field)) {
            Some(Slot::State(id)) => Ok(*id),
            Some(Slot::Absent | Slot::Weight(_) | Slot::Child(_) | Slot::Children(_) | Slot::Let(_)) | None => {
                Err(self.fault(span, format!("`{}` has no such state", frame.origin)))
            }
        }
    }

    fn receiver(&self, receiver: &Receiver, span: Span, frame: &Frame<'p, D::Tensor>) -> Result<&'p Instance, Fault> {
        let found = match receiver {
            Receiver::Field(path) => frame.instance.and_then(|i| i.child(path)),
            Receiver::Item { item, path } => frame.items.get(item).and_then(|i| i.child(path)),
        };
        found.ok_or_else(|| self.fault(span, format!("`{}` calls a child that is not there", frame.origin)))
    }

    fn pass(&self, arguments: &[Argument], frame: &Frame<'_, D::Tensor>) -> Result<Vec<Operand<D::Tensor>>, Fault> {
        let pass = |argument: &Argument| match argument {
            Argument::Value(value) => self.cell(*value, frame).map(Operand::from),
            Argument::Load(load) => self.evaluate(load, frame).map(Operand::Load),
        };
        arguments.iter().map(pass).collect()
    }

    pub(super) fn op(&mut self, id: OpId, arguments: Vec<Operand<D::Tensor>>, span: Span) -> Result<Values<D>, Fault> {
        let op = self.over.program.op(id);
        let OpKind::Tensor { function, twins } = &op.kind else {
            return Err(self.fault(span, format!("`{}` is an op over load values", op.name)));
        };
        let whole = arguments.iter().map(|argument| match argument {
            Operand::Matrix(matrix) => matrix.weight,
            Operand::Tensor(_) | Operand::List(_) | Operand::Load(_) => None,
        });
        let weights: Option<Vec<_>> = whole.collect();
        if let Some(kept) = weights.as_ref().and_then(|weights| self.domain.recall(id, weights)) {
            return Ok(kept.into_iter().map(Cell::Tensor).collect());
        }
        if let Some(backend) = self.twins {
            let of_backend = twins.iter().filter(|twin| twin.backend == backend);
            for twin in of_backend {
                let frame = self.frame(function, None, op.name.clone(), arguments.clone(), span)?;
                if let Some(results) = self.twin(twin, frame, &arguments, span)? {
                    return Ok(results);
                }
            }
        }
        let probes = self.probes;
        let results = self.function(function, None, op.name.clone(), arguments, span)?;
        if let Some(weights) = weights.filter(|w| !w.is_empty() && self.probes == probes) {
            let tensors = results.iter().map(|cell| match cell {
                Cell::Tensor(tensor) => Some(tensor.clone()),
                Cell::Matrix(_) | Cell::List(_) => None,
            });
            if let Some(tensors) = tensors.collect::<Option<Vec<_>>>() {
                self.domain.keep(id, &weights, &tensors);
            }
        }
        Ok(results)
    }

    fn weight(&mut self, out: ValueId, field: FieldId, frame: &Frame<'p, D::Tensor>) -> Result<Cell<D::Tensor>, Fault> {
        let declared = frame.function.value(out);
        let Some(Slot::Weight(id)) = frame.instance.and_then(|i| i.slot(field)) else {
            return Err(self.fault(declared.span, format!("`{}` has no such weight", frame.origin)));
        };
        let store = self.domain.weight(self.over, *id).map_err(|m| self.fault(declared.span, m))?;
        match (&declared.ty, store) {
            (Type::Tensor(_), Store::Dense(tensor)) => Ok(Cell::Tensor(tensor)),
            (Type::Matrix(_), store) => {
                let shape = self.over.bindings.weights[id.0].shape.iter().map(|n| *n as usize).collect();
                Ok(Cell::Matrix(Matrix { shape, store, weight: Some(*id) }))
            }
            (Type::List { .. }, _) => Err(self.fault(declared.span, "a weight where a list is declared")),
            (Type::Tensor(_), Store::Packed { .. }) => {
                Err(self.fault(declared.span, "a packed matrix where a tensor is declared"))
            }
        }
    }

    fn prim(
        &mut self,
        out: ValueId,
        op: &Prim,
        arguments: &[ValueId],
        span: Span,
        frame: &Frame<'p, D::Tensor>,
    ) -> Result<Cell<D::Tensor>, Fault> {
        let mut cells: Values<D> = arguments.iter().map(|v| self.cell(*v, frame)).collect::<Result<_, _>>()?;
        if let (Prim::Item(at), [list]) = (op, arguments) {
            return self.item(at, *list, span, frame);
        }
        if let (Prim::ConcatList { .. }, [list]) = (op, arguments) {
            cells = self.list(*list, frame)?.into_iter().map(Cell::Tensor).collect();
        }
        let shapes: Vec<&[usize]> = cells.iter().map(Cell::shape).collect();
        let prepared = prepare(op, &shapes, frame).map_err(|error| match error {
            Unprepared::Load(error) => self.load(error),
            Unprepared::Operands(message) => self.fault(span, message),
        })?;
        let Some(primitive) = prepared else {
            return self.matrix(op, cells, span, frame);
        };
        let Type::Tensor(ty) = &frame.function.value(out).ty else {
            return Err(self.fault(span, format!("{} gives a tensor where a matrix is declared", primitive.name())));
        };
        let (dtype, shape) = (frame.dtype(ty.dtype), self.shape(&ty.shape, span, frame)?);
        let operands = cells.iter().map(|cell| match cell {
            Cell::Tensor(tensor) => Ok(tensor),
            Cell::Matrix(_) | Cell::List(_) => {
                Err(self.fault(span, format!("{} of {}", primitive.name(), cell.kind())))
            }
        });
        let operands: Vec<&D::Tensor> = operands.collect::<Result<_, _>>()?;
        // A conversion to the dtype a value has is no op, also where only the run knows.
        if let (Primitive::Convert, [same]) = (&primitive, operands.as_slice())
            && same.dtype() == dtype
        {
            return Ok(Cell::Tensor((*same).clone()));
        }
        let application = Application { primitive: &primitive, dtype, shape: &shape, span, origin: &frame.origin };
        let result = self.domain.apply(&application, &operands);
        result.map(Cell::Tensor).map_err(|m| self.fault(span, format!("{}: {m}", primitive.name())))
    }

    fn item(
        &self,
        at: &Load,
        list: ValueId,
        span: Span,
        frame: &Frame<'_, D::Tensor>,
    ) -> Result<Cell<D::Tensor>, Fault> {
        let mut items = self.list(list, frame)?;
        let index = match self.evaluate(at, frame)? {
            Val::Int(n) => n,
            other => return Err(self.kind(at, "an integer", other)),
        };
        match usize::try_from(index).ok().filter(|i| *i < items.len()) {
            Some(i) => Ok(Cell::Tensor(items.swap_remove(i))),
            None => Err(self.load(LoadError::new(span, LoadErrorKind::Index { index, length: items.len() }))),
        }
    }

    fn matrix(
        &mut self,
        op: &Prim,
        mut cells: Values<D>,
        span: Span,
        frame: &Frame<'p, D::Tensor>,
    ) -> Result<Cell<D::Tensor>, Fault> {
        let ids = if matches!(op, Prim::MatrixRows) { cells.pop() } else { None };
        let Some(Cell::Matrix(Matrix { shape, store, .. })) = cells.pop() else {
            return Err(self.fault(span, "an operand is no matrix"));
        };
        let part = match (op, store) {
            (Prim::MatrixDense, Store::Dense(tensor)) => tensor,
            (Prim::MatrixCodes, Store::Packed { codes, .. }) => codes,
            (Prim::MatrixBytes, Store::Packed { bytes, .. }) => bytes,
            (Prim::MatrixScales, Store::Packed { scales, .. }) => scales,
            (Prim::MatrixBiases, Store::Packed { biases, .. }) => biases,
            (Prim::MatrixRows, store) => {
                let Some(Cell::Tensor(ids)) = ids else { return Err(self.fault(span, "rows by no ids")) };
                return self.rows(&shape, store, &ids, span, frame);
            }
            (_, store) => {
                let packed = if matches!(store, Store::Dense(_)) { "dense" } else { "packed" };
                return Err(self.fault(span, format!("{op:?} of a {packed} matrix")));
            }
        };
        Ok(Cell::Tensor(part))
    }

    fn rows(
        &mut self,
        shape: &[usize],
        store: Store<D::Tensor>,
        ids: &D::Tensor,
        span: Span,
        frame: &Frame<'p, D::Tensor>,
    ) -> Result<Cell<D::Tensor>, Fault> {
        let rest = |shape: &[usize]| [ids.shape(), shape.get(1..).unwrap_or_default()].concat();
        let mut take = |from: D::Tensor| {
            let primitive = Primitive::Take { axis: 0 };
            let shape = rest(from.shape());
            let application =
                Application { primitive: &primitive, dtype: from.dtype(), shape: &shape, span, origin: &frame.origin };
            let taken = self.domain.apply(&application, &[&from, ids]);
            taken.map_err(|m| Fault::new(&self.over.program.sources, span, format!("take: {m}")))
        };
        let store = match store {
            Store::Dense(dense) => Store::Dense(take(dense)?),
            Store::Packed { codes, bytes, scales, biases, bits, group } => Store::Packed {
                codes: take(codes)?,
                bytes: take(bytes)?,
                scales: take(scales)?,
                biases: take(biases)?,
                bits,
                group,
            },
        };
        Ok(Cell::Matrix(Matrix { shape: rest(shape), store, weight: None }))
    }
}

fn tensors<T>(cells: Vec<Cell<T>>) -> Vec<T> {
    let tensors = cells.into_iter().flat_map(|cell| match cell {
        Cell::Tensor(tensor) => vec![tensor],
        Cell::Matrix(_) => Vec::new(),
        Cell::List(items) => items,
    });
    tensors.collect()
}

enum Turn<'p, T> {
    Val(Val),
    Child(&'p Instance),
    Tensor(T),
}
