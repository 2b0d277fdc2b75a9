//! What requests carry, and how they are answered: JSON, and refusals with their codes.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use carina_api::control::ErrorReply;
use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::document::{Document, Form, json_words};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Does the work on a thread of its own: it may wait.
pub async fn answer<T: Serialize + Send + 'static>(
    work: impl FnOnce() -> Result<T, ErrorBody> + Send + 'static,
) -> Response {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.unwrap_or_else(|_| {
        let what = "the agent failed; its log says more";
        Err(ErrorBody::new(ErrorCode::Internal, what))
    });
    answered(done)
}

/// The answer to a request: a value in JSON, or a refusal.
pub fn answered<T: Serialize>(done: Result<T, ErrorBody>) -> Response {
    match done.and_then(|value| {
        serde_json::to_vec(&value)
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))
    }) {
        Ok(json) => json_text(json),
        Err(error) => refusal(&error),
    }
}

/// An answer that is JSON already.
pub fn json_text(json: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}

/// The answer to a request that is refused.
pub fn refusal(error: &ErrorBody) -> Response {
    let status = match error.code {
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::BadRequest => StatusCode::BAD_REQUEST,
        ErrorCode::AccessDenied => StatusCode::FORBIDDEN,
        ErrorCode::DuplicateName | ErrorCode::Conflict => StatusCode::CONFLICT,
        ErrorCode::LimitReached | ErrorCode::Unsupported => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let error = error.clone();
    let json = serde_json::to_vec(&ErrorReply { error }).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], json).into_response()
}

/// The document that a request carries in JSON.
///
/// # Errors
/// It has none, or one that is wrong.
pub fn document_in(body: &[u8]) -> Result<Document, ErrorBody> {
    let text = std::str::from_utf8(body).map_err(|error| bad(error.to_string()))?;
    Document::read(text, Form::Json).map_err(|error| bad(error.to_string()))
}

/// The value that a request carries in JSON.
///
/// # Errors
/// It has none, or one of something else.
pub fn json_in<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorBody> {
    serde_json::from_slice(body).map_err(|error| bad(json_words(&error)))
}

/// The refusal of a request that is wrong.
#[must_use]
pub fn bad(what: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::BadRequest, what)
}

/// `since=N&wait_ms=M`, both of which may be missing.
///
/// # Errors
/// It has something else.
pub fn event_query(query: &str) -> Result<(u64, Duration), ErrorBody> {
    let (mut since, mut wait_ms) = (0, 0);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let wrong = || {
            bad(format!(
                "{pair:?}: a query is since=NUMBER&wait_ms=MILLISECONDS"
            ))
        };
        let (key, value) = pair.split_once('=').ok_or_else(wrong)?;
        let value: u64 = value.parse().map_err(|_| wrong())?;
        match key {
            "since" => since = value,
            "wait_ms" => wait_ms = value.min(WAIT_MS_MAX),
            _ => return Err(wrong()),
        }
    }
    Ok((since, Duration::from_millis(wait_ms)))
}

/// How long a request for events waits at most, ms.
const WAIT_MS_MAX: u64 = 30_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_for_events_are_read_and_bounded() {
        let read = |query| event_query(query).map_err(|error| error.message);
        assert_eq!(read(""), Ok((0, Duration::ZERO)));
        assert_eq!(
            read("wait_ms=50&since=7"),
            Ok((7, Duration::from_millis(50)))
        );
        assert_eq!(read("wait_ms=99999999"), Ok((0, Duration::from_secs(30))));
        for query in ["since", "since=-1", "until=3"] {
            assert!(read(query).unwrap_err().contains("since=NUMBER"), "{query}");
        }
    }
}
