//! What the grammar's rules are called in a sentence.

use pest_derive::Parser;

/// The parser that `mgraph.pest` describes.
#[derive(Parser)]
#[grammar = "mgraph.pest"]
pub struct Grammar;

/// No name, field or parameter may be one of these.
pub const RESERVED: &[&str] = &[
    "family",
    "config",
    "section",
    "limit",
    "require",
    "processor",
    "numerics",
    "contract",
    "type",
    "op",
    "block",
    "model",
    "state",
    "graph",
    "fn",
    "let",
    "mut",
    "for",
    "in",
    "if",
    "else",
    "as",
    "ignore",
    "fused",
    "when",
    "within",
    "true",
    "false",
    "one_of",
    "index",
];

macro_rules! tokens {
    ($($rule:ident $text:literal,)*) => {
        /// The text of a word or mark that only separates other things. Such rules never reach the tree builders.
        pub fn token(rule: Rule) -> Option<&'static str> {
            match rule {
                $(Rule::$rule => Some($text),)*
                _ => None,
            }
        }
    };
}

tokens! {
    kw_family "family", kw_config "config", kw_section "section", kw_limit "limit", kw_require "require",
    kw_processor "processor", kw_numerics "numerics", kw_contract "contract", kw_type "type", kw_op "op",
    kw_block "block", kw_model "model", kw_state "state", kw_graph "graph", kw_fn "fn", kw_let "let", kw_mut "mut",
    kw_for "for", kw_in "in", kw_if "if", kw_else "else", kw_as "as", kw_ignore "ignore", kw_fused "fused",
    kw_when "when", kw_within "within", kw_one_of "one_of", kw_index "index",
    kw_ulp "ulp", kw_of "of", kw_sum "sum",
    open_paren "(", close_paren ")", open_bracket "[", close_bracket "]", open_brace "{", close_brace "}",
    comma ",", colon ":", semi ";", dot ".", equals "=", arrow "->", colons "::", dots "..", bar "|", plus "+", at "@",
}

/// How an expected rule is named to people. `None` is not worth saying.
pub fn thing(rule: Rule) -> Option<&'static str> {
    Some(match rule {
        Rule::name => "a name",
        Rule::string | Rule::architecture | Rule::keys | Rule::place | Rule::part => "a string",
        Rule::number => "a number",
        Rule::truth => "`true` or `false`",
        Rule::constant => "a constant (a string, a number, `true` or `false`)",
        Rule::setting => "a config field",
        Rule::option => "a config field",
        Rule::policy => "a numeric policy",
        Rule::contract_line => "a probe pattern",
        Rule::bound => "a bound such as `max_abs 1e-4`",
        Rule::value_type | Rule::tensor_type | Rule::field_type | Rule::named_type => "a type",
        Rule::child => "a block with its arguments",
        Rule::shape => "a shape",
        Rule::dim => "a dim",
        Rule::rest => "`..`",
        Rule::twin => "`fused`",
        Rule::twin_path => "the name of a kernel or op",
        Rule::when => "`when`",
        Rule::within => "a bound such as `4 ulp` or `1e-5 of sum`",
        Rule::of_sum => "`of sum`",
        Rule::parameters | Rule::signature => "`(`",
        Rule::parameter => "a parameter",
        Rule::default => "`=`",
        Rule::mutable => "`mut`",
        Rule::member => "a field, `state`, `let` or `fn`",
        Rule::field => "a field",
        Rule::result => "`->`",
        Rule::source => "`as`",
        Rule::rows => "`[`",
        Rule::body => "`{`",
        Rule::statement => "a statement",
        Rule::effect => "an expression",
        Rule::pattern | Rule::each_names => "a name",
        Rule::expr | Rule::iterable | Rule::range | Rule::argument | Rule::arguments => "an expression",
        Rule::slot => "an index",
        Rule::otherwise => "`else`",
        Rule::condition => "`if`",
        Rule::each => "`for`",
        Rule::else_if => "`else`",
        Rule::EOI => "the next item",
        _ => return None,
    })
}

/// Operators can follow any expression, so they are named only where nothing else could stand.
pub fn is_operator(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::or
            | Rule::and
            | Rule::equal
            | Rule::not_equal
            | Rule::less
            | Rule::less_equal
            | Rule::greater
            | Rule::greater_equal
            | Rule::inside
            | Rule::shift_left
            | Rule::shift_right
            | Rule::add
            | Rule::subtract
            | Rule::multiply
            | Rule::divide
            | Rule::remainder
            | Rule::call
            | Rule::subscript
            | Rule::member_of
            | Rule::probe
            | Rule::dot
            | Rule::at
    )
}

/// What goes on after an expression without being an operator: a call, an index, the `=` behind the name of an argument.
pub fn follows_expression(rule: Rule) -> bool {
    is_operator(rule) || matches!(rule, Rule::open_paren | Rule::open_bracket | Rule::equals)
}

/// The ways in which an expression begins.
pub fn begins_expression(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::name
            | Rule::string
            | Rule::number
            | Rule::truth
            | Rule::branch
            | Rule::list
            | Rule::group
            | Rule::kw_if
            | Rule::open_paren
            | Rule::open_bracket
            | Rule::negate
            | Rule::not
    )
}
