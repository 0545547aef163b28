//! Items, config settings, and the members of blocks.

use pest::iterators::Pair;

use super::build::{Builder, Children, outside_grammar};
use super::words::Rule;
use crate::ast::*;

impl Builder<'_> {
    pub fn header(&self, pair: Pair<'_, Rule>, doc: String) -> Header {
        let mut parts = Children::of(pair);
        let name = self.name(parts.one(Rule::name));
        let model_types = parts.all(Rule::string, |pair| self.string(pair));
        Header { name, model_types, architectures: parts.all(Rule::architecture, |pair| self.string(pair)), doc }
    }

    pub fn item(&self, pair: Pair<'_, Rule>) -> Item {
        let rule = pair.as_rule();
        let word = self.place(&pair);
        let mut parts = Children::of(pair);
        match rule {
            Rule::config => Item::Config(parts.all(Rule::setting, |pair| self.setting(pair))),
            Rule::processor => {
                let name = self.name(parts.one(Rule::name));
                Item::Processor(Processor { name, arguments: self.arguments(parts.maybe(Rule::arguments)) })
            }
            Rule::numerics => Item::Numerics(parts.all(Rule::policy, |pair| {
                let mut words = Children::of(pair);
                (self.name(words.one(Rule::name)), self.name(words.one(Rule::name)))
            })),
            Rule::contract => Item::Contract(parts.all(Rule::contract_line, |pair| self.contract_line(pair))),
            Rule::type_alias => {
                let name = self.name(parts.one(Rule::name));
                Item::Type(TypeAlias { name, ty: self.tensor_type(parts.one(Rule::tensor_type)) })
            }
            Rule::op => Item::Op(self.op(parts)),
            Rule::block => {
                let name = self.name(parts.one(Rule::name));
                let parameters = parts.maybe(Rule::parameters).map_or(Vec::new(), |pair| self.parameters(pair));
                let members = parts.all(Rule::member, |pair| self.member(pair));
                Item::Block(Block { name, parameters, members, doc: self.doc.take() })
            }
            Rule::model => {
                let source = parts.maybe(Rule::source).map(|pair| self.source(pair));
                let members = parts.all(Rule::member, |pair| self.member(pair));
                let span = self.span(word.start as usize, word.start as usize + "model".len());
                Item::Model(Model { span, source, members })
            }
            other => outside_grammar(other),
        }
    }

    fn contract_line(&self, pair: Pair<'_, Rule>) -> ContractLine {
        let mut parts = Children::of(pair);
        let pattern = self.string(parts.one(Rule::string));
        let bounds = parts.all(Rule::bound, |pair| {
            let mut words = Children::of(pair);
            (self.name(words.one(Rule::name)), self.float(words.one(Rule::number)))
        });
        ContractLine { pattern, bounds }
    }

    fn float(&self, pair: Pair<'_, Rule>) -> Spanned<f64> {
        let number = self.number(pair);
        let node = match number.value {
            NumberValue::Int(value) => value as f64,
            NumberValue::Float(value) => value,
        };
        Spanned { node, span: number.span }
    }

    fn setting(&self, pair: Pair<'_, Rule>) -> Setting {
        let inner = Children::of(pair).first();
        let rule = inner.as_rule();
        let mut parts = Children::of(inner);
        if rule == Rule::require {
            return Setting::Require { condition: self.expr(parts.one(Rule::expr)) };
        }
        let name = self.name(parts.one(Rule::name));
        match rule {
            Rule::section => Setting::Section {
                name,
                keys: self.keys(parts.one(Rule::keys)),
                condition: self.condition(&mut parts),
                settings: parts.all(Rule::setting, |pair| self.setting(pair)),
            },
            Rule::option => Setting::Field {
                name,
                ty: self.value_type(parts.one(Rule::value_type)),
                keys: self.keys(parts.one(Rule::keys)),
                otherwise: parts.maybe(Rule::otherwise).map(|pair| self.expr(Children::of(pair).one(Rule::expr))),
                condition: self.condition(&mut parts),
            },
            Rule::limit => Setting::Limit {
                name,
                ty: self.value_type(parts.one(Rule::value_type)),
                value: self.expr(parts.one(Rule::expr)),
            },
            Rule::derived => {
                let value = self.expr(parts.one(Rule::expr));
                Setting::Let { name, value, condition: self.condition(&mut parts) }
            }
            other => outside_grammar(other),
        }
    }

    fn keys(&self, pair: Pair<'_, Rule>) -> Vec<Text> {
        Children::of(pair).all(Rule::string, |pair| self.string(pair))
    }

    fn condition(&self, parts: &mut Children<'_>) -> Option<Expr> {
        parts.maybe(Rule::condition).map(|pair| self.expr(Children::of(pair).one(Rule::expr)))
    }

    fn op(&self, mut parts: Children<'_>) -> Op {
        Op {
            name: self.name(parts.one(Rule::name)),
            parameters: self.parameters(parts.one(Rule::parameters)),
            result: self.tensor_type(parts.one(Rule::tensor_type)),
            twins: parts.all(Rule::twin, |pair| self.twin(pair)),
            body: self.body(parts.one(Rule::body)),
            doc: self.doc.take(),
        }
    }

    fn twin(&self, pair: Pair<'_, Rule>) -> Twin {
        let mut parts = Children::of(pair);
        Twin {
            backend: self.name(parts.one(Rule::name)),
            path: Children::of(parts.one(Rule::twin_path)).all(Rule::name, |pair| self.name(pair)),
            arguments: self.arguments(parts.maybe(Rule::arguments)),
            when: parts.maybe(Rule::when).map(|pair| self.expr(Children::of(pair).one(Rule::expr))),
            within: self.within(parts.one(Rule::within)),
        }
    }

    fn within(&self, pair: Pair<'_, Rule>) -> Spanned<Within> {
        let span = self.place(&pair);
        let mut parts = Children::of(pair);
        let bound = self.float(parts.one(Rule::number)).node;
        let node = if parts.maybe(Rule::of_sum).is_some() { Within::OfSum(bound) } else { Within::Ulp(bound) };
        Spanned { node, span }
    }

    fn parameters(&self, pair: Pair<'_, Rule>) -> Vec<Parameter> {
        Children::of(pair).all(Rule::parameter, |pair| {
            let mut parts = Children::of(pair);
            Parameter {
                mutable: parts.maybe(Rule::mutable).is_some(),
                name: self.name(parts.one(Rule::name)),
                ty: self.tensor_type(parts.one(Rule::tensor_type)),
                default: parts.maybe(Rule::default).map(|pair| self.expr(Children::of(pair).one(Rule::expr))),
            }
        })
    }

    fn member(&self, pair: Pair<'_, Rule>) -> Member {
        let inner = Children::of(pair).first();
        let rule = inner.as_rule();
        let whole = self.place(&inner);
        let mut parts = Children::of(inner);
        match rule {
            Rule::state => {
                let name = self.name(parts.one(Rule::name));
                Member::State { name, ty: self.tensor_type(parts.one(Rule::tensor_type)) }
            }
            Rule::ignore => Member::Ignore { pattern: self.string(parts.one(Rule::string)) },
            Rule::derived => {
                let name = self.name(parts.one(Rule::name));
                let value = self.expr(parts.one(Rule::expr));
                Member::Let { name, value, condition: self.condition(&mut parts) }
            }
            Rule::graph => {
                let name = self.name(parts.one(Rule::name));
                Member::Graph { name, signature: self.signature(parts.one(Rule::signature)) }
            }
            Rule::function => {
                let name = parts.maybe(Rule::name).map(|pair| self.name(pair));
                let word = self.span(whole.start as usize, whole.start as usize + "fn".len());
                let span = name.as_ref().map_or(word, |name| word.to(name.span));
                Member::Function { name, span, signature: self.signature(parts.one(Rule::signature)) }
            }
            Rule::field => {
                let name = self.name(parts.one(Rule::name));
                let ty = self.field_type(parts.one(Rule::field_type));
                let source = parts.maybe(Rule::source).map(|pair| self.source(pair));
                Member::Field { name, ty, source, condition: self.condition(&mut parts) }
            }
            other => outside_grammar(other),
        }
    }

    fn field_type(&self, pair: Pair<'_, Rule>) -> FieldType {
        let inner = Children::of(pair).first();
        match inner.as_rule() {
            Rule::array => {
                let mut parts = Children::of(inner);
                let child = self.child(parts.one(Rule::child));
                let variable = self.name(parts.one(Rule::name));
                let (low, high) = self.range(parts.one(Rule::range));
                FieldType::Array { child, variable, low, high }
            }
            Rule::child => FieldType::Child(self.child(inner)),
            Rule::tensor_type => FieldType::Type(self.tensor_type(inner)),
            other => outside_grammar(other),
        }
    }

    fn child(&self, pair: Pair<'_, Rule>) -> Child {
        let mut parts = Children::of(pair);
        let block = self.name(parts.one(Rule::name));
        Child { block, arguments: self.arguments(parts.maybe(Rule::arguments)) }
    }

    fn signature(&self, pair: Pair<'_, Rule>) -> Signature {
        let mut parts = Children::of(pair);
        Signature {
            parameters: self.parameters(parts.one(Rule::parameters)),
            result: parts.maybe(Rule::result).map(|pair| self.tensor_type(Children::of(pair).one(Rule::tensor_type))),
            body: self.body(parts.one(Rule::body)),
        }
    }

    fn source(&self, pair: Pair<'_, Rule>) -> StoredAs {
        let places = Children::of(pair).all(Rule::place, |place| {
            Children::of(place).all(Rule::part, |part| {
                let mut parts = Children::of(part);
                let path = self.string(parts.one(Rule::string));
                let rows = parts.maybe(Rule::rows).map(|rows| self.range(Children::of(rows).one(Rule::range)));
                PlacePart { path, rows }
            })
        });
        StoredAs { places }
    }

    fn range(&self, pair: Pair<'_, Rule>) -> (Expr, Expr) {
        let mut parts = Children::of(pair);
        (self.expr(parts.one(Rule::expr)), self.expr(parts.one(Rule::expr)))
    }
}
