//! Small changes of single calls in emitted Rust: another op, operands swapped, another axis or number, an op left out.
//! Commutative ops keep the order of their operands: a change must be one of meaning.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Block, Expr, ExprCall, ExprMethodCall, Lit, parse_quote,
    visit_mut::{self, VisitMut},
};

use crate::table::Emitter;

/// One change at one call.
pub struct Site {
    pub number: u32,
    pub emitter: Emitter,
    /// As in `prelude::silu`.
    pub function: String,
    pub change: &'static str,
    pub before: String,
    pub after: String,
}

/// Puts every change of every call of a body beside the call.
pub fn insert(
    emitter: Emitter,
    function: &str,
    body: &mut Block,
    number: &mut dyn FnMut() -> u32,
    sites: &mut Vec<Site>,
) {
    Calls { emitter, function, number, sites }.visit_block_mut(body);
}

struct Calls<'a> {
    emitter: Emitter,
    function: &'a str,
    number: &'a mut dyn FnMut() -> u32,
    sites: &'a mut Vec<Site>,
}

impl VisitMut for Calls<'_> {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let Some(call) = Call::of(expr) else { return visit_mut::visit_expr_mut(self, expr) };
        let changes = call.changes(self.emitter);
        if changes.is_empty() {
            return;
        }
        let (mut numbers, mut arms) = (Vec::new(), Vec::new());
        for (change, to) in changes {
            let number = (self.number)();
            let (function, before, after) = (self.function.to_owned(), shown(expr), shown(&to));
            self.sites.push(Site { number, emitter: self.emitter, function, change, before, after });
            numbers.push(number);
            arms.push(quote!(#number => #to,));
        }
        *expr = parse_quote!((match crate::switch::at(&[#(#numbers),*]) { #(#arms)* _ => #expr, }));
    }
}

/// As a person would write it.
fn shown(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    let tidy = [
        (" . ", "."),
        (" :: ", "::"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        ("& ", "&"),
        ("[ ", "["),
        (" ]", "]"),
        (" ,", ","),
        (" !", "!"),
        ("- 1]", "-1]"),
        ("(&[", "(&["),
        (",)", ")"),
        ("cx.", ""),
        ("ops::", ""),
        ("{ }", "{}"),
    ];
    for (from, to) in tidy {
        text = text.replace(from, to);
    }
    text
}

/// `cx.add(x, y)` or `ops::add(&x, &y)`.
struct Call {
    name: String,
    arguments: Vec<Expr>,
    whole: Expr,
}

impl Call {
    fn of(expr: &Expr) -> Option<Call> {
        let (name, arguments) = match expr {
            Expr::MethodCall(ExprMethodCall { receiver, method, args, .. }) if is(receiver, "cx") => {
                (method.to_string(), args)
            }
            Expr::Call(ExprCall { func, args, .. }) => match &**func {
                Expr::Path(path) if path.path.segments.len() == 2 && path.path.segments[0].ident == "ops" => {
                    (path.path.segments[1].ident.to_string(), args)
                }
                _ => return None,
            },
            _ => return None,
        };
        Some(Call { name, arguments: arguments.iter().cloned().collect(), whole: expr.clone() })
    }

    /// The same kind of call with these.
    fn with(&self, name: &str, arguments: &[Expr]) -> Expr {
        let name = quote::format_ident!("{name}");
        match &self.whole {
            Expr::MethodCall(call) => {
                let receiver = &call.receiver;
                parse_quote!(#receiver.#name(#(#arguments),*))
            }
            _ => parse_quote!(ops::#name(#(#arguments),*)),
        }
    }

    fn changes(&self, emitter: Emitter) -> Vec<(&'static str, Expr)> {
        let arguments = &self.arguments;
        let mut changes = Vec::new();
        if self.name == "compare" {
            if let Some(other) = direction(&arguments[0].to_token_stream().to_string().replace(' ', "")) {
                changes
                    .push(("another op", self.with("compare", &[other, arguments[1].clone(), arguments[2].clone()])));
            }
        } else if let Some(other) = other(emitter, &self.name) {
            changes.push(("another op", self.with(other, arguments)));
        }
        if let Some((x, y)) = ordered(&self.name) {
            let mut swapped = arguments.clone();
            swapped.swap(x, y);
            changes.push(("operands swapped", self.with(&self.name, &swapped)));
        }
        for (at, argument) in arguments.iter().enumerate() {
            for (change, to) in argument_changes(&self.name, at, argument) {
                let mut changed = arguments.clone();
                changed[at] = to;
                changes.push((change, self.with(&self.name, &changed)));
            }
        }
        changes.extend(kept(&self.name).iter().map(|at| {
            let argument = &arguments[*at];
            (
                "op left out",
                match emitter {
                    Emitter::Hlo => argument.clone(),
                    Emitter::Mlx => parse_quote!(Ok(Array::clone(#argument))),
                },
            )
        }));
        let nothing: Expr = match emitter {
            Emitter::Hlo => parse_quote!({}),
            Emitter::Mlx => parse_quote!(Ok(())),
        };
        match self.name.as_str() {
            "fused" => {
                changes.push(("twin used where `pinned`", parse_quote!(true)));
                changes.push(("twin missing where `fused`", parse_quote!(false)));
            }
            "set_state" => changes.push(("state not written", nothing)),
            "probe" => {
                let value = &arguments[1];
                changes.push((
                    "probe lost",
                    match emitter {
                        Emitter::Hlo => value.clone(),
                        Emitter::Mlx => parse_quote!(Ok(#value)),
                    },
                ));
            }
            "update_state" => {
                let [place, x, positions, axis] = &arguments[..] else { return changes };
                let unwritten = parse_quote!(cx.state(#place).and_then(|old| ops::update(&old, #x, #positions, #axis)));
                changes.push(("state not written", unwritten));
            }
            _ => {}
        }
        changes
    }
}

fn is(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Path(path) if path.path.is_ident(name))
}

/// An op of the same operands.
fn other(emitter: Emitter, name: &str) -> Option<&'static str> {
    let mlx = emitter == Emitter::Mlx;
    Some(match name {
        "add" => "subtract",
        "subtract" => "add",
        "multiply" => "divide",
        "divide" => "multiply",
        "remainder" => "divide",
        "minimum" => "maximum",
        "maximum" => "minimum",
        "and" => "or",
        "or" => "and",
        "shift_left" => "shift_right",
        "shift_right" => "shift_left",
        "exponential" | "exp" | "erf" | "log" => "tanh",
        "logistic" | "sigmoid" => "tanh",
        "tanh" if mlx => "sigmoid",
        "tanh" => "logistic",
        "sqrt" => "rsqrt",
        "rsqrt" => "sqrt",
        "cos" => "sin",
        "sin" => "cos",
        "cosine" => "sine",
        "sine" => "cosine",
        "negate" => "abs",
        "less" => "less_equal",
        "less_equal" => "less",
        "greater" => "greater_equal",
        "greater_equal" => "greater",
        "equal" => "not_equal",
        "not_equal" => "equal",
        "sum" => "maximum_along",
        "maximum_along" => "sum",
        "dot" => "matmul",
        "matmul" => "dot",
        _ => return None,
    })
}

fn direction(of: &str) -> Option<Expr> {
    Some(match of.strip_prefix("Compare::")? {
        "Less" => parse_quote!(Compare::LessEqual),
        "LessEqual" => parse_quote!(Compare::Less),
        "Greater" => parse_quote!(Compare::GreaterEqual),
        "GreaterEqual" => parse_quote!(Compare::Greater),
        "Equal" => parse_quote!(Compare::NotEqual),
        "NotEqual" => parse_quote!(Compare::Equal),
        _ => return None,
    })
}

/// Two arguments whose order matters.
fn ordered(name: &str) -> Option<(usize, usize)> {
    match name {
        "subtract" | "divide" | "remainder" | "shift_left" | "shift_right" | "less" | "less_equal" | "greater"
        | "greater_equal" => Some((0, 1)),
        "compare" | "select" => Some((1, 2)),
        _ => None,
    }
}

/// The operands that a call may be replaced by.
fn kept(name: &str) -> &'static [usize] {
    match name {
        "convert" | "transpose" | "sum" | "maximum_along" | "negate" | "abs" | "exponential" | "exp" | "log"
        | "sqrt" | "rsqrt" | "tanh" | "cos" | "sin" | "cosine" | "sine" | "logistic" | "sigmoid" | "erf" | "not"
        | "update" => &[0],
        "add" | "subtract" | "multiply" | "divide" | "remainder" | "minimum" | "maximum" | "and" | "or"
        | "shift_left" | "shift_right" => &[0, 1],
        "select" => &[1, 2],
        _ => &[],
    }
}

fn argument_changes(name: &str, at: usize, argument: &Expr) -> Vec<(&'static str, Expr)> {
    let one = |change, to: TokenStream| vec![(change, parse_quote!(#to))];
    match (name, at) {
        ("number", 0) => one("another number", quote!(crate::switch::off(#argument))),
        ("integer", 0) => one("another number", quote!(#argument + 1)),
        ("numbers" | "integers", 0) => one("numbers in reverse", quote!(&crate::switch::reversed(#argument))),
        ("top_k_values" | "top_k_indices", 1) => one("another k", quote!(#argument - 1)),
        ("sum" | "maximum_along", 1) => one("another axis", quote!(&crate::switch::axes(#argument))),
        ("concat" | "take" | "take_along", 2 | 1) | ("update", 3) | ("update_state", 3) if integer(argument) => {
            one("another axis", quote!(crate::switch::axis(#argument)))
        }
        ("transpose", 1) => one("another permutation", quote!(&crate::switch::permutation(#argument))),
        ("concat", 0) => match list(argument) {
            Some(items) if items.len() > 1 => {
                let items = items.into_iter().rev();
                one("operands swapped", quote!(&[#(#items),*]))
            }
            Some(_) | None => Vec::new(),
        },
        ("cut", 1) => cuts(argument),
        _ => Vec::new(),
    }
}

fn integer(expr: &Expr) -> bool {
    match expr {
        Expr::Unary(negative) => integer(&negative.expr),
        Expr::Lit(literal) => matches!(literal.lit, Lit::Int(_)),
        _ => false,
    }
}

/// The items of `&[..]`.
fn list(expr: &Expr) -> Option<Vec<Expr>> {
    let Expr::Reference(reference) = expr else { return None };
    let Expr::Array(array) = &*reference.expr else { return None };
    Some(array.elems.iter().cloned().collect())
}

/// Every range one place later and one earlier, every index one later.
fn cuts(argument: &Expr) -> Vec<(&'static str, Expr)> {
    let Some(items) = list(argument) else { return Vec::new() };
    let mut changes = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let Expr::Call(call) = item else { continue };
        let cut = call.func.to_token_stream().to_string().replace(' ', "");
        let moved: Vec<Expr> = match (cut.as_str(), call.args.iter().collect::<Vec<_>>()[..].as_ref()) {
            ("Cut::Range", [start, end]) => {
                vec![parse_quote!(Cut::Range(#start + 1, #end + 1)), parse_quote!(Cut::Range(#start - 1, #end - 1))]
            }
            ("Cut::At", [place]) => vec![parse_quote!(Cut::At(#place + 1))],
            _ => continue,
        };
        for moved in moved {
            let mut items = items.clone();
            items[at] = moved;
            changes.push(("slice off by one", parse_quote!(&[#(#items),*])));
        }
    }
    changes
}
