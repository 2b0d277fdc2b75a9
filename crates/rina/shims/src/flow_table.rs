//! The flows of a shim IPCP over any network: their links, their states, and the events about them.
//!
//! ```text
//!            request              confirm
//!   (none) -------> Requested -------------> Open --- end, or the application ends --> (none)
//!            offer             accept          ^
//!   (none) -------> Offered -------------------+
//!                      |  refuse, end
//!                      +--------------------> (none)
//! ```

use std::collections::{BTreeSet, HashMap, VecDeque};

use carina_api::{AppName, FlowSpec, IpcpId, PortId};
use carina_dataplane::{AppContext, Event, FlowLinks, Mailbox, PortTable, Request, RequestQueue};
use carina_engine::counters::{Row, Value};
use carina_engine::{AppId, Close, LinkId, Links, Packet, Pool};
use carina_frame_engine::tap::Taps;
use carina_ipcp::ConnectReader;
use carina_time::Instant;
use slab::Slab;

pub(crate) use self::delivery::Held;
use crate::connectable::Connectable;

mod delivery;

/// The two names of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    /// Name of the application of this system.
    pub local: AppName,
    /// Name of the application of the other system.
    pub remote: AppName,
}

/// State of a flow's allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// This side has requested the flow.
    Requested,
    /// The peer has requested the flow, and no application has accepted it yet.
    Offered,
    /// The flow carries SDUs.
    Open,
}

/// A flow; `X` identifies it on the network.
pub(crate) struct ShimFlow<X> {
    pub port: PortId,
    pub names: Names,
    pub stage: Stage,
    /// Whether the peer requested the flow.
    pub is_passive: bool,
    /// Time at which the flow was requested, or, once the flow is open, at which it opened.
    pub since: Instant,
    pub peer: X,
    links: Option<FlowLinks>,
    /// SDUs that arrived before an application accepted the flow.
    waiting: VecDeque<Packet>,
    /// Whether the last packet of the application was a piece of an SDU, not its last one.
    is_in_pieces: bool,
}

/// All flows of one IPCP.
pub(crate) struct FlowTable<X> {
    pub id: AppId,
    pub ipcp: IpcpId,
    pub row: Row,
    /// Names that are registered at this shim.
    pub names: BTreeSet<AppName>,
    /// Registered names that belong to IPCPs. A peer of an IPCP names itself in its first PDU.
    pub connectable: Connectable,
    pub pool: Pool,
    /// Captures of SDUs that are running.
    pub taps: Taps,
    requests: RequestQueue,
    events: Mailbox<Event>,
    ports: PortTable,
    slots: Slab<ShimFlow<X>>,
    by_port: HashMap<PortId, usize>,
}

impl<X> FlowTable<X> {
    /// Creates an empty table.
    pub(crate) fn new(context: AppContext) -> FlowTable<X> {
        FlowTable {
            id: context.id,
            ipcp: context.ipcp,
            row: context.row,
            names: BTreeSet::new(),
            connectable: Connectable::default(),
            pool: context.pool,
            taps: context.taps,
            requests: context.requests,
            events: context.events,
            ports: context.ports,
            slots: Slab::new(),
            by_port: HashMap::new(),
        }
    }

    /// Registers a name, and confirms it to the manager. Names of IPCPs have a reader, which
    /// decodes the M_CONNECT of the IPCP's DIF.
    pub(crate) fn register(&mut self, name: AppName, reader: Option<ConnectReader>) {
        self.names.insert(name.clone());
        if let Some(reader) = reader {
            self.connectable.insert(name.clone(), reader);
        }
        let ipcp = self.ipcp;
        self.events.put(Event::Registered { ipcp, name });
    }

    /// Withdraws the registration of a name.
    pub(crate) fn unregister(&mut self, name: &AppName) {
        self.names.remove(name);
        self.connectable.remove(name);
    }

    /// The names of the flow that a packet begins. `None` unless the packet is an M_CONNECT to a
    /// registered IPCP.
    pub(crate) fn connecting(&self, packet: &Packet) -> Option<Names> {
        let (local, remote) = self.connectable.read(packet)?;
        Some(Names { local, remote })
    }

    /// Returns the next request of the plane.
    pub(crate) fn next_request(&self) -> Option<Request> {
        self.requests.pop()
    }

    /// Whether requests of the plane are pending.
    pub(crate) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Reports that the medium is up.
    pub(crate) fn link_up(&mut self, label: String) {
        self.row.add(Value::LinksUp, 1);
        let (ipcp, peer) = (self.ipcp, label);
        self.events.put(Event::LinkUp { ipcp, peer });
    }

    /// Reports that the medium is down. The caller fails the flows.
    pub(crate) fn link_down(&mut self, reason: String) {
        self.row.add(Value::LinksDown, 1);
        let ipcp = self.ipcp;
        self.events.put(Event::LinkDown { ipcp, reason });
    }

    /// Reports that the length of the longest SDU has changed.
    pub(crate) fn sdu_max_changed(&mut self, sdu_bytes_max: usize) {
        let ipcp = self.ipcp;
        self.events.put(Event::SduMaxChanged {
            ipcp,
            sdu_bytes_max,
        });
    }

    /// Number of flows in the table.
    pub(crate) fn len(&self) -> usize {
        self.by_port.len()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut ShimFlow<X>> {
        self.slots.get_mut(at)
    }

    /// Index of the flow with a port-id.
    pub(crate) fn index_of_port(&self, port: PortId) -> Option<usize> {
        self.by_port.get(&port).copied()
    }

    /// Index of the flow whose application writes to `link`.
    #[inline]
    pub(crate) fn index_of_link(&self, link: LinkId, links: &Links) -> Option<usize> {
        let at = (links.sink_cookie(link) as usize).checked_sub(1)?;
        let ends = self.slots.get(at)?.links?;
        (ends.from_flow == link).then_some(at)
    }

    /// Indices of all flows.
    pub(crate) fn indices(&self) -> Vec<usize> {
        self.by_port.values().copied().collect()
    }

    fn insert(&mut self, flow: ShimFlow<X>) -> usize {
        let port = flow.port;
        let at = self.slots.insert(flow);
        self.by_port.insert(port, at);
        at
    }

    fn remove(&mut self, at: usize) -> Option<ShimFlow<X>> {
        let flow = self.slots.try_remove(at)?;
        self.by_port.remove(&flow.port);
        Some(flow)
    }

    /// Adds a flow that an application of this system requests. Returns its index.
    pub(crate) fn request(
        &mut self,
        now: Instant,
        (port, names, ends): (PortId, Names, FlowLinks),
        peer: X,
        links: &mut Links,
    ) -> usize {
        let at = self.insert(ShimFlow {
            port,
            names,
            stage: Stage::Requested,
            is_passive: false,
            since: now,
            peer,
            links: Some(ends),
            waiting: VecDeque::new(),
            is_in_pieces: false,
        });
        links.set_source_cookie(ends.to_flow, at as u32 + 1);
        links.set_sink_cookie(ends.from_flow, at as u32 + 1);
        at
    }

    /// Adds a flow that the other side requests, reports it, and returns its index. `None` if the
    /// table has [`FLOWS_MAX`] flows.
    pub(crate) fn add_incoming(&mut self, now: Instant, names: Names, peer: X) -> Option<usize> {
        if self.len() >= FLOWS_MAX {
            self.row.add(Value::DropNoBuffer, 1);
            return None;
        }
        let Names { local, remote } = names.clone();
        let name = format!("{local} < {remote} via ipcp {}", self.ipcp);
        let port = self.ports.add_incoming(self.ipcp, name);
        self.events.put(Event::IncomingFlow {
            ipcp: self.ipcp,
            port,
            local,
            remote,
            spec: FlowSpec::unreliable(),
        });
        Some(self.insert(ShimFlow {
            port,
            names,
            stage: Stage::Offered,
            is_passive: true,
            since: now,
            peer,
            links: None,
            waiting: VecDeque::new(),
            is_in_pieces: false,
        }))
    }

    /// Opens a flow that the peer has accepted, and reports that.
    pub(crate) fn confirm(
        &mut self,
        now: Instant,
        at: usize,
        credit: (u64, usize),
        links: &mut Links,
    ) {
        self.open(now, at, credit, links);
        if let Some(port) = self.get_mut(at).map(|flow| flow.port) {
            let result = Ok(());
            self.events.put(Event::AllocateResult { port, result });
        }
    }

    /// Opens an incoming flow that an application has accepted. `None` if the flow has ended in the
    /// meantime: the manager knows that already, and this call closes the application's end.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        (port, ends): (PortId, FlowLinks),
        credit: (u64, usize),
        links: &mut Links,
    ) -> Option<usize> {
        let place = self.index_of_port(port);
        let Some((at, flow)) = place.and_then(|at| Some((at, self.get_mut(at)?))) else {
            ends.refuse("the request no longer exists".to_owned(), links);
            self.ports.remove(port);
            return None;
        };
        flow.links = Some(ends);
        links.set_source_cookie(ends.to_flow, at as u32 + 1);
        links.set_sink_cookie(ends.from_flow, at as u32 + 1);
        self.open(now, at, credit, links);
        Some(at)
    }

    fn open(&mut self, now: Instant, at: usize, credit: (u64, usize), links: &mut Links) {
        let Some(flow) = self.slots.get_mut(at) else {
            return;
        };
        let Some(ends) = flow.links else { return };
        flow.stage = Stage::Open;
        flow.since = now;
        links.set_credit(ends.from_flow, credit.0, credit.1);
        self.row.add(Value::FlowsOpened, 1);
        for packet in std::mem::take(&mut flow.waiting) {
            self.push_to_flow(at, packet, links);
        }
    }

    /// Rejects an application's request that has no entry yet.
    pub(crate) fn reject(
        &mut self,
        port: PortId,
        ends: FlowLinks,
        reason: String,
        links: &mut Links,
    ) {
        ends.refuse(reason.clone(), links);
        self.ports.remove(port);
        let result = Err(reason);
        self.events.put(Event::AllocateResult { port, result });
    }

    /// Closes a flow because the network ended it: closes its links, or, if the flow has none yet,
    /// reports its end.
    pub(crate) fn close(&mut self, at: usize, close: Close, links: &mut Links) -> Option<X> {
        let flow = self.remove(at)?;
        let lost = flow.waiting.len() as u64;
        self.row.add(Value::DropFlowEnded, lost);
        match (flow.stage, flow.links) {
            (Stage::Requested, Some(ends)) => {
                self.reject(flow.port, ends, close.reason().to_owned(), links);
            }
            (_, Some(ends)) => {
                self.row.add(Value::FlowsClosed, 1);
                links.close(ends.to_flow, close);
                let lost = links.disconnect(ends.from_flow);
                self.row.add(Value::DropFlowEnded, lost as u64);
            }
            (_, None) => {
                self.ports.remove(flow.port);
                let (port, reason) = (flow.port, close.reason().to_owned());
                self.events.put(Event::FlowClosed { port, reason });
            }
        }
        Some(flow.peer)
    }

    /// Removes a flow that its application has closed, once its link is empty.
    pub(crate) fn take_closed(&mut self, link: LinkId, links: &mut Links) -> Option<ShimFlow<X>> {
        let flow = self
            .index_of_link(link, links)
            .and_then(|at| self.remove(at));
        if let Some(flow) = &flow
            && let Some(ends) = flow.links
        {
            let lost = links.disconnect(ends.to_flow);
            self.row.add(Value::DropFlowEnded, lost as u64);
            self.row.add(Value::FlowsClosed, 1);
        }
        links.disconnect(link);
        flow
    }

    /// Removes an incoming flow that the manager refuses or cancels.
    pub(crate) fn refuse(&mut self, port: PortId) -> Option<X> {
        let at = self.index_of_port(port)?;
        if self.get_mut(at)?.stage != Stage::Offered {
            return None;
        }
        let flow = self.remove(at)?;
        self.ports.remove(port);
        let lost = flow.waiting.len() as u64;
        self.row.add(Value::DropFlowEnded, lost);
        Some(flow.peer)
    }

    /// Sets the credit of one flow. `credit.0` is the number of bytes, as rings count them, that
    /// the application may send from now on. `credit.1` is the longest piece of an SDU that it may
    /// send at once, in bytes.
    pub(crate) fn set_credit(&mut self, at: usize, credit: (u64, usize), links: &mut Links) {
        if let Some(ends) = self.get_mut(at).and_then(|flow| flow.links) {
            links.set_credit(ends.from_flow, credit.0, credit.1);
        }
    }

    /// Sets the credit of all open flows after it has changed. See [`FlowTable::set_credit`].
    pub(crate) fn restate_credit(&mut self, credit: (u64, usize), links: &mut Links) {
        for (_, flow) in &self.slots {
            if let Some(ends) = flow.links.filter(|_| flow.stage == Stage::Open) {
                links.set_credit(ends.from_flow, credit.0, credit.1);
            }
        }
    }
}

/// Credit of a flow over a network without flow control, where only the room of the device limits
/// sending.
pub(crate) const CREDIT_ANY: u64 = u64::MAX / 2;

/// Largest number of flows of one shim, because any sender on the network can request flows.
const FLOWS_MAX: usize = 4096;
