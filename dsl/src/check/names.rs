//! The items of the prelude and the family by name, and what a bare name means where it stands.

use std::collections::BTreeMap;

use super::{
    Checker,
    scope::{Checked, Child, Children, FreeDims, Home, Item, Lowering, load},
};
use crate::{
    ast,
    diagnostic::{Code, Diagnostic, suggest},
    ir::*,
    ops,
    source::{PRELUDE, Span},
};

/// Definitions by name. A family sees the prelude; the prelude sees itself.
#[derive(Debug, Default)]
pub(crate) struct Items<'a> {
    pub ops: BTreeMap<&'a str, &'a ast::Op>,
    pub blocks: BTreeMap<&'a str, &'a ast::Block>,
    pub types: BTreeMap<&'a str, &'a ast::TypeAlias>,
}

/// Words that are types, casts or dims everywhere.
const TYPE_WORDS: &[&str] =
    &["F", "Q", "f32", "f16", "bf16", "f64", "i32", "u32", "u8", "bool", "dim", "int", "float", "name"];

/// Who has so many mistakes reads the first ones: suggestions, which look at every name, are made for those.
const MANY: usize = 100;

impl<'a> Checker<'a> {
    pub fn collect_items(&mut self, items: &'a [ast::Item]) {
        for item in items {
            let (name, first) = match item {
                ast::Item::Op(op) => (&op.name, self.items.ops.get(op.name.node.as_str()).map(|o| o.name.span)),
                ast::Item::Block(b) => (&b.name, self.items.blocks.get(b.name.node.as_str()).map(|o| o.name.span)),
                ast::Item::Type(t) => (&t.name, self.items.types.get(t.name.node.as_str()).map(|o| o.name.span)),
                ast::Item::Config(_)
                | ast::Item::Processor(_)
                | ast::Item::Numerics(_)
                | ast::Item::Contract(_)
                | ast::Item::Model(_) => continue,
            };
            if let Some(first) = first {
                self.twice(name, first);
                continue;
            }
            let word = name.node.as_str();
            let function = super::load::function(word).is_some() || word == "pi";
            if TYPE_WORDS.contains(&word) || ops::primitive(word).is_some() || function {
                let message = format!("`{word}` is a word of the language and names nothing else");
                self.report(Diagnostic::new(Code::DuplicateName, name.span, message).label("a primitive or a type"));
                continue;
            }
            match item {
                ast::Item::Op(op) => drop(self.items.ops.insert(word, op)),
                ast::Item::Block(block) => drop(self.items.blocks.insert(word, block)),
                ast::Item::Type(alias) => drop(self.items.types.insert(word, alias)),
                _ => {}
            }
        }
    }

    pub fn check_items_hide_nothing(&mut self, items: &'a [ast::Item]) {
        for item in items {
            let name = match item {
                ast::Item::Op(op) => &op.name,
                ast::Item::Block(block) => &block.name,
                ast::Item::Type(alias) => &alias.name,
                ast::Item::Config(_)
                | ast::Item::Processor(_)
                | ast::Item::Numerics(_)
                | ast::Item::Contract(_)
                | ast::Item::Model(_) => continue,
            };
            if let Some(span) = self.config.defined_at(&name.node) {
                let message = format!("`{}` hides the config name", name.node);
                self.report(Diagnostic::new(Code::HidesConfigName, name.span, message).also(span, "defined here"));
            }
        }
    }

    pub fn twice(&mut self, name: &ast::Name, first: Span) -> super::scope::Reported {
        let mut error = Diagnostic::new(Code::DuplicateName, name.span, format!("`{}` is defined twice", name.node))
            .label("again")
            .also(first, "first here");
        if first.file == PRELUDE && name.span.file != PRELUDE {
            error = error.help("the prelude defines it already; choose another name");
        }
        self.report(error)
    }
}

impl<'a> Lowering<'_, 'a> {
    /// What a bare name is here.
    pub fn name(&mut self, name: &str, span: Span) -> Checked<Item> {
        if let Some(bound) = self.find(name).map(|binding| binding.span) {
            self.name_used(span, bound);
        }
        if let Some(binding) = self.find(name) {
            return match &binding.item {
                Item::Poison => Err(super::scope::Reported),
                Item::Growing(_) => {
                    let defined = binding.span;
                    let message = format!("`{name}` is still empty here, and has no length");
                    Err(self.error(
                        Diagnostic::new(Code::ListLength, span, message)
                            .label("not filled yet")
                            .help("a loop fills it, with one `push` in every turn; read it after that loop")
                            .also(defined, "declared here"),
                    ))
                }
                Item::Load(value) => Ok(Item::Load(Load { span, ..value.clone() })),
                item => Ok(item.clone()),
            };
        }
        if let Some(free) = self.free_dim(name, span) {
            return Ok(Item::Load(free));
        }
        if let Home::Block(block) = self.home
            && let Some(field) = self.checker.field_id(block, name)
        {
            return self.member(block, field, span);
        }
        if let Some(item) = self.root_config_name(name, span) {
            return item;
        }
        if name == "pi" {
            return Ok(Item::Load(load(LoadKind::Pi, LoadType::Float, span)));
        }
        Err(self.unknown(name, span))
    }

    fn free_dim(&mut self, name: &str, span: Span) -> Option<Load> {
        if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
            return None;
        }
        let known = match self.free_dims {
            FreeDims::None => false,
            FreeDims::Collect => true,
            FreeDims::Bound => {
                self.free.iter().any(|f| f.name == name) || {
                    let runtime = name == "T" && matches!(self.home, Home::Block(_));
                    if runtime {
                        self.free.push(FreeDim { name: name.into(), source: DimSource::Positions });
                    }
                    runtime
                }
            }
        };
        known.then(|| load(LoadKind::Free(name.into()), LoadType::Int, span))
    }

    fn root_config_name(&mut self, name: &str, span: Span) -> Option<Checked<Item>> {
        if !self.sees_config {
            return None;
        }
        if let Some(section) = self.section.clone()
            && let Some(found) = self.config_name(&[section.clone(), name.to_string()], span)
        {
            self.config_name_used(span, &[section, name.to_string()]);
            return Some(found.map(Item::Load));
        }
        if let Some(defined) = self.checker.config.defined_at(name) {
            self.name_used(span, defined);
        }
        if let Some(found) = self.config_name(&[name.to_string()], span) {
            return Some(found.map(Item::Load));
        }
        self.checker.config.has_section(name).then(|| Ok(Item::Section(name.to_string())))
    }

    /// A field of the enclosing block.
    pub fn member(&mut self, block: BlockId, field: FieldId, span: Span) -> Checked<Item> {
        let Some(entry) = self.checker.field(block, field) else { return Err(super::scope::Reported) };
        let (kind, needed, defined) = (entry.kind.clone(), entry.needed.clone(), entry.span);
        let written = entry.condition.as_ref().map(|c| self.written_condition(c)).unwrap_or_default();
        let name = entry.name.clone();
        self.name_used(span, defined);
        self.require_known(&needed, &written, &name, span, defined)?;
        if let FieldKind::Let(value) = &kind {
            return Ok(Item::Load(load(LoadKind::Member(field), value.ty.clone(), span)));
        }
        let late = |this: &mut Self, what: &str| {
            let message = format!("`{name}` is {what}, and is not known before a call");
            this.fail(Code::WrongStage, span, message)
        };
        let refused = match kind {
            FieldKind::Matrix(_) => Some("a `Q`, which the checkpoint may store packed"),
            FieldKind::State(_) => Some("a state, which only calls have"),
            FieldKind::Child { .. } | FieldKind::Children { .. } => Some("a block"),
            FieldKind::Tensor(_) | FieldKind::Derived { .. } | FieldKind::Let(_) => None,
        };
        if let (true, Some(what)) = (self.derived, refused) {
            return Err(self.error(
                Diagnostic::new(
                    Code::DerivedWeight,
                    span,
                    format!("a derived weight is computed once, and `{name}` is {what}"),
                )
                .help("it may use load values, ops, and the dense weights of its own block")
                .also(defined, "declared here"),
            ));
        }
        match kind {
            FieldKind::Child { block, arguments } => {
                Ok(Item::Child(Child { receiver: Receiver::Field(vec![field]), block, arguments }))
            }
            FieldKind::Children { block, arguments, variable, low, high } => {
                let array = Receiver::Field(vec![field]);
                Ok(Item::Children(Children { array, block, arguments, variable, low, high }))
            }
            FieldKind::Tensor(_) | FieldKind::Matrix(_) | FieldKind::Derived { .. } | FieldKind::State(_)
                if !self.call_stage =>
            {
                late(self, if matches!(kind, FieldKind::State(_)) { "a state" } else { "a weight" })
            }
            FieldKind::Tensor(ty) | FieldKind::Derived { ty, .. } => {
                Ok(self.weight(field, Type::Tensor(ty), &name, span))
            }
            FieldKind::Matrix(shape) => Ok(self.weight(field, Type::Matrix(shape), &name, span)),
            FieldKind::State(ty) => {
                self.need_state_dims(&ty, span)?;
                let out = self.new_value(Type::Tensor(ty), span);
                self.values[out.0 as usize].name = Some(name);
                self.push(Statement::StateRead { out, field });
                Ok(Item::Value(out))
            }
            FieldKind::Let(value) => Ok(Item::Load(load(LoadKind::Member(field), value.ty.clone(), span))),
        }
    }

    fn weight(&mut self, field: FieldId, ty: Type, name: &str, span: Span) -> Item {
        if let Some(out) = self.weights.iter().rev().find_map(|read| read.get(&field)) {
            return Item::Value(*out);
        }
        let out = self.new_value(ty, span);
        self.values[out.0 as usize].name = Some(name.to_string());
        self.push(Statement::Weight { out, field });
        if let Some(read) = self.weights.last_mut() {
            read.insert(field, out);
        }
        Item::Value(out)
    }

    /// The free dims of a state (`B`, `T`) have a source in this function.
    pub fn need_state_dims(&mut self, ty: &TensorType, span: Span) -> Checked<()> {
        for dim in &ty.shape.dims {
            for atom in dim.atoms() {
                if let LoadKind::Free(name) = &atom.load.kind
                    && self.free_dim(name, span).is_none()
                {
                    let message = format!("this function has no `{name}`: a state needs the rows of the call");
                    return Err(self.error(
                        Diagnostic::new(Code::UnboundDim, span, message)
                            .help("give the function a parameter whose shape begins with `B`"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn unknown(&mut self, name: &str, span: Span) -> super::scope::Reported {
        if name.starts_with(|c: char| c.is_ascii_uppercase()) && name.len() == 1 {
            let message = format!("nothing binds the free dim `{name}` here");
            return self.error(Diagnostic::new(Code::UnboundDim, span, message).label("not bound").help(format!(
                "a parameter binds `{name}` where it stands alone in a shape, such as `F[{name}, ..]`"
            )));
        }
        let mut error =
            Diagnostic::new(Code::UnknownName, span, format!("there is no `{name}` here")).label("not known");
        if self.checker.items.ops.contains_key(name) || ops::primitive(name).is_some() {
            error = error.help(format!("`{name}` is an op: call it with `{name}(..)`"));
        } else if self.sees_config
            && let Some(later) = self.checker.config.later(name)
        {
            error = error.help("the config is read from top to bottom: move it up").also(later, "defined further down");
        } else if let Home::Block(block) = self.home
            && let Some(later) = self.checker.member_further_down(block, name)
        {
            error = error
                .help("the fields of a block are read from top to bottom: move it up")
                .also(later, "defined further down");
        } else if let Some(section) = self.section_with(name) {
            error = error.help(format!("did you mean `{section}.{name}`?"));
        } else if let Some(near) = suggest(name, self.visible().iter().map(String::as_str)) {
            error = error.help(format!("did you mean `{near}`?"));
        }
        self.error(error)
    }

    fn section_with(&self, name: &str) -> Option<String> {
        if !self.sees_config {
            return None;
        }
        let names: Vec<&str> = self.checker.config.root_names().collect();
        let mut sections = names.into_iter().filter(|s| self.checker.config.has_section(s));
        let found = sections.find(|s| self.checker.config.section_names(s).any(|n| n == name))?;
        Some(found.to_string())
    }

    /// Every name that could stand here, for suggestions.
    fn visible(&self) -> Vec<String> {
        if self.checker.diagnostics.len() > MANY {
            return Vec::new();
        }
        let mut names: Vec<String> = self.scopes.iter().flat_map(|s| s.keys().cloned()).collect();
        if let Home::Block(block) = self.home {
            names.extend(self.checker.field_names(block));
        }
        names.extend(self.free.iter().map(|f| f.name.clone()));
        if self.sees_config {
            names.extend(self.checker.config.root_names().map(str::to_string));
            if let Some(section) = &self.section {
                names.extend(self.checker.config.section_names(section).map(str::to_string));
            }
        }
        names.sort();
        names
    }

    /// Something changes a local that is not there.
    pub fn unknown_local(&mut self, name: &ast::Name, message: String) -> super::scope::Reported {
        let mut error = Diagnostic::new(Code::UnknownName, name.span, message);
        let known = self.scopes.iter().flat_map(|scope| scope.keys().map(String::as_str));
        if let Some(near) = suggest(&name.node, known) {
            error = error.help(format!("did you mean `{near}`?"));
        }
        self.error(error)
    }

    /// A name in call position that is neither a field nor an op.
    pub fn unknown_callee(&mut self, name: &str, span: Span) -> super::scope::Reported {
        if let Some(binding) = self.find(name) {
            if matches!(binding.item, Item::Poison) {
                return super::scope::Reported;
            }
            let message = format!("`{name}` is a value, and values cannot be called");
            return self.error(Diagnostic::new(Code::NotCallable, span, message).label("not callable"));
        }
        if let Home::Block(block) = self.home
            && let Some(field) = self.checker.field_id(block, name)
        {
            let (message, help) = match self.checker.field(block, field).map(|entry| &entry.kind) {
                Some(FieldKind::Children { .. }) => (
                    format!("`{name}` is an array of blocks, and only its items can be called"),
                    format!("write `for item in {name} {{ x = item(x); }}`"),
                ),
                _ => (
                    format!("`{name}` is no block, and cannot be called"),
                    "ops, blocks and their functions can".to_string(),
                ),
            };
            return self.error(Diagnostic::new(Code::NotCallable, span, message).label("not callable").help(help));
        }
        let mut known: Vec<String> = Vec::new();
        if self.checker.diagnostics.len() <= MANY {
            known.extend(self.checker.items.ops.keys().map(|k| k.to_string()));
        }
        known.extend(ops::names().map(str::to_string));
        known.extend(super::load::function_names().map(str::to_string));
        if let Home::Block(block) = self.home {
            known.extend(self.checker.field_names(block));
        }
        known.sort();
        let mut error =
            Diagnostic::new(Code::UnknownName, span, format!("there is no op or field `{name}`")).label("not known");
        let own = match self.home {
            Home::Block(block) => self.checker.function_span(block, name),
            Home::Config | Home::Op(_) => None,
        };
        if let Some(own) = own {
            error = error
                .help("the functions of a block are called from outside it: make what they share an `op`")
                .also(own, "a function of this block");
        } else if let Some(near) = suggest(name, known.iter().map(String::as_str)) {
            error = error.help(format!("did you mean `{near}`?"));
        }
        self.error(error)
    }
}
