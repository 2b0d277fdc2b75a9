//! Errors that senders get, and the way on which they go.

use carina_apps::reassembly::Whole;
use carina_frame::Frame;
use carina_time::Instant;
use carina_wire::inet::PROTOCOL_ICMP;

use super::Aftr;
use super::arrived::{How, Outer};
use crate::counters::{Of, Single};
use crate::icmp::{EXPIRED4, EXPIRED6, Message, error4, error6, may_be_answered6};
use crate::link::ETHER;
use crate::packet::{Packet4, Way};

impl Aftr {
    /// Tells the sender of a packet of IPv4.
    pub(super) fn tell4(&mut self, message: Message, about: &Packet4<'_>, how: How) {
        if how.is_group || !about.may_be_answered() {
            return;
        }
        if !self.policy.sends_errors4 {
            return self.counters.add(Single::DropOutByPolicyIcmpv4Packets, 1);
        }
        let bytes = ETHER + about.bytes.len();
        if !self.limit4.allows(how.now) {
            return self.counters.count(Of::DropOverRateLimitIcmpv4, bytes);
        }
        let ends = [self.own.v4.ip, about.source];
        let error = error4(&self.pool, ends, message, about.bytes, self.external.mtu());
        let Some(error) = error else {
            return self.counters.count(Of::DropNoFrame, bytes);
        };
        self.counters.count(Of::OutIcmpv4Error, ETHER + error.len());
        self.route_error(error, ends);
    }

    /// An error to an address of the binding table goes to its B4, any other to the Internet.
    fn route_error(&mut self, error: Frame, [source, destination]: [[u8; 4]; 2]) {
        let view = Packet4 {
            bytes: error.bytes(),
            header_bytes: 20,
            protocol: PROTOCOL_ICMP,
            is_later_fragment: false,
            source,
            destination,
        };
        let port = view.port(Way::ToB4, &self.rules);
        match self.table.find(destination, port) {
            Some(tunnel) => self.encapsulate(error, &tunnel),
            None => self.send4(error),
        }
    }

    /// Tells the sender of a packet of IPv6.
    pub(super) fn tell6(&mut self, message: Message, source: [u8; 16], about: &[u8], how: How) {
        let Some(to) = about.get(8..24).and_then(|to| to.try_into().ok()) else {
            return;
        };
        if how.is_group || !may_be_answered6(about) {
            return;
        }
        if !self.policy.sends_errors6 {
            return self.counters.add(Single::DropOutByPolicyIcmpv6Packets, 1);
        }
        let bytes = ETHER + about.len();
        if !self.limit6.allows(how.now) {
            return self.counters.count(Of::DropOverRateLimitIcmpv6, bytes);
        }
        let Some(error) = error6(&self.pool, [source, to], message, about) else {
            return self.counters.count(Of::DropNoFrame, bytes);
        };
        self.counters.count(Of::OutIcmpv6Error, ETHER + error.len());
        self.send6(error);
    }

    /// Gives up packets that stay incomplete, and tells the senders of their first fragments.
    pub(super) fn expire(&mut self, now: Instant) {
        let expired = self.parts.expire(now, &mut self.counters);
        if !self.rules.answers_fragments {
            return;
        }
        for (outer, first) in expired.v4 {
            let (is_group, packet) = restored(&first, outer.is_none());
            if let Some(about) = Packet4::quoted(&packet) {
                self.tell4(EXPIRED4, &about, How { is_group, now });
            }
        }
        for first in expired.v6 {
            let (is_group, packet) = restored(&first, true);
            if let Some(header) = packet.first_chunk::<40>() {
                let [_, destination] = Outer { header: *header }.ends();
                self.tell6(EXPIRED6, destination, &packet, How { is_group, now });
            }
        }
    }
}

/// A first fragment as it came, without its header of Ethernet; and whether that named a group.
fn restored(first: &Whole, has_ether: bool) -> (bool, Vec<u8>) {
    let (ether, head) = first.head.split_at(if has_ether { ETHER } else { 0 });
    let is_group = ether.first().is_some_and(|byte| byte & 1 != 0);
    (is_group, [head, &first.payload].concat())
}
