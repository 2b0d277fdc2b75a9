//! Handles frames from the access network.

use carina_apps::congestion::carry_mark;
use carina_apps::fragment::{fragment6, must_not_be_cut, whole6, without_extensions6};
use carina_apps::reassembly::{Discard, Outcome};
use carina_frame::Frame;
use carina_time::Instant;
use carina_wire::inet::{ETHERTYPE_IPV6, Ipv4Header, PROTOCOL_ICMP6, PROTOCOL_IPV4};
use carina_wire::ipv6::{Answer, FRAGMENT, Ipv6Error, Upper};
use carina_wire::neighbour::{NEIGHBOUR_BYTES, Neighbour, NeighbourError, NeighbourKind};

use super::Aftr;
use super::arrived::{Arrived, How, OUTER_BYTES, Outer};
use super::parts::Key6;
use crate::config::Internal;
use crate::counters::{PairCounter, Single};
use crate::exchange::Learnt;
use crate::icmp::{Message, NO_HOP4, UNREACHABLE4, WRONG_SOURCE6, answer6, sum6};
use crate::link::ETHER;
use crate::packet::{Packet4, PacketDirection, count_hop};
use crate::table::Tunnel;

impl Aftr {
    pub(super) fn internal_frame(&mut self, mut frame: Frame, now: Instant) {
        let bytes = frame.len();
        if frame.bytes().get(12..ETHER) != Some(&ETHERTYPE_IPV6.to_be_bytes()) {
            if self.rules.counts_as_snabb {
                self.counters.add(Single::InIpv6FragReassemblyUnneeded, 1);
            }
            return self.drop6(PairCounter::DropMisplacedNotIpv6, bytes);
        }
        let Some((outer, length)) = header6(frame.bytes()) else {
            return self.drop6(PairCounter::DropMalformedIpv6, bytes);
        };
        // The bytes behind the packet are Ethernet's padding.
        frame.truncate(ETHER + 40 + length);
        let Some(upper) = self.upper(&frame, &outer, now) else {
            return;
        };
        if upper.protocol != FRAGMENT {
            self.counters.add(Single::InIpv6FragReassemblyUnneeded, 1);
            without_extensions6(&mut frame, ETHER, &upper);
            return self.ipv6(frame, upper.part.is_some(), now);
        }
        let Some(mut whole) = self.put_together6(&frame, &outer, upper.start, now) else {
            return;
        };
        let Some((outer, _)) = header6(whole.bytes()) else {
            return self.drop6(PairCounter::DropMalformedIpv6, whole.len());
        };
        if let Some(upper) = self.upper(&whole, &outer, now) {
            without_extensions6(&mut whole, ETHER, &upper);
            self.ipv6(whole, true, now);
        }
    }

    /// Finds what follows the extension headers of an IPv6 packet. `frame` ends where the packet
    /// ends. Returns `None` for a packet that must be discarded; it is then already counted, and
    /// answered with an error where the rules say so.
    fn upper(&mut self, frame: &Frame, outer: &Outer, now: Instant) -> Option<Upper> {
        let error = match Upper::of_all(&frame.bytes()[ETHER..]) {
            Ok(upper) => return Some(upper),
            Err(error) => error,
        };
        let is_to_group = outer.header[24] == 0xff;
        let answer = match error {
            Ipv6Error::Routing { at } => Some((0, at)),
            Ipv6Error::Option { at, answer } => match answer {
                Answer::Always => Some((2, at)),
                Answer::NotToGroups if !is_to_group => Some((2, at)),
                _ => None,
            },
            _ => None,
        };
        if let Some((code, at)) = answer
            && self.rules.answers_extensions
        {
            self.parameter_problem(code, at, frame, outer, now);
        }
        let of = match error {
            Ipv6Error::Malformed => PairCounter::DropMalformedIpv6,
            _ => PairCounter::DropExtensionHeadersIpv6,
        };
        self.drop6(of, frame.len());
        None
    }

    /// Adds an IPv6 fragment, whose fragment header begins at byte `at` of the packet. Returns the
    /// reassembled packet when this fragment was the last one missing.
    fn put_together6(
        &mut self,
        frame: &Frame,
        outer: &Outer,
        at: usize,
        now: Instant,
    ) -> Option<Frame> {
        let Some((fragment, id)) = fragment6(frame.bytes(), ETHER) else {
            self.drop6(PairCounter::DropMalformedIpv6, frame.len());
            return None;
        };
        let (key, random) = (Key6::new(outer, id), self.numbers.draw());
        let outcome = self
            .parts
            .add6(key, &fragment, now, random, &mut self.counters);
        let whole = match outcome {
            Outcome::Complete(whole) => whole,
            Outcome::Discarded(why) => {
                // `Length`: the payload length is wrong; `TooLong`: the offset is. (RFC 8200 §4.5)
                let pointer = match why {
                    Discard::Length => 4,
                    Discard::TooLong => at + 2,
                    _ => return None,
                };
                if self.rules.answers_fragments {
                    self.parameter_problem(0, pointer, frame, outer, now);
                }
                return None;
            }
            Outcome::Kept | Outcome::PassedOver => return None,
        };
        let made = whole6(&whole, ETHER, &self.pool);
        if made.is_err() {
            self.counters
                .count(PairCounter::DropNoFrame, whole.payload.len());
        }
        made.ok()
    }

    /// Sends an ICMPv6 parameter problem: `code` tells the sender what is wrong, and `pointer` the
    /// byte at fault.
    fn parameter_problem(
        &mut self,
        code: u8,
        pointer: usize,
        frame: &Frame,
        outer: &Outer,
        now: Instant,
    ) {
        let message = Message {
            word: pointer as u32,
            ..Message::of(4, code)
        };
        let [_, destination] = outer.ends();
        let how = How {
            is_group: is_group(frame),
            now,
        };
        self.tell6(message, destination, &frame.bytes()[ETHER..], how);
    }

    /// Handles an IPv6 packet without extension headers. `was_cut` means that the packet had a
    /// fragment header.
    fn ipv6(&mut self, mut frame: Frame, was_cut: bool, now: Instant) {
        let bytes = frame.len();
        if !self.internal.lets_in(frame.bytes()) {
            return self.drop6(PairCounter::DropFilteredInIpv6, bytes);
        }
        let Some((outer, _)) = header6(frame.bytes()) else {
            return self.drop6(PairCounter::DropMalformedIpv6, bytes);
        };
        if outer.header[6] == PROTOCOL_ICMP6 {
            match Neighbour::decode(&frame.bytes()[ETHER..]) {
                // RFC 6980 §5
                Ok(_) if was_cut => return self.drop6(PairCounter::DropMalformedNdp, bytes),
                Ok(message) => return self.neighbour(&message, &frame, now),
                Err(NeighbourError::Invalid) => {
                    return self.drop6(PairCounter::DropMalformedNdp, bytes);
                }
                Err(_) => {}
            }
            if answer6(frame.bytes_mut(), self.own.v6.ip) {
                self.counters.count(PairCounter::InIcmpv6Echo, bytes);
                self.counters.count(PairCounter::OutIcmpv6Echo, bytes);
                let (link, leaving) = self.leaving6();
                return link.send_frame(frame, false, leaving);
            }
        }
        self.counters.count(PairCounter::InIpv6, bytes);
        let how = How {
            is_group: is_group(&frame),
            now,
        };
        frame.advance(ETHER);
        let result = match outer.header[6] {
            PROTOCOL_IPV4 => self.forward_from_b4(frame, outer, how),
            PROTOCOL_ICMP6 => self.translate(&frame, how),
            _ => Err(PairCounter::DropUnknownProtocolIpv6),
        };
        if let Err(of) = result {
            self.drop_from_b4(of, bytes);
        }
    }

    /// Drops a packet that arrived from a B4 in a frame of `bytes` bytes.
    fn drop_from_b4(&mut self, of: PairCounter, bytes: usize) {
        let is_between_softwires = matches!(
            of,
            PairCounter::DropTtlZeroIpv4
                | PairCounter::DropOverMtuButDontFragmentIpv4
                | PairCounter::DropNoDestSoftwireIpv4
                | PairCounter::DropInByRfc7596Icmpv4
                | PairCounter::DropInByPolicyIcmpv4
                | PairCounter::DropBadChecksumIcmpv4
        );
        if is_between_softwires && self.rules.counts_as_snabb {
            self.counters.count(of, bytes - OUTER_BYTES);
            self.counters.count(PairCounter::DropAllIpv6Iface, bytes);
        } else {
            self.drop6(of, bytes);
        }
    }

    /// Decapsulates a packet from a B4, reassembles it if it is a fragment, and forwards it.
    fn forward_from_b4(
        &mut self,
        mut frame: Frame,
        outer: Outer,
        how: How,
    ) -> Result<(), PairCounter> {
        frame.advance(40);
        let header =
            Ipv4Header::decode(frame.bytes()).map_err(|_| PairCounter::DropMalformedIpv4)?;
        frame.truncate(header.total_bytes);
        let arrived = |header| Arrived { header, how };
        if !header.is_fragment {
            return self.decapsulated(frame, &outer, &arrived(header));
        }
        // A later fragment has no port, so it cannot be looked up by itself.
        match self.put_together4(&frame, 0, &header, Some(outer), how.now) {
            Some((whole, header)) => self.decapsulated(whole, &outer, &arrived(header)),
            None => Ok(()),
        }
    }

    /// Forwards a decapsulated packet if its source address and port belong to the softwire that it
    /// came through.
    fn decapsulated(
        &mut self,
        mut packet: Frame,
        outer: &Outer,
        arrived: &Arrived,
    ) -> Result<(), PairCounter> {
        let view = Packet4::checked(packet.bytes(), &arrived.header);
        if self.rules.checks_icmp_of_b4s && view.is_damaged_icmp() {
            return Err(PairCounter::DropBadChecksumIcmpv4);
        }
        let [b4, br] = outer.ends();
        let owner = self
            .table
            .find(view.source, view.port(PacketDirection::FromB4, &self.rules));
        if owner != Some(Tunnel { b4, br }) {
            let source = owner.map_or(br, |owner| owner.br);
            self.wrong_source(packet, source, outer, arrived.how);
            return Err(PairCounter::DropNoSourceSoftwireIpv6);
        }
        if self.rules.carries_congestion && !carry_mark(outer.class(), packet.bytes_mut()) {
            return Err(PairCounter::DropCeButNotEctIpv4);
        }
        if self.policy.has_hairpinning && self.table.has_address(arrived.header.destination) {
            return self.hairpin(packet, arrived);
        }
        self.forward_to_internet(packet, arrived)
    }

    fn wrong_source(&mut self, mut packet: Frame, from: [u8; 16], outer: &Outer, how: How) {
        let mut header = outer.header;
        let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
        header[4..6].copy_from_slice(&length.to_be_bytes());
        header[6] = PROTOCOL_IPV4;
        if packet.prepend(&header) {
            self.tell6(WRONG_SOURCE6, from, packet.bytes(), how);
        }
    }

    /// Forwards a packet from a B4 to a B4. (RFC 7596 §6.2)
    fn hairpin(&mut self, packet: Frame, arrived: &Arrived) -> Result<(), PairCounter> {
        let view = Packet4::checked(packet.bytes(), &arrived.header);
        self.counters
            .count(PairCounter::HairpinIpv4, ETHER + packet.len());
        if view.is_icmp() && self.refuses_hairpinned_icmp() {
            return Err(PairCounter::DropInByPolicyIcmpv4);
        }
        if !self.rules.checks_icmp_of_b4s && view.is_damaged_icmp() {
            return Err(PairCounter::DropBadChecksumIcmpv4);
        }
        let port = view.port(PacketDirection::ToB4, &self.rules);
        match self.table.find(view.destination, port) {
            Some(tunnel) => self.forward_to_b4(packet, &tunnel, arrived),
            None => Err(self.unbound(&packet, arrived)),
        }
    }

    /// Whether ICMP between softwires is dropped, because ICMP from the Internet is not allowed.
    pub(super) fn refuses_hairpinned_icmp(&self) -> bool {
        self.rules.drops_hairpinned_icmp && !self.policy.allows_icmp4
    }

    fn forward_to_internet(
        &mut self,
        mut packet: Frame,
        arrived: &Arrived,
    ) -> Result<(), PairCounter> {
        let view = Packet4::checked(packet.bytes(), &arrived.header);
        let is_hop = self.rules.decapsulation_is_a_hop;
        if is_hop && arrived.header.ttl <= 1 {
            self.tell4(NO_HOP4, &view, arrived.how);
            return Err(PairCounter::DropTtlZeroIpv4);
        }
        let longest = self.external.mtu();
        if packet.len() > longest && must_not_be_cut(packet.bytes()) {
            if self.rules.answers_too_long {
                self.tell4(Message::must_cut(longest), &view, arrived.how);
            }
            return Err(PairCounter::DropOverMtuButDontFragmentIpv4);
        }
        if is_hop {
            count_hop(packet.bytes_mut());
        }
        self.send4(packet);
        Ok(())
    }
}

/// Translation of ICMPv6 errors about tunnel packets. (RFC 2473 §8)
impl Aftr {
    /// Sends an ICMPv4 error to the source of the inner packet that an ICMPv6 error quotes.
    fn translate(&mut self, packet: &Frame, how: How) -> Result<(), PairCounter> {
        let bytes = packet.bytes();
        if !self.policy.allows_icmp6 {
            return Err(PairCounter::DropInByPolicyIcmpv6);
        }
        if bytes.len() < 48 || self.rules.checks_tunnel_errors && sum6(bytes) != 0 {
            return Err(PairCounter::DropBadChecksumIcmpv6);
        }
        let (kind, code) = (bytes[40], bytes[41]);
        let word = u32::from_be_bytes([bytes[44], bytes[45], bytes[46], bytes[47]]);
        let message = match (kind, code) {
            // No IPv6 path has a smaller MTU. (RFC 8201 §4)
            (2, 0) if self.rules.discards_small_mtus && word < u32::from(Internal::MTU_MIN) => {
                return Err(PairCounter::DropTooSmallMtuIcmpv6);
            }
            (1, _) | (3, 0) | (4, _) => UNREACHABLE4,
            (2, 0) => Message::must_cut((word as usize).saturating_sub(40).max(MTU4_MIN)),
            (2, _) => return Err(PairCounter::DropTooBigTypeButNotCodeIcmpv6),
            (3, _) => return Err(PairCounter::DropOverTimeButNotHopLimitIcmpv6),
            _ => return Err(PairCounter::DropUnknownProtocolIcmpv6),
        };
        let (outer, inner) = quoted(&bytes[48..]).ok_or(PairCounter::DropNotOursIcmpv6)?;
        let [br, b4] = outer.ends();
        let owner = || {
            self.table.find(
                inner.destination,
                inner.port(PacketDirection::ToB4, &self.rules),
            )
        };
        if self.rules.checks_tunnel_errors && owner() != Some(Tunnel { b4, br }) {
            return Err(PairCounter::DropNotOursIcmpv6);
        }
        if self.rules.learns_path_mtus && (kind, code) == (2, 0) {
            let mtu = word as usize;
            self.paths.learn(b4, mtu, how.now);
            self.count_paths();
            self.tell_others(Learnt::PathMtu { b4, mtu });
        }
        if self.rules.checks_tunnel_errors {
            self.tell4(message, &inner, how)
        } else {
            self.send_error4(message, &inner, how)
        }
        Ok(())
    }
}

/// The smallest IPv4 MTU, in bytes. (RFC 791 §3.2)
const MTU4_MIN: usize = 68;

/// Splits the packet that an ICMPv6 error quotes into the tunnel's outer header and the IPv4 packet
/// inside. `None` if the quoted packet is not IPv4 in IPv6, or is a fragment other than the first.
fn quoted(bytes: &[u8]) -> Option<(Outer, Packet4<'_>)> {
    let (header, rest) = bytes.split_first_chunk::<40>()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let inner = match header[6] {
        PROTOCOL_IPV4 => rest,
        FRAGMENT => {
            let (fragment, inner) = rest.split_first_chunk::<8>()?;
            let is_first = fragment[2] == 0 && fragment[3] & 0xf8 == 0;
            (fragment[0] == PROTOCOL_IPV4 && is_first).then_some(inner)?
        }
        _ => return None,
    };
    Some((Outer { header: *header }, Packet4::quoted(inner)?))
}

/// The IPv6 header of a frame, and its payload length; `None` if the frame is not IPv6 or shorter
/// than this length requires.
fn header6(frame: &[u8]) -> Option<(Outer, usize)> {
    let packet = frame.get(ETHER..)?;
    let header = packet.first_chunk::<40>()?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let is_good = header[0] >> 4 == 6 && packet.len() >= 40 + length;
    is_good.then_some((Outer { header: *header }, length))
}

fn is_group(frame: &Frame) -> bool {
    frame.bytes().first().is_some_and(|byte| byte & 1 != 0)
}

/// Neighbour discovery for the AFTR's own address. (RFC 4861 §7)
impl Aftr {
    fn neighbour(&mut self, message: &Neighbour, frame: &Frame, now: Instant) {
        let bytes = frame.len();
        match message.kind {
            NeighbourKind::Solicitation => self.counters.count(PairCounter::InNdpNs, bytes),
            NeighbourKind::Advertisement { .. } => self.counters.count(PairCounter::InNdpNa, bytes),
        }
        if let Some(heard) = self.own.v6.heard(message)
            && let Some(mac) = self.hear6(heard, now)
            && let Some(ip) = self.own.v6.next
        {
            self.tell_others(Learnt::NextHop6 { ip, mac });
        }
        let sender = frame.bytes()[6..].first_chunk().copied();
        let sender = sender.unwrap_or_default();
        if let Some((answer, to)) = self.own.v6.advertisement(message, sender) {
            self.send_neighbour(&answer, to);
        }
    }

    pub(super) fn ask6(&mut self) {
        if let Some((message, to)) = self.own.v6.solicitation() {
            self.send_neighbour(&message, to);
        }
    }

    fn send_neighbour(&mut self, message: &Neighbour, to: [u8; 6]) {
        let mut bytes = [0; ETHER + NEIGHBOUR_BYTES];
        bytes[..6].copy_from_slice(&to);
        bytes[6..12].copy_from_slice(&self.internal.mac());
        bytes[12..ETHER].copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
        bytes[ETHER..].copy_from_slice(&message.encode());
        let Some(frame) = self.pool.frame_of(&bytes) else {
            return self.counters.count(PairCounter::DropNoFrame, bytes.len());
        };
        let of = match message.kind {
            NeighbourKind::Solicitation => PairCounter::OutNdpNs,
            NeighbourKind::Advertisement { .. } => PairCounter::OutNdpNa,
        };
        self.counters.count(of, bytes.len());
        let (link, leaving) = self.leaving6();
        link.send_frame(frame, false, leaving);
    }
}
