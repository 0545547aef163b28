//! The chat page and the OpenAPI document: files that the binary has in it.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderName, header},
    response::{IntoResponse, Response},
};

use super::App;

const PAGE: &str = include_str!("../page.html");

/// The page speaks to this server alone, runs its own script alone, and may not be framed.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A page to chat on
#[utoipa::path(get, path = "/", responses((status = 200, description = "HTML", body = String)))]
pub async fn page() -> Response {
    let headers: [(HeaderName, &str); 4] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, PAGE).into_response()
}

/// This list, as an OpenAPI document
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub async fn openapi(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], app.document.clone()).into_response()
}
