//! The conversation: a loop over messages. Changes only mark a text as changed; it is read when a request needs it, or
//! when nothing more is waiting, so that fast typing is not followed letter by letter.

use std::collections::HashMap;

use lsp_server::{Connection, ErrorCode, Message, Notification, Request, RequestId, Response};
use lsp_types::{
    CompletionOptions, CompletionParams, CompletionResponse, DidChangeTextDocumentParams, DidCloseTextDocumentParams,
    DidOpenTextDocumentParams, DocumentFormattingParams, DocumentSymbolParams, DocumentSymbolResponse,
    GotoDefinitionParams, GotoDefinitionResponse, HoverParams, HoverProviderCapability, InitializeResult, OneOf,
    PrepareRenameResponse, PublishDiagnosticsParams, ReferenceParams, RenameOptions, RenameParams, ServerCapabilities,
    ServerInfo, TextDocumentPositionParams, TextDocumentSyncCapability, TextDocumentSyncKind, Uri,
    WorkDoneProgressOptions,
    notification::{self, Notification as _},
    request::{self, Request as _},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{complete, document::Document, format, hover, names, report};

/// Answers until the client says `exit` or is gone; whether it said `shutdown` before.
pub fn serve(connection: Connection) -> bool {
    let mut server = Server { connection, documents: HashMap::new(), changed: Vec::new(), phase: Phase::New };
    while let Some(message) = server.next() {
        let done = match message {
            Message::Request(request) => {
                server.request(request);
                false
            }
            Message::Notification(notification) => server.notification(notification),
            // The server asks nothing.
            Message::Response(_) => false,
        };
        if done {
            break;
        }
    }
    server.phase == Phase::ShutDown
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Running,
    ShutDown,
}

struct Server {
    connection: Connection,
    /// By the text of their URI.
    documents: HashMap<String, Document>,
    /// What the client has not been told about.
    changed: Vec<String>,
    phase: Phase,
}

/// A request that cannot be answered.
struct Refused(ErrorCode, String);

impl Server {
    fn next(&mut self) -> Option<Message> {
        if let Ok(message) = self.connection.receiver.try_recv() {
            return Some(message);
        }
        for uri in std::mem::take(&mut self.changed) {
            if let Some(document) = self.documents.get_mut(&uri) {
                let report = report::diagnostics(document);
                self.publish(report);
            }
        }
        self.connection.receiver.recv().ok()
    }

    fn send(&self, message: impl Into<Message>) {
        // A client that is gone is noticed by the next `recv`.
        let _ = self.connection.sender.send(message.into());
    }

    fn publish(&self, report: PublishDiagnosticsParams) {
        if let Ok(params) = serde_json::to_value(report) {
            let method = notification::PublishDiagnostics::METHOD.to_string();
            self.send(Notification { method, params });
        }
    }

    fn request(&mut self, request: Request) {
        let Request { id, method, params } = request;
        match self.answer(&method, params) {
            Ok(result) => self.send(Response { id, result: Some(result), error: None }),
            Err(Refused(code, message)) => self.refuse(id, code, message),
        }
    }

    fn refuse(&self, id: RequestId, code: ErrorCode, message: String) {
        self.send(Response::new_err(id, code as i32, message));
    }

    fn answer(&mut self, method: &str, params: Value) -> Result<Value, Refused> {
        match (self.phase, method) {
            (Phase::New, request::Initialize::METHOD) => {
                self.phase = Phase::Running;
                return value(InitializeResult {
                    capabilities: capabilities(),
                    server_info: Some(ServerInfo {
                        name: "mlxcel".into(),
                        version: Some(env!("CARGO_PKG_VERSION").into()),
                    }),
                });
            }
            (Phase::New, _) => {
                return Err(Refused(ErrorCode::ServerNotInitialized, format!("`{method}` before `initialize`")));
            }
            (Phase::ShutDown, _) => {
                return Err(Refused(ErrorCode::InvalidRequest, format!("`{method}` after `shutdown`")));
            }
            (Phase::Running, _) => {}
        }
        match method {
            request::Shutdown::METHOD => {
                self.phase = Phase::ShutDown;
                Ok(Value::Null)
            }
            request::HoverRequest::METHOD => {
                let HoverParams { text_document_position_params: at, .. } = read(params)?;
                value(hover::hover(self.document(&at)?, at.position))
            }
            request::GotoDefinition::METHOD => {
                let GotoDefinitionParams { text_document_position_params: at, .. } = read(params)?;
                value(names::definition(self.document(&at)?, at.position).map(GotoDefinitionResponse::Scalar))
            }
            request::References::METHOD => {
                let ReferenceParams { text_document_position: at, context, .. } = read(params)?;
                value(names::references(self.document(&at)?, at.position, context.include_declaration))
            }
            request::PrepareRenameRequest::METHOD => {
                let at: TextDocumentPositionParams = read(params)?;
                let (range, placeholder) = names::renamable(self.document(&at)?, at.position).map_err(refused)?;
                value(PrepareRenameResponse::RangeWithPlaceholder { range, placeholder })
            }
            request::Rename::METHOD => {
                let RenameParams { text_document_position: at, new_name, .. } = read(params)?;
                let edits = names::rename(self.document(&at)?, at.position, &new_name).map_err(refused)?;
                value(serde_json::json!({ "changes": { at.text_document.uri.as_str(): edits } }))
            }
            request::Completion::METHOD => {
                let CompletionParams { text_document_position: at, .. } = read(params)?;
                value(CompletionResponse::Array(complete::complete(self.document(&at)?, at.position)))
            }
            request::DocumentSymbolRequest::METHOD => {
                let DocumentSymbolParams { text_document, .. } = read(params)?;
                value(DocumentSymbolResponse::Nested(names::outline(self.open(&text_document.uri)?)))
            }
            request::Formatting::METHOD => {
                let DocumentFormattingParams { text_document, .. } = read(params)?;
                value(format::format(self.open(&text_document.uri)?))
            }
            other => Err(Refused(ErrorCode::MethodNotFound, format!("there is no `{other}` here"))),
        }
    }

    fn document(&mut self, at: &TextDocumentPositionParams) -> Result<&mut Document, Refused> {
        self.open(&at.text_document.uri)
    }

    fn open(&mut self, uri: &Uri) -> Result<&mut Document, Refused> {
        self.documents
            .get_mut(uri.as_str())
            .ok_or_else(|| Refused(ErrorCode::InvalidParams, format!("{} is not open", uri.as_str())))
    }

    /// Whether this was the last message.
    fn notification(&mut self, notification: Notification) -> bool {
        let Notification { method, params } = notification;
        let understood = match method.as_str() {
            notification::Exit::METHOD => return true,
            _ if self.phase != Phase::Running => Ok(()),
            notification::DidOpenTextDocument::METHOD => read(params).map(|params| {
                let DidOpenTextDocumentParams { text_document: opened } = params;
                let uri = opened.uri.as_str().to_string();
                let document = Document::new(opened.uri, opened.version, opened.text);
                self.documents.insert(uri.clone(), document);
                self.mark(uri);
            }),
            notification::DidChangeTextDocument::METHOD => read(params).map(|params| {
                let DidChangeTextDocumentParams { text_document, content_changes } = params;
                let uri = text_document.uri.as_str().to_string();
                if let Some(document) = self.documents.get_mut(&uri) {
                    document.change(text_document.version, content_changes);
                    self.mark(uri);
                }
            }),
            notification::DidCloseTextDocument::METHOD => read(params).map(|params| {
                let DidCloseTextDocumentParams { text_document } = params;
                if self.documents.remove(text_document.uri.as_str()).is_some() {
                    let diagnostics = Vec::new();
                    self.publish(PublishDiagnosticsParams { uri: text_document.uri, diagnostics, version: None });
                }
            }),
            _ => Ok(()),
        };
        if let Err(Refused(_, problem)) = understood {
            eprintln!("mlxcel lsp: `{method}` was dropped: {problem}");
        }
        false
    }

    fn mark(&mut self, uri: String) {
        if !self.changed.contains(&uri) {
            self.changed.push(uri);
        }
    }
}

fn capabilities() -> ServerCapabilities {
    ServerCapabilities {
        text_document_sync: Some(TextDocumentSyncCapability::Kind(TextDocumentSyncKind::INCREMENTAL)),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        definition_provider: Some(OneOf::Left(true)),
        references_provider: Some(OneOf::Left(true)),
        rename_provider: Some(OneOf::Right(RenameOptions {
            prepare_provider: Some(true),
            work_done_progress_options: WorkDoneProgressOptions::default(),
        })),
        document_formatting_provider: Some(OneOf::Left(true)),
        document_symbol_provider: Some(OneOf::Left(true)),
        completion_provider: Some(CompletionOptions {
            trigger_characters: Some(vec![".".into()]),
            ..CompletionOptions::default()
        }),
        ..ServerCapabilities::default()
    }
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, Refused> {
    serde_json::from_value(params).map_err(|error| Refused(ErrorCode::InvalidParams, error.to_string()))
}

fn value(answer: impl Serialize) -> Result<Value, Refused> {
    serde_json::to_value(answer).map_err(|error| Refused(ErrorCode::InternalError, error.to_string()))
}

fn refused(why: String) -> Refused {
    Refused(ErrorCode::RequestFailed, why)
}
