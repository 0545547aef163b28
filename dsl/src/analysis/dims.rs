//! Free dims of a function: defined where they stand alone in the shape of a parameter, used in the rest of its
//! signature and in its body. A name that begins with a capital is one wherever an expression may stand.

use super::symbols::{Reader, Symbol, SymbolId, SymbolKind, parts};
use crate::{ast, source::Span};

/// Defines the dims that `parameters` bind, and finds their other uses there. `T` may also be the runtime's, and then
/// has no definition.
pub(super) fn bind<'a>(reader: &mut Reader<'_, 'a>, parameters: &'a [ast::Parameter], scope: Span, function: SymbolId) {
    for parameter in parameters {
        in_type(reader, &parameter.ty, 0, &mut |reader, dim, alone| {
            if alone && find(reader, dim, function).is_none() && is_free(dim) {
                let ast::ExprKind::Name(name) = &dim.kind else { return };
                reader.table.symbols.push(Symbol {
                    name: name.clone(),
                    kind: SymbolKind::FreeDim,
                    span: dim.span,
                    extent: dim.span,
                    scope: Some(scope),
                    declaration: String::new(),
                    doc: String::new(),
                    parent: Some(function),
                    block: None,
                });
            }
        });
    }
    for parameter in parameters {
        written(reader, &parameter.ty, function);
        parameter.default.iter().for_each(|e| expression(reader, e, function));
    }
}

/// Uses of dims in a type as it is written, not in the aliases that it names.
pub(super) fn written<'a>(reader: &mut Reader<'_, 'a>, ty: &'a ast::Type, function: SymbolId) {
    in_type(reader, ty, MAX_ALIASES, &mut |reader, dim, _| expression(reader, dim, function));
}

pub(super) fn expression<'a>(reader: &mut Reader<'_, 'a>, expr: &'a ast::Expr, function: SymbolId) {
    if is_free(expr) {
        if let Some(symbol) = find(reader, expr, function) {
            reader.table.uses.push((expr.span, symbol));
        }
        return;
    }
    // The bodies of an `if` are read as bodies.
    parts(expr, &mut |part| expression(reader, part, function));
}

fn is_free(expr: &ast::Expr) -> bool {
    matches!(&expr.kind, ast::ExprKind::Name(name) if name.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn find(reader: &Reader<'_, '_>, dim: &ast::Expr, function: SymbolId) -> Option<SymbolId> {
    let ast::ExprKind::Name(name) = &dim.kind else { return None };
    let symbols = &reader.table.symbols;
    let of_function = |s: &Symbol| s.kind == SymbolKind::FreeDim && s.parent == Some(function) && s.name == *name;
    (function.0..symbols.len()).map(SymbolId).find(|id| of_function(&symbols[id.0]))
}

/// As deep as the checker opens aliases.
const MAX_ALIASES: usize = 16;

/// Every dim of a type; whether it stands alone is told apart from being part of a sum or a product.
fn in_type<'r, 'a>(
    reader: &mut Reader<'r, 'a>,
    ty: &'a ast::Type,
    depth: usize,
    visit: &mut dyn FnMut(&mut Reader<'r, 'a>, &'a ast::Expr, bool),
) {
    match &ty.kind {
        ast::TypeKind::Tuple(items) => items.iter().for_each(|ty| in_type(reader, ty, depth, visit)),
        ast::TypeKind::List { item, length } => {
            in_type(reader, item, depth, visit);
            length.iter().for_each(|length| visit(reader, length, is_free(length)));
        }
        ast::TypeKind::Named { shape: Some(shape), .. } => {
            for dim in shape {
                if let ast::DimExpr::Dim(dim) = dim {
                    visit(reader, dim, is_free(dim));
                }
            }
        }
        ast::TypeKind::Named { name, shape: None } => {
            if let Some(alias) = reader.aliases.get(name.node.as_str()).copied()
                && depth < MAX_ALIASES
            {
                in_type(reader, alias, depth + 1, visit);
            }
        }
    }
}
