//! `mlxcel serve` as a process: the official OpenAI client drives it (`serve/client.py`), a browser chats on its page, signals
//! end it. The model is SmolLM2-135M-Instruct, which `make model` fetches.

#[expect(dead_code, reason = "tests of files use the rest")]
mod browser;
mod server;
mod small_vlm;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use browser::{Browser, Page, Scheme};
use serde_json::Value;
use server::Server;
use small_vlm::{REAL, root, small_vlm};

fn toolchain() -> PathBuf {
    root().join(".toolchain")
}

const PICTURE: &str = "landscape.png";

/// Runs the checks of `client.py`: of words, or of pictures where one is given.
fn client(server: &Server, picture: Option<&str>) {
    let url = server.url();
    let run = Command::new("python3")
        .arg(root().join("tests/serve/client.py"))
        .args([&url, "k"].into_iter().chain(picture))
        .env("PYTHONPATH", toolchain())
        .output()
        .unwrap();
    let told = [run.stdout, run.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(run.status.success(), "{told}");
    println!("{told}");
}

#[test]
fn the_official_client_is_served() {
    client(&Server::start(&["--api-key", "k", "--ctx-size", "1024", "--max-body-bytes", "2000000"]), None);
}

#[test]
fn the_official_client_shows_pictures() {
    let model = tempfile::tempdir().unwrap();
    small_vlm(model.path());
    let server = Server::of(model.path(), &["--api-key", "k"]);
    let file = fs::read(root().join("runtime/pictures/tests/pooled_crops").join(PICTURE)).unwrap();
    client(&server, Some(&format!("data:image/png;base64,{}", STANDARD.encode(file))));
}

/// The checkpoint of pictures with a template that lists tools, and that doubles a text when it is told to.
#[test]
fn a_template_lists_tools_and_one_that_takes_all_memory_costs_its_own_request() {
    let model = tempfile::tempdir().unwrap();
    small_vlm(model.path());
    let file = model.path().join("tokenizer_config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let twice =
        "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    let nested = "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% for j in range(99) %}{% set ns.x = [ns.x] %}{% endfor %}{% endfor %}";
    config["chat_template"] = Value::from(format!(
        "{{% if messages[0].content == 'twice' %}}{twice}{{% elif messages[0].content == 'nested' %}}{nested}{{% endif %}}hello\
         {{% if tools %}}{{{{ tools | tojson }}}} <tool_call>{{% endif %}}{{{{ mood }}}}"
    ));
    fs::write(&file, config.to_string()).unwrap();
    let server = Server::of(model.path(), &["--ctx-size", "64"]);
    let tools = r#"{"messages":[{"role":"user","content":"?"}],"tools":[{"type":"function","function":{"name":"f"}}],"#;
    for (choice, made) in [
        (r#""tool_choice":"auto""#, r#"hello[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}] <tool_call>"#),
        (r#""tool_choice":"none","chat_template_kwargs":{"mood":"!"}"#, "hello!"),
    ] {
        let (status, answer) = server.send("POST /apply-template", &format!("{tools}{choice}}}"));
        assert!(status == 200 && answer.ends_with(&format!("{{\"prompt\":\"{made}\"}}")), "{answer}");
    }
    for (says, expected) in [("hello", 200), ("twice", 400), ("hello", 200), ("nested", 400), ("hello", 200)] {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"{says}"}}],"max_tokens":1}}"#);
        let (status, answer) = server.send("POST /v1/chat/completions", &body);
        assert_eq!(status, expected, "{says}: {answer}");
        assert_eq!(answer.contains("template_error"), expected == 400, "{says}: {answer}");
    }
}

/// As Gemma's does.
#[test]
fn a_template_that_refuses_a_system_message_has_tools_told_by_the_user() {
    let model = tempfile::tempdir().unwrap();
    small_vlm(model.path());
    let file = model.path().join("tokenizer_config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    config["chat_template"] = Value::from(
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
         {% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}",
    );
    fs::write(&file, config.to_string()).unwrap();
    let server = Server::of(model.path(), &["--ctx-size", "64"]);
    for (role, expected, told) in
        [("user", 200, "user: You may call functions."), ("system", 400, "System role not supported")]
    {
        let body = format!(
            r#"{{"messages":[{{"role":"{role}","content":"?"}}],"tools":[{{"type":"function","function":{{"name":"f"}}}}]}}"#
        );
        let (status, answer) = server.send("POST /apply-template", &body);
        assert!(status == expected && answer.contains(told), "{role}: {answer}");
    }
}

const CHAT: &str = r#"{"messages":[{"role":"user","content":"Count to one hundred."}],"max_tokens":60,"temperature":0,"ignore_eos":true}"#;

#[test]
fn a_signal_lets_what_runs_finish() {
    let server = Server::start(&["--ctx-size", "512"]);
    // Somebody who never says what they want holds up nothing.
    let mut silent = TcpStream::connect(&server.address).unwrap();
    write!(silent, "POST /v1/chat").unwrap();
    let (status, answer) = thread::scope(|scope| {
        let running = scope.spawn(|| server.send("POST /v1/chat/completions", CHAT));
        server.until_counted("vllm:num_requests_running 1");
        server.signal("-TERM");
        running.join().unwrap()
    });
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("\"completion_tokens\":60"), "{answer}");
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn a_signal_ends_a_server_that_still_loads() {
    // Nothing is compiled yet, and that takes longer than anyone waits here.
    let cache = tempfile::tempdir().unwrap();
    let server = Server::loading(&root().join(REAL), &["--backend", "iree"], &[("MLXCEL_CACHE", cache.path())]);
    let begun = Instant::now();
    loop {
        let (status, answer) = server.send("GET /health", "");
        assert_eq!(status, 503, "{answer}");
        if answer.contains("compiling") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{answer}");
        thread::sleep(Duration::from_millis(20));
    }
    let (status, answer) = server.send("POST /v1/chat/completions", CHAT);
    assert!(status == 503 && answer.contains("\"code\":\"loading\"") && answer.contains("retry-after"), "{answer}");
    server.signal("-TERM");
    assert_eq!(server.ended().code(), Some(0));
}

/// A request that never ends by itself within the tests' patience.
const LONG: &str = r#"{"prompt":"One, two,","max_tokens":4000,"ignore_eos":true,"stream":true}"#;
const RUN: &str = "POST /v1/completions";

#[test]
fn faults_have_their_status_and_nothing_hangs() {
    let server =
        Server::start(&["--parallel", "1", "--max-queue", "1", "--ctx-size", "4096", "--request-timeout", "4"]);
    let huge = format!(r#"{{"prompt":"{}"}}"#, "word ".repeat(200_000));
    let deep = "[".repeat(100_000);
    let endless = format!(r#"{{"content":"{}"}}"#, "word ".repeat(200_000));
    let cases: [(&str, &str, u16, &str); 9] = [
        (RUN, "{\"prompt\": ", 400, "invalid_json"),
        (RUN, "\u{0}\u{1}", 400, "invalid_json"),
        (RUN, &deep, 400, "invalid_json"),
        (RUN, "[]", 400, "invalid_json"),
        (RUN, "", 400, "invalid_json"),
        (RUN, &huge, 400, "context_length_exceeded"),
        ("POST /tokenize", &endless, 400, "context_length_exceeded"),
        ("POST /v1/completions/../../etc/passwd", "", 404, "not_found"),
        ("DELETE /v1/models", "", 405, "method_not_allowed"),
    ];
    for (request, body, expected, code) in cases {
        let (status, answer) = server.send(request, body);
        assert_eq!(status, expected, "{request} {body:.40}: {answer}");
        assert!(answer.contains(&format!("\"code\":{code:?}")), "{request} {body:.40}: {answer}");
    }
    // Told from its length alone: nothing is tokenized.
    let (_, answer) = server.send(RUN, &huge);
    assert!(answer.contains("has at least ") && answer.contains("the context holds 4096"), "{answer}");

    // Without a key, the name that a page of another site gave this address is none to ask by.
    for (host, expected) in [("evil.example:80", "403 "), ("localhost", "200 "), ("[::1]:80", "200 ")] {
        let mut answer = String::new();
        server.ask_as(host, "GET /v1/models", "").read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{host}: {answer}");
    }

    // One runs, one waits, the third is told when to come again. Whoever hangs up makes room.
    let held: Vec<TcpStream> = (0..2).map(|_| server.ask(RUN, LONG)).collect();
    server.until_counted("vllm:num_requests_running 1");
    server.until_counted("vllm:num_requests_waiting 1");
    let (status, answer) = server.send(RUN, LONG);
    assert_eq!(status, 429, "{answer}");
    assert!(answer.contains("\r\nretry-after: ") && answer.contains("queue_full"), "{answer}");
    drop(held);
    server.until_counted("vllm:num_requests_running 0");

    // What takes too long says so, in a stream at its end.
    let (status, answer) = server.send(RUN, &LONG.replace("true}", "false}"));
    assert_eq!(status, 504, "{answer}");
    let (status, answer) = server.send(RUN, LONG);
    assert!(status == 200 && answer.contains("\"code\":\"timeout\"") && !answer.contains("[DONE]"), "{answer}");
    assert_eq!(server.send("GET /health", "").0, 200);
}

#[test]
fn what_cannot_be_served_is_said_before_a_port_is_taken() {
    let cases: [(&[&str], &str); 5] = [
        (&[], "no model: give its directory"),
        (&["--model", "/nowhere"], "/nowhere is no directory"),
        (&["--model", ".", "--config", "/nowhere.yaml"], "reading the configuration /nowhere.yaml"),
        (&["--model", ".", "--allow-local-files", "/nowhere"], "--allow-local-files /nowhere"),
        (&["--port", "70000"], "70000 is not in"),
    ];
    for (arguments, told) in cases {
        let run = Command::new(env!("CARGO_BIN_EXE_mlxcel")).arg("serve").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(told), "{arguments:?}: {said}");
    }
}

/// Asks the page until it says yes.
fn becomes(page: &Page, browser: &mut Browser, script: &str) {
    let begun = Instant::now();
    while page.seen(browser, script) != Value::Bool(true) {
        let shown = page.seen(browser, "document.body.innerText");
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {script}\n{shown}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_page_shows_pictures() {
    let model = tempfile::tempdir().unwrap();
    small_vlm(model.path());
    let server = Server::of(model.path(), &["--alias", "eyes"]);
    let mut browser = Browser::start();
    let page = browser.visit(&server.url(), Scheme::Light, 800);
    becomes(&page, &mut browser, "$('model').textContent.startsWith('eyes') && !$('see').hidden");
    let file = fs::read(root().join("runtime/pictures/tests/pooled_crops").join(PICTURE)).unwrap();
    // Dropped once, pasted once, and one of them taken back.
    for (event, holder) in [
        ("DragEvent('drop', { dataTransfer: data })", "drop"),
        ("ClipboardEvent('paste', { clipboardData: data })", "paste"),
    ] {
        let script = format!(
            "(() => {{ const bytes = Uint8Array.from(atob({:?}), (one) => one.charCodeAt(0)); const data = new DataTransfer(); \
             data.items.add(new File([bytes], 'a.png', {{ type: 'image/png' }})); document.dispatchEvent(new {event}); return true; }})()",
            STANDARD.encode(&file)
        );
        assert_eq!(page.seen(&mut browser, &script), Value::Bool(true), "{holder}");
    }
    becomes(&page, &mut browser, "document.querySelectorAll('#chosen img').length === 2");
    page.seen(
        &mut browser,
        "document.querySelector('#chosen button').click(); $('most').value = 8; $('temperature').value = 0",
    );
    ask(&page, &mut browser, "What is this?");
    becomes(&page, &mut browser, "document.querySelectorAll('article.user img').length === 1");
    becomes(
        &page,
        &mut browser,
        "document.querySelectorAll('.note').length === 1 && !document.querySelector('.failed')",
    );
    becomes(&page, &mut browser, "messages.length === 2 && messages[0].content[0].type === 'image_url'");
}

fn ask(page: &Page, browser: &mut Browser, text: &str) {
    let script = format!("$('text').value = {text:?}; $('form').requestSubmit(); true");
    assert_eq!(page.seen(browser, &script), Value::Bool(true));
}

#[test]
fn the_page_chats() {
    let server = Server::start(&["--ctx-size", "1024"]);
    let mut browser = Browser::start();
    for (scheme, width) in [(Scheme::Light, 1280), (Scheme::Dark, 420)] {
        let page = browser.visit(&server.url(), scheme, width);
        assert_eq!(page.complaints, [""; 0]);
        becomes(&page, &mut browser, "$('model').textContent.startsWith('smollm2-135m-instruct (mlx')");
        assert!(page.requests.iter().all(|address| address.starts_with(&server.url())), "{:?}", page.requests);
        page.seen(&mut browser, "$('temperature').value = 0; $('most').value = 24");
        ask(&page, &mut browser, "What is the capital of France?");
        becomes(&page, &mut browser, "document.querySelectorAll('.note').length === 1");
        becomes(&page, &mut browser, "document.querySelector('article.assistant p').textContent.includes('Paris')");
        becomes(
            &page,
            &mut browser,
            "/[0-9] tokens · [0-9.]+ tok\\/s/.test(document.querySelector('.note').textContent)",
        );
        // What was said before is part of the next question, and markup is text.
        ask(&page, &mut browser, "<img src=x onerror=alert(1)> And of Italy?");
        becomes(&page, &mut browser, "document.querySelectorAll('.note').length === 2");
        becomes(&page, &mut browser, "messages.length === 4 && document.querySelectorAll('article img').length === 0");
        // Stopping ends the answer here and in the engine.
        page.seen(&mut browser, "$('most').value = 800; $('temperature').value = 1.5");
        ask(&page, &mut browser, "Count to one thousand.");
        becomes(&page, &mut browser, "document.querySelectorAll('article.assistant p')[2].textContent.length > 5");
        page.seen(&mut browser, "$('stop').click()");
        becomes(
            &page,
            &mut browser,
            "document.querySelectorAll('.note')[2].textContent.includes('stopped') && !$('send').hidden",
        );
        // What an answer still brings when its chat was left is for nobody.
        ask(&page, &mut browser, "Count to one thousand.");
        becomes(&page, &mut browser, "document.querySelectorAll('article.assistant p')[3].textContent.length > 5");
        page.seen(&mut browser, "$('clear').click()");
        let later = "new Promise((resolve) => setTimeout(() => resolve([messages.length, $('talk').children.length, \
                     $('send').hidden, $('said').textContent].join()), 500))";
        assert_eq!(page.seen(&mut browser, later), Value::from("0,0,false,"));
        // A picture is refused by a model that sees none, in words that are read aloud.
        let drop = "(() => { const data = new DataTransfer(); data.items.add(new File(['x'], 'a.png', { type: 'image/png' })); \
                    document.dispatchEvent(new DragEvent('drop', { dataTransfer: data })); return $('said').textContent; })()";
        assert_eq!(page.seen(&mut browser, drop), Value::from("This model sees no images."));
        // Every control has a name, and the page itself does not scroll sideways.
        let unnamed = "[...document.querySelectorAll('input, textarea, button')].filter((one) => \
                       !(one.labels?.length || one.textContent || one.getAttribute('aria-label'))).length";
        assert_eq!(page.seen(&mut browser, unnamed), Value::from(0));
        becomes(&page, &mut browser, "document.documentElement.scrollWidth <= window.innerWidth");
        let paper = page.shot(&mut browser).luminance_at(2, 2);
        assert_eq!(paper > 0.5, scheme == Scheme::Light, "the paper's luminance is {paper}");
    }
    server.until("/health", 200);
    server.signal("-INT");
    assert_eq!(server.ended().code(), Some(0));
}
