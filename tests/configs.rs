//! Configs as released checkpoints have them (`configs/*.json`), through the process `mlxcel config`: each loads with the values
//! that its reference gives it, or is refused with a reason.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

#[test]
fn every_config_loads_or_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/configs")).unwrap() {
        let path = entry.unwrap().path();
        let case: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let config = folder.path().join("config.json");
        fs::write(&config, case["config"].to_string()).unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_mlxcel")).args(["config", "--json"]).arg(&config).output().unwrap();
        let found = match case["refused"].as_array() {
            Some(words) => refused(words, output.status.code(), &String::from_utf8_lossy(&output.stderr)),
            None => loaded(&case, &output.stdout, &String::from_utf8_lossy(&output.stderr)),
        };
        wrong.extend(found.err().map(|why| format!("{}: {why}", path.display())));
        count += 1;
    }
    assert!(count >= 30, "{count} configs");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Exit code 2 and a message that has every one of `words`.
fn refused(words: &[Value], code: Option<i32>, told: &str) -> Result<(), String> {
    let said = words.iter().all(|word| word.as_str().is_some_and(|word| told.contains(word)));
    if code == Some(2) && said { Ok(()) } else { Err(format!("exit {code:?}, {told}")) }
}

fn loaded(case: &Value, out: &[u8], told: &str) -> Result<(), String> {
    let read: Value = serde_json::from_slice(out).map_err(|_| told.to_owned())?;
    let of = |name: &str| {
        let settings = read["settings"].as_array().into_iter().flatten();
        settings.filter(|row| row["name"] == name).map(|row| row["value"].clone()).next()
    };
    if read["family"] != case["family"] {
        return Err(format!("family {}", read["family"]));
    }
    for (name, value) in case["values"].as_object().into_iter().flatten() {
        let found = of(name);
        if found.as_ref() != Some(value) {
            return Err(format!("{name} is {found:?}, expected {value}"));
        }
    }
    Ok(())
}
