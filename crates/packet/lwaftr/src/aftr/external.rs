//! Handles frames from the Internet.

use carina_apps::fragment::{fragment4, must_not_be_cut, whole4};
use carina_apps::icmp_echo::{Found, answer};
use carina_apps::reassembly::Outcome;
use carina_frame::Frame;
use carina_time::Instant;
use carina_wire::ether::{ETHERTYPE_ARP, Mac};
use carina_wire::inet::{ARP4_BYTES, Arp4, ETHERTYPE_IPV4, Ipv4Header};

use super::Aftr;
use super::arrived::{Arrived, How, Outer};
use super::parts::Key4;
use crate::counters::{PairCounter, Single};
use crate::exchange::Learnt;
use crate::icmp::{Message, NO_HOP4, UNREACHABLE4};
use crate::link::ETHER;
use crate::packet::{Packet4, PacketDirection, clear_identification, count_hop};
use crate::table::Tunnel;

impl Aftr {
    pub(super) fn external_frame(&mut self, frame: Frame, now: Instant) {
        let bytes = frame.len();
        let ethertype = match frame.bytes().get(12..ETHER) {
            Some(&[high, low]) => u16::from_be_bytes([high, low]),
            _ => 0,
        };
        if ethertype != ETHERTYPE_IPV4 && self.rules.counts_as_snabb {
            self.counters.add(Single::InIpv4FragReassemblyUnneeded, 1);
        }
        match ethertype {
            ETHERTYPE_ARP if self.external.lets_in(frame.bytes()) => self.arp(&frame, now),
            ETHERTYPE_ARP => self.drop4(PairCounter::DropFilteredInIpv4, bytes),
            ETHERTYPE_IPV4 => self.ipv4(frame, now),
            _ => self.drop4(PairCounter::DropMisplacedNotIpv4, bytes),
        }
    }

    fn ipv4(&mut self, mut frame: Frame, now: Instant) {
        let bytes = frame.len();
        let Ok(mut header) = Ipv4Header::decode(&frame.bytes()[ETHER..]) else {
            return self.drop4(PairCounter::DropMalformedIpv4, bytes);
        };
        if header.is_fragment {
            let Some((whole, whole_header)) = self.put_together4(&frame, ETHER, &header, None, now)
            else {
                return;
            };
            (frame, header) = (whole, whole_header);
        } else {
            self.counters.add(Single::InIpv4FragReassemblyUnneeded, 1);
        }
        // The bytes behind the packet are Ethernet's padding.
        frame.truncate(ETHER + header.total_bytes);
        let bytes = frame.len();
        if !self.external.lets_in(frame.bytes()) {
            return self.drop4(PairCounter::DropFilteredInIpv4, bytes);
        }
        if header.destination == self.own.v4.ip && self.echo4(&mut frame) {
            let (link, leaving) = self.leaving4();
            return link.send_frame(frame, false, leaving);
        }
        self.counters.count(PairCounter::InIpv4, bytes);
        let is_group = Mac(*frame.bytes().first_chunk().unwrap_or(&[0; 6])).is_group();
        frame.advance(ETHER);
        let how = How { is_group, now };
        let arrived = Arrived { header, how };
        if let Err(of) = self.forward_from_internet(frame, &arrived) {
            self.drop4(of, bytes);
        }
    }

    /// Turns an echo request to the own address into its reply, and returns whether it did. A
    /// damaged request is left as it is, and handled like any other packet.
    fn echo4(&mut self, frame: &mut Frame) -> bool {
        let bytes = frame.len();
        let is_answered = answer(frame.bytes_mut(), self.own.v4.ip) == Found::Answered;
        if is_answered {
            self.counters.count(PairCounter::InIcmpv4Echo, bytes);
            self.counters.count(PairCounter::OutIcmpv4Echo, bytes);
        }
        is_answered
    }

    /// Adds an IPv4 fragment, which begins behind `head_bytes` of other headers. Returns the
    /// reassembled packet and its header when this fragment was the last one missing.
    pub(super) fn put_together4(
        &mut self,
        frame: &Frame,
        head_bytes: usize,
        header: &Ipv4Header,
        outer: Option<Outer>,
        now: Instant,
    ) -> Option<(Frame, Ipv4Header)> {
        let key = Key4::new(&frame.bytes()[head_bytes..], header, outer);
        let fragment = fragment4(frame.bytes(), head_bytes, header);
        let random = self.numbers.draw();
        let outcome = self
            .parts
            .add4(key, &fragment, now, random, &mut self.counters);
        let Outcome::Complete(whole) = outcome else {
            return None;
        };
        let made = whole4(&whole, head_bytes, &self.pool);
        let decoded = made.ok().and_then(|mut frame| {
            if !self.rules.keeps_identification {
                clear_identification(&mut frame.bytes_mut()[head_bytes..]);
            }
            let header = Ipv4Header::decode(&frame.bytes()[head_bytes..]).ok()?;
            Some((frame, header))
        });
        if decoded.is_none() {
            self.counters
                .count(PairCounter::DropNoFrame, whole.payload.len());
        }
        decoded
    }

    fn forward_from_internet(
        &mut self,
        packet: Frame,
        arrived: &Arrived,
    ) -> Result<(), PairCounter> {
        let view = Packet4::checked(packet.bytes(), &arrived.header);
        if view.is_icmp() && !self.policy.allows_icmp4 {
            return Err(PairCounter::DropInByPolicyIcmpv4);
        }
        if view.is_damaged_icmp() {
            return Err(PairCounter::DropBadChecksumIcmpv4);
        }
        let port = view.port(PacketDirection::ToB4, &self.rules);
        match self.table.find(view.destination, port) {
            Some(tunnel) => self.forward_to_b4(packet, &tunnel, arrived),
            None => Err(self.unbound(&packet, arrived)),
        }
    }

    /// Refuses a packet whose destination has no softwire: its sender gets an ICMP error, unless
    /// the packet itself is ICMP. Returns the counter of the drop. (RFC 7596 §6.2, §8.1)
    pub(super) fn unbound(&mut self, packet: &Frame, arrived: &Arrived) -> PairCounter {
        let view = Packet4::checked(packet.bytes(), &arrived.header);
        if view.is_icmp() {
            if !self.rules.counts_as_snabb {
                return PairCounter::DropInByRfc7596Icmpv4;
            }
            return self.unbound_icmp(packet);
        }
        self.tell4(UNREACHABLE4, &view, arrived.how);
        PairCounter::DropNoDestSoftwireIpv4
    }

    /// Counts an ICMP packet without a softwire as Snabb does: as one without softwire, and also as
    /// silently dropped if ICMP errors are enabled at all.
    pub(super) fn unbound_icmp(&mut self, packet: &Frame) -> PairCounter {
        if !self.policy.sends_errors4 {
            self.counters.add(Single::DropOutByPolicyIcmpv4Packets, 1);
            return PairCounter::DropNoDestSoftwireIpv4;
        }
        let bytes = ETHER + packet.len();
        self.counters
            .count(PairCounter::DropNoDestSoftwireIpv4, bytes);
        PairCounter::DropInByRfc7596Icmpv4
    }

    /// Forwards an IPv4 packet to the B4 at the end of `tunnel`. An error is the counter under
    /// which the caller must count the packet as dropped.
    pub(super) fn forward_to_b4(
        &mut self,
        mut packet: Frame,
        tunnel: &Tunnel,
        arrived: &Arrived,
    ) -> Result<(), PairCounter> {
        let is_counted_first = !self.rules.quotes_as_received && arrived.header.ttl > 0;
        if is_counted_first {
            count_hop(packet.bytes_mut());
        }
        let view = Packet4::checked(packet.bytes(), &arrived.header);
        if arrived.header.ttl <= 1 {
            self.tell4(NO_HOP4, &view, arrived.how);
            return Err(PairCounter::DropTtlZeroIpv4);
        }
        let longest = self.mtu_to(tunnel) - 40;
        if packet.len() > longest && must_not_be_cut(packet.bytes()) {
            self.tell4(Message::must_cut(longest), &view, arrived.how);
            return Err(PairCounter::DropOverMtuButDontFragmentIpv4);
        }
        if !is_counted_first {
            count_hop(packet.bytes_mut());
        }
        self.encapsulate(packet, tunnel);
        Ok(())
    }
}

/// ARP for the AFTR's own address. (RFC 826)
impl Aftr {
    fn arp(&mut self, frame: &Frame, now: Instant) {
        let bytes = frame.len();
        let Some(arp) = Arp4::decode(&frame.bytes()[ETHER..]) else {
            return self.drop4(PairCounter::DropMalformedArp, bytes);
        };
        let of = if arp.is_reply {
            PairCounter::InArpReply
        } else {
            PairCounter::InArpRequest
        };
        self.counters.count(of, bytes);
        if let Some(heard) = self.own.v4.heard(&arp)
            && let Some(mac) = self.hear4(heard, now)
        {
            let ip = arp.sender.1;
            self.tell_others(Learnt::NextHop4 { ip, mac });
        }
        if let Some(reply) = self.own.v4.reply(&arp) {
            self.send_arp(&reply, arp.sender.0);
        }
    }

    pub(super) fn ask4(&mut self) {
        if let Some(request) = self.own.v4.request() {
            self.send_arp(&request, Mac::BROADCAST.0);
        }
    }

    fn send_arp(&mut self, arp: &Arp4, to: [u8; 6]) {
        let mut bytes = [0; ETHER + ARP4_BYTES];
        bytes[..6].copy_from_slice(&to);
        bytes[6..12].copy_from_slice(&self.external.mac());
        bytes[12..ETHER].copy_from_slice(&ETHERTYPE_ARP.to_be_bytes());
        bytes[ETHER..].copy_from_slice(&arp.encode());
        let Some(frame) = self.pool.frame_of(&bytes) else {
            return self.counters.count(PairCounter::DropNoFrame, bytes.len());
        };
        let of = if arp.is_reply {
            PairCounter::OutArpReply
        } else {
            PairCounter::OutArpRequest
        };
        self.counters.count(of, bytes.len());
        let (link, leaving) = self.leaving4();
        link.send_frame(frame, false, leaving);
    }
}
