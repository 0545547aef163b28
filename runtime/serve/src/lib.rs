//! `mlxcel serve`: requests in OpenAI's form over HTTP, and one engine thread that runs them side by side on a session.

pub mod api;
mod command;
pub mod engine;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod http;
pub mod images;
pub mod options;
pub mod request;
pub mod sse;
mod templates;
pub mod tools;

pub use command::main;
pub use options::Arguments;
