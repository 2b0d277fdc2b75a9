//! `vnet.sock`: HTTP/1.1 and JSON over a Unix socket. `docs/vnet.md` has the paths.

mod access;

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use carina_api::control::ErrorReply;
use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::document::{Document, Form, limits};
use carina_vnet_access::register::RegisterError;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use crate::agent::Agent;
use crate::error::Error;
use crate::impairment::LinkImpairment;
use crate::report::{AtPath, ConsoleTyped, Exec, ExecReply, PoolReport};
use crate::way::WayQuery;

/// What ends a server when it is dropped.
#[derive(Debug)]
pub struct Stop(
    #[expect(dead_code, reason = "its end is what the other side waits for")] oneshot::Sender<()>,
);

/// What a server waits for to end.
#[derive(Debug)]
pub struct Stopped(oneshot::Receiver<()>);

/// Both ends of what stops a server.
#[must_use]
pub fn stop_handle() -> (Stop, Stopped) {
    let (stop, stopped) = oneshot::channel();
    (Stop(stop), Stopped(stopped))
}

/// Serves `listener` until its [`Stop`] is dropped, or, if `is_transient`, the last network has
/// been removed.
///
/// # Errors
/// The runtime cannot be made.
pub fn serve(
    listener: UnixListener,
    agent: Arc<Agent>,
    is_transient: bool,
    stopped: Stopped,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let serving = async move {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let (removed, is_removed) = mpsc::channel(1);
        let ends = end(Arc::clone(&agent), is_transient, is_removed);
        let leases = end_leases(Arc::clone(&agent), removed.clone());
        let service = Service { agent, removed };
        tokio::select! {
            result = async { axum::serve(listener, router(service)).await } => result,
            () = ends => Ok(()),
            () = leases => Ok(()),
        }
    };
    run(serving, stopped)
}

/// Serves until it ends by itself, or its [`Stop`] is dropped.
pub(crate) fn run(
    serving: impl Future<Output = io::Result<()>>,
    stopped: Stopped,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_MAX)
        .build()?;
    let served = runtime.block_on(async move {
        tokio::select! {
            result = serving => result,
            _ = stopped.0 => Ok(()),
        }
    });
    // A command in a node may run on; its answer interests no one any more.
    runtime.shutdown_timeout(Duration::from_millis(100));
    served
}

/// Waits until no network has been there for [`LINGER`] after one was removed.
async fn end(agent: Arc<Agent>, is_transient: bool, mut removed: mpsc::Receiver<()>) {
    loop {
        if removed.recv().await.is_none() {
            return std::future::pending().await;
        }
        tokio::time::sleep(LINGER).await;
        if is_transient && agent.is_empty() {
            return;
        }
    }
}

/// Removes networks whose leases have ended, without end.
async fn end_leases(agent: Arc<Agent>, removed: mpsc::Sender<()>) {
    loop {
        tokio::time::sleep(LEASES).await;
        let agent = Arc::clone(&agent);
        let ended = tokio::task::spawn_blocking(move || agent.remove_expired()).await;
        if ended.is_ok_and(|names| !names.is_empty()) {
            // As after any removal.
            let _ = removed.try_send(());
        }
    }
}

#[derive(Clone)]
struct Service {
    agent: Arc<Agent>,
    removed: mpsc::Sender<()>,
}

type Shared = State<Service>;

/// What is answered of an agent's networks, for another socket than its own.
pub(crate) fn router_of(agent: Arc<Agent>) -> Router {
    // A transient agent waits for removals over its own socket.
    let (removed, _) = mpsc::channel(1);
    router(Service { agent, removed })
}

fn router(service: Service) -> Router {
    Router::new()
        .route("/v1/vnets", get(list).post(create).put(apply))
        .route("/v1/pool", get(pool))
        .route("/v1/plan", post(plan))
        .route("/v1/vnets/{name}", get(report).delete(remove))
        .route("/v1/vnets/{name}/document", get(document))
        .route("/v1/vnets/{name}/events", get(events))
        .route("/v1/vnets/{name}/links/{link}/impairment", put(impair))
        .route(
            "/v1/vnets/{name}/nodes/{node}/console",
            get(console_said).post(console_type),
        )
        .route("/v1/vnets/{name}/trace", post(trace))
        .route("/v1/vnets/{name}/exec", post(exec))
        .route("/v1/vnets/{name}/test", post(test))
        .route("/v1/vnets/{name}/nodes/{node}/migrate", post(migrate))
        .route("/v1/vnets/{name}/save", post(save))
        .route("/v1/restore", post(restore))
        .merge(access::routes())
        .fallback(unknown_path)
        .layer(DefaultBodyLimit::max(limits::TEXT_MAX))
        .with_state(service)
}

async fn list(State(service): Shared) -> Response {
    answer(move || Ok(service.agent.list())).await
}

async fn pool(State(service): Shared) -> Response {
    let ready = service.agent.count_ready();
    answer(move || Ok(PoolReport { ready })).await
}

async fn create(State(service): Shared, body: Bytes) -> Response {
    answer(move || Ok(service.agent.create(&document_in(&body)?)?)).await
}

async fn apply(State(service): Shared, body: Bytes) -> Response {
    answer(move || Ok(service.agent.apply(&document_in(&body)?)?)).await
}

async fn plan(State(service): Shared, body: Bytes) -> Response {
    answer(move || Ok(service.agent.plan(&document_in(&body)?)?)).await
}

async fn report(State(service): Shared, Path(name): Path<String>) -> Response {
    answer(move || Ok(service.agent.report(&name)?)).await
}

async fn document(State(service): Shared, Path(name): Path<String>) -> Response {
    answer(move || Ok(service.agent.document(&name)?)).await
}

async fn events(
    State(service): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    answer(move || {
        let (since, wait) = event_query(query.as_deref().unwrap_or_default())?;
        Ok(service.agent.events(&name, since, wait)?)
    })
    .await
}

async fn console_said(
    State(service): Shared,
    Path((name, node)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    answer(move || {
        let (since, wait) = event_query(query.as_deref().unwrap_or_default())?;
        Ok(service.agent.console_said(&name, &node, since, wait)?)
    })
    .await
}

async fn console_type(
    State(service): Shared,
    Path((name, node)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    answer(move || {
        let typed: ConsoleTyped =
            serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))?;
        Ok(service.agent.console_type(&name, &node, &typed.text)?)
    })
    .await
}

async fn impair(
    State(service): Shared,
    Path((name, link)): Path<(String, u32)>,
    body: Bytes,
) -> Response {
    answer(move || {
        let wanted: LinkImpairment =
            serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))?;
        Ok(service.agent.impair(&name, link, wanted)?)
    })
    .await
}

async fn trace(State(service): Shared, Path(name): Path<String>, body: Bytes) -> Response {
    answer(move || {
        let query: WayQuery =
            serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))?;
        Ok(service.agent.trace(&name, &query)?)
    })
    .await
}

async fn exec(State(service): Shared, Path(name): Path<String>, body: Bytes) -> Response {
    answer(move || {
        let wanted: Exec = serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))?;
        let limit = Duration::from_millis(wanted.limit_ms).min(EXEC_MAX);
        let output = service
            .agent
            .run(&name, &wanted.node, &wanted.command, limit)?;
        Ok(ExecReply {
            status: output.status,
            stdout: output.stdout,
            stderr: output.stderr,
        })
    })
    .await
}

async fn test(State(service): Shared, Path(name): Path<String>) -> Response {
    answer(move || Ok(service.agent.test(&name)?)).await
}

async fn migrate(State(service): Shared, Path((name, node)): Path<(String, String)>) -> Response {
    answer(move || Ok(service.agent.migrate(&name, &node)?)).await
}

async fn save(State(service): Shared, Path(name): Path<String>, body: Bytes) -> Response {
    answer(move || Ok(service.agent.save(&name, &path_in(&body)?)?)).await
}

async fn restore(State(service): Shared, body: Bytes) -> Response {
    answer(move || Ok(service.agent.restore(&path_in(&body)?)?)).await
}

/// The path that a request names; the agent's own directory is nothing to callers.
fn path_in(body: &[u8]) -> Result<std::path::PathBuf, ErrorBody> {
    let at: AtPath = serde_json::from_slice(body).map_err(|error| bad(error.to_string()))?;
    match at.path.is_absolute() {
        true => Ok(at.path),
        false => Err(bad(format!(
            "{}: a path begins at the root",
            at.path.display()
        ))),
    }
}

async fn remove(State(service): Shared, Path(name): Path<String>) -> Response {
    // Also when who asked has gone meanwhile.
    answer(move || {
        service.agent.remove(&name)?;
        // One that waits already will do.
        let _ = service.removed.try_send(());
        Ok(())
    })
    .await
}

async fn unknown_path() -> Response {
    let what = "there is no such path; docs/vnet.md has those that there are";
    refusal(&ErrorBody::new(ErrorCode::NotFound, what))
}

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

fn bad(what: String) -> ErrorBody {
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

impl From<Error> for ErrorBody {
    fn from(error: Error) -> ErrorBody {
        let code = match &error {
            Error::NoVnet { .. }
            | Error::NoNode { .. }
            | Error::NoLink { .. }
            | Error::NoInterface { .. }
            | Error::NoImage { .. } => ErrorCode::NotFound,
            Error::Access(RegisterError::NoUser { .. }) | Error::NoAccess { .. } => {
                ErrorCode::NotFound
            }
            Error::Access(RegisterError::Lease(_) | RegisterError::Addresses(_))
            | Error::NoAddress
            | Error::Impairment(_)
            | Error::Saved(_) => ErrorCode::BadRequest,
            Error::Exists(_) => ErrorCode::DuplicateName,
            Error::NotAdmitted { .. } | Error::MemberMemory { .. } => ErrorCode::LimitReached,
            Error::NotMade(_) | Error::Cancelled | Error::OfProvider(_) | Error::Taken(_) => {
                ErrorCode::Conflict
            }
            Error::Unsupported { .. } => ErrorCode::Unsupported,
            Error::Timeout { .. } => ErrorCode::TimedOut,
            _ => ErrorCode::Internal,
        };
        let body = ErrorBody::new(code, error.to_string());
        match error {
            // The same request fails again until something else has gone.
            Error::NotAdmitted { .. } | Error::MemberMemory { .. } | Error::Saved(_) => {
                body.for_good()
            }
            _ => body,
        }
    }
}

/// How often is looked whether leases have ended.
const LEASES: Duration = Duration::from_secs(1);
/// How long a transient agent waits for a next network.
const LINGER: Duration = Duration::from_secs(1);
/// Requests that wait at a time: events, commands, removals.
const BLOCKING_MAX: usize = 64;
/// How long a request for events waits at most, ms.
const WAIT_MS_MAX: u64 = 30_000;
/// How long a command in a node may take at most.
const EXEC_MAX: Duration = Duration::from_secs(3600);

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

    #[test]
    fn refusals_that_stay_are_final() {
        let body = ErrorBody::from(Error::NotAdmitted {
            vnet: "x".into(),
            reason: "no room".into(),
        });
        assert!(body.is_final);
        assert_eq!(refusal(&body).status(), StatusCode::UNPROCESSABLE_ENTITY);
        let body = ErrorBody::from(Error::NotMade("x".into()));
        assert!(!body.is_final);
    }
}
