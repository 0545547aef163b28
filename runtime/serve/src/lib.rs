//! `mlxcel serve`: requests in OpenAI's form over HTTP, and one engine thread that runs them side by side on a session.

pub mod engine;
pub mod request;
