//! What an AFTR is configured with, as the model `snabb-softwire-v3` has it.

use std::net::{Ipv4Addr, Ipv6Addr};

use carina_wire::ether::Mac;

/// A configuration without its binding table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Name of the instance.
    pub name: Option<String>,
    /// Where packets come in and leave.
    pub instances: Vec<Instance>,
    /// The side of the IPv4 Internet.
    pub external: External,
    /// The side of the IPv6 access network.
    pub internal: Internal,
}

impl Config {
    /// The queues of all instances.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.instances.iter().flat_map(|instance| &instance.queues)
    }
}

/// A device, or a pair of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The internal device, or the one of both sides.
    pub device: String,
    /// The external device; without it the AFTR is on a stick.
    pub external_device: Option<String>,
    /// Its queues, each with addresses of its own.
    pub queues: Vec<Queue>,
}

/// A queue of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its number.
    pub id: u8,
    /// Own addresses towards the Internet.
    pub external: Address<Ipv4Addr>,
    /// Own addresses towards the access network.
    pub internal: Address<Ipv6Addr>,
}

/// Own addresses of a side, and its next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address<T> {
    /// IP address.
    pub ip: T,
    /// MAC address.
    pub mac: Mac,
    /// VLAN of all frames; `None` for frames without a tag.
    pub vlan: Option<u16>,
    /// Who gets all packets.
    pub next_hop: NextHopAddress<T>,
}

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHopAddress<T> {
    /// Its IP address: its MAC address is asked for.
    Ip(T),
    /// Its MAC address.
    Mac(Mac),
}

/// The side of the IPv4 Internet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// Longest packet of IPv4 in bytes, at least [`External::MTU_MIN`].
    pub mtu: u16,
    /// What both sides have.
    pub side: Side,
}

/// The side of the IPv6 access network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Internal {
    /// Longest packet of IPv6 in bytes, at least [`Internal::MTU_MIN`].
    pub mtu: u16,
    /// Flow label of outer headers, 20 bits.
    pub flow_label: u32,
    /// Packets between softwires are forwarded here, not sent to the Internet.
    pub has_hairpinning: bool,
    /// What both sides have.
    pub side: Side,
}

/// What both sides have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Which frames come in, as pcap-filter(7) has it.
    pub ingress_filter: Option<String>,
    /// Which frames leave.
    pub egress_filter: Option<String>,
    /// Packets of ICMP that come in are not dropped.
    pub allows_icmp: bool,
    /// Senders get errors by ICMP.
    pub sends_icmp_errors: bool,
    /// How many.
    pub error_rate: ErrorRate,
    /// Bounds of reassembly.
    pub reassembly: ReassemblyBounds,
}

/// Errors of ICMP that are sent at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRate {
    /// Packets in a period.
    pub packets: u32,
    /// The period in seconds, at least 1.
    pub period_s: u32,
}

/// Bounds of reassembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyBounds {
    /// Fragments of one packet.
    pub fragments: u32,
    /// Packets that are being put together at a time.
    pub packets: u32,
}

impl External {
    /// The least MTU. (RFC 791 §3.2)
    pub const MTU_MIN: u16 = 68;
}

impl Internal {
    /// The least MTU. (RFC 8200 §5)
    pub const MTU_MIN: u16 = 1280;
}

impl Default for External {
    fn default() -> External {
        External {
            mtu: 1460,
            side: Side::default(),
        }
    }
}

impl Default for Internal {
    fn default() -> Internal {
        Internal {
            mtu: 1500,
            flow_label: 0,
            has_hairpinning: true,
            side: Side::default(),
        }
    }
}

impl Default for Side {
    fn default() -> Side {
        Side {
            ingress_filter: None,
            egress_filter: None,
            allows_icmp: true,
            sends_icmp_errors: true,
            error_rate: ErrorRate {
                packets: 200,
                period_s: 2,
            },
            reassembly: ReassemblyBounds {
                fragments: 20,
                packets: 20_000,
            },
        }
    }
}

/// What RFC 7596 leaves open, and where Snabb's lwAFTR differs from it and what it refers to. The
/// table in docs/reference/lwaftr.md has both sides of each.
///
/// [`Rules::RFC`] is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Which ports offset bits keep from port sets: those below 2^(16 - a), as RFC 7597 §5.1 has
    /// it, or, if true, those below 2^a, as Snabb's schema says. They are the same for 0 and 8.
    pub reserves_two_to_the_bits: bool,
    /// Hop limit of outer headers and of own errors: 64, the default of hosts (RFC 1700, RFC 2473
    /// §6.3), or 255.
    pub hop_limit: u8,
    /// A packet that is decapsulated and leaves by IPv4 makes a hop. (RFC 1812 §5.3.1)
    pub decapsulation_is_a_hop: bool,
    /// A mark of congestion of the outer header goes to the inner one. (RFC 6040)
    pub carries_congestion: bool,
    /// `allow-incoming-icmp = false` concerns packets between softwires as well, errors of the
    /// AFTR itself among them.
    pub drops_hairpinned_icmp: bool,
    /// Echo requests and replies go to their identifier's owner (RFC 7596 §8.1), and errors from a
    /// B4 are looked up by the destination port of what they quote (RFC 5508 REQ-3). If false,
    /// echo requests from the Internet and replies to it have port 0, and errors always count by
    /// the source port.
    pub has_ports_of_icmp: bool,
    /// Only protocols that have ports are looked up by them. If false, the first four bytes of any
    /// protocol but ICMP are taken for ports.
    pub knows_protocols_with_ports: bool,
    /// ICMP from B4s to the Internet must have a right checksum. (RFC 5508 REQ-1)
    pub checks_icmp_of_b4s: bool,
    /// ICMPv6 errors from within tunnels must have a right checksum (RFC 4443 §2.3) and quote a
    /// packet that came from here (RFC 2473 §8), and are translated only where errors may be sent.
    pub checks_tunnel_errors: bool,
    /// Packets to a B4 are as short as a router on the way to it has asked for. (RFC 2473 §6.7)
    pub learns_path_mtus: bool,
    /// A decapsulated packet that is too long and must not be cut is answered. (RFC 1812 §5.2.7.1)
    pub answers_too_long: bool,
    /// A router on the way to a B4 that asks for less than every path carries is not believed.
    /// (RFC 8201 §4)
    pub discards_small_mtus: bool,
    /// Fragments whose packet stays incomplete or is too long are answered. (RFC 791, RFC 8200
    /// §4.5)
    pub answers_fragments: bool,
    /// Packets of IPv6 with an option that is unknown and asks for it, or that are to be forwarded
    /// to another node, are answered. (RFC 8200 §4.2, §4.4)
    pub answers_extensions: bool,
    /// No error is sent about errors, about packets to groups, and to sources that are no single
    /// host. (RFC 1812 §4.3.2.7, RFC 4443 §2.4e)
    pub restrains_errors: bool,
    /// ICMPv4 errors have precedence 6 (RFC 1812 §4.3.2.5) and must not be cut, so that they need
    /// no identification (RFC 6864 §4.1). If false, their TOS is 0 and they may be cut.
    pub errors_have_precedence: bool,
    /// Errors quote a packet as it came. If false, with the hop counted that it makes here, as
    /// RFC 1812 §4.3.2.3 allows too.
    pub quotes_as_received: bool,
    /// An error to an address of the table goes to the owner of its port as it is, and to the
    /// Internet without an owner. If false, it is treated as a packet between softwires: it makes
    /// a hop, and is dropped without an owner.
    pub errors_go_straight: bool,
    /// Packets that are put together keep their identification and flags, and fragments have that
    /// of their packet. (RFC 791 §2.3, §3.2) If false, whole packets get 0, and packets that are
    /// cut a new one.
    pub keeps_identification: bool,
    /// Counters count as Snabb's do: every frame that is no fragment needs no reassembly, of any
    /// protocol; ICMP without an owner counts as without softwire as well; a packet between
    /// softwires that is dropped counts with the bytes that it has as a packet of IPv4; what is
    /// dropped for a reason that the model does not have is not in the sum of an interface.
    pub counts_as_snabb: bool,
}

impl Rules {
    /// As the RFCs have it.
    pub const RFC: Rules = Rules {
        reserves_two_to_the_bits: false,
        hop_limit: 64,
        decapsulation_is_a_hop: true,
        carries_congestion: true,
        drops_hairpinned_icmp: false,
        has_ports_of_icmp: true,
        knows_protocols_with_ports: true,
        checks_icmp_of_b4s: true,
        checks_tunnel_errors: true,
        learns_path_mtus: true,
        answers_too_long: true,
        discards_small_mtus: true,
        answers_fragments: true,
        answers_extensions: true,
        restrains_errors: true,
        errors_have_precedence: true,
        quotes_as_received: true,
        errors_go_straight: true,
        keeps_identification: true,
        counts_as_snabb: false,
    };

    /// As Snabb 2024.08 does it.
    pub const SNABB: Rules = Rules {
        reserves_two_to_the_bits: true,
        hop_limit: 255,
        decapsulation_is_a_hop: false,
        carries_congestion: false,
        drops_hairpinned_icmp: true,
        has_ports_of_icmp: false,
        knows_protocols_with_ports: false,
        checks_icmp_of_b4s: false,
        checks_tunnel_errors: false,
        learns_path_mtus: false,
        answers_too_long: false,
        discards_small_mtus: false,
        answers_fragments: false,
        answers_extensions: false,
        restrains_errors: false,
        errors_have_precedence: false,
        quotes_as_received: false,
        errors_go_straight: false,
        keeps_identification: false,
        counts_as_snabb: true,
    };
}

impl Default for Rules {
    fn default() -> Rules {
        Rules::RFC
    }
}
