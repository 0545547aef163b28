//! What checkpoints of Molmo2 look like beside the golden: layers that no tap needs, another grid of patches, and what a config may say.

use std::{fs, path::Path, sync::Arc};

use mgraph_dsl::{compile_text, config, load::Val};
use mgraph_models::molmo2;
use mgraph_runtime::{
    backend::{self, Backend},
    error::Result,
    model::Model,
    parity::Fed,
    probes::Probes,
    session::{Float, Numerics, SessionOptions},
    tensor::Tensor,
};
use safetensors::{SafeTensors, tensor::TensorView};
use serde_json::{Value, json};

const STORED: &str = "model.vision_backbone.image_vit.transformer.resblocks";

fn golden() -> std::path::PathBuf {
    mgraph_tests::golden_dir("molmo2")
}

fn config_of_golden() -> Value {
    serde_json::from_str(&fs::read_to_string(golden().join("config.json")).unwrap()).unwrap()
}

/// The golden's checkpoint, opened after `edit` of its config and with copies of stored tensors under other names.
fn opened(edit: impl FnOnce(&mut Value), copies: &[(String, String)]) -> Result<Arc<Model>> {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config_of_golden();
    edit(&mut config);
    fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    with_copies(dir.path(), copies);
    Model::open(dir.path(), mgraph_models::FAMILIES)
}

fn with_copies(dir: &Path, copies: &[(String, String)]) {
    let bytes = fs::read(golden().join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let stored = file.iter().map(|(name, view)| (name.to_owned(), view));
    let copied = copies.iter().map(|(from, to)| (to.clone(), file.tensor(from).unwrap()));
    let all: Vec<(String, TensorView<'_>)> = stored.chain(copied).collect();
    fs::write(dir.join("model.safetensors"), safetensors::serialize(all, None).unwrap()).unwrap();
}

fn copy(from: impl Into<String>, to: impl Into<String>) -> (String, String) {
    (from.into(), to.into())
}

/// The config declares 7 layers and the taps need 5.
#[test]
fn layers_beyond_the_taps_are_ignored_knowingly() {
    let parts = ["attention.wq.weight", "attention.wq.bias", "feed_forward.w1.weight"];
    let copies =
        [5, 6].map(|layer| parts.map(|part| copy(format!("{STORED}.4.{part}"), format!("{STORED}.{layer}.{part}"))));
    let model = opened(|_| (), copies.as_flattened()).unwrap();
    let ignored: Vec<(&str, usize)> =
        model.bindings.ignored.iter().map(|(pattern, names)| (pattern.as_str(), names.len())).collect();
    assert_eq!(ignored, [(&*format!("{STORED}.5.*"), 3), (&*format!("{STORED}.6.*"), 3)]);
}

#[test]
fn a_tensor_anywhere_else_is_refused() {
    let elsewhere = [
        format!("{STORED}.4.attention.wq.gain"),
        format!("{STORED}.7.attention.wq.weight"),
        "model.vision_backbone.image_vit.class_embedding".into(),
        "model.transformer.blocks.3.attn_norm.weight".into(),
    ];
    for name in elsewhere {
        let error = opened(|_| (), &[copy("model.transformer.ln_f.weight", &*name)]).err().unwrap().to_string();
        assert!(error.contains(&format!("unclaimed: the checkpoint's tensor `{name}`")), "{error}");
    }
}

#[test]
fn a_grid_of_patches_other_than_the_stored_one_is_refused() {
    let error = opened(|config| config["vit_config"]["image_num_pos"] = json!(36), &[]).err().unwrap().to_string();
    assert!(error.contains("positional_embedding` is [25, 56]") && error.contains("vit.places = 36"), "{error}");

    let (model, reference) = mgraph_tests::open_golden("molmo2").unwrap();
    let Fed { pictures, .. } = Fed::of(&model, &reference).unwrap();
    let options = SessionOptions {
        rows: 1,
        capacity: 16,
        max_chunk: 16,
        dtype: Float::F32,
        numerics: Numerics::Pinned,
        probes: Probes::Unread,
    };
    let (_, pooling) = pictures.vision.iter().find(|(name, _)| *name == "pooling").unwrap();
    let pixels = Tensor::from_f32(&[5, 36, 48], &[0.0; 5 * 36 * 48]);
    let inputs = [("pixels", pixels), ("pooling", pooling.clone())];
    for backend in [Backend::Reference, Backend::Mlx, Backend::Iree] {
        let mut session = backend::open(backend, &model, options.clone()).unwrap();
        assert_eq!(
            session.call("vision", &inputs, 0, None).unwrap_err().to_string(),
            "input pixels of graph vision has shape [5, 36, 48]; beside the others it must be [5, 25, 48], \
             which is [N, vit.places, 3 * vit.patch * vit.patch]"
        );
    }
}

/// What a config resolves to after `edit`, or why it is refused.
fn resolved(edit: impl FnOnce(&mut Value)) -> std::result::Result<config::Resolved, String> {
    let program = compile_text(molmo2::FAMILY.file, molmo2::FAMILY.source).unwrap();
    let mut given = config_of_golden();
    edit(&mut given);
    config::resolve(&program, &given, &[])
        .map_err(|faults| faults.iter().map(|fault| fault.display("config.json").to_string()).collect())
}

/// The lengths are those of `_compute_yarn_parameters` in transformers 5.23.
#[test]
fn yarn_reads_what_the_reference_reads() {
    let cases = [
        (json!({ "rope_type": "yarn", "factor": 4.0 }), 512.0, 1.138_629_436_111_989),
        (json!({ "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64 }), 64.0, 1.138_629_436_111_989),
        (json!({ "rope_type": "yarn", "factor": 0.5 }), 512.0, 1.0),
        (json!({ "rope_type": "yarn", "factor": 4.0, "mscale": 2.0 }), 512.0, 1.138_629_436_111_989),
        (
            json!({ "rope_type": "yarn", "factor": 4.0, "mscale": 2.0, "mscale_all_dim": 1.0 }),
            512.0,
            1.121_751_143_713_058,
        ),
        (json!({ "rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5, "mscale": 2.0 }), 512.0, 1.5),
    ];
    for (scaling, context, length) in cases {
        let resolved = resolved(|config| config["text_config"]["rope_scaling"] = scaling.clone()).unwrap();
        let float = |name: &str| match resolved.get(&["yarn".into(), name.into()]) {
            Some(Val::Float(x)) => *x,
            other => panic!("{scaling}: yarn.{name} is {other:?}"),
        };
        assert_eq!(float("context"), context, "{scaling}");
        assert!((float("length") - length).abs() < 1e-15, "{scaling}: {}", float("length"));
    }
}

#[test]
fn what_the_family_does_not_compute_is_refused() {
    type Edit = fn(&mut Value);
    let cases: [(&str, Edit); 8] = [
        ("hidden_act", |c| c["vit_config"]["hidden_act"] = json!("gelu")),
        ("hidden_act", |c| c["adapter_config"]["hidden_act"] = json!("gelu")),
        ("hidden_act", |c| c["text_config"]["hidden_act"] = json!("gelu")),
        ("float32_attention", |c| c["vit_config"]["float32_attention"] = json!(false)),
        ("num_channels", |c| c["vit_config"]["num_channels"] = json!(4)),
        ("qk_norm_type", |c| c["text_config"]["qk_norm_type"] = json!("layer")),
        ("rope_type", |c| c["text_config"]["rope_scaling"] = json!({ "rope_type": "linear", "factor": 2.0 })),
        ("truncate", |c| {
            c["text_config"]["rope_scaling"] = json!({ "rope_type": "yarn", "factor": 2.0, "truncate": false })
        }),
    ];
    for (key, edit) in cases {
        let told = resolved(edit).err().unwrap();
        assert!(told.contains(key), "{key}: {told}");
    }
}
