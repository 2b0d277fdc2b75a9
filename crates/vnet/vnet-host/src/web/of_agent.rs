//! What an agent's web page can request in addition to what `vnet.sock` answers: histories,
//! captures, and the substrate of networks.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use axum::routing::{get, post};
use carina_api::{ErrorBody, ErrorCode};
use carina_graph::trace::{TraceRequest, TraceStream};
use carina_vnet_web::answers::{answer, event_query, json_in};
use carina_vnet_web::captures::{self, CaptureWanted, Captures};
use carina_vnet_web::{About, History, HistoryReport, Moment, written};

use super::substrate::Substrate;
use crate::agent::{Agent, copied_links};
use crate::engine_frames::EngineFrames;
use crate::error::Error;
use crate::port_selection::port_app_now;
use crate::server;

/// Answers the requests of an agent's web page, and records the histories of networks. Recording
/// ends when this is dropped.
#[derive(Debug)]
pub(super) struct Service {
    shared: Arc<Shared>,
    recorder: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    agent: Arc<Agent>,
    /// The histories, by network name.
    histories: Mutex<BTreeMap<String, History>>,
    captures: Arc<Captures>,
    is_over: AtomicBool,
}

type AgentState = State<Arc<Shared>>;

impl Service {
    /// Begins to record the histories of an agent's networks.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(super) fn start(agent: Arc<Agent>) -> io::Result<Service> {
        let shared = Arc::new(Shared {
            agent,
            histories: Mutex::default(),
            captures: Arc::default(),
            is_over: AtomicBool::new(false),
        });
        let records = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("vnet-history".into());
        Ok(Service {
            recorder: Some(thread.spawn(move || records.record())?),
            shared,
        })
    }

    /// The routes of all requests of the page.
    pub(super) fn router(&self) -> Router {
        let own = Router::new()
            .route("/v1/page", get(about))
            .route("/v1/substrate", get(substrate))
            .route("/v1/vnets/{name}/document/{form}", get(document))
            .route("/v1/vnets/{name}/history", get(history))
            .route("/v1/vnets/{name}/history/{at_ms}", get(moment))
            .route("/v1/vnets/{name}/captures", post(begin_capture))
            .with_state(Arc::clone(&self.shared));
        let captures = captures::routes(Arc::clone(&self.shared.captures));
        let agent = Arc::clone(&self.shared.agent);
        server::router_of(agent).merge(own).merge(captures)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(recorder) = self.recorder.take() {
            // A thread that panicked has ended, too.
            let _ = recorder.join();
        }
    }
}

impl Shared {
    /// Records the state of networks whenever something has changed, and every second.
    fn record(&self) {
        let mut seen = 0;
        let mut noted: Option<Instant> = None;
        while !self.is_over.load(Ordering::Acquire) {
            let now = self.agent.changed(seen, LOOK);
            let is_due = noted.is_none_or(|noted| noted.elapsed() >= EVERY);
            if now == seen && !is_due {
                continue;
            }
            seen = now;
            self.note();
            noted = Some(Instant::now());
            // Frequent changes are recorded together.
            std::thread::sleep(TURN);
        }
    }

    fn note(&self) {
        let reports = self.agent.list();
        let room = ROOM / reports.len().max(ROOMS_MIN);
        let mut histories = self.lock();
        histories.retain(|name, _| reports.iter().any(|report| report.name == *name));
        for report in reports {
            let Ok(age) = self.agent.age(&report.name) else {
                // The network has been removed meanwhile.
                continue;
            };
            let history = histories
                .entry(report.name.clone())
                .or_insert_with(|| History::new(&report));
            if !history.is_of(&report) {
                *history = History::new(&report);
            }
            history.note(millis(age), report, room);
        }
    }

    fn moment(&self, name: &str, at_ms: u64) -> Result<Moment, ErrorBody> {
        let moment = self.lock().get(name).and_then(|history| history.at(at_ms));
        moment.ok_or_else(|| {
            let what = format!("no history of network {name} is recorded yet");
            ErrorBody::new(ErrorCode::NotFound, what)
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, History>> {
        // Every critical section leaves the map consistent, even after a panic.
        self.histories
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

async fn about(State(shared): AgentState) -> Response {
    answer(move || {
        Ok(About {
            role: "agent",
            title: shared.agent.name().to_owned(),
            can: &[
                "rates",
                "history",
                "impair",
                "console",
                "capture",
                "test",
                "plan",
                "substrate",
                "trace",
            ],
        })
    })
    .await
}

async fn substrate(State(shared): AgentState) -> Response {
    answer(move || Ok(Substrate::of(&shared.agent)?)).await
}

async fn document(
    State(shared): AgentState,
    Path((name, form)): Path<(String, String)>,
) -> Response {
    written(shared.agent.document(&name).map_err(ErrorBody::from), &form)
}

async fn history(
    State(shared): AgentState,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    answer(move || {
        let (since, _) = event_query(query.as_deref().unwrap_or_default())?;
        let age = millis(shared.agent.age(&name)?);
        let report = shared
            .lock()
            .get(&name)
            .map(|shared| shared.report(age, since));
        Ok(report.unwrap_or_else(|| HistoryReport {
            now_ms: age,
            samples: Vec::new(),
        }))
    })
    .await
}

async fn moment(State(shared): AgentState, Path((name, at_ms)): Path<(String, u64)>) -> Response {
    answer(move || shared.moment(&name, at_ms)).await
}

async fn begin_capture(
    State(shared): AgentState,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    answer(move || {
        let bad = |what: String| ErrorBody::new(ErrorCode::BadRequest, what);
        let wanted: CaptureWanted = json_in(&body)?;
        let report = shared.agent.report(&name)?;
        let link = report.links.iter().find(|link| link.number == wanted.link);
        let link = link.ok_or_else(|| Error::NoLink {
            vnet: name.clone(),
            link: wanted.link,
        })?;
        let CaptureWanted { link: number, side } = wanted;
        if side > 1 {
            return Err(bad(format!("side {side}: a link has the ends 0 and 1")));
        }
        let (near, far) = (&link.ends[side], &link.ends[1 - side]);
        let hold = shared.agent.hold(&name, &[number])?;
        let counters = shared.agent.counters(&name);
        let port = port_app_now(&counters, number, side);
        let request = TraceRequest {
            snap_bytes: Some(captures::SNAP),
            links: copied_links(&port, [near, far]),
        };
        shared.captures.begin(|| {
            let stream = TraceStream::open(&counters, &request);
            let stream =
                stream.map_err(|error| ErrorBody::new(ErrorCode::Conflict, error.to_string()))?;
            Ok(Box::new(EngineFrames {
                stream,
                _hold: hold,
            }))
        })
    })
    .await
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Time between two checks whether the service has ended.
const LOOK: Duration = Duration::from_millis(200);
const EVERY: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_millis(50);
/// Bytes for the histories of all networks, and the least number of equal shares into which they
/// are divided.
const ROOM: usize = 64 << 20;
const ROOMS_MIN: usize = 8;
