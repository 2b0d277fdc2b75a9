//! A link to another host that is a flow of the DIF of both hosts: frames of Ethernet are its SDUs.

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

/// The flows of links that have one, by number.
pub type Flows = BTreeMap<u32, Arc<FlowSocket>>;

/// Keeps the flow of a link, and asks for another one when it has ended; for as long as this value
/// is there.
#[derive(Debug)]
pub struct FarFlow {
    slot: Arc<Slot>,
    /// What it is the flow of.
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
    /// Why the link has no flow.
    reason: String,
    /// Since when no probe passes it.
    doubted: Option<Instant>,
}

impl FarFlow {
    /// Begins to ask for the flow of the link with a tag, or to wait until it is asked for.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn keep(host: &Arc<HostDif>, tag: u32, pair: Pair) -> Result<FarFlow> {
        let slot = Arc::new(Slot {
            state: Mutex::new(State {
                flow: None,
                reason: "it is not asked for yet".to_owned(),
                doubted: None,
            }),
            is_unwanted: AtomicBool::new(false),
        });
        let (host, shared) = (Arc::clone(host), Arc::clone(&slot));
        let thread = std::thread::Builder::new().name("far-flow".into());
        let keep = move || {
            host.want(pair);
            let mut worked = Instant::now();
            while shared.is_wanted() {
                // What is missing now may be there later; the status of the link says what it is.
                let served = shared.serve(&host, tag, pair);
                if served.is_ok() {
                    worked = Instant::now();
                } else if worked.elapsed() > ANEW {
                    // Should it be refused, it is tried again.
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

    /// The flow, if there is one.
    ///
    /// # Errors
    /// Why the link has no flow.
    pub fn flow(&self) -> std::result::Result<Arc<FlowSocket>, String> {
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
        // Every critical section leaves the state whole.
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
        state.doubted = None;
    }

    /// Notes that a probe has not passed the flow; it is let go when that goes on.
    fn doubt(&self) {
        let mut state = self.lock();
        let since = *state.doubted.get_or_insert_with(Instant::now);
        if since.elapsed() > DOUBT {
            drop(state);
            self.set(Err(
                "nothing has passed it, and it is asked for anew".to_owned()
            ));
        }
    }

    /// Gets a flow, and returns when it has ended, or the other host is no member any more.
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
                    // The other host asks again when it is back.
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

/// The name of the flow of the link with a tag, at the first member of the DIF of two hosts.
pub fn flow_name(tag: u32) -> String {
    format!("link.{tag}")
}

/// The tag and the hosts of a link that is a flow between two hosts.
pub fn pair_of(link: &LinkPart) -> Option<(u32, Pair)> {
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
pub struct FarFlows {
    host: Option<Arc<HostDif>>,
    kept: Mutex<BTreeMap<u32, FarFlow>>,
    /// The numbers of the flows that the engine has.
    taken: Mutex<BTreeMap<u32, u64>>,
}

impl FarFlows {
    /// None yet, over the DIFs of a host.
    pub fn of(host: Option<&Arc<HostDif>>) -> FarFlows {
        FarFlows {
            host: host.map(Arc::clone),
            kept: Mutex::default(),
            taken: Mutex::default(),
        }
    }

    /// Begins to keep the flows of a part, and no others.
    ///
    /// # Errors
    /// This host has no interface for links to others.
    pub fn keep(&self, part: &HostPart) -> Result<()> {
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

    /// The flows that there are, for the engine.
    pub fn take(&self) -> Flows {
        let flows = there(&self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        let numbers = flows.iter().map(|(link, flow)| (*link, flow.number()));
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = numbers.collect();
        flows
    }

    /// Whether there are other flows than the engine has.
    pub fn have_changed(&self) -> bool {
        let flows = there(&self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        let numbers = flows.iter().map(|(link, flow)| (*link, flow.number()));
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.collect::<BTreeMap<_, _>>() != *taken
    }

    /// Notes whether a probe has passed a link. A flow that no probe passes for some time is let
    /// go, as its other end may have been forgotten with the node there.
    pub fn note_probe(&self, link: u32, has_passed: bool) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.get(&link) {
            Some(flow) if has_passed => flow.slot.lock().doubted = None,
            Some(flow) if flow.flow().is_ok() => flow.slot.doubt(),
            _ => {}
        }
    }

    /// What keeps links that are flows from having one, by number.
    pub fn missing(&self) -> BTreeMap<u32, String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let all = kept.iter();
        all.filter_map(|(link, flow)| Some((*link, flow.flow().err()?)))
            .collect()
    }
}

fn there(kept: &BTreeMap<u32, FarFlow>) -> Flows {
    let all = kept.iter();
    all.filter_map(|(link, flow)| Some((*link, flow.flow().ok()?)))
        .collect()
}

/// How long the node may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// After which time without a flow the second member joins the DIF anew.
const ANEW: Duration = Duration::from_secs(10);
/// For how long probes may fail over a flow.
const DOUBT: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(100);
const ENDED: &str = "its flow has ended";
const NOT_ASKED: &str = "the other host has not asked for its flow yet";
