//! How the server is: health, readiness, slots, metrics, what it serves and what it was started with.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{App, guard};
use crate::{
    api::{ApiError, error::ErrorBody},
    engine::{Health, Slot, SlotWork},
};

#[derive(Serialize, ToSchema)]
pub struct HealthBody {
    /// `ok`, `loading`, `draining` or `failed`.
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

fn told(health: Health) -> HealthBody {
    match health {
        Health::Ready => HealthBody { status: "ok", detail: None },
        Health::Loading(what) => HealthBody { status: "loading", detail: Some(what) },
        Health::Draining => HealthBody { status: "draining", detail: None },
        Health::Failed(why) => HealthBody { status: "failed", detail: Some(why) },
    }
}

fn answer(app: &App, good: impl Fn(&Health) -> bool) -> Response {
    let health = app.engine.health();
    let status = if good(&health) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    guard::json(status, &told(health))
}

/// Whether the engine works
#[utoipa::path(
    get,
    path = "/health",
    responses((status = 200, description = "It does", body = HealthBody), (status = 503, description = "It still loads, or has failed", body = HealthBody))
)]
pub async fn health(State(app): State<Arc<App>>) -> Response {
    answer(&app, |health| matches!(health, Health::Ready | Health::Draining))
}

/// Whether requests are taken
#[utoipa::path(
    get,
    path = "/ready",
    responses((status = 200, description = "They are", body = HealthBody), (status = 503, description = "It still loads, has failed, or shuts down", body = HealthBody))
)]
pub async fn ready(State(app): State<Arc<App>>) -> Response {
    answer(&app, |health| matches!(health, Health::Ready))
}

#[derive(Serialize, ToSchema)]
pub struct SlotBody {
    pub id: usize,
    /// `idle`, `prefill` or `decode`.
    pub state: &'static str,
    pub is_processing: bool,
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
    /// Positions whose states are kept, for a request that begins in the same way.
    pub held: usize,
}

impl SlotBody {
    fn of((id, slot): (usize, Slot)) -> SlotBody {
        SlotBody {
            id,
            state: match slot.work {
                SlotWork::Idle => "idle",
                SlotWork::Prefill => "prefill",
                SlotWork::Decode => "decode",
            },
            is_processing: slot.work != SlotWork::Idle,
            prompt_tokens: slot.prompt_tokens,
            completion_tokens: slot.answer_tokens,
            held: slot.held,
        }
    }
}

/// What each slot does
#[utoipa::path(get, path = "/slots", responses((status = 200, description = "One object for each", body = Vec<SlotBody>)))]
pub async fn slots(State(app): State<Arc<App>>) -> Response {
    let slots: Vec<SlotBody> = app.engine.slots().into_iter().enumerate().map(SlotBody::of).collect();
    guard::json(StatusCode::OK, &slots)
}

/// Counters for Prometheus
#[utoipa::path(get, path = "/metrics", responses((status = 200, description = "In its text format", body = String)))]
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    app.metrics.run_upkeep();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.render()).into_response()
}

/// What the server was started with
#[utoipa::path(get, path = "/props", responses((status = 200, description = "Settings, and facts of the model once it is open", body = Object)))]
pub async fn props(State(app): State<Arc<App>>) -> Response {
    let mut told = app.told.clone();
    if let Some(loaded) = app.engine.model() {
        told["context"] = json!(loaded.capacity);
        told["vocabulary"] = json!(loaded.vocabulary);
        told["family"] = json!(loaded.model.program.name);
        told["images"] = json!(loaded.requests.can_see().is_ok());
        told["chat_template"] = json!(loaded.requests.template().map(|template| template.source(false)));
    }
    guard::json(StatusCode::OK, &told)
}

#[derive(Serialize, ToSchema)]
pub struct ModelList {
    pub object: &'static str,
    pub data: Vec<ModelEntry>,
}

#[derive(Serialize, ToSchema)]
pub struct ModelEntry {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub owned_by: &'static str,
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Option<u64>)]
    pub max_model_len: Value,
}

fn entry(app: &App, name: &str) -> ModelEntry {
    let length = app.engine.model().map_or(Value::Null, |loaded| json!(loaded.capacity));
    ModelEntry { id: name.to_owned(), object: "model", created: app.started, owned_by: "mlxcel", max_model_len: length }
}

/// The model, under each of its names
#[utoipa::path(get, path = "/v1/models", responses((status = 200, description = "The list", body = ModelList)))]
pub async fn models(State(app): State<Arc<App>>) -> Response {
    let data = app.names.iter().map(|name| entry(&app, name)).collect();
    guard::json(StatusCode::OK, &ModelList { object: "list", data })
}

/// The model by one of its names
#[utoipa::path(
    get,
    path = "/v1/models/{model}",
    params(("model" = String, Path, description = "Its name")),
    responses((status = 200, description = "It", body = ModelEntry), (status = 404, description = "Another name", body = ErrorBody))
)]
pub async fn model(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, ApiError> {
    app.named(Some(&name))?;
    Ok(guard::json(StatusCode::OK, &entry(&app, &name)))
}
