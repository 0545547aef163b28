//! Compiled modules kept between runs.

use super::*;

#[test]
fn a_second_start_compiles_nothing_and_a_damaged_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::in_folder(folder.path());
    let text = |n: i64| {
        let mut build = Build::new(options());
        let x = build.input(DType::F32, &[n]);
        let y = build.add(x, x);
        emit::text(&build.finish(&[y]).unwrap()).unwrap()
    };
    let get = |text: &str| {
        let mut reports = Vec::new();
        let module = artifacts.get(text, &FLAGS, "a test", &mut |r| reports.push(r.to_owned())).unwrap();
        (module, reports)
    };
    let (first, reports) = get(&text(3));
    assert_eq!(reports.len(), 2, "{reports:?}");
    assert_eq!(get(&text(3)), (first.clone(), vec![]));
    assert_ne!(get(&text(4)).0, first);

    let files = || std::fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().path());
    let modules: Vec<_> = files().filter(|f| f.extension().is_some_and(|e| e == "vmfb")).collect();
    assert_eq!(modules.len(), 2);
    for module in &modules {
        let bytes = std::fs::read(module).unwrap();
        std::fs::write(module, &bytes[..bytes.len() / 2]).unwrap();
    }
    let (again, reports) = get(&text(3));
    assert_eq!((again.len(), reports.len()), (first.len(), 2));
    assert_eq!(get(&text(3)).1.len(), 0);
    assert!(!files().any(|f| f.to_string_lossy().ends_with(".part")));
}

#[test]
fn a_cache_that_cannot_be_written_is_only_slow() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let artifacts = Artifacts::in_folder(file.path());
    let mut build = Build::new(options());
    let x = build.input(DType::F32, &[2]);
    let y = build.negate(x);
    let text = emit::text(&build.finish(&[y]).unwrap()).unwrap();
    let mut reports = Vec::new();
    artifacts.get(&text, &FLAGS, "a test", &mut |r| reports.push(r.to_owned())).unwrap();
    assert!(reports.last().unwrap().contains("is not kept"), "{reports:?}");
}

#[test]
fn what_iree_does_not_compile_is_said_in_its_words() {
    let message = compile("this is no module", &FLAGS).unwrap_err().to_string();
    assert!(message.starts_with("IREE does not compile the graph: ") && message.contains("this"), "{message}");
}
