//! Small changes of emitted StableHLO, of its text: what would happen if the recorder or the printer wrote one op otherwise.
//! Every op, operand, attribute, alias and result is changed on its own.

use std::rc::Rc;

/// A text with one change.
pub struct Changed<'a> {
    /// The op and what is changed of it: such changes look alike.
    pub what: String,
    pub line: &'a str,
    pub change: String,
    /// The whole text.
    pub text: Box<dyn Fn() -> String + 'a>,
}

/// Every change, in the order of the lines. Operands of commutative ops are not swapped.
pub fn changes(text: &str) -> Vec<Changed<'_>> {
    let lines: Rc<[&str]> = text.lines().collect();
    // Values of the function's own block in order: name, type, what made it.
    let mut made: Vec<(&str, &str, &str)> = Vec::new();
    let maker = |made: &[(&str, &str, &str)], value: &str| made.iter().find(|m| m.0 == value).map(|m| m.2.to_owned());
    let mut changed = Vec::new();
    for (at, line) in lines.iter().copied().enumerate() {
        let mut add = |what: &str, to: String| {
            if to != *line {
                let name = Op::of(line).map_or("", |op| op.name);
                let (lines, change) = (lines.clone(), to.clone());
                let text = Box::new(move || {
                    let mut lines = lines.to_vec();
                    lines[at] = &to;
                    lines.join("\n")
                });
                changed.push(Changed { what: format!("{name}: {what}"), line, change, text });
            }
        };
        if let Some(signature) = line.split_once("arg_attrs = ") {
            for (from, to) in numbers(signature.1) {
                let rest = format!("{}{to}{}", &signature.1[..from.start], &signature.1[from.end..]);
                add("another alias", format!("{}arg_attrs = {rest}", signature.0));
            }
            continue;
        }
        let Some(op) = Op::of(line) else { continue };
        if let Some(other) = other(op.name) {
            add("another op", line.replacen(&format!("stablehlo.{}\"", op.name), &format!("stablehlo.{other}\""), 1));
        }
        if !COMMUTATIVE.contains(&op.name) && !line.contains("direction EQ") && !line.contains("direction NE") {
            for x in 0..op.operands.len() {
                for y in x + 1..op.operands.len() {
                    if op.types.get(x) == op.types.get(y) && op.operands[x] != op.operands[y] {
                        let mut operands = op.operands.clone();
                        operands.swap(x, y);
                        add("operands swapped", op.with_operands(line, &operands));
                    }
                }
            }
        }
        for (x, operand) in op.operands.iter().enumerate() {
            let (ty, by) = (op.types.get(x).map(String::as_str), maker(&made, operand));
            // A constant written twice is one constant.
            let differs = |(value, of, maker): &&(&str, &str, &str)| {
                *value != operand && Some(*of) == ty && Some(*maker) != by.as_deref()
            };
            if let Some((value, ..)) = made.iter().rev().find(differs) {
                let mut operands = op.operands.clone();
                operands[x] = (*value).to_owned();
                add("another operand", op.with_operands(line, &operands));
            }
        }
        if let Some((before, attributes, after)) = op.attributes(line) {
            for (from, to) in numbers(attributes) {
                add(
                    "another attribute",
                    format!("{before}{}{to}{}{after}", &attributes[..from.start], &attributes[from.end..]),
                );
            }
            let directions =
                [("GT>", "GE>"), ("GE>", "GT>"), ("LT>", "LE>"), ("LE>", "LT>"), ("EQ>", "NE>"), ("NE>", "EQ>")];
            if let Some((from, to)) =
                directions.iter().find(|(from, _)| attributes.contains(&format!("direction {from}")))
            {
                add("another direction", format!("{before}{}{after}", attributes.replace(from, to)));
            }
        }
        if let (Some(result), Some(kept)) = (op.result, op.types.iter().position(|ty| Some(ty.as_str()) == op.ty)) {
            let (lines, kept) = (lines.clone(), op.operands[kept].clone());
            let change = format!("{result} is {kept}");
            let text = Box::new(move || {
                let (left, right) = (lines[..at].join("\n"), lines[at + 1..].join("\n"));
                format!("{left}\n{}", renamed(&right, result, &kept))
            });
            changed.push(Changed { what: format!("{}: left out", op.name), line, change, text });
        }
        if let (Some(result), Some(ty), true) = (op.result, op.ty, line.starts_with("    %")) {
            made.push((result, ty, line.split_once(" = ").map_or("", |(_, maker)| maker)));
        }
    }
    changed
}

const COMMUTATIVE: [&str; 6] = ["add", "multiply", "minimum", "maximum", "and", "or"];

fn other(name: &str) -> Option<&'static str> {
    Some(match name {
        "add" => "subtract",
        "subtract" | "maximum" | "and" => "add",
        "multiply" => "divide",
        "divide" | "remainder" => "multiply",
        "minimum" => "maximum",
        "or" => "and",
        "shift_left" => "shift_right_logical",
        "shift_right_logical" => "shift_right_arithmetic",
        "logistic" | "exponential" => "tanh",
        "tanh" => "logistic",
        "sqrt" => "rsqrt",
        "rsqrt" => "sqrt",
        "cosine" => "sine",
        "sine" => "cosine",
        "negate" => "abs",
        "round_nearest_even" => "round_nearest_afz",
        "convert" => "bitcast_convert",
        _ => return None,
    })
}

/// `%5 = "stablehlo.add"(%3, %4) {..} : (T, T) -> T`, or the line that such an op begins or ends with.
struct Op<'a> {
    name: &'a str,
    result: Option<&'a str>,
    operands: Vec<String>,
    types: Vec<String>,
    ty: Option<&'a str>,
}

impl<'a> Op<'a> {
    fn of(line: &'a str) -> Option<Op<'a>> {
        let trimmed = line.trim();
        // The end of an op with a region: its attributes.
        if trimmed.starts_with("}) {") {
            return Some(Op { name: "", result: None, operands: Vec::new(), types: Vec::new(), ty: None });
        }
        let (result, rest) = match trimmed.split_once(" = \"") {
            Some((result, rest)) => (Some(result), rest),
            None => (None, trimmed.strip_prefix('"')?),
        };
        let (name, rest) = rest.split_once("\"(")?;
        let name = name.strip_prefix("stablehlo.").unwrap_or(name);
        let (operands, rest) = rest.split_once(')')?;
        let list = |text: &str| text.split(", ").filter(|t| !t.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        let (types, ty) = match rest.rsplit_once(" : (").and_then(|(_, types)| types.rsplit_once(") -> ")) {
            Some((types, ty)) => (list(types), (ty != "()").then_some(ty)),
            None => (Vec::new(), None),
        };
        let result = result.filter(|result| !result.contains(':'));
        Some(Op { name, result, operands: list(operands), types, ty })
    }

    fn with_operands(&self, line: &str, operands: &[String]) -> String {
        line.replacen(&format!("\"({})", self.operands.join(", ")), &format!("\"({})", operands.join(", ")), 1)
    }

    /// What stands between the braces, and around it.
    fn attributes<'l>(&self, line: &'l str) -> Option<(&'l str, &'l str, &'l str)> {
        let start = line.find(") {").map(|at| at + 3)?;
        let end = line.rfind("} : ")?;
        (start < end).then(|| (&line[..start], &line[start..end], &line[end..]))
    }
}

/// Every number that is no part of a type, with its neighbour; and `true` and `false`.
fn numbers(text: &str) -> Vec<(std::ops::Range<usize>, String)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let word =
            rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || ".+-_%".contains(c)).len();
        let token = &rest[..word];
        let range = at..at + word;
        if let Ok(n) = token.parse::<i64>() {
            found.push((range, (n + 1).to_string()));
        } else if let Ok(x) = token.parse::<f64>() {
            found.push((range, format!("{:e}", if x == 0.0 { 1.0 } else { x * 1.0078125 })));
        } else if token == "true" || token == "false" {
            found.push((range, (token == "false").to_string()));
        }
        at += word.max(1);
    }
    found
}

/// Every use of one value becomes a use of another.
fn renamed(text: &str, from: &str, to: &str) -> String {
    let mut parts = text.split(from);
    let mut renamed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let longer = part.starts_with(|c: char| c.is_ascii_alphanumeric());
        renamed += if longer { from } else { to };
        renamed += part;
    }
    renamed
}
