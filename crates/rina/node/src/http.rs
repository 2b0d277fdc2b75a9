//! `control.sock`: HTTP/1.1 and JSON over a Unix socket, on its own thread.
//!
//! This module makes no decisions: it turns each request into a [`Query`] to the core.
//! `docs/reference/control-api.md` describes paths and bodies.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use carina_api::control::{CaptureCreate, CaptureInfo, ErrorReply};
use carina_api::{ErrorBody, ErrorCode, PortId};
use carina_frame_engine::tap::Tap;
use carina_sys::EventFd;
use serde::de::DeserializeOwned;
use tokio::sync::{oneshot, watch};

use crate::captures::Captures;
use crate::requests::{Answer, ControlRequest, Query, Request};
use crate::rib_queries::question_of;

mod query;

use self::query::{
    EVENT_WAIT_MS_MAX, capture_id, event_query, ipcp_of, policies_query, rib_query, wait_query,
};

/// State that the threads of `control.sock` and of the core share.
pub(crate) struct ControlState {
    /// Sends queries to the core.
    pub requests: Sender<ControlRequest>,
    /// The doorbell that wakes the core.
    pub doorbell: EventFd,
    /// The number of the last event in the journal, for requests that wait for events.
    pub last_event: watch::Receiver<u64>,
    /// The captures that are running.
    pub captures: Captures,
}

/// Serves `listener` until `stop` is sent or dropped.
///
/// # Errors
/// The runtime or the thread cannot be created.
pub(crate) fn spawn(
    listener: UnixListener,
    control: ControlState,
    stop: oneshot::Receiver<()>,
) -> io::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let serve = move || {
        runtime.block_on(async move {
            let listener = match tokio::net::UnixListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!(%error, "control.sock is not served"),
            };
            let router = router(Arc::new(control));
            // Long polls are dropped with the runtime, so that stopping does not wait for them.
            tokio::select! {
                result = async { axum::serve(listener, router).await } => {
                    if let Err(error) = result {
                        tracing::error!(%error, "control.sock is no longer served");
                    }
                }
                _ = stop => {}
            }
        });
        runtime.shutdown_timeout(Duration::from_millis(100));
    };
    std::thread::Builder::new()
        .name("carina-control".into())
        .spawn(serve)
}

type Shared = State<Arc<ControlState>>;

fn router(control: Arc<ControlState>) -> Router {
    Router::new()
        .route(
            "/v1/node",
            get(|control: Shared| ask(control, Request::Node)),
        )
        .route(
            "/v1/ipcps",
            get(|control: Shared| ask(control, Request::Ipcps)).post(create_ipcp),
        )
        .route("/v1/ipcps/{name}", delete(destroy_ipcp))
        .route(
            "/v1/apps",
            get(|control: Shared| ask(control, Request::Apps)),
        )
        .route(
            "/v1/flows",
            get(|control: Shared| ask(control, Request::Flows)),
        )
        .route("/v1/flows/{port}", delete(deallocate_flow))
        .route(
            "/v1/difs",
            get(|control: Shared| ask(control, Request::Difs)).post(create_dif),
        )
        .route("/v1/difs/{name}", delete(leave_dif))
        .route("/v1/difs/{name}/over", post(extend_dif))
        .route("/v1/difs/{name}/over/{below}", delete(retract_dif))
        .route("/v1/difs/{name}/members/{member}", delete(expel))
        .route("/v1/rib", get(read_rib).post(write_rib))
        .route("/v1/policies", get(policies))
        .route(
            "/v1/vms",
            get(|control: Shared| ask(control, Request::Vms)).post(create_vm),
        )
        .route("/v1/vms/{name}", get(vm).delete(destroy_vm))
        .route("/v1/captures", post(create_capture))
        .route("/v1/captures/{id}", get(capture).delete(end_capture))
        .route("/v1/events", get(events))
        .route("/v1/apply", post(apply))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(control)
}

async fn create_ipcp(control: Shared, body: Bytes) -> Response {
    match from_json(&body) {
        Ok(ipcp) => created(ask_core(&control, Request::CreateIpcp(ipcp)).await),
        Err(refusal) => refuse(refusal),
    }
}

async fn destroy_ipcp(control: Shared, Path(name): Path<String>) -> Response {
    deleted(ask_core(&control, Request::DestroyIpcp(name)).await)
}

async fn deallocate_flow(control: Shared, Path(port): Path<String>) -> Response {
    match port.parse() {
        Ok(port) => deleted(ask_core(&control, Request::DeallocateFlow(PortId(port))).await),
        Err(_) => refuse(bad(format!("{port:?} is not a port; ports are numbers"))),
    }
}

async fn create_dif(control: Shared, body: Bytes) -> Response {
    match from_json(&body) {
        Ok(dif) => created(ask_core(&control, Request::CreateDif(dif)).await),
        Err(refusal) => refuse(refusal),
    }
}

async fn extend_dif(control: Shared, Path(name): Path<String>, body: Bytes) -> Response {
    match from_json(&body) {
        Ok(wish) => ask(control, Request::ExtendDif(name, wish)).await,
        Err(refusal) => refuse(refusal),
    }
}

async fn retract_dif(
    control: Shared,
    Path((name, below)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    match ipcp_of(query.as_deref()) {
        Ok(ipcp) => ask(control, Request::RetractDif(name, below, ipcp)).await,
        Err(refusal) => refuse(refusal),
    }
}

async fn expel(control: Shared, Path((name, member)): Path<(String, String)>) -> Response {
    deleted(ask_core(&control, Request::Expel(name, member)).await)
}

async fn leave_dif(
    control: Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    match ipcp_of(query.as_deref()) {
        Ok(ipcp) => deleted(ask_core(&control, Request::LeaveDif(name, ipcp)).await),
        Err(refusal) => refuse(refusal),
    }
}

async fn read_rib(control: Shared, RawQuery(query): RawQuery) -> Response {
    match rib_query(query.as_deref().unwrap_or_default()) {
        Ok(question) => ask(control, Request::Rib(question)).await,
        Err(refusal) => refuse(refusal),
    }
}

async fn write_rib(control: Shared, body: Bytes) -> Response {
    match from_json(&body).and_then(question_of) {
        Ok(question) => ask(control, Request::Rib(question)).await,
        Err(refusal) => refuse(refusal),
    }
}

async fn policies(control: Shared, RawQuery(query): RawQuery) -> Response {
    match policies_query(query.as_deref().unwrap_or_default()) {
        Ok(of) => ask(control, Request::Policies(of)).await,
        Err(refusal) => refuse(refusal),
    }
}

async fn create_vm(control: Shared, body: Bytes) -> Response {
    match from_json(&body) {
        Ok(vm) => created(ask_core(&control, Request::CreateVm(vm)).await),
        Err(refusal) => refuse(refusal),
    }
}

async fn vm(control: Shared, Path(name): Path<String>) -> Response {
    ask(control, Request::Vm(name)).await
}

async fn destroy_vm(control: Shared, Path(name): Path<String>) -> Response {
    deleted(ask_core(&control, Request::DestroyVm(name)).await)
}

async fn apply(control: Shared, body: Bytes) -> Response {
    match String::from_utf8(body.to_vec()) {
        Ok(text) => ask(control, Request::Apply(text)).await,
        Err(_) => refuse(bad("the configuration is not UTF-8".into())),
    }
}

/// Starts a capture. The data plane gets one end before this thread knows whether there is room for
/// the other end. If there is no room, dropping the reader ends the capture.
async fn create_capture(control: Shared, body: Bytes) -> Response {
    let CaptureCreate { ipcp, snap_bytes } = match from_json(&body) {
        Ok(create) => create,
        Err(refusal) => return refuse(refusal),
    };
    let snap = snap_bytes.map_or(usize::MAX, |bytes| bytes as usize);
    let (tap, reader) = Tap::new(snap);
    let info = ask_core(&control, Request::Capture(ipcp, tap)).await;
    let info = info.and_then(|info| from_json::<CaptureInfo>(info.to_string().as_bytes()));
    let begun = info.and_then(|mut info| {
        control.captures.begin(reader, snap_bytes, &mut info)?;
        serde_json::to_value(info)
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))
    });
    created(begun)
}

/// Returns the next part of a capture's file. Waits until it has a packet, at most `wait_ms`.
async fn capture(control: Shared, Path(id): Path<String>, RawQuery(query): RawQuery) -> Response {
    let asked = capture_id(&id).and_then(|id| Ok((id, wait_query(query.as_deref())?)));
    let (id, wait_ms) = match asked {
        Ok(asked) => asked,
        Err(refusal) => return refuse(refusal),
    };
    let until = tokio::time::Instant::now() + Duration::from_millis(wait_ms);
    loop {
        let portion = match control.captures.read(id) {
            Ok(portion) => portion,
            Err(refusal) => return refuse(refusal),
        };
        if !portion.is_empty() || tokio::time::Instant::now() >= until {
            let kind = [(header::CONTENT_TYPE, "application/x-pcapng")];
            return (kind, portion).into_response();
        }
        // The data plane does not signal captured packets: that would cost time for every packet.
        tokio::time::sleep(CAPTURE_POLL_INTERVAL).await;
    }
}

async fn end_capture(control: Shared, Path(id): Path<String>) -> Response {
    let ended = capture_id(&id).and_then(|id| control.captures.end(id));
    match ended {
        Ok(end) => answer(
            StatusCode::OK,
            Ok(serde_json::json!({ "packets": end.packets, "missed": end.missed })),
        ),
        Err(refusal) => refuse(refusal),
    }
}

/// Long poll: waits until there is an event after `since`, at most `wait_ms`.
async fn events(control: Shared, RawQuery(query): RawQuery) -> Response {
    let (since, wait_ms) = match event_query(query.as_deref().unwrap_or_default()) {
        Ok(asked) => asked,
        Err(refusal) => return refuse(refusal),
    };
    let mut last = control.last_event.clone();
    let news = last.wait_for(|last| *last > since);
    let wait = Duration::from_millis(wait_ms.min(EVENT_WAIT_MS_MAX));
    // The journal is queried in any case, whether an event came or the time has passed.
    let _ = tokio::time::timeout(wait, news).await;
    ask(control, Request::Events(since)).await
}

async fn unknown_path() -> Response {
    refuse(ErrorBody::new(
        ErrorCode::NotFound,
        "no such path; see docs/reference/control-api.md",
    ))
}

async fn wrong_method() -> Response {
    let what = "this path does not have this method; see docs/reference/control-api.md";
    answer(StatusCode::METHOD_NOT_ALLOWED, Err(bad(what.into())))
}

async fn ask(control: Shared, request: Request) -> Response {
    match ask_core(&control, request).await {
        Ok(value) => answer(StatusCode::OK, Ok(value)),
        Err(refusal) => refuse(refusal),
    }
}

async fn ask_core(control: &ControlState, request: Request) -> Answer {
    let stopping = || ErrorBody::new(ErrorCode::Internal, "the node is stopping");
    let (reply, answer) = oneshot::channel();
    control
        .requests
        .send(ControlRequest::Query(Query { request, reply }))
        .map_err(|_| stopping())?;
    control.doorbell.signal();
    answer.await.unwrap_or_else(|_| Err(stopping()))
}

fn created(result: Answer) -> Response {
    match result {
        Ok(value) => answer(StatusCode::CREATED, Ok(value)),
        Err(refusal) => refuse(refusal),
    }
}

fn deleted(result: Answer) -> Response {
    match result {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => refuse(refusal),
    }
}

fn refuse(refusal: ErrorBody) -> Response {
    answer(status_of(refusal.code), Err(refusal))
}

fn answer(status: StatusCode, answer: Answer) -> Response {
    let body = match answer {
        Ok(value) => value.to_string(),
        Err(error) => serde_json::to_string(&ErrorReply { error })
            .expect("a code and a text always have a JSON form"),
    };
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::BadRequest | ErrorCode::BadVersion | ErrorCode::BadConfig => {
            StatusCode::BAD_REQUEST
        }
        ErrorCode::NotFound | ErrorCode::UnknownName => StatusCode::NOT_FOUND,
        ErrorCode::DuplicateName | ErrorCode::Conflict => StatusCode::CONFLICT,
        ErrorCode::AccessDenied => StatusCode::FORBIDDEN,
        ErrorCode::SpecNotMet | ErrorCode::FlowDenied => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        ErrorCode::LinkDown => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::LimitReached => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::Unsupported => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn from_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorBody> {
    serde_json::from_slice(body).map_err(|e| bad(format!("the body could not be read: {e}")))
}

fn bad(what: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::BadRequest, what)
}

/// Longest body of a request, in bytes: the longest configuration.
const BODY_BYTES_MAX: usize = crate::config::TEXT_BYTES_MAX;

/// Interval at which a waiting `GET` checks a capture for packets.
const CAPTURE_POLL_INTERVAL: Duration = Duration::from_millis(10);
