//! One member of one normal DIF: layer management and data transfer combined.

use alloc::boxed::Box;
use alloc::vec::Vec;

use carina_time::Instant;
use carina_wire::dif::Address;
use carina_wire::{FlowSpec, Payload};

use crate::api::{Command, Delivery, Event, FlowKey, N1Port, Watch};
use crate::config::Config;
use crate::data_transfer::api::DataTransfer;
use crate::data_transfer::{Counters, DataPath};
use crate::dialects::Dialects;
use crate::layer::{AllocateError, CreateError, LayerManagement};
use crate::policy::Catalogue;
use crate::security::Toolbox;
use crate::trace::Tracer;

/// An IPC process: one member of one normal DIF, as a state machine without I/O.
///
/// The same configuration, seed and calls give the same behaviour. The time that calls pass never
/// goes back.
///
/// # The order of calls
///
/// ```text
///   on_pdu, on_sdu, handle, allocate, set_delivery_room      any number, in any order
///   handle_timeout                                           when poll_timeout has passed
///   end_of_burst                                             once
///   poll_n1 / peek_transmit / take_transmit (or block_n1), poll_deliver, poll_room, poll_event
///                                                            until they return nothing
///   release_burst                                            before the memory of received
///                                                            payloads is reused
///   poll_timeout                                             when to call next
/// ```
pub struct Ipcp<P: Payload> {
    transfer: DataPath<P>,
    management: Box<dyn LayerManagement>,
    /// [`Event::Closed`] of flows whose readers have not taken everything yet.
    withheld: Vec<Event>,
}

impl<P: Payload> Ipcp<P> {
    /// Makes an IPCP that is not a member yet. `dialects` provides the layer management of the
    /// dialect that `config` names. `catalogue` adds policies to those of this crate and of the
    /// dialect, and replaces policies of the same name; defaults do not change.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn new(
        dialects: Dialects,
        config: Config,
        toolbox: Box<dyn Toolbox>,
        catalogue: Catalogue,
        seed: u64,
    ) -> Result<Ipcp<P>, CreateError> {
        let dialect = config.dialect;
        let all = dialects.policies_with(dialect, &*toolbox, catalogue);
        let management = dialects.management(config, toolbox, all.clone(), seed)?;
        Ok(Ipcp {
            transfer: DataPath::of_dialect(all, dialect, seed.rotate_left(32)),
            management,
            withheld: Vec::new(),
        })
    }

    /// Carries out a command at time `now`. Results follow as events of [`Ipcp::poll_event`].
    pub fn handle(&mut self, now: Instant, command: Command) {
        self.management.handle(now, command, &mut self.transfer);
        self.exchange(now);
    }

    /// Requests a flow from application `local` to application `remote`. The result follows as
    /// [`Event::Allocated`].
    ///
    /// # Errors
    /// No request could be sent: this IPCP is not a member, or no cube meets the specification, for
    /// example.
    pub fn allocate(
        &mut self,
        now: Instant,
        local: &str,
        remote: &str,
        spec: FlowSpec,
    ) -> Result<FlowKey, AllocateError> {
        let key = self
            .management
            .allocate(now, local, remote, spec, &mut self.transfer);
        self.exchange(now);
        key
    }

    /// Processes a PDU that arrived on an N-1 flow. The PDU is untrusted.
    #[inline]
    pub fn on_pdu(&mut self, now: Instant, n1: N1Port, pdu: P) {
        self.transfer.on_pdu(now, n1, pdu);
        // The PDU may open a management channel, and PDUs of that channel may follow in the same
        // burst.
        if self.transfer.has_events() {
            self.exchange(now);
        }
    }

    /// Takes an SDU of a flow; with `more`, a piece that is not its last. What exceeds
    /// [`Ipcp::room`] is kept and sent later; nothing is lost.
    #[inline]
    pub fn on_sdu(&mut self, now: Instant, flow: FlowKey, sdu: P, more: bool) {
        self.transfer.on_sdu(now, flow, sdu, more);
    }

    /// Like [`Ipcp::on_sdu`], for several SDUs at once; each comes with its `more`.
    #[inline]
    pub fn on_sdus(&mut self, now: Instant, flow: FlowKey, sdus: impl Iterator<Item = (P, bool)>) {
        self.transfer.on_sdus(now, flow, sdus);
    }

    /// Longest SDU of a flow in bytes; [`usize::MAX`] where SDUs are fragmented. A longer SDU is
    /// dropped, and ends a reliable flow.
    #[must_use]
    pub fn sdu_max(&self, flow: FlowKey) -> usize {
        self.transfer.sdu_max(flow)
    }

    /// Bytes that a flow may write now. [`Ipcp::poll_room`] reports the flow when its room has
    /// grown.
    #[must_use]
    pub fn room(&mut self, flow: FlowKey) -> usize {
        self.transfer.room(flow)
    }

    /// The next flow whose [`Ipcp::room`] has grown since its writer asked for it; `None` if there
    /// is no such flow.
    #[must_use]
    pub fn poll_room(&mut self) -> Option<FlowKey> {
        self.transfer.poll_room()
    }

    /// Sets how many bytes the reader of a flow can take beyond what was polled so far. Default: no
    /// limit.
    pub fn set_delivery_room(&mut self, now: Instant, flow: FlowKey, bytes: usize) {
        self.transfer.set_delivery_room(now, flow, bytes);
    }

    /// Returns the next SDU, or piece of an SDU, whose reader has room for it; `None` if there is
    /// none.
    #[inline]
    #[must_use]
    pub fn poll_deliver(&mut self) -> Option<Delivery<P>> {
        self.transfer.poll_deliver()
    }

    /// Calls `watch` with every PDU that the IPCP receives or sends from now on; `None` stops the
    /// calls.
    pub fn set_watch(&mut self, watch: Option<Watch<P>>) {
        self.transfer.set_watch(watch);
    }

    /// Reports all later control events, such as enrollment and flow allocation, to `tracer`.
    pub fn set_tracer(&mut self, tracer: Tracer) {
        self.transfer.set_tracer(tracer.clone());
        self.management.set_tracer(tracer);
    }

    /// The next N-1 flow that has PDUs to send and is not blocked; `None` if there is no such flow.
    /// The caller takes at least one PDU or blocks the N-1 flow.
    #[inline]
    #[must_use]
    pub fn poll_n1(&mut self) -> Option<N1Port> {
        self.transfer.poll_n1()
    }

    /// Returns the length in bytes of the PDU that [`Ipcp::take_transmit`] would return for this
    /// N-1 flow, protection included; `None` if none waits. The same PDU stays next until it is
    /// taken.
    #[inline]
    #[must_use]
    pub fn peek_transmit(&mut self, n1: N1Port) -> Option<usize> {
        self.transfer.peek_transmit(n1)
    }

    /// Takes the next PDU of an N-1 flow out of its queue, to be sent; `None` if none waits.
    #[inline]
    #[must_use]
    pub fn take_transmit(&mut self, now: Instant, n1: N1Port) -> Option<P> {
        self.transfer.take_transmit(now, n1)
    }

    /// Marks an N-1 flow as unable to take PDUs. The PDUs that wait for it are copied out of the
    /// burst's memory.
    pub fn block_n1(&mut self, n1: N1Port) {
        self.transfer.block_n1(n1);
    }

    /// Marks an N-1 flow as able to take PDUs again.
    pub fn unblock_n1(&mut self, n1: N1Port) {
        self.transfer.unblock_n1(n1);
    }

    /// Ends a burst: layer management handles what arrived, small SDUs that wait to share a PDU and
    /// due acknowledgements are sent, and what cannot be sent or delivered at once is copied out of
    /// the burst's memory.
    pub fn end_of_burst(&mut self, now: Instant) {
        self.transfer.end_of_burst(now);
        if self.exchange(now) {
            self.transfer.end_of_burst(now);
        }
    }

    /// Copies everything that is still queued out of the burst's memory. Needed by a caller that
    /// stops taking PDUs from an N-1 flow without blocking it. Costs nothing when all was drained.
    pub fn release_burst(&mut self) {
        self.transfer.release_burst();
    }

    /// Handles all deadlines that have passed. Call [`Ipcp::end_of_burst`] afterwards.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.transfer.handle_timeout(now);
        self.exchange(now);
        if self.management.poll_timeout().is_some_and(|at| at <= now) {
            self.management.handle_timeout(now, &mut self.transfer);
            self.exchange(now);
        }
    }

    /// Returns when to call [`Ipcp::handle_timeout`]: at a time that may be early but never late;
    /// `None` if no deadline is set.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.transfer.poll_timeout(), self.management.poll_timeout()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Returns the oldest event that the caller has not seen, or `None`. [`Event::Closed`] of a
    /// flow is held back until its reader has taken all SDUs.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.next_event()?;
        if let Event::Closed { flow, .. } = &event {
            self.management.end_is_known(*flow);
        }
        Some(event)
    }

    fn next_event(&mut self) -> Option<Event> {
        let transfer = &self.transfer;
        let is_over = |event: &Event| match event {
            Event::Closed { flow, .. } => transfer.is_delivered(*flow),
            _ => true,
        };
        if let Some(index) = self.withheld.iter().position(is_over) {
            return Some(self.withheld.remove(index));
        }
        while let Some(event) = self.management.poll_event() {
            if is_over(&event) {
                return Some(event);
            }
            self.withheld.push(event);
        }
        None
    }

    /// Returns the counters of PDUs and SDUs that data transfer moved and dropped.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.transfer.counters()
    }

    /// Returns this member's address in the DIF; `None` before enrollment.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        self.management.address()
    }

    /// Passes the events of data transfer to layer management until none is left. True when there
    /// was any.
    fn exchange(&mut self, now: Instant) -> bool {
        let mut was_any = false;
        // This ends, because data transfer answers each event itself; the bound guards against an
        // endless exchange between the two halves.
        for _ in 0..EXCHANGES_MAX {
            let Some(event) = self.transfer.poll() else {
                break;
            };
            was_any = true;
            self.management.on_transfer(now, event, &mut self.transfer);
        }
        was_any
    }
}

/// Largest number of events of data transfer that layer management handles in one call.
const EXCHANGES_MAX: usize = 16_384;
