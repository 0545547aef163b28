//! What generated code and users call: checkpoints, tokenizers and templates on the host side; the two backends; the session
//! seam between them and the engine; and the commands of `mlxcel`.


pub mod error;
pub mod hlo;
pub mod session;
pub mod tensor;
