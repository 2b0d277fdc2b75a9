//! Links to other hosts that are flows: each SDU of the flow, in a DIF of both hosts, is an
//! Ethernet frame.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_api::{AppName, DifName};
use carina_client::{FlowSpec, Node};
use carina_vnet::document::Carrier;
use carina_vnet::host_part::{Far, HostPart, LinkPart};

use crate::error::{Attempt, Error, Result};
use crate::flow_port::FlowSocket;
use crate::host_dif::{HostDif, Pair};

/// The flows of links that have one, by link number.
pub(crate) type Flows = BTreeMap<u32, Arc<FlowSocket>>;

/// Keeps the flow of a link: allocates it, and allocates another one when it has ended, until this
/// value is dropped.
#[derive(Debug)]
pub(crate) struct FarFlow {
    slot: Arc<Slot>,
}

#[derive(Debug)]
struct Slot {
    state: Mutex<State>,
    is_unwanted: AtomicBool,
}

#[derive(Debug)]
struct State {
    flow: Option<Arc<FlowSocket>>,
    /// Why the link has no flow at present.
    reason: String,
    /// Since when no probe has passed the flow; `None` while probes pass.
    losing_since: Option<Instant>,
}

impl FarFlow {
    /// Starts a thread that allocates the flow of the link with this tag, or waits for the other
    /// host to allocate it.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn keep(host: &Arc<HostDif>, tag: u32, pair: Pair) -> Result<FarFlow> {
        let slot = Arc::new(Slot {
            state: Mutex::new(State {
                flow: None,
                reason: "the flow is not requested yet".to_owned(),
                losing_since: None,
            }),
            is_unwanted: AtomicBool::new(false),
        });
        let (host, shared) = (Arc::clone(host), Arc::clone(&slot));
        let thread = std::thread::Builder::new().name("far-flow".into());
        let keep = move || {
            host.want(pair);
            let mut worked = Instant::now();
            while shared.is_wanted() {
                // What is missing now may appear later; the status of the link names it.
                let served = shared.serve(&host, tag, pair);
                if served.is_ok() {
                    worked = Instant::now();
                } else if worked.elapsed() > ANEW {
                    // If the node refuses, this is retried.
                    let _ = host.join_anew(pair);
                    worked = Instant::now();
                }
                let why = served.map_or_else(|error| error.to_string(), |()| ENDED.to_owned());
                shared.set(Err(why));
                std::thread::sleep(AGAIN);
            }
            host.release(pair);
        };
        thread.spawn(keep).attempt("starting a thread")?;
        Ok(FarFlow { slot })
    }

    /// The flow of the link.
    ///
    /// # Errors
    /// Why the link has no flow.
    pub(crate) fn flow(&self) -> std::result::Result<Arc<FlowSocket>, String> {
        self.slot.flow()
    }
}

impl Drop for FarFlow {
    fn drop(&mut self) {
        self.slot.is_unwanted.store(true, Ordering::Release);
    }
}

impl Slot {
    fn is_wanted(&self) -> bool {
        !self.is_unwanted.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent, even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flow(&self) -> std::result::Result<Arc<FlowSocket>, String> {
        let state = self.lock();
        match &state.flow {
            Some(flow) if flow.has_ended() => Err(ENDED.to_owned()),
            Some(flow) => Ok(Arc::clone(flow)),
            None => Err(state.reason.clone()),
        }
    }

    fn set(&self, flow: std::result::Result<Arc<FlowSocket>, String>) {
        let mut state = self.lock();
        match flow {
            Ok(flow) => state.flow = Some(flow),
            Err(reason) => (state.flow, state.reason) = (None, reason),
        }
        state.losing_since = None;
    }

    /// Notes that a probe has not passed the flow. The flow is deallocated if that lasts longer
    /// than [`PROBE_LOSS_MAX`].
    fn note_lost_probe(&self) {
        let mut state = self.lock();
        let since = *state.losing_since.get_or_insert_with(Instant::now);
        if since.elapsed() > PROBE_LOSS_MAX {
            drop(state);
            self.set(Err(
                "no frame arrived over the flow, so it is requested again".to_owned(),
            ));
        }
    }

    /// Gets a flow for the link, and returns when that flow has ended or when the other host is no
    /// longer a member of the DIF.
    fn serve(
        &self,
        host: &HostDif,
        tag: u32,
        pair: Pair,
    ) -> std::result::Result<(), Box<dyn std::error::Error>> {
        host.ensure(pair)?;
        let node = Node::connect_within(host.socket(), ANSWER)?;
        let dif = DifName::new(pair.dif())?;
        let name = AppName::new(flow_name(tag))?;
        if pair.is_first() {
            let mut registration = node.register(&name, Some(&dif))?;
            while self.is_wanted() {
                if let Some(request) = registration.next_request_timeout(LOOK)? {
                    let flow = registration.accept_request_socket(&request)?;
                    self.set(Ok(FlowSocket::over(flow.socket)));
                }
                match (host.neighbour(pair), self.flow()) {
                    (Ok(()), Ok(_)) => {}
                    // The other host allocates the flow again when it is back.
                    (Err(why), _) => self.set(Err(why)),
                    (_, Err(_)) => self.set(Err(NOT_ASKED.to_owned())),
                }
            }
        } else {
            host.neighbour(pair)?;
            let own = AppName::new(format!("{name}.far"))?;
            let spec = FlowSpec::unreliable();
            let flow = node.allocate_socket(&own, &name, Some(&dif), &spec)?;
            self.set(Ok(FlowSocket::over(flow.socket)));
            while self.is_wanted() && self.flow().is_ok() {
                std::thread::sleep(LOOK);
                host.neighbour(pair)?;
            }
        }
        Ok(())
    }
}

/// The application name of a link's flow; the first member of the two hosts' DIF registers it.
pub(crate) fn flow_name(tag: u32) -> String {
    format!("link.{tag}")
}

/// The tag and the hosts of a link that is a flow between two hosts; `None` for other links.
pub(crate) fn pair_of(link: &LinkPart) -> Option<(u32, Pair)> {
    match &link.far {
        Far::Host(far) if link.carrier == Carrier::Dif => {
            let (local, remote) = (far.local, far.remote);
            Some((link.tag, Pair { local, remote }))
        }
        _ => None,
    }
}

/// Identifies the flow of a link: the number of the link, its tag, and the hosts.
type Key = (u32, u32, Pair);

fn key_of(link: &LinkPart) -> Option<Key> {
    pair_of(link).map(|(tag, pair)| (link.number, tag, pair))
}

/// The flows of a network's links to other hosts. While a node moves to another host, also the
/// flows that its links will need there.
#[derive(Debug)]
pub(crate) struct FarFlows {
    host: Option<Arc<HostDif>>,
    kept: Mutex<BTreeMap<Key, FarFlow>>,
    /// The numbers of the flows that the engine uses, by link.
    taken: Mutex<BTreeMap<u32, u64>>,
}

impl FarFlows {
    /// No flows yet, to be allocated in the DIFs of a host.
    pub(crate) fn of(host: Option<&Arc<HostDif>>) -> FarFlows {
        FarFlows {
            host: host.map(Arc::clone),
            kept: Mutex::default(),
            taken: Mutex::default(),
        }
    }

    /// Begins to keep flows for the links of a part, and ends all others.
    ///
    /// # Errors
    /// This host has no interface for links to other hosts.
    pub(crate) fn keep(&self, part: &HostPart) -> Result<()> {
        let wanted: BTreeSet<Key> = part.links.iter().filter_map(key_of).collect();
        self.lock().retain(|key, _| wanted.contains(key));
        self.keep_also(&part.links)
    }

    /// Begins to keep flows for links that a later part has, beside all others.
    ///
    /// # Errors
    /// As of [`FarFlows::keep`].
    pub(crate) fn keep_also(&self, links: &[LinkPart]) -> Result<()> {
        let mut kept = self.lock();
        for key in links.iter().filter_map(key_of) {
            if let Entry::Vacant(place) = kept.entry(key) {
                let (number, tag, pair) = key;
                let host = self.host.as_ref().ok_or_else(|| Error::Unsupported {
                    what: format!("link {number} to another host"),
                    instead: crate::underlay::NEEDED,
                })?;
                place.insert(FarFlow::keep(host, tag, pair)?);
            }
        }
        Ok(())
    }

    /// Waits until all these links have the flows that they need, at most for `limit`.
    pub(crate) fn wait(&self, links: &[LinkPart], limit: Duration) {
        let deadline = Instant::now() + limit;
        let lack = |link: &LinkPart| self.flow(link).is_some_and(|flow| flow.is_err());
        while links.iter().any(lack) && Instant::now() < deadline {
            std::thread::sleep(NEXT_LOOK);
        }
    }

    /// The current flows of a part, to be given to the engine.
    pub(crate) fn take(&self, part: &HostPart) -> Flows {
        let flows = self.current(part);
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = numbers(&flows);
        flows
    }

    /// Whether the current flows of a part differ from those that the engine uses.
    pub(crate) fn have_changed(&self, part: &HostPart) -> bool {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        numbers(&self.current(part)) != *taken
    }

    /// Notes whether a probe has passed a link. A flow that no probe passes for some time is
    /// deallocated, because a restarted node at the other end may not know the flow any more.
    pub(crate) fn note_probe(&self, link: &LinkPart, has_passed: bool) {
        let kept = self.lock();
        match key_of(link).and_then(|key| kept.get(&key)) {
            Some(flow) if has_passed => flow.slot.lock().losing_since = None,
            Some(flow) if flow.flow().is_ok() => flow.slot.note_lost_probe(),
            _ => {}
        }
    }

    /// Why a link has no flow; `None` if it has one or needs none.
    pub(crate) fn missing(&self, link: &LinkPart) -> Option<String> {
        self.flow(link)?.err()
    }

    /// The flow of a link; `None` if it needs none.
    fn flow(&self, link: &LinkPart) -> Option<std::result::Result<Arc<FlowSocket>, String>> {
        let kept = self.lock();
        key_of(link).and_then(|key| Some(kept.get(&key)?.flow()))
    }

    fn current(&self, part: &HostPart) -> Flows {
        let links = part.links.iter();
        links
            .filter_map(|link| Some((link.number, self.flow(link)?.ok()?)))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, FarFlow>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn numbers(flows: &Flows) -> BTreeMap<u32, u64> {
    let flows = flows.iter();
    flows.map(|(link, flow)| (*link, flow.number())).collect()
}

/// Longest time for the node to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Time without a flow after which the second member joins the DIF again.
const ANEW: Duration = Duration::from_secs(10);
/// Time for which probes may fail before the flow is deallocated.
const PROBE_LOSS_MAX: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(100);
const NEXT_LOOK: Duration = Duration::from_millis(10);
const ENDED: &str = "the flow of the link has ended";
const NOT_ASKED: &str = "the other host has not requested the flow yet";
