//! One end of a connection within the IPCP: the EFCP instance, its remote end and its next hop.

use alloc::vec::Vec;

use carina_efcp::delimiting::Assembler;
use carina_efcp::{Connection, Transmit};
use carina_time::{Duration, Instant};
use carina_wire::Payload;
use carina_wire::dif::{Address, CepId, Pci, PduType, QosId, Syntax};

use super::counters::DropReason;
use super::dialect::NEIGHBOUR;
use super::port::QueueClass;
use super::rmt::{NextHop, Rmt};
use super::timers::Timer;
use crate::config::QosCube;
use crate::data_transfer::api::Owner;

/// One end of a connection: EFCP, reassembly, the remote end and the cached next hop.
#[derive(Debug)]
pub(super) struct EfcpInstance<P> {
    pub(super) efcp: Connection<P>,
    pub(super) assembler: Assembler<P>,
    pub(super) owner: Owner,
    pub(super) cep: CepId,
    pub(super) remote: Address,
    pub(super) remote_cep: CepId,
    pub(super) qos: QosId,
    pub(super) queue_class: QueueClass,
    /// The only N-1 flow that the PDUs may take; `None`: forwarding decides.
    pub(super) pinned: Option<u32>,
    pub(super) has_window: bool,
    pub(super) is_reliable: bool,
    pub(super) is_connected: bool,
    /// Listed for processing at the end of the burst.
    pub(super) is_dirty: bool,
    /// Mean length of received UDFs in bytes.
    pub(super) mean: u32,
    /// Quarantine of the CEP-id after closing: 2·(MPL + R + A).
    pub(super) quarantine: Duration,
    pub(super) credit_max: u32,
    /// Earliest deadline of this connection in the timer heap; 0 for none.
    pub(super) armed: Instant,
    /// When the connection is removed; 0 for never.
    pub(super) close_at: Instant,
    /// When the last PDU of the other end arrived.
    pub(super) heard_at: Instant,
    /// Number of retransmission timeouts already reported to the tracer.
    pub(super) traced_timeouts: u32,
    /// A stall was reported to the tracer, and its end not yet.
    pub(super) is_stall_traced: bool,
    next_hop: NextHop,
    /// The forwarding generation in which `next_hop` was found; 0 for none.
    forwarding_generation: u32,
}

/// Parameters of a new [`EfcpInstance`].
pub(super) struct EfcpInstanceConfig<'a, P> {
    pub(super) efcp: Connection<P>,
    pub(super) assembler: Assembler<P>,
    pub(super) owner: Owner,
    pub(super) cep: CepId,
    pub(super) cube: &'a QosCube,
    pub(super) qos: QosId,
    pub(super) queue_class: QueueClass,
    pub(super) pinned: Option<u32>,
    pub(super) quarantine: Duration,
    /// Longest UDF in bytes.
    pub(super) udf_max: usize,
    /// Largest window in PDUs.
    pub(super) credit_max: u32,
}

impl<P: Payload> EfcpInstance<P> {
    pub(super) fn new(config: EfcpInstanceConfig<'_, P>) -> EfcpInstance<P> {
        let cube = config.cube;
        EfcpInstance {
            efcp: config.efcp,
            assembler: config.assembler,
            owner: config.owner,
            cep: config.cep,
            remote: Address::NONE,
            remote_cep: CepId(0),
            qos: config.qos,
            queue_class: config.queue_class,
            pinned: config.pinned,
            has_window: cube.window.is_some() || cube.retransmission,
            is_reliable: cube.retransmission,
            is_connected: false,
            is_dirty: false,
            // Starts with the longest UDF: a window, once granted, cannot be narrowed.
            mean: u32::try_from(config.udf_max).unwrap_or(u32::MAX),
            quarantine: config.quarantine,
            credit_max: config.credit_max,
            armed: Instant::ZERO,
            close_at: Instant::ZERO,
            heard_at: Instant::ZERO,
            traced_timeouts: 0,
            is_stall_traced: false,
            next_hop: NextHop::Local,
            forwarding_generation: 0,
        }
    }

    /// Sends all PDUs that EFCP has ready.
    #[inline]
    pub(super) fn transmit(&mut self, rmt: &mut Rmt<P>) {
        if !self.is_connected {
            return;
        }
        loop {
            // Bound by reference, not moved: most of its bytes are space for a control PDU.
            let mut next = self.efcp.poll_transmit(rmt.now);
            let Some(pdu) = &mut next else { break };
            self.emit(pdu, rmt);
        }
    }

    /// Gives a UDF to EFCP, which sends it if the window is open. Returns `Some(true)` if it was
    /// sent, `Some(false)` if it is queued, `None` if there was no buffer.
    #[inline]
    pub(super) fn pass(&mut self, udf: P, rmt: &mut Rmt<P>) -> Option<bool> {
        if !self.is_connected {
            return self.efcp.write(rmt.now, udf).ok().map(|()| false);
        }
        // Bound by reference, not moved, as above.
        let mut written = self.efcp.write_through(rmt.now, udf);
        match &mut written {
            Ok(Some(pdu)) => {
                self.emit(pdu, rmt);
                Some(true)
            }
            Ok(None) => Some(false),
            Err(_) => None,
        }
    }

    #[inline]
    fn emit(&mut self, pdu: &mut Transmit<P>, rmt: &mut Rmt<P>) {
        let pci = Pci {
            kind: pdu.kind,
            dst: self.remote,
            src: match self.pinned {
                // The address may not fit the default widths, and the CEP-ids identify the
                // connection.
                Some(_) => Address::NONE,
                None => rmt.address,
            },
            qos: self.qos,
            dst_cep: self.remote_cep,
            src_cep: self.cep,
            drf: pdu.drf,
            ecn: false,
            seq: pdu.seq,
        };
        let next_hop = match self.next_hop(rmt) {
            Ok(next_hop) => next_hop,
            Err(reason) => return rmt.counters.drop_one(reason),
        };
        let len = pdu.udf.as_ref().map_or(0, Payload::len);
        let (syntax, hop_limit) = match self.pinned {
            Some(_) => (Syntax::default(), NEIGHBOUR),
            None => (rmt.syntax, rmt.hop_limit),
        };
        let control = pdu.control.as_ref();
        let encoded = syntax.encode(&pci, control, len, hop_limit, &mut rmt.header);
        let Ok(header_len) = encoded else {
            return rmt.counters.drop_one(DropReason::Field);
        };
        let header = &rmt.header[..header_len];
        let (whole, is_kept) = match pdu.udf.take() {
            Some(mut udf) if header_len <= rmt.prepend_max => {
                (udf.prepend(header).then_some(udf), false)
            }
            Some(udf) => (rmt.with_checksum(whole(header, &udf)), true),
            None => (rmt.with_checksum(header.to_vec()), true),
        };
        let Some(whole) = whole else {
            return rmt.counters.drop_one(DropReason::NoBuffer);
        };
        match next_hop {
            NextHop::Local => {
                rmt.counters.pdus_looped += 1;
                rmt.looped.push_back(whole);
            }
            NextHop::Port(port) => rmt.queue(port, self.queue_class, whole, is_kept),
        }
        debug_assert!(pdu.kind != PduType::Management);
    }

    #[inline]
    fn next_hop(&mut self, rmt: &Rmt<P>) -> Result<NextHop, DropReason> {
        if let Some(port) = self.pinned {
            return Ok(NextHop::Port(port));
        }
        if self.forwarding_generation == rmt.forwarding_generation && !rmt.is_spread_by_pdu() {
            return Ok(self.next_hop);
        }
        let next_hop = rmt.next_hop(self.remote, self.remote_cep, self.cep)?;
        (self.next_hop, self.forwarding_generation) = (next_hop, rmt.forwarding_generation);
        Ok(next_hop)
    }

    /// The N-1 flow of the next hop and the bytes that the flow may add to its queue. The N-1 flow
    /// is `None` when there is no next hop, or the destination is this IPCP.
    #[inline]
    pub(super) fn queue_room(&mut self, rmt: &Rmt<P>) -> (Option<u32>, usize) {
        let QueueClass::Cube(class) = self.queue_class else {
            return (None, usize::MAX);
        };
        match self.next_hop(rmt) {
            Ok(NextHop::Port(index)) => match rmt.port(index) {
                Some(port) => (Some(index), port.own_room(class)),
                None => (None, LOST_ROOM),
            },
            Ok(NextHop::Local) | Err(_) => (None, LOST_ROOM),
        }
    }

    /// Number of PDUs to allow a sender whose reader has `room` bytes.
    pub(super) fn credit(&self, room: usize) -> u32 {
        let pdus = room / self.mean.max(1) as usize;
        u32::try_from(pdus)
            .unwrap_or(u32::MAX)
            .clamp(1, self.credit_max.max(1))
    }

    /// Number of retransmission timeouts, truncated to the tracer's 32 bits.
    pub(super) fn timeouts(&self) -> u32 {
        self.efcp.counters().timeouts as u32
    }

    /// Sets the timer for the next deadline of EFCP or of the connection's removal.
    #[inline]
    pub(super) fn arm(&mut self, rmt: &mut Rmt<P>) {
        let mut at = self.efcp.poll_timeout();
        if self.close_at != Instant::ZERO {
            at = Some(at.map_or(self.close_at, |at| at.min(self.close_at)));
        }
        // A deadline that has passed must not fire twice in one call.
        let at = at.map(|at| at.max(rmt.now + Duration::from_nanos(1)));
        rmt.timers
            .arm(Timer::Connection(self.cep.0), at, &mut self.armed);
    }
}

#[cold]
fn whole<P: Payload>(header: &[u8], udf: &P) -> Vec<u8> {
    let mut whole = Vec::with_capacity(header.len() + udf.len());
    whole.extend_from_slice(header);
    udf.append_to(&mut whole);
    whole
}

/// Bytes that a flow may write at a time when its PDUs need no N-1 flow, or none is available.
const LOST_ROOM: usize = 256 << 10;
