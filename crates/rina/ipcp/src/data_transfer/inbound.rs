//! Receiving: takes a PDU from an N-1 flow, removes protection, checks the PCI, and delivers or
//! relays it.

use alloc::format;
use alloc::vec::Vec;

use carina_time::Instant;
use carina_wire::Payload;
use carina_wire::dif::{
    Address, CepId, Decoded, PCI_BYTES_MAX, Pci, PciError, PduType, RelayHeader, Syntax,
    without_neighbour_check,
};

use super::DataPath;
use super::counters::DropReason;
use super::dialect::{NEIGHBOUR, has_channels};
use super::port::Port;
use crate::api::{N1Port, Passage};
use crate::data_transfer::api::{Owner, TransferEvent};
use crate::security::Reject;

/// Bytes at the front of a PDU that are decoded: enough for the header of any data or management
/// PDU, whatever the widths.
const PREFIX: usize = 64;
/// Largest number of messages that wait for layer management; further ones are dropped.
const MANAGEMENT_WAITING_MAX: usize = 4096;

impl<P: Payload> DataPath<P> {
    /// Processes a PDU that arrived on an N-1 flow: delivers, relays or drops it. The PDU is
    /// untrusted.
    pub fn on_pdu(&mut self, now: Instant, n1: N1Port, pdu: P) {
        self.rmt.now = now;
        let counters = &mut self.rmt.counters;
        counters.pdus_received += 1;
        counters.bytes_received += pdu.len() as u64;
        let syntax = self.rmt.syntax;
        let Some(port) = self.rmt.port_mut(n1.0) else {
            return self.rmt.counters.drop_one(DropReason::UnknownN1);
        };
        port.received.0 += 1;
        port.received.1 += pdu.len() as u64;
        let mut pdu = pdu;
        if port.protection.is_some() && !is_bare(syntax, &pdu) {
            pdu = match unprotect(port, now, &pdu) {
                Ok(Some(open)) => open,
                Ok(None) => return self.rmt.counters.drop_one(DropReason::NoBuffer),
                Err(reject) => return self.refuse(n1, reject.into()),
            };
        }
        if let Some(watch) = &mut self.rmt.watch {
            watch(Passage::In, n1, &pdu);
        }
        self.dispatch(n1, pdu);
        self.loop_back();
    }

    #[inline]
    fn dispatch(&mut self, n1: N1Port, mut pdu: P) {
        let mut prefix = [0; PREFIX];
        let count = pdu.copy_prefix(&mut prefix);
        let prefix = &prefix[..count];
        let header = match self.rmt.syntax.peek(prefix) {
            Ok(header) if u16::from(header.hop_limit) != self.rmt.hop_limits.neighbour => header,
            // The PDU may be one between neighbours, whose PCI has the default widths.
            _ => return self.on_neighbour_pdu(n1, prefix, pdu),
        };
        if (header.pdu_bytes > pdu.len() || header.pdu_bytes < self.rmt.least)
            && let Some(reason) = self.rmt.inspect(&header, &pdu)
        {
            return self.refuse(n1, reason);
        }
        pdu.truncate(header.pdu_bytes);
        let own = self.rmt.address;
        if own == Address::NONE {
            return self.stray(n1, &header, prefix, pdu, DropReason::NotMember);
        }
        // A sender that is not a neighbour has no protection either: it has proved nothing.
        if !self
            .rmt
            .port_mut(n1.0)
            .is_some_and(|port| port.is_neighbours)
        {
            return self.stray(n1, &header, prefix, pdu, DropReason::NoNeighbour);
        }
        if header.src == own || header.src == Address::NONE {
            return self.stray(n1, &header, prefix, pdu, DropReason::Forged);
        }
        if header.dst == own {
            self.terminate(Some(n1), prefix, pdu);
        } else if header.dst == Address::NONE {
            self.stray(n1, &header, prefix, pdu, DropReason::UnknownDestination);
        } else {
            self.rmt.relay(&header, pdu);
        }
    }

    /// Handles a PDU without a destination, or from an IPCP that is not a member or not a
    /// neighbour. In a native DIF the exchange between neighbours has a form of its own. In other
    /// DIFs it consists of management PDUs to address 0, with any source address.
    #[cold]
    fn stray(
        &mut self,
        n1: N1Port,
        header: &RelayHeader,
        prefix: &[u8],
        pdu: P,
        reason: DropReason,
    ) {
        let is_native = has_channels(self.rmt.syntax.dialect);
        let is_taken =
            !is_native && header.dst == Address::NONE && header.kind == PduType::Management;
        match reason {
            _ if is_taken => self.terminate(Some(n1), prefix, pdu),
            DropReason::Forged => self.refuse(n1, reason),
            _ => self.rmt.counters.drop_one(reason),
        }
    }

    /// Handles the PDUs that this IPCP sent to itself.
    pub(super) fn loop_back(&mut self) {
        while let Some(pdu) = self.rmt.looped.pop_front() {
            let mut prefix = [0; PREFIX];
            let count = pdu.copy_prefix(&mut prefix);
            self.terminate(None, &prefix[..count], pdu);
        }
    }

    /// Handles a PDU of the DIF whose destination is this IPCP.
    #[inline]
    fn terminate(&mut self, n1: Option<N1Port>, prefix: &[u8], mut pdu: P) {
        let header = match self.rmt.syntax.decode(prefix, pdu.len()) {
            Ok(header) => header,
            Err(error) => return self.reject(n1, error.into()),
        };
        match header.pci.kind {
            PduType::Data => {
                pdu.advance(header.header_bytes);
                self.receive(n1, &header.pci, None, Some(pdu));
            }
            PduType::Management => {
                pdu.advance(header.header_bytes);
                self.management(n1, header.pci.src, &pdu);
            }
            PduType::Control | PduType::Rendezvous => {
                self.control(n1, self.rmt.syntax, &header, &pdu);
            }
        }
    }

    /// Handles a PDU that cannot be one of the DIF. It may be one between neighbours, which has the
    /// default widths in every DIF.
    fn on_neighbour_pdu(&mut self, n1: N1Port, prefix: &[u8], mut pdu: P) {
        if !has_channels(self.rmt.syntax.dialect) {
            return self.refuse(n1, self.error_of(prefix));
        }
        let syntax = Syntax::default();
        let header = match syntax.decode(prefix, pdu.len()) {
            Ok(header) if header.hop_limit == NEIGHBOUR => header,
            Ok(_) => return self.refuse(n1, self.error_of(prefix)),
            Err(error) => return self.refuse(n1, error.into()),
        };
        if header.pci.dst != Address::NONE {
            return self.refuse(n1, DropReason::HopLimit);
        }
        pdu.truncate(header.pdu_bytes);
        match header.pci.kind {
            PduType::Data => {
                pdu.advance(header.header_bytes);
                self.receive(Some(n1), &header.pci, None, Some(pdu));
            }
            PduType::Management => self.neighbour_management(n1, &header, &pdu),
            PduType::Control | PduType::Rendezvous => {
                self.control(Some(n1), syntax, &header, &pdu);
            }
        }
    }

    /// Why the PDU with this prefix does not belong to the DIF.
    fn error_of(&self, prefix: &[u8]) -> DropReason {
        match self.rmt.syntax.peek(prefix) {
            Err(error) => error.into(),
            Ok(_) => DropReason::HopLimit,
        }
    }

    fn control(&mut self, n1: Option<N1Port>, syntax: Syntax, header: &Decoded, pdu: &P) {
        let mut bytes = [0; PCI_BYTES_MAX];
        let count = pdu.copy_prefix(&mut bytes);
        match syntax.decode_control(&bytes[..count], header) {
            Ok(control) => self.receive(n1, &header.pci, Some(&control), None),
            Err(error) => self.reject(n1, PciError::into(error)),
        }
    }

    /// Handles a PDU of a connection.
    #[inline]
    fn receive(
        &mut self,
        n1: Option<N1Port>,
        pci: &Pci,
        control: Option<&carina_wire::dif::Control>,
        udf: Option<P>,
    ) {
        let now = self.rmt.now;
        let Some(instance) = self.connections.get_mut(pci.dst_cep) else {
            return self.rmt.counters.drop_one(DropReason::UnknownCep);
        };
        if !instance.is_connected {
            return self.rmt.counters.drop_one(DropReason::NotConnected);
        }
        let is_own = match instance.pinned {
            // Between neighbours the N-1 flow and the CEP-ids identify the sender.
            Some(port) => n1 == Some(N1Port(port)) && pci.src_cep == instance.remote_cep,
            None => pci.src == instance.remote && pci.src_cep == instance.remote_cep,
        };
        if !is_own {
            return self.reject(n1, DropReason::Forged);
        }
        instance.heard_at = now;
        if let Some(udf) = &udf {
            // Moving average over about eight PDUs.
            instance.mean = instance.mean - instance.mean / 8 + udf.len() as u32 / 8;
        }
        let is_control = control.is_some();
        let received = match instance.efcp.receive(now, pci, control, udf) {
            Ok(received) => received,
            Err(_) => {
                self.rmt.counters.drop_one(DropReason::Efcp);
                // EFCP may have prepared an answer all the same: it acknowledges a duplicate.
                carina_efcp::Received {
                    is_deliverable: false,
                    is_sendable: true,
                }
            }
        };
        if received.is_sendable || is_control {
            instance.transmit(&mut self.rmt);
        }
        if !instance.is_dirty {
            instance.is_dirty = true;
            self.dirty.push(instance.cep);
        }
        let (owner, cep, has_window) = (instance.owner, instance.cep, instance.has_window);
        // More UDFs may follow in this burst: `finish_burst` collects them and sets the timers.
        // With a window they are taken now, because the window that is granted counts from what was
        // taken.
        if received.is_deliverable && has_window {
            self.pull(owner);
        }
        if is_control {
            self.after_control(owner, cep);
        }
    }

    /// After an acknowledgement or a window: resumes the flows that waited for it.
    fn after_control(&mut self, owner: Owner, cep: CepId) {
        self.handle_efcp_events(cep);
        self.resume(owner);
    }

    /// Handles a management PDU between neighbours. It has a checksum of its own, since SDU
    /// protection does not cover it.
    #[cold]
    fn neighbour_management(&mut self, n1: N1Port, header: &Decoded, pdu: &P) {
        let mut bytes = Vec::with_capacity(pdu.len());
        pdu.append_to(&mut bytes);
        let whole = without_neighbour_check(&bytes);
        match whole.and_then(|whole| whole.get(header.header_bytes..)) {
            Some(message) => self.message(Some(n1), header.pci.src, message.to_vec()),
            None => self.refuse(n1, DropReason::NeighbourChecksum),
        }
    }

    fn management(&mut self, n1: Option<N1Port>, src: Address, pdu: &P) {
        let mut message = Vec::with_capacity(pdu.len());
        pdu.append_to(&mut message);
        self.message(n1, src, message);
    }

    /// Queues a message for layer management.
    fn message(&mut self, n1: Option<N1Port>, src: Address, message: Vec<u8>) {
        if self.management_waiting >= MANAGEMENT_WAITING_MAX {
            return self.rmt.counters.drop_one(DropReason::ManagementQueueFull);
        }
        self.management_waiting += 1;
        // A message to this IPCP itself came through no N-1 flow.
        let n1 = n1.unwrap_or(N1Port(u32::MAX));
        self.events
            .push_back(TransferEvent::Management { n1, src, message });
    }

    fn reject(&mut self, n1: Option<N1Port>, reason: DropReason) {
        match n1 {
            Some(n1) => self.refuse(n1, reason),
            None => self.rmt.counters.drop_one(reason),
        }
    }

    /// Drops a PDU that must not occur, and reports it once per N-1 flow and reason.
    fn refuse(&mut self, n1: N1Port, reason: DropReason) {
        self.rmt.counters.drop_one(reason);
        self.notice(n1, reason);
    }

    pub(super) fn notice(&mut self, n1: N1Port, reason: DropReason) {
        let Some(port) = self.rmt.port_mut(n1.0) else {
            return;
        };
        let bit = 1 << (reason as u64);
        if port.noticed & bit != 0 {
            return;
        }
        port.noticed |= bit;
        let text = format!(
            "N-1 flow {} ({} in {}): a PDU was discarded: {}",
            n1.0,
            port.props.remote,
            port.props.dif,
            reason.name()
        );
        self.events.push_back(TransferEvent::Notice { text });
    }
}

/// True for a management PDU between neighbours, which is never protected.
fn is_bare<P: Payload>(syntax: Syntax, pdu: &P) -> bool {
    if !has_channels(syntax.dialect) {
        return false;
    }
    let mut prefix = [0; PREFIX];
    let count = pdu.copy_prefix(&mut prefix);
    let header: Result<RelayHeader, PciError> = Syntax::default().peek(&prefix[..count]);
    header.is_ok_and(|header| {
        header.kind == PduType::Management
            && header.hop_limit == NEIGHBOUR
            && header.dst == Address::NONE
            && header.pdu_bytes == pdu.len()
    })
}

/// Removes the protection of a PDU. `None` when there is no buffer.
fn unprotect<P: Payload>(port: &mut Port<P>, now: Instant, pdu: &P) -> Result<Option<P>, Reject> {
    let Some(protection) = &mut port.protection else {
        return Ok(None);
    };
    let mut bytes = Vec::with_capacity(pdu.len());
    pdu.append_to(&mut bytes);
    protection.set_now(now);
    protection.unprotect(&mut bytes)?;
    Ok(P::from_vec(bytes))
}
