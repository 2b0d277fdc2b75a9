//! The agent's HTTP server: HTTP/1.1 with JSON bodies over the Unix socket `vnet.sock`.
//! `docs/reference/vnet.md` lists the paths.

mod access;
mod refusals;

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post, put};
use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::document::limits;
use carina_vnet_web::answers::{answer, bad, document_in, event_query, json_in, refusal};
use tokio::sync::oneshot;

use crate::agent::Agent;
use crate::node::{CommandLimits, Sink, Stream};
use carina_vnet::impairment::LinkImpairment;
use carina_vnet::report::NodeSwitch;
use carina_vnet::report::{AtPath, ConsoleTyped, Exec, ExecReply, PoolReport};
use carina_vnet::trace::TraceQuery;
use carina_vnet_web::streamed::{DisconnectFlag, streamed};

/// A handle that ends a server when it is dropped.
#[derive(Debug)]
pub struct Stop(
    #[expect(dead_code, reason = "its end is what the other side waits for")] oneshot::Sender<()>,
);

/// The server's side of a [`Stop`]: completes when the [`Stop`] is dropped.
#[derive(Debug)]
pub struct Stopped(oneshot::Receiver<()>);

/// Makes a [`Stop`] and the [`Stopped`] that belongs to it.
#[must_use]
pub fn stop_handle() -> (Stop, Stopped) {
    let (stop, stopped) = oneshot::channel();
    (Stop(stop), Stopped(stopped))
}

/// Serves requests at `listener` until its [`Stop`] is dropped. If `is_transient`, the server also
/// ends when the agent has no networks and has not received a request for a while.
///
/// # Errors
/// The listener or the server fails, or the runtime cannot be made.
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

/// Runs a server until it ends by itself or its [`Stop`] is dropped.
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
    // Commands in nodes may still run on blocking threads. Their results are no longer needed, so
    // the shutdown does not wait until they end.
    runtime.shutdown_timeout(Duration::from_millis(100));
    served
}

/// The number of requests that are being answered, and the time when the last one ended.
#[derive(Debug)]
struct Requests(Mutex<(usize, Instant)>);

impl Default for Requests {
    fn default() -> Requests {
        // The process that started the agent has the time [`FIRST`] to send the first request.
        Requests(Mutex::new((0, Instant::now() + FIRST)))
    }
}

impl Requests {
    /// Whether no request is being answered, and the last one ended more than [`LINGER`] ago.
    fn are_over(&self) -> bool {
        let (count, last) = *self.lock();
        count == 0 && last.elapsed() > LINGER
    }

    fn lock(&self) -> MutexGuard<'_, (usize, Instant)> {
        // A panic while the lock is held cannot leave these two numbers inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a request as being answered until it is dropped.
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

/// For a transient agent: returns when the agent has no networks and has not received a request for
/// [`LINGER`]. From then on, the agent refuses new networks. Otherwise this never returns.
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

/// Removes networks whose leases have ended, and networks whose callers stopped waiting for them
/// before they were ready. Repeats this forever.
async fn end_leases(agent: Arc<Agent>) {
    loop {
        tokio::time::sleep(LEASES).await;
        let agent = Arc::clone(&agent);
        let remove = move || (agent.remove_expired(), agent.remove_abandoned());
        // A network whose removal fails is removed in a later round.
        let _ = tokio::task::spawn_blocking(remove).await;
    }
}

#[derive(Clone)]
struct Service {
    agent: Arc<Agent>,
}

type Shared = State<Service>;

/// Routes of an agent's networks, for a server at a socket other than the agent's own.
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
            get(console_output).post(console_type),
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
        .route("/v1/vnets/{name}/links/{link}/hold", post(hold_link))
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
            Some(other) => {
                return Err(bad(format!(
                    "{other:?}: unknown query; expected followed=true"
                )));
            }
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

async fn console_output(
    State(service): Shared,
    Path((name, node)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    answer(move || {
        let (since, wait) = event_query(query.as_deref().unwrap_or_default())?;
        Ok(service.agent.console_output(&name, &node, since, wait)?)
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
        let query: TraceQuery = json_in(&body)?;
        Ok(service.agent.trace(&name, &query)?)
    })
    .await
}

async fn exec(
    State(service): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Response {
    match query.as_deref() {
        None | Some("") => exec_whole(service, name, body).await,
        Some("stream=true") => {
            streamed((), move |sink, is_gone| {
                execute(&service, &name, &body, sink, is_gone)
            })
            .await
        }
        Some(other) => refusal(&bad(format!(
            "{other:?}: unknown query; expected stream=true"
        ))),
    }
}

/// Runs a command, and answers when it has ended: with its exit status and the beginning of its
/// output.
async fn exec_whole(service: Service, name: String, body: Bytes) -> Response {
    let disconnect = DisconnectFlag::default();
    let is_gone = Arc::clone(&disconnect.is_gone);
    answer(move || {
        let mut kept = ExecReply::collector();
        let status = execute(&service, &name, &body, &mut kept, &is_gone)?;
        Ok(ExecReply::of(kept, status))
    })
    .await
}

fn execute(
    service: &Service,
    name: &str,
    body: &[u8],
    sink: &mut dyn Sink,
    is_gone: &AtomicBool,
) -> Result<i32, ErrorBody> {
    let wanted: Exec = json_in(body)?;
    let until = CommandLimits {
        limit: Duration::from_millis(wanted.limit_ms).min(EXEC_MAX),
        is_cancelled: is_gone,
    };
    let agent = &service.agent;
    Ok(agent.stream(name, (&wanted.node, &wanted.command), until, sink)?)
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

/// Holds a link in the engine until the client closes the connection. The answer has a line when
/// the engine has the link, and then a line every second, which tells the client that the agent
/// lives.
async fn hold_link(State(service): Shared, Path((name, link)): OfLink) -> Response {
    streamed((), move |sink, is_gone| {
        let _hold = service.agent.hold(&name, &[link])?;
        let is_over = || is_gone.load(Ordering::Acquire);
        while sink.take(Stream::Stdout, HELD, &is_over).is_continue() {
            let next = Instant::now() + HELD_EVERY;
            while Instant::now() < next && !is_over() {
                std::thread::sleep(LOOK);
            }
        }
        Ok(0)
    })
    .await
}

async fn save(State(service): Shared, Path(name): Path<String>, body: Bytes) -> Response {
    answer(move || Ok(service.agent.save(&name, &path_in(&body)?)?)).await
}

async fn restore(State(service): Shared, body: Bytes) -> Response {
    answer(move || Ok(service.agent.restore(&path_in(&body)?)?)).await
}

/// The path in a request's body. It must be absolute, because the agent's working directory differs
/// from the caller's.
fn path_in(body: &[u8]) -> Result<std::path::PathBuf, ErrorBody> {
    let at: AtPath = json_in(body)?;
    if at.path.is_absolute() {
        Ok(at.path)
    } else {
        Err(bad(format!(
            "{}: the path must be absolute",
            at.path.display()
        )))
    }
}

async fn remove(State(service): Shared, Path(name): Path<String>) -> Response {
    // The removal continues even if the caller closes the connection.
    answer(move || Ok(service.agent.remove(&name)?)).await
}

async fn unknown_path() -> Response {
    let what = "there is no such path; docs/reference/vnet.md lists all paths";
    refusal(&ErrorBody::new(ErrorCode::NotFound, what))
}

/// Interval between two searches for networks to remove.
const LEASES: Duration = Duration::from_secs(1);
/// How long a transient agent without networks waits for a request before it ends.
const LINGER: Duration = Duration::from_secs(1);
/// How much longer a transient agent waits for its first request.
const FIRST: Duration = Duration::from_secs(20);
/// Interval between two checks whether a transient agent ends.
const LOOK: Duration = Duration::from_millis(100);
/// The line that says that a link is held, and the time between two.
const HELD: &[u8] = b"held\n";
const HELD_EVERY: Duration = Duration::from_secs(1);
/// Largest number of requests that block at the same time, such as requests for events, commands
/// and removals.
const BLOCKING_MAX: usize = 64;
/// Longest time that a command in a node may run.
const EXEC_MAX: Duration = Duration::from_secs(3600);
