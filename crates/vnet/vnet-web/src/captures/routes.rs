//! A page's requests about running and ended captures.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::Captures;
use crate::answers::{answer, event_query, refusal};

type CapturesState = State<Arc<Captures>>;

/// The routes for running and ended captures.
pub fn routes(captures: Arc<Captures>) -> Router {
    Router::new()
        .route("/v1/captures/{id}", get(seen).delete(forget))
        .route("/v1/captures/{id}/end", post(end))
        .route("/v1/captures/{id}/pcapng", get(file))
        .with_state(captures)
}

async fn seen(
    State(captures): CapturesState,
    Path(id): Path<u64>,
    RawQuery(query): RawQuery,
) -> Response {
    answer(move || {
        let (since, wait) = event_query(query.as_deref().unwrap_or_default())?;
        captures.seen(id, since, wait)
    })
    .await
}

async fn end(State(captures): CapturesState, Path(id): Path<u64>) -> Response {
    answer(move || captures.end(id)).await
}

async fn forget(State(captures): CapturesState, Path(id): Path<u64>) -> Response {
    answer(move || captures.forget(id)).await
}

async fn file(State(captures): CapturesState, Path(id): Path<u64>) -> Response {
    match captures.file(id) {
        Ok(file) => ([(header::CONTENT_TYPE, "application/x-pcapng")], file).into_response(),
        Err(error) => refusal(&error),
    }
}
