//! A normal IPC process as an app of the engine: hub of its flows, end of its N-1 flows.
//!
//! ```text
//!   flow app, or the app of an IPCP above
//!      | from_flow (credit: room of the flow)   ^ to_flow (window: room of the reader)
//!      v                                        |
//!   +-------------------- Normal: Ipcp<Packet> --------------------+
//!      | output (credit: the N-1 DIF's)         ^ input (always taken at once)
//!      v                                        |
//!   app of an N-1 IPCP, or of an IPCP joined to this one
//! ```
//!
//! [`carina_ipcp`] decides everything about the protocol; this app moves packets, and tells the
//! manager. A burst goes from link to link within one breath, through any number of DIFs: whoever
//! gets packets is pushed, and pushes on.

mod lines;
mod n1;
mod orders;
mod told;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use carina_api::{IpcpId, PortId};
use carina_engine::counters::Row;
use carina_engine::{App, AppId, LinkId, Links, Packet};
use carina_ipcp::{Catalogue, Counters, FlowKey, Ipcp, N1Port, N1Properties, Passage};
use carina_sys::Interest;
use carina_wire::pcapng::Direction;

use self::lines::Line;
use self::n1::N1Line;
use crate::command::{Event, NewNormal};
use crate::hub::{Directory, Order};
use crate::mailbox::Mailbox;
use crate::tap::Taps;

/// What the plane asks of the app of a normal IPCP.
pub(crate) enum NormalOrder {
    /// What every hub is asked.
    Hub(Order),
    /// An order to the machine.
    Handle(carina_ipcp::Command),
    /// A flow of another IPCP ends here; not in use yet.
    Attach { n1: N1Port, wires: N1Wires },
    /// It is allocated and may be used.
    N1Up { n1: N1Port, props: N1Properties },
    /// It ends by order.
    Drop { n1: N1Port, reason: String },
}

/// Where the plane leaves its orders; it wakes the app afterwards.
pub(crate) type NormalOrders = Rc<RefCell<VecDeque<NormalOrder>>>;

/// The links of an N-1 flow as its user sees them.
pub(crate) struct N1Wires {
    pub port: PortId,
    pub input: LinkId,
    pub output: LinkId,
    /// The other end of a relay speaks for the port.
    pub is_silent: bool,
}

/// The app.
pub(crate) struct Normal {
    id: AppId,
    ipcp: IpcpId,
    name: String,
    member: Ipcp<Packet>,
    orders: NormalOrders,
    events: Mailbox<Event>,
    directory: Directory,
    row: Row,
    /// Indexed by flow key.
    lines: Vec<Option<Line>>,
    /// Flows that are over but for what their readers have not taken, and whose keys others have.
    outlived: Vec<Line>,
    keys: HashMap<PortId, FlowKey>,
    /// Indexed by N-1 port.
    n1s: Vec<Option<N1Line>>,
    /// N-1 flows without credit or room.
    blocked: Vec<N1Port>,
    /// N-1 flows whose properties are known but not yet the longest PDU that they carry.
    unmeasured: Vec<N1Port>,
    /// Flows with more room than their links know of.
    roomy: Vec<FlowKey>,
    /// Flows whose reader's room has changed.
    touched: Vec<FlowKey>,
    /// N-1 flows whose PDUs wait on their links because the manager has not kept up.
    left: Vec<LinkId>,
    /// The machine's counters as the row has them.
    noted: Counters,
    /// Breaths since then.
    uncounted: u32,
    now: u64,
    is_removed: bool,
    taps: Taps,
    /// The machine shows its PDUs to the taps.
    is_tapped: bool,
}

/// What the app is made of, besides the machine.
pub(crate) struct Parts {
    pub id: AppId,
    pub orders: NormalOrders,
    pub events: Mailbox<Event>,
    pub directory: Directory,
    pub row: Row,
    pub taps: Taps,
}

impl Normal {
    /// An app whose IPCP is no member of its DIF.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn new(parts: Parts, new: NewNormal) -> Result<Normal, String> {
        let member = Ipcp::new(new.config, new.tools, Catalogue::empty(), new.seed)?;
        Ok(Normal {
            id: parts.id,
            ipcp: new.ipcp,
            name: format!("ipcp-{}", new.ipcp),
            member,
            orders: parts.orders,
            events: parts.events,
            directory: parts.directory,
            row: parts.row,
            lines: Vec::new(),
            outlived: Vec::new(),
            keys: HashMap::new(),
            n1s: Vec::new(),
            blocked: Vec::new(),
            unmeasured: Vec::new(),
            roomy: Vec::new(),
            touched: Vec::new(),
            left: Vec::new(),
            noted: Counters::default(),
            uncounted: 0,
            now: 0,
            is_removed: false,
            taps: parts.taps,
            is_tapped: false,
        })
    }

    /// Passes on whatever the machine has after it was given something. True when a packet moved.
    fn pass_on(&mut self, links: &mut Links) -> bool {
        self.member.end_of_burst(self.now);
        let mut moved = self.transmit(links);
        moved |= self.deliver(links);
        self.tell(links);
        self.state_rooms();
        self.grant(links);
        // The rings that the burst came from are released after this.
        self.member.release_burst();
        moved
    }

    /// The machine shows PDUs as long as somebody captures.
    fn follow_taps(&mut self) {
        if self.taps.is_on() == self.is_tapped {
            return;
        }
        self.is_tapped = !self.is_tapped;
        let taps = self.taps.clone();
        self.member.set_watch(match self.is_tapped {
            true => Some(Box::new(move |passage, _, pdu: &Packet| {
                let direction = match passage {
                    Passage::In => Direction::In,
                    Passage::Out => Direction::Out,
                };
                taps.note(direction, &[], pdu);
            })),
            false => None,
        });
    }

    /// Brings the row up to what the machine has counted.
    fn count(&mut self) {
        self.uncounted = 0;
        told::count(&self.row, self.member.counters(), &mut self.noted);
    }

    /// The manager has not kept up with events: nothing more is taken from peers.
    fn is_flooded(&self) -> bool {
        self.events.len() > EVENTS_MAX
    }
}

impl App for Normal {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&mut self, now: u64, links: &mut Links) {
        self.now = now;
        // Each flow has its own credit; all together have no bound but that.
        links.set_room(self.id, u64::MAX);
        self.obey(links);
        if self.is_removed {
            return;
        }
        self.follow_taps();
        self.measure(links);
        self.take_returns(links);
        if self.member.poll_timeout().is_some_and(|due| due <= now) {
            self.member.handle_timeout(now);
        }
        for n1 in std::mem::take(&mut self.blocked) {
            self.member.unblock_n1(n1);
        }
        if !self.left.is_empty() && !self.is_flooded() {
            for link in std::mem::take(&mut self.left) {
                links.retry(link);
            }
        }
    }

    fn pull(&mut self, now: u64, links: &mut Links) -> bool {
        self.now = now;
        !self.is_removed && self.pass_on(links)
    }

    fn push(&mut self, now: u64, links: &mut Links) -> bool {
        self.now = now;
        let mut moved = false;
        while let Some(link) = links.next_ready(self.id) {
            moved |= match n1_of(links.mark(link)) {
                // An IPCP may be at both ends of a link: as user below, as hub above.
                Some(n1) if self.has_input(n1, link) => self.drain_n1(n1, link, links),
                _ => self.drain_flow(link, links),
            };
        }
        if !self.is_removed {
            moved |= self.pass_on(links);
        }
        moved
    }

    fn settle(&mut self, _now: u64, _links: &mut Links) {
        self.uncounted += 1;
        if self.uncounted >= COUNT_BREATHS {
            self.count();
        }
    }

    fn arm(&mut self, _now: u64, _links: &mut Links) -> bool {
        self.count();
        self.is_removed || self.orders.borrow().is_empty()
    }

    fn disarm(&mut self) {}

    fn next_deadline(&self) -> Option<u64> {
        if self.is_removed {
            return None;
        }
        let due = self.member.poll_timeout();
        if self.left.is_empty() {
            return due;
        }
        // The manager empties its box without a word.
        let look = self.now + LOOK_NS;
        Some(due.map_or(look, |due| due.min(look)))
    }

    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        Vec::new()
    }
}

/// The mark of an N-1 flow's links for the app that uses them.
pub(crate) fn n1_mark(n1: N1Port) -> u32 {
    n1.0 + 1
}

fn n1_of(mark: u32) -> Option<N1Port> {
    mark.checked_sub(1).map(N1Port)
}

/// Ring bytes that may be on their way to a normal IPCP through one N-1 flow: what a peer with
/// rings of its own must have room for.
pub(crate) const N1_WINDOW: u64 = 1 << 20;

/// Breaths of a busy app after which its row is brought up to date. One that goes to sleep leaves
/// nothing uncounted.
const COUNT_BREATHS: u32 = 16;

/// Events that may wait for the manager before peers are left waiting.
const EVENTS_MAX: usize = 16_384;

/// How often to look whether the manager has caught up, in ns.
const LOOK_NS: u64 = 1_000_000;
