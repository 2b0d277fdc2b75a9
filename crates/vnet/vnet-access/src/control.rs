//! What a user's system and an access point say to one another inside of a tunnel: JSON in a
//! datagram of UDP between two addresses of the link (RFC 3927) that leave neither end.
//!
//! A tunnel carries packets of IP, so that words that are not for the network have to be packets,
//! too.

use std::net::Ipv4Addr;

use carina_vnet::host_part::InterfaceAddress;
use carina_wire::inet::{Ipv4Header, PROTOCOL_UDP, checksum};
use serde::{Deserialize, Serialize};

use crate::refusal::Refused;

/// The address of the access point for these words.
pub const POINT: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 1);
/// That of the user's system.
pub const USER: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 2);

/// What a user's system asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Request {
    /// To be let in, with a token.
    Join(String),
}

/// What the access point says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Reply {
    /// The user is in.
    Joined(Joined),
    /// The user is not, or not any more.
    Refused(Refused),
}

/// What a user needs to know of the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Joined {
    /// The user's address, with the prefix of the access point.
    pub address: InterfaceAddress,
    /// The address of the node there.
    pub node: Ipv4Addr,
    /// Bytes of the largest packet.
    pub mtu: u16,
    /// Where the network is.
    pub routes: Vec<InterfaceAddress>,
    /// When it ends, seconds since 1970.
    pub until: u64,
    /// What the user may send and receive, bits a second each.
    pub rate_bps: u64,
    /// The network's DIF, where the user's system may become a member of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dif: Option<JoinedDif>,
}

/// What a user's system needs in order to become a member of the network's DIF: a shim over UDP
/// (`docs/explanation/shims.md`) to the node, whose member it asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinedDif {
    /// The DIF.
    pub name: String,
    /// The node's member.
    pub via: String,
    /// The port of UDP where the node's shim listens.
    pub port: u16,
    /// The name that the user's member has there, which no other has.
    pub member: String,
}

/// A packet from one of the two addresses to the other.
#[must_use]
pub fn packet(from: Ipv4Addr, to: Ipv4Addr, message: &impl Serialize) -> Vec<u8> {
    let json = serde_json::to_vec(message).expect("messages have only plain fields");
    let length = HEADERS + json.len();
    let mut packet = vec![0; HEADERS];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    packet[8] = 1;
    packet[9] = PROTOCOL_UDP;
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    let sum = checksum(&packet[..IP_HEADER], 0);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    for at in [20, 22] {
        packet[at..at + 2].copy_from_slice(&PORT.to_be_bytes());
    }
    // Without a checksum (RFC 768): the tunnel authenticates it.
    packet[24..26].copy_from_slice(&((length - IP_HEADER) as u16).to_be_bytes());
    packet.extend(json);
    packet
}

/// The message in a packet from one of the two addresses to the other, if it is one.
#[must_use]
pub fn message<T: for<'a> Deserialize<'a>>(
    packet: &[u8],
    from: Ipv4Addr,
    to: Ipv4Addr,
) -> Option<T> {
    let header = Ipv4Header::decode(packet).ok()?;
    let is_it = header.source == from.octets()
        && header.destination == to.octets()
        && header.protocol == PROTOCOL_UDP
        && header.header_bytes == IP_HEADER
        && !header.is_fragment;
    let udp = packet
        .get(IP_HEADER..header.total_bytes)
        .filter(|_| is_it)?;
    let is_port = udp.get(2..4)? == PORT.to_be_bytes();
    let json = udp.get(HEADERS - IP_HEADER..).filter(|_| is_port)?;
    serde_json::from_slice(json).ok()
}

const IP_HEADER: usize = 20;
const HEADERS: usize = IP_HEADER + 8;
/// That of WireGuard, of which nothing else is inside of a tunnel.
const PORT: u16 = 51_820;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_packed() {
        let request = Request::Join("a.b.c".to_owned());
        let bytes = packet(USER, POINT, &request);
        assert_eq!(message(&bytes, USER, POINT), Some(request));
        assert_eq!(message::<Request>(&bytes, POINT, USER), None);
        for cut in 0..bytes.len() {
            assert_eq!(message::<Request>(&bytes[..cut], USER, POINT), None);
        }
    }

    #[test]
    fn other_packets_are_no_messages() {
        let mut bytes = packet(USER, POINT, &Request::Join(String::new()));
        bytes[23] ^= 1;
        assert_eq!(message::<Request>(&bytes, USER, POINT), None);
        let reply = Reply::Refused(Refused::new(crate::Refusal::Used, "x"));
        assert_eq!(
            message::<Request>(&packet(USER, POINT, &reply), USER, POINT),
            None
        );
    }
}
