//! Blocks: parameters, then fields in order, then the signatures of their functions; bodies come last, when every
//! block they call has its signatures.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    Checker, Pending,
    bounds::{MAX_NESTING, Named},
    functions::load_parameters,
    scope::{Checked, Home, Item, Lowering, Reported},
    signature::{ParameterType, Signature},
    types::Written,
};
use crate::{
    ast,
    diagnostic::{Code, Diagnostic},
    dim::Dim,
    ir::*,
    source::{PRELUDE, Span},
};

#[derive(Debug, Clone)]
pub(crate) struct FieldEntry {
    pub name: String,
    pub kind: FieldKind,
    pub condition: Option<Load>,
    /// Facts that must be known where it is named.
    pub needed: Vec<String>,
    pub stored: Stored,
    pub span: Span,
}

#[derive(Debug)]
struct FunctionEntry<'a> {
    name: String,
    signature: Option<Signature>,
    ast: &'a ast::Signature,
    graph: bool,
    span: Span,
    lowered: Option<Function>,
}

#[derive(Debug)]
pub(crate) struct BlockEntry<'a> {
    name: String,
    doc: String,
    span: Span,
    parameters: Option<Signature>,
    fields: Vec<FieldEntry>,
    /// Names whose field is wrong: known, and never reported again.
    poisoned: Vec<String>,
    /// Fields, states and `let`s that have not been read yet.
    further_down: Vec<ast::Name>,
    ignores: Vec<String>,
    functions: Vec<FunctionEntry<'a>>,
    complete: bool,
    stateful: bool,
    /// Whether the block or one inside it has a stored tensor.
    stored: bool,
    count: u64,
}

impl BlockEntry<'_> {
    pub fn finish(self) -> Option<Block> {
        let functions = self.functions.into_iter().map(|f| f.lowered).collect::<Option<Vec<_>>>()?;
        let fields = self
            .fields
            .into_iter()
            .map(|f| Field { name: f.name, kind: f.kind, condition: f.condition, stored: f.stored, span: f.span })
            .collect();
        Some(Block {
            name: self.name,
            doc: self.doc,
            parameters: load_parameters(&self.parameters?),
            fields,
            ignores: self.ignores,
            functions,
            span: self.span,
        })
    }
}

/// The block part of the tree, for `block` and `model` alike.
struct Definition<'a> {
    name: &'a str,
    parameters: &'a [ast::Parameter],
    members: &'a [ast::Member],
    doc: &'a str,
    span: Span,
}

impl<'a> Checker<'a> {
    pub fn block_name(&self, block: BlockId) -> &str {
        &self.blocks[block.0 as usize].name
    }

    pub fn block_span(&self, block: BlockId) -> Span {
        self.blocks[block.0 as usize].span
    }

    pub fn function_span(&self, block: BlockId, name: &str) -> Option<Span> {
        self.blocks[block.0 as usize].functions.iter().find(|f| f.name == name).map(|f| f.span)
    }

    pub fn field_id(&self, block: BlockId, name: &str) -> Option<FieldId> {
        let entry = &self.blocks[block.0 as usize];
        match entry.fields.iter().position(|f| f.name == name) {
            Some(i) => Some(FieldId(i as u32)),
            // An id that no field has: `field` says that it was reported.
            None => entry.poisoned.iter().any(|p| p == name).then_some(FieldId(u32::MAX)),
        }
    }

    pub fn field(&self, block: BlockId, field: FieldId) -> Option<&FieldEntry> {
        self.blocks[block.0 as usize].fields.get(field.0 as usize)
    }

    /// Where a field, state or `let` of this name stands that has not been read yet.
    pub fn member_further_down(&self, block: BlockId, name: &str) -> Option<Span> {
        let entry = &self.blocks[block.0 as usize];
        entry.further_down.iter().find(|later| later.node == name).map(|later| later.span)
    }

    pub fn field_names(&self, block: BlockId) -> Vec<String> {
        self.blocks[block.0 as usize].fields.iter().map(|f| f.name.clone()).collect()
    }

    pub fn member_let(&self, block: BlockId, field: FieldId) -> Option<&Load> {
        match &self.field(block, field)?.kind {
            FieldKind::Let(value) => Some(value),
            _ => None,
        }
    }

    pub fn block_parameters(&self, block: BlockId) -> Checked<Signature> {
        self.blocks[block.0 as usize].parameters.clone().ok_or(Reported)
    }

    /// A function of a block by name (`""` for the unnamed one). `None` when there is none.
    pub fn block_function(&self, block: BlockId, name: &str) -> Option<(FunctionId, Checked<Signature>)> {
        let functions = &self.blocks[block.0 as usize].functions;
        let i = functions.iter().position(|f| f.name == name && !f.graph)?;
        Some((FunctionId(i as u32), functions[i].signature.clone().ok_or(Reported)))
    }

    pub fn function_names(&self, block: BlockId) -> Vec<String> {
        self.blocks[block.0 as usize].functions.iter().filter(|f| !f.graph).map(|f| f.name.clone()).collect()
    }

    /// Whether the block or one inside it holds state.
    pub fn has_state(&self, block: BlockId) -> bool {
        self.blocks[block.0 as usize].stateful
    }

    fn holds_state(&self, block: BlockId) -> bool {
        self.blocks[block.0 as usize].fields.iter().any(|f| match &f.kind {
            FieldKind::State(_) => true,
            FieldKind::Child { block, .. } | FieldKind::Children { block, .. } => self.has_state(*block),
            FieldKind::Tensor(_) | FieldKind::Matrix(_) | FieldKind::Let(_) | FieldKind::Derived { .. } => false,
        })
    }

    /// How many blocks it stands for, arrays counted once.
    pub fn blocks_in(&self, block: BlockId) -> u64 {
        self.blocks[block.0 as usize].count
    }

    pub fn graph_signature(&self, block: BlockId, name: &str) -> Option<Signature> {
        let functions = &self.blocks[block.0 as usize].functions;
        functions.iter().find(|f| f.graph && f.name == name)?.signature.clone()
    }

    /// The block of this name, its fields and signatures checked. `None` when there is none.
    pub fn reach_block(&mut self, name: &str) -> Option<BlockId> {
        if let Some(id) = self.block_ids.get(name) {
            return Some(*id);
        }
        let block = self.items.blocks.get(name).copied()?;
        let definition = Definition {
            name: &block.name.node,
            parameters: &block.parameters,
            members: &block.members,
            doc: &block.doc,
            span: block.name.span,
        };
        Some(self.check_block(definition, true))
    }

    pub fn reach_model(&mut self, model: &'a ast::Model) -> BlockId {
        let definition =
            Definition { name: "Model", parameters: &[], members: &model.members, doc: "", span: model.span };
        self.check_block(definition, false)
    }

    /// Whether the block is still being checked, which means that it contains itself.
    pub fn is_complete(&self, block: BlockId) -> bool {
        self.blocks[block.0 as usize].complete
    }

    fn check_block(&mut self, block: Definition<'a>, named: bool) -> BlockId {
        let id = BlockId(self.blocks.len() as u32);
        if named {
            self.block_ids.insert(block.name, id);
        }
        self.blocks.push(BlockEntry {
            name: block.name.to_string(),
            doc: block.doc.to_string(),
            span: block.span,
            parameters: None,
            fields: Vec::new(),
            poisoned: Vec::new(),
            further_down: block.members.iter().rev().filter_map(member_name).cloned().collect(),
            ignores: Vec::new(),
            functions: Vec::new(),
            complete: false,
            stateful: false,
            stored: false,
            count: 1,
        });
        if self.block_depth >= MAX_NESTING {
            let message = format!("blocks stand in each other more than {MAX_NESTING} deep here");
            self.report(Diagnostic::new(Code::NestedTooDeep, block.span, message));
            self.blocks[id.0 as usize].complete = true;
            return id;
        }
        self.block_depth += 1;
        let sees_config = block.span.file != PRELUDE;
        let parameters =
            Lowering::new(self, Home::Block(id), sees_config).signature(block.parameters, None, block.span);
        let parameters = parameters.and_then(|signature| self.load_only(signature));
        self.blocks[id.0 as usize].parameters = parameters.ok();
        let mut seen: HashMap<&str, Span> = HashMap::new();
        for member in block.members {
            if member_name(member).is_some() {
                self.blocks[id.0 as usize].further_down.pop();
            }
            self.check_member(id, member, sees_config, &mut seen);
        }
        self.block_depth -= 1;
        self.check_stored_paths(id);
        self.blocks[id.0 as usize].stateful = self.holds_state(id);
        self.blocks[id.0 as usize].stored = self.blocks[id.0 as usize].fields.iter().any(|f| f.is_stored(self));
        let fields = self.blocks[id.0 as usize].fields.clone();
        self.blocks[id.0 as usize].count = self.block_count(block.name, block.span, &fields);
        for member in block.members {
            self.check_function_signature(id, member, sees_config);
        }
        self.blocks[id.0 as usize].complete = true;
        self.pending.push_back(Pending::Block(id));
        id
    }

    fn load_only(&mut self, signature: Signature) -> Checked<Signature> {
        match signature.parameters.iter().find(|p| matches!(p.ty, ParameterType::Value(_))) {
            None => Ok(signature),
            Some(tensor) => {
                let message = "a block parameter is a load value; tensors are given to its functions";
                Err(self.report(Diagnostic::new(Code::WrongStage, tensor.name.span, message)))
            }
        }
    }

    /// A lowering for one member of the block, its parameters bound.
    fn in_block(&mut self, block: BlockId, sees_config: bool) -> Checked<Lowering<'_, 'a>> {
        let parameters = self.block_parameters(block)?;
        let mut lowering = Lowering::new(self, Home::Block(block), sees_config);
        lowering.bind_parameters(&parameters);
        Ok(lowering)
    }

    fn check_member(
        &mut self,
        block: BlockId,
        member: &'a ast::Member,
        sees_config: bool,
        seen: &mut HashMap<&'a str, Span>,
    ) {
        let (name, field) = match member {
            ast::Member::Ignore { pattern } => {
                // What is wrong was reported, and excuses nothing.
                if self.no_names_in_holes(pattern).is_ok() {
                    self.blocks[block.0 as usize].ignores.push(pattern.node.clone());
                }
                return;
            }
            ast::Member::Graph { .. } | ast::Member::Function { .. } => return,
            ast::Member::State { name, ty } => (name, self.state(block, name, ty, sees_config)),
            ast::Member::Let { name, value, condition } => {
                (name, self.member_value(block, name, value, condition.as_ref(), sees_config))
            }
            ast::Member::Field { name, ty, source, condition } => {
                (name, self.member_field(block, name, ty, source.as_ref(), condition.as_ref(), sees_config))
            }
        };
        if sees_config && let Some(span) = self.config.defined_at(&name.node) {
            self.report(
                Diagnostic::new(Code::HidesConfigName, name.span, format!("`{}` hides the config name", name.node))
                    .label("hides it")
                    .help("choose another name for the field, and give its stored name with `as`")
                    .also(span, "defined here"),
            );
        }
        let parameter = self.blocks[block.0 as usize]
            .parameters
            .as_ref()
            .and_then(|p| p.parameters.iter().find(|p| p.name.node == name.node).map(|p| p.name.span));
        if let Some(first) = seen.get(name.node.as_str()).copied().or(parameter) {
            self.twice(name, first);
            return;
        }
        seen.insert(&name.node, name.span);
        let entry = &mut self.blocks[block.0 as usize];
        match field {
            Ok(field) => entry.fields.push(field),
            Err(Reported) => entry.poisoned.push(name.node.clone()),
        }
    }

    fn state(&mut self, block: BlockId, name: &ast::Name, ty: &ast::Type, sees_config: bool) -> Checked<FieldEntry> {
        let mut lowering = self.in_block(block, sees_config)?;
        let written = lowering.collecting(|this| this.written(ty))?;
        let Written::Tensor(tensor) = written else {
            return lowering.fail(Code::StateMisuse, ty.span, "a state is a tensor");
        };
        let free: Vec<Option<&str>> = tensor
            .shape
            .dims
            .iter()
            .map(|dim| match dim.as_atom().map(|a| &a.load.kind) {
                Some(LoadKind::Free(name)) => Some(name.as_str()),
                _ => None,
            })
            .collect();
        if tensor.shape.pack || free.first() != Some(&Some("B")) {
            return Err(lowering.error(
                Diagnostic::new(Code::StateMisuse, ty.span, "the first dim of a state is `B`, the rows of the call")
                    .help("row `b` of a call is the slot that serves that request"),
            ));
        }
        let bad = free[1..].iter().flatten().find(|n| **n != "T");
        if let Some(bad) = bad {
            let message =
                format!("`{bad}` is bound by no call here: a state has `B` first, then `T` and dims known at load");
            return lowering.fail(Code::StateMisuse, ty.span, message);
        }
        if free[1..].iter().flatten().count() > 1 {
            return lowering.fail(Code::StateMisuse, ty.span, "`T` stands once in a state");
        }
        for dim in &tensor.shape.dims {
            let compound = dim.as_atom().is_none();
            if compound && dim.atoms().any(|a| matches!(a.load.kind, LoadKind::Free(_))) {
                let message = "`B` and `T` stand alone in the shape of a state";
                return lowering.fail(Code::StateMisuse, ty.span, message);
            }
        }
        Ok(FieldEntry {
            name: name.node.clone(),
            kind: FieldKind::State(tensor),
            condition: None,
            needed: Vec::new(),
            stored: own_name(name),
            span: name.span,
        })
    }

    fn member_value(
        &mut self,
        block: BlockId,
        name: &ast::Name,
        value: &ast::Expr,
        condition: Option<&ast::Expr>,
        sees_config: bool,
    ) -> Checked<FieldEntry> {
        let mut lowering = self.in_block(block, sees_config)?;
        let (condition, needed) = lowering.member_condition(condition)?;
        lowering.call_stage = true;
        lowering.derived = true;
        let (item, statements) = lowering.region(|this| this.expr(value));
        let item = item?;
        lowering.item_found(name.span, &item);
        let kind = match item {
            Item::Load(value) => {
                let measure = lowering.measured(name, &value)?;
                let field = FieldId(lowering.checker.blocks[block.0 as usize].fields.len() as u32);
                lowering.remember(Named::Member(block, field), measure);
                FieldKind::Let(value)
            }
            Item::Value(result) => {
                let ty = lowering.tensor_type(result, value.span)?;
                let body = Region { statements, results: vec![result] };
                let body = Arc::new(lowering.finish_derived(name.node.clone(), ty.clone(), body, name.span));
                FieldKind::Derived { ty, body }
            }
            item => {
                let message =
                    format!("a `let` of a block is a load value or one tensor, this is {}", lowering.describe(&item));
                return lowering.fail(Code::TypeMismatch, value.span, message);
            }
        };
        Ok(FieldEntry { name: name.node.clone(), kind, condition, needed, stored: own_name(name), span: name.span })
    }

    fn member_field(
        &mut self,
        block: BlockId,
        name: &ast::Name,
        ty: &ast::FieldType,
        source: Option<&ast::StoredAs>,
        condition: Option<&ast::Expr>,
        sees_config: bool,
    ) -> Checked<FieldEntry> {
        let mut lowering = self.in_block(block, sees_config)?;
        let (condition, needed) = lowering.member_condition(condition)?;
        let kind = match ty {
            ast::FieldType::Child(child) => lowering.child(child)?,
            ast::FieldType::Array { child, variable, low, high } => lowering.children(child, variable, low, high)?,
            ast::FieldType::Type(ty) => {
                let kind = lowering.weight_or_block(ty)?;
                let shape = match &kind {
                    FieldKind::Tensor(tensor) => Some(&tensor.shape),
                    FieldKind::Matrix(shape) => Some(shape),
                    FieldKind::Child { .. }
                    | FieldKind::Children { .. }
                    | FieldKind::State(_)
                    | FieldKind::Let(_)
                    | FieldKind::Derived { .. } => None,
                };
                let dims = shape.map_or(&[][..], |shape| &shape.dims);
                if let Some(size) = dims.iter().find(|size| lowering.below(size, &Dim::int(1), &[])) {
                    let message = format!("a dim of a weight is 1 or more, this is `{size}`");
                    return lowering.fail(Code::TypeMismatch, ty.span, message);
                }
                kind
            }
        };
        let stored = match source {
            None => own_name(name),
            Some(source) => lowering.stored(source)?,
        };
        Ok(FieldEntry { name: name.node.clone(), kind, condition, needed, stored, span: name.span })
    }

    /// Two fields on one stored path must exclude each other.
    fn check_stored_paths(&mut self, block: BlockId) {
        let fields = self.blocks[block.0 as usize].fields.clone();
        let stored: Vec<&FieldEntry> = fields.iter().filter(|f| f.is_stored(self)).collect();
        // One mistake, one message: each field against the first that it cannot stand beside.
        let mut at: HashMap<&str, Vec<&FieldEntry>> = HashMap::new();
        let mut clashes = Vec::new();
        for second in stored {
            let whole =
                second.stored.places.iter().flatten().filter(|part| part.rows.is_none() && !part.path.is_empty());
            let paths: BTreeSet<&str> = whole.map(|part| part.path.as_str()).collect();
            let first = paths.iter().find_map(|path| {
                let first = at.get(path).into_iter().flatten().find(|first| !self.apart(block, first, second))?;
                Some((first.name.clone(), first.span, *path))
            });
            clashes.extend(first.map(|(first, span, path)| (first, span, second, path)));
            paths.iter().for_each(|path| at.entry(path).or_default().push(second));
        }
        for (first, span, second, path) in clashes {
            let message = format!("`{first}` and `{}` both lie at {path:?}", second.name);
            self.report(
                Diagnostic::new(Code::DoublyClaimed, second.span, message)
                    .label("the same stored path")
                    .help("give one of them another path with `as`, or conditions that exclude each other")
                    .also(span, "claimed here"),
            );
        }
    }

    /// Whether two fields never exist together.
    fn apart(&mut self, block: BlockId, first: &FieldEntry, second: &FieldEntry) -> bool {
        match (&first.condition, &second.condition) {
            (Some(a), Some(b)) => Lowering::new(self, Home::Block(block), true).exclusive(a, b),
            _ => false,
        }
    }

    fn check_function_signature(&mut self, block: BlockId, member: &'a ast::Member, sees_config: bool) {
        let (name, signature, graph, span) = match member {
            ast::Member::Function { name, span, signature } => (
                name.as_ref().map_or("", |n| n.node.as_str()),
                signature,
                false,
                name.as_ref().map_or(*span, |n| n.span),
            ),
            ast::Member::Graph { name, signature } => (name.node.as_str(), signature, true, name.span),
            ast::Member::State { .. }
            | ast::Member::Ignore { .. }
            | ast::Member::Let { .. }
            | ast::Member::Field { .. } => {
                return;
            }
        };
        let same = self.blocks[block.0 as usize].functions.iter().find(|f| f.name == name).map(|f| f.span);
        let field = self.field_id(block, name).and_then(|f| self.field(block, f)).map(|f| f.span);
        if let Some(first) = same.or(field) {
            let message = if name.is_empty() {
                "a block has one `fn` without a name".to_string()
            } else {
                format!("`{name}` is defined twice")
            };
            self.report(Diagnostic::new(Code::DuplicateName, span, message).also(first, "first here"));
            return;
        }
        let read = match self.in_block(block, sees_config) {
            Ok(mut lowering) => lowering.signature(&signature.parameters, signature.result.as_ref(), span),
            Err(reported) => Err(reported),
        };
        let read = read.and_then(|s| self.tensor_results(s, span)).and_then(|s| self.own_parameters(block, s));
        self.blocks[block.0 as usize].functions.push(FunctionEntry {
            name: name.to_string(),
            signature: read.ok(),
            ast: signature,
            graph,
            span,
            lowered: None,
        });
    }

    /// A parameter of a function has another name than those of its block.
    fn own_parameters(&mut self, block: BlockId, signature: Signature) -> Checked<Signature> {
        let block = self.block_parameters(block)?;
        for parameter in &signature.parameters {
            if let Some(first) = block.parameters.iter().find(|p| p.name.node == parameter.name.node) {
                return Err(self.twice(&parameter.name, first.name.span));
            }
        }
        Ok(signature)
    }

    fn tensor_results(&mut self, signature: Signature, span: Span) -> Checked<Signature> {
        if !signature.is_load() {
            return Ok(signature);
        }
        let message = "a function of a block gives tensors; load values belong in an `op` or a `let`";
        Err(self.report(Diagnostic::new(Code::WrongStage, span, message)))
    }

    pub fn check_functions(&mut self, block: BlockId) {
        for i in 0..self.blocks[block.0 as usize].functions.len() {
            let entry = &self.blocks[block.0 as usize].functions[i];
            let (name, tree, graph, span) = (entry.name.clone(), entry.ast, entry.graph, entry.span);
            let Some(signature) = entry.signature.clone() else { continue };
            let sees_config = span.file != PRELUDE;
            let Ok(mut lowering) = self.in_block(block, sees_config) else { continue };
            lowering.enter(&signature, true);
            if let Ok(body) = lowering.function_body(&tree.body, &signature) {
                let function = lowering.finish(name, String::new(), graph, &signature, body, span);
                self.blocks[block.0 as usize].functions[i].lowered = Some(function);
            }
        }
    }
}

impl FieldEntry {
    /// Whether it lies somewhere in the checkpoint; a child with states and `let`s alone does not.
    fn is_stored(&self, checker: &Checker<'_>) -> bool {
        match &self.kind {
            FieldKind::Tensor(_) | FieldKind::Matrix(_) => true,
            FieldKind::State(_) | FieldKind::Let(_) | FieldKind::Derived { .. } => false,
            FieldKind::Child { block, .. } | FieldKind::Children { block, .. } => {
                checker.blocks[block.0 as usize].stored
            }
        }
    }
}

fn own_name(name: &ast::Name) -> Stored {
    Stored { places: vec![vec![StoredPart { path: name.node.clone(), rows: None }]] }
}

/// The name of a member that others name: a field, a state, a `let`.
fn member_name(member: &ast::Member) -> Option<&ast::Name> {
    match member {
        ast::Member::State { name, .. } | ast::Member::Let { name, .. } | ast::Member::Field { name, .. } => Some(name),
        ast::Member::Ignore { .. } | ast::Member::Graph { .. } | ast::Member::Function { .. } => None,
    }
}
