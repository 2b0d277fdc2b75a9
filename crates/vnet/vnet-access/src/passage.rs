//! Filters the packets of an end user at an access point, by the rights in the user's token.
//!
//! The right `dif` admits packets to and from one UDP port ([`SHIM_PORT`]) of the access point's
//! node, where the shim of the network's DIF listens. The right `ip` admits all packets but
//! those to and from that UDP port, whatever their address. A user with `ip` alone cannot reach the
//! DIF at any access point of the network. A user with `dif` alone cannot send IP packets into the
//! network.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use carina_wire::inet::{Ipv4Header, PROTOCOL_UDP};

use carina_vnet::access::Right;

/// Which packets of an end user an access point lets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// IP packets pass unless their UDP port is [`SHIM_PORT`].
    pub ip: bool,
    /// Packets of UDP port [`SHIM_PORT`] at this address pass. `None`: at no address.
    pub shim_at: Option<Ipv4Addr>,
}

impl Passage {
    /// Computes which packets pass, from the rights in a user's token and the IPv4 address of the
    /// access point's node. Without the rights `ip` and `dif`, no packet passes.
    #[must_use]
    pub fn of(rights: &BTreeSet<Right>, node: Ipv4Addr) -> Passage {
        Passage {
            ip: rights.contains(&Right::Ip),
            shim_at: rights.contains(&Right::Dif).then_some(node),
        }
    }

    /// Whether a packet that the user sends passes.
    pub(crate) fn lets_in(self, header: &Ipv4Header, packet: &[u8]) -> bool {
        let at = Ipv4Addr::from(header.destination);
        self.lets(at, shim(header, packet, DESTINATION))
    }

    /// Whether a packet that is addressed to the user passes.
    pub(crate) fn lets_out(self, header: &Ipv4Header, packet: &[u8]) -> bool {
        let at = Ipv4Addr::from(header.source);
        self.lets(at, shim(header, packet, SOURCE))
    }

    fn lets(self, at: Ipv4Addr, packet: Shim) -> bool {
        match packet {
            Shim::Yes => self.shim_at == Some(at),
            Shim::No => self.ip,
            // The first fragment has the ports and decides: without it the receiver cannot
            // reassemble the others.
            Shim::Later => self.ip || self.shim_at == Some(at),
            Shim::Cut => false,
        }
    }
}

/// Whether a packet is from or to the UDP port of a shim ([`SHIM_PORT`]).
enum Shim {
    Yes,
    No,
    /// A later fragment, which has no ports.
    Later,
    /// A UDP packet that is too short to have ports.
    Cut,
}

/// Compares one UDP port of a packet with [`SHIM_PORT`]. `place` is the offset of the port in the
/// UDP header, in bytes.
fn shim(header: &Ipv4Header, packet: &[u8], place: usize) -> Shim {
    if header.protocol != PROTOCOL_UDP {
        return Shim::No;
    }
    let offset = packet.get(6..8).map_or(0, |bytes| {
        u16::from_be_bytes([bytes[0], bytes[1]]) & FRAGMENT_OFFSET
    });
    if offset > 0 {
        return Shim::Later;
    }
    let at = header.header_bytes + place;
    match packet.get(at..at + 2) {
        Some(port) if *port == SHIM_PORT.to_be_bytes() => Shim::Yes,
        Some(_) => Shim::No,
        None => Shim::Cut,
    }
}

/// The UDP port where shims listen: the default port of the UDP shim.
pub const SHIM_PORT: u16 = 3359;
/// Offsets of the ports in a UDP header, in bytes (RFC 768).
const SOURCE: usize = 0;
const DESTINATION: usize = 2;
/// Mask of the fragment offset in bytes 6 and 7 of an IPv4 header (RFC 791).
const FRAGMENT_OFFSET: u16 = 0x1fff;

#[cfg(test)]
mod tests {
    use carina_wire::inet::checksum;

    use super::*;

    const NODE: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 1);
    const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const USER: Ipv4Addr = Ipv4Addr::new(10, 128, 0, 3);

    fn packet(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, ports: [u16; 2], offset: u16) -> Vec<u8> {
        let mut packet = vec![0; 28];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&28u16.to_be_bytes());
        packet[6..8].copy_from_slice(&offset.to_be_bytes());
        packet[8] = 64;
        packet[9] = protocol;
        packet[12..16].copy_from_slice(&from.octets());
        packet[16..20].copy_from_slice(&to.octets());
        let sum = checksum(&packet[..20], 0);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet[20..22].copy_from_slice(&ports[0].to_be_bytes());
        packet[22..24].copy_from_slice(&ports[1].to_be_bytes());
        packet
    }

    fn passes(
        passage: Passage,
        protocol: u8,
        other: Ipv4Addr,
        port: u16,
        offset: u16,
    ) -> [bool; 2] {
        let up = packet(USER, other, protocol, [4000, port], offset);
        let down = packet(other, USER, protocol, [port, 4000], offset);
        let [up, down] = [up, down].map(|packet| (Ipv4Header::decode(&packet).unwrap(), packet));
        [
            passage.lets_in(&up.0, &up.1),
            passage.lets_out(&down.0, &down.1),
        ]
    }

    #[test]
    fn rights_say_what_passes() {
        const TCP: u8 = 6;
        let of = |rights: &[Right]| Passage::of(&rights.iter().copied().collect(), NODE);
        let (ip, dif) = (of(&[Right::Ip]), of(&[Right::Dif]));
        let both = of(&[Right::Ip, Right::Dif]);
        for (protocol, other, port, offset, wanted) in [
            // UDP to the shim of the node, to the shim of another node, to another port of both,
            // and TCP.
            (PROTOCOL_UDP, NODE, SHIM_PORT, 0, [false, true, true]),
            (PROTOCOL_UDP, OTHER, SHIM_PORT, 0, [false, false, false]),
            (PROTOCOL_UDP, NODE, 53, 0, [true, false, true]),
            (PROTOCOL_UDP, OTHER, 53, 0, [true, false, true]),
            (TCP, NODE, SHIM_PORT, 0, [true, false, true]),
            // Fragments: the first one, which has the ports, and later ones, which have none.
            (PROTOCOL_UDP, NODE, SHIM_PORT, 0x2000, [false, true, true]),
            (PROTOCOL_UDP, NODE, SHIM_PORT, 0x0001, [true, true, true]),
            (PROTOCOL_UDP, OTHER, SHIM_PORT, 0x0001, [true, false, true]),
        ] {
            let seen = [ip, dif, both].map(|range| passes(range, protocol, other, port, offset));
            assert_eq!(
                seen,
                wanted.map(|wanted| [wanted; 2]),
                "{protocol} {other} {port} {offset}"
            );
        }
    }

    #[test]
    fn packet_that_is_cut_before_its_ports_passes_for_no_one() {
        let mut cut = packet(USER, NODE, PROTOCOL_UDP, [1, SHIM_PORT], 0);
        cut.truncate(22);
        cut[2..4].copy_from_slice(&22u16.to_be_bytes());
        cut[10..12].fill(0);
        let sum = checksum(&cut[..20], 0);
        cut[10..12].copy_from_slice(&sum.to_be_bytes());
        let header = Ipv4Header::decode(&cut).unwrap();
        let all = Passage::of(&[Right::Ip, Right::Dif].into(), NODE);
        assert!(!all.lets_in(&header, &cut));
    }
}
