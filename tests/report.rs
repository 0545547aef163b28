//! The report of `mlxcel parity --html` in a browser: headless Chromium opens the file, and is asked over its DevTools pipe what
//! it shows and what it had to complain about.
//!
//! `CHROMIUM` names the browser where it is not on the path.

mod browser;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use browser::{Browser, Scheme};
use safetensors::{SafeTensors, tensor::TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The llama golden with another epsilon, so that stages diverge, and with one stage that no family can have probed.
fn diverging(stage: &str) -> (TempDir, PathBuf) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/llama");
    let dir = tempfile::tempdir().unwrap();
    fs::copy(golden.join("model.safetensors"), dir.path().join("model.safetensors")).unwrap();
    let mut config: Value = serde_json::from_str(&fs::read_to_string(golden.join("config.json")).unwrap()).unwrap();
    config["rms_norm_eps"] = json!(1e-6);
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();

    let bytes = fs::read(golden.join("golden.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let zero = [0; 4];
    let added = TensorView::new(safetensors::Dtype::F32, vec![1], &zero).unwrap();
    let kept = file.iter().filter(|(name, _)| !name.starts_with("batch."));
    let tensors: Vec<(String, TensorView)> =
        kept.map(|(name, view)| (name.to_owned(), view)).chain([(stage.to_owned(), added)]).collect();
    let reference = dir.path().join("golden.safetensors");
    fs::write(&reference, safetensors::serialize(tensors, None).unwrap()).unwrap();
    let mut notes: Value = serde_json::from_str(&fs::read_to_string(golden.join("golden.json")).unwrap()).unwrap();
    notes["stages"].as_array_mut().unwrap().push(json!(stage));
    fs::write(dir.path().join("golden.json"), notes.to_string()).unwrap();
    (dir, reference)
}

#[test]
fn the_page_shows_what_the_run_found() {
    const HOSTILE: &str = "<img src=x onerror=alert(1)>";
    let (dir, reference) = diverging(HOSTILE);
    let (html, json) = (dir.path().join("report.html"), dir.path().join("report.json"));
    let run = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .args(["parity", "--a", "mlx", "--b", "reference", "--all", "--model"])
        .args([dir.path(), Path::new("--ref"), &reference, Path::new("--html"), &html, Path::new("--json"), &json])
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(1), "{}", String::from_utf8_lossy(&run.stderr));
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let compared = rows.iter().filter(|row| row["difference"].is_object()).count();

    let mut browser = Browser::start();
    for (scheme, width) in [(Scheme::Light, 1280), (Scheme::Dark, 1280), (Scheme::Light, 420)] {
        let page = browser.open(&html, scheme, width);
        let what = format!("{scheme:?}, {width} wide");
        assert_eq!(page.complaints, [""; 0], "{what}");
        assert_eq!(page.requests, [format!("file://{}", html.display())], "{what}: nothing else is fetched");
        let seen = page.seen(&mut browser, SEEN);
        assert_eq!(seen["rows"], json!(rows.len()), "{what}");
        assert_eq!(seen["stages"], rows.iter().map(|row| row["stage"].clone()).collect::<Value>(), "{what}");
        assert_eq!(seen["verdict"], json!("diverged"), "{what}");
        assert_eq!(seen["marks"], json!(compared), "{what}");
        assert_eq!(seen["planted"], json!(0), "{what}: a name is no markup");
        assert_eq!(seen["overflow"], json!(false), "{what}: the page itself does not scroll sideways");
        for figure in ["plot", "heat"] {
            let [_, _, wide, high] = seen[figure].as_array().unwrap().as_slice() else { panic!("{seen}") };
            assert!(wide.as_f64() > Some(200.0) && high.as_f64() > Some(40.0), "{what}: {figure} is {wide} x {high}");
        }
        let shot = page.shot(&mut browser);
        if let Some(folder) = std::env::var_os("SCREENSHOTS") {
            fs::write(Path::new(&folder).join(format!("{scheme:?}-{width}.png")), &shot.file).unwrap();
        }
        let paper = shot.luminance_at(2, 2);
        assert_eq!(paper > 0.5, scheme == Scheme::Light, "{what}: the paper's luminance is {paper}");
        let cells = shot.colours_within(&seen["cells"]);
        assert!(cells > 16, "{what}: {cells} colours in the heat map");
    }
}

/// What the page looks like to a script.
const SEEN: &str = r##"(() => {
    const place = (what) => { const r = document.querySelector(what).getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; };
    return {
        rows: document.querySelectorAll("#rows tbody tr").length,
        stages: [...document.querySelectorAll("#rows tbody th code")].map((cell) => cell.textContent),
        verdict: document.querySelector("#verdict").textContent,
        marks: document.querySelectorAll("#plot .hit").length,
        planted: document.querySelectorAll("img, script").length,
        overflow: document.documentElement.scrollWidth > document.documentElement.clientWidth,
        plot: place("#plot svg"), heat: place("#heat svg"), cells: place("#heat .cells"),
    };
})()"##;
