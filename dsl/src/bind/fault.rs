//! What can be wrong between a family and a checkpoint, in sentences.

use std::{collections::BTreeMap, fmt};

use super::{Stored, StoredDtype};
use crate::ir::DType;

#[derive(Debug, Clone, PartialEq)]
pub enum BindFault {
    /// `shape` is what it would have to have; a first axis that several stored tensors share is `None`.
    Missing {
        field: String,
        name: String,
        shape: Vec<Option<u64>>,
        near: Option<String>,
    },
    Unclaimed {
        name: String,
        shape: Vec<u64>,
    },
    /// `symbols` are the declared dims, `values` what their names stand for.
    Shape {
        field: String,
        name: String,
        symbols: Vec<String>,
        expected: Vec<u64>,
        values: Vec<(String, String)>,
        found: Vec<u64>,
    },
    DType {
        field: String,
        name: String,
        wanted: DType,
        found: StoredDtype,
    },
    Twice {
        name: String,
        fields: Vec<String>,
    },
    /// Rows of a stored tensor that no field takes, while others are taken.
    Rows {
        name: String,
        low: u64,
        high: u64,
        fields: Vec<String>,
    },
    Packed {
        field: String,
        name: String,
        detail: String,
    },
    Load {
        field: String,
        error: String,
    },
}

/// That a weight uses a stored tensor, or rows of it.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub name: String,
    pub field: String,
    pub rows: Option<(u64, u64)>,
}

/// Claims of one stored tensor must not meet, and together cover it.
pub(super) fn overlaps(name: &str, claims: &[&Claim], stored: &BTreeMap<String, Stored>) -> Vec<BindFault> {
    let rows = stored.get(name).and_then(|s| s.shape.first().copied()).unwrap_or(0);
    let mut taken: Vec<(u64, u64)> = claims.iter().map(|c| c.rows.unwrap_or((0, rows))).collect();
    let mut fields: Vec<String> = claims.iter().map(|c| c.field.clone()).collect();
    fields.dedup();
    if claims.len() > 1 && claims.iter().any(|c| c.rows.is_none()) {
        return vec![BindFault::Twice { name: name.to_owned(), fields }];
    }
    if claims.iter().all(|c| c.rows.is_none()) {
        return Vec::new();
    }
    taken.sort_unstable();
    let mut faults = Vec::new();
    let mut reached = 0;
    for (low, high) in taken {
        if low < reached {
            faults.push(BindFault::Twice { name: name.to_owned(), fields: fields.clone() });
        } else if low > reached {
            faults.push(BindFault::Rows { name: name.to_owned(), low: reached, high: low, fields: fields.clone() });
        }
        reached = reached.max(high);
    }
    if reached < rows {
        faults.push(BindFault::Rows { name: name.to_owned(), low: reached, high: rows, fields });
    }
    faults
}

impl fmt::Display for StoredDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoredDtype::F64 => "f64",
            StoredDtype::F32 => "f32",
            StoredDtype::F16 => "f16",
            StoredDtype::BF16 => "bf16",
            StoredDtype::I64 => "i64",
            StoredDtype::I32 => "i32",
            StoredDtype::U32 => "u32",
            StoredDtype::U8 => "u8",
            StoredDtype::Bool => "bool",
            StoredDtype::Other => "a dtype that no weight has",
        })
    }
}

impl fmt::Display for BindFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindFault::Missing { field, name, shape, near } => {
                let sizes = shape.iter().map(|size| size.map_or("_".to_owned(), |size| size.to_string()));
                let shape = sizes.collect::<Vec<_>>().join(", ");
                write!(f, "missing: the checkpoint has no tensor `{name}` [{shape}], which `{field}` needs")?;
                match near {
                    Some(near) => write!(f, "; it has `{near}`"),
                    None => Ok(()),
                }
            }
            BindFault::Unclaimed { name, shape } => write!(
                f,
                "unclaimed: the checkpoint's tensor `{name}` {shape:?} belongs to no field; bind it, or excuse it with `ignore`"
            ),
            BindFault::Shape { field, name, symbols, expected, values, found } => {
                write!(
                    f,
                    "mis-shaped: `{name}` is {found:?}, and `{field}` needs [{}] = {expected:?}",
                    symbols.join(", ")
                )?;
                for (i, (text, value)) in values.iter().enumerate() {
                    write!(f, "{}{text} = {value}", if i == 0 { " (" } else { ", " })?;
                }
                if values.is_empty() { Ok(()) } else { f.write_str(")") }
            }
            BindFault::DType { field, name, wanted, found } => {
                let expected = match wanted {
                    DType::F | DType::F64 | DType::F32 | DType::F16 | DType::BF16 => "a float".to_owned(),
                    DType::I32 | DType::U32 | DType::U8 | DType::Bool => format!("{wanted:?}").to_lowercase(),
                };
                write!(f, "mis-typed: `{name}` is {found}, and `{field}` needs {expected}")?;
                if *found == StoredDtype::U32 && expected == "a float" {
                    write!(f, "; u32 codes of a packed matrix need `.scales` and `.biases` beside them")?;
                }
                Ok(())
            }
            BindFault::Twice { name, fields } => {
                write!(f, "claimed twice: the tensor `{name}` is wanted by {}", quoted(fields))
            }
            BindFault::Rows { name, low, high, fields } => write!(
                f,
                "unclaimed rows: rows {low}..{high} of `{name}` belong to no field; {} take the others",
                quoted(fields)
            ),
            BindFault::Packed { field, name, detail } => {
                write!(f, "wrongly packed: `{name}` (for `{field}`): {detail}")
            }
            BindFault::Load { field, error } => write!(f, "`{field}` cannot be set up: {error}"),
        }
    }
}

impl std::error::Error for BindFault {}

fn quoted(fields: &[String]) -> String {
    fields.iter().map(|f| format!("`{f}`")).collect::<Vec<_>>().join(" and ")
}
