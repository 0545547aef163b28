//! Types of values, tensors and config fields.

use pest::iterators::Pair;

use super::build::{Builder, Children, outside_grammar};
use super::words::Rule;
use crate::ast::{Constant, DimExpr, Spanned, Type, TypeKind, ValueType, ValueTypeKind};

impl Builder<'_> {
    pub fn value_type(&self, pair: Pair<'_, Rule>) -> ValueType {
        let span = self.place(&pair);
        let inner = Children::of(pair).first();
        let kind = match inner.as_rule() {
            Rule::name => ValueTypeKind::Named(inner.as_str().to_string()),
            Rule::one_of => ValueTypeKind::OneOf(Children::of(inner).all(Rule::constant, |pair| self.constant(pair))),
            Rule::index => ValueTypeKind::Index(Box::new(self.expr(Children::of(inner).one(Rule::expr)))),
            Rule::value_list => {
                ValueTypeKind::List(Box::new(self.value_type(Children::of(inner).one(Rule::value_type))))
            }
            other => outside_grammar(other),
        };
        ValueType { kind, span }
    }

    fn constant(&self, pair: Pair<'_, Rule>) -> Constant {
        let inner = Children::of(pair).first();
        match inner.as_rule() {
            Rule::string => Constant::Text(self.string(inner)),
            Rule::truth => Constant::Bool(Spanned { node: inner.as_str() == "true", span: self.place(&inner) }),
            Rule::number => Constant::Number(self.number(inner)),
            other => outside_grammar(other),
        }
    }

    pub fn tensor_type(&self, pair: Pair<'_, Rule>) -> Type {
        let span = self.place(&pair);
        let inner = Children::of(pair).first();
        let kind = match inner.as_rule() {
            Rule::tuple_type => {
                TypeKind::Tuple(Children::of(inner).all(Rule::tensor_type, |pair| self.tensor_type(pair)))
            }
            Rule::list_type => {
                let mut parts = Children::of(inner);
                let item = Box::new(self.tensor_type(parts.one(Rule::tensor_type)));
                let length = parts.maybe(Rule::expr).map(|pair| Box::new(self.expr(pair)));
                TypeKind::List { item, length }
            }
            Rule::named_type => {
                let mut parts = Children::of(inner);
                let name = self.name(parts.one(Rule::name));
                let shape = parts.maybe(Rule::shape).map(|pair| Children::of(pair).all(Rule::dim, |dim| self.dim(dim)));
                TypeKind::Named { name, shape }
            }
            other => outside_grammar(other),
        };
        Type { kind, span }
    }

    pub fn dim(&self, pair: Pair<'_, Rule>) -> DimExpr {
        let inner = Children::of(pair).first();
        match inner.as_rule() {
            Rule::rest => DimExpr::Rest(self.place(&inner)),
            _ => DimExpr::Dim(self.expr(inner)),
        }
    }
}
