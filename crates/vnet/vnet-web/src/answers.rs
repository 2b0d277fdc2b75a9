//! Parses requests and builds answers: JSON values, and refusals with their codes.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use carina_api::control::ErrorReply;
use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::document::{Document, Form, json_words};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Runs `work`, which may block, on a thread of its own, and answers the HTTP request with its
/// result: a value as JSON, or a refusal.
pub async fn answer<T: Serialize + Send + 'static>(
    work: impl FnOnce() -> Result<T, ErrorBody> + Send + 'static,
) -> Response {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.unwrap_or_else(|_| {
        let what = "the agent failed; its log has the reason";
        Err(ErrorBody::new(ErrorCode::Internal, what))
    });
    answered(done)
}

/// The answer to a request: a value as JSON, or a refusal.
pub fn answered<T: Serialize>(done: Result<T, ErrorBody>) -> Response {
    match done.and_then(|value| {
        serde_json::to_vec(&value)
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))
    }) {
        Ok(json) => json_text(json),
        Err(error) => refusal(&error),
    }
}

/// An answer whose body is already JSON.
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

/// The document in a request's JSON body.
///
/// # Errors
/// The body is missing or is not a valid document.
pub fn document_in(body: &[u8]) -> Result<Document, ErrorBody> {
    let text = std::str::from_utf8(body).map_err(|error| bad(error.to_string()))?;
    Document::read(text, Form::Json).map_err(|error| bad(error.to_string()))
}

/// The value in a request's JSON body.
///
/// # Errors
/// The body is missing or is not such a value.
pub fn json_in<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorBody> {
    serde_json::from_slice(body).map_err(|error| bad(json_words(&error)))
}

/// The refusal of a malformed request.
#[must_use]
pub fn bad(what: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::BadRequest, what)
}

/// Parses the query `since=N&wait_ms=M`, in which both parts are optional
/// (default: 0). A wait of more than 30 s is shortened to 30 s.
///
/// # Errors
/// The query contains anything else.
pub fn event_query(query: &str) -> Result<(u64, Duration), ErrorBody> {
    let (mut since, mut wait_ms) = (0, 0);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let wrong = || {
            bad(format!(
                "{pair:?}: unknown query; expected since=NUMBER&wait_ms=MILLISECONDS"
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

/// Longest wait of a request for events, ms.
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
