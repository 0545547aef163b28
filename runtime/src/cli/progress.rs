//! Progress on standard error: a spinner with the present step where a person watches, one line per step and a
//! sign of life elsewhere.

use std::{
    fmt::Display,
    io::{IsTerminal, Write},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// One line on standard error. That nobody reads it is no reason to stop.
pub fn note(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// How long nothing is said where nobody sees a spinner turn: a log that stands still looks like a process that hangs.
pub const SILENCE: Duration = Duration::from_secs(30);

pub struct Progress {
    bar: Option<ProgressBar>,
    /// Where there is no spinner: the present step, for the thread that repeats it.
    heartbeat: Option<mpsc::Sender<Option<String>>>,
}

impl Progress {
    pub fn start() -> Progress {
        Progress::with_silence(SILENCE)
    }

    /// `silence`: how long a step lasts before it is said again, where nobody sees a spinner.
    pub fn with_silence(silence: Duration) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        let heartbeat = if bar.is_none() { heartbeat(silence, note) } else { None };
        Progress { bar, heartbeat }
    }

    pub fn step(&self, message: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(message.to_owned()),
            None => note(message),
        }
        if let Some(heartbeat) = &self.heartbeat {
            // Without its thread there is no heartbeat, and nothing else is lost.
            let _ = heartbeat.send(Some(message.to_owned()));
        }
    }

    /// Writes what shares the screen with the spinner.
    pub fn aside<R>(&self, write: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Nothing is said of the last step any more.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some(heartbeat) = &self.heartbeat {
            let _ = heartbeat.send(None);
        }
    }
}

/// A thread that says every `silence` which step still runs, until it is sent none or the sender is gone. `None` where no thread can
/// be started.
fn heartbeat(silence: Duration, say: impl Fn(String) + Send + 'static) -> Option<mpsc::Sender<Option<String>>> {
    let (steps, told) = mpsc::channel::<Option<String>>();
    let beat = move || {
        let (mut present, mut since) = (String::from("starting"), Instant::now());
        loop {
            match told.recv_timeout(silence) {
                Ok(Some(step)) => (present, since) = (step, Instant::now()),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    say(format!("still {present}, for {} s", since.elapsed().as_secs()));
                }
                Ok(None) | Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    };
    thread::Builder::new().name("heartbeat".into()).spawn(beat).ok().map(|_| steps)
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::heartbeat;

    #[test]
    fn a_step_that_lasts_is_repeated() {
        let (said, heard) = mpsc::channel();
        let steps = heartbeat(Duration::from_millis(5), move |line| drop(said.send(line))).unwrap();
        steps.send(Some("compiling".into())).unwrap();
        assert!(heard.iter().any(|line| line.starts_with("still compiling, for ")));
        steps.send(None).unwrap();
        assert!(heard.iter().count() < 1000, "the thread ends when the work does");
    }
}
