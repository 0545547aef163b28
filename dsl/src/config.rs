//! What a `config.json` means to a family: every field's value and where it came from, or every fault at once.
//!
//! Knows JSON values, not files: the caller names the file when it prints a fault.

mod fault;
mod json;
mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::Value;

pub use fault::{ConfigFault, FaultKind, Mismatch};
pub use report::{Fate, Outcome, Row, report, unread};

use crate::{
    diagnostic::suggest,
    ir::{ConfigField, ConfigPath, FieldType, Load, LoadBinary, LoadKind, Program, Require, Section, Setting},
    load::{Environment, LoadError, LoadErrorKind, Val, constant, evaluate, truth},
};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// This dotted key of config.json, from its root.
    Key(String),
    /// The field's `else`.
    Otherwise,
    Let,
    /// A `limit` as the family gives it.
    LimitDefault,
    /// A `limit` that the caller set.
    LimitGiven,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Key(key) => write!(f, "key {key:?}"),
            Origin::Otherwise => f.write_str("its default"),
            Origin::Let => f.write_str("computed"),
            Origin::LimitDefault => f.write_str("the limit's default"),
            Origin::LimitGiven => f.write_str("the limit as set"),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Held {
    value: Val,
    origin: Origin,
}

/// The config of one checkpoint. Fields whose condition does not hold are absent.
#[derive(Debug, Clone, Default)]
pub struct Resolved {
    values: BTreeMap<ConfigPath, Held>,
    /// In file order.
    order: Vec<ConfigPath>,
}

impl Resolved {
    pub fn get(&self, path: &[String]) -> Option<&Val> {
        self.values.get(path).map(|s| &s.value)
    }

    /// By dotted name: `"text.hidden"`.
    pub fn named(&self, name: &str) -> Option<&Val> {
        let path: Vec<String> = name.split('.').map(str::to_owned).collect();
        self.get(&path)
    }

    /// Every value with its source, in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&ConfigPath, &Val, &Origin)> {
        self.order.iter().filter_map(|path| {
            let setting = self.values.get(path)?;
            Some((path, &setting.value, &setting.origin))
        })
    }

    fn insert(&mut self, path: &ConfigPath, value: Val, origin: Origin) {
        if self.values.insert(path.clone(), Held { value, origin }).is_none() {
            self.order.push(path.clone());
        }
    }
}

/// A resolved config as the environment of expressions over config values alone.
pub struct ConfigNames<'a> {
    pub program: &'a Program,
    pub resolved: &'a Resolved,
}

impl Environment for ConfigNames<'_> {
    fn program(&self) -> &Program {
        self.program
    }
    fn config(&self, path: &[String]) -> Option<Val> {
        self.resolved.get(path).cloned()
    }
}

/// Read `config` (the whole of config.json) as `program` says. `limits` sets deployment knobs by dotted name.
pub fn resolve(program: &Program, config: &Value, limits: &[(String, i64)]) -> Result<Resolved, Vec<ConfigFault>> {
    let mut resolver = Resolver {
        program,
        root: config,
        limits,
        resolved: Resolved::default(),
        unknown: BTreeSet::new(),
        known_limits: Vec::new(),
        no_objects: BTreeSet::new(),
        faults: Vec::new(),
    };
    if !config.is_object() {
        return Err(vec![ConfigFault { field: String::new(), kind: FaultKind::NotAnObject(json::shown(config)) }]);
    }
    resolver.settings(&program.config, &Place { object: config, key: None, tried: &[] });
    resolver.unknown_limits();
    if resolver.faults.is_empty() { Ok(resolver.resolved) } else { Err(resolver.faults) }
}

/// The JSON object whose keys are read at the moment.
struct Place<'a> {
    object: &'a Value,
    /// Its dotted key; `None` for the root and for a section none of whose keys is present.
    key: Option<&'a str>,
    /// The section's keys, where it is one.
    tried: &'a [String],
}

struct Resolver<'a> {
    program: &'a Program,
    root: &'a Value,
    limits: &'a [(String, i64)],
    resolved: Resolved,
    /// Fields that have no value because of a fault already told.
    unknown: BTreeSet<ConfigPath>,
    known_limits: Vec<String>,
    /// Keys that were told to hold no object.
    no_objects: BTreeSet<String>,
    faults: Vec<ConfigFault>,
}

/// A dotted key leads through `key`, which holds no object.
#[derive(Debug, Clone, Copy)]
struct Blocked<'v> {
    key: &'v str,
    found: &'v Value,
}

/// The value of a dotted key below `object`; null is no value, on the way as at the end.
fn lookup<'v>(object: &'v Value, key: &'v str) -> Result<Option<&'v Value>, Blocked<'v>> {
    let (mut value, mut passed) = (object, 0usize);
    for step in key.split('.') {
        value = match value {
            Value::Object(entries) => match entries.get(step) {
                None => return Ok(None),
                Some(inner) => inner,
            },
            Value::Null => return Ok(None),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(Blocked { key: key.get(..passed.saturating_sub(1)).unwrap_or(key), found: value });
            }
        };
        passed += step.len() + 1;
    }
    Ok(Some(value).filter(|v| !v.is_null()))
}

/// As [`lookup`], for a key of a section; what is not null is an object.
fn object<'v>(root: &'v Value, key: &'v str) -> Result<Option<&'v Value>, Blocked<'v>> {
    match lookup(root, key)? {
        Some(found) if !found.is_object() => Err(Blocked { key, found }),
        found => Ok(found),
    }
}

/// Whether the dotted key is there and null.
fn is_null(object: &Value, key: &str) -> bool {
    key.split('.').try_fold(object, |value, step| value.as_object()?.get(step)).is_some_and(Value::is_null)
}

/// `ty` with its sizes known; `index` says what an `index(..)` takes.
fn accepted<E>(ty: &FieldType, index: &impl Fn(&Load) -> Result<json::Accepted, E>) -> Result<json::Accepted, E> {
    Ok(match ty {
        FieldType::Dim => json::Accepted::Dim,
        FieldType::Int => json::Accepted::Int,
        FieldType::Float => json::Accepted::Float,
        FieldType::Bool => json::Accepted::Bool,
        FieldType::Text => json::Accepted::Text,
        FieldType::OneOf(scalars) => json::Accepted::OneOf(scalars.iter().map(Val::from).collect()),
        FieldType::Index(count) => index(count)?,
        FieldType::List(item) => json::Accepted::List(Box::new(accepted(item, index)?)),
    })
}

/// What is wrong with a constant in a field of type `ty`, whatever the checkpoint says.
pub(crate) fn misfit(ty: &FieldType, value: Val) -> Option<Mismatch> {
    let ty = accepted(ty, &|count| match constant(count)? {
        Some(Val::Int(n)) => Ok(json::Accepted::Index(n)),
        _ => Ok::<_, LoadError>(json::Accepted::Int),
    });
    json::accept(&ty.ok()?, value).err()
}

static EMPTY: Value = Value::Null;

impl<'a> Resolver<'a> {
    fn settings(&mut self, settings: &'a [Setting], place: &Place<'a>) {
        for setting in settings {
            match setting {
                Setting::Section(section) => self.section(section),
                Setting::Field(field) => self.field(field, place),
                Setting::Limit { path, value } => self.limit(path, value),
                Setting::Let { path, value, condition } => {
                    if self.holds(condition.as_ref(), path) {
                        match self.finite(value) {
                            Ok(value) => self.resolved.insert(path, value, Origin::Let),
                            Err(error) => self.failed(path, error),
                        }
                    }
                }
                Setting::Require(require) => self.require(require),
            }
        }
    }

    fn names(&self) -> ConfigNames<'_> {
        ConfigNames { program: self.program, resolved: &self.resolved }
    }

    fn evaluate(&self, load: &Load) -> Result<Val, LoadError> {
        evaluate(load, &self.names())
    }

    /// As [`Resolver::evaluate`]. What is not finite here makes every number of the model NaN.
    fn finite(&self, load: &Load) -> Result<Val, LoadError> {
        let value = self.evaluate(load)?;
        match not_finite(&value) {
            Some(x) => Err(LoadError::new(load.span, LoadErrorKind::Unusable(x))),
            None => Ok(value),
        }
    }

    /// What depends on a faulty field is silent; anything else is a fault of its own.
    fn failed(&mut self, path: &ConfigPath, error: LoadError) {
        let derived = match &error.kind {
            LoadErrorKind::Absent(name) => self.unknown.iter().any(|p| p.join(".") == *name),
            _ => false,
        };
        if !derived {
            let place = self.located(&error);
            self.fault(path, FaultKind::Evaluation { error: error.to_string(), place });
        }
        self.unknown.insert(path.clone());
    }

    fn located(&self, error: &LoadError) -> String {
        let (line, _) = self.program.sources.line_column(error.span);
        format!("{}:{line}", self.program.sources.get(error.span.file).name)
    }

    fn fault(&mut self, path: &ConfigPath, kind: FaultKind) {
        self.faults.push(ConfigFault { field: path.join("."), kind });
        self.unknown.insert(path.clone());
    }

    /// A key on the way holds no object: told once for each key, whatever is read below it.
    fn no_object(&mut self, path: &ConfigPath, key: String, found: &Value) {
        if self.no_objects.insert(key.clone()) {
            self.fault(path, FaultKind::NoObject { key, found: json::shown(found) });
        }
        self.unknown.insert(path.clone());
    }

    fn holds(&mut self, condition: Option<&Load>, path: &ConfigPath) -> bool {
        let Some(condition) = condition else { return true };
        match truth(condition, &self.names()) {
            Ok(holds) => holds,
            Err(error) => {
                self.failed(path, error);
                false
            }
        }
    }

    fn section(&mut self, section: &'a Section) {
        let path = vec![section.name.clone()];
        let known = self.unknown.len();
        if !self.holds(section.condition.as_ref(), &path) {
            if self.unknown.len() > known {
                self.forget(&section.settings);
            }
            return;
        }
        let mut place = Place { object: &EMPTY, key: None, tried: &section.keys };
        for key in &section.keys {
            match object(self.root, key) {
                Err(blocked) => {
                    self.no_object(&path, blocked.key.to_owned(), blocked.found);
                    return self.forget(&section.settings);
                }
                Ok(Some(object)) if object.as_object().is_some_and(|entries| !entries.is_empty()) => {
                    place = Place { object, key: Some(key), tried: &section.keys };
                    break;
                }
                Ok(_) => {}
            }
        }
        self.settings(&section.settings, &place);
    }

    /// Fields of a section whose condition has no value have none either.
    fn forget(&mut self, settings: &[Setting]) {
        for setting in settings {
            match setting {
                Setting::Section(section) => self.forget(&section.settings),
                Setting::Field(field) => drop(self.unknown.insert(field.path.clone())),
                Setting::Limit { path, .. } | Setting::Let { path, .. } => drop(self.unknown.insert(path.clone())),
                Setting::Require(_) => {}
            }
        }
    }

    fn field(&mut self, field: &'a ConfigField, place: &Place<'a>) {
        if !self.holds(field.condition.as_ref(), &field.path) {
            return;
        }
        let full = |key: &str| place.key.map_or_else(|| key.to_owned(), |section| format!("{section}.{key}"));
        let mut present = None;
        for key in &field.keys {
            match lookup(place.object, key) {
                Err(blocked) => return self.no_object(&field.path, full(blocked.key), blocked.found),
                Ok(None) => {}
                Ok(Some(value)) => {
                    present = Some((full(key), value));
                    break;
                }
            }
        }
        let ty = match self.field_type(&field.ty) {
            Ok(ty) => ty,
            Err(error) => return self.failed(&field.path, error),
        };
        if let Some((key, value)) = present {
            match json::read(&ty, value) {
                Ok(value) => self.resolved.insert(&field.path, value, Origin::Key(key)),
                Err(mismatch) => self.fault(&field.path, FaultKind::Value { origin: Origin::Key(key), mismatch }),
            }
            return;
        }
        let Some(otherwise) = &field.otherwise else {
            let kind = self.missing(field, place);
            return self.fault(&field.path, kind);
        };
        match self.finite(otherwise) {
            Err(error) => self.failed(&field.path, error),
            Ok(value) => match json::accept(&ty, value) {
                Ok(value) => self.resolved.insert(&field.path, value, Origin::Otherwise),
                Err(mismatch) => self.fault(&field.path, FaultKind::Value { origin: Origin::Otherwise, mismatch }),
            },
        }
    }

    fn missing(&self, field: &ConfigField, place: &Place<'_>) -> FaultKind {
        let section = match (place.key, place.tried) {
            (Some(key), _) => Some(key.to_owned()),
            (None, []) => None,
            (None, tried) => return FaultKind::NoSection { keys: field.keys.clone(), sections: tried.to_vec() },
        };
        let entries = place.object.as_object().into_iter().flatten();
        let present = entries.filter(|(_, value)| !value.is_null()).map(|(key, _)| key.as_str());
        let present: Vec<&str> = present.collect();
        let near = field.keys.iter().find_map(|key| suggest(key, present.iter().copied())).map(str::to_owned);
        let null = field.keys.iter().find(|key| is_null(place.object, key)).cloned();
        FaultKind::NoValue { keys: field.keys.clone(), section, near, null }
    }

    fn field_type(&self, ty: &FieldType) -> Result<json::Accepted, LoadError> {
        accepted(ty, &|count| match self.evaluate(count)? {
            Val::Int(n) => Ok(json::Accepted::Index(n)),
            other => {
                let kind = LoadErrorKind::Kind { expected: "an integer", found: other.to_string() };
                Err(LoadError::new(count.span, kind))
            }
        })
    }

    fn limit(&mut self, path: &ConfigPath, value: &Load) {
        let name = path.join(".");
        let given = self.limits.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        self.known_limits.push(name);
        let (value, origin) = match given {
            Some(n) => (Ok(Val::Int(n)), Origin::LimitGiven),
            None => (self.evaluate(value), Origin::LimitDefault),
        };
        match value {
            Err(error) => self.failed(path, error),
            Ok(value) => match json::accept(&json::Accepted::Dim, value) {
                Ok(value) => self.resolved.insert(path, value, origin),
                Err(mismatch) => self.fault(path, FaultKind::Value { origin, mismatch }),
            },
        }
    }

    fn unknown_limits(&mut self) {
        for (name, _) in self.limits {
            if !self.known_limits.contains(name) {
                let known = self.known_limits.clone();
                self.faults.push(ConfigFault { field: name.clone(), kind: FaultKind::UnknownLimit { known } });
            }
        }
    }

    fn require(&mut self, require: &Require) {
        match self.evaluate(&require.condition) {
            Ok(Val::Bool(true)) => {}
            Ok(_) => {
                let sides = self.sides(&require.condition);
                let mut mentioned = Vec::new();
                mentions(&require.condition, &mut mentioned);
                let values =
                    mentioned.iter().filter_map(|path| Some((path.join("."), self.resolved.get(path)?.clone())));
                let kind = FaultKind::Require { text: require.text.clone(), sides, values: values.collect() };
                self.faults.push(ConfigFault { field: String::new(), kind });
            }
            Err(error) => self.failed(&vec![format!("require {}", require.text)], error),
        }
    }

    /// Both sides of a comparison, of the failing half of `a & b`.
    fn sides(&self, condition: &Load) -> Option<(Val, Val)> {
        match &condition.kind {
            LoadKind::Binary(LoadBinary::And, left, right) => {
                let failing = if self.evaluate(left).ok()? == Val::Bool(false) { left } else { right };
                self.sides(failing)
            }
            LoadKind::Binary(
                LoadBinary::Equal
                | LoadBinary::NotEqual
                | LoadBinary::Less
                | LoadBinary::LessEqual
                | LoadBinary::Greater
                | LoadBinary::GreaterEqual
                | LoadBinary::In,
                left,
                right,
            ) => Some((self.evaluate(left).ok()?, self.evaluate(right).ok()?)),
            _ => None,
        }
    }
}

/// The first number in a value that is infinite or none.
fn not_finite(value: &Val) -> Option<f64> {
    match value {
        Val::Float(x) => Some(*x).filter(|x| !x.is_finite()),
        Val::List(items) => items.iter().find_map(not_finite),
        Val::Int(_) | Val::Bool(_) | Val::Text(_) => None,
    }
}

/// The config values that an expression names, each once.
fn mentions(load: &Load, out: &mut Vec<ConfigPath>) {
    if let LoadKind::Config(path) = &load.kind
        && !out.contains(path)
    {
        out.push(path.clone());
    }
    load.for_each_part(&mut |part| mentions(part, out));
}

/// `accepted` in messages: what a `one_of` lists.
pub(crate) fn listed<T: std::fmt::Display>(items: &[T]) -> String {
    match items {
        [] => "nothing".into(),
        [one] => one.to_string(),
        [init @ .., last] => {
            let init: Vec<String> = init.iter().map(T::to_string).collect();
            format!("{} or {last}", init.join(", "))
        }
    }
}

#[cfg(test)]
mod tests;
