//! Where a command reads and writes: the process's own streams, or a test's.

use std::io::{self, IsTerminal, Read, Write};

use anyhow::Context;

/// The streams of one command. Standard error is the caller's: a command returns its error.
pub struct Console<'a> {
    pub input: &'a mut dyn Read,
    pub out: &'a mut dyn Write,
    /// A person's terminal reads `out`.
    pub color: bool,
}

impl Console<'_> {
    /// Runs `command` on the streams of this process. Color is for terminals, unless `NO_COLOR` is set.
    pub fn of_process<T>(command: impl FnOnce(&mut Console<'_>) -> T) -> T {
        let color = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        // Not locked: the language server's threads use them too.
        let mut out = io::BufWriter::new(io::stdout());
        command(&mut Console { input: &mut io::stdin(), out: &mut out, color })
    }

    /// Writes `text` and flushes.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn say(&mut self, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
        self.out.write_all(text.as_ref()).and_then(|()| self.out.flush()).context("writing to standard output")
    }
}

/// `mlxcel expand llama.mgraph | head`: nobody is there to be told.
pub(crate) fn reader_has_left(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
