//! What StableHLO's interpreter gave for each module, by a digest of the module and its inputs.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use mgraph_runtime::{direct::Emitted, tensor::Tensor};
use safetensors::{SafeTensors, tensor::TensorView};

pub struct Stored(BTreeMap<String, BTreeMap<usize, Tensor>>);

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("stablehlo/cases.safetensors")
}

/// Of the text and of everything that goes in.
pub fn key(emitted: &Emitted) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(emitted.text.as_bytes());
    for input in &emitted.inputs {
        hasher.update(format!("{:?}{:?}", input.dtype, input.shape).as_bytes());
        hasher.update(&input.bytes);
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

impl Stored {
    pub fn open() -> Stored {
        let bytes = fs::read(file()).expect("tests/stablehlo/cases.safetensors");
        let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
        let mut found = BTreeMap::new();
        for (name, view) in tensors.iter() {
            let (key, at) = name.split_once('.').expect("DIGEST.RESULT");
            let results: &mut BTreeMap<usize, Tensor> = found.entry(key.to_owned()).or_default();
            results.insert(at.parse().expect("a number"), Tensor::of_stored(&view).expect("a dtype of the language"));
        }
        Stored(found)
    }

    /// The results of a module, in order.
    ///
    /// Errors: it was not asked, so what is emitted has changed.
    pub fn of(&self, emitted: &Emitted) -> Result<Vec<&Tensor>, String> {
        let results = self.0.get(&key(emitted)).ok_or("emission changed; run tests/stablehlo/import.py")?;
        Ok(results.values().collect())
    }

    /// Digests that no module has.
    pub fn without<'s>(&'s self, known: &[String]) -> Vec<&'s String> {
        self.0.keys().filter(|key| !known.contains(key)).collect()
    }
}

/// `DIGEST.mlir` and `DIGEST.safetensors`, whose tensors are the arguments by number.
pub fn write(dir: &Path, emitted: &Emitted) {
    let key = key(emitted);
    fs::write(dir.join(format!("{key}.mlir")), &emitted.text).expect("the folder can be written");
    let views = emitted.inputs.iter().enumerate().map(|(at, tensor)| {
        let view = TensorView::new(tensor.dtype.stored(), tensor.shape.clone(), &tensor.bytes);
        (at.to_string(), view.expect("the bytes fill the shape"))
    });
    let inputs = dir.join(format!("{key}.safetensors"));
    safetensors::serialize_to_file(views, None, &inputs).expect("the folder can be written");
}
