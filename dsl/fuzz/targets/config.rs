//! Any config, limits and list of stored tensors, against every family of the repository: values and bindings, or faults
//! that can be shown. The input is JSON as in `tests/ui/load`; where one part does not fit, the others stand for themselves.
#![no_main]

use std::{collections::BTreeMap, fs, path::Path, sync::LazyLock};

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use mgraph_dsl::{
    bind::{Stored, StoredDtype, bind},
    compile_text,
    config::resolve,
    ir::Program,
};
use mgraph_dsl_fuzz::{mutate::mutate, stack};
use serde_json::Value;

static FAMILIES: LazyLock<Vec<Program>> = LazyLock::new(|| {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = vec![here.join("../tests/ui/load/toy.mgraph")];
    let families = fs::read_dir(here.join("../../models/families")).expect("the families of the repository");
    paths.extend(families.map(|entry| entry.expect("a readable folder").path()));
    paths.sort();
    let text = |path: &Path| fs::read_to_string(path).expect("a readable family");
    paths.iter().map(|path| compile_text("family.mgraph", &text(path)).expect("a family that is right")).collect()
});

fuzz_target!(init: stack::report_overflow(), |data: &[u8]| {
    let Ok(case) = serde_json::from_slice::<Value>(data) else { return };
    let config = case.get("config").unwrap_or(&case);
    let limits: Vec<(String, i64)> =
        object(&case, "limits").filter_map(|(name, value)| Some((name.clone(), value.as_i64()?))).collect();
    let stored: BTreeMap<String, Stored> =
        object(&case, "stored").filter_map(|(name, value)| Some((name.clone(), tensor(value)?))).collect();
    let bits = case.get("bits").and_then(Value::as_u64).map(|bits| (bits as u32, 64));
    for family in &*FAMILIES {
        match resolve(family, config, &limits) {
            Err(faults) => {
                assert!(!faults.is_empty());
                faults.iter().for_each(|fault| drop(fault.display("config.json").to_string()));
            }
            Ok(resolved) => {
                let faults = bind(family, &resolved, &stored, &|_| bits).err().unwrap_or_default();
                faults.iter().for_each(|fault| drop(fault.to_string()));
            }
        }
    }
});

fn object<'c>(case: &'c Value, key: &str) -> impl Iterator<Item = (&'c String, &'c Value)> {
    case.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn tensor(value: &Value) -> Option<Stored> {
    let (dtype, dims) = value.as_array()?.split_first()?;
    let dtype = match dtype.as_str()? {
        "f32" => StoredDtype::F32,
        "bf16" => StoredDtype::BF16,
        "i32" => StoredDtype::I32,
        "u32" => StoredDtype::U32,
        _ => StoredDtype::Other,
    };
    Some(Stored { shape: dims.iter().filter_map(Value::as_u64).collect(), dtype })
}

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { mutate(data, size, max_size, seed) });
