//! Reference numbers from a file: `NAME.safetensors` with inputs and stages, and, where it lies beside it,
//! `NAME.json` with the reference's own noise, from which the bound of each stage follows.

use std::{collections::BTreeMap, fs, path::Path};

use safetensors::SafeTensors;
use serde_json::Value;

use super::compare::Bound;
use crate::{
    error::{Context, Result},
    tensor::{DType, Tensor},
};

/// See `tests/goldens/README.md` for the names of tensors and the reason of the tolerance.
#[derive(Debug)]
pub struct Golden {
    path: String,
    tensors: BTreeMap<String, Tensor>,
    notes: Option<Value>,
}

/// Names in a golden that are no stages of the main run.
const NOT_STAGES: [&str; 4] = ["input.", "decode.", "batch.", "cache."];

impl Golden {
    pub fn open(path: &Path) -> Result<Golden> {
        let shown = path.display().to_string();
        let bytes = fs::read(path).with_context(|| format!("reading reference numbers from {shown}"))?;
        let file =
            SafeTensors::deserialize(&bytes).with_context(|| format!("{shown} is not a readable safetensors file"))?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.iter() {
            let stored = view.dtype();
            let dtype = DType::of_stored(stored)
                .with_context(|| format!("{shown}: tensor {name} is {stored:?}, which is no dtype of the language"))?;
            tensors.insert(name.to_owned(), Tensor::of(dtype, view.shape(), view.data()));
        }
        let beside = path.with_extension("json");
        let notes = match fs::read_to_string(&beside) {
            Ok(text) => Some(serde_json::from_str(&text).with_context(|| format!("{} is not JSON", beside.display()))?),
            Err(_) => None,
        };
        Ok(Golden { path: shown, tensors, notes })
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    pub fn require(&self, name: &str) -> Result<&Tensor> {
        self.get(name).with_context(|| format!("{} has no tensor {name}", self.path))
    }

    pub fn with_prefix(&self, prefix: &str) -> Vec<(String, Tensor)> {
        let of = |(name, tensor): (&String, &Tensor)| (name.clone(), tensor.clone());
        self.tensors.iter().filter(|(name, _)| name.starts_with(prefix)).map(of).collect()
    }

    /// The file beside it that would give bounds.
    pub fn notes_file(&self) -> String {
        Path::new(&self.path).with_extension("json").display().to_string()
    }

    /// The stages of the main run: in execution order where the notes list them.
    pub fn stages(&self) -> Vec<String> {
        if let Some(listed) = self.notes.as_ref().and_then(|n| n["stages"].as_array()) {
            return listed.iter().filter_map(|s| s.as_str().map(str::to_owned)).collect();
        }
        let is_stage = |name: &&String| !NOT_STAGES.iter().any(|p| name.starts_with(p)) && !name.contains('/');
        self.tensors.keys().filter(is_stage).cloned().collect()
    }

    /// `10 * noise.max_abs + 1e-6 * noise.scale_rms` per element, where the notes give the noise of the stage.
    pub fn bound(&self, stage: &str) -> Option<Bound> {
        let noise = self.notes.as_ref()?.get("noise")?.get(stage)?;
        let number = |key: &str| noise.get(key).and_then(Value::as_f64);
        let max_abs = 10.0 * number("max_abs")? + 1e-6 * number("scale_rms")?;
        Some(Bound { max_abs: Some(max_abs), ..Bound::default() })
    }
}
