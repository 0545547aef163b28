//! A function of the IR as a picture wants it: nodes, edges with what flows over them, and boxes around branches and loops.
//!
//! Knows no drawing language. Constants are written into the node that uses them, casts to the same place stay out, and a
//! loop that only calls its item is one stacked node.

use mgraph_dsl::{
    ir::{self, *},
    print,
};

use super::label;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeId(pub usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoxId(pub usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Input,
    Result,
    /// A call of a child; `stack` is an array of them, one after the other.
    Block {
        block: BlockId,
        stack: bool,
    },
    Op(OpId),
    Prim,
    Weight,
    State,
    /// Where the arms of an `if` meet again.
    Meet,
    /// A loop-carried variable at the start of a turn.
    Turn,
}

#[derive(Debug, Clone)]
pub struct Node {
    pub kind: Kind,
    pub title: String,
    /// In smaller letters below.
    pub note: String,
    /// Names under which the value can be seen.
    pub probes: Vec<String>,
    pub within: Option<BoxId>,
}

#[derive(Debug, Clone)]
pub struct Edge {
    pub from: NodeId,
    pub to: NodeId,
    pub label: String,
    /// From the end of a turn to the start of the next.
    pub back: bool,
}

/// A branch or a loop.
#[derive(Debug, Clone)]
pub struct Region {
    pub label: String,
    pub within: Option<BoxId>,
}

#[derive(Debug, Clone, Default)]
pub struct Flow {
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    pub boxes: Vec<Region>,
}

/// The flow of `function`, of `block` where it is not an op's.
pub fn of(program: &Program, block: Option<&Block>, function: &Function) -> Flow {
    let origins = vec![Origin::Unknown; function.values.len()];
    let mut builder = Builder {
        program,
        block,
        function,
        flow: Flow::default(),
        origins,
        within: None,
        items: Vec::new(),
        states: Vec::new(),
    };
    for parameter in &function.parameters {
        if let ParameterKind::Value(value) = parameter.kind {
            let node = builder.node(Kind::Input, &parameter.name, "");
            builder.set(value, Origin::Node(node));
        }
    }
    builder.statements(&function.body.statements);
    for (index, value) in function.body.results.iter().enumerate() {
        let title =
            if function.body.results.len() == 1 { "result".to_owned() } else { format!("result {}", index + 1) };
        let node = builder.node(Kind::Result, &title, "");
        builder.connect(*value, node);
    }
    builder.flow
}

#[derive(Debug, Clone)]
enum Origin {
    Unknown,
    Node(NodeId),
    /// A number, written where it is used.
    Constant(String),
}

struct Builder<'p> {
    program: &'p Program,
    block: Option<&'p Block>,
    function: &'p Function,
    flow: Flow,
    origins: Vec<Origin>,
    within: Option<BoxId>,
    /// Loop variables over children, with their field.
    items: Vec<(LocalId, &'p Field)>,
    /// States read or written so far: the last is what a read finds.
    states: Vec<(FieldId, NodeId)>,
}

impl<'p> Builder<'p> {
    fn node(&mut self, kind: Kind, title: &str, note: &str) -> NodeId {
        let (title, note) = (title.to_owned(), note.to_owned());
        self.flow.nodes.push(Node { kind, title, note, probes: Vec::new(), within: self.within });
        NodeId(self.flow.nodes.len() - 1)
    }

    fn set(&mut self, value: ValueId, origin: Origin) {
        self.origins[value.0 as usize] = origin;
    }

    fn origin(&self, value: ValueId) -> &Origin {
        &self.origins[value.0 as usize]
    }

    /// An edge with the type of the value, from where it was made.
    fn connect(&mut self, value: ValueId, to: NodeId) {
        let label = print::ty(&self.function.value(value).ty);
        self.labelled(value, to, label);
    }

    fn labelled(&mut self, value: ValueId, to: NodeId, label: String) {
        if let Origin::Node(from) = *self.origin(value) {
            let weight = matches!(self.flow.nodes[from.0].kind, Kind::Weight);
            let label = if weight { String::new() } else { label };
            self.flow.edges.push(Edge { from, to, label, back: false });
        }
    }

    fn made(&mut self, outs: &[ValueId], node: NodeId) {
        for out in outs {
            self.set(*out, Origin::Node(node));
        }
    }

    /// Opens a box, fills it, and takes it back when nothing came in.
    fn boxed(&mut self, label: String, fill: impl FnOnce(&mut Self)) {
        let (outer, nodes) = (self.within, self.flow.nodes.len());
        let index = self.flow.boxes.len();
        self.flow.boxes.push(Region { label, within: outer });
        self.within = Some(BoxId(index));
        fill(self);
        self.within = outer;
        if self.flow.nodes.len() == nodes {
            self.flow.boxes.truncate(index);
        }
    }

    fn statements(&mut self, statements: &'p [Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &'p Statement) {
        match statement {
            Statement::Prim { out, op: Prim::Constant(number) | Prim::ConstantList(number), .. } => {
                self.set(*out, Origin::Constant(label::load(self.program, number)));
            }
            Statement::Prim { out, op, arguments, .. } => {
                let operands: Vec<Option<&str>> = arguments
                    .iter()
                    .map(|value| match self.origin(*value) {
                        Origin::Constant(text) => Some(&text[..]),
                        Origin::Node(_) | Origin::Unknown => None,
                    })
                    .collect();
                let title = label::primitive(self.program, op, &operands, &self.function.value(*out).ty);
                if let (true, [value]) = (matches!(op, Prim::Convert), &arguments[..])
                    && let Origin::Constant(text) = self.origin(*value)
                {
                    let text = text.clone();
                    return self.set(*out, Origin::Constant(text));
                }
                let node = self.node(Kind::Prim, &title, "");
                arguments.iter().for_each(|value| self.connect(*value, node));
                self.made(&[*out], node);
            }
            Statement::Let { .. } => {}
            Statement::Weight { out, field } => {
                let node = self.node(Kind::Weight, &self.field(*field), &print::ty(&self.function.value(*out).ty));
                self.made(&[*out], node);
            }
            Statement::StateRead { out, field } => {
                let known = self.states.iter().rev().find(|(of, _)| of == field).map(|(_, node)| *node);
                let node = known.unwrap_or_else(|| self.state(*field, "as it was"));
                self.made(&[*out], node);
            }
            Statement::StateWrite { field, value } => {
                let node = self.state(*field, "from now on");
                self.connect(*value, node);
            }
            Statement::CallOp { outs, op, arguments, .. } => {
                let node = self.node(Kind::Op(*op), &label::op_call(self.program, *op, arguments), "");
                self.call(outs, arguments, node);
            }
            Statement::CallBlock { outs, receiver, block, function, arguments, .. } => {
                let (title, field) = self.receiver(receiver);
                let method = &self.program.block(*block).function(*function).name;
                let title = if method.is_empty() { title } else { format!("{title}.{method}") };
                let note = field.unwrap_or_else(|| self.program.block(*block).name.clone());
                let node = self.node(Kind::Block { block: *block, stack: false }, &title, &note);
                self.call(outs, arguments, node);
            }
            Statement::Probe { out, value, name, .. } => {
                let origin = self.origin(*value).clone();
                self.set(*out, origin);
                if let Origin::Node(node) = *self.origin(*value) {
                    let name = label::probe(self.program, name);
                    self.flow.nodes[node.0].probes.push(name);
                }
            }
            Statement::If { outs, condition, then, otherwise } => {
                let condition = label::load(self.program, condition);
                self.boxed(format!("if {condition}"), |inside| inside.statements(&then.statements));
                self.boxed("else".to_owned(), |inside| inside.statements(&otherwise.statements));
                if !outs.is_empty() {
                    let node = self.node(Kind::Meet, &format!("{condition}?"), "");
                    for (word, arm) in [("yes", then), ("no", otherwise)] {
                        arm.results.iter().for_each(|value| self.labelled(*value, node, word.to_owned()));
                    }
                    self.made(outs, node);
                }
            }
            Statement::List { out, items } => {
                let node = self.node(Kind::Prim, "list", "");
                items.iter().for_each(|value| self.connect(*value, node));
                self.made(&[*out], node);
            }
            Statement::For { outs, over, carried, collected, body, .. } => {
                if !self.stack(outs, over, (carried, collected), body) {
                    self.turns(outs, over, (carried, collected), body);
                }
            }
        }
    }

    fn call(&mut self, outs: &[ValueId], arguments: &[Argument], node: NodeId) {
        for argument in arguments {
            match argument {
                Argument::Value(value) => self.connect(*value, node),
                Argument::Load(_) => {}
            }
        }
        self.made(outs, node);
    }

    /// `for layer in layers { x = layer(x, ..) }` as one node, which also is the list of what its turns give.
    fn stack(
        &mut self,
        outs: &[ValueId],
        over: &LoopOver,
        (carried, collected): (&[Carried], &[Collected]),
        body: &'p ir::Region,
    ) -> bool {
        let LoopOver::Children { item: of, array } = over else { return false };
        let mut calls =
            body.statements.iter().filter(|s| !matches!(s, Statement::Let { .. } | Statement::Probe { .. }));
        let (Some(Statement::CallBlock { outs: made, receiver, block, function, arguments, .. }), None) =
            (calls.next(), calls.next())
        else {
            return false;
        };
        let mut given = body.results.iter().chain(collected.iter().map(|c| &c.item));
        let mut named = made.clone();
        for statement in &body.statements {
            if let Statement::Probe { out, value, .. } = statement
                && named.contains(value)
            {
                named.push(*out);
            }
        }
        if !matches!(receiver, Receiver::Item { item, path } if item == of && path.is_empty())
            || !given.all(|value| named.contains(value))
        {
            return false;
        }
        let (name, field) = self.path(array);
        let method = &self.program.block(*block).function(*function).name;
        let title = if method.is_empty() { name } else { format!("{name}, each .{method}") };
        let note = field.map(|field| label::field(self.program, field)).unwrap_or_default();
        let node = self.node(Kind::Block { block: *block, stack: true }, &title, &note);
        for carried in carried {
            let origin = self.origin(carried.initial).clone();
            self.set(carried.inner, origin);
        }
        self.call(outs, arguments, node);
        for list in collected {
            self.made(&[list.out], node);
        }
        for statement in &body.statements {
            if let Statement::Probe { name, .. } = statement {
                let name = label::probe(self.program, name);
                self.flow.nodes[node.0].probes.push(name);
            }
        }
        true
    }

    fn turns(
        &mut self,
        outs: &[ValueId],
        over: &LoopOver,
        (carried, collected): (&[Carried], &[Collected]),
        body: &'p ir::Region,
    ) {
        let what = match over {
            LoopOver::Range { low, high, .. } => {
                format!("{}..{}", label::load(self.program, low), label::load(self.program, high))
            }
            LoopOver::List { list, .. } => label::load(self.program, list),
            LoopOver::Children { item, array } => {
                let (name, field) = self.path(array);
                self.items.extend(field.map(|field| (*item, field)));
                name
            }
            LoopOver::Values { item, list } => {
                let origin = self.origin(*list).clone();
                self.set(*item, origin);
                self.function.value(*list).name.clone().unwrap_or_else(|| "a list".to_owned())
            }
        };
        self.boxed(format!("for each of {what}"), |inside| {
            let mut starts = Vec::new();
            for carried in carried {
                let name = inside.function.value(carried.inner).name.clone().unwrap_or_default();
                let node = inside.node(Kind::Turn, &name, "");
                inside.connect(carried.initial, node);
                inside.set(carried.inner, Origin::Node(node));
                starts.push(node);
            }
            inside.statements(&body.statements);
            for (start, value) in starts.iter().zip(&body.results) {
                if let Origin::Node(from) = *inside.origin(*value) {
                    inside.flow.edges.push(Edge { from, to: *start, label: "next turn".to_owned(), back: true });
                }
            }
        });
        let lists = collected.iter().map(|list| (&list.out, &list.item));
        for (out, last) in outs.iter().zip(&body.results).chain(lists) {
            let origin = self.origin(*last).clone();
            self.set(*out, origin);
        }
    }

    fn state(&mut self, field: FieldId, note: &str) -> NodeId {
        let node = self.node(Kind::State, &self.field(field), note);
        self.states.push((field, node));
        node
    }

    fn field(&self, id: FieldId) -> String {
        self.block.map_or_else(String::new, |block| block.field(id).name.clone())
    }

    /// How the receiver is written, and what it was declared as.
    fn receiver(&self, receiver: &Receiver) -> (String, Option<String>) {
        let (name, field) = self.path(receiver);
        (name, field.map(|field| label::field(self.program, field)))
    }

    /// How a child, or an array of them, is written, and its field.
    fn path(&self, receiver: &Receiver) -> (String, Option<&'p Field>) {
        let (start, mut block, path) = match receiver {
            Receiver::Field(path) => (None, self.block, &path[..]),
            Receiver::Item { item, path } => {
                let field = self.items.iter().rev().find(|(local, _)| local == item).map(|(_, field)| *field);
                let inside = field.and_then(|field| self.child(field));
                (field, inside, &path[..])
            }
        };
        let mut names: Vec<String> = start.iter().map(|field| format!("one of {}", field.name)).collect();
        let mut declared = start;
        for id in path {
            let Some(field) = block.map(|block| block.field(*id)) else { break };
            names.push(field.name.clone());
            declared = Some(field);
            block = self.child(field);
        }
        (names.join("."), declared)
    }

    fn child(&self, field: &Field) -> Option<&'p Block> {
        match &field.kind {
            FieldKind::Child { block, .. } | FieldKind::Children { block, .. } => Some(self.program.block(*block)),
            FieldKind::Tensor(_)
            | FieldKind::Matrix(_)
            | FieldKind::State(_)
            | FieldKind::Let(_)
            | FieldKind::Derived { .. } => None,
        }
    }
}
