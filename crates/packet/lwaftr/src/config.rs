//! The configuration of an AFTR, after the model `snabb-softwire-v3`.

use std::net::{Ipv4Addr, Ipv6Addr};

use carina_wire::ether::Mac;

/// The configuration of an AFTR, apart from its binding table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Name of the configured AFTR; `None` if the file gives none.
    pub name: Option<String>,
    /// The devices on which frames arrive and leave.
    pub instances: Vec<Instance>,
    /// Configuration of the side towards the IPv4 Internet.
    pub external: External,
    /// Configuration of the side towards the IPv6 access network.
    pub internal: Internal,
}

impl Config {
    /// The queues of all instances, one after the other.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.instances.iter().flat_map(|instance| &instance.queues)
    }
}

/// A device that carries both sides, or a pair of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Name of the internal device, or of the one device of both sides.
    pub device: String,
    /// Name of the external device. `None` means that one device carries both sides ("on a stick").
    pub external_device: Option<String>,
    /// The queues of the device, each with addresses of its own.
    pub queues: Vec<Queue>,
}

/// A queue of a device, with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Number of the queue, from the file; it only distinguishes the queues of a device.
    pub id: u8,
    /// The AFTR's own addresses towards the Internet.
    pub external: Address<Ipv4Addr>,
    /// The AFTR's own addresses towards the access network.
    pub internal: Address<Ipv6Addr>,
}

/// The AFTR's own addresses on one side, and the next hop of that side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address<T> {
    /// The AFTR's own IP address.
    pub ip: T,
    /// The AFTR's own MAC address.
    pub mac: Mac,
    /// VLAN of all frames; `None` for frames without a tag.
    pub vlan: Option<u16>,
    /// The router to which the AFTR sends all packets of this side.
    pub next_hop: NextHopAddress<T>,
}

/// A next hop, given by its IP address or by its MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHopAddress<T> {
    /// The IP address; the AFTR finds the MAC address by ARP or neighbour discovery.
    Ip(T),
    /// The MAC address of the next hop; the AFTR asks for no other.
    Mac(Mac),
}

/// Configuration of the side towards the IPv4 Internet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// Length of the longest IPv4 packet that is sent, in bytes; at least [`External::MTU_MIN`].
    pub mtu: u16,
    /// Filters, ICMP and reassembly for packets from and to the IPv4 Internet.
    pub side: Side,
}

/// Configuration of the side towards the IPv6 access network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Internal {
    /// Length of the longest IPv6 packet that is sent, in bytes; at least [`Internal::MTU_MIN`].
    pub mtu: u16,
    /// Flow label of outer headers, a number of 20 bits.
    pub flow_label: u32,
    /// Whether the AFTR forwards packets between softwires directly, in place of sending them to
    /// the Internet (hairpinning).
    pub has_hairpinning: bool,
    /// Filters, ICMP and reassembly for packets from and to the IPv6 access network.
    pub side: Side,
}

/// Filters, ICMP and reassembly for one side of an AFTR: the side of the IPv4 Internet, or the side
/// of the IPv6 access network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Filter in the syntax of pcap-filter(7): the AFTR drops arriving frames that do not match.
    /// `None` accepts all frames.
    pub ingress_filter: Option<String>,
    /// Filter in the syntax of pcap-filter(7): the AFTR drops frames that do not match instead of
    /// sending them. `None` sends all frames.
    pub egress_filter: Option<String>,
    /// Whether incoming ICMP packets are accepted.
    pub allows_icmp: bool,
    /// Whether the AFTR sends ICMP errors.
    pub sends_icmp_errors: bool,
    /// Rate limit of the ICMP errors that the AFTR sends.
    pub error_rate: ErrorRate,
    /// Limits for the reassembly of fragments that arrive on this side.
    pub reassembly: ReassemblyBounds,
}

/// The most ICMP errors that may be sent in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRate {
    /// Largest number of ICMP errors that the AFTR sends in one period.
    pub packets: u32,
    /// Length of the period in seconds, at least 1.
    pub period_s: u32,
}

/// Limits of reassembly: the number of packets at a time, and of fragments of each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyBounds {
    /// Largest number of fragments of one packet.
    pub fragments: u32,
    /// Largest number of packets that are reassembled at the same time.
    pub packets: u32,
}

impl External {
    /// The smallest valid MTU. (RFC 791 §3.2)
    pub const MTU_MIN: u16 = 68;
}

impl Internal {
    /// The smallest valid MTU. (RFC 8200 §5)
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

/// Choices where RFC 7596 leaves a behaviour open, and where Snabb's lwAFTR differs from the RFC or
/// from the RFCs that it refers to. The table in docs/reference/lwaftr.md shows both sides of each
/// choice.
///
/// [`Rules::RFC`] is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Which low ports belong to no port set when a port set has `a` offset bits. `false`: ports
    /// below 2^(16 - a), as in RFC 7597 §5.1. `true`: ports below 2^a, as Snabb's schema says.
    /// Both are the same for a = 0 and a = 8.
    pub reserves_two_to_the_bits: bool,
    /// Hop limit of outer headers and of the AFTR's own ICMP errors: 64, the default of hosts (RFC
    /// 1700, RFC 2473 §6.3), or 255.
    pub hop_limit: u8,
    /// Decrement the TTL of a packet that is decapsulated and sent to the Internet. (RFC 1812
    /// §5.3.1)
    pub decapsulation_is_a_hop: bool,
    /// Copy a congestion mark (ECN) from the outer header to the inner one. (RFC 6040)
    pub carries_congestion: bool,
    /// Apply `allow-incoming-icmp = false` also to ICMP between softwires, including errors that
    /// the AFTR itself sends.
    pub drops_hairpinned_icmp: bool,
    /// Which port an ICMP packet is looked up by. `true`: echo requests and replies by their
    /// identifier (RFC 7596 §8.1), errors from a B4 by the destination port of the packet that
    /// they quote (RFC 5508 REQ-3). `false`: echo requests from the Internet and the replies to
    /// them by port 0, and all errors by the quoted source port.
    pub has_ports_of_icmp: bool,
    /// Look up only protocols that have ports by their ports. If `false`, the first four bytes of
    /// any protocol but ICMP are taken for ports.
    pub knows_protocols_with_ports: bool,
    /// Drop ICMP from B4s to the Internet if its checksum is wrong. (RFC 5508 REQ-1)
    pub checks_icmp_of_b4s: bool,
    /// Drop an ICMPv6 error about a tunnel packet if its checksum is wrong (RFC 4443 §2.3) or if
    /// it quotes a packet that this AFTR did not send (RFC 2473 §8). Translate it only if an
    /// ICMPv4 error may be sent in answer to the quoted packet.
    pub checks_tunnel_errors: bool,
    /// Limit packets to a B4 to the path MTU that a router on the path has reported. (RFC 2473
    /// §6.7)
    pub learns_path_mtus: bool,
    /// Send an ICMP error about a decapsulated packet that is too long and must not be fragmented.
    /// (RFC 1812 §5.2.7.1)
    pub answers_too_long: bool,
    /// Ignore a router on the path to a B4 that reports an MTU below the minimum of IPv6. (RFC 8201
    /// §4)
    pub discards_small_mtus: bool,
    /// Send an ICMP error to the source of a packet whose first fragment arrived, but which stays
    /// incomplete. For IPv6 also about a fragment of a wrong length, or beyond the longest packet.
    /// (RFC 791,
    /// RFC 8200 §4.5)
    pub answers_fragments: bool,
    /// Send an error about an IPv6 packet with an unknown option that requests one, or with a
    /// routing header that asks to forward it to another node. (RFC 8200 §4.2, §4.4)
    pub answers_extensions: bool,
    /// Send no ICMP error about ICMP errors, about packets to multicast or broadcast addresses, or
    /// to source addresses that are not of a single host. (RFC 1812 §4.3.2.7, RFC 4443 §2.4e)
    pub restrains_errors: bool,
    /// Send ICMPv4 errors with precedence 6 (RFC 1812 §4.3.2.5) and with DF set, so that they need
    /// no identification (RFC 6864 §4.1). If `false`, their TOS is 0 and DF is clear.
    pub errors_have_precedence: bool,
    /// Quote a packet in an ICMP error as it arrived. If `false`, quote it with its TTL already
    /// decremented, which RFC 1812 §4.3.2.3 also allows.
    pub quotes_as_received: bool,
    /// Send an ICMPv4 error to an address of the binding table unchanged to the B4 that owns its
    /// port, or to the Internet if no B4 does. If `false`, treat the error like a packet between
    /// softwires: decrement its TTL, and drop it if no B4 owns its port.
    pub errors_go_straight: bool,
    /// Keep identification and flags in a reassembled IPv4 packet, and give fragments the
    /// identification of their packet. (RFC 791 §2.3, §3.2) If `false`, reassembled packets get
    /// identification 0, and the fragments of a packet get a new one.
    pub keeps_identification: bool,
    /// Count as Snabb does. A frame of any protocol that is not a fragment counts as "reassembly
    /// unneeded". ICMP without a softwire also counts as "no destination softwire". A dropped
    /// packet between softwires counts with the length of its IPv4 frame. A drop for a reason that
    /// the model lacks is missing from the sum of its interface.
    pub counts_as_snabb: bool,
}

impl Rules {
    /// The behaviour that the RFCs specify.
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

    /// The behaviour of Snabb 2024.08.
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
