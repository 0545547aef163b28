//! Short ways to write IR by hand, for tests of what comes after the checker.

use crate::{
    dim::{Atom, Dim},
    ir::{
        Block, BlockId, ConfigField, ConfigPath, DType, Field, FieldKind, FieldType, Load, LoadBinary, LoadKind,
        LoadType, Numerics, Program, Shape, Stored, StoredPart, TensorType,
    },
    source::{PRELUDE, Sources, Span},
};

pub const HERE: Span = Span { file: PRELUDE, start: 0, end: 1 };

pub fn load(kind: LoadKind) -> Load {
    Load { kind, ty: LoadType::Int, span: HERE }
}

pub fn int(n: i64) -> Load {
    load(LoadKind::Int(n))
}

pub fn text(t: &str) -> Load {
    load(LoadKind::Text(t.into()))
}

pub fn path(name: &str) -> ConfigPath {
    name.split('.').map(str::to_owned).collect()
}

pub fn config(name: &str) -> Load {
    load(LoadKind::Config(path(name)))
}

pub fn parameter(name: &str) -> Load {
    load(LoadKind::Parameter(name.into()))
}

pub fn binary(op: LoadBinary, a: Load, b: Load) -> Load {
    load(LoadKind::Binary(op, Box::new(a), Box::new(b)))
}

/// A config field, as `hidden`; a load parameter, as `$width`; a free dim, as `B`; or a number.
pub fn dim(text: &str) -> Dim {
    if let Ok(n) = text.parse() {
        return Dim::int(n);
    }
    let (text, load) = match text.strip_prefix('$') {
        Some(name) => (name, parameter(name)),
        None if text.starts_with(|c: char| c.is_ascii_uppercase()) => (text, load(LoadKind::Free(text.into()))),
        None => (text, config(text)),
    };
    Dim::atom(Atom { text: text.into(), load: Box::new(load) })
}

pub fn shape(dims: &[&str]) -> Shape {
    Shape { pack: false, dims: dims.iter().map(|d| dim(d)).collect() }
}

pub fn tensor(dtype: DType, dims: &[&str]) -> TensorType {
    TensorType { dtype, shape: shape(dims) }
}

pub fn setting(name: &str, ty: FieldType, keys: &[&str], otherwise: Option<Load>) -> ConfigField {
    let keys = keys.iter().map(|k| (*k).to_owned()).collect();
    ConfigField { path: path(name), ty, keys, otherwise, condition: None, span: HERE }
}

/// `stored` as written after `as`: alternatives by `|`, parts by ` + `; `""` for not written.
pub fn field(name: &str, kind: FieldKind, stored: &str) -> Field {
    let part = |path: &str| StoredPart { path: path.trim().into(), rows: None };
    let place = |place: &str| place.split('+').map(part).collect();
    let stored = if stored.is_empty() { name } else { stored };
    let stored = Stored { places: stored.split('|').map(place).collect() };
    Field { name: name.into(), kind, condition: None, stored, span: HERE }
}

pub fn block(name: &str, parameters: &[&str], fields: Vec<Field>) -> Block {
    let parameter = |name: &&str| crate::ir::LoadParameter { name: (*name).into(), ty: LoadType::Int };
    Block {
        name: name.into(),
        doc: String::new(),
        parameters: parameters.iter().map(parameter).collect(),
        fields,
        ignores: vec![],
        functions: vec![],
        span: HERE,
    }
}

/// The last block is the model.
pub fn program(config: Vec<crate::ir::Setting>, blocks: Vec<Block>) -> Program {
    let mut sources = Sources::default();
    sources.add("prelude.mgraph", "x");
    Program {
        name: "toy".into(),
        model_types: vec![],
        architectures: vec![],
        doc: String::new(),
        digest: String::new(),
        sources,
        config,
        ops: vec![],
        model: BlockId(blocks.len().saturating_sub(1) as u32),
        blocks,
        locals: vec![],
        roots: vec![String::new()],
        processor: None,
        numerics: Numerics { tf32: false, contraction: false },
        contract: vec![],
    }
}
