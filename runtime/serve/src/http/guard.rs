//! What stands before the handlers: keys, bodies, and errors in the one form, those of the framework too.

use std::{any::Any, net::IpAddr, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt;
use subtle::{Choice, ConstantTimeEq};

use super::App;
use crate::{
    api::{ApiError, body},
    engine::Place,
};

/// How long a client may take to send a body.
const BODY: Duration = Duration::from_secs(60);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json(status, &self.body());
        if let Some(seconds) = self.retry_seconds() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

pub fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => {
            tracing::error!("an answer was not written: {error}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// A request that has a place in the line, and its body.
pub struct Asked {
    pub place: Place,
    body: Vec<u8>,
}

impl Asked {
    /// The body, which is JSON by its header, once there is memory for what it is parsed into.
    pub fn read(&mut self) -> Result<Vec<u8>, ApiError> {
        self.place.hold(body::parsed_size(&self.body))?;
        Ok(std::mem::take(&mut self.body))
    }
}

/// Takes a request with JSON in: a place first, then its body, of the right type, within the limits, in time.
pub async fn admit(app: &App, request: Request) -> Result<Asked, ApiError> {
    if !is_json(request.headers()) {
        let message = "the body must be JSON, with the header `Content-Type: application/json`";
        return Err(ApiError::client(415, "unsupported_media_type", message));
    }
    let too_large = || {
        let message = format!("the body has more than {} bytes (--max-body-bytes)", app.most_body);
        ApiError::client(413, "body_too_large", message)
    };
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > app.most_body) {
        return Err(too_large());
    }
    let mut asked = Asked { place: app.engine.reserve()?, body: Vec::new() };
    let mut stream = request.into_body();
    let arrive = async {
        while let Some(frame) = stream.frame().await {
            let frame = frame.map_err(|error| ApiError::invalid(format!("the body did not arrive: {error}")))?;
            // Trailers say nothing.
            let Ok(data) = frame.into_data() else { continue };
            if data.len() > app.most_body - asked.body.len() {
                return Err(too_large());
            }
            asked.place.hold(data.len())?;
            asked.body.extend_from_slice(&data);
        }
        Ok(asked)
    };
    let late = || ApiError::client(408, "body_timeout", format!("the body took more than {} s", BODY.as_secs()));
    tokio::time::timeout(BODY, arrive).await.unwrap_or_else(|_| Err(late()))
}

fn is_json(headers: &HeaderMap) -> bool {
    let stated = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    stated.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// Without keys, a page of another site could ask through a name of its own that it has lead here (DNS rebinding): browsers say
/// that name. Whoever says none is no browser.
pub async fn host(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let stated = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or_default());
    if app.keys.is_empty() && !stated.is_none_or(is_local) {
        let message = "without a key this server answers to an IP address or `localhost` alone; start it with --api-key \
                       to use another name";
        return ApiError::client(403, "host_not_allowed", message).into_response();
    }
    next.run(request).await
}

fn is_local(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

/// Lets nobody pass without one of the keys, where there are any.
pub async fn key(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let bearer = given.and_then(|value| {
        let (scheme, key) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    if !app.keys.is_empty() && !bearer.is_some_and(|key| one_of(&app.keys, key)) {
        let message = match bearer {
            Some(_) => "the API key is not one of this server's",
            None => "this server asks for a key: `Authorization: Bearer KEY`",
        };
        return ApiError::client(401, "invalid_api_key", message).into_response();
    }
    next.run(request).await
}

/// Takes as long for any key of one length: nothing can be learnt from the time.
fn one_of(keys: &[String], given: &[u8]) -> bool {
    let same = keys.iter().map(|key| key.as_bytes().ct_eq(given)).fold(Choice::from(0), |any, one| any | one);
    same.into()
}

pub async fn no_such_route(request: Request) -> Response {
    let message = format!("there is nothing at {}; /openapi.json lists what there is", request.uri().path());
    ApiError::client(404, "not_found", message).into_response()
}

pub async fn no_such_method(request: Request) -> Response {
    let message = format!("{} does not take {}", request.uri().path(), request.method());
    ApiError::client(405, "method_not_allowed", message).into_response()
}

/// The answer of a handler that panicked.
pub fn panicked(cause: Box<dyn Any + Send + 'static>) -> Response<Body> {
    let said = cause.downcast_ref::<String>().map(String::as_str).or_else(|| cause.downcast_ref::<&str>().copied());
    tracing::error!("a handler panicked: {}", said.unwrap_or("it did not say why"));
    ApiError::server("the server made a mistake; its log says which").into_response()
}

#[cfg(test)]
mod tests {
    use super::{is_local, one_of};

    #[test]
    fn a_host_is_an_address_or_localhost() {
        for good in ["localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "[::1]", "10.0.0.3:80"]
        {
            assert!(is_local(good), "{good:?}");
        }
        for bad in [
            "",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "a b",
            "1.2.3",
        ] {
            assert!(!is_local(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_key_is_one_of_the_keys_or_not() {
        let keys = ["one".to_owned(), "two".to_owned()];
        for (given, good) in
            [("one", true), ("two", true), ("on", false), ("oneone", false), ("", false), ("ONE", false)]
        {
            assert_eq!(one_of(&keys, given.as_bytes()), good, "{given:?}");
        }
    }
}
