//! ICMP errors to senders, and where the AFTR routes them.

use carina_apps::reassembly::Whole;
use carina_frame::Frame;
use carina_time::Instant;
use carina_wire::inet::PROTOCOL_ICMP;

use super::Aftr;
use super::arrived::{How, OUTER_BYTES, Outer};
use crate::counters::{PairCounter, Single};
use crate::icmp::{EXPIRED4, EXPIRED6, Message, error4, error6, may_be_answered6};
use crate::link::ETHER;
use crate::packet::{Packet4, PacketDirection, count_hop};

impl Aftr {
    /// Sends an ICMPv4 error about a packet to its sender, if the rules and the configuration allow
    /// it.
    pub(super) fn tell4(&mut self, message: Message, about: &Packet4<'_>, how: How) {
        let may_be_answered = !how.is_group && about.may_be_answered();
        if self.rules.restrains_errors && !may_be_answered {
            return;
        }
        if !self.policy.sends_errors4 {
            return self.counters.add(Single::DropOutByPolicyIcmpv4Packets, 1);
        }
        self.send_error4(message, about, how);
    }

    /// Sends an ICMPv4 error about a packet to its sender, if the rate limit allows it.
    pub(super) fn send_error4(&mut self, message: Message, about: &Packet4<'_>, how: How) {
        let bytes = ETHER + about.bytes.len();
        if !self.limit4.allows(how.now) {
            return self
                .counters
                .count(PairCounter::DropOverRateLimitIcmpv4, bytes);
        }
        let ends = [self.own.v4.ip, about.source];
        let (pool, mtu) = (&self.pool, self.external.mtu());
        let error = error4(pool, &self.rules, ends, message, about.bytes, mtu);
        let Some(error) = error else {
            return self.counters.count(PairCounter::DropNoFrame, bytes);
        };
        self.counters
            .count(PairCounter::OutIcmpv4Error, ETHER + error.len());
        self.route_error(error, ends);
    }

    /// Routes an ICMPv4 error. An error to an address of the binding table goes to the B4 of that
    /// address, any other to the Internet.
    fn route_error(&mut self, mut error: Frame, [source, destination]: [[u8; 4]; 2]) {
        let is_hairpinned = !self.rules.errors_go_straight;
        if is_hairpinned && !self.table.has_address(destination) {
            return self.send4(error);
        }
        let view = Packet4 {
            bytes: error.bytes(),
            header_bytes: 20,
            protocol: PROTOCOL_ICMP,
            is_later_fragment: false,
            source,
            destination,
        };
        let port = view.port(PacketDirection::ToB4, &self.rules);
        let bytes = ETHER + error.len();
        match self.table.find(destination, port) {
            Some(_) if is_hairpinned && self.refuses_hairpinned_icmp() => {
                self.drop_hairpinned(PairCounter::DropInByPolicyIcmpv4, bytes);
            }
            Some(tunnel) => {
                if is_hairpinned {
                    count_hop(error.bytes_mut());
                }
                self.encapsulate(error, &tunnel);
            }
            None if is_hairpinned => {
                let of = self.unbound_icmp(&error);
                self.drop_hairpinned(of, bytes);
            }
            None => self.send4(error),
        }
    }

    /// Drops an error that was going to a softwire, and counts it as if it had arrived through
    /// another softwire.
    fn drop_hairpinned(&mut self, of: PairCounter, bytes: usize) {
        self.counters.count(of, bytes);
        self.counters
            .count(PairCounter::DropAllIpv6Iface, bytes + OUTER_BYTES);
    }

    /// Sends an ICMPv6 error about a packet to its sender, if the rules, the configuration and the
    /// rate limit allow it. `source` is the source address of the error.
    pub(super) fn tell6(&mut self, message: Message, source: [u8; 16], about: &[u8], how: How) {
        let Some(to) = about.get(8..24).and_then(|to| to.try_into().ok()) else {
            return;
        };
        let may_be_answered = !how.is_group && may_be_answered6(about);
        if self.rules.restrains_errors && !may_be_answered {
            return;
        }
        if !self.policy.sends_errors6 {
            return self.counters.add(Single::DropOutByPolicyIcmpv6Packets, 1);
        }
        let bytes = ETHER + about.len();
        if !self.limit6.allows(how.now) {
            return self
                .counters
                .count(PairCounter::DropOverRateLimitIcmpv6, bytes);
        }
        let error = error6(&self.pool, &self.rules, [source, to], message, about);
        let Some(error) = error else {
            return self.counters.count(PairCounter::DropNoFrame, bytes);
        };
        self.counters
            .count(PairCounter::OutIcmpv6Error, ETHER + error.len());
        self.send6(error);
    }

    /// Discards packets that have been incomplete for too long, and sends an error to the source of
    /// each whose first fragment had arrived.
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

/// Restores a first fragment as it arrived, without its Ethernet header; also returns whether its
/// destination MAC address was a group address.
fn restored(first: &Whole, has_ether: bool) -> (bool, Vec<u8>) {
    let (ether, head) = first.head.split_at(if has_ether { ETHER } else { 0 });
    let is_group = ether.first().is_some_and(|byte| byte & 1 != 0);
    (is_group, [head, &first.payload].concat())
}
