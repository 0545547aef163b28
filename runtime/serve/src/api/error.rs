//! What a client is told when a request is refused or fails: a status and OpenAI's error object. Knows nothing of axum.

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::request::{Failure, Refusal};

/// A request that is not answered.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    pub status: u16,
    pub detail: Detail,
    pub retry_after: Option<Duration>,
}

/// The body of every answer that is an error.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ErrorBody {
    pub error: Detail,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Detail {
    /// A sentence for people: what, where, what was expected.
    pub message: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The parameter that is wrong, as a path: `messages[0].content`.
    pub param: Option<String>,
    pub code: Option<&'static str>,
}

impl ApiError {
    fn new(status: u16, kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError {
            status,
            detail: Detail { message: message.into(), kind, param: None, code: None },
            retry_after: None,
        }
    }

    /// 400, of no parameter in particular.
    pub fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "invalid_request_error", message)
    }

    /// 400, of one parameter.
    pub fn parameter(path: impl Into<String>, message: impl Into<String>) -> ApiError {
        let error = ApiError::invalid(message);
        ApiError { detail: Detail { param: Some(path.into()), code: Some("invalid_value"), ..error.detail }, ..error }
    }

    /// Another status than 400 for what is the client's mistake.
    pub fn client(status: u16, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::new(status, "invalid_request_error", message).coded(code)
    }

    pub fn unavailable(code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::new(503, "service_unavailable", message).coded(code)
    }

    /// 500: nothing that the client could change.
    pub fn server(message: impl Into<String>) -> ApiError {
        ApiError::new(500, "server_error", message)
    }

    pub fn coded(mut self, code: &'static str) -> ApiError {
        self.detail.code = Some(code);
        self
    }

    pub fn of(mut self, parameter: impl Into<String>) -> ApiError {
        self.detail.param = Some(parameter.into());
        self
    }

    fn after(mut self, wait: Duration) -> ApiError {
        self.retry_after = Some(wait);
        self
    }

    pub fn body(&self) -> ErrorBody {
        ErrorBody { error: self.detail.clone() }
    }

    /// Whole seconds, at least one.
    pub fn retry_seconds(&self) -> Option<u64> {
        self.retry_after.map(|wait| wait.as_secs_f64().ceil().max(1.0) as u64)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> ApiError {
        let message = refusal.to_string();
        match refusal {
            Refusal::Loading(_) => ApiError::unavailable("loading", message).after(Duration::from_secs(1)),
            Refusal::Draining => ApiError::unavailable("shutting_down", message),
            Refusal::Full { retry_after, .. } => {
                ApiError::new(429, "rate_limit_error", message).coded("queue_full").after(retry_after)
            }
            Refusal::Crowded { .. } => {
                ApiError::new(429, "rate_limit_error", message).coded("memory_full").after(Duration::from_secs(1))
            }
            Refusal::TooLarge { .. } => ApiError::client(413, "request_too_large", message),
            Refusal::TooMany { .. } => ApiError::parameter("n", message),
            Refusal::NeverFits { .. } | Refusal::TooLong { .. } => {
                ApiError::invalid(message).coded("context_length_exceeded")
            }
            Refusal::Invalid(_) => ApiError::invalid(message).coded("invalid_value"),
            Refusal::Failed(_) => ApiError::unavailable("engine_failed", message),
        }
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> ApiError {
        let message = failure.to_string();
        match failure {
            Failure::Deadline => ApiError::new(504, "timeout_error", message).coded("timeout"),
            Failure::Draining => ApiError::unavailable("shutting_down", message),
            Failure::Unanswerable(_) => ApiError::server(message).coded("unanswerable"),
            Failure::Engine(_) => ApiError::server(message).coded("engine_failed"),
            Failure::Stalled(_) => ApiError::new(504, "timeout_error", message).coded("engine_stalled"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ApiError;
    use crate::request::{Failure, Refusal};

    #[test]
    fn refusals_have_the_status_that_clients_act_on() {
        let full = |retry_after| Refusal::Full { running: 4, waiting: 8, retry_after };
        let never = Refusal::NeverFits { prompt: 9, max_tokens: 9, needed: 17, capacity: 16 };
        let crowded = Refusal::Crowded { held: 9, needed: 2, most: 10 };
        let cases: [(ApiError, u16, Option<&str>, Option<u64>); 12] = [
            (crowded.into(), 429, Some("memory_full"), Some(1)),
            (Refusal::TooLarge { needed: 11, most: 10 }.into(), 413, Some("request_too_large"), None),
            (Refusal::TooMany { answers: 9, most: 8 }.into(), 400, Some("invalid_value"), None),
            (Refusal::TooLong { least: 9, capacity: 8 }.into(), 400, Some("context_length_exceeded"), None),
            (Failure::Stalled("it hangs".into()).into(), 504, Some("engine_stalled"), None),
            (full(Duration::from_millis(20)).into(), 429, Some("queue_full"), Some(1)),
            (full(Duration::from_millis(2100)).into(), 429, Some("queue_full"), Some(3)),
            (never.into(), 400, Some("context_length_exceeded"), None),
            (Refusal::Loading("weights".into()).into(), 503, Some("loading"), Some(1)),
            (Refusal::Draining.into(), 503, Some("shutting_down"), None),
            (Refusal::Invalid("the schema has no type".into()).into(), 400, Some("invalid_value"), None),
            (Failure::Deadline.into(), 504, Some("timeout"), None),
        ];
        for (error, status, code, wait) in cases {
            assert_eq!((error.status, error.detail.code, error.retry_seconds()), (status, code, wait), "{error:?}");
        }
    }
}
