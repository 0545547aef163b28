//! What the cross-crate tests share: where fixtures lie, how a golden is opened, and the certificate.

pub mod certificate;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use mgraph_runtime::{error::Result, model::Model, parity::Golden};

/// `tests/goldens/NAME`; its README says where the numbers come from.
pub fn golden_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens").join(name)
}

pub fn open_golden(name: &str) -> Result<(Arc<Model>, Golden)> {
    let dir = golden_dir(name);
    Ok((Model::open(&dir, mgraph_models::FAMILIES)?, Golden::open(&dir.join("golden.safetensors"))?))
}
