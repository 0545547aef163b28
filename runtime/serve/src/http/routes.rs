//! The inventory of routes: the router, the OpenAPI document and the book's table are all made of it.

use std::sync::Arc;

use axum::{Router, middleware};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::{
    InfoBuilder, OpenApi, OpenApiBuilder, PathItem,
    security::{Http, HttpAuthScheme, SecurityScheme},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{App, chat, completions, guard, log, page, state, tokens};

/// Routes that ask for a key, where there are keys.
fn keyed() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(chat::chat_completions))
        .routes(routes!(completions::completions))
        .routes(routes!(state::models))
        .routes(routes!(state::model))
        .routes(routes!(tokens::tokenize))
        .routes(routes!(tokens::detokenize))
        .routes(routes!(chat::apply_template))
        .routes(routes!(state::slots))
        .routes(routes!(state::metrics))
        .routes(routes!(state::props))
}

/// Routes that ask for none: nothing in them is of a request.
fn open() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(state::health))
        .routes(routes!(state::ready))
        .routes(routes!(page::openapi))
        .routes(routes!(page::page))
}

/// The document.
pub fn document() -> OpenApi {
    let info = InfoBuilder::new()
        .title("mlxcel serve")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("One model behind an interface that OpenAI's clients speak."));
    let mut document = OpenApiBuilder::new().info(info.build()).build();
    document.merge(keyed().into_openapi());
    document.merge(open().into_openapi());
    let key = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme("key", key);
    document
}

pub fn router(app: Arc<App>) -> Router {
    let (keyed, _) = keyed().split_for_parts();
    let (open, _) = open().split_for_parts();
    keyed
        .route_layer(middleware::from_fn_with_state(app.clone(), guard::key))
        .merge(open)
        .method_not_allowed_fallback(guard::no_such_method)
        .fallback(guard::no_such_route)
        .layer(middleware::from_fn_with_state(app.clone(), guard::host))
        .layer(CatchPanicLayer::custom(guard::panicked))
        .layer(middleware::from_fn(log::count))
        .with_state(app)
}

/// The inventory as the book has it.
pub fn table() -> String {
    let mut table = String::from("| route | key | |\n| --- | --- | --- |\n");
    let asks: Vec<String> = keyed().into_openapi().paths.paths.keys().cloned().collect();
    for (path, item) in &document().paths.paths {
        let PathItem { get, post, .. } = item;
        for (method, operation) in [("GET", get), ("POST", post)] {
            let Some(operation) = operation else { continue };
            let key = if asks.contains(path) { "yes" } else { "no" };
            let summary = operation.summary.as_deref().unwrap_or_default();
            table.push_str(&format!("| `{method} {path}` | {key} | {summary} |\n"));
        }
    }
    table
}
