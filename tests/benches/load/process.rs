//! A server as a process on a free port, and what it takes of the machine.

use std::{
    fs::{self, File},
    io::{Seek, SeekFrom},
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use mgraph_runtime::error::{Context, Result, bail};

/// A first start compiles.
const PATIENCE: Duration = Duration::from_secs(300);

pub struct Server {
    process: Child,
    pub address: String,
}

impl Server {
    /// Once it is healthy. `command` is given the port.
    pub fn start(command: impl FnOnce(u16) -> Command) -> Result<Server> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = command(port);
        let mut said = tempfile::tempfile()?;
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said.try_clone()?)
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let mut server = Server { process, address: format!("127.0.0.1:{port}") };
        let begun = Instant::now();
        while ureq::get(format!("http://{}/health", server.address)).call().is_err() {
            if let Some(status) = server.process.try_wait()? {
                bail!("it ended ({status}): {}", last(&mut said)?);
            }
            if begun.elapsed() > PATIENCE {
                bail!("it was not healthy after {} s: {}", PATIENCE.as_secs(), last(&mut said)?);
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// Forgets the largest memory so far.
    pub fn forget_peak(&self) {
        // Where there is no such file, the peak is that of the whole run.
        let _ = fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5");
    }

    /// The largest resident memory, in bytes. On Linux alone.
    pub fn peak(&self) -> Option<u64> {
        self.of_status("VmHWM:")
    }

    /// Resident memory, in bytes. On Linux alone.
    pub fn resident(&self) -> Option<u64> {
        self.of_status("VmRSS:")
    }

    fn of_status(&self, name: &str) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes << 10)
    }

    /// Time that cores have worked for it. On Linux alone.
    pub fn worked(&self) -> Option<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).ok()?;
        // The name, in parentheses, may hold anything; user's and system's time are the 12th and 13th fields after it.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<u64>().ok();
        // A tick is a hundredth of a second on every Linux.
        Some(Duration::from_millis(10 * (ticks()? + ticks()?)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The last line that a process wrote, which is where programs say why they end.
fn last(said: &mut File) -> Result<String> {
    said.seek(SeekFrom::Start(0))?;
    let text = std::io::read_to_string(said)?;
    Ok(text.trim().lines().last().unwrap_or("it said nothing").to_owned())
}
