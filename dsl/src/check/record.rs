//! What the checker learns about places of the text, for editors: which definition a name means, and what an expression
//! is. A build keeps none of it.
//!
//! Nothing is inferred here: the checker says what it found where it finds it, so that an editor shows what the
//! compiler believes.

use super::{
    Checker,
    load::short_name,
    scope::{Item, Lowering},
    types::type_text,
};
use crate::{ir::*, source::Span};

#[derive(Debug, Default)]
pub(crate) struct Record {
    /// A name where it is used, and the name where it is defined.
    pub uses: Vec<(Span, Span)>,
    /// An expression or a name that is bound, and what it is.
    pub types: Vec<(Span, String)>,
}

impl Checker<'_> {
    pub fn name_used(&mut self, used: Span, defined: Span) {
        if let Some(record) = &mut self.record {
            record.uses.push((used, defined));
        }
    }
}

impl Lowering<'_, '_> {
    pub fn name_used(&mut self, used: Span, defined: Span) {
        self.checker.name_used(used, defined);
    }

    /// Remembers what stands at `span`.
    pub fn item_found(&mut self, span: Span, item: &Item) {
        if self.checker.record.is_none() {
            return;
        }
        if let Some(text) = self.item_text(item, span)
            && let Some(record) = &mut self.checker.record
        {
            record.types.push((span, text));
        }
    }

    fn item_text(&self, item: &Item, span: Span) -> Option<String> {
        let all = |items: &[Item]| items.iter().map(|i| self.item_text(i, span)).collect::<Option<Vec<_>>>();
        Some(match item {
            Item::Value(value) => type_text(self.ty(*value)),
            Item::Load(value) => self.load_text(value, span),
            Item::Tuple(items) => format!("({})", all(items)?.join(", ")),
            Item::List(items) => format!("[{}]", all(items)?.join(", ")),
            Item::Child(child) => format!("block {}", self.checker.block_name(child.block)),
            Item::Growing(_) => "[]".into(),
            Item::Children(children) => format!("[block {}]", self.checker.block_name(children.block)),
            Item::Section(name) => format!("section {name}"),
            Item::Unit | Item::Poison => return None,
        })
    }

    /// A list with its length, and an integer with what it is worth as a dim, where that says more than the text.
    fn load_text(&self, value: &Load, span: Span) -> String {
        match &value.ty {
            LoadType::Int => match self.dim_of(value) {
                Ok(dim) if dim.to_string() != self.checker.sources.text(span) => format!("int = {dim}"),
                _ => "int".into(),
            },
            LoadType::List(item) => match self.length_of(value).to_string() {
                length if length.starts_with("len(") => short_name(&value.ty),
                length => format!("[{}; {length}]", short_name(item)),
            },
            LoadType::Float | LoadType::Bool | LoadType::Text => short_name(&value.ty),
        }
    }
}
