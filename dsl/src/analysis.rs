//! A text as an editor sees it: every definition, what each name means, what each expression is, and what is wrong.
//!
//! Works on texts with mistakes: a line that does not parse is left out, or the item where that does not help; a mistake
//! hides what depends on it, and the rest is known. Nothing is inferred here: the checker kept a record of what it found (`check::record`), and the tree
//! tells what is defined where.

mod dims;
mod mend;
mod place;
mod symbols;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::LazyLock};

use crate::{
    check,
    diagnostic::Diagnostic,
    parser,
    source::{FileId, PRELUDE, Sources, Span},
};

pub use place::Place;
pub use symbols::{Symbol, SymbolId, SymbolKind};

#[derive(Debug)]
pub struct Analysis {
    /// The prelude, then the text.
    pub sources: Sources,
    pub file: FileId,
    /// As the compiler says them, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// Where the items of the text stand, the broken ones too.
    items: Vec<Span>,
    /// Definitions of the prelude, then of the text; what holds others stands before them.
    pub symbols: Vec<Symbol>,
    /// Names where they are used, in the order of the text.
    uses: Vec<(Span, SymbolId)>,
    /// Expressions and names that were bound, in the order of the text; what encloses stands before.
    types: Vec<(Span, String)>,
}

/// Reads a family text. `name` is shown to people.
pub fn analyze(name: &str, text: &str) -> Analysis {
    let mut sources = check::prelude_sources();
    let file = sources.add(name, text);
    read(sources, file)
}

/// Reads `text` as the prelude, alone.
pub fn analyze_prelude(text: &str) -> Analysis {
    let mut sources = Sources::default();
    let file = sources.add("prelude.mgraph", text);
    read(sources, file)
}

/// The functions of load values by name: what can be called beside ops and primitives.
pub fn load_functions() -> impl Iterator<Item = &'static str> {
    check::load_function_names()
}

fn read(sources: Sources, file: FileId) -> Analysis {
    let parsed = parser::parse_whole_items(&sources, file);
    let syntax = parsed.errors.clone();
    let (readable, parsed) = mend::mend(&sources, file, parsed);
    let mut table = symbols::Table::default();
    let (record, said) = if file == PRELUDE {
        table.read(&readable, PRELUDE, &parsed);
        let nothing = crate::ast::File { header: None, items: Vec::new() };
        check::learn(&readable, &parsed.tree, &nothing, PRELUDE)
    } else {
        // Only `analyze_prelude` reads another one.
        static OWN_PRELUDE: LazyLock<parser::Parsed> =
            LazyLock::new(|| parser::parse_whole_items(&check::prelude_sources(), PRELUDE));
        let prelude = &*OWN_PRELUDE;
        table.read(&readable, PRELUDE, prelude);
        table.read(&readable, file, &parsed);
        check::learn(&readable, &prelude.tree, &parsed.tree, file)
    };
    // What is missing from the tree would be missed everywhere.
    let mut diagnostics = if syntax.is_empty() { said } else { syntax };
    check::in_order(&mut diagnostics, file);

    let defined: HashMap<Span, SymbolId> =
        table.symbols.iter().enumerate().map(|(i, s)| (s.span, SymbolId(i))).collect();
    let mut uses = table.uses;
    for (used, definition) in record.uses {
        if let Some(&symbol) = defined.get(&definition) {
            let name = &table.symbols[symbol.0].name;
            uses.extend(place::of_name(&readable, used, name).into_iter().map(|span| (span, symbol)));
        }
    }
    uses.sort_by_key(|(span, _)| *span);
    uses.dedup();
    let mut types = record.types;
    types.sort_by_key(|(span, _)| (span.file, span.start, std::cmp::Reverse(span.end)));
    let items = parsed.items;
    Analysis { sources, file, diagnostics, items, symbols: table.symbols, uses, types }
}

impl Analysis {
    pub fn text(&self) -> &str {
        &self.sources.get(self.file).text
    }

    pub fn symbol(&self, id: SymbolId) -> &Symbol {
        &self.symbols[id.0]
    }

    pub fn ids(&self) -> impl Iterator<Item = SymbolId> + use<> {
        (0..self.symbols.len()).map(SymbolId)
    }

    /// What the name at `offset` of the text means, and where that name stands. The end of a name counts as in it.
    pub fn name_at(&self, offset: u32) -> Option<(Span, SymbolId)> {
        let here = |span: Span| span.file == self.file && span.start <= offset && offset <= span.end;
        let used = self.uses.iter().find(|(span, _)| here(*span)).copied();
        used.or_else(|| self.ids().find(|id| here(self.symbol(*id).span)).map(|id| (self.symbol(id).span, id)))
    }

    /// The innermost expression at `offset` that has a type, and the type: dtype and shape in normal form, or a type
    /// known at load.
    pub fn type_at(&self, offset: u32) -> Option<(Span, &str)> {
        let here = |span: Span| span.file == self.file && span.start <= offset && offset <= span.end;
        let found = self.types.iter().filter(|(span, _)| here(*span)).min_by_key(|(span, _)| span.end - span.start)?;
        Some((found.0, &found.1))
    }

    /// The type of exactly this expression or bound name.
    pub fn type_of(&self, span: Span) -> Option<&str> {
        self.types.iter().find(|(s, _)| *s == span).map(|(_, text)| text.as_str())
    }

    /// What the call gives whose callee is the name at `callee`.
    pub fn call_at(&self, callee: Span) -> Option<&str> {
        let called = self.sources.text(Span { end: self.sources.get(callee.file).text.len() as u32, ..callee });
        if !called[(callee.end - callee.start) as usize..].starts_with('(') {
            return None;
        }
        let calls =
            self.types.iter().filter(|(s, _)| s.file == callee.file && s.start == callee.start && s.end > callee.end);
        calls.min_by_key(|(span, _)| span.end).map(|(_, text)| text.as_str())
    }

    /// The item around `offset` of the text.
    pub fn item_at(&self, offset: u32) -> Option<Span> {
        self.items.iter().copied().find(|item| item.start <= offset && offset <= item.end)
    }

    /// What kind of text stands before `offset`.
    pub fn place_of(&self, offset: u32) -> Place {
        place::at(self.text(), offset as usize)
    }

    /// Every place of the text that names `symbol`, its definition included.
    pub fn places(&self, symbol: SymbolId) -> Vec<Span> {
        let uses = self.uses.iter().filter(|(_, id)| *id == symbol).map(|(span, _)| *span);
        let mut places: Vec<Span> =
            uses.chain([self.symbol(symbol).span]).filter(|s| s.file == self.file && s.end > s.start).collect();
        places.sort();
        places.dedup();
        places
    }

    pub fn members(&self, of: SymbolId) -> impl Iterator<Item = SymbolId> {
        self.ids().filter(move |id| self.symbol(*id).parent == Some(of))
    }

    /// What can be named at `offset` of the text without a dot before it. An inner name hides an outer one.
    pub fn visible_at(&self, offset: u32) -> Vec<SymbolId> {
        let mut visible: HashMap<&str, SymbolId> = HashMap::new();
        for id in self.ids() {
            let symbol = self.symbol(id);
            let named = match symbol.kind {
                SymbolKind::Op | SymbolKind::Block | SymbolKind::TypeAlias => true,
                SymbolKind::Section
                | SymbolKind::ConfigField
                | SymbolKind::Limit
                | SymbolKind::Let
                | SymbolKind::Parameter
                | SymbolKind::Field
                | SymbolKind::State
                | SymbolKind::Local
                | SymbolKind::FreeDim => symbol.span.file == self.file,
                SymbolKind::Family
                | SymbolKind::Model
                | SymbolKind::Processor
                | SymbolKind::Function
                | SymbolKind::Graph => false,
            };
            let everywhere = symbol.scope.is_none();
            if named && (everywhere || symbol.scope.is_some_and(|s| s.start <= offset && offset <= s.end)) {
                visible.insert(&symbol.name, id);
            }
        }
        let mut visible: Vec<SymbolId> = visible.into_values().collect();
        visible.sort();
        visible
    }
}
