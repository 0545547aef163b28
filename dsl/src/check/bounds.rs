//! How large the meaning of a small text may become. Names are opened where they are used (`let`s in dims and conditions,
//! calls in graphs, blocks in blocks), so a page of definitions that each name the one before twice stands for more than
//! any machine holds; here such a page is refused. Every bound is far beyond what a family needs.

use super::{
    Checker,
    scope::{Checked, Home, Lowering},
};
use crate::{
    ast,
    diagnostic::{Code, Diagnostic},
    ir::*,
    source::Span,
};

/// Parts of a load value, the `let`s it names opened.
const MAX_PARTS: u64 = 10_000;
/// And how deep they nest.
const MAX_DEPTH: u64 = 256;
/// Blocks inside blocks, and calls inside calls.
pub(super) const MAX_NESTING: usize = 64;
/// Blocks inside a block, arrays counted once.
const MAX_BLOCKS: u64 = 1 << 16;
/// Statements of a graph, calls opened, loops counted once.
const MAX_STATEMENTS: u64 = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Measure {
    parts: u64,
    depth: u64,
}

/// A name that stands for a load value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Named {
    Config(ConfigPath),
    Local(LocalId),
    Member(BlockId, FieldId),
}

impl Lowering<'_, '_> {
    /// Measures what a `let` stands for; too much is an error at its name.
    pub fn measured(&mut self, name: &ast::Name, value: &Load) -> Checked<Measure> {
        let measure = self.measure(value);
        let what = if measure.parts > MAX_PARTS {
            format!("is made of more than {MAX_PARTS} parts")
        } else if measure.depth > MAX_DEPTH {
            format!("nests more than {MAX_DEPTH} deep")
        } else {
            return Ok(measure);
        };
        let message = format!("`{}` {what}, the `let`s that it names opened", name.node);
        let error = Diagnostic::new(Code::NestedTooDeep, name.span, message);
        Err(self.error(error.help("compute it in an `op`, which is not opened")))
    }

    pub fn remember(&mut self, named: Named, measure: Measure) {
        self.checker.measures.insert(named, measure);
    }

    fn measure(&self, value: &Load) -> Measure {
        let named = match &value.kind {
            LoadKind::Config(path) => Some(Named::Config(path.clone())),
            LoadKind::Local(local) => Some(Named::Local(*local)),
            LoadKind::Member(field) => match self.home {
                Home::Block(block) => Some(Named::Member(block, *field)),
                Home::Config | Home::Op(_) => None,
            },
            _ => None,
        };
        if let Some(measure) = named.and_then(|named| self.checker.measures.get(&named)) {
            return *measure;
        }
        let (mut parts, mut depth) = (1u64, 0);
        value.for_each_part(&mut |part| {
            let measure = self.measure(part);
            parts = parts.saturating_add(measure.parts);
            depth = depth.max(measure.depth);
        });
        Measure { parts, depth: depth + 1 }
    }
}

impl Checker<'_> {
    /// The number of blocks in a block whose fields are these, itself included.
    pub fn block_count(&mut self, name: &str, span: Span, fields: &[super::blocks::FieldEntry]) -> u64 {
        let below = fields.iter().map(|field| match &field.kind {
            FieldKind::Child { block, .. } | FieldKind::Children { block, .. } => self.blocks_in(*block),
            FieldKind::Tensor(_)
            | FieldKind::Matrix(_)
            | FieldKind::State(_)
            | FieldKind::Let(_)
            | FieldKind::Derived { .. } => 0,
        });
        let count = below.fold(1u64, u64::saturating_add);
        if count <= MAX_BLOCKS {
            return count;
        }
        let message = format!("`{name}` stands for more than {MAX_BLOCKS} blocks, those in its fields counted");
        self.report(Diagnostic::new(Code::NestedTooDeep, span, message).help("repeated blocks belong in an array"));
        1
    }
}

/// What is called by what: ops first, then the functions of the blocks in order.
struct Calls {
    /// Index of the first function of each block.
    first: Vec<usize>,
    nodes: Vec<Node>,
}

#[derive(Debug, Default, Clone)]
struct Node {
    span: Option<Span>,
    name: String,
    statements: u64,
    calls: Vec<usize>,
}

/// The op or function that stands for too much, calls opened. The program has no recursion.
pub(crate) fn too_large(program: &Program) -> Option<Diagnostic> {
    let calls = Calls::of(program);
    let mut known: Vec<Option<(usize, u64)>> = vec![None; calls.nodes.len()];
    // Callees before callers, without recursion: the depth is what is in question.
    let mut open: Vec<usize> = (0..calls.nodes.len()).rev().collect();
    while let Some(&at) = open.last() {
        if known[at].is_some() {
            open.pop();
            continue;
        }
        let node = &calls.nodes[at];
        let missing: Vec<usize> = node.calls.iter().copied().filter(|callee| known[*callee].is_none()).collect();
        if !missing.is_empty() {
            open.extend(missing);
            continue;
        }
        open.pop();
        let below: Vec<(usize, u64)> = node.calls.iter().filter_map(|callee| known[*callee]).collect();
        let depth = below.iter().map(|(depth, _)| depth + 1).max().unwrap_or(0);
        let statements = below.iter().fold(node.statements, |sum, (_, statements)| sum.saturating_add(*statements));
        known[at] = Some((depth, statements));
        let what = if depth > MAX_NESTING {
            format!("calls that nest more than {MAX_NESTING} deep")
        } else if statements > MAX_STATEMENTS {
            format!("more than {MAX_STATEMENTS} operations, the calls in it opened")
        } else {
            continue;
        };
        let message = format!("`{}` stands for {what}", node.name);
        return node.span.map(|span| Diagnostic::new(Code::NestedTooDeep, span, message));
    }
    None
}

impl Calls {
    fn of(program: &Program) -> Self {
        let mut first = Vec::new();
        let mut next = program.ops.len();
        for block in &program.blocks {
            first.push(next);
            next += block.functions.len();
        }
        let mut calls = Calls { first, nodes: Vec::with_capacity(next) };
        for op in &program.ops {
            let mut node = Node { span: Some(op.span), name: op.name.clone(), ..Node::default() };
            match &op.kind {
                OpKind::Tensor { function, .. } => calls.region(&function.body, &mut node),
                OpKind::Load { body, .. } => calls.load(body, &mut node),
            }
            calls.nodes.push(node);
        }
        for block in &program.blocks {
            for function in &block.functions {
                let name = if function.name.is_empty() { block.name.clone() } else { function.name.clone() };
                let mut node = Node { span: Some(function.span), name, ..Node::default() };
                calls.region(&function.body, &mut node);
                calls.nodes.push(node);
            }
        }
        calls
    }

    fn load(&self, load: &Load, node: &mut Node) {
        if let LoadKind::Op(op, _) = &load.kind {
            node.calls.push(op.0 as usize);
        }
        load.for_each_part(&mut |part| self.load(part, node));
    }

    fn region(&self, region: &Region, node: &mut Node) {
        region.for_each(&mut |statement| {
            node.statements += 1;
            match statement {
                Statement::CallOp { op, .. } => node.calls.push(op.0 as usize),
                Statement::CallBlock { block, function, .. } => {
                    if let Some(first) = self.first.get(block.0 as usize) {
                        node.calls.push(first + function.0 as usize);
                    }
                }
                Statement::Prim { .. }
                | Statement::Let { .. }
                | Statement::Weight { .. }
                | Statement::StateRead { .. }
                | Statement::StateWrite { .. }
                | Statement::Probe { .. }
                | Statement::List { .. }
                | Statement::If { .. }
                | Statement::For { .. } => {}
            }
        });
    }
}
