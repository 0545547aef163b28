//! The wire: bodies of requests as they are read and checked, and bodies of answers as they are written. Pure functions from
//! bytes to values and back; nothing here knows of sockets, of axum or of the engine.

pub mod answer;
pub mod body;
pub mod chat;
pub mod completion;
pub mod error;
pub mod generation;

pub use error::ApiError;
