//! Control messages between a user's system and an access point inside the tunnel: JSON in UDP
//! datagrams between two link-local addresses (RFC 3927), which neither end forwards.
//!
//! A tunnel carries only IP packets, so that messages that are not for the network must be packets,
//! too.

use std::net::Ipv4Addr;

use carina_vnet::host_part::InterfaceAddress;
use carina_wire::inet::{Ipv4Header, PROTOCOL_UDP, checksum};
use serde::{Deserialize, Serialize};

use crate::refusal::Refused;

/// Address of the access point in control messages.
pub const POINT: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 1);
/// Address of the user's system in control messages.
pub const USER: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 2);

/// A request that a user's system sends to the access point, inside the tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Request {
    /// Join the network with this token.
    Join(String),
}

/// A message that the access point sends to a user's system, in answer to a request or on its own
/// initiative.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Reply {
    /// The user has joined.
    Joined(Joined),
    /// The access point refuses the user, or disconnects a user who had joined.
    Refused(Refused),
}

/// The settings that an access point sends to a user who has joined: the user's address, the routes
/// into the network, and the limits of the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Joined {
    /// IPv4 address that the user gets inside the network, with the prefix length of the interface
    /// at which the access point is.
    pub address: InterfaceAddress,
    /// IPv4 address, inside the network, of the node to which the access point belongs.
    pub node: Ipv4Addr,
    /// Length of the largest IP packet that the tunnel carries, in bytes.
    pub mtu: u16,
    /// Prefixes that the user's system routes into the tunnel: those of the network, or for a user
    /// without the right `ip` the address of the access point's node alone.
    pub routes: Vec<InterfaceAddress>,
    /// Time at which the user's token expires, in seconds since 1970.
    pub until: u64,
    /// Highest rate of the user's traffic, in bits a second. Each direction has this limit of its
    /// own.
    pub rate_bps: u64,
    /// How the user's system becomes a member of the network's DIF; `None` if it may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dif: Option<JoinedDif>,
}

/// The settings with which a user's system becomes a member of the network's DIF. The system
/// reaches the node of the network to which the access point belongs through a UDP shim
/// (`docs/explanation/shims.md`), and enrolls with the DIF's member on that node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinedDif {
    /// Name of the DIF that the user's system may join.
    pub name: String,
    /// Name of the member with which the user's member enrolls. It runs on the node to which the
    /// access point belongs.
    pub via: String,
    /// UDP port on which the UDP shim of that node listens.
    pub port: u16,
    /// Name that the user's member must have; it is unique in the DIF.
    pub member: String,
}

/// The IP packet for a control message between these addresses.
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
    // The UDP checksum is left out (RFC 768), because the tunnel authenticates the packet.
    packet[24..26].copy_from_slice(&((length - IP_HEADER) as u16).to_be_bytes());
    packet.extend(json);
    packet
}

/// The control message in a packet between these addresses; `None` if it is not one.
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
/// UDP port of control messages: WireGuard's usual port, which nothing else uses inside a tunnel.
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
