//! What generated code and users call: checkpoints, tokenizers and templates on the host side; the two backends; the session
//! seam between them and the engine; and the commands of `mlxcel`.


pub mod checkpoint;
pub mod error;
pub mod gguf;
pub mod hlo;
pub mod import;
pub mod quantization;
pub mod sampler;
pub mod session;
pub mod template;
pub mod tensor;
pub mod tokenizer;
