//! Inner loops over slices; neither MLX nor checkpoints are known. A crate of its own so that development builds optimize it.

pub mod apart;
pub mod logits;
pub mod numbers;
pub mod packed;
mod row;
