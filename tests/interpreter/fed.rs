//! What a reference was fed, read for a family: several pictures, and inputs that contradict each other, which are refused with
//! the reason.

use std::{collections::BTreeMap, fs};

use mgraph_runtime::{
    parity::{self, Fed},
    pictures::{OfTokens, Pictures},
    tensor::Tensor,
};
use safetensors::{Dtype, serialize, tensor::TensorView};

use crate::fixture::Golden;

/// Shape and elements of a tensor of integers, or that it is left out.
type Change<'a> = Option<(&'a [usize], Vec<i32>)>;

/// A golden's main run with other inputs: shape and elements of i32 tensors by name, `None` to take one away.
fn altered(golden: &Golden, name: &str, changes: &[(&str, Change<'_>)]) -> Result<Fed, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut stored: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (name, numbers) in golden.numbers.iter().filter(|(name, _)| name.starts_with("input.")) {
        let (dtype, bytes) = match name.ends_with("pixel_values") {
            true => (Dtype::F32, numbers.elements.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect()),
            false => (Dtype::I32, numbers.integers().iter().flat_map(|n| n.to_le_bytes()).collect()),
        };
        stored.insert(name.clone(), (dtype, numbers.shape.clone(), bytes));
    }
    for (input, change) in changes {
        let input = format!("input.{input}");
        match change {
            Some((shape, elements)) => {
                let bytes = elements.iter().flat_map(|n| n.to_le_bytes()).collect();
                stored.insert(input, (Dtype::I32, shape.to_vec(), bytes));
            }
            None => assert!(stored.remove(&input).is_some(), "{name} has no {input}"),
        }
    }
    let views = stored.iter().map(|(name, (dtype, shape, bytes))| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).expect("bytes that fill the shape"))
    });
    let file = folder.path().join("golden.safetensors");
    fs::write(&file, serialize(views, None).expect("tensors")).expect("a file");
    fs::write(folder.path().join("golden.json"), golden.facts.to_string()).expect("a file");
    let reference = parity::Golden::open(&file).expect("a reference");
    let fed = Fed::of_program(&golden.program, &golden.resolved, &golden.config, &reference);
    fed.map_err(|error| format!("{error:#}").replace(&format!("{}: ", file.display()), ""))
}

fn input<'a>(pictures: &'a Pictures, name: &str) -> &'a Tensor {
    &pictures.vision.iter().find(|(known, _)| *known == name).expect("an input of vision").1
}

fn integers(tensor: &Tensor) -> Vec<i32> {
    tensor.to_f64().into_iter().map(|x| x as i32).collect()
}

/// Two pictures in the place of one: each patch is of one of them, at its row and column there, group by group.
#[test]
fn a_grid_of_several_pictures() {
    let golden = Golden::open("qwen2_vl", "qwen2_vl");
    let grids: (&[usize], Vec<i32>) = (&[2, 3], vec![1, 4, 4, 2, 2, 2]);
    let pictures = altered(&golden, "qwen2_vl", &[("image_grid_thw", Some(grids))]).expect("pictures").pictures;
    // Each frame counts as a picture: patches of different ones do not see each other.
    assert_eq!(integers(input(&pictures, "picture")), [vec![0; 16], vec![1; 4], vec![2; 4]].concat());
    let grid = input(&pictures, "grid");
    assert_eq!(grid.shape, [2, 24]);
    let (rows, columns) = (integers(grid)[..24].to_vec(), integers(grid)[24..].to_vec());
    assert_eq!(rows[..8], [0, 0, 1, 1, 0, 0, 1, 1]);
    assert_eq!(columns[..8], [0, 1, 0, 1, 2, 3, 2, 3]);
    assert_eq!((&rows[16..20], &columns[16..20]), (&[0, 0, 1, 1][..], &[0, 1, 0, 1][..]));
    assert_eq!(pictures.feature_rows.iter().filter(|row| **row >= 0).max(), Some(&5));
}

#[test]
fn spans_without_pictures() {
    let golden = Golden::open("molmo2", "molmo2");
    let gone = ["pixel_values", "image_token_pooling", "image_grids", "image_num_crops"].map(|name| (name, None));
    let pictures = altered(&golden, "molmo2", &gone).expect("words").pictures;
    assert!(pictures.vision.is_empty() && pictures.feature_rows.is_empty());
    assert!(matches!(pictures.of_tokens.as_deref(), Some(OfTokens::Spans(spans)) if spans.len() == 68));
}

#[test]
fn what_does_not_fit_is_refused_with_the_reason() {
    type Change<'a> = (&'a str, Option<(&'a [usize], Vec<i32>)>);
    let cases: &[(&str, &[Change<'_>], &str)] = &[
        ("llama", &[("pixel_values", Some((&[1], vec![0])))], "was made with pixel_values, of which no graph is told"),
        ("llama", &[("attention_mask", Some((&[1, 2], vec![0, 1])))], "input.attention_mask hides tokens"),
        ("llama", &[("input_ids", Some((&[2], vec![5, 6])))], "input.input_ids has shape [2]; expected two axes"),
        ("molmo2", &[("pixel_values", None)], "has no tensor input.pixel_values"),
        ("molmo2", &[("input_ids", Some((&[1, 2], vec![5, 6])))], "39 features more than there are tokens"),
        ("molmo2", &[("image_token_pooling", Some((&[1, 4], vec![0; 4])))], "than there are features"),
        (
            "qwen2_vl",
            &[("image_grid_thw", Some((&[1, 3], vec![1, 4, 4])))],
            "the grids have 16 patches, input.pixel_values 24",
        ),
        ("qwen2_vl", &[("image_grid_thw", Some((&[1, 3], vec![1, 3, 8])))], "which groups of 2 x 2 do not fill"),
        ("qwen2_vl", &[("image_grid_thw", Some((&[3], vec![1, 4, 6])))], "expected [pictures, 3]"),
        ("qwen2_vl", &[("mrope_position_ids", None)], "has no tensor input.mrope_position_ids"),
        ("mllama", &[("cross_attention_mask", Some((&[1, 2, 2, 4], vec![1; 16])))], "where there are 15 tokens"),
        (
            "mllama",
            &[("cross_attention_mask", Some((&[1, 15, 2], vec![1; 30])))],
            "expected [1, tokens, pictures, tiles]",
        ),
        ("mllama", &[("aspect_ratio_ids", None)], "has no tensor input.aspect_ratio_ids"),
    ];
    for (name, changes, expected) in cases {
        let golden = Golden::open(name, name);
        let error = altered(&golden, name, changes).map(|fed| fed.tokens).expect_err(expected);
        assert!(error.contains(expected), "{name}: {error}");
    }
}
