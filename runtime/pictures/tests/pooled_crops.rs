//! The processor `pooled_crops` beside its reference implementation, on pictures of every kind (`pooled_crops/make.py`): the
//! same crops, the same bytes, the same windows, the same tokens.

use std::{fs, path::PathBuf};

use mgraph_pictures::{
    Limits, Picture,
    pooled_crops::{Placeholder, Settings},
};
use serde_json::{Value, json};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/pooled_crops").join(name)
}

fn picture(name: &str) -> Picture {
    Picture::read(&fs::read(fixture(name)).unwrap(), Limits::default()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn cases() -> Vec<Value> {
    let text = fs::read_to_string(fixture("expected.json")).unwrap();
    let Value::Array(cases) = serde_json::from_str::<Value>(&text).unwrap()["cases"].take() else { panic!("no cases") };
    cases
}

fn digest(bytes: impl IntoIterator<Item = u8>) -> Value {
    json!(blake3::hash(&bytes.into_iter().collect::<Vec<u8>>()).to_hex().as_str())
}

fn text(placeholders: &[Placeholder]) -> String {
    placeholders.iter().map(|placeholder| placeholder.text()).collect()
}

/// The flags of `processor_config.json` under which the reference made the tokens.
const FLAGS: [(&str, &str); 3] = [
    ("columns", "{}"),
    ("no_columns", r#"{"image_use_col_tokens": false}"#),
    ("plain_start", r#"{"use_single_crop_col_tokens": false, "use_single_crop_start_token": false}"#),
];

#[test]
fn every_picture_becomes_what_the_reference_makes_of_it() {
    let cases = cases();
    assert!(cases.len() >= 28, "{} cases", cases.len());
    for case in &cases {
        let name = case["file"].as_str().unwrap();
        let picture = picture(name);
        let settings = Settings::read(&case["settings"], None).unwrap();
        let layout = settings.layout(picture.width, picture.height);
        let grid = json!([layout.view.rows, layout.view.columns, layout.features.rows, layout.features.columns]);
        assert_eq!(grid, case["grid"], "{name}");
        assert_eq!(json!(1 + layout.tiling.area()), case["crops"], "{name}");

        let prepared = settings.prepare(std::slice::from_ref(&picture));
        assert_eq!(json!(prepared.pixels_shape), case["pixels_shape"], "{name}");
        assert_eq!(json!(prepared.pooling_shape), case["pooling_shape"], "{name}");
        // The mean and the deviation are a half: a byte is told from its number exactly.
        let bytes = prepared.pixels.iter().map(|x| (x * 127.5 + 127.5).round() as u8);
        assert_eq!(digest(bytes), case["pixels_blake3"], "the pixels of {name} ({})", case["what"]);
        let indices = prepared.pooling.iter().flat_map(|i| i.to_le_bytes());
        assert_eq!(digest(indices), case["pooling_blake3"], "the windows of {name}");
        if let Some(windows) = case["pooling"].as_array() {
            let ours: Vec<Value> = prepared.pooling.chunks(4).map(|window| json!(window)).collect();
            assert_eq!(&ours, windows, "{name}");
        }
        for (key, flags) in FLAGS {
            let flags = serde_json::from_str(flags).unwrap();
            let settings = Settings::read(&case["settings"], Some(&flags)).unwrap();
            let tokens = text(&settings.placeholders(layout));
            if let Some(written) = case["tokens"][key].as_str() {
                assert_eq!(tokens, written, "{name}, {key}");
            }
            assert_eq!(digest(tokens.into_bytes()), case["tokens_blake3"][key], "{name}, {key}");
        }
    }
}

#[test]
fn indices_of_several_pictures_count_over_the_crops_of_all() {
    let settings = Settings::read(&cases()[0]["settings"], None).unwrap();
    let (first, second) = (picture("landscape.png"), picture("grey.png"));
    let both = settings.prepare(&[first.clone(), second.clone()]);
    let (first, second) = (settings.prepare(&[first]), settings.prepare(&[second]));
    let offset = (first.pixels_shape[0] * first.pixels_shape[1]) as i32;
    let moved = second.pooling.iter().map(|i| if *i < 0 { -1 } else { i + offset });
    assert_eq!(both.pooling, first.pooling.iter().copied().chain(moved).collect::<Vec<_>>());
    assert_eq!(both.pixels, [first.pixels, second.pixels].concat());
    assert!(second.pooling.contains(&-1), "a window that is not full is among them");
}

/// Decoders of JPEG differ in their inverse DCT and in how they enlarge chroma.
#[test]
fn a_jpeg_is_decoded_within_a_few_levels_of_the_reference() {
    for (name, most) in [("photo.jpg", 2), ("photo420.jpg", 6), ("grey.jpg", 1), ("turned6.jpg", 2)] {
        let (ours, theirs) = (picture(name), picture(&format!("{name}.decoded.png")));
        assert_eq!((ours.width, ours.height), (theirs.width, theirs.height), "{name}");
        let worst = ours.rgb.iter().zip(&theirs.rgb).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
        assert!(worst <= most, "{name}: {worst} levels apart");
    }
}

#[test]
fn no_picture_takes_more_tokens_than_the_settings_say() {
    for settings in [json!({}), cases()[0]["settings"].clone()] {
        let settings = Settings::read(&settings, None).unwrap();
        let tokens = |width, height| settings.placeholders(settings.layout(width, height)).len();
        let sides = [1, 40, 200, 300, 600, 1000, 5000];
        let all: Vec<usize> = sides.iter().flat_map(|w| sides.iter().map(|h| tokens(*w, *h))).collect();
        assert_eq!(all.iter().max(), Some(&settings.most_tokens()));
    }
}

#[test]
fn settings_that_mean_nothing_are_refused_by_name() {
    let cases = [
        (json!({"size": {"height": 378, "width": 300}}), "\"size\""),
        (json!({"size": {"height": 100, "width": 100}}), "no whole number of patches"),
        (json!({"overlap_margins": [14, 13]}), "leave nothing"),
        (json!({"overlap_margins": 4}), "\"overlap_margins\""),
        (json!({"max_crops": 0}), "\"max_crops\""),
        (json!({"patch_size": -1}), "\"patch_size\""),
        (json!({"pooling_size": [2]}), "\"pooling_size\""),
        (json!({"pooling_size": [2, 30]}), "\"pooling_size\" is 30 patches, and a crop has only 27"),
        (json!({"image_mean": [0.5, 0.5, 1e300]}), "\"image_mean\""),
        (json!({"rescale_factor": 1e-300}), "\"rescale_factor\""),
        (json!({"resample": 3}), "\"resample\""),
        (json!({"do_normalize": false}), "\"do_normalize\""),
        (json!({"image_std": [0.5, 0.0, 0.5]}), "image_std"),
        (json!({"rescale_factor": "1/255"}), "\"rescale_factor\""),
    ];
    for (settings, said) in cases {
        let message = Settings::read(&settings, None).unwrap_err().to_string();
        assert!(message.contains(said), "{settings}: {message}");
    }
    let beside = Settings::read(&json!({}), Some(&json!({"image_use_col_tokens": 1}))).unwrap_err().to_string();
    assert!(beside.contains("\"image_use_col_tokens\" in processor_config.json is 1"), "{beside}");
}
