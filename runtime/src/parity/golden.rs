//! Reference numbers from a file: `NAME.safetensors` with inputs and stages, and, where it lies beside it,
//! `NAME.json` with the reference's own noise, from which the bound of each stage follows.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use safetensors::SafeTensors;
use serde_json::{Value, json};

use super::compare::Bound;
use crate::{
    error::{Context, Result, ensure},
    tensor::Tensor,
};

/// See `tests/goldens/README.md` for the names of tensors and the reason of the tolerance.
#[derive(Debug, Clone)]
pub struct Golden {
    /// As errors show it.
    path: String,
    tensors: BTreeMap<String, Tensor>,
    notes: Option<Value>,
}

/// Names in a golden that are no stages of the main run.
const NOT_STAGES: [&str; 5] = ["input.", "decode.", "batch.", "cache.", "state."];

impl Golden {
    pub fn open(path: &Path) -> Result<Golden> {
        let shown = path.display().to_string();
        let bytes = fs::read(path).with_context(|| format!("reading reference numbers from {shown}"))?;
        let file =
            SafeTensors::deserialize(&bytes).with_context(|| format!("{shown} is not a readable safetensors file"))?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.iter() {
            let tensor = Tensor::of_stored(&view).with_context(|| {
                format!("{shown}: tensor {name} is {:?}, which is no dtype of the language", view.dtype())
            })?;
            tensors.insert(name.to_owned(), tensor);
        }
        let beside = path.with_extension("json");
        let notes = match fs::read_to_string(&beside) {
            Ok(text) => Some(serde_json::from_str(&text).with_context(|| format!("{} is not JSON", beside.display()))?),
            Err(_) => None,
        };
        Ok(Golden { path: shown, tensors, notes })
    }

    /// The same reference on other inputs, where it holds them as `NAME/..`: those that changed and the stages of that run, in the
    /// place of the main run's.
    pub fn variant(&self, name: &str) -> Result<Golden> {
        let prefix = format!("{name}/");
        let mut notes = self.notes.clone();
        let told = notes.as_ref().map(|notes| notes["variants"][name].clone());
        let of_main: Vec<String> = told.iter().flat_map(|told| strings(&told["dropped_inputs"])).collect();
        let kept = |key: &String| key.strip_prefix("input.").is_some_and(|input| !of_main.iter().any(|d| d == input));
        let mut tensors: BTreeMap<String, Tensor> = self
            .tensors
            .iter()
            .filter(|(key, _)| kept(key))
            .map(|(key, tensor)| (key.clone(), tensor.clone()))
            .collect();
        let changed = self.with_prefix(&prefix);
        ensure!(!changed.is_empty(), "{} has no variant {name}; it has {}", self.path, self.variants());
        tensors.extend(changed.into_iter().map(|(key, tensor)| (key[prefix.len()..].to_owned(), tensor)));
        if let (Some(notes), Some(told)) = (notes.as_mut(), told) {
            notes["stages"] = told["stages"].clone();
            if let Some(noise) = notes["noise"].as_object_mut() {
                let of_variant = noise.iter().filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?, value)));
                let of_variant: Vec<_> = of_variant.map(|(key, value)| (key.to_owned(), value.clone())).collect();
                noise.extend(of_variant);
            }
        }
        let path = format!("{} ({name})", self.path);
        Ok(Golden { path, tensors, notes })
    }

    /// The names of the variants, for people.
    pub fn variants(&self) -> String {
        let names: BTreeSet<&str> = self.tensors.keys().filter_map(|key| Some(key.split_once('/')?.0)).collect();
        if names.is_empty() { "none".into() } else { names.into_iter().collect::<Vec<_>>().join(", ") }
    }

    /// The names of `input.*`.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().filter_map(|key| key.strip_prefix("input."))
    }

    /// Whether the notes say that this input tells what others do and was not fed to the reference.
    pub fn is_extra(&self, input: &str) -> bool {
        self.notes.as_ref().is_some_and(|notes| notes["extra_inputs"].get(input).is_some())
    }

    /// The numbers of another run on the inputs of this one; what the notes say of noise holds on.
    pub(super) fn with_numbers(&self, path: String, stages: &[String], tensors: BTreeMap<String, Tensor>) -> Golden {
        let mut notes = self.notes.clone().unwrap_or_else(|| json!({}));
        notes["stages"] = json!(stages);
        Golden { path, tensors, notes: Some(notes) }
    }

    /// Inputs without numbers: one row of tokens. `path` names them to people.
    pub fn of_tokens(path: String, tokens: &[i32]) -> Golden {
        let ids = Tensor::from_i32(&[1, tokens.len()], tokens);
        let tensors = BTreeMap::from([("input.input_ids".to_owned(), ids)]);
        Golden { path, tensors, notes: None }
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

    /// Of every tensor: inputs, stages and the others.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The stages of the main run: in execution order where the notes list them.
    pub fn stages(&self) -> Vec<String> {
        if let Some(listed) = self.notes.as_ref().map(|n| &n["stages"]).filter(|stages| stages.is_array()) {
            return strings(listed);
        }
        let is_stage = |name: &&String| !NOT_STAGES.iter().any(|p| name.starts_with(p)) && !name.contains('/');
        self.tensors.keys().filter(is_stage).cloned().collect()
    }

    /// The stages whose noise the notes give.
    pub fn noted(&self) -> impl Iterator<Item = &str> {
        let noise = self.notes.as_ref().and_then(|notes| notes.get("noise")?.as_object());
        noise.into_iter().flat_map(|noise| noise.keys().map(String::as_str))
    }

    /// `10 * noise.max_abs + 1e-6 * noise.scale_rms` per element, where the notes give the noise of the stage.
    pub fn bound(&self, stage: &str) -> Option<Bound> {
        let noise = self.notes.as_ref()?.get("noise")?.get(stage)?;
        let number = |key: &str| noise.get(key).and_then(Value::as_f64);
        let max_abs = 10.0 * number("max_abs")? + 1e-6 * number("scale_rms")?;
        Some(Bound { max_abs: Some(max_abs), ..Bound::default() })
    }
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}
