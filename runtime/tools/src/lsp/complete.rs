//! What could be written at a place: names that mean something there, with their declaration and documentation.

use lsp_types::{CompletionItem, CompletionItemKind, Documentation, MarkupContent, MarkupKind, Position};
use mgraph_dsl::{
    analysis::{Analysis, Place, Symbol, SymbolId, SymbolKind, load_functions},
    ops,
    source::PRELUDE,
};

use super::{
    document::Document,
    hover,
    words::{self, CONFIG_TYPES, VALUE_TYPES},
};

pub fn complete(document: &mut Document, at: Position) -> Vec<CompletionItem> {
    let offset = document.offset(at) as usize;
    let analysis = document.analysis();
    let place = analysis.place_of(offset as u32);
    match place {
        Place::Comment | Place::Text => return Vec::new(),
        Place::Code | Place::Hole => {}
    }
    let text = analysis.text();
    let word = hover::word_at(text, offset);
    let before = text[..word.start].trim_end();
    if before.ends_with('.') && !before.ends_with("..") {
        let owner = before.trim_end_matches('.').trim_end();
        return after_dot(analysis, &text[hover::word_at(owner, owner.len())], offset as u32);
    }
    let line = before.rsplit('\n').next().unwrap_or_default();
    let config = place == Place::Code && words::in_config(analysis, offset as u32);
    if config && (before.ends_with(':') || before.ends_with('[') && line.contains(':') && !line.contains('=')) {
        return CONFIG_TYPES.iter().map(|(name, doc)| word_item(name, doc)).collect();
    }
    let types = before.ends_with(':') || before.ends_with("->");
    let mut items: Vec<CompletionItem> = Vec::new();
    for id in analysis.visible_at(offset as u32) {
        let symbol = analysis.symbol(id);
        let fits = match symbol.kind {
            SymbolKind::Block => types,
            SymbolKind::TypeAlias => types,
            SymbolKind::Op => !types && (!config || gives_load(symbol)),
            SymbolKind::Section
            | SymbolKind::ConfigField
            | SymbolKind::Limit
            | SymbolKind::Let
            | SymbolKind::Parameter
            | SymbolKind::Field
            | SymbolKind::State
            | SymbolKind::Local
            | SymbolKind::FreeDim => !types,
            SymbolKind::Family
            | SymbolKind::Processor
            | SymbolKind::Model
            | SymbolKind::Function
            | SymbolKind::Graph => false,
        };
        if fits && (place == Place::Code || symbol.kind != SymbolKind::Op) {
            items.push(item(analysis, id));
        }
    }
    if types {
        items.extend(VALUE_TYPES.iter().map(|(name, doc)| word_item(name, doc)));
    } else if place == Place::Code {
        let primitives = ops::primitives().filter(|p| !config && load_functions().all(|name| name != p.name));
        items.extend(primitives.map(|p| CompletionItem {
            label: p.name.into(),
            kind: Some(CompletionItemKind::FUNCTION),
            detail: Some(p.usage.into()),
            documentation: Some(markdown(hover::primitive_doc(p))),
            sort_text: Some(format!("5{}", p.name)),
            ..CompletionItem::default()
        }));
        items.extend(load_functions().map(|name| {
            let primitive = ops::primitives().find(|p| p.name == name);
            CompletionItem {
                label: name.into(),
                kind: Some(CompletionItemKind::FUNCTION),
                detail: Some(primitive.map_or_else(|| "known at load".into(), |p| p.usage.into())),
                documentation: primitive.map(|p| markdown(hover::primitive_doc(p))),
                sort_text: Some(format!("6{name}")),
                ..CompletionItem::default()
            }
        }));
    }
    items
}

/// Whether an op runs at load, as its result says.
fn gives_load(symbol: &Symbol) -> bool {
    let result = symbol.declaration.rsplit("->").next().unwrap_or_default().trim();
    ["dim", "int", "float", "bool", "name"].contains(&result) || result.starts_with('[')
}

/// Fields of a section; functions and children of a field or a local that is a block.
fn after_dot(analysis: &Analysis, owner: &str, offset: u32) -> Vec<CompletionItem> {
    let visible = analysis.visible_at(offset);
    let Some(&id) = visible.iter().find(|id| analysis.symbol(**id).name == owner) else { return Vec::new() };
    let symbol = analysis.symbol(id);
    let named = |kind, name: &str| {
        analysis.ids().find(|id| analysis.symbol(*id).kind == kind && analysis.symbol(*id).name == name)
    };
    let holder = match symbol.kind {
        SymbolKind::Section => Some(id),
        SymbolKind::Field => symbol.block.as_deref().and_then(|block| named(SymbolKind::Block, block)),
        SymbolKind::Local => {
            let block = analysis.type_of(symbol.span).and_then(|ty| ty.strip_prefix("block "));
            block.and_then(|block| named(SymbolKind::Block, block))
        }
        SymbolKind::Parameter
        | SymbolKind::ConfigField
        | SymbolKind::Limit
        | SymbolKind::Let
        | SymbolKind::State
        | SymbolKind::FreeDim
        | SymbolKind::Family
        | SymbolKind::Processor
        | SymbolKind::TypeAlias
        | SymbolKind::Op
        | SymbolKind::Block
        | SymbolKind::Model
        | SymbolKind::Function
        | SymbolKind::Graph => None,
    };
    let Some(holder) = holder else { return Vec::new() };
    let members = analysis.members(holder).filter(|id| {
        let member = analysis.symbol(*id);
        match member.kind {
            SymbolKind::ConfigField | SymbolKind::Limit | SymbolKind::Let => symbol.kind == SymbolKind::Section,
            SymbolKind::Function => !member.name.is_empty(),
            SymbolKind::Field => member.block.is_some(),
            SymbolKind::Parameter
            | SymbolKind::State
            | SymbolKind::Local
            | SymbolKind::FreeDim
            | SymbolKind::Family
            | SymbolKind::Processor
            | SymbolKind::Section
            | SymbolKind::TypeAlias
            | SymbolKind::Op
            | SymbolKind::Block
            | SymbolKind::Model
            | SymbolKind::Graph => false,
        }
    });
    members.map(|id| item(analysis, id)).collect()
}

fn item(analysis: &Analysis, id: SymbolId) -> CompletionItem {
    let symbol = analysis.symbol(id);
    let (kind, order) = match symbol.kind {
        SymbolKind::Local | SymbolKind::Parameter => (CompletionItemKind::VARIABLE, 0),
        SymbolKind::FreeDim => (CompletionItemKind::TYPE_PARAMETER, 0),
        SymbolKind::Field | SymbolKind::State => (CompletionItemKind::FIELD, 1),
        SymbolKind::Function | SymbolKind::Graph => (CompletionItemKind::METHOD, 1),
        SymbolKind::ConfigField | SymbolKind::Limit => (CompletionItemKind::PROPERTY, 2),
        SymbolKind::Let => (CompletionItemKind::CONSTANT, 2),
        SymbolKind::Section | SymbolKind::Family | SymbolKind::Processor => (CompletionItemKind::MODULE, 2),
        SymbolKind::Op if symbol.span.file == PRELUDE => (CompletionItemKind::FUNCTION, 4),
        SymbolKind::Op => (CompletionItemKind::FUNCTION, 3),
        SymbolKind::Block | SymbolKind::Model if symbol.span.file == PRELUDE => (CompletionItemKind::CLASS, 4),
        SymbolKind::Block | SymbolKind::Model => (CompletionItemKind::CLASS, 3),
        SymbolKind::TypeAlias => (CompletionItemKind::STRUCT, 3),
    };
    let ty = analysis.type_of(symbol.span).map(str::to_string);
    let detail = if symbol.declaration.is_empty() { ty } else { Some(symbol.declaration.clone()) };
    CompletionItem {
        label: symbol.name.clone(),
        kind: Some(kind),
        detail,
        documentation: (!symbol.doc.is_empty()).then(|| markdown(symbol.doc.clone())),
        sort_text: Some(format!("{order}{}", symbol.name)),
        ..CompletionItem::default()
    }
}

fn word_item(name: &str, doc: &str) -> CompletionItem {
    CompletionItem {
        label: name.into(),
        kind: Some(CompletionItemKind::KEYWORD),
        detail: Some(doc.into()),
        ..CompletionItem::default()
    }
}

fn markdown(value: String) -> Documentation {
    Documentation::MarkupContent(MarkupContent { kind: MarkupKind::Markdown, value })
}
