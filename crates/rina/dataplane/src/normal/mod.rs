//! The app of a normal IPC process, which provides flows and uses N-1 flows.
//!
//! ```text
//!   flow app, or the app of an IPCP above
//!      | from_flow (credit: room of the flow)   ^ to_flow (window: room of the reader)
//!      v                                        |
//!   +-------------------- Normal: Ipcp<Packet> --------------------+
//!      | output (credit: the N-1 DIF's)         ^ input (always taken at once)
//!      v                                        |
//!   app of an N-1 IPCP, or of an IPCP relayed to this one
//! ```
//!
//! [`carina_ipcp`] is the protocol machine. This app moves the machine's packets and reports its
//! events to the manager. A burst passes through any number of DIFs within one breath, because the
//! engine visits every app that has packets on an input link.

mod events;
mod flows;
mod n1;
mod requests;
mod trace;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use carina_api::{IpcpId, PortId};
use carina_engine::counters::Row;
use carina_engine::{App, AppId, LinkId, Links, Packet};
use carina_frame_engine::tap::Taps;
use carina_ipcp::security::Toolbox;
use carina_ipcp::{Catalogue, Config, Counters, Dialects, FlowKey, Ipcp, N1Port, Passage};
use carina_sys::Interest;
use carina_time::{Duration, Instant};
use carina_wire::pcapng::Direction;

use self::flows::NormalFlow;
use self::n1::N1Flow;
use crate::event::Event;
use crate::ipcp_app::{AppContext, BuildError, IpcpBuilder, RequestQueue};
use crate::mailbox::Mailbox;
use crate::port_table::PortTable;

/// The data from which the data plane creates the app of a normal IPCP.
pub struct NormalBuilder {
    /// The dialects that the program supports, with their layer management.
    pub dialects: Dialects,
    /// Name of the IPCP, its DIF and, for the first member, the configuration of the DIF.
    pub config: Config,
    /// Toolbox with the cryptography for authentication and SDU protection.
    pub tools: Box<dyn Toolbox + Send>,
    /// Seed of the IPCP's random number generator; the same seed gives the same numbers.
    pub seed: u64,
}

impl IpcpBuilder for NormalBuilder {
    fn label(&self) -> String {
        format!("normal {} in {}", self.config.name, self.config.dif)
    }

    fn enforces_credit(&self) -> bool {
        true
    }

    fn uses_n1_flows(&self) -> bool {
        true
    }

    fn build(self: Box<Self>, context: AppContext) -> Result<Box<dyn App>, BuildError> {
        let dif = self.config.dif.clone();
        let machine = Ipcp::new(
            self.dialects,
            self.config,
            self.tools,
            Catalogue::empty(),
            self.seed,
        );
        let mut machine = machine.map_err(|error| BuildError::Kind(error.into()))?;
        machine.set_tracer(trace::tracer(context.ipcp, dif));
        Ok(Box::new(Normal::new(context, machine)))
    }
}

/// The app of a normal IPCP.
pub(crate) struct Normal {
    id: AppId,
    ipcp: IpcpId,
    name: String,
    machine: Ipcp<Packet>,
    requests: RequestQueue,
    events: Mailbox<Event>,
    ports: PortTable,
    row: Row,
    /// Flows, indexed by flow key.
    flows: Vec<Option<NormalFlow>>,
    /// Ended flows whose readers have not received everything, and whose keys other flows use now.
    lingering: Vec<NormalFlow>,
    keys: HashMap<PortId, FlowKey>,
    /// N-1 flows, indexed by their number.
    n1s: Vec<Option<N1Flow>>,
    /// N-1 flows that had no credit or no room for the next PDU.
    blocked: Vec<N1Port>,
    /// N-1 flows that are allocated, but whose longest PDU is not known yet.
    unmeasured: Vec<N1Port>,
    /// Flows that may have more room than the credit of their links shows.
    roomy: Vec<FlowKey>,
    /// Flows whose reader's room may have changed.
    touched: Vec<FlowKey>,
    /// Links of N-1 flows on which PDUs wait, because too many events wait for the manager.
    left: Vec<LinkId>,
    /// Copy of the counters of the IPCP's state machine at the last update of `row`. The next
    /// update adds the difference.
    noted: Counters,
    /// Breaths of the engine since the last update of `row`.
    uncounted: u32,
    now: Instant,
    is_removed: bool,
    taps: Taps,
    /// Whether the machine shows its PDUs to the captures.
    is_tapped: bool,
}

impl Normal {
    /// Creates the app of an IPCP that is not a member of its DIF yet.
    fn new(context: AppContext, machine: Ipcp<Packet>) -> Normal {
        Normal {
            id: context.id,
            ipcp: context.ipcp,
            name: format!("ipcp-{}", context.ipcp),
            machine,
            requests: context.requests,
            events: context.events,
            ports: context.ports,
            row: context.row,
            flows: Vec::new(),
            lingering: Vec::new(),
            keys: HashMap::new(),
            n1s: Vec::new(),
            blocked: Vec::new(),
            unmeasured: Vec::new(),
            roomy: Vec::new(),
            touched: Vec::new(),
            left: Vec::new(),
            noted: Counters::default(),
            uncounted: 0,
            now: Instant::ZERO,
            is_removed: false,
            taps: context.taps,
            is_tapped: false,
        }
    }

    /// Moves everything that the machine has to send and deliver. Returns whether a packet moved.
    fn flush(&mut self, links: &mut Links) -> bool {
        self.machine.end_of_burst(self.now);
        let mut moved = self.transmit(links);
        moved |= self.deliver(links);
        self.dispatch_events(links);
        self.state_rooms();
        self.grant(links);
        // After this the rings that the burst came from are released.
        self.machine.release_burst();
        moved
    }

    /// Makes the machine show its PDUs while there is a capture.
    fn follow_taps(&mut self) {
        if self.taps.is_on() == self.is_tapped {
            return;
        }
        self.is_tapped = !self.is_tapped;
        let taps = self.taps.clone();
        self.machine.set_watch(if self.is_tapped {
            Some(Box::new(move |passage, _, pdu: &Packet| {
                let direction = match passage {
                    Passage::In => Direction::In,
                    Passage::Out => Direction::Out,
                };
                taps.note(direction, &[], pdu);
            }))
        } else {
            None
        });
    }

    /// Updates the row with the counters of the IPCP's state machine.
    fn count(&mut self) {
        self.uncounted = 0;
        events::count(&self.row, self.machine.counters(), &mut self.noted);
    }

    /// Whether too many events wait for the manager. Nothing is read from peers then.
    fn is_flooded(&self) -> bool {
        self.events.len() > EVENTS_MAX
    }
}

impl App for Normal {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&mut self, now: Instant, links: &mut Links) {
        self.now = now;
        // Each flow has its own credit. The flows together have no limit.
        links.set_room(self.id, u64::MAX);
        self.handle_requests(links);
        if self.is_removed {
            return;
        }
        self.follow_taps();
        self.measure(links);
        self.take_returns(links);
        if self.machine.poll_timeout().is_some_and(|due| due <= now) {
            self.machine.handle_timeout(now);
        }
        for n1 in std::mem::take(&mut self.blocked) {
            self.machine.unblock_n1(n1);
        }
        if !self.left.is_empty() && !self.is_flooded() {
            for link in std::mem::take(&mut self.left) {
                links.retry(link);
            }
        }
    }

    fn pull(&mut self, now: Instant, links: &mut Links) -> bool {
        self.now = now;
        !self.is_removed && self.flush(links)
    }

    fn push(&mut self, now: Instant, links: &mut Links) -> bool {
        self.now = now;
        let mut moved = false;
        while let Some(link) = links.next_ready(self.id) {
            moved |= match n1_of(links.sink_cookie(link)) {
                // The cookie belongs to an N-1 flow or to a flow; the link shows to which.
                Some(n1) if self.has_input(n1, link) => self.drain_n1(n1, link, links),
                _ => self.drain_flow(link, links),
            };
        }
        if !self.is_removed {
            moved |= self.flush(links);
        }
        moved
    }

    fn release_burst(&mut self, _now: Instant, _links: &mut Links) {
        self.uncounted += 1;
        if self.uncounted >= COUNT_BREATHS {
            self.count();
        }
    }

    fn arm(&mut self, _now: Instant, _links: &mut Links) -> bool {
        self.count();
        self.is_removed || self.requests.is_empty()
    }

    fn disarm(&mut self) {}

    fn next_deadline(&self) -> Option<Instant> {
        if self.is_removed {
            return None;
        }
        let due = self.machine.poll_timeout();
        if self.left.is_empty() {
            return due;
        }
        // The manager empties its mailbox without waking this app, so the app must check.
        let look = self.now + LOOK_AFTER;
        Some(due.map_or(look, |due| due.min(look)))
    }

    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        Vec::new()
    }
}

/// The cookie of an N-1 flow's links at the app that uses the flow.
pub(crate) fn n1_cookie(n1: N1Port) -> u32 {
    n1.0 + 1
}

fn n1_of(cookie: u32) -> Option<N1Port> {
    cookie.checked_sub(1).map(N1Port)
}

/// Largest number of ring bytes that may be in transit to a normal IPCP through one N-1 flow. A
/// peer with its own rings must have room for them.
pub(crate) const N1_WINDOW: u64 = 1 << 20;

/// Breaths between two updates of a busy app's row. The row is also updated before the app sleeps.
const COUNT_BREATHS: u32 = 16;

/// Largest number of events that may wait for the manager before nothing more is read from peers.
const EVENTS_MAX: usize = 16_384;

/// How often to check whether the manager has processed its events.
const LOOK_AFTER: Duration = Duration::from_millis(1);
