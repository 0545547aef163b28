//! The f32 expansion of a packed checkpoint: the same numbers, dense, in a directory of its own.

use std::{collections::BTreeMap, fs, path::Path};

use mgraph_runtime::{
    checkpoint::{Checkpoint, Dtype},
    error::{Context, Result},
    quantization::{self, Quantization},
};
use safetensors::tensor::TensorView;
use serde_json::Value;

/// Writes `to` unless it is there already.
pub fn to_f32(from: &Path, to: &Path) -> Result<()> {
    if to.is_dir() {
        return Ok(());
    }
    let checkpoint = Checkpoint::open(from)?;
    let settings = Quantization::from_config(checkpoint.config())?;
    let mut dense: BTreeMap<&str, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (name, tensor) in checkpoint.tensors() {
        if name.ends_with(".scales") || name.ends_with(".biases") {
            continue;
        }
        let shape: Vec<usize> = tensor.shape.iter().map(|d| *d as usize).collect();
        let (shape, values) = match (name.strip_suffix(".weight"), tensor.dtype) {
            (Some(module), Dtype::U32) => {
                let affine = settings.for_path(module).with_context(|| format!("no quantization for {module}"))?;
                let columns = shape[1] * 32 / affine.bits as usize;
                let words: Vec<u32> =
                    checkpoint.bytes(name)?.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
                let codes = quantization::unpack(&words, affine.bits, shape[0] * columns);
                let scales = checkpoint.to_f32(&format!("{module}.scales"))?;
                let biases = checkpoint.to_f32(&format!("{module}.biases"))?;
                let group = affine.group as usize;
                let value = |(i, code): (usize, &u8)| f32::from(*code) * scales[i / group] + biases[i / group];
                (vec![shape[0], columns], codes.iter().enumerate().map(value).collect())
            }
            _ => (shape, checkpoint.to_f32(name)?),
        };
        dense.insert(name, (shape, values.iter().flat_map(|v| v.to_le_bytes()).collect()));
    }
    let staging = to.with_extension("partial");
    fs::create_dir_all(&staging)?;
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        if from.join(file).is_file() {
            fs::copy(from.join(file), staging.join(file))?;
        }
    }
    let mut config = checkpoint.config().clone();
    if let Some(object) = config.as_object_mut() {
        object.remove("quantization");
        object.remove("quantization_config");
        object.insert("torch_dtype".into(), Value::from("float32"));
    }
    fs::write(staging.join("config.json"), serde_json::to_string_pretty(&config)?)?;
    let views = dense
        .iter()
        .map(|(name, (shape, bytes))| Ok((*name, TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes)?)))
        .collect::<Result<Vec<_>>>()?;
    safetensors::serialize_to_file(views, None, &staging.join("model.safetensors"))?;
    fs::rename(&staging, to).with_context(|| format!("making {}", to.display()))
}
