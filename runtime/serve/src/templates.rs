//! Chat templates run in processes of their own. A template is a program from a stranger, and its steps and text are bounded where
//! it runs; what it makes for itself is not (text that it doubles in a loop), so the memory of the process is. One that dies, or
//! that takes too long, costs the request that it served, and the next one gets another.
//!
//! The worker is this binary again with `--render-templates`: conversations come in and texts go out, a line of JSON each.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use mgraph_runtime::template::{ChatTemplate, Conversation, TemplateError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api::ApiError;

/// What a worker may hold beside what it holds when it begins.
#[cfg(target_os = "linux")]
const MEMORY: u64 = 768 << 20;

/// What one conversation may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A conversation, as [`Conversation`] has it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Asked {
    pub messages: Vec<Value>,
    pub tools: Option<Vec<Value>>,
    pub variables: Map<String, Value>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Told {
    Text(String),
    Refused(String),
}

/// Starts workers, and keeps those that are idle.
pub struct Templates {
    program: PathBuf,
    /// What calls the worker's command: `serve`.
    command: OsString,
    model: PathBuf,
    idle: Mutex<Vec<Worker>>,
}

struct Worker {
    process: Child,
    to: ChildStdin,
    from: mpsc::Receiver<String>,
}

impl Templates {
    pub fn new(command: OsString, model: PathBuf) -> Result<Templates> {
        let program = std::env::current_exe().context("the path of this binary")?;
        Ok(Templates { program, command, model, idle: Mutex::default() })
    }

    /// The text that the template makes. Waits; not for threads that serve connections.
    pub fn render(&self, asked: &Asked) -> Result<String, ApiError> {
        let line = serde_json::to_string(asked).map_err(|error| ApiError::server(error.to_string()))?;
        // A worker may have ended while it was idle: another one is tried once.
        for fresh in [false, true] {
            let mut worker = match self.kept().filter(|_| !fresh) {
                Some(worker) => worker,
                None => {
                    self.start().map_err(|error| ApiError::server(format!("no process for chat templates: {error}")))?
                }
            };
            if writeln!(worker.to, "{line}").and_then(|()| worker.to.flush()).is_err() && !fresh {
                continue;
            }
            let told = worker.from.recv_timeout(PATIENCE);
            // A pipe takes a line that nobody reads any more, too.
            if told == Err(mpsc::RecvTimeoutError::Disconnected) && !fresh {
                continue;
            }
            let Ok(told) = told.map_err(drop).and_then(|line| serde_json::from_str(&line).map_err(drop)) else {
                tracing::error!("the chat template broke the process that it runs in, or took too long");
                let message = "the chat template failed: it takes too much memory or time for this conversation";
                return Err(refused(message));
            };
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
            return match told {
                Told::Text(text) => Ok(text),
                Told::Refused(why) => Err(refused(why)),
            };
        }
        Err(ApiError::server("the process for chat templates takes nothing"))
    }

    fn kept(&self) -> Option<Worker> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn start(&self) -> io::Result<Worker> {
        let mut command = Command::new(&self.program);
        command.arg(&self.command).arg("--render-templates").arg(&self.model);
        // What it says when it dies of its limits is no news for the log: the request says it.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Signals of the terminal are for the server, which lets what runs finish.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut process = command.spawn()?;
        let (Some(to), Some(from)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::Error::other("it has no pipes"));
        };
        let (lines, told) = mpsc::channel();
        thread::Builder::new().name("template".into()).spawn(move || {
            for line in BufReader::new(from).lines() {
                let Ok(line) = line else { return };
                if lines.send(line).is_err() {
                    return;
                }
            }
        })?;
        Ok(Worker { process, to, from: told })
    }
}

fn refused(why: impl Into<String>) -> ApiError {
    ApiError::parameter("messages", why).coded("template_error")
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The worker: until nobody asks any more.
pub fn work(model: &Path) -> Result<()> {
    let template = ChatTemplate::open(model)?.context("the model has no chat template")?;
    limit_memory();
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let asked: Asked = serde_json::from_str(&line.context("reading what is asked")?).context("what is asked")?;
        let told = match render(&template, &asked) {
            Ok(text) => Told::Text(text),
            Err(error) => Told::Refused(error.to_string()),
        };
        serde_json::to_writer(&mut out, &told).context("answering")?;
        writeln!(out).and_then(|()| out.flush()).context("answering")?;
    }
    Ok(())
}

pub(crate) fn render(template: &ChatTemplate, asked: &Asked) -> Result<String, TemplateError> {
    template.render_conversation(&Conversation {
        messages: &asked.messages,
        tools: asked.tools.as_deref(),
        documents: None,
        add_generation_prompt: true,
        variables: Some(&asked.variables),
    })
}

/// Where there is no such limit the worker may still die, and alone.
#[cfg(not(target_os = "linux"))]
fn limit_memory() {}

#[cfg(target_os = "linux")]
fn limit_memory() {
    // The sixth number: pages of data and stack.
    let pages =
        std::fs::read_to_string("/proc/self/statm").ok().and_then(|told| told.split(' ').nth(5)?.parse::<u64>().ok());
    // SAFETY: `sysconf` only reads, and `setrlimit` reads the struct that it is given.
    unsafe {
        let page = u64::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096);
        let most = pages.unwrap_or(0) * page + MEMORY;
        libc::setrlimit(libc::RLIMIT_DATA, &libc::rlimit { rlim_cur: most, rlim_max: most });
    }
}
