//! Messages of rtnetlink(7): requests, and the interfaces and routes in the kernel's answers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carina_netdev::netlink::{
    ACKNOWLEDGE, CREATE, REPLACE, address_attribute, append, attribute, attributes, family, word,
};
use carina_wire::ether::Mac;

use super::traffic::PortRequest;

/// An interface of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Name of the interface in its namespace, such as `eth0`.
    pub name: String,
    /// Number of the interface in its namespace.
    pub index: u32,
    /// MAC address of the interface; `None` if the interface has no address of 6 bytes.
    pub mac: Option<Mac>,
    /// MTU in bytes.
    pub mtu: u32,
    /// Whether the interface is administratively up.
    pub is_up: bool,
}

/// A route that a program has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StaticRoute {
    /// Destination.
    pub to: IpAddr,
    /// Prefix length of the destination.
    pub bits: u8,
    /// Next hop.
    pub via: IpAddr,
}

/// A request to change something.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request<'a> {
    /// Sets the MAC address and the MTU of an interface, if given, and sets it up.
    Up {
        interface: &'a Interface,
        mac: Option<Mac>,
        mtu: Option<u16>,
    },
    /// Renames the interface with this index.
    Rename { index: u32, name: &'a str },
    /// Adds an address to an interface, unless the interface has it. An IPv6 address is usable at
    /// once, without duplicate address detection.
    Address {
        interface: &'a Interface,
        address: IpAddr,
        bits: u8,
    },
    /// Sets the MAC address of a neighbour. Unlike a neighbour that the kernel has learned, this
    /// one does not count for the limits of the kernel's table, and the kernel never removes it to
    /// make room.
    Neighbour {
        interface: &'a Interface,
        address: IpAddr,
        mac: Mac,
    },
    /// Sets a static route, and replaces one to the same destination.
    Route(StaticRoute),
    /// Removes a static route.
    RemoveRoute(StaticRoute),
    /// Changes what happens to the frames at a port. `indices` are those of the port and of the
    /// port to which frames are redirected, if any.
    Port {
        request: &'a PortRequest,
        indices: [u32; 2],
    },
}

impl Request<'_> {
    /// Appends the message of the request. If `is_answered`, the kernel answers even if the request
    /// succeeds.
    pub(super) fn encode(&self, sequence: u32, is_answered: bool, bytes: &mut Vec<u8>) {
        let (kind, flags, body) = match *self {
            Request::Up {
                interface,
                mac,
                mtu,
            } => {
                let mut body = interface_body(interface.index, IFF_UP);
                if let Some(mac) = mac {
                    attribute(&mut body, IFLA_ADDRESS, &mac.0);
                }
                if let Some(mtu) = mtu {
                    attribute(&mut body, IFLA_MTU, &u32::from(mtu).to_ne_bytes());
                }
                (NEW_LINK, 0, body)
            }
            Request::Rename { index, name } => {
                let mut body = interface_body(index, 0);
                let name: Vec<u8> = name.bytes().chain([0]).collect();
                attribute(&mut body, IFLA_IFNAME, &name);
                (NEW_LINK, 0, body)
            }
            Request::Address {
                interface,
                address,
                bits,
            } => {
                let flags = if address.is_ipv6() { IFA_F_NODAD } else { 0 };
                let mut body = vec![family(address), bits, flags, 0];
                body.extend(interface.index.to_ne_bytes());
                address_attribute(&mut body, IFA_LOCAL, address);
                address_attribute(&mut body, IFA_ADDRESS, address);
                (RTM_NEWADDR, CREATE | REPLACE, body)
            }
            Request::Neighbour {
                interface,
                address,
                mac,
            } => {
                // Family, padding, index, state, flags, type.
                let mut body = vec![family(address), 0, 0, 0];
                body.extend(interface.index.to_ne_bytes());
                body.extend(NUD_STALE.to_ne_bytes());
                body.extend([NTF_EXT_LEARNED, 0]);
                address_attribute(&mut body, NDA_DST, address);
                attribute(&mut body, NDA_LLADDR, &mac.0);
                (RTM_NEWNEIGH, CREATE | REPLACE, body)
            }
            Request::Route(route) => {
                let body = route.body(RT_SCOPE_UNIVERSE, RTN_UNICAST);
                (NEW_ROUTE, CREATE | REPLACE, body)
            }
            // Any scope and type.
            Request::RemoveRoute(route) => (RTM_DELROUTE, 0, route.body(RT_SCOPE_NOWHERE, 0)),
            Request::Port { request, indices } => request.message(indices),
        };
        let answered = if is_answered { ACKNOWLEDGE } else { 0 };
        append(bytes, kind, flags | answered, sequence, &body);
    }
}

impl fmt::Display for Request<'_> {
    /// Writes what the request attempts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Up { interface, mtu, .. } => {
                write!(f, "setting interface {} up", interface.name)?;
                mtu.map_or(Ok(()), |mtu| write!(f, " with an MTU of {mtu}"))
            }
            Request::Rename { index, name } => {
                write!(f, "renaming interface {index} to {name}")
            }
            Request::Address {
                interface,
                address,
                bits,
            } => write!(f, "adding address {address}/{bits} to {}", interface.name),
            Request::Neighbour {
                interface,
                address,
                mac,
            } => write!(
                f,
                "setting the neighbour {address} at {mac} of {}",
                interface.name
            ),
            Request::Route(route) => write!(f, "setting the route to {route}"),
            Request::RemoveRoute(route) => write!(f, "removing the route to {route}"),
            Request::Port { request, .. } => write!(f, "`tc {request}`"),
        }
    }
}

impl StaticRoute {
    /// The route in the body of a message; `None` if it is not static, not in the main table, or
    /// has no single next hop.
    pub(super) fn decode(body: &[u8]) -> Option<StaticRoute> {
        let [_, bits, _, _, table, protocol, _, kind, ..] = *body else {
            return None;
        };
        if (table, protocol, kind) != (RT_TABLE_MAIN, RTPROT_STATIC, RTN_UNICAST) {
            return None;
        }
        let (mut to, mut via) = (None, None);
        for (kind, value) in attributes(body.get(ROUTE_BYTES..)?) {
            match kind {
                RTA_DST => to = address_in(value),
                RTA_GATEWAY => via = address_in(value),
                _ => {}
            }
        }
        let via = via?;
        // The default route has no destination.
        let to = to.unwrap_or(match via {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        });
        Some(StaticRoute { to, bits, via })
    }

    fn body(self, scope: u8, kind: u8) -> Vec<u8> {
        // Prefix lengths of destination and source, type of service, table, protocol (origin),
        // scope, type, flags.
        let mut body = vec![family(self.to), self.bits, 0, 0, RT_TABLE_MAIN];
        body.extend([RTPROT_STATIC, scope, kind, 0, 0, 0, 0]);
        address_attribute(&mut body, RTA_DST, self.to);
        address_attribute(&mut body, RTA_GATEWAY, self.via);
        body
    }
}

impl fmt::Display for StaticRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} via {}", self.to, self.bits, self.via)
    }
}

impl Interface {
    /// The interface in the body of a message; `None` if it has no name.
    pub(super) fn decode(body: &[u8]) -> Option<Interface> {
        let flags = word(body, 8)?;
        let mut found = Interface {
            name: String::new(),
            index: word(body, 4)?,
            mac: None,
            mtu: 0,
            is_up: flags & IFF_UP != 0,
        };
        for (kind, value) in attributes(body.get(INTERFACE_BYTES..)?) {
            match kind {
                IFLA_IFNAME => {
                    let name = value.split(|byte| *byte == 0).next()?;
                    found.name = String::from_utf8_lossy(name).into_owned();
                }
                IFLA_ADDRESS => found.mac = value.try_into().ok().map(Mac),
                IFLA_MTU => found.mtu = word(value, 0)?,
                _ => {}
            }
        }
        (!found.name.is_empty()).then_some(found)
    }
}

/// The request for all interfaces of the namespace, without their statistics.
pub(super) fn all_interfaces(sequence: u32) -> Vec<u8> {
    let mut body = interface_body(0, 0);
    attribute(&mut body, IFLA_EXT_MASK, &SKIP_STATS.to_ne_bytes());
    let mut bytes = Vec::new();
    append(&mut bytes, RTM_GETLINK, DUMP, sequence, &body);
    bytes
}

/// The request for all routes of an address family.
pub(super) fn all_routes(sequence: u32, family: u8) -> Vec<u8> {
    let mut body = vec![family];
    body.resize(ROUTE_BYTES, 0);
    let mut bytes = Vec::new();
    append(&mut bytes, RTM_GETROUTE, DUMP, sequence, &body);
    bytes
}

/// Family, type, index, flags, and the mask of the flags to change.
fn interface_body(index: u32, flags: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body
}

fn address_in(value: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from(octets).into());
    }
    let octets = <[u8; 16]>::try_from(value).ok()?;
    Some(Ipv6Addr::from(octets).into())
}

/// Bytes in front of the attributes in a message about an interface, without the header.
const INTERFACE_BYTES: usize = 16;
/// Bytes in front of the attributes in a message about a route, without the header.
const ROUTE_BYTES: usize = 12;
/// Kinds of messages: RTM_NEWLINK and RTM_NEWROUTE.
pub(super) const NEW_LINK: u16 = 16;
pub(super) const NEW_ROUTE: u16 = 24;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETROUTE: u16 = 26;
const DUMP: u16 = 0x300;
const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_EXT_MASK: u16 = 29;
/// RTEXT_FILTER_SKIP_STATS.
const SKIP_STATS: u32 = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
/// A neighbour whose MAC address the kernel checks soon after its first use.
const NUD_STALE: u16 = 4;
const NTF_EXT_LEARNED: u8 = 0x10;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_NOWHERE: u8 = 255;
const RTN_UNICAST: u8 = 1;

#[cfg(test)]
mod tests {
    use carina_netdev::netlink::{Kind, Message, messages};

    use super::*;

    fn route() -> StaticRoute {
        StaticRoute {
            to: "10.1.0.0".parse().unwrap(),
            bits: 16,
            via: "10.0.0.2".parse().unwrap(),
        }
    }

    #[test]
    fn several_requests_are_one_buffer_of_whole_messages() {
        let mut bytes = Vec::new();
        Request::Route(route()).encode(7, false, &mut bytes);
        Request::RemoveRoute(route()).encode(8, true, &mut bytes);
        let all: Vec<Message<'_>> = messages(&bytes).collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].kind, all[0].sequence), (Kind::Other(NEW_ROUTE), 7));
        assert_eq!(all[0].body.len(), 12 + 8 + 8);
        assert_eq!(StaticRoute::decode(all[0].body), Some(route()));
        assert_eq!(all[1].kind, Kind::Other(RTM_DELROUTE));
        // Only the last one asks for an answer.
        assert_eq!([bytes[6], bytes[6 + 44]], [1, 1 | 4]);
    }

    #[test]
    fn cut_and_wild_messages_are_left_out() {
        let mut bytes = Vec::new();
        Request::Route(route()).encode(7, false, &mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(messages(&bytes[..length]).count(), 0, "{length}");
            assert!(StaticRoute::decode(&bytes[..length]).is_none());
            let _ = Interface::decode(&bytes[..length]);
        }
        let mut random = 1_u32;
        for _ in 0..10_000 {
            let wild: Vec<u8> = (0..64)
                .map(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (random >> 27) as u8
                })
                .collect();
            for message in messages(&wild) {
                let _ = StaticRoute::decode(message.body);
                let _ = Interface::decode(message.body);
            }
        }
    }
}
