//! The relaying and multiplexing task: chooses the N-1 flow that carries a PDU, and queues it
//! there.
//!
//! After the Pouzin Society's *Relaying and Multiplexing Task Specification*.

mod relaying;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use carina_time::{Duration, Instant};
use carina_wire::Payload;
use carina_wire::dif::{Address, CepId, Dialect, PCI_BYTES_MAX, RelayHeader, Syntax};

use super::counters::{Counters, DropReason};
use super::dialect::{HopLimits, hop_limits};
use super::forwarding::{ForwardingTable, mix};
use super::port::{Port, QueueClass};
use super::timers::{Timer, TimerQueue};
use crate::api::{FlowKey, N1Port, N1Properties, Watch};
use crate::config::QosCube;
use crate::policy::{ForwardingPolicy, QueuePolicy, Scheduler, Single, Spread};
use crate::security::Reject;

/// State of the relaying and multiplexing task: N-1 flows, forwarding table and counters.
pub(super) struct Rmt<P> {
    /// The time of the current call.
    pub(super) now: Instant,
    pub(super) syntax: Syntax,
    pub(super) address: Address,
    pub(super) hop_limit: u8,
    pub(super) hop_limits: HopLimits,
    /// The PCI of PDUs has a checksum.
    pub(super) has_checksum: bool,
    /// Shorter PDUs get a further check ([`Rmt::inspect`]): the length of the header, or
    /// `usize::MAX` when PDUs have a checksum.
    pub(super) least: usize,
    /// Headers up to this length are written directly in front of the payload, without copying it.
    pub(super) prepend_max: usize,
    pub(super) counters: Counters,
    pub(super) table: ForwardingTable,
    pub(super) timers: TimerQueue,
    /// Changes when paths may have changed. A cached next hop of an older generation is invalid.
    pub(super) forwarding_generation: u32,
    /// Buffer in which a header is built before it is put in front of its payload.
    pub(super) header: [u8; PCI_BYTES_MAX],
    /// PDUs of this IPCP to itself.
    pub(super) looped: VecDeque<P>,
    /// How long an N-1 flow may take nothing before it is stuck.
    pub(super) stall_timeout: Duration,
    /// Called with every PDU, if set.
    pub(super) watch: Option<Watch<P>>,
    ports: Vec<Option<Box<Port<P>>>>,
    /// N-1 flows that may have something to send.
    ready: VecDeque<u32>,
    /// N-1 flows whose PDUs may lie in memory of the current burst.
    unkept: Vec<u32>,
    /// Index of the class by QoS-id; [`NO_CLASS`] for none.
    class_of: Vec<u8>,
    forwarding: Box<dyn ForwardingPolicy>,
    spread: Spread,
    random: u64,
}

/// Next hop of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextHop {
    /// This IPCP itself.
    Local,
    /// The neighbour at the other end of this N-1 flow.
    Port(u32),
}

/// Longest header that [`Payload::prepend`] takes.
const PREPEND_MAX: usize = 64;
const NO_CLASS: u8 = u8::MAX;
/// Bound of the numbers of N-1 flows.
const PORTS_MAX: usize = 1 << 20;

impl<P: Payload> Rmt<P> {
    pub(super) fn new(dialect: Dialect, seed: u64) -> Rmt<P> {
        Rmt {
            now: Instant::ZERO,
            syntax: Syntax::of_dialect(dialect),
            address: Address::NONE,
            hop_limit: hop_limits(dialect).initial,
            hop_limits: hop_limits(dialect),
            has_checksum: false,
            least: Syntax::of_dialect(dialect).base_bytes(),
            prepend_max: PREPEND_MAX,
            counters: Counters::default(),
            table: ForwardingTable::default(),
            timers: TimerQueue::default(),
            forwarding_generation: 1,
            header: [0; PCI_BYTES_MAX],
            looped: VecDeque::new(),
            stall_timeout: Duration::from_secs(15),
            watch: None,
            ports: Vec::new(),
            ready: VecDeque::new(),
            unkept: Vec::new(),
            class_of: Vec::new(),
            forwarding: Box::new(Single::default()),
            spread: Spread::Flow,
            random: seed | 1,
        }
    }

    /// Sets what is fixed once the DIF's configuration is known.
    pub(super) fn set_syntax(&mut self, syntax: Syntax, has_checksum: bool) {
        self.syntax = syntax;
        self.has_checksum = has_checksum;
        (self.least, self.prepend_max) = if has_checksum {
            (usize::MAX, 0)
        } else {
            (syntax.base_bytes(), PREPEND_MAX)
        };
    }

    /// Makes a PDU from bytes, and writes its checksum if the DIF has one. `None` when there is no
    /// buffer.
    #[inline(never)]
    pub(super) fn with_checksum(&self, mut pdu: Vec<u8>) -> Option<P> {
        if self.has_checksum {
            self.syntax.write_checksum(&mut pdu);
        }
        P::from_vec(pdu)
    }

    /// Why a PDU shorter than [`Rmt::least`] is invalid: its length or its checksum. `None`: it is
    /// valid.
    #[cold]
    pub(super) fn inspect(&self, header: &RelayHeader, pdu: &P) -> Option<DropReason> {
        let length = header.pdu_bytes;
        if length > pdu.len() || length < self.syntax.base_bytes() {
            return Some(DropReason::HeaderLength);
        }
        if !self.has_checksum {
            return None;
        }
        let mut bytes = Vec::with_capacity(pdu.len());
        pdu.append_to(&mut bytes);
        let is_valid = self.syntax.has_valid_checksum(&bytes[..length]);
        (!is_valid).then_some(DropReason::HeaderChecksum)
    }

    #[inline]
    pub(super) fn port(&self, index: u32) -> Option<&Port<P>> {
        self.ports.get(index as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn port_mut(&mut self, index: u32) -> Option<&mut Port<P>> {
        self.ports.get_mut(index as usize)?.as_deref_mut()
    }

    /// Records for each N-1 flow whether it leads to a neighbour.
    pub(super) fn mark_neighbours(&mut self) {
        for port in self.ports.iter_mut().flatten() {
            port.is_neighbours = port.is_detaching || self.table.neighbour_of(port.n1.0).is_some();
        }
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = &Port<P>> {
        self.ports.iter().filter_map(Option::as_deref)
    }

    pub(super) fn ports_mut(&mut self) -> impl Iterator<Item = &mut Port<P>> {
        self.ports.iter_mut().filter_map(Option::as_deref_mut)
    }

    /// Adds an N-1 flow. One with the same number is replaced, and its PDUs are lost and counted.
    /// Returns false when the number is too large.
    pub(super) fn add_port(
        &mut self,
        n1: N1Port,
        props: N1Properties,
        cubes: &[QosCube],
        scheduler: Box<dyn Scheduler>,
        policy: Box<dyn QueuePolicy>,
    ) -> bool {
        let index = n1.0 as usize;
        if index >= PORTS_MAX {
            return false;
        }
        if self.ports.len() <= index {
            self.ports.resize_with(index + 1, || None);
        }
        self.ports[index] = Some(Box::new(Port::new(n1, props, cubes, scheduler, policy)));
        self.forwarding_generation += 1;
        true
    }

    /// Removes an N-1 flow.
    pub(super) fn remove_port(&mut self, n1: N1Port) -> Option<Box<Port<P>>> {
        let port = self.ports.get_mut(n1.0 as usize)?.take()?;
        self.table.remove_port(n1.0);
        self.forwarding_generation += 1;
        Some(port)
    }

    /// Sets the cubes of the DIF. Each gets a class, in the same order.
    pub(super) fn set_cubes(&mut self, cubes: &[QosCube]) {
        self.class_of.clear();
        for (index, cube) in cubes.iter().enumerate() {
            let id = usize::from(cube.id);
            if self.class_of.len() <= id {
                self.class_of.resize(id + 1, NO_CLASS);
            }
            self.class_of[id] = index as u8;
        }
        for port in self.ports_mut() {
            port.set_cubes(cubes);
        }
    }

    pub(super) fn set_forwarding_policy(&mut self, policy: Box<dyn ForwardingPolicy>) {
        self.spread = policy.spread();
        self.forwarding = policy;
        self.forwarding_generation += 1;
    }

    /// Index of the class of a QoS-id; `None` when no class serves it.
    #[inline]
    pub(super) fn class(&self, qos: u16) -> Option<u8> {
        match self.class_of.get(usize::from(qos)) {
            Some(&class) if class != NO_CLASS => Some(class),
            _ => self.stray_class(),
        }
    }

    /// Class for QoS-ids that no cube has: the first, in dialects other than native.
    #[cold]
    fn stray_class(&self) -> Option<u8> {
        let is_foreign = self.syntax.dialect != Dialect::Native;
        (is_foreign && !self.class_of.is_empty()).then_some(0)
    }

    /// True when each PDU of a connection may take another N-1 flow of the next hop.
    #[inline]
    pub(super) fn is_spread_by_pdu(&self) -> bool {
        self.spread == Spread::LeastQueue
    }

    /// Chooses the next hop of a PDU of this IPCP.
    pub(super) fn next_hop(
        &self,
        dst: Address,
        dst_cep: CepId,
        cep: CepId,
    ) -> Result<NextHop, DropReason> {
        if dst == self.address {
            return Ok(NextHop::Local);
        }
        let mixed = mix(self.address.0, dst, self.address, dst_cep, cep);
        self.next_port(dst, mixed).map(NextHop::Port)
    }

    #[inline]
    fn next_port(&self, dst: Address, mixed: u32) -> Result<u32, DropReason> {
        let entry = self
            .table
            .lookup(dst)
            .ok_or(DropReason::UnknownDestination)?;
        let ports = match entry.next_hops.as_slice() {
            [] => return Err(DropReason::NoNeighbour),
            [one] => one,
            several => {
                let index = self.forwarding.next_hop(mixed, several.len());
                several.get(index).unwrap_or(&several[0])
            }
        };
        match ports.as_slice() {
            [] => Err(DropReason::NoNeighbour),
            [one] => Ok(*one),
            several => Ok(self.one_of(several, mixed)),
        }
    }

    /// Chooses one of several N-1 flows to the same neighbour.
    fn one_of(&self, ports: &[u32], mixed: u32) -> u32 {
        match self.spread {
            // The upper bits of `mixed` have already chosen the next hop.
            Spread::Flow => ports[mixed as usize % ports.len()],
            Spread::LeastQueue => ports
                .iter()
                .copied()
                .min_by_key(|index| {
                    let port = self.port(*index);
                    port.map_or((true, u64::MAX), |port| (port.is_blocked, port.depth().1))
                })
                .unwrap_or(ports[0]),
        }
    }

    /// Queues a PDU for an N-1 flow, or drops it and counts it.
    #[inline]
    pub(super) fn queue(&mut self, index: u32, queue_class: QueueClass, pdu: P, is_kept: bool) {
        let Some(port) = self
            .ports
            .get_mut(index as usize)
            .and_then(Option::as_deref_mut)
        else {
            self.counters.drop_one(DropReason::NoNeighbour);
            return;
        };
        let len = pdu.len();
        if len > port.pdu_max() {
            port.dropped += 1;
            self.counters.drop_one(DropReason::TooLong);
            return;
        }
        if !port.push(queue_class, pdu, len, is_kept) {
            port.dropped += 1;
            self.counters.drop_one(DropReason::ManagementQueueFull);
            return;
        }
        if !is_kept && !port.is_unkept {
            port.is_unkept = true;
            self.unkept.push(index);
        }
        if port.is_blocked {
            if port.waiting_since == Instant::ZERO {
                port.waiting_since = self.now.max(Instant::from_nanos(1));
                let at = self.now + self.stall_timeout;
                self.timers
                    .arm(Timer::Port(index), Some(at), &mut port.armed);
            }
        } else if !port.is_listed {
            port.is_listed = true;
            self.ready.push_back(index);
        }
    }

    /// The next N-1 flow that has PDUs and is not blocked; N-1 flows take turns.
    #[inline]
    pub(super) fn poll_n1(&mut self) -> Option<N1Port> {
        while let Some(index) = self.ready.pop_front() {
            let Some(port) = self
                .ports
                .get_mut(index as usize)
                .and_then(Option::as_deref_mut)
            else {
                continue;
            };
            if !port.is_blocked && port.has_output() {
                port.is_listed = true;
                self.ready.push_back(index);
                return Some(N1Port(index));
            }
            port.is_listed = false;
        }
        None
    }

    /// Length of the next PDU of an N-1 flow, protection included, and why the protection refused a
    /// PDU before it, if it did.
    #[inline]
    pub(super) fn peek(&mut self, n1: N1Port) -> (Option<usize>, Option<Reject>) {
        let port = self
            .ports
            .get_mut(n1.0 as usize)
            .and_then(Option::as_deref_mut);
        match port {
            Some(port) => port.stage(self.now, &mut self.counters, self.watch.as_mut()),
            None => (None, None),
        }
    }

    /// Takes the PDU that [`Rmt::peek`] measured, with its queue; `None` if none was measured.
    #[inline]
    pub(super) fn take(&mut self, n1: N1Port) -> Option<(QueueClass, P)> {
        let port = self
            .ports
            .get_mut(n1.0 as usize)
            .and_then(Option::as_deref_mut)?;
        let (queue_class, pdu) = port.take_staged()?;
        let len = pdu.len() as u64;
        port.waiting_since = Instant::ZERO;
        port.sent.0 += 1;
        port.sent.1 += len;
        self.counters.pdus_sent += 1;
        self.counters.bytes_sent += len;
        Some((queue_class, pdu))
    }

    /// Own flows that may continue, because the queue that they wait for has got shorter.
    #[inline]
    pub(super) fn released(
        &mut self,
        n1: N1Port,
        queue_class: QueueClass,
    ) -> Option<VecDeque<FlowKey>> {
        let QueueClass::Cube(class) = queue_class else {
            return None;
        };
        let port = self.port_mut(n1.0).filter(|port| port.holds(class))?;
        port.take_held(class)
    }

    pub(super) fn block(&mut self, n1: N1Port) {
        let now = self.now.max(Instant::from_nanos(1));
        let at = now + self.stall_timeout;
        let Some(port) = self
            .ports
            .get_mut(n1.0 as usize)
            .and_then(Option::as_deref_mut)
        else {
            return;
        };
        port.is_blocked = true;
        // A blocked flow's payloads outlive this burst.
        port.keep(&mut self.counters);
        if port.has_output() && port.waiting_since == Instant::ZERO {
            port.waiting_since = now;
            self.timers
                .arm(Timer::Port(n1.0), Some(at), &mut port.armed);
        }
    }

    pub(super) fn unblock(&mut self, n1: N1Port) {
        let Some(port) = self
            .ports
            .get_mut(n1.0 as usize)
            .and_then(Option::as_deref_mut)
        else {
            return;
        };
        port.is_blocked = false;
        if port.has_output() && !port.is_listed {
            port.is_listed = true;
            self.ready.push_back(n1.0);
        }
    }

    /// Handles a deadline of a blocked N-1 flow. Returns true when the flow is stuck.
    pub(super) fn port_timeout(&mut self, index: u32, at: Instant) -> bool {
        let (now, stall_timeout) = (self.now, self.stall_timeout);
        let Some(port) = self
            .ports
            .get_mut(index as usize)
            .and_then(Option::as_deref_mut)
        else {
            return false;
        };
        if port.armed != at {
            return false;
        }
        port.armed = Instant::ZERO;
        if port.waiting_since == Instant::ZERO || !port.has_output() {
            return false;
        }
        let is_stuck = now >= port.waiting_since + stall_timeout;
        if is_stuck {
            port.waiting_since = now.max(Instant::from_nanos(1));
        }
        let due = port.waiting_since + stall_timeout;
        self.timers
            .arm(Timer::Port(index), Some(due), &mut port.armed);
        is_stuck
    }

    /// Copies the PDUs that wait for blocked N-1 flows out of the burst's memory; with
    /// `everything`, the PDUs of all N-1 flows.
    pub(super) fn keep(&mut self, everything: bool) {
        let mut index = 0;
        while let Some(number) = self.unkept.get(index).copied() {
            let port = self
                .ports
                .get_mut(number as usize)
                .and_then(Option::as_deref_mut);
            if let Some(port) = port {
                if !everything && !port.is_blocked {
                    index += 1;
                    continue;
                }
                port.is_unkept = false;
                port.keep(&mut self.counters);
            }
            self.unkept.swap_remove(index);
        }
    }
}
