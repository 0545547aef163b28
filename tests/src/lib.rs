//! What the cross-crate tests share: where fixtures lie, how a golden is opened, the certificate, and a family of ops.

pub mod certificate;
pub mod executors;
pub mod toy;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use mgraph_models::llama::Config;
use mgraph_runtime::{error::Result, model::Model, parity::Golden};

/// `tests/goldens/NAME`; its README says where the numbers come from.
pub fn golden_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens").join(name)
}

pub fn open_golden(name: &str) -> Result<(Arc<Model>, Golden)> {
    let dir = golden_dir(name);
    Ok((Model::open(&dir, mgraph_models::FAMILIES)?, Golden::open(&dir.join("golden.safetensors"))?))
}

/// A config for calling single ops of the prelude, which read none of it.
pub fn small_config() -> Config {
    Config {
        vocab: 1,
        hidden: 1,
        inner: 1,
        depth: 1,
        heads: 1,
        kv_heads: 1,
        head_dim: 1,
        eps: 1e-5,
        tied: true,
        attn_bias: false,
        mlp_bias: false,
        frequencies: Vec::new(),
    }
}
