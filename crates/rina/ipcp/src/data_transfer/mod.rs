//! Data transfer: delimiting, EFCP, relaying and multiplexing, SDU protection.
//!
//! After the Pouzin Society's *RINA Reference Model*, part 3: the tasks of an IPCP that handle
//! every PDU. The specifications of the tasks are named where each is implemented.
//!
//! ```text
//!  on_sdu                                                          poll_deliver
//!    |                                                                  ^
//!    v                                                                  |
//!  delimiter -> EFCP -> PCI --+                    +-> EFCP -> assembler+
//!                             |                    | destination is here
//!                             v                    |
//!                   forwarding: next hop,   PCI, checks <--- protection off <--- on_pdu
//!                   N-1 flow                       | destination is elsewhere
//!                             |                    |
//!                             +--------<-----------+ hop limit, queueing policy
//!                             v
//!                   queue of a class of an N-1 flow
//!                             | scheduling policy
//!                             v
//!                   protection on -> take_transmit
//! ```
//!
//! Flows, connections and N-1 flows are in tables indexed by number. A connection caches its next
//! hop until the forwarding table changes, and deadlines are in a heap. So neither a PDU nor a
//! breath costs more with ten thousand flows than with one.
//!
//! Own flows never lose an SDU to a full queue: their writers wait ([`DataPath::room`]). Relayed
//! PDUs are subject to the queueing policy. Every dropped PDU or SDU is counted under a
//! [`DropReason`].

pub mod api;
mod cep_ids;
mod connections;
mod counters;
mod delivery;
mod dialect;
mod efcp_instance;
mod error;
mod flow_io;
mod forwarding;
mod inbound;
mod outbound;
mod port;
mod requests;
mod rib;
mod rmt;
mod settings;
mod timers;

pub use api::{DataTransfer, TransferEvent};
pub use counters::{Counters, DropReason};
pub use error::{ConnectionError, CubeError, N1Error, SettingsError};

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use carina_time::Instant;
use carina_wire::Payload;
use carina_wire::dif::{CepId, Dialect};

use crate::api::{Delivery, FlowKey, N1Port, Watch};
use crate::config::{DifConfig, QosCube};
use crate::policy::Catalogue;
use crate::trace::{TraceEvent, Tracer};
use cep_ids::{CepIdTable, is_channel};
use efcp_instance::EfcpInstance;
use flow_io::{FlowIo, FlowIoTable};
use rmt::Rmt;
use timers::Timer;

/// Data transfer of one IPCP: the path of PDUs and SDUs.
///
/// Every call passes the time, which never goes back. The order for each burst: `on_sdu` and
/// `on_pdu`; [`DataPath::end_of_burst`]; [`DataPath::poll_n1`] and [`DataPath::poll_deliver`] until
/// they return nothing; and, before the memory of the burst's payloads is reused,
/// [`DataPath::release_burst`].
pub struct DataPath<P: Payload> {
    rmt: Rmt<P>,
    connections: ConnectionTable<P>,
    flow_ios: FlowIoTable<P>,
    catalogue: Catalogue,
    config: DifConfig,
    cubes: Vec<QosCube>,
    is_configured: bool,
    /// Longest PDU without protection, in bytes; 0 when not known yet.
    max_pdu: usize,
    events: VecDeque<TransferEvent>,
    /// How many of the events are management messages.
    management_waiting: usize,
    /// Flows that have SDUs for their readers.
    deliverable: VecDeque<FlowKey>,
    /// Flows whose room has grown.
    rooms: VecDeque<FlowKey>,
    /// Connections to process at the end of the burst.
    dirty: Vec<CepId>,
    /// Flows whose SDUs may lie in memory of the current burst.
    unkept: Vec<FlowKey>,
    seed: u64,
    tracer: Tracer,
    /// Reasons already reported to the tracer, one bit each.
    traced_drops: u64,
}

/// Connections by their CEP-ids.
struct ConnectionTable<P> {
    flows: CepIdTable<Box<EfcpInstance<P>>>,
    channels: CepIdTable<Box<EfcpInstance<P>>>,
}

impl<P> ConnectionTable<P> {
    /// The connections of flows, then those of management channels.
    fn iter_mut(&mut self) -> impl Iterator<Item = &mut EfcpInstance<P>> {
        let all = self.flows.iter_mut().chain(self.channels.iter_mut());
        all.map(|instance| &mut **instance)
    }

    #[inline]
    fn get_mut(&mut self, cep: CepId) -> Option<&mut EfcpInstance<P>> {
        let table = if is_channel(cep) {
            &mut self.channels
        } else {
            &mut self.flows
        };
        table.get_mut(cep).map(|instance| &mut **instance)
    }

    fn get(&self, cep: CepId) -> Option<&EfcpInstance<P>> {
        let table = if is_channel(cep) {
            &self.channels
        } else {
            &self.flows
        };
        table.get(cep).map(|instance| &**instance)
    }

    fn remove(&mut self, cep: CepId, until: Instant) -> Option<Box<EfcpInstance<P>>> {
        if is_channel(cep) {
            self.channels.remove(cep, until)
        } else {
            self.flows.remove(cep, until)
        }
    }
}

impl<P: Payload> DataPath<P> {
    /// Data transfer of an IPCP that is not a member of a DIF yet. `seed` determines the initial
    /// sequence numbers and the random choices of policies.
    #[must_use]
    pub fn new(catalogue: Catalogue, seed: u64) -> DataPath<P> {
        DataPath::of_dialect(catalogue, Dialect::Native, seed)
    }

    /// Like [`DataPath::new`], for a DIF of the given dialect.
    #[must_use]
    pub fn of_dialect(catalogue: Catalogue, dialect: Dialect, seed: u64) -> DataPath<P> {
        let config = DifConfig::of_dialect(dialect);
        DataPath {
            rmt: Rmt::new(dialect, seed),
            connections: ConnectionTable {
                flows: CepIdTable::of_flows(config.widths.cep),
                channels: CepIdTable::of_channels(),
            },
            flow_ios: FlowIoTable::new(),
            catalogue,
            config,
            cubes: Vec::new(),
            is_configured: false,
            max_pdu: 0,
            events: VecDeque::new(),
            management_waiting: 0,
            deliverable: VecDeque::new(),
            rooms: VecDeque::new(),
            dirty: Vec::new(),
            unkept: Vec::new(),
            seed: seed ^ 0x5eed_0f5e_90ce_5eed,
            tracer: Tracer::default(),
            traced_drops: 0,
        }
    }

    /// Returns the memory that one flow with one connection takes, in bytes, without queued SDUs
    /// and without its policies.
    #[must_use]
    pub const fn flow_bytes() -> usize {
        size_of::<EfcpInstance<P>>() + size_of::<FlowIo<P>>()
    }

    /// Calls `watch` with every PDU from now on; `None` stops it. A PDU to be sent is shown when it
    /// is chosen for its N-1 flow, although the N-1 flow may still be blocked.
    pub fn set_watch(&mut self, watch: Option<Watch<P>>) {
        self.rmt.watch = watch;
    }

    /// Reports all later control events, such as opened connections, to `tracer`.
    pub fn set_tracer(&mut self, tracer: Tracer) {
        // Timeouts before now are not reported.
        for instance in self.connections.iter_mut() {
            instance.traced_timeouts = instance.timeouts();
        }
        self.tracer = tracer;
    }

    /// True when an event waits for layer management.
    #[inline]
    #[must_use]
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the counters of PDUs and SDUs that data transfer moved and dropped.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.rmt.counters
    }

    /// The next N-1 flow that has PDUs to send and is not blocked; `None` if there is no such flow.
    /// N-1 flows take turns: each call returns the next one. The caller then takes at least one PDU
    /// of this N-1 flow, or blocks it. Other methods may change which N-1 flow is next.
    #[must_use]
    pub fn poll_n1(&mut self) -> Option<N1Port> {
        self.rmt.poll_n1()
    }

    /// Returns the length in bytes of the PDU that [`DataPath::take_transmit`] would return for
    /// this N-1 flow, protection included; `None` if none waits. The same PDU stays next until it
    /// is taken.
    #[must_use]
    pub fn peek_transmit(&mut self, n1: N1Port) -> Option<usize> {
        let (len, refusal) = self.rmt.peek(n1);
        if let Some(reject) = refusal {
            self.notice(n1, reject.into());
        }
        len
    }

    /// Takes the next PDU of an N-1 flow out of its queue, with protection added; `None` if none
    /// waits.
    #[must_use]
    pub fn take_transmit(&mut self, now: Instant, n1: N1Port) -> Option<P> {
        self.rmt.now = now;
        let (queue_class, pdu) = match self.rmt.take(n1) {
            Some(taken) => taken,
            None => {
                self.peek_transmit(n1)?;
                self.rmt.take(n1)?
            }
        };
        if let Some(released) = self.rmt.released(n1, queue_class) {
            for key in released {
                self.resume_held(key);
            }
        }
        Some(pdu)
    }

    /// Marks an N-1 flow as unable to take PDUs. The PDUs that wait for it are copied out of the
    /// burst's memory.
    pub fn block_n1(&mut self, n1: N1Port) {
        self.rmt.block(n1);
    }

    /// Marks an N-1 flow as able to take PDUs again.
    pub fn unblock_n1(&mut self, n1: N1Port) {
        self.rmt.unblock(n1);
    }

    /// Ends a burst: sends small SDUs that wait to share a PDU and acknowledgements that are due,
    /// and copies what cannot be sent or delivered at once out of the burst's memory.
    pub fn end_of_burst(&mut self, now: Instant) {
        self.rmt.now = now;
        let mut dirty = core::mem::take(&mut self.dirty);
        while !dirty.is_empty() {
            for cep in dirty.drain(..) {
                self.finish_burst(cep);
            }
            self.loop_back();
            // Looped-back PDUs are a burst as well. Swapping the vectors keeps both allocations, so
            // the next burst allocates nothing.
            core::mem::swap(&mut dirty, &mut self.dirty);
        }
        self.dirty = dirty;
        self.rmt.keep(false);
        self.keep_flow_ios(false);
        if self.tracer.is_on() {
            self.trace_drops();
        }
    }

    /// Copies everything that is still queued out of the burst's memory. Call it after PDUs and
    /// SDUs have been drained, before that memory is reused.
    pub fn release_burst(&mut self) {
        let mut dirty = core::mem::take(&mut self.dirty);
        let now = self.rmt.now;
        for cep in dirty.drain(..) {
            if let Some(instance) = self.connections.get_mut(cep) {
                instance.is_dirty = false;
                instance.efcp.end_of_burst(now);
                instance.assembler.keep();
                instance.arm(&mut self.rmt);
            }
        }
        self.rmt.keep(true);
        self.keep_flow_ios(true);
    }

    /// Returns when to call [`DataPath::handle_timeout`]: at a time that may be early but never
    /// late; `None` if no deadline is set.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.rmt.timers.next()
    }

    /// Handles all deadlines up to `now`, of connections and of N-1 flows.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.rmt.now = now;
        while let Some((at, timer)) = self.rmt.timers.pop(now) {
            match timer {
                Timer::Connection(cep) => self.connection_timeout(CepId(cep), at),
                Timer::Port(index) => {
                    if self.rmt.port_timeout(index, at) {
                        let n1 = N1Port(index);
                        self.tracer.emit(now, || TraceEvent::N1Blocked { n1 });
                        self.events.push_back(TransferEvent::Stuck { n1 });
                    }
                }
            }
        }
        self.loop_back();
    }

    /// Reports each drop reason to the tracer the first time that it occurs.
    #[cold]
    fn trace_drops(&mut self) {
        for reason in DropReason::ALL {
            let bit = 1 << reason as u64;
            if self.traced_drops & bit == 0 && self.rmt.counters.dropped(reason) > 0 {
                self.traced_drops |= bit;
                let reason = reason.name();
                self.tracer
                    .emit(self.rmt.now, || TraceEvent::FirstDrop { reason });
            }
        }
    }

    /// The next flow whose [`DataPath::room`] has grown since its writer asked for it; `None` if
    /// there is no such flow.
    #[must_use]
    pub fn poll_room(&mut self) -> Option<FlowKey> {
        while let Some(key) = self.rooms.pop_front() {
            if let Some(io) = self.flow_ios.flow(key) {
                io.is_room_listed = false;
                return Some(key);
            }
        }
        None
    }

    /// Returns the next SDU, or piece of an SDU, whose reader has room for it; `None` if there is
    /// none.
    #[must_use]
    pub fn poll_deliver(&mut self) -> Option<Delivery<P>> {
        while let Some(key) = self.deliverable.front().copied() {
            if let Some(delivery) = self.next_delivery(key) {
                return Some(delivery);
            }
            self.deliverable.pop_front();
        }
        None
    }
}
