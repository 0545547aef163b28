//! Metadata values. Scalars are read; arrays are walked once, to find their end, and then only remembered by place, so a
//! hostile array costs no memory.

use std::fmt;

use super::reader::{Reader, Result};

/// An array of arrays is legal, but no file needs many levels.
const MAX_DEPTH: u32 = 4;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Unsigned(u64),
    Signed(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(String),
    Array(Array),
}

/// `len` items of one type, from byte `offset` of the file on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    pub item: ValueType,
    pub len: u64,
    pub(super) offset: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

/// In the order of their ids in the file.
const TYPES: [ValueType; 13] = [
    ValueType::U8,
    ValueType::I8,
    ValueType::U16,
    ValueType::I16,
    ValueType::U32,
    ValueType::I32,
    ValueType::F32,
    ValueType::Bool,
    ValueType::String,
    ValueType::Array,
    ValueType::U64,
    ValueType::I64,
    ValueType::F64,
];

impl ValueType {
    fn read(reader: &mut Reader<'_>) -> Result<ValueType> {
        let at = reader.offset();
        let id = reader.u32()?;
        let found = usize::try_from(id).ok().and_then(|id| TYPES.get(id));
        found.copied().ok_or_else(|| (at, format!("the value type is {id}; expected 0 to {}", TYPES.len() - 1)))
    }

    /// Bytes of one item, where all items are alike.
    fn size(self) -> Option<u64> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::String | ValueType::Array => None,
        }
    }
}

impl Value {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Value> {
        let kind = ValueType::read(reader)?;
        Ok(match kind {
            ValueType::U8 => Value::Unsigned(reader.u8()?.into()),
            ValueType::U16 => Value::Unsigned(reader.u16()?.into()),
            ValueType::U32 => Value::Unsigned(reader.u32()?.into()),
            ValueType::U64 => Value::Unsigned(reader.u64()?),
            ValueType::I8 => Value::Signed(reader.u8()?.cast_signed().into()),
            ValueType::I16 => Value::Signed(reader.u16()?.cast_signed().into()),
            ValueType::I32 => Value::Signed(reader.u32()?.cast_signed().into()),
            ValueType::I64 => Value::Signed(reader.u64()?.cast_signed()),
            ValueType::F32 => Value::F32(f32::from_bits(reader.u32()?)),
            ValueType::F64 => Value::F64(f64::from_bits(reader.u64()?)),
            ValueType::Bool => Value::Bool(boolean(reader)?),
            ValueType::String => Value::String(reader.string()?.to_owned()),
            ValueType::Array => Value::Array(array(reader, 1)?),
        })
    }
}

fn boolean(reader: &mut Reader<'_>) -> Result<bool> {
    let at = reader.offset();
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err((at, format!("a bool is {other}; expected 0 or 1"))),
    }
}

fn array(reader: &mut Reader<'_>, depth: u32) -> Result<Array> {
    if depth > MAX_DEPTH {
        return Err((reader.offset(), format!("arrays are nested more than {MAX_DEPTH} deep")));
    }
    let item = ValueType::read(reader)?;
    let len = reader.u64()?;
    let offset = reader.offset();
    match item.size() {
        Some(size) => {
            reader.items(len, size)?;
        }
        // Each turn takes at least the eight bytes of a length, so a lie about `len` ends at the end of the file.
        None => {
            for _ in 0..len {
                if item == ValueType::Array {
                    array(reader, depth + 1)?;
                } else {
                    reader.string()?;
                }
            }
        }
    }
    Ok(Array { item, len, offset })
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Unsigned(value) => write!(f, "{value}"),
            Value::Signed(value) => write!(f, "{value}"),
            Value::F32(value) => write!(f, "{value}"),
            Value::F64(value) => write!(f, "{value}"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::String(text) => write!(f, "{text:?}"),
            Value::Array(array) => write!(f, "an array of {} {:?}", array.len, array.item),
        }
    }
}
