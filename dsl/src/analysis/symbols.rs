//! Definitions: one symbol per name that a text defines, with the words of its declaration, its documentation, and where
//! it can be named.

use std::collections::HashMap;

use super::dims;
use crate::{
    ast,
    parser::{
        Parsed,
        scan::{self, Kind, Token},
    },
    source::{FileId, Sources, Span},
};

/// Index into [`Analysis::symbols`](super::Analysis::symbols).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SymbolId(pub usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolKind {
    Family,
    Processor,
    Section,
    ConfigField,
    Limit,
    /// Of the config or of a block.
    Let,
    TypeAlias,
    Op,
    Block,
    Model,
    /// Of an op, a block, or a function.
    Parameter,
    /// A weight, a child, or an array of children.
    Field,
    State,
    Function,
    Graph,
    Local,
    FreeDim,
}

#[derive(Debug, Clone)]
pub struct Symbol {
    /// Empty for the `fn` of a block that has none.
    pub name: String,
    pub kind: SymbolKind,
    /// The name; of a nameless function its `fn`.
    pub span: Span,
    /// The whole declaration.
    pub extent: Span,
    /// Where it can be named without a dot; `None` for everywhere.
    pub scope: Option<Span>,
    /// The declaration without its body, on one line. Empty for locals and free dims.
    pub declaration: String,
    /// The `///` lines before it, or the `//` behind it.
    pub doc: String,
    pub parent: Option<SymbolId>,
    /// Of a field that holds a block: the block.
    pub block: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub symbols: Vec<Symbol>,
    /// Uses of free dims, which only the tree tells apart.
    pub uses: Vec<(Span, SymbolId)>,
}

impl Table {
    pub fn read(&mut self, sources: &Sources, file: FileId, parsed: &Parsed) {
        let text = sources.get(file).text.as_str();
        let aliases = parsed.tree.items.iter().filter_map(|item| match item {
            ast::Item::Type(alias) => Some((alias.name.node.as_str(), &alias.ty)),
            ast::Item::Config(_)
            | ast::Item::Processor(_)
            | ast::Item::Numerics(_)
            | ast::Item::Contract(_)
            | ast::Item::Op(_)
            | ast::Item::Block(_)
            | ast::Item::Model(_) => None,
        });
        let aliases = aliases.collect();
        let tokens = scan::scan(file, text).0;
        let mut reader = Reader { table: self, text, file, tokens, items: &parsed.items, aliases };
        if let Some(header) = &parsed.tree.header {
            let extent = reader.item_of(header.name.span);
            let id = reader.add(&header.name, SymbolKind::Family, extent, None, None);
            reader.table.symbols[id.0].doc = header.doc.clone();
        }
        for item in &parsed.tree.items {
            reader.item(item);
        }
    }
}

pub(super) struct Reader<'t, 'a> {
    pub table: &'t mut Table,
    text: &'a str,
    file: FileId,
    tokens: Vec<Token>,
    items: &'a [Span],
    pub aliases: HashMap<&'a str, &'a ast::Type>,
}

/// Words that stand before the name they declare.
const DECLARING: &[&str] = &["let", "limit", "section", "state", "graph", "fn", "op", "block", "type", "family", "mut"];

impl<'a> Reader<'_, 'a> {
    fn span(&self, start: u32, end: u32) -> Span {
        Span { file: self.file, start, end }
    }

    /// The item around `inner`.
    fn item_of(&self, inner: Span) -> Span {
        let before = self.items.partition_point(|item| item.start <= inner.start);
        before.checked_sub(1).map(|i| self.items[i]).filter(|item| inner.end <= item.end).unwrap_or(inner)
    }

    /// The last token that ends at or before `offset`.
    fn token_before(&self, offset: u32) -> Option<usize> {
        self.tokens.partition_point(|t| t.end <= offset as usize).checked_sub(1)
    }

    fn word(&self, index: usize) -> &'a str {
        self.tokens.get(index).map_or("", |t| &self.text[t.start..t.end])
    }

    /// The first token of the declaration of the name at `span`.
    fn first_token(&self, span: Span) -> usize {
        let name = self.tokens.partition_point(|t| t.start < span.start as usize);
        match name.checked_sub(1) {
            Some(before) if DECLARING.contains(&self.word(before)) => before,
            _ => name,
        }
    }

    /// From the first token of a declaration to the last one before `next`, the start of what follows it.
    fn extent(&self, span: Span, next: u32) -> Span {
        let first = self.first_token(span);
        let start = self.tokens.get(first).map_or(span.start, |t| t.start as u32);
        let mut last = self.token_before(next);
        while let Some(index) = last
            && index > first
            && matches!(self.tokens[index].kind, Kind::Doc | Kind::FileDoc)
        {
            last = index.checked_sub(1);
        }
        let end = last.and_then(|i| self.tokens.get(i)).map_or(span.end, |t| t.end as u32);
        self.span(start, end.max(span.end))
    }

    /// The `///` lines before the declaration, or the comment behind its last line.
    fn doc(&self, span: Span, extent: Span) -> String {
        let first = self.first_token(span);
        let before = self.tokens[..first.min(self.tokens.len())].iter().rev();
        let mut lines: Vec<&str> = before
            .take_while(|t| t.kind == Kind::Doc)
            .map(|t| self.text[t.start..t.end].trim_start_matches('/').trim())
            .collect();
        lines.reverse();
        if lines.is_empty() {
            let behind = self.text[extent.end as usize..].lines().next().unwrap_or_default().trim_start();
            lines.extend(behind.strip_prefix("//").filter(|c| !c.starts_with('/')).map(str::trim));
        }
        lines.join("\n")
    }

    /// On one line, without comments.
    fn words(&self, span: Span) -> String {
        let (start, end) = (span.start as usize, span.end as usize);
        let first = self.tokens.partition_point(|t| t.start < start);
        let mut words = String::new();
        let mut before = start;
        for token in self.tokens[first..].iter().take_while(|t| t.end <= end).filter(|t| !t.is_doc()) {
            let between = &self.text[before..token.start];
            words += if between.trim().is_empty() && !between.contains('\n') { between } else { " " };
            words += &self.text[token.start..token.end];
            before = token.end;
        }
        words.trim().to_string()
    }

    fn add(
        &mut self,
        name: &ast::Name,
        kind: SymbolKind,
        extent: Span,
        scope: Option<Span>,
        parent: Option<SymbolId>,
    ) -> SymbolId {
        let symbol = Symbol {
            name: name.node.clone(),
            kind,
            span: name.span,
            extent,
            scope,
            declaration: self.words(extent),
            doc: self.doc(name.span, extent),
            parent,
            block: None,
        };
        self.table.symbols.push(symbol);
        SymbolId(self.table.symbols.len() - 1)
    }

    /// Its declaration ends before `end`, where its body begins.
    fn declared_until(&mut self, id: SymbolId, end: u32) {
        let extent = self.table.symbols[id.0].extent;
        let words = self.words(self.span(extent.start, end.clamp(extent.start, extent.end)));
        self.table.symbols[id.0].declaration = words;
    }

    fn item(&mut self, item: &'a ast::Item) {
        match item {
            ast::Item::Config(settings) => {
                let spans: Vec<Span> = settings.iter().map(setting_span).collect();
                let end = spans.first().map_or(0, |s| self.item_of(*s).end);
                self.settings(settings, end, None, None);
            }
            ast::Item::Processor(processor) => {
                let extent = self.item_of(processor.name.span);
                self.add(&processor.name, SymbolKind::Processor, extent, None, None);
            }
            ast::Item::Numerics(_) | ast::Item::Contract(_) => {}
            ast::Item::Type(alias) => {
                let extent = self.item_of(alias.name.span);
                self.add(&alias.name, SymbolKind::TypeAlias, extent, None, None);
            }
            ast::Item::Op(op) => {
                let extent = self.item_of(op.name.span);
                let id = self.add(&op.name, SymbolKind::Op, extent, None, None);
                self.declared_until(id, op.result.span.end);
                self.function(&op.parameters, Some(&op.result), Some(&op.body), extent, id);
                for twin in &op.twins {
                    let arguments = twin.arguments.iter().map(|a| &a.value);
                    arguments.chain(&twin.when).for_each(|e| dims::expression(self, e, id));
                }
            }
            ast::Item::Block(block) => {
                let extent = self.item_of(block.name.span);
                let id = self.add(&block.name, SymbolKind::Block, extent, None, None);
                let from = self.tokens.partition_point(|t| t.start <= block.name.span.start as usize);
                let brace = self.tokens[from..].iter().find(|t| &self.text[t.start..t.end] == "{");
                self.declared_until(id, brace.map_or(extent.end, |t| t.start as u32));
                self.parameters(&block.parameters, extent, id);
                self.members(&block.members, extent, id);
            }
            ast::Item::Model(model) => {
                let extent = self.item_of(model.span);
                let name = ast::Name { node: "model".into(), span: model.span };
                let id = self.add(&name, SymbolKind::Model, extent, None, None);
                self.table.symbols[id.0].declaration = "model".into();
                self.members(&model.members, extent, id);
            }
        }
    }

    fn settings(&mut self, settings: &'a [ast::Setting], end: u32, scope: Option<Span>, parent: Option<SymbolId>) {
        for (i, setting) in settings.iter().enumerate() {
            let span = setting_span(setting);
            let next = settings.get(i + 1).map(setting_span);
            // Without a next setting the closing brace follows.
            let limit = next.map_or(end.saturating_sub(1), |n| self.start_of(n));
            let extent = self.extent(span, limit);
            let (name, kind) = match setting {
                ast::Setting::Section { name, .. } => (name, SymbolKind::Section),
                ast::Setting::Field { name, .. } => (name, SymbolKind::ConfigField),
                ast::Setting::Limit { name, .. } => (name, SymbolKind::Limit),
                ast::Setting::Let { name, .. } => (name, SymbolKind::Let),
                ast::Setting::Require { .. } => continue,
            };
            let id = self.add(name, kind, extent, scope, parent);
            match setting {
                ast::Setting::Section { settings, .. } => {
                    let first = settings.first().map_or(extent.end, |s| self.start_of(setting_span(s)));
                    self.declared_until(id, first);
                    let words = self.table.symbols[id.0].declaration.trim_end_matches('{').trim().to_string();
                    self.table.symbols[id.0].declaration = words;
                    self.settings(settings, extent.end, Some(extent), Some(id));
                }
                ast::Setting::Field { otherwise, condition, .. } => {
                    otherwise.iter().chain(condition).for_each(|e| self.comprehensions(e, id));
                }
                ast::Setting::Let { value, condition, .. } => {
                    [value].into_iter().chain(condition).for_each(|e| self.comprehensions(e, id));
                }
                ast::Setting::Limit { .. } | ast::Setting::Require { .. } => {}
            }
        }
    }

    /// Where the declaration of the name at `span` begins, its word included.
    fn start_of(&self, span: Span) -> u32 {
        let at = self.tokens.partition_point(|t| t.start < span.start as usize);
        match at.checked_sub(1) {
            Some(before)
                if DECLARING.contains(&self.word(before)) || matches!(self.word(before), "require" | "ignore") =>
            {
                self.tokens[before].start as u32
            }
            _ => span.start,
        }
    }

    fn members(&mut self, members: &'a [ast::Member], block: Span, parent: SymbolId) {
        for (i, member) in members.iter().enumerate() {
            let span = member_span(member);
            let limit = members.get(i + 1).map_or(block.end.saturating_sub(1), |n| self.start_of(member_span(n)));
            let extent = self.extent(span, limit);
            let (scope, parent_of) = (Some(block), Some(parent));
            match member {
                ast::Member::Ignore { .. } => {}
                ast::Member::State { name, .. } => drop(self.add(name, SymbolKind::State, extent, scope, parent_of)),
                ast::Member::Let { name, value, condition } => {
                    let id = self.add(name, SymbolKind::Let, extent, scope, parent_of);
                    [value].into_iter().chain(condition).for_each(|e| self.comprehensions(e, id));
                }
                ast::Member::Field { name, ty, .. } => {
                    let id = self.add(name, SymbolKind::Field, extent, scope, parent_of);
                    self.table.symbols[id.0].block = match ty {
                        ast::FieldType::Array { child, .. } | ast::FieldType::Child(child) => {
                            Some(child.block.node.clone())
                        }
                        ast::FieldType::Type(ast::Type {
                            kind: ast::TypeKind::Named { name, shape: None }, ..
                        }) => Some(name.node.clone()),
                        ast::FieldType::Type(_) => None,
                    };
                    if let ast::FieldType::Array { variable, .. } = ty {
                        self.local(variable, extent, id);
                    }
                }
                ast::Member::Function { name, span, signature } => {
                    let nameless = ast::Name { node: String::new(), span: *span };
                    let id =
                        self.add(name.as_ref().unwrap_or(&nameless), SymbolKind::Function, extent, scope, parent_of);
                    self.member_function(signature, extent, id);
                }
                ast::Member::Graph { name, signature } => {
                    let id = self.add(name, SymbolKind::Graph, extent, scope, parent_of);
                    self.member_function(signature, extent, id);
                }
            }
        }
    }

    fn member_function(&mut self, signature: &'a ast::Signature, extent: Span, id: SymbolId) {
        self.declared_until(id, signature.body.span.start);
        self.function(&signature.parameters, signature.result.as_ref(), Some(&signature.body), extent, id);
    }

    fn function(
        &mut self,
        parameters: &'a [ast::Parameter],
        result: Option<&'a ast::Type>,
        body: Option<&'a ast::Body>,
        extent: Span,
        id: SymbolId,
    ) {
        self.parameters(parameters, extent, id);
        dims::bind(self, parameters, extent, id);
        if let Some(result) = result {
            dims::written(self, result, id);
        }
        if let Some(body) = body {
            self.body(body, id);
        }
    }

    fn parameters(&mut self, parameters: &'a [ast::Parameter], scope: Span, parent: SymbolId) {
        for parameter in parameters {
            let end = parameter.default.as_ref().map_or(parameter.ty.span.end, |d| d.span.end);
            let extent = self.extent(parameter.name.span, end);
            let id = self.add(&parameter.name, SymbolKind::Parameter, extent, Some(scope), Some(parent));
            self.table.symbols[id.0].doc.clear();
        }
    }

    fn local(&mut self, name: &ast::Name, scope: Span, parent: SymbolId) {
        if name.node == "_" {
            return;
        }
        let id = self.add(name, SymbolKind::Local, name.span, Some(scope), Some(parent));
        let symbol = &mut self.table.symbols[id.0];
        symbol.declaration.clear();
        symbol.doc.clear();
    }

    /// The locals of a body: each from behind its statement to the end of the body.
    fn body(&mut self, body: &'a ast::Body, function: SymbolId) {
        for statement in &body.statements {
            match statement {
                ast::Statement::Let { names, value, .. } => {
                    self.expression(value, function);
                    let scope = self.span(value.span.end, body.span.end);
                    names.iter().for_each(|name| self.local(name, scope, function));
                }
                ast::Statement::For { index, item, iterable, body } => {
                    self.iterable(iterable, function);
                    index.iter().chain([item]).for_each(|name| self.local(name, body.span, function));
                    self.body(body, function);
                }
                ast::Statement::Push { value, .. } | ast::Statement::Assign { value, .. } => {
                    self.expression(value, function);
                }
                ast::Statement::If(value) | ast::Statement::Effect(value) => self.expression(value, function),
            }
        }
        if let Some(value) = &body.value {
            self.expression(value, function);
        }
    }

    fn iterable(&mut self, iterable: &'a ast::Iterable, function: SymbolId) {
        match iterable {
            ast::Iterable::Range(low, high) => [low, high].into_iter().for_each(|e| self.expression(e, function)),
            ast::Iterable::List(list) => self.expression(list, function),
        }
    }

    fn expression(&mut self, expr: &'a ast::Expr, function: SymbolId) {
        dims::expression(self, expr, function);
        self.comprehensions(expr, function);
    }

    /// What an expression binds inside.
    fn comprehensions(&mut self, expr: &'a ast::Expr, parent: SymbolId) {
        if let ast::ExprKind::Comprehension { each, .. } = &expr.kind {
            for each in each {
                each.index.iter().chain([&each.item]).for_each(|name| self.local(name, expr.span, parent));
            }
        }
        if let ast::ExprKind::If { condition, then, otherwise } = &expr.kind {
            self.comprehensions(condition, parent);
            self.body(then, parent);
            otherwise.iter().for_each(|body| self.body(body, parent));
            return;
        }
        parts(expr, &mut |part| self.comprehensions(part, parent));
    }
}

/// Every expression that stands directly in `expr`, but for the bodies of an `if`.
pub(super) fn parts<'a>(expr: &'a ast::Expr, visit: &mut dyn FnMut(&'a ast::Expr)) {
    match &expr.kind {
        ast::ExprKind::Number(_) | ast::ExprKind::Text(_) | ast::ExprKind::Bool(_) | ast::ExprKind::Name(_) => {}
        ast::ExprKind::Tuple(items) => items.iter().for_each(visit),
        ast::ExprKind::List(items) => items.iter().for_each(|item| {
            if let ast::DimExpr::Dim(item) = item {
                visit(item);
            }
        }),
        ast::ExprKind::Comprehension { item, each } => {
            for each in each {
                match &each.iterable {
                    ast::Iterable::Range(low, high) => [low, high].into_iter().for_each(&mut *visit),
                    ast::Iterable::List(list) => visit(list),
                }
            }
            visit(item);
        }
        ast::ExprKind::Unary { value, .. }
        | ast::ExprKind::MemberOf { value, .. }
        | ast::ExprKind::Probe { value, .. } => visit(value),
        ast::ExprKind::Binary { left, right, .. } => [left, right].into_iter().for_each(|part| visit(part)),
        ast::ExprKind::If { condition, .. } => visit(condition),
        ast::ExprKind::Call { callee, arguments } => {
            visit(callee);
            arguments.iter().for_each(|a| visit(&a.value));
        }
        ast::ExprKind::Subscript { value, slots } => {
            visit(value);
            for slot in slots {
                match slot {
                    ast::Slot::Rest(_) | ast::Slot::Whole(_) => {}
                    ast::Slot::Range(low, high) => [low, high].into_iter().for_each(&mut *visit),
                    ast::Slot::At(at) => visit(at),
                }
            }
        }
    }
}

fn setting_span(setting: &ast::Setting) -> Span {
    match setting {
        ast::Setting::Section { name, .. }
        | ast::Setting::Field { name, .. }
        | ast::Setting::Limit { name, .. }
        | ast::Setting::Let { name, .. } => name.span,
        ast::Setting::Require { condition } => condition.span,
    }
}

fn member_span(member: &ast::Member) -> Span {
    match member {
        ast::Member::State { name, .. }
        | ast::Member::Let { name, .. }
        | ast::Member::Graph { name, .. }
        | ast::Member::Field { name, .. } => name.span,
        ast::Member::Ignore { pattern } => pattern.span,
        ast::Member::Function { name, span, .. } => name.as_ref().map_or(*span, |n| n.span),
    }
}
