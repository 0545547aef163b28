//! A checkpoint understood as a family: config resolved, weights bound, nothing computed yet.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use mgraph_dsl::{
    bind::{self, Bindings, Stored, StoredDtype},
    config::{self, Resolved},
    ir::Program,
};
use serde_json::Value;

use crate::{
    checkpoint::{Checkpoint, Dtype},
    error::{Result, anyhow, bail},
    family::Family,
    quantization::Quantization,
    weights::WeightReader,
};

pub struct Model {
    pub family: &'static Family,
    pub program: Arc<Program>,
    pub resolved: Arc<Resolved>,
    pub bindings: Arc<Bindings>,
    pub checkpoint: Checkpoint,
    states: Vec<String>,
}

impl Model {
    /// Opens `dir`, finds its family by `model_type`, resolves the config and binds every weight. All faults of one
    /// step are reported together, with the file they are in.
    pub fn open(dir: &Path, families: &[&'static Family]) -> Result<Arc<Model>> {
        let checkpoint = Checkpoint::open(dir)?;
        let config_file = dir.join("config.json").display().to_string();
        let family = choose(checkpoint.config(), families, &config_file)?;
        let program = mgraph_dsl::compile_text(family.file, family.source)
            .map_err(|failed| anyhow!("{} does not compile:\n{failed}", family.file))?;
        let resolved = config::resolve(&program, checkpoint.config(), &[]).map_err(|faults| {
            let shown: Vec<String> = faults.iter().map(|f| f.display(&config_file).to_string()).collect();
            listed(&format!("{config_file} does not fit family {}", family.name), &shown)
        })?;
        let quantization = Quantization::from_config(checkpoint.config()).map_err(|e| anyhow!("{config_file}: {e}"))?;
        let stored = checkpoint.tensors().iter().map(|(name, tensor)| {
            (name.clone(), Stored { shape: tensor.shape.clone(), dtype: stored_dtype(tensor.dtype) })
        });
        let stored: BTreeMap<String, Stored> = stored.collect();
        let declared = |path: &str| quantization.for_path(path).map(|a| (a.bits, a.group));
        let bindings = bind::bind(&program, &resolved, &stored, &declared).map_err(|faults| {
            listed(&format!("the weights in {} do not fit family {}", dir.display(), family.name), &faults)
        })?;
        let states = bindings.states.iter().map(|s| s.path.clone()).collect();
        Ok(Arc::new(Model {
            family,
            program: Arc::new(program),
            resolved: Arc::new(resolved),
            bindings: Arc::new(bindings),
            checkpoint,
            states,
        }))
    }

    pub fn weights(&self) -> WeightReader<'_> {
        WeightReader::new(&self.bindings, &self.checkpoint)
    }

    /// Field paths of all states, in their canonical order.
    pub fn states(&self) -> &[String] {
        &self.states
    }

    /// `max_position_embeddings`, where the config states it at its root or in `text_config`.
    pub fn max_positions(&self) -> Option<usize> {
        let config = self.checkpoint.config();
        let stated = |object: &Value| object.get("max_position_embeddings").and_then(Value::as_u64);
        stated(config).or_else(|| config.get("text_config").and_then(stated)).map(|n| n as usize)
    }
}

fn choose(config: &Value, families: &[&'static Family], file: &str) -> Result<&'static Family> {
    let Some(model_type) = config.get("model_type").and_then(Value::as_str) else {
        bail!("{file} has no \"model_type\", so its family is unknown");
    };
    let serves = |family: &&&Family| family.model_types.contains(&model_type);
    match families.iter().find(serves) {
        Some(family) => Ok(family),
        None => {
            let known: Vec<&str> = families.iter().flat_map(|f| f.model_types.iter().copied()).collect();
            bail!("{file}: no family serves model_type {model_type:?}; known are {}", known.join(", "))
        }
    }
}

fn listed(what: &str, faults: &[impl std::fmt::Display]) -> crate::error::Error {
    let lines: Vec<String> = faults.iter().map(|f| format!("  - {f}")).collect();
    anyhow!("{what}:\n{}", lines.join("\n"))
}

fn stored_dtype(dtype: Dtype) -> StoredDtype {
    match dtype {
        Dtype::F64 => StoredDtype::F64,
        Dtype::F32 => StoredDtype::F32,
        Dtype::F16 => StoredDtype::F16,
        Dtype::BF16 => StoredDtype::BF16,
        Dtype::I64 => StoredDtype::I64,
        Dtype::I32 => StoredDtype::I32,
        Dtype::U32 => StoredDtype::U32,
        Dtype::U8 => StoredDtype::U8,
        Dtype::BOOL => StoredDtype::Bool,
        _ => StoredDtype::Other,
    }
}
