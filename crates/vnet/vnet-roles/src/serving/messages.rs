//! `POST /v1/messages` takes messages from a caller; `GET /v1/messages` returns messages for the
//! caller.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::document::json_words;
use carina_vnet_web::answers::{answered, event_query, json_text, refusal};

use serde::de::DeserializeOwned;

use super::entrance::Caller;
use crate::driver::Handle;
use crate::machine::{Machine, no_right};
use crate::mailbox::{Mailboxes, list_of};

/// What the HTTP handlers for messages share: they pass messages of callers to the role's state
/// machine, and return messages that wait for the caller.
#[derive(Debug)]
pub struct Service<M> {
    /// The role's state machine.
    pub handle: Handle<M>,
    /// Messages that wait until their receivers fetch them.
    pub mailboxes: Arc<Mailboxes>,
}

impl<M> Clone for Service<M> {
    fn clone(&self) -> Service<M> {
        Service {
            handle: self.handle.clone(),
            mailboxes: Arc::clone(&self.mailboxes),
        }
    }
}

/// The route `/v1/messages` of a role; other paths get a refusal.
pub fn router<M: Machine>(service: Service<M>) -> Router {
    Router::new()
        .route("/v1/messages", get(hear::<M>).post(say::<M>))
        .fallback(unknown_path)
        .with_state(service)
}

async fn say<M: Machine>(
    State(service): State<Service<M>>,
    ConnectInfo(Caller(caller)): ConnectInfo<Caller>,
    body: Body,
) -> Response {
    if !M::CALLERS.contains(&caller.role) {
        return refusal(&no_right(M::ROLE, &caller, M::CALLERS));
    }
    let messages = match body_of(body).await {
        Ok(messages) => messages,
        Err(error) => return refusal(&error),
    };
    let work = move |machine: &mut M, now| machine.handle(now, &caller, &messages);
    answered(service.handle.ask(work).await.and_then(|done| done))
}

async fn hear<M: Machine>(
    State(service): State<Service<M>>,
    ConnectInfo(Caller(caller)): ConnectInfo<Caller>,
    RawQuery(query): RawQuery,
) -> Response {
    if !M::CALLERS.contains(&caller.role) {
        return refusal(&no_right(M::ROLE, &caller, M::CALLERS));
    }
    let (_, wait) = match event_query(query.as_deref().unwrap_or_default()) {
        Ok(wait) => wait,
        Err(error) => return refusal(&error),
    };
    let messages = service.mailboxes.of(&caller).hear(wait).await;
    json_text(list_of(&messages).into_bytes())
}

/// Answers a request with an unknown path.
pub async fn unknown_path() -> Response {
    let what = "there is no such path; docs/reference/vnet-roles.md lists all paths";
    refusal(&ErrorBody::new(ErrorCode::NotFound, what))
}

/// Reads the body of a request, of bounded size, within a bounded time.
///
/// # Errors
/// The body is too long, or does not arrive in time.
pub async fn body_of(body: Body) -> Result<Vec<u8>, ErrorBody> {
    let bytes = tokio::time::timeout(BODY_WAIT, to_bytes(body, BODY_MAX)).await;
    let bytes = bytes.map_err(|_| {
        let what = format!(
            "the request did not arrive within {} s",
            BODY_WAIT.as_secs()
        );
        ErrorBody::new(ErrorCode::TimedOut, what)
    })?;
    bytes.map(|bytes| bytes.to_vec()).map_err(|error| {
        let what = format!("reading the request: {error}; it may have at most {BODY_MAX} bytes");
        ErrorBody::new(ErrorCode::BadRequest, what)
    })
}

/// Largest request, bytes: the longest document as JSON, with some room.
pub(crate) const BODY_MAX: usize = 12 << 20;
/// Longest time for the body of a request to arrive.
const BODY_WAIT: Duration = Duration::from_secs(30);

/// Reads a request in JSON.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorBody> {
    serde_json::from_slice(body).map_err(|error| {
        let what = format!("the request is not understood: {}", json_words(&error));
        ErrorBody::new(ErrorCode::BadRequest, what)
    })
}
