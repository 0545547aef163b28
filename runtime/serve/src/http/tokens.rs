//! `POST /tokenize` and `/detokenize`.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{App, blocking, guard};
use crate::api::{ApiError, body, error::ErrorBody};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Text {
    pub content: String,
    /// Also the tokens that the tokenizer puts around a prompt.
    #[serde(default)]
    pub add_special: bool,
    /// Also the text of each token.
    #[serde(default)]
    pub with_pieces: bool,
}

#[derive(Serialize, ToSchema)]
pub struct Tokens {
    pub tokens: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pieces: Option<Vec<String>>,
    pub count: usize,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ids {
    pub tokens: Vec<u32>,
}

#[derive(Serialize, ToSchema)]
pub struct Detokenized {
    pub content: String,
}

/// The tokens of a text
#[utoipa::path(
    post,
    path = "/tokenize",
    request_body = Text,
    responses((status = 200, description = "The tokens", body = Tokens), (status = "4XX", description = "A request that is wrong", body = ErrorBody))
)]
pub async fn tokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let mut asked = guard::admit(&app, request).await?;
    let tokens = blocking::run(move || {
        let loaded = app.loaded()?;
        let mut object = body::object(&asked.read()?)?;
        let text: Text = body::take(&mut object)?;
        body::nothing_left(&object, &body::fields::<Text>())?;
        loaded.fits(&text.content)?;
        let tokenizer = loaded.requests.tokenizer();
        let refused = |error| ApiError::parameter("content", format!("{error}"));
        let tokens = tokenizer.encode(&text.content, text.add_special).map_err(refused)?;
        let piece = |token: &u32| tokenizer.text(&[*token]).unwrap_or_default();
        let pieces = text.with_pieces.then(|| tokens.iter().map(piece).collect());
        Ok(Tokens { count: tokens.len(), tokens, pieces })
    })
    .await?;
    Ok(guard::json(StatusCode::OK, &tokens))
}

/// The text of tokens
#[utoipa::path(
    post,
    path = "/detokenize",
    request_body = Ids,
    responses((status = 200, description = "The text", body = Detokenized), (status = "4XX", description = "A request that is wrong", body = ErrorBody))
)]
pub async fn detokenize(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let mut asked = guard::admit(&app, request).await?;
    let content = blocking::run(move || {
        let loaded = app.loaded()?;
        let mut object = body::object(&asked.read()?)?;
        let ids: Ids = body::take(&mut object)?;
        body::nothing_left(&object, &body::fields::<Ids>())?;
        if let Some(outside) = ids.tokens.iter().find(|token| **token as usize >= loaded.token_ids) {
            let message = format!("tokens: there is no token {outside}; the model has {}", loaded.token_ids);
            return Err(ApiError::parameter("tokens", message));
        }
        let refused = |error| ApiError::parameter("tokens", format!("{error}"));
        loaded.requests.tokenizer().text(&ids.tokens).map_err(refused)
    })
    .await?;
    Ok(guard::json(StatusCode::OK, &Detokenized { content }))
}
