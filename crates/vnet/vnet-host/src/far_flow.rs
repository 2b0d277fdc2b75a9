//! Links to other hosts that are flows: each SDU of the flow, in a DIF of both hosts, is an
//! Ethernet frame.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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
    /// The tag of the link and the two hosts, which identify the flow.
    pub key: (u32, Pair),
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
        Ok(FarFlow {
            slot,
            key: (tag, pair),
        })
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

/// The flows of a network's links to other hosts.
#[derive(Debug)]
pub(crate) struct FarFlows {
    host: Option<Arc<HostDif>>,
    kept: Mutex<BTreeMap<u32, FarFlow>>,
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
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted = BTreeMap::new();
        for link in &part.links {
            if let Some(key) = pair_of(link) {
                wanted.insert(link.number, key);
            }
        }
        kept.retain(|number, flow| wanted.get(number) == Some(&flow.key));
        for (number, (tag, pair)) in wanted {
            if let Entry::Vacant(place) = kept.entry(number) {
                let host = self.host.as_ref().ok_or_else(|| Error::Unsupported {
                    what: format!("link {number} to another host"),
                    instead: crate::underlay::NEEDED,
                })?;
                place.insert(FarFlow::keep(host, tag, pair)?);
            }
        }
        Ok(())
    }

    /// The current flows, to be given to the engine.
    pub(crate) fn take(&self) -> Flows {
        let flows = current_flows(&self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        let numbers = flows.iter().map(|(link, flow)| (*link, flow.number()));
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = numbers.collect();
        flows
    }

    /// Whether the current flows differ from those that the engine uses.
    pub(crate) fn have_changed(&self) -> bool {
        let flows = current_flows(&self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        let numbers = flows.iter().map(|(link, flow)| (*link, flow.number()));
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.collect::<BTreeMap<_, _>>() != *taken
    }

    /// Notes whether a probe has passed a link. A flow that no probe passes for some time is
    /// deallocated, because a restarted node at the other end may not know the flow any more.
    pub(crate) fn note_probe(&self, link: u32, has_passed: bool) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.get(&link) {
            Some(flow) if has_passed => flow.slot.lock().losing_since = None,
            Some(flow) if flow.flow().is_ok() => flow.slot.note_lost_probe(),
            _ => {}
        }
    }

    /// Why links have no flow, by link number.
    pub(crate) fn missing(&self) -> BTreeMap<u32, String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let all = kept.iter();
        all.filter_map(|(link, flow)| Some((*link, flow.flow().err()?)))
            .collect()
    }
}

fn current_flows(kept: &BTreeMap<u32, FarFlow>) -> Flows {
    let all = kept.iter();
    all.filter_map(|(link, flow)| Some((*link, flow.flow().ok()?)))
        .collect()
}

/// Longest time for the node to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Time without a flow after which the second member joins the DIF again.
const ANEW: Duration = Duration::from_secs(10);
/// Time for which probes may fail before the flow is deallocated.
const PROBE_LOSS_MAX: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(100);
const ENDED: &str = "the flow of the link has ended";
const NOT_ASKED: &str = "the other host has not requested the flow yet";
