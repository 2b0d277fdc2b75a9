//! A reference AFTR, written as plainly as possible after RFC 7596: it searches softwires one by
//! one, treats ports as strings of bits, and reads headers with etherparse.
//!
//! It receives no fragments, but may fragment packets that leave.

use std::net::{Ipv4Addr, Ipv6Addr};

use carina_lwaftr::table::Softwire;
use etherparse::{IpDscp, IpEcn, IpFragOffset, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header};

use crate::harness::{NEXT_MAC, OWN_MAC, OWN4, ones_sum};

/// MTU of each side, in bytes.
pub(crate) const MTU4: usize = 1400;
pub(crate) const MTU6: usize = 1500;

/// Frames that the reference sends, by side.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    pub external: Vec<Vec<u8>>,
    pub internal: Vec<Vec<u8>>,
}

pub(crate) struct Reference {
    pub softwires: Vec<Softwire>,
    pub has_hairpinning: bool,
}

struct Packet {
    header: Ipv4Header,
    payload: Vec<u8>,
    bytes: Vec<u8>,
}

impl Packet {
    fn read(bytes: &[u8]) -> Option<Packet> {
        let (header, rest) = Ipv4Header::from_slice(bytes).ok()?;
        let length = usize::from(header.total_len).checked_sub(header.header_len())?;
        let is_right = header.header_checksum == header.calc_header_checksum();
        let payload = rest.get(..length).filter(|_| is_right)?.to_vec();
        Some(Packet {
            bytes: bytes[..usize::from(header.total_len)].to_vec(),
            header,
            payload,
        })
    }

    fn is_icmp(&self) -> bool {
        self.header.protocol == IpNumber::ICMP
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from(*bytes.get(at)?) << 8 | u16::from(*bytes.get(at + 1)?))
}

/// The source or the destination port in a payload of this protocol.
fn port(protocol: u8, payload: &[u8], of_source: bool) -> Option<u16> {
    match protocol {
        6 | 17 | 33 | 132 | 136 => word(payload, if of_source { 0 } else { 2 }),
        1 if matches!(payload.first(), Some(0 | 8)) => word(payload, 4),
        1 if matches!(payload.first(), Some(3 | 4 | 5 | 11 | 12)) => {
            let quoted = payload.get(8..)?;
            let length = usize::from(quoted.first()? & 15) * 4;
            let is_plain = quoted.first()? >> 4 == 4 && length >= 20 && quoted.len() >= length;
            let is_echo = matches!(quoted.get(length), Some(0 | 8));
            if !is_plain || (quoted[9] == 1 && !is_echo) || quoted[6] & 31 != 0 || quoted[7] != 0 {
                return None;
            }
            // The quoted packet went in the opposite direction.
            port(quoted[9], &quoted[length..], !of_source)
        }
        _ => None,
    }
}

impl Reference {
    fn owner(&self, address: [u8; 4], port: Option<u16>) -> Option<&Softwire> {
        let address = Ipv4Addr::from(address);
        let mut candidates = self
            .softwires
            .iter()
            .filter(|softwire| softwire.ipv4 == address);
        candidates.find(|softwire| {
            let sets = softwire.ports;
            let (a, k) = (usize::from(sets.offset_bits), usize::from(sets.psid_bits));
            match port {
                None => a == 0 && k == 0,
                Some(port) => {
                    let bits = format!("{port:016b}");
                    let psid = u16::from_str_radix(&format!("0{}", &bits[a..a + k]), 2).unwrap();
                    psid == softwire.psid && (a == 0 || bits[..a].contains('1'))
                }
            }
        })
    }

    fn is_bound(&self, address: [u8; 4]) -> bool {
        let address = Ipv4Addr::from(address);
        self.softwires
            .iter()
            .any(|softwire| softwire.ipv4 == address)
    }

    /// Handles a frame from the Internet.
    pub(crate) fn external(&self, frame: &[u8]) -> Left {
        let mut left = Left::default();
        let Some(packet) = Packet::read(&frame[14..]) else {
            return left;
        };
        let is_damaged = packet.is_icmp() && ones_sum(&packet.payload) != 0xffff;
        if !is_damaged {
            self.to_owner(&packet, &mut left);
        }
        left
    }

    fn to_owner(&self, packet: &Packet, left: &mut Left) {
        let Ipv4Header {
            destination,
            protocol,
            ..
        } = packet.header;
        let port = port(protocol.0, &packet.payload, false);
        let Some(owner) = self.owner(destination, port) else {
            if !packet.is_icmp() {
                self.error(packet, [3, 1], 0, left);
            }
            return;
        };
        if packet.header.time_to_live <= 1 {
            return self.error(packet, [11, 0], 0, left);
        }
        if packet.bytes.len() + 40 > MTU6 && packet.header.dont_fragment {
            return self.error(packet, [3, 4], (MTU6 - 40) as u16, left);
        }
        left.wrap(owner, &one_hop(packet));
    }

    /// Sends an ICMP error to the source of a packet, unless RFC 1812 forbids it.
    fn error(&self, about: &Packet, [kind, code]: [u8; 2], mtu: u16, left: &mut Left) {
        let source = Ipv4Addr::from(about.header.source);
        let destination = Ipv4Addr::from(about.header.destination);
        let is_host = !(source.is_multicast()
            || source.is_loopback()
            || source.octets()[0] == 0
            || source.octets()[0] >= 240);
        let queries = [0, 8, 9, 10, 13, 14, 15, 16, 17, 18, 42, 43];
        let first = about.payload.first();
        let is_error = about.is_icmp() && !first.is_some_and(|kind| queries.contains(kind));
        if !is_host || is_error || destination.octets()[0] >= 224 {
            return;
        }
        let quoted = &about.bytes[..about.bytes.len().min(576 - 28)];
        let mut icmp = vec![kind, code, 0, 0, 0, 0];
        icmp.extend(mtu.to_be_bytes());
        icmp.extend(quoted);
        let sum = !(ones_sum(&icmp) as u16);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut header =
            Ipv4Header::new(icmp.len() as u16, 64, IpNumber::ICMP, OWN4, source.octets()).unwrap();
        header.dscp = IpDscp::try_new(48).unwrap();
        header.dont_fragment = true;
        header.header_checksum = header.calc_header_checksum();
        let mut bytes = Vec::new();
        header.write(&mut bytes).unwrap();
        bytes.extend(&icmp);
        // The quoted packet came from the address that the error is sent to, so its source port
        // counts.
        match self.owner(source.octets(), port(1, &icmp, false)) {
            Some(owner) => left.wrap(owner, &bytes),
            None => left.external.push(ether([8, 0], &bytes)),
        }
    }

    /// Handles a frame from the access network.
    pub(crate) fn internal(&self, frame: &[u8]) -> Left {
        let mut left = Left::default();
        let (mut outer, rest) = Ipv6Header::from_slice(&frame[14..]).unwrap();
        let Some(mut rest) = rest.get(..usize::from(outer.payload_length)) else {
            return left;
        };
        if outer.next_header == IpNumber::IPV6_DESTINATION_OPTIONS {
            outer.next_header = IpNumber(rest[0]);
            rest = &rest[8..];
        }
        if outer.next_header == IpNumber::IPV4 {
            self.out_of_tunnel(&outer, rest, &mut left);
        }
        left
    }

    fn out_of_tunnel(&self, outer: &Ipv6Header, rest: &[u8], left: &mut Left) {
        let Some(mut packet) = Packet::read(rest) else {
            return;
        };
        if packet.is_icmp() && ones_sum(&packet.payload) != 0xffff {
            return;
        }
        let source_port = port(packet.header.protocol.0, &packet.payload, true);
        let owner = self.owner(packet.header.source, source_port);
        let is_right = owner.is_some_and(|owner| {
            owner.b4.octets() == outer.source && owner.br.octets() == outer.destination
        });
        if !is_right {
            let from = owner.map_or(outer.destination, |owner| owner.br.octets());
            let mut about = Vec::new();
            let mut header = outer.clone();
            header.payload_length = packet.bytes.len() as u16;
            header.write(&mut about).unwrap();
            about.extend(&packet.bytes);
            return left.refuse(outer, from, &about);
        }
        // RFC 6040 §4.2; 2 is ECT(0), 1 is ECT(1).
        let ecn = match (packet.header.ecn.value(), outer.traffic_class & 3) {
            (0, 3) => return,
            (_, 3) => 3,
            (2, 1) => 1,
            (own, _) => own,
        };
        if ecn != packet.header.ecn.value() {
            packet.header.ecn = IpEcn::try_new(ecn).unwrap();
            packet = rewritten(packet);
        }
        if self.has_hairpinning && self.is_bound(packet.header.destination) {
            return self.to_owner(&packet, left);
        }
        if packet.header.time_to_live <= 1 {
            return self.error(&packet, [11, 0], 0, left);
        }
        if packet.bytes.len() > MTU4 && packet.header.dont_fragment {
            return self.error(&packet, [3, 4], MTU4 as u16, left);
        }
        left.send4(&one_hop(&packet));
    }
}

fn rewritten(mut packet: Packet) -> Packet {
    packet.header.header_checksum = packet.header.calc_header_checksum();
    packet.bytes.clear();
    packet.header.write(&mut packet.bytes).unwrap();
    packet.bytes.extend(&packet.payload);
    packet
}

fn one_hop(packet: &Packet) -> Vec<u8> {
    let mut header = packet.header.clone();
    header.time_to_live -= 1;
    rewritten(Packet {
        header,
        payload: packet.payload.clone(),
        bytes: Vec::new(),
    })
    .bytes
}

fn ether(ethertype: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&NEXT_MAC[..], &OWN_MAC, &ethertype, packet].concat()
}

impl Left {
    /// Sends an IPv4 packet, in fragments if it is too long.
    fn send4(&mut self, bytes: &[u8]) {
        let packet = Packet::read(bytes).unwrap();
        if bytes.len() <= MTU4 {
            return self.external.push(ether([8, 0], bytes));
        }
        let step = (MTU4 - packet.header.header_len()) / 8 * 8;
        let count = packet.payload.len().div_ceil(step);
        for (number, part) in packet.payload.chunks(step).enumerate() {
            let mut header = packet.header.clone();
            header.more_fragments = number + 1 < count;
            header.fragment_offset = IpFragOffset::try_new((number * step / 8) as u16).unwrap();
            header.total_len = (header.header_len() + part.len()) as u16;
            let part = rewritten(Packet {
                header,
                payload: part.to_vec(),
                bytes: Vec::new(),
            });
            self.external.push(ether([8, 0], &part.bytes));
        }
    }

    /// Encapsulates a packet and sends it through a softwire, in fragments if it is too long.
    fn wrap(&mut self, owner: &Softwire, inner: &[u8]) {
        let header = |length: usize, next: u8| Ipv6Header {
            traffic_class: inner[1],
            flow_label: Ipv6FlowLabel::ZERO,
            payload_length: length as u16,
            next_header: IpNumber(next),
            hop_limit: 64,
            source: owner.br.octets(),
            destination: owner.b4.octets(),
        };
        let mut send = |header: Ipv6Header, payload: &[u8]| {
            let mut bytes = Vec::new();
            header.write(&mut bytes).unwrap();
            bytes.extend(payload);
            self.internal.push(ether([0x86, 0xdd], &bytes));
        };
        if inner.len() + 40 <= MTU6 {
            return send(header(inner.len(), 4), inner);
        }
        let step = (MTU6 - 48) / 8 * 8;
        let count = inner.len().div_ceil(step);
        for (number, part) in inner.chunks(step).enumerate() {
            let word = (number * step) as u16 | u16::from(number + 1 < count);
            let [high, low] = word.to_be_bytes();
            let payload = [&[4, 0, high, low, 0, 0, 0, 0], part].concat();
            send(header(payload.len(), 44), &payload);
        }
    }

    /// Sends an ICMPv6 error to a B4 that used an inner source of another softwire.
    fn refuse(&mut self, outer: &Ipv6Header, from: [u8; 16], about: &[u8]) {
        let source = Ipv6Addr::from(outer.source);
        let is_host = !source.is_multicast() && !source.is_unspecified() && !source.is_loopback();
        if !is_host || Ipv6Addr::from(outer.destination).is_multicast() {
            return;
        }
        let mut icmp = vec![1, 5, 0, 0, 0, 0, 0, 0];
        icmp.extend(&about[..about.len().min(1280 - 48)]);
        let pseudo = [
            &from[..],
            &outer.source,
            &[0, 0],
            &(icmp.len() as u16).to_be_bytes(),
        ]
        .concat();
        let summed = [&pseudo[..], &[0, 0, 0, 58], &icmp].concat();
        let sum = !(ones_sum(&summed) as u16);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        let header = Ipv6Header {
            traffic_class: 0,
            flow_label: Ipv6FlowLabel::ZERO,
            payload_length: icmp.len() as u16,
            next_header: IpNumber(58),
            hop_limit: 64,
            source: from,
            destination: outer.source,
        };
        let mut bytes = Vec::new();
        header.write(&mut bytes).unwrap();
        bytes.extend(&icmp);
        self.internal.push(ether([0x86, 0xdd], &bytes));
    }
}
