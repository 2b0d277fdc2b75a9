//! What packets of a user may pass an access point, by the rights of their token.
//!
//! A user with the right `dif` speaks to one port of UDP at the access point's node, where the shim
//! of the network's DIF listens; one with the right `ip` speaks to all else. So the DIF is closed
//! to those who have IP alone, also at other access points of the network, and the network's IP to
//! those who are members alone.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use carina_wire::inet::{Ipv4Header, PROTOCOL_UDP};

use carina_vnet::access::Right;

/// What packets of a user may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// All packets of IP, but those of shims.
    pub ip: bool,
    /// Those of the shim of the node with this address.
    pub shim_at: Option<Ipv4Addr>,
}

impl Passage {
    /// What rights give at a node with this address.
    #[must_use]
    pub fn of(rights: &BTreeSet<Right>, node: Ipv4Addr) -> Passage {
        Passage {
            ip: rights.contains(&Right::Ip),
            shim_at: rights.contains(&Right::Dif).then_some(node),
        }
    }

    /// Whether a packet of the user passes.
    pub(crate) fn lets_in(self, header: &Ipv4Header, packet: &[u8]) -> bool {
        let at = Ipv4Addr::from(header.destination);
        self.lets(at, shim(header, packet, DESTINATION))
    }

    /// Whether a packet for the user passes.
    pub(crate) fn lets_out(self, header: &Ipv4Header, packet: &[u8]) -> bool {
        let at = Ipv4Addr::from(header.source);
        self.lets(at, shim(header, packet, SOURCE))
    }

    fn lets(self, at: Ipv4Addr, packet: Shim) -> bool {
        match packet {
            Shim::Yes => self.shim_at == Some(at),
            Shim::No => self.ip,
            // The fragment with the ports decides about the others, which are nothing without it.
            Shim::Later => self.ip || self.shim_at == Some(at),
            Shim::Cut => false,
        }
    }
}

/// Whether a packet is one of a shim.
enum Shim {
    Yes,
    No,
    /// A fragment that does not have the ports.
    Later,
    /// Too short for ports.
    Cut,
}

/// Looks at the port of UDP that stands so many bytes into its header.
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

/// The port of UDP where shims listen, which is the default of theirs.
pub const SHIM_PORT: u16 = 3359;
/// Where ports stand in a header of UDP (RFC 768).
const SOURCE: usize = 0;
const DESTINATION: usize = 2;
/// Of the two bytes with flags and offset (RFC 791).
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
        let [up, down] = [up, down].map(|it| (Ipv4Header::decode(&it).unwrap(), it));
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
            // To the shim of the node, to that of another, to other ports, and by TCP.
            (PROTOCOL_UDP, NODE, SHIM_PORT, 0, [false, true, true]),
            (PROTOCOL_UDP, OTHER, SHIM_PORT, 0, [false, false, false]),
            (PROTOCOL_UDP, NODE, 53, 0, [true, false, true]),
            (PROTOCOL_UDP, OTHER, 53, 0, [true, false, true]),
            (TCP, NODE, SHIM_PORT, 0, [true, false, true]),
            // Fragments: the first, with the ports; and another, which has none.
            (PROTOCOL_UDP, NODE, SHIM_PORT, 0x2000, [false, true, true]),
            (PROTOCOL_UDP, NODE, SHIM_PORT, 0x0001, [true, true, true]),
            (PROTOCOL_UDP, OTHER, SHIM_PORT, 0x0001, [true, false, true]),
        ] {
            let seen = [ip, dif, both].map(|it| passes(it, protocol, other, port, offset));
            assert_eq!(
                seen,
                wanted.map(|it| [it; 2]),
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
