//! Relaying: forwards PDUs whose destination is another member.

use carina_wire::Payload;
use carina_wire::dif::{Address, RelayHeader};

use super::Rmt;
use crate::data_transfer::counters::DropReason;
use crate::data_transfer::forwarding::mix;
use crate::data_transfer::port::QueueClass;
use crate::policy::{Arrival, QueueDecision};

/// Buffer size for [`Syntax::mark_bytes`](carina_wire::dif::Syntax::mark_bytes) of any dialect.
const MARK_MAX: usize = 32;

impl<P: Payload> Rmt<P> {
    /// Forwards a PDU whose destination is another member.
    #[inline]
    pub(in crate::data_transfer) fn relay(&mut self, header: &RelayHeader, mut pdu: P) {
        if header.hop_limit <= self.hop_limits.last {
            return self.counters.drop_one(DropReason::HopLimit);
        }
        let mixed = mix(
            self.address.0,
            header.dst,
            header.src,
            header.dst_cep,
            header.src_cep,
        );
        let index = match self.next_port(header.dst, mixed) {
            Ok(index) => index,
            Err(reason) => return self.counters.drop_one(reason),
        };
        let is_management = header.kind == carina_wire::dif::PduType::Management;
        let queue_class = match self.class(header.qos.0) {
            _ if is_management => QueueClass::Management,
            Some(class) => QueueClass::Cube(class),
            None => return self.counters.drop_one(DropReason::UnknownCube),
        };
        let mut ecn = header.ecn;
        if let QueueClass::Cube(class) = queue_class {
            match self.queue_decision(index, class, pdu.len()) {
                QueueDecision::Queue => {}
                QueueDecision::Mark => {
                    self.counters.pdus_marked += u64::from(!ecn);
                    ecn = true;
                }
                QueueDecision::Drop => return self.counters.drop_one(DropReason::QueueFull),
            }
        }
        let mut mark = [0; MARK_MAX];
        let mark = &mut mark[..self.syntax.mark_bytes()];
        pdu.copy_prefix(mark);
        self.syntax.mark(mark, header.hop_limit - 1, ecn);
        pdu.advance(mark.len());
        if !pdu.prepend(mark) {
            return self.counters.drop_one(DropReason::NoBuffer);
        }
        self.counters.pdus_relayed += 1;
        self.queue(index, queue_class, pdu, false);
    }

    /// Queues a PDU whose N-1 flow has ended for another N-1 flow.
    pub(in crate::data_transfer) fn requeue(&mut self, queue_class: QueueClass, pdu: P) {
        let mut prefix = [0; 64];
        let count = pdu.copy_prefix(&mut prefix);
        let port = match self.syntax.peek(&prefix[..count]) {
            // A PDU between neighbours has no other path.
            Ok(header)
                if u16::from(header.hop_limit) != self.hop_limits.neighbour
                    && header.dst != Address::NONE =>
            {
                let (src, dst) = (header.src, header.dst);
                let mixed = mix(self.address.0, dst, src, header.dst_cep, header.src_cep);
                self.next_port(dst, mixed).ok()
            }
            _ => None,
        };
        match port {
            Some(index) => {
                self.counters.pdus_moved += 1;
                self.queue(index, queue_class, pdu, false);
            }
            None => self.counters.drop_one(DropReason::N1Gone),
        }
    }

    #[inline]
    fn queue_decision(&mut self, index: u32, class: u8, len: usize) -> QueueDecision {
        let arrival = Arrival {
            now: self.now,
            len,
            random: self.draw(),
        };
        let Some(port) = self.port_mut(index) else {
            return QueueDecision::Queue;
        };
        let decision = port.admit(class, arrival);
        port.dropped += u64::from(decision == QueueDecision::Drop);
        decision
    }

    /// Draws 32 random bits (xorshift64*).
    #[inline]
    fn draw(&mut self) -> u32 {
        let mut x = self.random;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random = x;
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}
