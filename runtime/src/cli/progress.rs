//! Progress on standard error: a spinner with the present step where a person watches, one line per step elsewhere.

use std::{
    fmt::Display,
    io::{IsTerminal, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

/// One line on standard error. That nobody reads it is no reason to stop.
pub fn note(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn start() -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Progress { bar }
    }

    pub fn step(&self, message: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(message.to_owned()),
            None => note(message),
        }
    }

    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
