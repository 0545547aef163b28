//! How a config was read: every setting of the family in file order, with what became of it. For people; nothing computes from it.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

use super::{ConfigNames, Origin, Resolved, lookup};
use crate::{
    ir::{ConfigPath, Load, Program, Section, Setting},
    load::{Val, truth},
};

/// One setting of the family.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Dotted.
    pub name: String,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// `written` is the expression of a default, a `let` or a limit, as the family has it.
    Value { value: Val, origin: Origin, written: Option<String> },
    /// The condition under which it exists does not hold.
    Absent { condition: String },
    /// A section with its keys; their rows follow.
    Section { keys: Vec<(String, Fate)> },
}

/// What became of one key of a section.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    Chosen,
    /// An earlier key won.
    Later,
    NotThere,
    Empty,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::Chosen => f.write_str("chosen"),
            Fate::Later => f.write_str("there, but an earlier key was chosen"),
            Fate::NotThere => f.write_str("not there"),
            Fate::Empty => f.write_str("is empty"),
        }
    }
}

/// The rows of a config that was resolved without a fault.
pub fn report(program: &Program, config: &Value, resolved: &Resolved) -> Vec<Row> {
    let mut reporter = Reporter { program, config, resolved, rows: Vec::new() };
    reporter.settings(&program.config);
    reporter.rows
}

/// The dotted keys of `config` that hold something, and that the family did not read; those in `known` somebody else reads.
pub fn unread(config: &Value, resolved: &Resolved, known: &[&str]) -> Vec<String> {
    let origins = resolved.values.values().map(|held| &held.origin);
    let read = origins.filter_map(|origin| match origin {
        Origin::Key(key) => Some(key.as_str()),
        Origin::Otherwise | Origin::Let | Origin::LimitDefault | Origin::LimitGiven => None,
    });
    let read: BTreeSet<&str> = read.chain(known.iter().copied()).collect();
    let mut keys = Vec::new();
    add_unread(config, "", &read, &mut keys);
    keys
}

fn add_unread(value: &Value, key: &str, read: &BTreeSet<&str>, keys: &mut Vec<String>) {
    match value {
        _ if read.contains(key) => {}
        Value::Null => {}
        Value::Object(entries) => {
            for (name, inner) in entries {
                let below = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                add_unread(inner, &below, read, keys);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => keys.push(key.to_owned()),
    }
}

struct Reporter<'a> {
    program: &'a Program,
    config: &'a Value,
    resolved: &'a Resolved,
    rows: Vec<Row>,
}

impl Reporter<'_> {
    fn settings(&mut self, settings: &[Setting]) {
        for setting in settings {
            match setting {
                Setting::Section(section) => self.section(section),
                Setting::Field(field) => self.value(&field.path, field.otherwise.as_ref(), field.condition.as_ref()),
                Setting::Limit { path, value } => self.value(path, Some(value), None),
                Setting::Let { path, value, condition } => self.value(path, Some(value), condition.as_ref()),
                Setting::Require(_) => {}
            }
        }
    }

    fn section(&mut self, section: &Section) {
        let names = ConfigNames { program: self.program, resolved: self.resolved };
        if let Some(condition) = &section.condition
            && !truth(condition, &names).unwrap_or(false)
        {
            return self.absent(section.name.clone(), condition);
        }
        let mut chosen = false;
        let keys = section.keys.iter().map(|key| {
            // Behind the chosen key nothing was read, whatever it holds.
            let object = lookup(self.config, key).ok().flatten().and_then(Value::as_object);
            let fate = match object {
                None => Fate::NotThere,
                Some(object) if object.is_empty() => Fate::Empty,
                Some(_) if chosen => Fate::Later,
                Some(_) => {
                    chosen = true;
                    Fate::Chosen
                }
            };
            (key.clone(), fate)
        });
        let keys = keys.collect();
        self.rows.push(Row { name: section.name.clone(), outcome: Outcome::Section { keys } });
        self.settings(&section.settings);
    }

    fn value(&mut self, path: &ConfigPath, written: Option<&Load>, condition: Option<&Load>) {
        let name = path.join(".");
        match (self.resolved.values.get(path), condition) {
            (Some(held), _) => {
                let written = match held.origin {
                    Origin::Key(_) | Origin::LimitGiven => None,
                    Origin::Otherwise | Origin::Let | Origin::LimitDefault => written.map(|load| self.written(load)),
                };
                let (value, origin) = (held.value.clone(), held.origin.clone());
                self.rows.push(Row { name, outcome: Outcome::Value { value, origin, written } });
            }
            (None, Some(condition)) => self.absent(name, condition),
            // Resolved without a fault, so what has no condition has a value.
            (None, None) => {}
        }
    }

    fn absent(&mut self, name: String, condition: &Load) {
        let condition = self.written(condition);
        self.rows.push(Row { name, outcome: Outcome::Absent { condition } });
    }

    fn written(&self, load: &Load) -> String {
        self.program.sources.text(load.span).split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{compile_text, config::resolve};

    const FAMILY: &str = "\
family toy for \"toy\"

config {
    vocab:  dim = \"vocab_size\"
    hidden: dim = \"hidden_size\" else 2 * vocab
    kind:   one_of(\"plain\", \"bent\") = \"kind\" else \"plain\"
    section bent = \"bent\" if kind == \"bent\" { by: float = \"by\" }
    section text = \"a\" | \"b\" | \"c\" { depth: int = \"depth\" }
    let double = 2.0 * text.depth
}

model {
    table: Embedding(vocab, hidden)

    graph embed(tokens: i32[B, S]) -> F[B, S, hidden] { table(tokens) }
    graph forward(x: F[B, S, hidden], positions: i32[B, S], wanted: i32[B, R]) -> F[B, R, vocab] {
        table.logits(rows_at(x, wanted))
    }
}
";

    #[test]
    fn every_setting_says_what_became_of_it() {
        let program = compile_text("toy.mgraph", FAMILY).unwrap_or_else(|failed| panic!("{failed}"));
        let config = json!({ "vocab_size": 8, "a": {}, "b": { "depth": 3 }, "c": { "depth": 4 } });
        let resolved = resolve(&program, &config, &[]).unwrap_or_else(|faults| panic!("{faults:?}"));
        let value = |value, origin, written: Option<&str>| Outcome::Value {
            value,
            origin,
            written: written.map(str::to_owned),
        };
        let keys = [("a", Fate::Empty), ("b", Fate::Chosen), ("c", Fate::Later)];
        let expected = [
            ("vocab", value(Val::Int(8), Origin::Key("vocab_size".to_owned()), None)),
            ("hidden", value(Val::Int(16), Origin::Otherwise, Some("2 * vocab"))),
            ("kind", value(Val::Text("plain".to_owned()), Origin::Otherwise, Some("\"plain\""))),
            ("bent", Outcome::Absent { condition: "kind == \"bent\"".to_owned() }),
            ("text", Outcome::Section { keys: keys.map(|(key, fate)| (key.to_owned(), fate)).to_vec() }),
            ("text.depth", value(Val::Int(3), Origin::Key("b.depth".to_owned()), None)),
            ("double", value(Val::Float(6.0), Origin::Let, Some("2.0 * text.depth"))),
        ];
        let expected = expected.map(|(name, outcome)| Row { name: name.to_owned(), outcome });
        assert_eq!(report(&program, &config, &resolved), expected);
        assert_eq!(unread(&config, &resolved, &[]), ["c.depth"]);
    }

    #[test]
    fn keys_that_nobody_read() {
        let program = compile_text("toy.mgraph", FAMILY).unwrap_or_else(|failed| panic!("{failed}"));
        let config = json!({
            "model_type": "toy", "vocab_size": 8, "hidden_sizes": 4, "nothing": null, "list": [{ "a": 1 }],
            "bent": { "by": 2.0 }, "a": { "depth": 3, "deep": { "er": true } }, "quantization": { "bits": 4 }
        });
        let resolved = resolve(&program, &config, &[]).unwrap_or_else(|faults| panic!("{faults:?}"));
        let keys = unread(&config, &resolved, &["model_type", "quantization"]);
        assert_eq!(keys, ["hidden_sizes", "list", "bent.by", "a.deep.er"]);
    }
}
