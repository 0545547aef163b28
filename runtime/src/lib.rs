//! What generated code and users call: checkpoints, tokenizers and templates on the host side; the two backends; the session
//! seam between them and the engine; and the commands of `mlxcel`.

pub mod backend;
pub mod checkpoint;
pub mod cli;
pub mod direct;
pub mod engine;
pub mod error;
pub mod family;
pub mod generated;
pub mod gguf;
pub mod hlo;
pub mod import;
pub mod inputs;
pub mod memory;
pub mod mlx;
pub mod model;
pub mod parity;
pub mod pictures;
pub mod probes;
pub mod processor;
pub mod quantization;
pub mod reduce;
pub mod reference;
pub mod request;
pub mod sampler;
pub mod session;
pub mod spent;
pub mod template;
pub mod tensor;
pub mod tokenizer;
pub mod weights;
mod windows;
