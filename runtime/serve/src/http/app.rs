//! What every handler shares.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::Value;

use crate::{
    api::{
        ApiError,
        generation::{Known, arbitrary},
    },
    engine::{Engine, Health, Loaded},
    images::Rules,
    request::Refusal,
    templates::Templates,
};

pub struct App {
    pub engine: Engine,
    /// The name of the model, and what else it may be called.
    pub names: Vec<String>,
    pub keys: Vec<String>,
    pub templates: Templates,
    pub rules: Rules,
    pub timeout: Duration,
    pub most_body: usize,
    pub metrics: PrometheusHandle,
    /// What the server was started with, for `/props`; no secrets.
    pub told: Value,
    /// The OpenAPI document, which describes the routes that this serves.
    pub document: String,
    pub started: u64,
}

impl App {
    /// What is known of the model once it is open.
    pub fn loaded(&self) -> Result<Arc<Loaded>, ApiError> {
        match (self.engine.model(), self.engine.health()) {
            (_, Health::Failed(why)) => Err(Refusal::Failed(why).into()),
            (_, Health::Draining) => Err(Refusal::Draining.into()),
            (Some(loaded), Health::Ready | Health::Loading(_)) => Ok(loaded),
            (None, Health::Loading(what)) => Err(Refusal::Loading(what).into()),
            (None, Health::Ready) => Err(ApiError::server("the engine is ready without a model")),
        }
    }

    pub fn known(loaded: &Loaded) -> Known {
        Known { logits: loaded.vocabulary, ids: loaded.token_ids }
    }

    /// Refuses a model that is not the one that is served.
    pub fn named(&self, model: Option<&str>) -> Result<(), ApiError> {
        match model {
            Some(model) if !self.names.iter().any(|name| name == model) => {
                let message = format!("there is no model {model:?} here; this server has {}", self.names.join(", "));
                Err(ApiError::client(404, "model_not_found", message).of("model"))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    pub fn deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(self.timeout)
    }

    /// What every answer begins with.
    pub fn head(&self, prefix: &str) -> Head {
        Head { id: format!("{prefix}-{:016x}", arbitrary()), created: now(), model: self.name().to_owned() }
    }
}

#[derive(Debug, Clone)]
pub struct Head {
    pub id: String,
    pub created: u64,
    pub model: String,
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
