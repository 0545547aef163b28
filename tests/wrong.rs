//! Families written wrong in the ways that ports go wrong (`goldens/wrong.json`), each judged by `mlxcel parity --family`: exit
//! code 1, and the table ends at the stage where it goes wrong.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn cases() -> Vec<Value> {
    let Value::Array(cases) = json(&root().join("tests/goldens/wrong.json")) else { panic!("no cases") };
    cases
}

fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_else(|| panic!("{case} has no {key}"))
}

/// The family of a case with its edits, each of which must find its place.
fn edited(case: &Value) -> String {
    let family = root().join("models/families").join(format!("{}.mgraph", text(case, "family")));
    let mut source = fs::read_to_string(family).unwrap();
    for edit in case["edits"].as_array().unwrap() {
        let (from, to) = (edit[0].as_str().unwrap(), edit[1].as_str().unwrap());
        assert!(source.contains(from), "{}: the family has no {from:?}", text(case, "what"));
        source = source.replace(from, to);
    }
    source
}

/// Exit code, and the rows of the report.
fn parity(family: &Path, golden: &str, report: &Path) -> (Option<i32>, Vec<Value>) {
    let golden = root().join("tests/goldens").join(golden);
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlxcel"));
    command.args(["parity", "--a", "reference"]);
    command.arg("--model").arg(&golden).arg("--family").arg(family);
    command.arg("--ref").arg(golden.join("golden.safetensors")).arg("--json").arg(report);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(report.exists(), "{told}");
    let Value::Array(rows) = json(report)["rows"].take() else { panic!("no rows: {told}") };
    (output.status.code(), rows)
}

#[test]
fn is_caught_where_it_goes_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let mut missed = Vec::new();
    let beyond_rounding = |case: &Value| case["bits"] != true;
    for (at, case) in cases().into_iter().filter(beyond_rounding).enumerate() {
        let case = &case;
        let family = folder.path().join(format!("wrong{at}.mgraph"));
        fs::write(&family, edited(case)).unwrap();
        let (code, rows) = parity(&family, text(case, "golden"), &folder.path().join(format!("{at}.json")));
        let last = rows.last().expect("a row");
        let found = (code, last["verdict"].as_str(), last["stage"].as_str());
        if found != (Some(1), Some("diverged"), Some(text(case, "stage"))) {
            missed.push(format!("{}, {}: {found:?}", text(case, "golden"), text(case, "what")));
        }
        let line = last["source"].as_str().unwrap_or_default();
        let probe = line.strip_prefix(&format!("{}:", family.display())).and_then(|n| n.parse::<usize>().ok());
        let says = probe.and_then(|n| Some(fs::read_to_string(&family).ok()?.lines().nth(n - 1)?.contains('@')));
        assert_eq!(says, Some(true), "{}: {last} names no line with a probe", text(case, "what"));
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// What each golden says a careful reader may get wrong has its case here.
#[test]
fn every_sensitivity_of_every_golden_has_a_case() {
    let judged: BTreeSet<(String, String)> = cases()
        .iter()
        .filter_map(|case| Some((text(case, "golden").to_owned(), case["listed"].as_str()?.to_owned())))
        .collect();
    let mut listed = BTreeSet::new();
    for entry in fs::read_dir(root().join("tests/goldens")).unwrap() {
        let folder = entry.unwrap().path();
        let notes = folder.join("golden.json");
        if !notes.exists() {
            continue;
        }
        let golden = folder.file_name().unwrap().to_string_lossy().into_owned();
        let notes = json(&notes);
        let names = notes["sensitivity_logits_max_abs"].as_object().into_iter().flatten();
        listed.extend(names.map(|(name, _)| (golden.clone(), name.clone())));
    }
    assert!(listed.len() >= 13);
    assert_eq!(judged, listed);
}

#[test]
fn a_family_file_is_no_way_around_generated_code() {
    let golden = root().join("tests/goldens/llama");
    let output = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .args(["parity", "--a", "mlx", "--family"])
        .arg(root().join("models/families/llama.mgraph"))
        .arg("--model")
        .arg(&golden)
        .arg("--ref")
        .arg(golden.join("golden.safetensors"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("no code was generated from it"), "{told}");
}

#[test]
fn mistakes_of_a_family_file_are_shown_with_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("family.mgraph");
    let golden = root().join("tests/goldens/llama");
    for (source, says) in [("family llama for \"llama\"\nmodel { x: }", "mg0"), ("", "family.mgraph")] {
        fs::write(&file, source).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
            .args(["parity", "--a", "reference", "--input", "1,2", "--ref", "reference", "--family"])
            .arg(&file)
            .arg("--model")
            .arg(&golden)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(says) && told.contains("does not compile"), "{told}");
    }
}
