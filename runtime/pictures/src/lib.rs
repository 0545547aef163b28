//! Pictures on the host: [`Picture`] decodes a file within limits; [`pooled_crops`] makes of pictures what the graph `vision`
//! of a family takes, and the tokens that stand for them in a prompt. Knows nothing of tensors of a backend, or of families.

pub mod picture;
pub mod pooled_crops;
pub mod resize;
pub mod settings;

pub use picture::{Limits, Picture, PictureError};
