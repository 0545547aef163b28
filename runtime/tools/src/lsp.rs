//! `mlxcel lsp`: the language in an editor, over standard input and output.
//!
//! The server knows texts and positions; what they mean comes from [`mgraph_dsl::analysis`], so an editor and the
//! compiler never disagree. Protocol: LSP 3.17, positions in UTF-16, changes whole or in parts.

mod complete;
mod document;
mod format;
mod hover;
mod names;
mod prelude;
mod report;
mod server;
mod wire;
mod words;

use clap::Args;

use crate::Verdict;

pub use server::serve;

#[derive(Debug, Args)]
pub struct Arguments {
    /// Accepted because editors pass it: there is no other way to talk
    #[arg(long)]
    stdio: bool,
}

/// Serves the client on standard input and output until it says `exit` or is gone.
///
/// # Errors
/// No thread can be started.
pub fn run(_: &Arguments) -> anyhow::Result<Verdict> {
    let (connection, threads) = wire::standard()?;
    let orderly = serve(connection);
    threads.finish();
    // The protocol's exit codes: 1 when the client did not say `shutdown` first.
    Ok(if orderly { Verdict::Done } else { Verdict::Found })
}
