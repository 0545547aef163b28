//! What a piece of work costs: time that passes, time that the cores of this machine worked for it, and the most memory.

use std::{
    fmt,
    ops::{AddAssign, Sub},
    time::{Duration, Instant},
};

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    pub wall: Duration,
    /// Of all threads of the process, in its own code and in the kernel's.
    pub cpu: Duration,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, more: Spent) {
        self.wall += more.wall;
        self.cpu += more.cpu;
    }
}

impl Sub for Spent {
    type Output = Spent;

    /// Down to nothing.
    fn sub(self, part: Spent) -> Spent {
        Spent { wall: self.wall.saturating_sub(part.wall), cpu: self.cpu.saturating_sub(part.cpu) }
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s ({:.1} s of CPU)", self.wall.as_secs_f64(), self.cpu.as_secs_f64())
    }
}

/// Runs from where it is made.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Instant,
    cpu: Duration,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { began: Instant::now(), cpu: usage().cpu }
    }

    pub fn spent(&self) -> Spent {
        Spent { wall: self.began.elapsed(), cpu: usage().cpu.saturating_sub(self.cpu) }
    }
}

struct Usage {
    cpu: Duration,
    peak: u64,
}

/// All zero where the system does not tell.
fn usage() -> Usage {
    #[cfg(unix)]
    {
        // SAFETY: `rusage` is numbers alone, for which zeros are a value; the call fills in all of it, or leaves it.
        let told = unsafe {
            let mut told: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut told);
            told
        };
        let time = |t: libc::timeval| Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64);
        // Linux counts in units of 1024 bytes, Apple in bytes.
        let unit = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
        Usage { cpu: time(told.ru_utime) + time(told.ru_stime), peak: told.ru_maxrss as u64 * unit }
    }
    #[cfg(not(unix))]
    Usage { cpu: Duration::ZERO, peak: 0 }
}

/// The most memory that this process ever had resident, in bytes.
pub fn peak_memory() -> u64 {
    usage().peak
}
