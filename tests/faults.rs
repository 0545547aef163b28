//! `mlxcel serve` when things go wrong: each fault has its status and code, whoever did nothing wrong is answered afterwards, and
//! nothing hangs. Requests with mistakes of form are in `serve.rs` and in `mgraph-serve`'s tests.

#[path = "faults/cache.rs"]
mod cache;
#[path = "faults/clients.rs"]
mod clients;
#[expect(dead_code, reason = "other tests of the server use the rest")]
mod server;
mod small_vlm;

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use server::Server;
use small_vlm::{REAL, root, small_vlm};

const CHAT: &str = "POST /v1/chat/completions";
const COMPLETE: &str = "POST /v1/completions";
const SHORT: &str = r#"{"prompt":"One, two,","max_tokens":2}"#;
/// Does not end by itself within the patience of these tests.
const LONG: &str = r#"{"prompt":"One, two,","max_tokens":4000,"ignore_eos":true,"stream":true}"#;
/// Longer than any of it takes; a server that hangs fails here.
const PATIENCE: Duration = Duration::from_secs(30);

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// No slot works, and the next request is answered.
fn at_rest(server: &Server) {
    until("all slots idle", || {
        let (status, slots) = server.send("GET /slots", "");
        assert_eq!(status, 200, "{slots}");
        slots.contains("\"idle\"") && !slots.contains("\"is_processing\":true")
    });
    let (status, answer) = server.send(COMPLETE, SHORT);
    assert_eq!(status, 200, "{answer}");
}

fn asking(picture: &[u8]) -> String {
    let url = format!("data:image/png;base64,{}", STANDARD.encode(picture));
    format!(
        r#"{{"messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]}}],"max_tokens":1}}"#
    )
}

fn png_of(width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&vec![0; (width * height) as usize]).unwrap();
    drop(writer);
    file
}

/// A header that announces 65,535 pixels each way, and nothing after it.
fn announced(format: &str) -> Vec<u8> {
    match format {
        "png" => {
            let mut file = png_of(1, 1);
            file[16..24].copy_from_slice(&[0, 0, 255, 255, 0, 0, 255, 255]);
            let sum = crc(&file[12..29]);
            file[29..33].copy_from_slice(&sum.to_be_bytes());
            file
        }
        "gif" => b"GIF89a\xff\xff\xff\xff\x80\x00\x00\x00\x00\x00\xff\xff\xff".to_vec(),
        other => unreachable!("no such header: {other}"),
    }
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { (sum >> 1) ^ 0xEDB8_8320 } else { sum >> 1 })
    })
}

/// Two frames of one pixel.
fn animation() -> Vec<u8> {
    let frame = b"\x21\xf9\x04\x00\x0a\x00\x00\x00\x2c\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x44\x01\x00";
    [b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff".as_slice(), frame, frame, b"\x3b"].concat()
}

#[test]
fn hostile_pictures_cost_their_own_request() {
    let model = tempfile::tempdir().unwrap();
    small_vlm(model.path());
    let server = Server::of(model.path(), &["--max-image-pixels", "1000000", "--parallel", "1", "--ctx-size", "512"]);
    let good = fs::read(root().join("runtime/pictures/tests/pooled_crops/landscape.png")).unwrap();
    let said = |content: &str| format!(r#"{{"messages":[{{"role":"user","content":{content}}}],"max_tokens":1}}"#);
    let cases: [(&str, String, u16, &str); 12] = [
        ("a good one", asking(&good), 200, "completion_tokens"),
        ("bad base64", asking(&good).replace("base64,", "base64,*"), 400, "invalid_image"),
        ("no picture", asking(b"<html>"), 400, "invalid_image"),
        ("nothing", asking(b""), 400, "invalid_image"),
        ("cut", asking(&good[..good.len() / 2]), 400, "invalid_image"),
        ("a bomb of 2 KB", asking(&png_of(1400, 1400)), 400, "invalid_image"),
        ("a huge header", asking(&announced("png")), 400, "invalid_image"),
        ("a huge header of another format", asking(&announced("gif")), 400, "invalid_image"),
        ("an animation", asking(&animation()), 400, "invalid_image"),
        ("a wrong role", said("\"?\"").replace("user", "robot"), 400, "invalid_"),
        ("a role that is none", said("\"?\"").replace("\"user\"", "5"), 400, "invalid_type"),
        ("a part that is none", said("[{\"type\":\"smell\"}]"), 400, "invalid_"),
    ];
    for (what, body, expected, told) in cases {
        let (status, answer) = server.send(CHAT, &body);
        assert_eq!(status, expected, "{what}: {answer}");
        assert!(answer.contains(told), "{what}: {answer}");
    }
    at_rest(&server);
}

/// The head and a part of the body.
fn half(server: &Server, body: &str) -> TcpStream {
    let mut client = TcpStream::connect(&server.address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let half = &body[..length / 2];
    write!(
        client,
        "{COMPLETE} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{half}"
    )
    .unwrap();
    client
}

#[test]
fn what_is_not_read_yet_stands_in_line_and_all_of_it_has_one_memory() {
    let model = tempfile::tempdir().unwrap();
    small_vlm(model.path());
    let flags = ["--parallel", "1", "--max-queue", "1", "--max-memory-bytes", "2000000", "--ctx-size", "512"];
    let server = Server::of(model.path(), &flags);
    let begun: Vec<TcpStream> = (0..2).map(|_| half(&server, SHORT)).collect();
    server.until_counted("mlxcel:num_requests_preparing 2");
    // Refused before its body is there.
    let mut answer = String::new();
    half(&server, SHORT).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 429 ") && answer.contains("\r\nretry-after: "), "{answer}");
    for mut client in begun {
        client.write_all(&SHORT.as_bytes()[SHORT.len() / 2..]).unwrap();
        answer.clear();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }

    // Small values unfold to many times their size, a small file to many pixels: more than all that there is.
    let values = format!(r#"{{"prompt":[{}1]}}"#, "1,".repeat(50_000));
    for (request, body) in [(COMPLETE, &values), (CHAT, &asking(&png_of(600, 600)))] {
        let (status, answer) = server.send(request, body);
        assert!(status == 413 && answer.contains("\"code\":\"request_too_large\""), "{answer}");
    }
    // Together more than there is.
    let long = format!(r#"{{"prompt":"{}"}}"#, "x".repeat(2_400_000));
    let held = half(&server, &long);
    until("it is full", || {
        let (status, answer) = server.send(COMPLETE, &format!(r#"{{"prompt":"{}"}}"#, "word ".repeat(60_000)));
        status == 429 && answer.contains("\"code\":\"memory_full\"") && answer.contains("\r\nretry-after: ")
    });
    drop(held);
    at_rest(&server);
}

#[test]
fn a_second_signal_ends_at_once() {
    let server = Server::start(&["--ctx-size", "4096"]);
    let running = server.ask(COMPLETE, LONG);
    server.until_counted("vllm:num_requests_running 1");
    server.signal("-TERM");
    until("it takes no more connections", || TcpStream::connect(&server.address).is_err());
    let begun = Instant::now();
    server.signal("-TERM");
    assert_eq!(server.ended().code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    drop(running);
}

/// The processes that the server started.
#[cfg(target_os = "linux")]
fn children(server: &Server) -> Vec<String> {
    let id = server.process.id();
    let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap();
    tasks
        .filter_map(|task| fs::read_to_string(task.unwrap().path().join("children")).ok())
        .flat_map(|ids| ids.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

#[cfg(target_os = "linux")]
#[test]
fn a_killed_template_worker_is_replaced() {
    let server = Server::start(&["--ctx-size", "256"]);
    let body = r#"{"messages":[{"role":"user","content":"Hello"}],"max_tokens":1}"#;
    for _ in 0..3 {
        let (status, answer) = server.send(CHAT, body);
        assert_eq!(status, 200, "{answer}");
        let workers = children(&server);
        assert_eq!(workers.len(), 1, "{workers:?}");
        assert!(Command::new("kill").arg("-KILL").args(&workers).status().unwrap().success());
    }
}

/// The engine's memory is taken away while it works: a prompt needs more than the process may still have.
#[cfg(target_os = "linux")]
#[test]
fn an_engine_without_memory_fails_in_words() {
    let server = Server::start(&["--ctx-size", "4096", "--parallel", "2"]);
    at_rest(&server);
    let mut running = server.ask(COMPLETE, LONG);
    server.until_counted("vllm:num_requests_running 1");
    let status = fs::read_to_string(format!("/proc/{}/status", server.process.id())).unwrap();
    let mapped = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let mapped: u64 = mapped.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    let limit = mapped + (4 << 20);
    let limited =
        Command::new("prlimit").arg(format!("--as={limit}")).args(["--pid", &server.process.id().to_string()]).status();
    assert!(limited.unwrap().success());
    let (status, answer) = server.send(COMPLETE, &format!(r#"{{"prompt":"{}","max_tokens":4}}"#, "word ".repeat(3000)));
    let failed = Instant::now();
    assert!(status == 500 && answer.contains("\"code\":\"engine_failed\""), "{answer}");
    until("it says so", || server.send("GET /health", "").0 == 503);
    assert!(failed.elapsed() < Duration::from_secs(1), "{:?}", failed.elapsed());
    let mut rest = String::new();
    running.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"code\":\"engine_failed\"") && !rest.contains("[DONE]"), "{rest}");
    let (status, answer) = server.send(COMPLETE, SHORT);
    assert!(status == 503 && answer.contains("\"code\":\"engine_failed\""), "{answer}");
    server.signal("-TERM");
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn what_keeps_a_server_from_starting_is_said() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    fs::write(&config, "prt: 1").unwrap();
    let (model, config) = (root().join(REAL).display().to_string(), config.display().to_string());
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
    let cases: [Case; 6] = [
        (&["--model", &model, "--port", &port], &[], "in use"),
        (&["--model", &model, "--config", &config], &[], "did you mean \"port\"?"),
        (&["--model", &model], &[("MLXCEL_PARALLEL", "many")], "--parallel <N>"),
        (&["--model", &model, "--parallel", "0"], &[], "--parallel"),
        (&["--model", &model, "--modle", "x"], &[], "--modle"),
        (&["--model", &config], &[], "is no directory"),
    ];
    for (arguments, variables, told) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlxcel"));
        command.arg("serve").args(arguments).envs(variables.iter().copied());
        let run = command.output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{arguments:?} {variables:?}: {said}");
        assert!(said.contains(told), "{arguments:?} {variables:?}: {said}");
    }

    // A folder without a checkpoint is known only once it is read: the server says so, and goes on saying so.
    let empty = tempfile::tempdir().unwrap();
    let server = Server::loading(empty.path(), &[], &[]);
    until("it fails", || server.send("GET /health", "").1.contains("config.json"));
    let (status, answer) = server.send(COMPLETE, SHORT);
    assert!(status == 503 && answer.contains("\"code\":\"engine_failed\""), "{answer}");
    server.signal("-TERM");
    assert_eq!(server.ended().code(), Some(0));
}
