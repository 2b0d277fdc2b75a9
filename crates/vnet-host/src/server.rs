//! `vnet.sock`: HTTP/1.1 and JSON over a Unix socket. `docs/vnet.md` has the paths.

mod access;

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use carina_api::control::ErrorReply;
use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::document::{Document, Form, json_words, limits};
use carina_vnet::host_part::LimitError;
use carina_vnet_access::register::RegisterError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::agent::Agent;
use crate::agent::switching::NodeSwitch;
use crate::error::Error;
use crate::impairment::LinkImpairment;
use crate::node::Until;
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

/// Serves `listener` until its [`Stop`] is dropped, or, if `is_transient`, there is no network and
/// nothing was asked for a while.
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
        let requests = Arc::new(Requests::default());
        let ends = end(Arc::clone(&agent), is_transient, Arc::clone(&requests));
        let leases = end_leases(Arc::clone(&agent));
        let counted = middleware::from_fn_with_state(requests, count);
        let router = router(Service { agent }).layer(counted);
        tokio::select! {
            result = async { axum::serve(listener, router).await } => result,
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

/// Requests that are being answered.
#[derive(Debug)]
struct Requests(Mutex<(usize, Instant)>);

impl Default for Requests {
    fn default() -> Requests {
        // The process that has started the agent has some time for the first one.
        Requests(Mutex::new((0, Instant::now() + FIRST)))
    }
}

impl Requests {
    /// Whether none is, and none was for [`LINGER`].
    fn are_over(&self) -> bool {
        let (count, last) = *self.lock();
        count == 0 && last.elapsed() > LINGER
    }

    fn lock(&self) -> MutexGuard<'_, (usize, Instant)> {
        // Two numbers are whole whatever has panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is being answered, also after its caller has gone.
struct Request(Arc<Requests>);

impl Request {
    fn new(requests: Arc<Requests>) -> Request {
        requests.lock().0 += 1;
        Request(requests)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        *state = (state.0 - 1, Instant::now());
    }
}

async fn count(
    State(requests): State<Arc<Requests>>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let _counted = Request::new(requests);
    next.run(request).await
}

/// Waits until nothing was asked for [`LINGER`] of an agent without networks, which makes none from
/// then on.
async fn end(agent: Arc<Agent>, is_transient: bool, requests: Arc<Requests>) {
    if !is_transient {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        if requests.are_over() && agent.end_if_empty() {
            return;
        }
    }
}

/// Removes networks whose leases have ended, and those that no one waits for, without end.
async fn end_leases(agent: Arc<Agent>) {
    loop {
        tokio::time::sleep(LEASES).await;
        let agent = Arc::clone(&agent);
        let remove = move || (agent.remove_expired(), agent.remove_abandoned());
        // What cannot be removed is tried again.
        let _ = tokio::task::spawn_blocking(remove).await;
    }
}

#[derive(Clone)]
struct Service {
    agent: Arc<Agent>,
}

type Shared = State<Service>;

/// What is answered of an agent's networks, for another socket than its own.
pub(crate) fn router_of(agent: Arc<Agent>) -> Router {
    router(Service { agent })
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
        .route("/v1/vnets/{name}/nodes/{node}/stop", post(stop_node))
        .route("/v1/vnets/{name}/nodes/{node}/start", post(start_node))
        .route("/v1/vnets/{name}/nodes/{node}/restart", post(restart_node))
        .route("/v1/vnets/{name}/links/{link}/up", post(link_up))
        .route("/v1/vnets/{name}/links/{link}/down", post(link_down))
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

async fn create(State(service): Shared, RawQuery(query): RawQuery, body: Bytes) -> Response {
    answer(move || {
        let document = document_in(&body)?;
        Ok(match query.as_deref() {
            None | Some("") => service.agent.create(&document)?,
            Some("followed=true") => service.agent.create_followed(&document)?,
            Some(other) => return Err(bad(format!("{other:?}: the query is followed=true"))),
        })
    })
    .await
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
        let typed: ConsoleTyped = json_in(&body)?;
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
        let wanted: LinkImpairment = json_in(&body)?;
        Ok(service.agent.impair(&name, link, wanted)?)
    })
    .await
}

async fn trace(State(service): Shared, Path(name): Path<String>, body: Bytes) -> Response {
    answer(move || {
        let query: WayQuery = json_in(&body)?;
        Ok(service.agent.trace(&name, &query)?)
    })
    .await
}

async fn exec(State(service): Shared, Path(name): Path<String>, body: Bytes) -> Response {
    let caller = Caller::default();
    let is_gone = Arc::clone(&caller.is_gone);
    answer(move || {
        let wanted: Exec = json_in(&body)?;
        let until = Until {
            limit: Duration::from_millis(wanted.limit_ms).min(EXEC_MAX),
            is_cancelled: &is_gone,
        };
        let output = service
            .agent
            .run_until(&name, &wanted.node, &wanted.command, until)?;
        Ok(ExecReply::of(output))
    })
    .await
}

/// Someone who waits for an answer. When the connection ends before, this value goes with it.
#[derive(Default)]
struct Caller {
    is_gone: Arc<AtomicBool>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::Release);
    }
}

async fn test(State(service): Shared, Path(name): Path<String>) -> Response {
    answer(move || Ok(service.agent.test(&name)?)).await
}

async fn migrate(State(service): Shared, Path((name, node)): Path<(String, String)>) -> Response {
    answer(move || Ok(service.agent.migrate(&name, &node)?)).await
}

type OfNode = Path<(String, String)>;
type OfLink = Path<(String, u32)>;

async fn stop_node(service: Shared, of: OfNode) -> Response {
    switch_node(service, of, NodeSwitch::Stop).await
}

async fn start_node(service: Shared, of: OfNode) -> Response {
    switch_node(service, of, NodeSwitch::Start).await
}

async fn restart_node(service: Shared, of: OfNode) -> Response {
    switch_node(service, of, NodeSwitch::Restart).await
}

async fn switch_node(
    State(service): Shared,
    Path((name, node)): OfNode,
    what: NodeSwitch,
) -> Response {
    answer(move || Ok(service.agent.switch_node(&name, &node, what)?)).await
}

async fn link_up(service: Shared, of: OfLink) -> Response {
    switch_link(service, of, true).await
}

async fn link_down(service: Shared, of: OfLink) -> Response {
    switch_link(service, of, false).await
}

async fn switch_link(State(service): Shared, Path((name, link)): OfLink, is_up: bool) -> Response {
    answer(move || Ok(service.agent.switch_link(&name, link, is_up)?)).await
}

async fn save(State(service): Shared, Path(name): Path<String>, body: Bytes) -> Response {
    answer(move || Ok(service.agent.save(&name, &path_in(&body)?)?)).await
}

async fn restore(State(service): Shared, body: Bytes) -> Response {
    answer(move || Ok(service.agent.restore(&path_in(&body)?)?)).await
}

/// The path that a request names; the agent's own directory is nothing to callers.
fn path_in(body: &[u8]) -> Result<std::path::PathBuf, ErrorBody> {
    let at: AtPath = json_in(body)?;
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
    answer(move || Ok(service.agent.remove(&name)?)).await
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

/// The value that a request carries in JSON.
///
/// # Errors
/// It has none, or one of something else.
pub fn json_in<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorBody> {
    serde_json::from_slice(body).map_err(|error| bad(json_words(&error)))
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
            Error::Limit(LimitError::NoImage { .. }) => ErrorCode::NotFound,
            Error::Limit(LimitError::MemberMemory { .. } | LimitError::Interfaces { .. })
            | Error::NotAdmitted { .. } => ErrorCode::LimitReached,
            Error::Limit(_) => ErrorCode::Unsupported,
            Error::Ending
            | Error::NotMade(_)
            | Error::NodeStopped(_)
            | Error::Cancelled
            | Error::OfProvider(_)
            | Error::Taken(_) => ErrorCode::Conflict,
            Error::Unsupported { .. } => ErrorCode::Unsupported,
            Error::Timeout { .. } => ErrorCode::TimedOut,
            _ => ErrorCode::Internal,
        };
        let body = ErrorBody::new(code, error.to_string());
        match error {
            // The same request fails again until something else has gone.
            Error::NotAdmitted { .. } | Error::Saved(_) => body.for_good(),
            error if error.is_final() => body.for_good(),
            _ => body,
        }
    }
}

/// How often is looked whether leases have ended.
const LEASES: Duration = Duration::from_secs(1);
/// How long a transient agent without networks waits for a request.
const LINGER: Duration = Duration::from_secs(1);
/// How much longer it waits for the first one.
const FIRST: Duration = Duration::from_secs(20);
/// How often it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);
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
    fn what_fails_again_until_something_else_changes_is_final() {
        let is_final = |error: Error| ErrorBody::from(error).is_final;
        let (name, known) = ("x".to_owned(), "carina".to_owned());
        assert!(is_final(Error::NoImage { name, known }));
        let exists = crate::saved::SavedError::Exists("/x".into());
        assert!(is_final(exists.into()));
        assert!(!is_final(Error::NotMade("x".to_owned())) && !is_final(Error::Ending));
    }

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
        let image = LimitError::NoImage {
            node: "a".into(),
            image: "x".into(),
            known: "carina".into(),
        };
        let body = ErrorBody::from(Error::from(image));
        assert!(body.is_final && body.code == ErrorCode::NotFound);
        let body = ErrorBody::from(Error::NotMade("x".into()));
        assert!(!body.is_final);
    }
}
