//! What is said about the place under the pointer: the declaration, what the checker found it to be, and the words that
//! document it.

use lsp_types::{Hover, HoverContents, MarkupContent, MarkupKind, Position};
use mgraph_dsl::{
    analysis::{Analysis, Place, Symbol, SymbolId, SymbolKind},
    ops::{self, Primitive},
    source::Span,
};

use super::{document::Document, words};

pub fn hover(document: &mut Document, at: Position) -> Option<Hover> {
    let offset = document.offset(at);
    let analysis = document.analysis();
    let (span, text) = match analysis.name_at(offset) {
        Some((span, id)) => (span, about(analysis, span, id)),
        None if analysis.place_of(offset) != Place::Code => return None,
        None => about_word(analysis, offset).or_else(|| analysis.type_at(offset).map(|(span, ty)| (span, code(ty))))?,
    };
    let contents = HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value: text });
    Some(Hover { contents, range: Some(document.range(span)) })
}

fn code(text: &str) -> String {
    format!("```mgraph\n{text}\n```")
}

fn about(analysis: &Analysis, used: Span, id: SymbolId) -> String {
    let symbol = analysis.symbol(id);
    let ty = analysis.type_of(symbol.span).or_else(|| analysis.type_of(used));
    let mut lines = vec![declaration(analysis, symbol, ty)];
    if let Some(function) = called(analysis, symbol) {
        lines.push(function);
    }
    if let Some(result) = analysis.call_at(used) {
        lines.push(format!("// here: {result}"));
    }
    let mut text = code(&lines.join("\n"));
    let doc = if symbol.doc.is_empty() { known_dim(symbol) } else { &symbol.doc };
    if !doc.is_empty() {
        text += &format!("\n\n{doc}");
    }
    text
}

fn declaration(analysis: &Analysis, symbol: &Symbol, ty: Option<&str>) -> String {
    let written = &symbol.declaration;
    match (symbol.kind, ty) {
        (SymbolKind::Local, Some(ty)) => format!("let {}: {ty}", symbol.name),
        (SymbolKind::Local, None) => format!("let {}", symbol.name),
        (SymbolKind::FreeDim, _) => {
            let by = symbol.parent.map(|p| analysis.symbol(p).declaration.as_str()).unwrap_or_default();
            format!("dim {}\n// bound by a call of {by}", symbol.name)
        }
        // What the text of the declaration does not say.
        (SymbolKind::Let | SymbolKind::Parameter, Some(ty)) if !written.ends_with(&format!(": {ty}")) => {
            format!("{written}\n// {}: {ty}", symbol.name)
        }
        _ => written.clone(),
    }
}

/// Of a field with a block: the block, and the function that a call of the field is.
fn called(analysis: &Analysis, symbol: &Symbol) -> Option<String> {
    let name = symbol.block.as_ref()?;
    let block = analysis.ids().find(|id| {
        let symbol = analysis.symbol(*id);
        symbol.kind == SymbolKind::Block && symbol.name == *name
    })?;
    let functions = analysis.members(block).map(|id| analysis.symbol(id));
    let function = functions.filter(|s| s.kind == SymbolKind::Function).find(|s| s.name.is_empty());
    let declaration = &analysis.symbol(block).declaration;
    Some(function.map_or_else(|| declaration.clone(), |function| format!("{declaration}\n{}", function.declaration)))
}

fn known_dim(symbol: &Symbol) -> &'static str {
    match (symbol.kind, symbol.name.as_str()) {
        (SymbolKind::FreeDim, "B") => "Rows of the call: one per request.",
        (SymbolKind::FreeDim, "S") => "Tokens per row.",
        (SymbolKind::FreeDim, "T") => "Positions that the state holds.",
        _ => "",
    }
}

/// A primitive that is called at `offset`, or a word that is a type.
fn about_word(analysis: &Analysis, offset: u32) -> Option<(Span, String)> {
    let text = analysis.text();
    let place = word_at(text, offset as usize);
    let (word, behind) = (&text[place.clone()], text[place.end..].trim_start());
    let span = Span { file: analysis.file, start: place.start as u32, end: place.end as u32 };
    if let Some(primitive) = ops::primitives().find(|p| p.name == word)
        && behind.starts_with('(')
    {
        return Some((span, about_primitive(analysis, span, primitive)));
    }
    let meaning = words::meaning(word, words::in_config(analysis, offset))?;
    Some((span, format!("{}\n\n{meaning}", code(word))))
}

/// The word around `offset`; empty where there is none.
pub fn word_at(text: &str, offset: usize) -> std::ops::Range<usize> {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let bytes = text.as_bytes();
    let start = bytes[..offset].iter().rposition(|b| !is_word(*b)).map_or(0, |at| at + 1);
    let end = bytes[offset..].iter().position(|b| !is_word(*b)).map_or(bytes.len(), |at| offset + at);
    start..end
}

fn about_primitive(analysis: &Analysis, span: Span, primitive: &Primitive) -> String {
    let here = analysis.call_at(span).map_or_else(String::new, |ty| format!("\n// here: {ty}"));
    format!("{}\n\n{}", code(&format!("{}{here}", primitive.usage)), primitive_doc(primitive))
}

pub fn primitive_doc(primitive: &Primitive) -> String {
    let doc = if primitive.doc.is_empty() { "Primitive." } else { primitive.doc };
    format!("{doc}\n\nStableHLO: {} · MLX: {}", primitive.stablehlo, primitive.mlx)
}
