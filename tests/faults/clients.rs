//! Clients that hang up, dawdle or never read: they cost themselves, and nobody else.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use socket2::{Domain, SockRef, Socket, Type};

use super::{CHAT, COMPLETE, LONG, PATIENCE, SHORT, at_rest, server::Server, until};

/// Clients that hang up; `MGRAPH_HANG_UPS` asks for more of them.
fn hang_ups() -> usize {
    std::env::var("MGRAPH_HANG_UPS").ok().and_then(|count| count.parse().ok()).unwrap_or(300)
}

/// Bytes that are in memory, by Linux.
fn resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn files(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.process.id())).unwrap().count()
}

#[test]
fn clients_that_hang_up_dawdle_or_never_read_hold_up_nobody() {
    let server = Server::start(&["--parallel", "2", "--max-queue", "256", "--ctx-size", "4096"]);
    at_rest(&server);
    let (memory, open) = (resident(&server), files(&server));

    for at in 0..hang_ups() {
        let mut client = TcpStream::connect(&server.address).unwrap();
        let whole = format!(
            "{COMPLETE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{LONG}",
            LONG.len()
        );
        let sent = match at % 4 {
            0 => 0,
            1 => 20,
            2 => whole.len() - 5,
            _ => whole.len(),
        };
        client.write_all(&whole.as_bytes()[..sent]).unwrap();
        if at % 8 == 7 {
            // The server may already have answered, which makes this an error here.
            let _ = client.shutdown(Shutdown::Write);
        }
    }
    at_rest(&server);
    until("no more files open than before", || files(&server) <= open + 2);

    // Nobody reads what these are sent, and these never say all that they want.
    let unread: Vec<TcpStream> = (0..2).map(|_| server.ask(COMPLETE, &LONG.replace("4000", "100"))).collect();
    let dawdlers: Vec<TcpStream> = (0..64)
        .map(|at| {
            let mut client = TcpStream::connect(&server.address).unwrap();
            write!(client, "{}", &format!("{COMPLETE} HTTP/1.1\r\ncontent-length: 9\r\n\r\n{{")[..20 + at % 20])
                .unwrap();
            client
        })
        .collect();
    let mut slow = TcpStream::connect(&server.address).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "{COMPLETE} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        SHORT.len()
    );
    for piece in format!("{head}{SHORT}").as_bytes().chunks(40) {
        slow.write_all(piece).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    at_rest(&server);
    drop((unread, dawdlers));
    let more = resident(&server).saturating_sub(memory);
    assert!(more < 200 << 20, "{} MB more than at the start", more >> 20);
}

/// With so little room for what is sent to it that a server cannot hand over an answer of some length: small segments keep the
/// server's buffer small, too.
fn narrow(server: &Server) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(2048).unwrap();
    socket.set_tcp_mss(536).unwrap();
    socket.connect(&server.address.parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.into()
}

/// Bytes that lie in the two buffers of a connection, by Linux.
fn between(client: &TcpStream) -> u64 {
    let (mine, theirs) = (client.local_addr().unwrap().port(), client.peer_addr().unwrap().port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let queued = |from: u16, to: u16| {
        let line = table.lines().find(|line| {
            let ports: Vec<_> = line.split_whitespace().skip(1).take(2).map(|end| end.rsplit(':').next()).collect();
            ports == [Some(format!("{from:04X}").as_str()), Some(format!("{to:04X}").as_str())]
        });
        line.unwrap()
            .split_whitespace()
            .nth(4)
            .unwrap()
            .split(':')
            .map(|bytes| u64::from_str_radix(bytes, 16).unwrap())
            .sum::<u64>()
    };
    queued(mine, theirs) + queued(theirs, mine)
}

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_nobody_reads_waits_in_memory_and_frees_its_row() {
    let server = Server::start(&["--parallel", "1", "--ctx-size", "512"]);
    let body = r#"{"messages":[{"role":"user","content":"?"}],"max_tokens":200,"ignore_eos":true,"stream":true,"logprobs":true,"top_logprobs":20}"#;
    let mut unread = narrow(&server);
    let length = body.len();
    write!(unread, "{CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    server.until_counted("vllm:num_requests_running 1");
    // The one row there is serves the next request although nobody has read what it made.
    at_rest(&server);
    let sent = between(&unread);
    SockRef::from(&unread).set_recv_buffer_size(1 << 20).unwrap();
    let mut answer = String::new();
    unread.read_to_string(&mut answer).unwrap();
    assert_eq!(answer.matches("\"top_logprobs\"").count(), 200);
    assert!(answer.trim_end().ends_with("data: [DONE]\n\n\r\n0"), "{}", &answer[answer.len() - 200..]);
    assert!(answer.len() as u64 > sent + (100 << 10), "all {} bytes fitted the buffers, {sent} of them", answer.len());
}

/// Tokens that were ever answered with.
fn answered(server: &Server) -> u64 {
    let (_, numbers) = server.send("GET /metrics", "");
    let line = numbers.lines().find(|line| line.starts_with("vllm:generation_tokens_total{"));
    line.and_then(|line| line.rsplit(' ').next()).map_or(0, |count| count.parse().unwrap())
}

#[test]
fn who_hangs_up_before_an_answer_in_one_piece_cancels_it() {
    let server = Server::start(&["--parallel", "1", "--ctx-size", "4096"]);
    at_rest(&server);
    let whole = LONG.replace(",\"stream\":true", "");
    let waiting = server.ask(COMPLETE, &whole);
    let before = answered(&server);
    until("it answers", || answered(&server) > before + 2);
    drop(waiting);
    at_rest(&server);
    // Of 4,000; what is made between two looks at the numbers is a few.
    let made = answered(&server) - before;
    assert!(made < 500, "{made} tokens for nobody");
}
