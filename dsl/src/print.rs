//! The IR as text: one line per statement, types at the end. For reading and for tests.
//!
//! Nothing parses this form back.

use std::fmt::{self, Display, Write};

use crate::ir::*;

/// The whole program.
pub fn program(program: &Program) -> String {
    let mut out = String::new();
    let mut printer = Printer { program, block: None, function: None, out: &mut out, depth: 0 };
    // A `String` takes everything that is written to it.
    let _ = printer.program();
    out
}

/// One op.
pub fn op(program: &Program, op: &Op) -> String {
    let mut out = String::new();
    let mut printer = Printer { program, block: None, function: None, out: &mut out, depth: 0 };
    let _ = printer.op(op);
    out
}

/// One block, with its functions.
pub fn block(program: &Program, block: &Block) -> String {
    let mut out = String::new();
    let mut printer = Printer { program, block: Some(block), function: None, out: &mut out, depth: 0 };
    let _ = printer.block(block);
    out
}

/// One function of `block`.
pub fn function(program: &Program, block: &Block, function: &Function) -> String {
    let mut out = String::new();
    let mut printer = Printer { program, block: Some(block), function: None, out: &mut out, depth: 0 };
    let _ = printer.function(function);
    out
}

struct Printer<'p> {
    program: &'p Program,
    block: Option<&'p Block>,
    function: Option<&'p Function>,
    out: &'p mut String,
    depth: usize,
}

impl<'p> Printer<'p> {
    fn line(&mut self, text: impl Display) -> fmt::Result {
        writeln!(self.out, "{:1$}{text}", "", self.depth * 4)
    }

    fn program(&mut self) -> fmt::Result {
        let quoted = |names: &[String]| names.iter().map(|t| format!("{t:?}")).collect::<Vec<_>>().join(" | ");
        let Program { name, model_types, architectures, .. } = self.program;
        let architectures =
            if architectures.is_empty() { String::new() } else { format!(" as {}", quoted(architectures)) };
        self.line(format_args!("family {name} for {}{architectures}", quoted(model_types)))?;
        self.line("")?;
        if let Some(Processor { kind, settings, image_token, .. }) = &self.program.processor {
            let name = kind.name();
            self.line(format_args!("processor {name}(settings = {settings:?}, image_token = {image_token:?})"))?;
        }
        for setting in &self.program.config {
            self.setting(setting)?;
        }
        for op in &self.program.ops {
            self.line("")?;
            self.op(op)?;
        }
        for block in &self.program.blocks {
            self.line("")?;
            self.block = Some(block);
            self.block(block)?;
        }
        Ok(())
    }

    fn condition(&self, condition: &Option<Load>) -> String {
        condition.as_ref().map_or(String::new(), |c| format!(" if {}", self.load(c)))
    }

    fn setting(&mut self, setting: &Setting) -> fmt::Result {
        match setting {
            Setting::Section(section) => {
                let condition = self.condition(&section.condition);
                self.line(format_args!("section {} = {}{condition}", section.name, section.keys.join(" | ")))?;
                self.depth += 1;
                section.settings.iter().try_for_each(|s| self.setting(s))?;
                self.depth -= 1;
                Ok(())
            }
            Setting::Field(field) => {
                let otherwise = field.otherwise.as_ref().map_or(String::new(), |e| format!(" else {}", self.load(e)));
                let condition = self.condition(&field.condition);
                let (path, keys) = (field.path.join("."), field.keys.join(" | "));
                self.line(format_args!("field {path}: {:?} = {keys}{otherwise}{condition}", field.ty))
            }
            Setting::Limit { path, value } => {
                let value = self.load(value);
                self.line(format_args!("limit {} = {value}", path.join(".")))
            }
            Setting::Let { path, value, condition } => {
                let (value, condition) = (self.load(value), self.condition(condition));
                self.line(format_args!("let {} = {value}{condition}", path.join(".")))
            }
            Setting::Require(require) => {
                let condition = self.load(&require.condition);
                self.line(format_args!("require {condition}"))
            }
        }
    }

    fn op(&mut self, op: &'p Op) -> fmt::Result {
        match &op.kind {
            OpKind::Load { parameters, body, .. } => {
                let parameters = load_parameters(parameters);
                let body = self.load(body);
                self.line(format_args!("load op {}({parameters}) = {body}", op.name))
            }
            OpKind::Tensor { function, twins } => {
                self.function = Some(function);
                self.function_head("op", &op.name, function)?;
                for twin in twins {
                    self.twin(function, twin)?;
                }
                self.body(function)
            }
        }
    }

    fn twin(&mut self, function: &'p Function, twin: &'p Twin) -> fmt::Result {
        let backend = match twin.backend {
            TwinBackend::Mlx => "mlx",
            TwinBackend::Hlo => "hlo",
        };
        let target = match &twin.target {
            TwinTarget::Op(op) => format!("op {}", self.program.op(*op).name),
            TwinTarget::Kernel { path, setup, arguments } => {
                for statement in setup {
                    self.depth += 1;
                    self.statement(function, statement)?;
                    self.depth -= 1;
                }
                let arguments: Vec<String> = arguments
                    .iter()
                    .map(|(name, argument)| {
                        let name = name.as_ref().map_or(String::new(), |n| format!("{n} = "));
                        match argument {
                            TwinArgument::Value(value) => format!("{name}{}", self.value(function, *value)),
                            TwinArgument::Load(value) => format!("{name}{}", self.load(value)),
                        }
                    })
                    .collect();
                format!("{path}({})", arguments.join(", "))
            }
        };
        let when = twin.when.as_ref().map_or(String::new(), |w| format!(" when {}", self.load(w)));
        self.depth += 1;
        let within = match twin.within {
            Within::Ulp(n) => format!("{n} ulp"),
            Within::OfSum(x) => format!("{x:?} of sum"),
        };
        self.line(format_args!("fused {backend} {target}{when} within {within}"))?;
        self.depth -= 1;
        Ok(())
    }

    fn block(&mut self, block: &'p Block) -> fmt::Result {
        self.line(format_args!("block {}({}) {{", block.name, load_parameters(&block.parameters)))?;
        self.depth += 1;
        for field in &block.fields {
            let kind = match &field.kind {
                FieldKind::Tensor(ty) => tensor(ty),
                FieldKind::Matrix(s) => format!("Q[{}]", shape(s)),
                FieldKind::State(ty) => format!("state {}", tensor(ty)),
                FieldKind::Let(value) => format!("let {}", self.load(value)),
                FieldKind::Derived { ty, body } => {
                    let condition = self.condition(&field.condition);
                    self.line(format_args!("{}: let {}{condition}", field.name, tensor(ty)))?;
                    self.function = Some(body);
                    self.body(body)?;
                    continue;
                }
                FieldKind::Child { block, arguments } => {
                    format!("{}({})", self.program.block(*block).name, self.loads(arguments))
                }
                FieldKind::Children { block, arguments, variable, low, high } => {
                    let name = &self.program.block(*block).name;
                    let (low, high) = (self.load(low), self.load(high));
                    format!("[{name}({}) for l{} in {low}..{high}]", self.loads(arguments), variable.0)
                }
            };
            let places: Vec<String> = field
                .stored
                .places
                .iter()
                .map(|parts| {
                    let parts: Vec<String> = parts
                        .iter()
                        .map(|part| match &part.rows {
                            None => format!("{:?}", part.path),
                            Some((low, high)) => format!("{:?}[{}..{}]", part.path, self.load(low), self.load(high)),
                        })
                        .collect();
                    parts.join(" + ")
                })
                .collect();
            let condition = self.condition(&field.condition);
            self.line(format_args!("{}: {kind} as {}{condition}", field.name, places.join(" | ")))?;
        }
        for pattern in &block.ignores {
            self.line(format_args!("ignore {pattern:?}"))?;
        }
        for function in &block.functions {
            self.function(function)?;
        }
        self.depth -= 1;
        self.line("}")
    }

    fn function(&mut self, function: &'p Function) -> fmt::Result {
        self.function = Some(function);
        let word = if function.graph { "graph" } else { "fn" };
        self.function_head(word, &function.name, function)?;
        self.body(function)
    }

    fn function_head(&mut self, word: &str, name: &str, function: &'p Function) -> fmt::Result {
        let parameters: Vec<String> = function
            .parameters
            .iter()
            .map(|p| match &p.kind {
                ParameterKind::Value(value) => {
                    format!("{}: {}", self.value(function, *value), ty(&function.value(*value).ty))
                }
                ParameterKind::Load(ty) => format!("{}: {}", p.name, load_type(ty)),
            })
            .collect();
        let results: Vec<String> = function.results.iter().map(ty).collect();
        self.line(format_args!("{word} {name}({}) -> ({})", parameters.join(", "), results.join(", ")))?;
        self.depth += 1;
        for free in &function.free {
            let source = match &free.source {
                DimSource::Axis { parameter, axis } => {
                    format!("axis {axis} of {}", function.parameters[*parameter].name)
                }
                DimSource::Length { parameter } => format!("length of {}", function.parameters[*parameter].name),
                DimSource::Positions => "positions".into(),
            };
            self.line(format_args!("where {} = {source}", free.name))?;
        }
        if let Some(pack) = &function.pack {
            let name = &function.parameters[pack.parameter].name;
            self.line(format_args!("where .. = leading axes of {name} before {}", pack.trailing))?;
        }
        if let FloatSource::Parameter(i) = function.float {
            self.line(format_args!("where F = dtype of {}", function.parameters[i].name))?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn body(&mut self, function: &'p Function) -> fmt::Result {
        self.line("{")?;
        self.region(function, &function.body, "return")?;
        self.line("}")
    }

    fn region(&mut self, function: &'p Function, region: &'p Region, word: &str) -> fmt::Result {
        self.depth += 1;
        for statement in &region.statements {
            self.statement(function, statement)?;
        }
        if !region.results.is_empty() {
            let results = self.values(function, &region.results);
            self.line(format_args!("{word} {results}"))?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn value(&self, function: &Function, value: ValueId) -> String {
        match &function.value(value).name {
            Some(name) => format!("{name}%{}", value.0),
            None => format!("%{}", value.0),
        }
    }

    fn values(&self, function: &Function, values: &[ValueId]) -> String {
        values.iter().map(|v| self.value(function, *v)).collect::<Vec<_>>().join(", ")
    }

    fn outs(&self, function: &Function, outs: &[ValueId]) -> String {
        let outs: Vec<String> =
            outs.iter().map(|v| format!("{}: {}", self.value(function, *v), ty(&function.value(*v).ty))).collect();
        if outs.is_empty() { String::new() } else { format!("{} = ", outs.join(", ")) }
    }

    fn arguments(&self, function: &Function, arguments: &[Argument]) -> String {
        let arguments: Vec<String> = arguments
            .iter()
            .map(|a| match a {
                Argument::Value(value) => self.value(function, *value),
                Argument::Load(value) => self.load(value),
            })
            .collect();
        arguments.join(", ")
    }

    fn field_name(&self, block: Option<&'p Block>, field: FieldId) -> String {
        match block.and_then(|b| b.fields.get(field.0 as usize)) {
            Some(field) => field.name.clone(),
            None => format!("field {}", field.0),
        }
    }

    fn path(&self, mut block: Option<&'p Block>, path: &[FieldId]) -> String {
        let mut names = Vec::new();
        for field in path {
            names.push(self.field_name(block, *field));
            block = match block.and_then(|b| b.fields.get(field.0 as usize)).map(|f| &f.kind) {
                Some(FieldKind::Child { block, .. }) => Some(self.program.block(*block)),
                _ => None,
            };
        }
        names.join(".")
    }

    fn receiver(&self, receiver: &Receiver) -> String {
        match receiver {
            Receiver::Field(path) => self.path(self.block, path),
            Receiver::Item { item, path } => {
                let path: Vec<String> = path.iter().map(|f| format!(".{}", f.0)).collect();
                format!("item #{}{}", item.0, path.concat())
            }
        }
    }

    fn pattern(&self, parts: &[PatternPart]) -> String {
        let parts = parts.iter().map(|part| match part {
            PatternPart::Text(text) => text.clone(),
            PatternPart::Hole(value) => format!("{{{}}}", self.load(value)),
        });
        parts.collect()
    }

    fn statement(&mut self, function: &'p Function, statement: &'p Statement) -> fmt::Result {
        match statement {
            Statement::Prim { out, op, arguments, .. } => {
                let (outs, arguments) = (self.outs(function, &[*out]), self.values(function, arguments));
                let op = self.prim(op);
                self.line(format_args!("{outs}{op}({arguments})"))
            }
            Statement::Let { local, name, value } => {
                let value = self.load(value);
                self.line(format_args!("let {name}#{} = {value}", local.0))
            }
            Statement::Weight { out, field } => {
                let (outs, field) = (self.outs(function, &[*out]), self.field_name(self.block, *field));
                self.line(format_args!("{outs}weight {field}"))
            }
            Statement::StateRead { out, field } => {
                let (outs, field) = (self.outs(function, &[*out]), self.field_name(self.block, *field));
                self.line(format_args!("{outs}state {field}"))
            }
            Statement::StateWrite { field, value } => {
                let (field, value) = (self.field_name(self.block, *field), self.value(function, *value));
                self.line(format_args!("state {field} = {value}"))
            }
            Statement::CallOp { outs, op, arguments, .. } => {
                let (outs, arguments) = (self.outs(function, outs), self.arguments(function, arguments));
                let name = &self.program.op(*op).name;
                self.line(format_args!("{outs}{name}({arguments})"))
            }
            Statement::CallBlock { outs, receiver, block, function: callee, arguments, .. } => {
                let (outs, arguments) = (self.outs(function, outs), self.arguments(function, arguments));
                let receiver = self.receiver(receiver);
                let block = self.program.block(*block);
                let callee = &block.function(*callee).name;
                self.line(format_args!("{outs}{receiver}:{}.{callee}({arguments})", block.name))
            }
            Statement::Probe { out, value, name, .. } => {
                let (name, value) = (self.pattern(name), self.value(function, *value));
                let outs = self.outs(function, &[*out]);
                self.line(format_args!("{outs}probe {value} as {name:?}"))
            }
            Statement::If { outs, condition, then, otherwise } => {
                let (outs, condition) = (self.outs(function, outs), self.load(condition));
                self.line(format_args!("{outs}if {condition} {{"))?;
                self.region(function, then, "yield")?;
                self.line("} else {")?;
                self.region(function, otherwise, "yield")?;
                self.line("}")
            }
            Statement::List { out, items } => {
                let (outs, items) = (self.outs(function, &[*out]), self.values(function, items));
                self.line(format_args!("{outs}[{items}]"))
            }
            Statement::For { outs, over, index, carried, collected, body } => {
                let lists: Vec<ValueId> = collected.iter().map(|c| c.out).collect();
                let outs = self.outs(function, &[outs.as_slice(), &lists].concat());
                let index = index.map_or(String::new(), |i| format!("#{}, ", i.0));
                let over = match over {
                    LoopOver::Range { variable, low, high } => {
                        format!("#{} in {}..{}", variable.0, self.load(low), self.load(high))
                    }
                    LoopOver::List { variable, list } => format!("#{} in {}", variable.0, self.load(list)),
                    LoopOver::Children { item, array } => format!("#{} in {}", item.0, self.receiver(array)),
                    LoopOver::Values { item, list } => {
                        format!("{} in {}", self.value(function, *item), self.value(function, *list))
                    }
                };
                let carried: Vec<String> = carried
                    .iter()
                    .map(|c| format!("{} = {}", self.value(function, c.inner), self.value(function, c.initial)))
                    .collect();
                let with = if carried.is_empty() { String::new() } else { format!(" with {}", carried.join(", ")) };
                self.line(format_args!("{outs}for {index}{over}{with} {{"))?;
                self.region(function, body, "next")?;
                self.depth += 1;
                for Collected { item, out } in collected {
                    let (list, item) = (self.value(function, *out), self.value(function, *item));
                    self.line(format_args!("push {item} to {list}"))?;
                }
                self.depth -= 1;
                self.line("}")
            }
        }
    }

    fn prim(&self, prim: &Prim) -> String {
        match prim {
            Prim::Unary(op) => format!("{op:?}").to_lowercase(),
            Prim::Binary(op) => format!("{op:?}").to_lowercase(),
            Prim::Compare(op) => format!("{op:?}").to_lowercase(),
            Prim::Constant(value) => format!("constant {} ", self.load(value)),
            Prim::ConstantList(value) => format!("constant list {} ", self.load(value)),
            Prim::Slice(slots) => {
                let slots: Vec<String> = slots
                    .iter()
                    .map(|slot| match slot {
                        SliceSlot::Whole => "_".into(),
                        SliceSlot::Range(low, high) => format!("{}..{}", self.load(low), self.load(high)),
                        SliceSlot::At(at) => self.load(at),
                    })
                    .collect();
                format!("slice [{}] ", slots.join(", "))
            }
            Prim::TopKValues(k) => format!("top_k values {} ", self.load(k)),
            Prim::TopKIndices(k) => format!("top_k indices {} ", self.load(k)),
            Prim::Item(at) => format!("item {} ", self.load(at)),
            other => format!("{other:?} ").to_lowercase(),
        }
    }

    fn loads(&self, values: &[Load]) -> String {
        values.iter().map(|v| self.load(v)).collect::<Vec<_>>().join(", ")
    }

    fn load(&self, value: &Load) -> String {
        let go = |v: &Load| self.load(v);
        match &value.kind {
            LoadKind::Int(n) => n.to_string(),
            LoadKind::Float(x) => format!("{x:?}"),
            LoadKind::Bool(b) => b.to_string(),
            LoadKind::Text(t) => format!("{t:?}"),
            LoadKind::Format(parts) => format!("{:?}", self.pattern(parts)),
            LoadKind::Pi => "pi".into(),
            LoadKind::Config(path) => format!("config.{}", path.join(".")),
            LoadKind::Parameter(name) => name.clone(),
            LoadKind::Member(field) => format!("self.{}", self.field_name(self.block, *field)),
            LoadKind::Local(local) => format!("#{}", local.0),
            LoadKind::Free(name) => name.clone(),
            LoadKind::Dim(dim) => format!("dim({dim})"),
            LoadKind::Size(value) => match self.function {
                Some(function) => format!("size({})", self.value(function, *value)),
                None => format!("size(%{})", value.0),
            },
            LoadKind::Matrix(value, attribute) => match self.function {
                Some(function) => format!("{}.{attribute:?}", self.value(function, *value)).to_lowercase(),
                None => format!("%{}.{attribute:?}", value.0).to_lowercase(),
            },
            LoadKind::Unary(LoadUnary::Negate, a) => format!("-{}", go(a)),
            LoadKind::Unary(LoadUnary::Not, a) => format!("!{}", go(a)),
            LoadKind::Unary(LoadUnary::ToFloat, a) => format!("float({})", go(a)),
            LoadKind::Binary(op, a, b) => format!("({} {} {})", go(a), crate::check::symbol(*op), go(b)),
            LoadKind::Call(function, arguments) => {
                format!("{}({})", format!("{function:?}").to_lowercase(), self.loads(arguments))
            }
            LoadKind::Op(op, arguments) => format!("{}({})", self.program.op(*op).name, self.loads(arguments)),
            LoadKind::If(c, a, b) => format!("if {} {{ {} }} else {{ {} }}", go(c), go(a), go(b)),
            LoadKind::List(items) => format!("[{}]", self.loads(items)),
            LoadKind::Comprehension { item, each } => {
                let mut text = format!("[{}", go(item));
                for Each { index, item, over } in each {
                    let index = index.map_or(String::new(), |i| format!("#{}, ", i.0));
                    let over = match over {
                        Over::Range(low, high) => format!("{}..{}", go(low), go(high)),
                        Over::List(list) => go(list),
                    };
                    text += &format!(" for {index}#{} in {over}", item.0);
                }
                text + "]"
            }
            LoadKind::Index(list, at) => format!("{}[{}]", go(list), go(at)),
            LoadKind::Block { lets, value } => {
                let lets: Vec<String> = lets.iter().map(|(l, v)| format!("let #{} = {}; ", l.0, go(v))).collect();
                format!("{{ {}{} }}", lets.concat(), go(value))
            }
        }
    }
}

/// `int`, `[float]`.
pub fn load_type(ty: &LoadType) -> String {
    crate::check::short_type_name(ty)
}

fn load_parameters(parameters: &[LoadParameter]) -> String {
    parameters.iter().map(|p| format!("{}: {}", p.name, load_type(&p.ty))).collect::<Vec<_>>().join(", ")
}

/// `F[B, S, hidden]`, as a signature has it.
pub fn ty(ty: &Type) -> String {
    crate::check::types::type_text(ty)
}

fn tensor(ty: &TensorType) -> String {
    crate::check::types::tensor_text(ty)
}

fn shape(shape: &Shape) -> String {
    crate::check::types::shape_text(shape)
}
