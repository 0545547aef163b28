//! From a name to its definition, its other places, and another name; and the outline of a text.

use lsp_types::{DocumentSymbol, Location, Position, Range, SymbolKind as Shown, TextEdit};
use mgraph_dsl::{
    analysis::{Analysis, Symbol, SymbolId, SymbolKind, analyze},
    parser::RESERVED,
    source::{PRELUDE, Span},
};

use super::{
    document::{Document, Lines},
    prelude,
};

/// A place of the text or of the prelude.
pub fn location(document: &Document, span: Span) -> Option<Location> {
    if span.file != PRELUDE || document.is_prelude() {
        return Some(Location { uri: document.uri.clone(), range: document.range(span) });
    }
    Some(Location { uri: prelude::uri()?, range: Lines::of(prelude::text()).range(prelude::text(), span) })
}

pub fn definition(document: &mut Document, at: Position) -> Option<Location> {
    let offset = document.offset(at);
    let analysis = document.analysis();
    let span = analysis.symbol(analysis.name_at(offset)?.1).span;
    location(document, span)
}

/// Every place of the text with the name at `at`, its definition first when it is elsewhere.
pub fn references(document: &mut Document, at: Position, with_definition: bool) -> Option<Vec<Location>> {
    let offset = document.offset(at);
    let analysis = document.analysis();
    let (_, id) = analysis.name_at(offset)?;
    let defined = analysis.symbol(id).span;
    let mut places = analysis.places(id);
    if !places.contains(&defined) {
        places.insert(0, defined);
    }
    places.retain(|place| with_definition || *place != defined);
    Some(places.into_iter().filter_map(|place| location(document, place)).collect())
}

/// The name at `at`, when it can be renamed; else why not.
pub fn renamable(document: &mut Document, at: Position) -> Result<(Range, String), String> {
    let offset = document.offset(at);
    let (span, id) = document.analysis().name_at(offset).ok_or("there is no name here")?;
    let analysis = document.analysis();
    let symbol = analysis.symbol(id);
    can_be_renamed(analysis, symbol)?;
    let name = symbol.name.clone();
    Ok((document.range(span), name))
}

fn can_be_renamed(analysis: &Analysis, symbol: &Symbol) -> Result<(), String> {
    let name = &symbol.name;
    if symbol.span.file != analysis.file {
        return Err(format!("`{name}` is defined in the prelude"));
    }
    match symbol.kind {
        SymbolKind::Model => Err("`model` is a word of the language".into()),
        SymbolKind::Function if name.is_empty() => Err("this `fn` has no name".into()),
        SymbolKind::Graph => Err(format!("the runtime calls the graph `{name}` by this name")),
        SymbolKind::Processor => Err(format!("the runtime knows the processor `{name}` by this name")),
        SymbolKind::Parameter if symbol.parent.is_some_and(|p| analysis.symbol(p).kind == SymbolKind::Graph) => {
            Err(format!("the runtime gives the input `{name}` by this name"))
        }
        SymbolKind::Field if !symbol.declaration.contains(" as ") => {
            Err(format!("`{name}` is also the stored name: give that with `as {name:?}` first"))
        }
        SymbolKind::Family
        | SymbolKind::Section
        | SymbolKind::ConfigField
        | SymbolKind::Limit
        | SymbolKind::Let
        | SymbolKind::TypeAlias
        | SymbolKind::Op
        | SymbolKind::Block
        | SymbolKind::Parameter
        | SymbolKind::Field
        | SymbolKind::State
        | SymbolKind::Function
        | SymbolKind::Local
        | SymbolKind::FreeDim => Ok(()),
    }
}

/// The edits that rename; a text without mistakes stays one.
pub fn rename(document: &mut Document, at: Position, new: &str) -> Result<Vec<TextEdit>, String> {
    let offset = document.offset(at);
    let is_name = new.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && new.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name || RESERVED.contains(&new) {
        return Err(format!("`{new}` cannot be a name"));
    }
    let (_, id) = document.analysis().name_at(offset).ok_or("there is no name here")?;
    let analysis = document.analysis();
    can_be_renamed(analysis, analysis.symbol(id))?;
    let places = analysis.places(id);
    let mut text = analysis.text().to_string();
    for place in places.iter().rev() {
        text.replace_range(place.start as usize..place.end as usize, new);
    }
    if analysis.diagnostics.is_empty()
        && let Some(mistake) = analyze("renamed", &text).diagnostics.first()
    {
        return Err(format!("then {}", mistake.message));
    }
    Ok(places.into_iter().map(|place| TextEdit { range: document.range(place), new_text: new.into() }).collect())
}

/// Items and their members.
pub fn outline(document: &mut Document) -> Vec<DocumentSymbol> {
    document.analysis();
    let Some(analysis) = document.known() else { return Vec::new() };
    let top = analysis.ids().filter(|id| {
        let symbol = analysis.symbol(*id);
        symbol.parent.is_none() && symbol.span.file == analysis.file
    });
    top.filter_map(|id| outlined(document, analysis, id)).collect()
}

#[allow(deprecated, reason = "the protocol's type has a field that nobody uses, and no other way to make one")]
fn outlined(document: &Document, analysis: &Analysis, id: SymbolId) -> Option<DocumentSymbol> {
    let symbol = analysis.symbol(id);
    let kind = match symbol.kind {
        SymbolKind::Family => Shown::PACKAGE,
        SymbolKind::Processor => Shown::INTERFACE,
        SymbolKind::Section => Shown::NAMESPACE,
        SymbolKind::ConfigField | SymbolKind::Limit => Shown::PROPERTY,
        SymbolKind::Let => Shown::CONSTANT,
        SymbolKind::TypeAlias => Shown::STRUCT,
        SymbolKind::Op => Shown::FUNCTION,
        SymbolKind::Block | SymbolKind::Model => Shown::CLASS,
        SymbolKind::Field | SymbolKind::State => Shown::FIELD,
        SymbolKind::Function | SymbolKind::Graph => Shown::METHOD,
        SymbolKind::Parameter | SymbolKind::Local | SymbolKind::FreeDim => return None,
    };
    let children: Vec<DocumentSymbol> =
        analysis.members(id).filter_map(|id| outlined(document, analysis, id)).collect();
    Some(DocumentSymbol {
        name: if symbol.name.is_empty() { "fn".into() } else { symbol.name.clone() },
        detail: Some(symbol.declaration.clone()),
        kind,
        tags: None,
        deprecated: None,
        range: document.range(symbol.extent),
        selection_range: document.range(symbol.span),
        children: (!children.is_empty()).then_some(children),
    })
}
