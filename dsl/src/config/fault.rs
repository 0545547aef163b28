//! What can be wrong with a config, in sentences.

use std::fmt;

pub use super::json::Mismatch;
use super::{Origin, listed};
use crate::{diagnostic::Code, load::Val};

#[derive(Debug, Clone, PartialEq)]
pub struct ConfigFault {
    /// Dotted name of the config field in the family; `""` for a `require`.
    pub field: String,
    pub kind: FaultKind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum FaultKind {
    NotAnObject(String),
    NoValue {
        keys: Vec<String>,
        section: Option<String>,
        near: Option<String>,
        /// One of the keys is there, and is null.
        null: Option<String>,
    },
    /// None of a section's objects is present, and the field has no default.
    NoSection {
        keys: Vec<String>,
        sections: Vec<String>,
    },
    /// What is read below `key` has no place: the key holds `found`.
    NoObject {
        key: String,
        found: String,
    },
    Value {
        origin: Origin,
        mismatch: Mismatch,
    },
    Require {
        text: String,
        sides: Option<(Val, Val)>,
        values: Vec<(String, Val)>,
    },
    /// `place` is the line of the family that could not be computed.
    Evaluation {
        error: String,
        place: String,
    },
    UnknownLimit {
        known: Vec<String>,
    },
}

impl ConfigFault {
    /// Its row of the code table, for `explain`.
    pub fn code(&self) -> Code {
        match self.kind {
            FaultKind::Require { .. } => Code::RequireFailed,
            FaultKind::NotAnObject(_)
            | FaultKind::NoValue { .. }
            | FaultKind::NoSection { .. }
            | FaultKind::NoObject { .. }
            | FaultKind::Value { .. }
            | FaultKind::Evaluation { .. }
            | FaultKind::UnknownLimit { .. } => Code::ConfigField,
        }
    }

    /// One or two sentences; `file` is the config file's name as people know it.
    pub fn display<'a>(&'a self, file: &'a str) -> impl fmt::Display + 'a {
        Shown { fault: self, file }
    }
}

struct Shown<'a> {
    fault: &'a ConfigFault,
    file: &'a str,
}

fn quoted(keys: &[String]) -> String {
    listed(&keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>())
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigFault { field, kind } = self.fault;
        write!(f, "{}: ", self.file)?;
        match kind {
            FaultKind::NotAnObject(found) => write!(f, "expected a JSON object, found {found}"),
            FaultKind::NoValue { keys, section, near, null } => {
                write!(f, "`{field}` has no value: no key {}", quoted(keys))?;
                match section {
                    Some(section) => write!(f, " in section {section:?}")?,
                    None => write!(f, " at the top level")?,
                }
                if let Some(null) = null {
                    write!(f, " holds a value: {null:?} is null")?;
                }
                match near {
                    Some(near) => write!(f, "; did you mean the key {near:?} that is there?"),
                    None => Ok(()),
                }
            }
            FaultKind::NoSection { keys, sections } => write!(
                f,
                "`{field}` has no value: it is read from key {} of section {}, and no such section is present and not empty",
                quoted(keys),
                quoted(sections),
            ),
            FaultKind::NoObject { key, found } => {
                write!(f, "`{field}` is read below key {key:?}, which is {found}; expected an object or null")
            }
            FaultKind::Value { origin, mismatch } => {
                let Mismatch { found, expected, near, item } = mismatch;
                write!(f, "`{field}` ({origin})")?;
                if let Some(item) = item {
                    write!(f, ", item {item},")?;
                }
                write!(f, " is {found}; expected {expected}")?;
                if let Some(near) = near {
                    write!(f, "; did you mean {near}?")?;
                }
                Ok(())
            }
            FaultKind::Require { text, sides, values } => {
                write!(f, "the family requires `{text}`")?;
                if let Some((left, right)) = sides {
                    write!(f, ", but the left side is {left} and the right side {right}")?;
                }
                for (i, (name, value)) in values.iter().enumerate() {
                    write!(f, "{}{name} = {value}", if i == 0 { " (" } else { ", " })?;
                }
                if values.is_empty() { Ok(()) } else { f.write_str(")") }
            }
            FaultKind::Evaluation { error, place } if field.starts_with("require ") => {
                write!(f, "`{field}` cannot be checked: {error} ({place})")
            }
            FaultKind::Evaluation { error, place } => {
                write!(f, "`{field}` cannot be computed: {error} ({place})")
            }
            FaultKind::UnknownLimit { known } if known.is_empty() => {
                write!(f, "there is no limit `{field}`: this family has none")
            }
            FaultKind::UnknownLimit { known } => write!(f, "there is no limit `{field}`; known are {}", listed(known)),
        }
    }
}
