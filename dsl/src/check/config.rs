//! The `config` item: what each name means, in file order, and what is believed about it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    Checker,
    bounds::Named,
    load::type_name,
    scope::{Checked, Home, Item, Lowering, Reported},
};
use crate::{
    ast,
    diagnostic::{Code, Diagnostic, suggest},
    dim::Dim,
    ir::*,
    source::Span,
};

/// A config name that may be used: a field, a `limit`, or a `let`.
#[derive(Debug, Clone)]
struct Entry {
    ty: LoadType,
    /// The strings of a `one_of`.
    options: Option<Vec<String>>,
    /// Facts that must be known where it is named, and the condition they come from as written.
    needed: Vec<String>,
    written: String,
    /// Of a `let`.
    value: Option<Load>,
    dim: Option<Dim>,
    length: Option<Dim>,
    text: Option<String>,
    span: Span,
}

#[derive(Debug, Clone)]
struct SectionEntry {
    needed: Vec<String>,
    written: String,
    span: Span,
}

#[derive(Debug, Default)]
pub(crate) struct ConfigTable {
    /// `None` for a name whose definition is wrong: it is known, and never reported again.
    entries: BTreeMap<ConfigPath, Option<Entry>>,
    sections: HashMap<String, SectionEntry>,
    spans: BTreeMap<ConfigPath, Span>,
    /// Every name of the item, read or not.
    all: HashMap<String, Span>,
    /// The names that are positive integers: each `dim` and `limit`.
    counts: BTreeSet<ConfigPath>,
}

impl ConfigTable {
    fn entry(&self, path: &[String]) -> Option<&Entry> {
        self.entries.get(path).and_then(Option::as_ref)
    }

    pub fn dim(&self, path: &[String]) -> Option<&Dim> {
        self.entry(path)?.dim.as_ref()
    }

    pub fn length(&self, path: &[String]) -> Option<&Dim> {
        self.entry(path)?.length.as_ref()
    }

    /// Whether the type of this name says that it is 1 or more.
    pub fn is_count(&self, path: &[String]) -> bool {
        self.counts.contains(path)
    }

    /// What a `let` stands for.
    pub fn defined_as(&self, path: &[String]) -> Option<&Load> {
        self.entry(path)?.value.as_ref()
    }

    pub fn text(&self, path: &[String]) -> Option<String> {
        self.entry(path)?.text.clone()
    }

    pub fn options(&self, path: &[String]) -> Option<&[String]> {
        self.entry(path)?.options.as_deref()
    }

    /// Where the root name `name` is defined, if it is a config name.
    pub fn defined_at(&self, name: &str) -> Option<Span> {
        let section = self.sections.get(name).map(|s| s.span);
        section.or_else(|| self.spans.get(&vec![name.to_string()]).copied())
    }

    /// Where a name is defined that has not been read yet.
    pub fn later(&self, name: &str) -> Option<Span> {
        self.all.get(name).copied()
    }

    pub fn has_section(&self, name: &str) -> bool {
        self.sections.contains_key(name)
    }

    /// Whether the section stands under a condition.
    pub fn may_be_absent(&self, section: &str) -> bool {
        self.sections.get(section).is_some_and(|s| !s.needed.is_empty())
    }

    /// Names that can be written bare at the root.
    pub fn root_names(&self) -> impl Iterator<Item = &str> {
        let fields = self.spans.keys().filter(|p| p.len() == 1).map(|p| p[0].as_str());
        fields.chain(self.sections.keys().map(String::as_str))
    }

    pub fn section_names<'s>(&'s self, section: &'s str) -> impl Iterator<Item = &'s str> {
        self.spans.keys().filter(move |p| p.len() == 2 && p[0] == section).map(|p| p[1].as_str())
    }
}

impl<'a> Checker<'a> {
    /// Checks every `config` item of the family.
    pub fn check_config(&mut self, items: &'a [ast::Item]) -> Vec<Setting> {
        let mut settings = Vec::new();
        for item in items {
            if let ast::Item::Config(list) = item {
                for setting in list {
                    match setting {
                        ast::Setting::Section { name, .. }
                        | ast::Setting::Field { name, .. }
                        | ast::Setting::Limit { name, .. }
                        | ast::Setting::Let { name, .. } => {
                            self.config.all.insert(name.node.clone(), name.span);
                        }
                        ast::Setting::Require { .. } => {}
                    }
                }
            }
        }
        for item in items {
            if let ast::Item::Config(list) = item {
                for setting in list {
                    if let Ok(setting) = self.check_setting(setting, None) {
                        settings.push(setting);
                    }
                }
            }
        }
        settings
    }

    /// A lowering for one expression of the config.
    fn in_config(&mut self, section: Option<&str>) -> Lowering<'_, 'a> {
        let mut lowering = Lowering::new(self, Home::Config, true);
        lowering.section = section.map(str::to_string);
        if let Some(entry) = section.and_then(|s| lowering.checker.config.sections.get(s)) {
            let needed = entry.needed.clone();
            lowering.facts.extend(needed);
            lowering.believe_sections();
        }
        lowering
    }

    fn condition(&mut self, section: Option<&str>, condition: &'a Option<ast::Expr>) -> Checked<Option<Load>> {
        match condition {
            Some(condition) => self.in_config(section).condition(condition).map(Some),
            None => Ok(None),
        }
    }

    fn check_setting(&mut self, setting: &'a ast::Setting, section: Option<&str>) -> Checked<Setting> {
        match setting {
            ast::Setting::Section { name, keys, condition, settings } => {
                if section.is_some() {
                    let message = "a section stands in no other section".to_string();
                    return Err(self.report(
                        Diagnostic::new(Code::UnexpectedToken, name.span, message)
                            .help("sections reach deep by dotted keys: `\"text_config.rope_scaling\"`"),
                    ));
                }
                let condition = match self.condition(None, condition) {
                    Ok(condition) => condition,
                    Err(reported) => {
                        self.poison_section(name, settings)?;
                        return Err(reported);
                    }
                };
                let (needed, written) = self.needed(None, condition.as_ref());
                self.define_section(name, needed, written)?;
                let settings = settings.iter().filter_map(|s| self.check_setting(s, Some(&name.node)).ok()).collect();
                let keys = self.keys(keys)?;
                Ok(Setting::Section(Section { name: name.node.clone(), keys, condition, settings }))
            }
            ast::Setting::Field { name, ty, keys, otherwise, condition } => {
                let field = self.check_field(name, ty, keys, otherwise, condition, section);
                self.define(name, section, field)
            }
            ast::Setting::Limit { name, ty, value } => {
                let checked = self.check_limit(name, ty, value, section);
                self.define(name, section, checked)
            }
            ast::Setting::Let { name, value, condition } => {
                let checked = self.check_let(name, value, condition, section);
                self.define(name, section, checked)
            }
            ast::Setting::Require { condition } => {
                let mut lowering = self.in_config(section);
                let value = lowering.condition(condition)?;
                let needed = section.and_then(|s| lowering.checker.config.sections.get(s)).map(|s| s.needed.clone());
                match needed {
                    // What is said of values that may be absent holds where they exist.
                    Some(needed) if !needed.is_empty() => self.conditional.push((needed, value.clone())),
                    _ => {
                        lowering.can_hold(&value)?;
                        let before = lowering.facts.len();
                        lowering.believe(&value, true);
                        let (facts, equations) = (lowering.facts.split_off(before), lowering.equations);
                        self.facts.extend(facts);
                        self.equations = equations;
                    }
                }
                let text = self.sources.text(condition.span).to_string();
                Ok(Setting::Require(Require { condition: value, text, span: condition.span }))
            }
        }
    }

    fn check_field(
        &mut self,
        name: &'a ast::Name,
        ty: &'a ast::ValueType,
        keys: &'a [ast::Text],
        otherwise: &'a Option<ast::Expr>,
        condition: &'a Option<ast::Expr>,
        section: Option<&str>,
    ) -> Checked<(Setting, Entry)> {
        let (field_type, load_type, options) = self.value_type(ty, section)?;
        let condition = self.condition(section, condition)?;
        let otherwise = match otherwise {
            None => None,
            Some(value) => {
                let mut lowering = self.in_config(section);
                if let Some(condition) = &condition {
                    lowering.believe(condition, true);
                }
                let value = lowering.load(value)?;
                let what = format!("the `else` of `{}`", name.node);
                let value = lowering.coerce(value, &load_type, &what)?;
                lowering.fits(&field_type, &value, &what)?;
                Some(value)
            }
        };
        let entry = self.unknown(name, load_type, options, section, condition.as_ref());
        let keys = self.keys(keys)?;
        let path = path(section, name);
        if matches!(field_type, FieldType::Dim) {
            self.config.counts.insert(path.clone());
        }
        Ok((Setting::Field(ConfigField { path, ty: field_type, keys, otherwise, condition, span: name.span }), entry))
    }

    /// The entry of a name whose value only a checkpoint tells.
    fn unknown(
        &mut self,
        name: &'a ast::Name,
        ty: LoadType,
        options: Option<Vec<String>>,
        section: Option<&str>,
        condition: Option<&Load>,
    ) -> Entry {
        let (needed, written) = self.needed(section, condition);
        Entry { ty, options, needed, written, value: None, dim: None, length: None, text: None, span: name.span }
    }

    fn check_limit(
        &mut self,
        name: &'a ast::Name,
        ty: &'a ast::ValueType,
        value: &'a ast::Expr,
        section: Option<&str>,
    ) -> Checked<(Setting, Entry)> {
        let (field_type, load_type, options) = self.value_type(ty, section)?;
        if !matches!(field_type, FieldType::Dim) {
            let message =
                format!("the limit `{}` is a `dim`: whoever runs the model sets a positive integer", name.node);
            return Err(self.report(Diagnostic::new(Code::TypeMismatch, ty.span, message)));
        }
        let mut lowering = self.in_config(section);
        let value = lowering.load(value)?;
        let what = format!("the limit `{}`", name.node);
        let value = lowering.coerce(value, &load_type, &what)?;
        lowering.fits(&field_type, &value, &what)?;
        let entry = self.unknown(name, load_type, options, section, None);
        let path = path(section, name);
        self.config.counts.insert(path.clone());
        Ok((Setting::Limit { path, value }, entry))
    }

    fn check_let(
        &mut self,
        name: &'a ast::Name,
        value: &'a ast::Expr,
        condition: &'a Option<ast::Expr>,
        section: Option<&str>,
    ) -> Checked<(Setting, Entry)> {
        let condition = self.condition(section, condition)?;
        let mut lowering = self.in_config(section);
        if let Some(condition) = &condition {
            lowering.believe(condition, true);
        }
        let value = lowering.load(value)?;
        lowering.item_found(name.span, &Item::Load(value.clone()));
        let measure = lowering.measured(name, &value)?;
        lowering.remember(Named::Config(path(section, name)), measure);
        let list = matches!(value.ty, LoadType::List(_));
        let entry = Entry {
            ty: value.ty.clone(),
            options: None,
            needed: Vec::new(),
            written: String::new(),
            dim: (value.ty == LoadType::Int).then(|| lowering.dim_or_atom(&value)),
            length: list.then(|| match lowering.length_of(&value) {
                // A length with no better text is known by the name of the list.
                length if length.as_atom().is_some_and(|a| a.text.starts_with("len([")) => {
                    let kind = LoadKind::Config(path(section, name));
                    lowering.length_of(&Load { kind, ..value.clone() })
                }
                length => length,
            }),
            text: Some(lowering.text_of_let(&path(section, name).join("."), &value)),
            value: Some(value.clone()),
            span: name.span,
        };
        let (needed, written) = self.needed(section, condition.as_ref());
        Ok((Setting::Let { path: path(section, name), value, condition }, Entry { needed, written, ..entry }))
    }

    /// The facts under which a name exists, and the condition as written.
    fn needed(&mut self, section: Option<&str>, condition: Option<&Load>) -> (Vec<String>, String) {
        let lowering = Lowering::new(self, Home::Config, true);
        let (mut needed, mut written) = (Vec::new(), Vec::new());
        if let Some(section) = section.and_then(|s| lowering.checker.config.sections.get(s)) {
            needed.extend(section.needed.iter().cloned());
            written.extend((!section.written.is_empty()).then(|| section.written.clone()));
        }
        if let Some(condition) = condition {
            needed.extend(lowering.facts_of(condition, true));
            written.push(lowering.written_condition(condition));
        }
        (needed, written.join(" & "))
    }

    fn define_section(&mut self, name: &ast::Name, needed: Vec<String>, written: String) -> Checked<()> {
        if let Some(first) = self.config.defined_at(&name.node) {
            return Err(self.twice(name, first));
        }
        self.config.sections.insert(name.node.clone(), SectionEntry { needed, written, span: name.span });
        Ok(())
    }

    /// The names of a section whose condition is wrong: known, and never reported.
    fn poison_section(&mut self, name: &ast::Name, settings: &[ast::Setting]) -> Checked<()> {
        self.define_section(name, Vec::new(), String::new())?;
        for setting in settings {
            match setting {
                ast::Setting::Field { name: inner, .. }
                | ast::Setting::Limit { name: inner, .. }
                | ast::Setting::Let { name: inner, .. } => {
                    let path = path(Some(&name.node), inner);
                    self.config.spans.insert(path.clone(), inner.span);
                    self.config.entries.insert(path, None);
                }
                ast::Setting::Section { .. } | ast::Setting::Require { .. } => {}
            }
        }
        Ok(())
    }

    fn define(
        &mut self,
        name: &ast::Name,
        section: Option<&str>,
        checked: Checked<(Setting, Entry)>,
    ) -> Checked<Setting> {
        let path = path(section, name);
        if name.node.starts_with(|c: char| c.is_ascii_uppercase()) {
            let message = format!("`{}` begins with a capital, as free dims do", name.node);
            self.report(
                Diagnostic::new(Code::CapitalName, name.span, message)
                    .help("begin a config name with a small letter: it is known at load"),
            );
        }
        let root = section.is_none().then(|| self.config.defined_at(&name.node)).flatten();
        if let Some(first) = root.or_else(|| self.config.spans.get(&path).copied()) {
            return Err(self.twice(name, first));
        }
        self.config.spans.insert(path.clone(), name.span);
        match checked {
            Ok((setting, entry)) => {
                self.config.entries.insert(path, Some(entry));
                Ok(setting)
            }
            Err(reported) => {
                self.config.entries.insert(path, None);
                Err(reported)
            }
        }
    }

    fn value_type(
        &mut self,
        ty: &'a ast::ValueType,
        section: Option<&str>,
    ) -> Checked<(FieldType, LoadType, Option<Vec<String>>)> {
        Ok(match &ty.kind {
            ast::ValueTypeKind::Named(name) => match name.as_str() {
                "dim" => (FieldType::Dim, LoadType::Int, None),
                "int" => (FieldType::Int, LoadType::Int, None),
                "float" => (FieldType::Float, LoadType::Float, None),
                "bool" => (FieldType::Bool, LoadType::Bool, None),
                "name" => (FieldType::Text, LoadType::Text, None),
                other => {
                    let known = ["dim", "int", "float", "bool", "name"];
                    let mut error =
                        Diagnostic::new(Code::UnknownName, ty.span, format!("there is no config type `{other}`"));
                    error = match suggest(other, known) {
                        Some(near) => error.help(format!("did you mean `{near}`?")),
                        None => {
                            error.help("config types are dim, int, float, bool, name, one_of(..), index(..) and lists")
                        }
                    };
                    return Err(self.report(error));
                }
            },
            ast::ValueTypeKind::OneOf(constants) => {
                let mut scalars = Vec::new();
                for constant in constants {
                    scalars.push(match constant {
                        ast::Constant::Text(text) => Scalar::Text(text.node.clone()),
                        ast::Constant::Bool(b) => Scalar::Bool(b.node),
                        ast::Constant::Number(number) => match number.value {
                            ast::NumberValue::Int(n) => Scalar::Int(n),
                            ast::NumberValue::Float(x) => Scalar::Float(x),
                        },
                    });
                }
                let type_of = |s: &Scalar| match s {
                    Scalar::Int(_) => LoadType::Int,
                    Scalar::Float(_) => LoadType::Float,
                    Scalar::Bool(_) => LoadType::Bool,
                    Scalar::Text(_) => LoadType::Text,
                };
                let first = scalars.first().map_or(LoadType::Text, type_of);
                if let Some(other) = scalars.iter().map(type_of).find(|t| *t != first) {
                    let message = format!("`one_of` holds {} and {}", type_name(&first), type_name(&other));
                    return Err(self.report(Diagnostic::new(Code::TypeMismatch, ty.span, message)));
                }
                let options = scalars
                    .iter()
                    .map(|s| if let Scalar::Text(t) = s { Some(t.clone()) } else { None })
                    .collect::<Option<Vec<_>>>();
                (FieldType::OneOf(scalars), first, options)
            }
            ast::ValueTypeKind::Index(bound) => {
                let mut lowering = self.in_config(section);
                let bound = lowering.load(bound)?;
                let bound = lowering.coerce(bound, &LoadType::Int, "the bound of `index`")?;
                (FieldType::Index(bound), LoadType::Int, None)
            }
            ast::ValueTypeKind::List(item) => {
                let (field, load, options) = self.value_type(item, section)?;
                (FieldType::List(Box::new(field)), LoadType::List(Box::new(load)), options)
            }
        })
    }
}

impl Lowering<'_, '_> {
    /// Tells the record which config name stands at `span`.
    pub fn config_name_used(&mut self, span: Span, path: &[String]) {
        if let Some(defined) = self.checker.config.spans.get(path).copied() {
            self.name_used(span, defined);
        }
    }

    /// A config name: bare, or of a section. `None` when there is none.
    pub fn config_name(&mut self, path: &[String], span: Span) -> Option<Checked<Load>> {
        let entry = self.checker.config.entries.get(path)?;
        let Some(entry) = entry else { return Some(Err(Reported)) };
        let (needed, defined, ty) = (entry.needed.clone(), entry.span, entry.ty.clone());
        let written = entry.written.clone();
        if let Err(reported) = self.require_known(&needed, &written, &path.join("."), span, defined) {
            return Some(Err(reported));
        }
        Some(Ok(Load { kind: LoadKind::Config(path.to_vec()), ty, span }))
    }
}

fn path(section: Option<&str>, name: &ast::Name) -> ConfigPath {
    section.map(str::to_string).into_iter().chain([name.node.clone()]).collect()
}
