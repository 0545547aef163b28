//! The HTTP side: routes, the guard before them, and the server's life from binding to the last answer.

mod app;
mod blocking;
pub(crate) mod chat;
pub(crate) mod completions;
mod connections;
mod guard;
mod log;
mod page;
pub(crate) mod parts;
pub mod routes;
mod server;
mod state;
pub(crate) mod stream;
mod tokens;

pub use app::{App, Head, now};
pub use chat::Writer as ChatChunks;
pub use connections::Limits;
pub use server::serve;
pub use stream::Chunks;
