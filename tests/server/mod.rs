//! `mlxcel serve` as a process on a free port, and requests to it. It ends with the test.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::small_vlm::{REAL, root};

/// Before the folder of the model.
pub const SERVE: [&str; 6] = ["serve", "--port", "0", "--log", "warn", "--model"];

pub struct Server {
    pub process: Child,
    pub address: String,
}

impl Server {
    /// The real model, on a free port, once it takes requests.
    pub fn start(arguments: &[&str]) -> Server {
        let model = root().join(REAL);
        assert!(model.is_dir(), "{} is missing; `make model` fetches it", model.display());
        Server::of(&model, arguments)
    }

    pub fn of(model: &Path, arguments: &[&str]) -> Server {
        let server = Server::loading(model, arguments, &[]);
        server.until("/health", 200);
        server
    }

    /// Once it listens.
    pub fn loading(model: &Path, arguments: &[&str], variables: &[(&str, &Path)]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlxcel"));
        command.args(SERVE).arg(model).args(arguments).envs(variables.iter().copied());
        Server::by(command)
    }

    /// Whatever the command starts.
    pub fn by(mut command: Command) -> Server {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on http://").expect("the address").to_owned();
        Server { process, address }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The status and the whole of the answer, headers included.
    pub fn send(&self, request: &str, body: &str) -> (u16, String) {
        let mut stream = self.ask(request, body);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("{answer:?}")), answer)
    }

    /// A request that is sent, and whose answer nobody has read yet.
    pub fn ask(&self, request: &str, body: &str) -> TcpStream {
        self.ask_as("localhost", request, body)
    }

    /// Under a name that the client calls the server by.
    pub fn ask_as(&self, host: &str, request: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        write!(stream, "{request} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        stream
    }

    pub fn until(&self, path: &str, status: u16) {
        let begun = Instant::now();
        while self.send(&format!("GET {path}"), "").0 != status {
            assert!(begun.elapsed() < Duration::from_secs(60), "{path} is not {status}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Until a number of `/metrics` is this: its name and value, labels aside.
    pub fn until_counted(&self, number: &str) {
        let (name, value) = number.split_once(' ').expect("a name and a value");
        let is = |line: &str| {
            let rest = line.strip_prefix(name).and_then(|rest| rest.strip_prefix('{'));
            rest.is_some_and(|rest| rest.rsplit_once("} ").is_some_and(|(_, found)| found == value))
        };
        let begun = Instant::now();
        while !self.send("GET /metrics", "").1.lines().any(is) {
            assert!(begun.elapsed() < Duration::from_secs(20), "never {number}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub fn ended(mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            match self.process.try_wait().unwrap() {
                Some(status) => return status,
                None => assert!(begun.elapsed() < Duration::from_secs(30), "the server does not end"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
