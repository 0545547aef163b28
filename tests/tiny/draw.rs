//! Random configs from nothing but what a family's file says of its config: types, sets, defaults, conditions and `require`s.
//!
//! Fields are drawn in file order. After each, what the family itself computes and requires so far decides whether to go on: an
//! equation that fails is solved where one side is a field, and anything else that is refused begins anew.

use std::collections::{BTreeMap, BTreeSet};

use mgraph_dsl::{
    config::{ConfigFault, ConfigNames, FaultKind, Resolved, resolve},
    ir::{
        ConfigField, ConfigPath, FieldType, Load, LoadBinary, LoadFunction, LoadKind, Program, Scalar, Section, Setting,
    },
    load::{Val, evaluate, truth},
};
use proptest::prelude::Rng;
use serde_json::{Map, Value, json};

use super::hints::{Hints, configs};

/// A config that its family takes.
pub struct Drawn {
    pub config: Value,
    /// Limits of the family that are set, by dotted name.
    pub limits: Vec<(String, i64)>,
    pub resolved: Resolved,
}

/// Sizes of most things: small, and more often even.
const SIZES: [i64; 10] = [1, 2, 2, 3, 4, 4, 6, 8, 8, 16];
/// How often a config is begun anew.
const ATTEMPTS: usize = 20_000;
/// How often one config is mended.
const MENDED: usize = 24;

/// Draws configs of one family.
pub struct Draw<'p> {
    program: &'p Program,
    /// The family up to each of its fields, and the whole of it.
    until: Vec<Program>,
    hints: Hints,
}

/// A config on its way.
struct Way<'r> {
    random: &'r mut dyn Rng,
    config: Value,
    limits: Vec<(String, i64)>,
    /// Where each field that was come by may be written, and its type.
    fields: BTreeMap<ConfigPath, (Vec<String>, FieldType)>,
}

impl<'p> Draw<'p> {
    pub fn of(program: &'p Program) -> Draw<'p> {
        let count = fields(&program.config);
        let until = (0..=count).map(|at| {
            let mut left = at;
            Program { config: first(&program.config, &mut left), ..program.clone() }
        });
        Draw { program, until: until.collect(), hints: Hints::of(program) }
    }

    pub fn one(&self, random: &mut dyn Rng) -> Drawn {
        for _ in 0..ATTEMPTS {
            let model_type = self.program.model_types.first().expect("a family serves something");
            let mut config = json!({ "model_type": model_type });
            if let Some(processor) = &self.program.processor {
                write(&mut config, &processor.image_token, json!(below(random, 16)));
            }
            let mut way = Way { random: &mut *random, config, limits: Vec::new(), fields: BTreeMap::new() };
            let mut at = 0;
            if self.settings(&mut way, &self.program.config, "", &mut at).is_none() {
                continue;
            }
            let Some(resolved) = self.settled(&mut way, self.until.len() - 1) else { continue };
            return Drawn { config: way.config, limits: way.limits, resolved };
        }
        panic!("family {}: {ATTEMPTS} configs in a row were refused", self.program.name)
    }

    /// `None`: what was drawn is refused.
    fn settings(&self, way: &mut Way<'_>, settings: &[Setting], base: &str, at: &mut usize) -> Option<()> {
        for setting in settings {
            match setting {
                Setting::Section(section) => self.section(way, section, at)?,
                Setting::Field(field) => {
                    self.field(way, field, base, *at)?;
                    *at += 1;
                }
                Setting::Limit { path, .. } => {
                    if below(way.random, 2) == 0 {
                        let size = self.size(way, path);
                        way.limits.push((path.join("."), size));
                    }
                }
                Setting::Let { .. } | Setting::Require(_) => {}
            }
        }
        Some(())
    }

    fn section(&self, way: &mut Way<'_>, section: &Section, at: &mut usize) -> Option<()> {
        let known = self.settled(way, *at)?;
        let names = ConfigNames { program: self.program, resolved: &known };
        if section.condition.as_ref().is_some_and(|condition| !truth(condition, &names).unwrap_or(false)) {
            *at += fields(&section.settings);
            return Some(());
        }
        let there = |key: &&String| read(&way.config, key).and_then(Value::as_object).is_some_and(|o| !o.is_empty());
        let key = match section.keys.iter().find(there) {
            Some(key) => key,
            None => &section.keys[below(way.random, section.keys.len())],
        };
        self.settings(way, &section.settings, &format!("{key}."), at)
    }

    fn field(&self, way: &mut Way<'_>, field: &ConfigField, base: &str, at: usize) -> Option<()> {
        let known = self.settled(way, at)?;
        let names = ConfigNames { program: &self.until[at], resolved: &known };
        if field.condition.as_ref().is_some_and(|condition| !truth(condition, &names).unwrap_or(false)) {
            return Some(());
        }
        let keys: Vec<String> = field.keys.iter().map(|key| format!("{base}{key}")).collect();
        let key = keys[below(way.random, keys.len())].clone();
        way.fields.insert(field.path.clone(), (keys, field.ty.clone()));
        match &field.otherwise {
            // Null counts as absent.
            Some(_) if below(way.random, 2) == 0 => {
                if below(way.random, 3) == 0 && !key.contains('.') && read(&way.config, &key).is_none() {
                    write(&mut way.config, &key, Value::Null);
                }
            }
            otherwise => {
                let usual = otherwise.as_ref().and_then(|otherwise| evaluate(otherwise, &names).ok());
                let usual = usual.as_ref().and_then(Val::as_list).map(<[Val]>::len);
                let length = usual.filter(|_| below(way.random, 4) > 0).unwrap_or(1 + below(way.random, 3));
                let value = self.value(way, &field.path, &field.ty, &names, length)?;
                write(&mut way.config, &key, value);
            }
        }
        Some(())
    }

    fn value(
        &self,
        way: &mut Way<'_>,
        path: &ConfigPath,
        ty: &FieldType,
        names: &ConfigNames<'_>,
        length: usize,
    ) -> Option<Value> {
        let random = &mut *way.random;
        let compared = self.hints.compared.get(path).filter(|_| below(random, 3) == 0);
        let compared = compared.map(|with| with[below(random, with.len())]);
        Some(match ty {
            FieldType::Dim => json!(self.size(way, path)),
            FieldType::Int => json!(compared.map_or_else(|| below(random, 9) as i64, |x| x as i64)),
            FieldType::Float => json!(compared.unwrap_or_else(|| float(random))),
            FieldType::Bool => json!(below(random, 2) == 0),
            FieldType::Text => json!("text"),
            FieldType::OneOf(scalars) => match &scalars[below(random, scalars.len())] {
                Scalar::Int(n) => json!(n),
                Scalar::Float(x) => json!(x),
                Scalar::Bool(b) => json!(b),
                Scalar::Text(text) => json!(text),
            },
            FieldType::Index(count) => {
                let count = evaluate(count, names).ok()?.as_int()?;
                json!(below(random, 2 * count as usize) as i64 - count)
            }
            FieldType::List(item) => {
                let items = (0..length).map(|_| self.value(way, path, item, names, 1 + length % 3));
                Value::Array(items.collect::<Option<_>>()?)
            }
        })
    }

    fn size(&self, way: &mut Way<'_>, path: &ConfigPath) -> i64 {
        if self.hints.counts.contains(path) {
            1 + below(way.random, 3) as i64
        } else if self.hints.vocabulary.contains(path) {
            32 + below(way.random, 33) as i64
        } else {
            SIZES[below(way.random, SIZES.len())]
        }
    }

    /// What the config means up to field `at`, after equations are solved.
    fn settled(&self, way: &mut Way<'_>, at: usize) -> Option<Resolved> {
        let program = &self.until[at];
        for _ in 0..MENDED {
            // Limits that come later are not known yet.
            let known = limits(&program.config);
            let given: Vec<_> = way.limits.iter().filter(|(name, _)| known.contains(name)).cloned().collect();
            let faults = match resolve(program, &way.config, &given) {
                Ok(resolved) => return Some(resolved),
                Err(faults) => faults,
            };
            let fault = faults.first()?;
            if !self.solved(way, program, &fault.kind) && !self.redrawn(way, program, fault) {
                return None;
            }
        }
        None
    }

    /// Makes the sides of an equation equal, where one of them is a field or the length of one.
    fn solved(&self, way: &mut Way<'_>, program: &Program, fault: &FaultKind) -> bool {
        let FaultKind::Require { text, sides: Some((left, right)), .. } = fault else { return false };
        let required = required(&program.config, text).map(|load| &load.kind);
        let Some(LoadKind::Binary(LoadBinary::Equal, first, second)) = required else { return false };
        let mut ways = [(first, right), (second, left)];
        if below(way.random, 2) == 0 {
            ways.reverse();
        }
        ways.into_iter().any(|(side, value)| self.set(way, side, value))
    }

    /// Another value for one of the fields that a fault is about.
    fn redrawn(&self, way: &mut Way<'_>, program: &Program, fault: &ConfigFault) -> bool {
        let mut about = BTreeSet::new();
        match &fault.kind {
            FaultKind::Require { text, .. } => {
                required(&program.config, text).iter().for_each(|load| mentioned(program, load, &mut about));
            }
            FaultKind::Evaluation { .. } => {
                let path: ConfigPath = fault.field.split('.').map(str::to_owned).collect();
                meaning(&program.config, &path).iter().for_each(|load| mentioned(program, load, &mut about));
            }
            FaultKind::NotAnObject(_)
            | FaultKind::NoValue { .. }
            | FaultKind::NoSection { .. }
            | FaultKind::NoObject { .. }
            | FaultKind::Value { .. }
            | FaultKind::UnknownLimit { .. } => {}
        }
        let known: Vec<ConfigPath> = about.into_iter().filter(|path| way.fields.contains_key(path)).collect();
        if known.is_empty() {
            return false;
        }
        let path = &known[below(way.random, known.len())];
        let ty = way.fields[path].1.clone();
        let nothing = Resolved::default();
        let names = ConfigNames { program: self.program, resolved: &nothing };
        let length = 1 + below(way.random, 3);
        self.value(way, path, &ty, &names, length).is_some_and(|value| way.put(path, value))
    }

    fn set(&self, way: &mut Way<'_>, side: &Load, value: &Val) -> bool {
        let Val::Int(n) = value else { return false };
        if let LoadKind::Config(path) = &side.kind {
            return way.put(path, json!(n));
        }
        let LoadKind::Call(LoadFunction::Len, list) = &side.kind else { return false };
        let [Load { kind: LoadKind::Config(path), .. }] = &list[..] else { return false };
        let Some((_, FieldType::List(item))) = way.fields.get(path).cloned() else { return false };
        let nothing = Resolved::default();
        let names = ConfigNames { program: self.program, resolved: &nothing };
        let items = (0..*n).map(|_| self.value(way, path, &item, &names, 1)).collect::<Option<Vec<_>>>();
        items.is_some_and(|items| way.put(path, Value::Array(items)))
    }
}

impl Way<'_> {
    /// Where it is written, or under its first key.
    fn put(&mut self, path: &ConfigPath, value: Value) -> bool {
        let Some((keys, _)) = self.fields.get(path) else { return false };
        let key = keys.iter().find(|key| read(&self.config, key).is_some()).unwrap_or(&keys[0]);
        write(&mut self.config, key, value);
        true
    }
}

pub fn each_field<'s>(settings: &'s [Setting], visit: &mut dyn FnMut(&'s ConfigField)) {
    for setting in settings {
        match setting {
            Setting::Section(section) => each_field(&section.settings, visit),
            Setting::Field(field) => visit(field),
            Setting::Limit { .. } | Setting::Let { .. } | Setting::Require(_) => {}
        }
    }
}

fn fields(settings: &[Setting]) -> usize {
    let mut count = 0;
    each_field(settings, &mut |_| count += 1);
    count
}

fn limits(settings: &[Setting]) -> Vec<String> {
    let of = |setting: &Setting| match setting {
        Setting::Section(section) => limits(&section.settings),
        Setting::Limit { path, .. } => vec![path.join(".")],
        Setting::Field(_) | Setting::Let { .. } | Setting::Require(_) => Vec::new(),
    };
    settings.iter().flat_map(of).collect()
}

/// What stands for a `let`, or for a field that no key tells.
fn meaning<'s>(settings: &'s [Setting], path: &ConfigPath) -> Option<&'s Load> {
    settings.iter().find_map(|setting| match setting {
        Setting::Section(section) => meaning(&section.settings, path),
        Setting::Field(field) => field.otherwise.as_ref().filter(|_| field.path == *path),
        Setting::Let { path: name, value, .. } => Some(value).filter(|_| name == path),
        Setting::Limit { .. } | Setting::Require(_) => None,
    })
}

/// The fields that a value depends on.
fn mentioned(program: &Program, load: &Load, out: &mut BTreeSet<ConfigPath>) {
    let mut own = BTreeSet::new();
    configs(load, &mut own);
    for path in own {
        if out.insert(path.clone()) {
            meaning(&program.config, &path).iter().for_each(|load| mentioned(program, load, out));
        }
    }
}

fn required<'s>(settings: &'s [Setting], text: &str) -> Option<&'s Load> {
    settings.iter().find_map(|setting| match setting {
        Setting::Section(section) => required(&section.settings, text),
        Setting::Require(require) => (require.text == text).then_some(&require.condition),
        Setting::Field(_) | Setting::Limit { .. } | Setting::Let { .. } => None,
    })
}

/// What stands before field number `left`.
fn first(settings: &[Setting], left: &mut usize) -> Vec<Setting> {
    let mut kept = Vec::new();
    for setting in settings {
        match setting {
            Setting::Section(section) => {
                let inside = fields(&section.settings);
                let settings = first(&section.settings, left);
                kept.push(Setting::Section(Section { settings, ..section.clone() }));
                if *left == 0 && inside > 0 && fields_of(&kept) < inside {
                    return kept;
                }
            }
            Setting::Field(_) if *left == 0 => return kept,
            Setting::Field(_) => {
                *left -= 1;
                kept.push(setting.clone());
            }
            Setting::Limit { .. } | Setting::Let { .. } | Setting::Require(_) => kept.push(setting.clone()),
        }
    }
    kept
}

/// Of the last of them, a section.
fn fields_of(kept: &[Setting]) -> usize {
    if let Some(Setting::Section(section)) = kept.last() { fields(&section.settings) } else { 0 }
}

pub fn read<'v>(config: &'v Value, key: &str) -> Option<&'v Value> {
    key.split('.').try_fold(config, |object, step| object.get(step))
}

/// Objects on the way are made.
pub fn write(config: &mut Value, key: &str, value: Value) {
    let mut at = config;
    for step in key.split('.') {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[step];
    }
    *at = value;
}

pub fn below(random: &mut dyn Rng, count: usize) -> usize {
    (random.next_u64() % count as u64) as usize
}

/// Evenly from 0 to 1.
pub fn share(random: &mut dyn Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// From 1/20 to 20, as evenly below 1 as above; or, now and then, much.
fn float(random: &mut dyn Rng) -> f64 {
    match below(random, 6) {
        0 => 10_000.0,
        1 => 1.0,
        _ => 20f64.powf(2.0 * share(random) - 1.0),
    }
}
