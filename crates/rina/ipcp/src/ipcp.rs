//! One member of one normal DIF: layer management and data transfer as one machine.

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

/// An IPC process: one member of one normal DIF, as a machine without I/O.
///
/// The same configuration, seed and calls give the same behaviour. Time never goes
/// back.
///
/// # The order of calls
///
/// ```text
///   on_pdu, on_sdu, handle, allocate, set_delivery_room      any number, in any order
///   handle_timeout                                           when poll_timeout is over
///   end_of_burst                                             once
///   poll_n1 / peek_transmit / take_transmit (or block_n1), poll_deliver, poll_room, poll_event
///                                                            until they give nothing
///   release_burst                                            before the memory of payloads that
///                                                            came in is given back
///   poll_timeout                                             when to come back
/// ```
pub struct Ipcp<P: Payload> {
    transfer: DataPath<P>,
    management: Box<dyn LayerManagement>,
    /// Ends of flows that are not reported yet: their readers have not taken everything.
    withheld: Vec<Event>,
}

impl<P: Payload> Ipcp<P> {
    /// An IPCP that is not a member yet. `dialects` gives the layer management of the dialect that
    /// the configuration names. The catalogue adds to (and by name replaces) the policies of this
    /// crate and of the dialect; their defaults stay.
    ///
    /// # Errors
    /// What is wrong with the configuration.
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

    /// Acts on a command.
    pub fn handle(&mut self, now: Instant, command: Command) {
        self.management.handle(now, command, &mut self.transfer);
        self.exchange(now);
    }

    /// Asks for a flow from application `local` to application `remote`. The result follows as
    /// [`Event::Allocated`].
    ///
    /// # Errors
    /// Why there is not even a request: no member, no cube for the specification.
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

    /// Takes a PDU from an N-1 flow. Its content is not trusted.
    #[inline]
    pub fn on_pdu(&mut self, now: Instant, n1: N1Port, pdu: P) {
        self.transfer.on_pdu(now, n1, pdu);
        // The answer that opens a management channel may be followed in the same burst by what
        // comes through it.
        if self.transfer.has_events() {
            self.exchange(now);
        }
    }

    /// An SDU of a flow, or with `more` a piece that is not its last. What does not fit into
    /// [`Ipcp::room`] waits; nothing is lost.
    #[inline]
    pub fn on_sdu(&mut self, now: Instant, flow: FlowKey, sdu: P, more: bool) {
        self.transfer.on_sdu(now, flow, sdu, more);
    }

    /// As [`Ipcp::on_sdu`], for all that a writer gives at a time.
    #[inline]
    pub fn on_sdus(&mut self, now: Instant, flow: FlowKey, sdus: impl Iterator<Item = (P, bool)>) {
        self.transfer.on_sdus(now, flow, sdus);
    }

    /// Longest SDU of a flow in bytes: a longer one is refused, and ends the flow when it is a
    /// reliable one. [`usize::MAX`] where SDUs are cut to fit into PDUs.
    #[must_use]
    pub fn sdu_max(&self, flow: FlowKey) -> usize {
        self.transfer.sdu_max(flow)
    }

    /// Bytes that a flow may write now. [`Ipcp::poll_room`] tells when it has grown.
    #[must_use]
    pub fn room(&mut self, flow: FlowKey) -> usize {
        self.transfer.room(flow)
    }

    /// The next flow whose room has grown since it was asked for.
    #[must_use]
    pub fn poll_room(&mut self) -> Option<FlowKey> {
        self.transfer.poll_room()
    }

    /// What the reader of a flow can take, in bytes, beyond what was polled so far. No limit until
    /// it is said.
    pub fn set_delivery_room(&mut self, now: Instant, flow: FlowKey, bytes: usize) {
        self.transfer.set_delivery_room(now, flow, bytes);
    }

    /// The next SDU, or piece of one, for a reader that has room for it.
    #[inline]
    #[must_use]
    pub fn poll_deliver(&mut self) -> Option<Delivery<P>> {
        self.transfer.poll_deliver()
    }

    /// Shows every PDU from here on to `watch`; `None` ends it.
    pub fn set_watch(&mut self, watch: Option<Watch<P>>) {
        self.transfer.set_watch(watch);
    }

    /// Reports control events to `tracer` from here on.
    pub fn set_tracer(&mut self, tracer: Tracer) {
        self.transfer.set_tracer(tracer.clone());
        self.management.set_tracer(tracer);
    }

    /// The next N-1 flow that has PDUs to send and is not blocked. The caller takes at least one of
    /// them or blocks the N-1 flow.
    #[inline]
    #[must_use]
    pub fn poll_n1(&mut self) -> Option<N1Port> {
        self.transfer.poll_n1()
    }

    /// Length of the next PDU of an N-1 flow in bytes. It stays next until it is taken.
    #[inline]
    #[must_use]
    pub fn peek_transmit(&mut self, n1: N1Port) -> Option<usize> {
        self.transfer.peek_transmit(n1)
    }

    /// Takes the next PDU of an N-1 flow.
    #[inline]
    #[must_use]
    pub fn take_transmit(&mut self, now: Instant, n1: N1Port) -> Option<P> {
        self.transfer.take_transmit(now, n1)
    }

    /// The N-1 flow takes nothing for the time being. What waits for it is made to last.
    pub fn block_n1(&mut self, n1: N1Port) {
        self.transfer.block_n1(n1);
    }

    /// The N-1 flow takes PDUs again.
    pub fn unblock_n1(&mut self, n1: N1Port) {
        self.transfer.unblock_n1(n1);
    }

    /// The burst is over: management acts on what came, small SDUs that waited for company and due
    /// acknowledgements are sent, and what cannot be sent or delivered at once is made to last.
    pub fn end_of_burst(&mut self, now: Instant) {
        self.transfer.end_of_burst(now);
        if self.exchange(now) {
            self.transfer.end_of_burst(now);
        }
    }

    /// Makes everything last that is still queued, for an owner of payloads that does not block
    /// N-1 flows when it stops taking from them. Costs nothing when all was drained.
    pub fn release_burst(&mut self) {
        self.transfer.release_burst();
    }

    /// Does what is due. Call [`Ipcp::end_of_burst`] afterwards.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.transfer.handle_timeout(now);
        self.exchange(now);
        if self.management.poll_timeout().is_some_and(|at| at <= now) {
            self.management.handle_timeout(now, &mut self.transfer);
            self.exchange(now);
        }
    }

    /// When [`Ipcp::handle_timeout`] is due. May be early, never late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.transfer.poll_timeout(), self.management.poll_timeout()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// What has happened, in order, except that the end of a flow waits until its reader has taken
    /// everything that came before.
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

    /// What was moved and what was discarded.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.transfer.counters()
    }

    /// The address of this member; `None` before enrollment.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        self.management.address()
    }

    /// Hands events of data transfer to management until no event is left. True when there were
    /// any.
    fn exchange(&mut self, now: Instant) -> bool {
        let mut was_any = false;
        // Each event is answered within data transfer, so that this ends; the bound is against
        // two halves that answer each other for ever.
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

/// Events of data transfer that management acts on in one turn.
const EXCHANGES_MAX: usize = 16_384;
