//! An editor's side of a session, and places in texts as the protocol writes them.

use std::{
    collections::VecDeque,
    thread::{self, JoinHandle},
    time::Duration,
};

use lsp_server::{Connection, Message, Notification, Request, Response};
use mgraph_tools::lsp::serve;
use serde_json::{Value, json};

pub const TOY: &str = "file:///families/toy.mgraph";
pub const TEXT: &str = include_str!("toy.mgraph");

pub struct Client {
    pub connection: Connection,
    pub server: JoinHandle<bool>,
    ids: i32,
    /// Notifications that came while an answer was awaited.
    heard: VecDeque<Notification>,
}

impl Client {
    pub fn before_initialize() -> Self {
        let (server, connection) = Connection::memory();
        let server = thread::spawn(move || serve(server));
        Client { connection, server, ids: 0, heard: VecDeque::new() }
    }

    pub fn start() -> Self {
        let mut client = Client::before_initialize();
        client.initialize();
        client
    }

    pub fn initialize(&mut self) {
        let answer = self.ask("initialize", json!({ "capabilities": {} }));
        assert_eq!(answer["capabilities"]["hoverProvider"], true);
        self.tell("initialized", json!({}));
    }

    fn next(&self) -> Message {
        self.connection.receiver.recv_timeout(Duration::from_secs(120)).expect("the server says something")
    }

    pub fn tell(&self, method: &str, params: Value) {
        let notification = Notification { method: method.into(), params };
        self.connection.sender.send(notification.into()).expect("the server listens");
    }

    fn request(&mut self, method: &str, params: Value) -> Response {
        self.ids += 1;
        let request = Request { id: self.ids.into(), method: method.into(), params };
        self.connection.sender.send(request.into()).expect("the server listens");
        loop {
            match self.next() {
                Message::Response(response) => {
                    assert_eq!(response.id, self.ids.into());
                    return response;
                }
                Message::Notification(notification) => self.heard.push_back(notification),
                Message::Request(request) => panic!("the server asks {request:?}"),
            }
        }
    }

    #[track_caller]
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let response = self.request(method, params);
        assert!(response.error.is_none(), "{method}: {:?}", response.error);
        response.result.unwrap_or_default()
    }

    #[track_caller]
    pub fn refusal(&mut self, method: &str, params: Value) -> (i32, String) {
        let error = self.request(method, params).error.expect("an error");
        (error.code, error.message)
    }

    /// Asks about the place of `^` in `marked`, which stands once in `text` without it.
    #[track_caller]
    pub fn at(&mut self, method: &str, text: &str, marked: &str, more: Value) -> Value {
        self.ask(method, at(text, marked, more))
    }

    pub fn open(&self, uri: &str, text: &str) {
        let document = json!({ "uri": uri, "languageId": "mgraph", "version": 1, "text": text });
        self.tell("textDocument/didOpen", json!({ "textDocument": document }));
    }

    pub fn change(&self, uri: &str, changes: Value) {
        let document = json!({ "uri": uri, "version": 2 });
        self.tell("textDocument/didChange", json!({ "textDocument": document, "contentChanges": changes }));
    }

    /// The next diagnostics: whose, and `line:character code message` of each.
    pub fn diagnostics(&mut self) -> (String, Vec<String>) {
        let notification = self.heard.pop_front().unwrap_or_else(|| match self.next() {
            Message::Notification(notification) => notification,
            other => panic!("not a notification: {other:?}"),
        });
        assert_eq!(notification.method, "textDocument/publishDiagnostics");
        let shown = notification.params["diagnostics"].as_array().expect("a list").iter().map(|d| {
            let start = &d["range"]["start"];
            format!("{}:{} {} {}", start["line"], start["character"], text_of(&d["code"]), text_of(&d["message"]))
        });
        (text_of(&notification.params["uri"]), shown.collect())
    }

    /// Says goodbye; whether the server took it as orderly.
    pub fn finish(mut self) -> bool {
        assert_eq!(self.ask("shutdown", Value::Null), Value::Null);
        let (code, _) = self.refusal("textDocument/hover", json!({}));
        assert_eq!(code, -32600);
        self.tell("exit", Value::Null);
        self.server.join().expect("the server does not panic")
    }
}

pub fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

#[track_caller]
pub fn at(text: &str, marked: &str, more: Value) -> Value {
    let (before, after) = marked.split_once('^').expect("a marker");
    let whole = format!("{before}{after}");
    assert_eq!(text.matches(&whole).count(), 1, "{whole:?} stands once");
    let offset = text.find(&whole).map_or(0, |start| start + before.len());
    let mut params = json!({ "textDocument": { "uri": TOY }, "position": position(text, offset) });
    if let (Some(params), Some(more)) = (params.as_object_mut(), more.as_object()) {
        params.extend(more.clone());
    }
    params
}

pub fn position(text: &str, offset: usize) -> Value {
    let before = &text[..offset];
    let line = before.rsplit('\n').next().unwrap_or_default();
    json!({ "line": before.matches('\n').count(), "character": line.encode_utf16().count() })
}

/// What stands at a range of the protocol.
#[track_caller]
pub fn marked_by<'t>(text: &'t str, range: &Value) -> &'t str {
    &text[place(text, range)]
}

/// The text after one edit.
#[track_caller]
pub fn edited(text: &str, edit: &Value) -> String {
    let mut edited = text.to_string();
    edited.replace_range(place(text, &edit["range"]), edit["newText"].as_str().expect("a text"));
    edited
}

#[track_caller]
fn place(text: &str, range: &Value) -> std::ops::Range<usize> {
    let find = |place: &Value| (0..=text.len()).find(|&o| text.is_char_boundary(o) && position(text, o) == *place);
    find(&range["start"]).expect("a place")..find(&range["end"]).expect("a place")
}
