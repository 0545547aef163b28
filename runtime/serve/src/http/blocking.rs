//! Work that computes: parsing, templates, tokenizing, decoding pictures. It runs beside the threads that serve connections.

use crate::api::ApiError;

pub async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!("a request's preparation failed: {error}");
            Err(ApiError::server("the server made a mistake; its log says which"))
        }
    }
}
