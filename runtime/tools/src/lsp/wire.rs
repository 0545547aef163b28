//! Messages on standard input and output. A message that cannot be read is dropped and said on standard error, where
//! editors keep a log; the next one is read as usual.

use std::{
    io::{self, BufRead, Read, Write},
    thread,
};

use anyhow::Context;
use lsp_server::{Connection, Message};
use serde_json::{Map, Value};

/// A family is at most 128 KiB; beyond this a length is surely wrong.
const MAX_BYTES: usize = 64 << 20;

pub struct Threads {
    writer: thread::JoinHandle<()>,
}

impl Threads {
    /// Waits until everything is written. The reader may still wait for input, and ends with the process.
    pub fn finish(self) {
        let _ = self.writer.join();
    }
}

pub fn standard() -> anyhow::Result<(Connection, Threads)> {
    let (server, client) = Connection::memory();
    let Connection { sender, receiver } = client;
    thread::Builder::new()
        .name("lsp reader".into())
        .spawn(move || {
            let mut input = io::stdin().lock();
            loop {
                match read(&mut input) {
                    Ok(Some(Ok(message))) => {
                        if sender.send(message).is_err() {
                            return;
                        }
                    }
                    Ok(Some(Err(problem))) => eprintln!("mlxcel lsp: a message was dropped: {problem}"),
                    Ok(None) => return,
                    Err(error) => {
                        eprintln!("mlxcel lsp: standard input cannot be read: {error}");
                        return;
                    }
                }
            }
        })
        .context("no thread can be started for reading")?;
    let writer = thread::Builder::new()
        .name("lsp writer".into())
        .spawn(move || {
            let mut output = io::stdout().lock();
            for message in receiver {
                // The editor is gone; its end of input says so too.
                if message.write(&mut output).and_then(|()| output.flush()).is_err() {
                    return;
                }
            }
        })
        .context("no thread can be started for writing")?;
    Ok((server, Threads { writer }))
}

/// The next message, or what is wrong with it; `None` at the end of the input.
fn read(input: &mut impl BufRead) -> io::Result<Option<Result<Message, String>>> {
    let mut length = None;
    let mut problem = None;
    loop {
        let mut line = Vec::new();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => match value.trim().parse::<usize>() {
                Ok(n) => length = Some(n),
                Err(_) => problem = Some(format!("its length is {:?}", value.trim())),
            },
            Some(_) => {}
            None => problem = Some(format!("its header has the line {line:?}")),
        }
    }
    if let Some(problem) = problem {
        return Ok(Some(Err(problem)));
    }
    let Some(length) = length else { return Ok(Some(Err("its header has no `Content-Length`".into()))) };
    if length > MAX_BYTES {
        io::copy(&mut input.take(length as u64), &mut io::sink())?;
        return Ok(Some(Err(format!("it has {length} bytes, and the limit is {MAX_BYTES}"))));
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    // An array would be read as the fields of a response.
    let object = serde_json::from_slice::<Map<String, Value>>(&body);
    let message = object.and_then(|object| serde_json::from_value(Value::Object(object)));
    Ok(Some(message.map_err(|error| error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(body: &str) -> String {
        format!("Content-Length: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn malformed_messages_are_passed_over() {
        let good = framed(r#"{"jsonrpc":"2.0","method":"exit"}"#);
        for bad in [
            framed("{"),
            framed("[1, 2]"),
            framed("\u{fffd}"),
            "Content-Length: many\r\n\r\n".into(),
            "Content-Type: x\r\n\r\n".into(),
            "nonsense\r\n\r\n".into(),
        ] {
            let input = format!("{bad}{good}");
            let mut input = input.as_bytes();
            assert!(matches!(read(&mut input), Ok(Some(Err(_)))), "{bad:?}");
            assert!(matches!(read(&mut input), Ok(Some(Ok(Message::Notification(_))))), "{bad:?}");
            assert!(matches!(read(&mut input), Ok(None)), "{bad:?}");
        }
        let mut cut = "Content-Length: 18446744073709551615\r\n\r\n{".as_bytes();
        assert!(matches!(read(&mut cut), Ok(Some(Err(_)))));
        assert!(read(&mut "Content-Length: 9\r\n\r\n{".as_bytes()).is_err());
    }
}
