//! `ui/load/*.mgraph` are right; each `NAME.*.json` beside one is a checkpoint that is wrong for it: config, limits, stored
//! tensors, and under `"said"` what loading must say.

use std::{collections::BTreeMap, path::Path};

use mgraph_dsl::{
    bind::{Stored, StoredDtype, bind},
    compile_text,
    config::resolve,
    ir::Program,
};
use serde_json::{Map, Value};

use super::Case;

#[test]
fn loading_says_what_the_files_expect() {
    super::settle(&cases());
}

pub fn cases() -> Vec<Case> {
    let folder = super::folder().join("load");
    let mut cases = Vec::new();
    let entries = std::fs::read_dir(&folder).expect("the folder is part of the repository");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    for path in paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "json")) {
        let written = std::fs::read_to_string(&path).expect("a readable file");
        let mut case: Map<String, Value> =
            serde_json::from_str(&written).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let said = said(&family(&path), &case);
        assert!(!said.is_empty(), "{} has no mistake, so it is no case", path.display());
        case.insert("said".into(), Value::from(said));
        let actual = format!("{:#}\n", Value::from(case));
        cases.push(Case { path, written, actual });
    }
    cases
}

/// `llama.no_keys.json` is about `llama.mgraph`.
fn family(case: &Path) -> Program {
    let name = case.file_name().and_then(|name| name.to_str()).and_then(|name| name.split('.').next());
    let path = case.with_file_name(format!("{}.mgraph", name.expect("a file with a name")));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    compile_text(&path.file_name().unwrap_or_default().to_string_lossy(), &text)
        .unwrap_or_else(|failed| panic!("{failed}"))
}

fn said(program: &Program, case: &Map<String, Value>) -> Vec<String> {
    let limits: Vec<(String, i64)> = object(case, "limits")
        .map(|(name, value)| (name.clone(), value.as_i64().expect("a limit is an integer")))
        .collect();
    let resolved = match resolve(program, &case["config"], &limits) {
        Ok(resolved) => resolved,
        Err(faults) => {
            return faults.iter().map(|f| format!("{}: {}", f.code(), f.display("config.json"))).collect();
        }
    };
    let stored: BTreeMap<String, Stored> =
        object(case, "stored").map(|(name, value)| (name.clone(), tensor(value))).collect();
    let bits = case.get("bits").and_then(Value::as_u64).map(|bits| (bits as u32, 64));
    let faults = bind(program, &resolved, &stored, &|_| bits).err().unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

fn object<'c>(case: &'c Map<String, Value>, key: &str) -> impl Iterator<Item = (&'c String, &'c Value)> {
    case.get(key).and_then(Value::as_object).into_iter().flatten()
}

/// `["f32", 4, 8]`
fn tensor(value: &Value) -> Stored {
    let (dtype, dims) = value.as_array().and_then(|list| list.split_first()).expect("a dtype, then dims");
    let dtype = match dtype.as_str() {
        Some("f32") => StoredDtype::F32,
        Some("bf16") => StoredDtype::BF16,
        Some("i32") => StoredDtype::I32,
        Some("u32") => StoredDtype::U32,
        other => panic!("no dtype {other:?}"),
    };
    Stored { shape: dims.iter().map(|dim| dim.as_u64().expect("a size")).collect(), dtype }
}
