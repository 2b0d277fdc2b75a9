//! Names of the language: protocols, constants, services, protocol numbers.

/// A protocol that may be written in front of `host`, `port` and others, alone, or in front of `[`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Link,
    Ip,
    Ip6,
    Arp,
    Rarp,
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Icmp6,
    Igmp,
    Pim,
    Vrrp,
    Ah,
    Esp,
}

const PREFIXES: [(&str, Protocol); 16] = [
    ("ether", Protocol::Link),
    ("link", Protocol::Link),
    ("ip", Protocol::Ip),
    ("ip6", Protocol::Ip6),
    ("arp", Protocol::Arp),
    ("rarp", Protocol::Rarp),
    ("tcp", Protocol::Tcp),
    ("udp", Protocol::Udp),
    ("sctp", Protocol::Sctp),
    ("icmp", Protocol::Icmp),
    ("icmp6", Protocol::Icmp6),
    ("igmp", Protocol::Igmp),
    ("pim", Protocol::Pim),
    ("vrrp", Protocol::Vrrp),
    ("ah", Protocol::Ah),
    ("esp", Protocol::Esp),
];

impl Protocol {
    pub(crate) fn named(word: &str) -> Option<Protocol> {
        PREFIXES
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, protocol)| *protocol)
    }

    pub(crate) fn name(self) -> &'static str {
        PREFIXES
            .iter()
            .find(|(_, protocol)| *protocol == self)
            .map_or("", |(name, _)| name)
    }

    /// The protocol's number in IPv4 and IPv6; `None` for link and network protocols.
    pub(crate) fn number(self) -> Option<u32> {
        Some(match self {
            Protocol::Icmp => 1,
            Protocol::Igmp => 2,
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Esp => 50,
            Protocol::Ah => 51,
            Protocol::Icmp6 => 58,
            Protocol::Pim => 103,
            Protocol::Vrrp => 112,
            Protocol::Sctp => 132,
            Protocol::Link | Protocol::Ip | Protocol::Ip6 | Protocol::Arp | Protocol::Rarp => {
                return None;
            }
        })
    }
}

/// Names of fields, flags and types that can be used as numbers in arithmetic.
const CONSTANTS: [(&str, u32); 41] = [
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-sourcequench", 4),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-routeradvert", 9),
    ("icmp-routersolicit", 10),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp-tstamp", 13),
    ("icmp-tstampreply", 14),
    ("icmp-ireq", 15),
    ("icmp-ireqreply", 16),
    ("icmp-maskreq", 17),
    ("icmp-maskreply", 18),
    ("icmp6type", 0),
    ("icmp6code", 1),
    ("icmp6-destinationunreach", 1),
    ("icmp6-packettoobig", 2),
    ("icmp6-timeexceeded", 3),
    ("icmp6-parameterproblem", 4),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-multicastlistenerquery", 130),
    ("icmp6-multicastlistenerreportv1", 131),
    ("icmp6-multicastlistenerdone", 132),
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
    ("tcpflags", 13),
    ("tcp-fin", 0x01),
    ("tcp-syn", 0x02),
    ("tcp-rst", 0x04),
    ("tcp-push", 0x08),
    ("tcp-ack", 0x10),
    ("tcp-urg", 0x20),
    ("tcp-ece", 0x40),
    ("tcp-cwr", 0x80),
];

pub(crate) fn constant(word: &str) -> Option<u32> {
    CONSTANTS
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, value)| *value)
}

/// A name that filters can use for a port number, such as `http`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// The service's name.
    pub name: &'static str,
    /// The port number that the name stands for.
    pub port: u16,
    /// Whether the name applies to TCP.
    pub is_tcp: bool,
    /// Whether the name applies to UDP.
    pub is_udp: bool,
}

const fn tcp(name: &'static str, port: u16) -> Service {
    Service {
        name,
        port,
        is_tcp: true,
        is_udp: false,
    }
}

const fn udp(name: &'static str, port: u16) -> Service {
    Service {
        name,
        port,
        is_tcp: false,
        is_udp: true,
    }
}

const fn both(name: &'static str, port: u16) -> Service {
    Service {
        name,
        port,
        is_tcp: true,
        is_udp: true,
    }
}

/// Names of ports, as in the usual `/etc/services`. If a name applies to one protocol only, `port
/// NAME` matches only that protocol.
pub const SERVICES: [Service; 44] = [
    tcp("bgp", 179),
    udp("bootpc", 68),
    udp("bootps", 67),
    udp("dhcpv6-client", 546),
    udp("dhcpv6-server", 547),
    both("domain", 53),
    both("domain-s", 853),
    tcp("ftp", 21),
    tcp("ftp-data", 20),
    tcp("http", 80),
    both("https", 443),
    tcp("imap", 143),
    tcp("imap2", 143),
    tcp("imaps", 993),
    udp("ipsec-nat-t", 4500),
    udp("isakmp", 500),
    tcp("iscsi-target", 3260),
    both("kerberos", 88),
    both("ldap", 389),
    both("ldaps", 636),
    udp("mdns", 5353),
    tcp("microsoft-ds", 445),
    tcp("mysql", 3306),
    udp("netbios-dgm", 138),
    udp("netbios-ns", 137),
    tcp("netbios-ssn", 139),
    both("nfs", 2049),
    udp("ntp", 123),
    both("openvpn", 1194),
    tcp("pop3", 110),
    tcp("pop3s", 995),
    tcp("postgresql", 5432),
    both("radius", 1812),
    tcp("rsync", 873),
    both("sip", 5060),
    both("sip-tls", 5061),
    tcp("smtp", 25),
    both("snmp", 161),
    tcp("ssh", 22),
    tcp("submission", 587),
    both("sunrpc", 111),
    udp("syslog", 514),
    tcp("telnet", 23),
    udp("tftp", 69),
];

/// Names that can follow `proto`, with their protocol numbers in IPv4 and IPv6.
pub const PROTOCOLS: [(&str, u8); 15] = [
    ("ah", 51),
    ("esp", 50),
    ("gre", 47),
    ("icmp", 1),
    ("icmp6", 58),
    ("igmp", 2),
    ("ipencap", 4),
    ("ipv6", 41),
    ("ipv6-icmp", 58),
    ("l2tp", 115),
    ("ospf", 89),
    ("pim", 103),
    ("sctp", 132),
    ("tcp", 6),
    ("udp", 17),
];

/// Names that can follow `ether proto`, with their Ethertypes.
pub(crate) const ETHERTYPES: [(&str, u32); 5] = [
    ("arp", 0x0806),
    ("ip", 0x0800),
    ("ip6", 0x86dd),
    ("ipv6", 0x86dd),
    ("rarp", 0x8035),
];

/// Words that are not implemented, with what to write instead.
const NOT_IMPLEMENTED: [(&str, &str); 26] = [
    ("gateway", "write the gateway's MAC address: ether host …"),
    (
        "protochain",
        "test ip6[6] (the next header) or ip6[40] (the first byte after the IPv6 header)",
    ),
    ("inbound", "a filter of an app has one direction"),
    ("outbound", "a filter of an app has one direction"),
    ("byte", "write ether[…]"),
    ("mpls", LINK_ONLY),
    ("pppoed", LINK_ONLY),
    ("pppoes", LINK_ONLY),
    ("geneve", "write udp port 6081"),
    ("llc", "write ether[12:2] <= 1500"),
    ("carp", "write ip proto 112"),
    ("igrp", "write ip proto 9"),
    ("iso", ETHER_PROTO),
    ("stp", ETHER_PROTO),
    ("ipx", ETHER_PROTO),
    ("netbeui", ETHER_PROTO),
    ("atalk", ETHER_PROTO),
    ("aarp", ETHER_PROTO),
    ("decnet", ETHER_PROTO),
    ("lat", ETHER_PROTO),
    ("mopdl", ETHER_PROTO),
    ("moprc", ETHER_PROTO),
    ("fddi", LINK_ONLY),
    ("tr", LINK_ONLY),
    ("wlan", LINK_ONLY),
    ("ppp", LINK_ONLY),
];

const LINK_ONLY: &str = "a filter sees Ethernet frames only, with or without VLAN tags";
const ETHER_PROTO: &str = "write ether proto NUMBER or ether[…]";

/// What to write instead of a word that is not implemented; `None` for other words.
pub(crate) fn instead_of(word: &str) -> Option<&'static str> {
    NOT_IMPLEMENTED
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, instead)| *instead)
}

/// Whether a word is a keyword, which is a name only with a backslash in front.
pub(crate) fn is_keyword(word: &str) -> bool {
    const KEYWORDS: [&str; 20] = [
        "and",
        "broadcast",
        "dst",
        "greater",
        "host",
        "len",
        "length",
        "less",
        "mask",
        "multicast",
        "net",
        "not",
        "or",
        "port",
        "portrange",
        "proto",
        "src",
        "vlan",
        "gateway",
        "protochain",
    ];
    KEYWORDS.contains(&word)
        || Protocol::named(word).is_some()
        || instead_of(word).is_some()
        || constant(word).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_the_order_of_their_names() {
        assert!(SERVICES.is_sorted_by_key(|service| service.name));
        assert!(PROTOCOLS.is_sorted_by_key(|(name, _)| name));
        assert!(ETHERTYPES.is_sorted_by_key(|(name, _)| name));
    }
}
