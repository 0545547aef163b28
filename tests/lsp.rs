//! `mlxcel lsp` as a process: messages framed on standard input and output, what cannot be read passed over, and the exit
//! codes of the protocol.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

struct Session {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
            .args(["lsp", "--stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        Session { process, input, output }
    }

    fn write(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        write!(input, "{text}").unwrap();
        input.flush().unwrap();
    }

    fn send(&mut self, message: Value) {
        let body = message.to_string();
        self.write(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    }

    fn receive(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
            length = line.strip_prefix("Content-Length: ").unwrap().trim().parse().unwrap();
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    fn initialize(&mut self) {
        self.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "capabilities": {} } }));
        assert_eq!(self.receive()["result"]["serverInfo"]["name"], "mlxcel");
        self.send(json!({ "jsonrpc": "2.0", "method": "initialized", "params": {} }));
    }

    fn code(mut self) -> Option<i32> {
        drop(self.input.take());
        self.process.wait().unwrap().code()
    }
}

#[test]
fn a_session_on_standard_input_and_output() {
    let mut session = Session::start();
    session.initialize();
    session.write("Content-Length: 9\r\n\r\n{\"broken\"");
    session.write("nonsense\r\n\r\n");
    let document = json!({ "uri": "file:///toy.mgraph", "languageId": "mgraph", "version": 1, "text": "family toy" });
    session.send(json!({ "jsonrpc": "2.0", "method": "textDocument/didOpen", "params": { "textDocument": document } }));
    let said = session.receive();
    assert_eq!(said["method"], "textDocument/publishDiagnostics");
    assert_eq!(said["params"]["diagnostics"][0]["code"], "mg0001");
    session.send(json!({ "jsonrpc": "2.0", "id": 2, "method": "shutdown" }));
    assert_eq!(session.receive()["id"], 2);
    session.send(json!({ "jsonrpc": "2.0", "method": "exit" }));
    assert_eq!(session.code(), Some(0));
}

#[test]
fn a_client_that_leaves_without_a_word() {
    let mut session = Session::start();
    session.initialize();
    assert_eq!(session.code(), Some(1));
    assert_eq!(Session::start().code(), Some(1));
}
