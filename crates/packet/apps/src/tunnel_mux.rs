//! **tunnel_mux**: shares an Ethernet interface among IPv4 tunnels. Each tunnel gets only packets
//! from its own far end.
//!
//! Tunnels may have the same addresses if protocol or tag distinguish them. The tag is the key of
//! GRE (RFC 2890) or the VNI of VXLAN (RFC 7348); IPv4 in IPv4 (RFC 2003) has none. The app answers
//! ARP (RFC 826) for the tunnels' own addresses, and asks for those of the next hops.
//!
//! - inputs, outputs: `wire`, the interface; and an input and an output per tunnel, to be linked
//!   with the tunnel's `south`
//! - configuration:
//!   - `mac`: MAC address of the interface
//!   - `tunnels`: a list of `{ name, carrier, local, remote, tag }`; `carrier` is `gre`, `vxlan` or
//!     `ipip`, which has no `tag`
//!   - `gateway`: `{ prefix, address }`: far ends outside `prefix` are reached through the next hop
//!     `address` (default: all are on the segment)
//! - counters: `other`: frames that are for no tunnel, such as those for the kernel on the same
//!   interface; `drop_stranger`: packets for a tunnel from an address other than its far end;
//!   `drop_fragment`: fragments of packets for a tunnel; `drop_unresolved`: packets to a next hop
//!   that has not answered; `drop_port_name`: packets of a port that is not in the list;
//!   `drop_short`; `requests_sent`, `replies_sent`, `resolved`: ARP
//! - cost: a binary search in the list of tunnels; a write of 12 bytes

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use carina_frame::{Frame, Pool};
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, PortList, PortNames, Ports};
use carina_time::Duration;
use carina_wire::ether::ETHERTYPE_ARP;
use carina_wire::inet::{Arp4, ETHERTYPE_IPV4, PROTOCOL_GRE, PROTOCOL_IPV4, PROTOCOL_UDP};
use serde::{Deserialize, Serialize};

use crate::arp::ether_of;
use crate::mac_text::MacText;
use crate::next_hop::{Heard, NextHop, check_macs};
use crate::prefix::Prefix4;
use crate::station::Station4;

/// The configuration of the app `tunnel_mux`, which shares an Ethernet interface among IPv4
/// tunnels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunnelMuxConfig {
    /// MAC address of the interface that sends and receives the tunnels' packets.
    pub mac: MacText,
    /// The tunnels that share the interface.
    pub tunnels: Vec<MuxTunnel>,
    /// The next hop to far ends that are not on the segment; `None` means that all are.
    #[serde(default)]
    pub gateway: Option<Gateway>,
}

/// A tunnel that shares the interface of the app `tunnel_mux`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MuxTunnel {
    /// Name of the tunnel's input and output.
    pub name: String,
    /// The tunnel protocol.
    pub carrier: MuxCarrier,
    /// IPv4 address of this end of the tunnel.
    pub local: Ipv4Addr,
    /// IPv4 address of the other end of the tunnel.
    pub remote: Ipv4Addr,
    /// Key of GRE, or VNI of VXLAN; 0 for IPv4 in IPv4.
    #[serde(default)]
    pub tag: u32,
}

/// A tunnel protocol whose packets the app `tunnel_mux` recognises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MuxCarrier {
    /// GRE with a key.
    Gre,
    /// VXLAN on port 4789.
    Vxlan,
    /// IPv4 in IPv4.
    Ipip,
}

/// The next hop to far ends outside a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// The prefix of the addresses on the segment.
    pub prefix: Prefix4,
    /// IPv4 address of the next hop to all other addresses.
    pub address: Ipv4Addr,
}

impl Gateway {
    /// The next hop to an address: the address itself if it is on the segment.
    #[must_use]
    pub fn next_hop(self, remote: Ipv4Addr) -> Ipv4Addr {
        if Prefix4::new(remote, self.prefix.bits()) == self.prefix {
            remote
        } else {
            self.address
        }
    }
}

/// The name of the port to the interface.
pub const WIRE: &str = "wire";

/// Why a configuration of the app `tunnel_mux` is invalid.
#[derive(Debug, thiserror::Error)]
enum TunnelMuxError {
    #[error("tunnel {0}: two tunnels have this name")]
    TwoNames(String),
    #[error("tunnel {WIRE}: this name is reserved for the underlay interface")]
    Wire,
    #[error("tunnel {name}: tunnel {other} has the same local and remote address, carrier and tag")]
    TwoAlike { name: String, other: String },
    #[error("tunnel {name}: remote = {remote}: must differ from local")]
    Same { name: String, remote: Ipv4Addr },
    #[error("tunnel {name}: tag = {tag}: an ipip tunnel has no tag; leave tag out")]
    Tag { name: String, tag: u32 },
}

/// Identifies a tunnel: address of this end, protocol and tag, then address of the other end.
type Key = ((u32, MuxCarrier, u32), u32);

impl MuxTunnel {
    fn key(&self) -> Key {
        let at_this_end = (self.local.to_bits(), self.carrier, self.tag);
        (at_this_end, self.remote.to_bits())
    }
}

impl TunnelMuxConfig {
    fn check_tunnels(&self) -> Result<(), AppError> {
        check_macs(self.mac, None)?;
        let mut names: BTreeMap<&str, ()> = BTreeMap::new();
        let mut keys: BTreeMap<Key, &str> = BTreeMap::new();
        for tunnel in &self.tunnels {
            let name = tunnel.name.clone();
            if name == WIRE {
                return Err(TunnelMuxError::Wire.into());
            }
            if names.insert(&tunnel.name, ()).is_some() {
                return Err(TunnelMuxError::TwoNames(name).into());
            }
            if tunnel.local == tunnel.remote {
                let remote = tunnel.remote;
                return Err(TunnelMuxError::Same { name, remote }.into());
            }
            if tunnel.carrier == MuxCarrier::Ipip && tunnel.tag != 0 {
                let tag = tunnel.tag;
                return Err(TunnelMuxError::Tag { name, tag }.into());
            }
            if let Some(other) = keys.insert(tunnel.key(), &tunnel.name) {
                let other = other.to_owned();
                return Err(TunnelMuxError::TwoAlike { name, other }.into());
            }
        }
        Ok(())
    }

    fn next_hop(&self, tunnel: &MuxTunnel) -> Ipv4Addr {
        let next = self.gateway.map(|gateway| gateway.next_hop(tunnel.remote));
        next.unwrap_or(tunnel.remote)
    }
}

/// The running app `tunnel_mux`: shares an Ethernet interface among IPv4 tunnels.
pub struct TunnelMux {
    config: TunnelMuxConfig,
    names: [Vec<String>; 2],
    pool: Pool,
    /// Where the packets of each input come from.
    inputs: Vec<Side>,
    wire: Option<usize>,
    /// The output of each tunnel, ordered by [`Key`].
    tunnels: Vec<(Key, Option<usize>)>,
    /// The next hops, each with its state and the own address from which it is asked.
    next_hops: BTreeMap<[u8; 4], (NextHop, [u8; 4])>,
    counters: Counters,
}

/// Where packets come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Wire,
    /// A tunnel, by the IPv4 address of its next hop.
    Tunnel([u8; 4]),
    Unknown,
}

struct Counters {
    other: Counter,
    stranger: Counter,
    fragment: Counter,
    unresolved: Counter,
    port_name: Counter,
    short: Counter,
    requests_sent: Counter,
    replies_sent: Counter,
    resolved: Counter,
}

impl AppConfig for TunnelMuxConfig {
    const KIND: &'static str = "tunnel_mux";
    const INPUTS: PortList = PortList::Any;
    const OUTPUTS: PortList = PortList::Any;
    const TICK: Option<Duration> = Some(Duration::from_millis(100));

    type App = TunnelMux;

    fn check(&self) -> Result<(), AppError> {
        self.check_tunnels()
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<TunnelMux, AppError> {
        Ok(TunnelMux {
            config: self.clone(),
            names: Default::default(),
            pool: context.pool().clone(),
            inputs: Vec::new(),
            wire: None,
            tunnels: Vec::new(),
            next_hops: BTreeMap::new(),
            counters: Counters {
                other: context.counter("other"),
                stranger: context.counter("drop_stranger"),
                fragment: context.counter("drop_fragment"),
                unresolved: context.counter("drop_unresolved"),
                port_name: context.counter("drop_port_name"),
                short: context.counter("drop_short"),
                requests_sent: context.counter("requests_sent"),
                replies_sent: context.counter("replies_sent"),
                resolved: context.counter("resolved"),
            },
        })
    }

    fn can_apply(&self, _old: &TunnelMuxConfig) -> bool {
        true
    }

    fn apply(&self, app: &mut TunnelMux) {
        app.config = self.clone();
        app.rebuild();
    }
}

impl FrameApp for TunnelMux {
    fn rewired(&mut self, ports: &PortNames<'_>) {
        self.names = [ports.inputs.to_vec(), ports.outputs.to_vec()];
        self.rebuild();
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        for input in 0..ports.inputs() {
            match self.inputs[input] {
                Side::Wire => ports.each(input, |frame, ports| self.take_of_wire(frame, ports)),
                Side::Tunnel(next) => self.send(input, next, ports),
                Side::Unknown => {
                    self.counters.port_name.add(ports.waiting(input) as u64);
                    ports.drain(input, drop);
                }
            }
        }
    }

    fn tick(&mut self, ports: &mut Ports<'_>) {
        let all: Vec<[u8; 4]> = self.next_hops.keys().copied().collect();
        for next in all {
            self.ask_if_due(next, ports);
        }
    }
}

impl TunnelMux {
    /// Computes the tables from configuration and links, when either has changed. Keeps what is
    /// known of next hops.
    fn rebuild(&mut self) {
        let [inputs, outputs] = &self.names;
        let output_of = |name: &str| outputs.iter().position(|output| output == name);
        self.wire = output_of(WIRE);
        let mut known = std::mem::take(&mut self.next_hops);
        self.tunnels.clear();
        for tunnel in &self.config.tunnels {
            let next = self.config.next_hop(tunnel).octets();
            let hop = known.remove(&next).map(|(hop, _)| hop);
            let fresh = || {
                (
                    hop.unwrap_or_else(|| NextHop::new(None)),
                    tunnel.local.octets(),
                )
            };
            self.next_hops.entry(next).or_insert_with(fresh);
            self.tunnels.push((tunnel.key(), output_of(&tunnel.name)));
        }
        self.tunnels.sort_unstable_by_key(|(key, _)| *key);
        let side_of = |name: &String| {
            let mut tunnels = self.config.tunnels.iter();
            match tunnels.find(|tunnel| tunnel.name == *name) {
                Some(tunnel) => Side::Tunnel(self.config.next_hop(tunnel).octets()),
                None if name == WIRE => Side::Wire,
                None => Side::Unknown,
            }
        };
        self.inputs = inputs.iter().map(side_of).collect();
    }

    /// Sends an ARP request for a next hop's MAC address if one is due.
    fn ask_if_due(&mut self, next: [u8; 4], ports: &mut Ports<'_>) {
        let now = ports.now();
        let Some((hop, from)) = self.next_hops.get_mut(&next) else {
            return;
        };
        if !hop.is_due(now) {
            return;
        }
        let station = Station4 {
            mac: self.config.mac.0.0,
            ip: *from,
            next: Some(next),
        };
        if station
            .request()
            .is_some_and(|request| self.put(&request, ports))
        {
            self.counters.requests_sent.add(1);
        }
    }

    fn take_of_wire(&mut self, frame: Frame, ports: &mut Ports<'_>) {
        let Some(head) = frame.bytes().first_chunk::<14>() else {
            return self.counters.short.add(1);
        };
        match u16::from_be_bytes([head[12], head[13]]) {
            ETHERTYPE_ARP => match Arp4::decode(&frame.bytes()[14..]) {
                Some(arp) => self.on_arp(arp, ports),
                None => self.counters.other.add(1),
            },
            ETHERTYPE_IPV4 if head[..6] == self.config.mac.0.0 => self.on_ip(frame, ports),
            _ => self.counters.other.add(1),
        }
    }

    fn on_ip(&self, frame: Frame, ports: &mut Ports<'_>) {
        let Some(packet) = packet_of(&frame.bytes()[14..]) else {
            return self.counters.other.add(1);
        };
        let place = packet.at_this_end;
        let first = self.tunnels.partition_point(|(key, _)| *key < (place, 0));
        let here = self.tunnels[first..].iter();
        let mut here = here.take_while(|((at, _), _)| *at == place).peekable();
        let is_known = here.peek().is_some();
        match here.find(|((_, remote), _)| *remote == packet.source) {
            // Tunnels do not reassemble fragments.
            Some(_) if packet.is_part => self.counters.fragment.add(1),
            Some((_, Some(output))) => ports.transmit(*output, frame),
            Some((_, None)) => self.counters.port_name.add(1),
            None if is_known => self.counters.stranger.add(1),
            None => self.counters.other.add(1),
        }
    }

    fn on_arp(&mut self, arp: Arp4, ports: &mut Ports<'_>) {
        let mut tunnels = self.config.tunnels.iter();
        let is_own = tunnels.any(|tunnel| tunnel.local.octets() == arp.target.1);
        let heard = Heard {
            is_answer: is_own,
            ..Heard::answer(arp.sender.0)
        };
        if let Some((hop, _)) = self.next_hops.get_mut(&arp.sender.1)
            && hop.hear(heard, ports.now())
        {
            self.counters.resolved.add(1);
        }
        let station = Station4 {
            mac: self.config.mac.0.0,
            ip: arp.target.1,
            next: None,
        };
        let reply = station.reply(&arp).filter(|_| is_own);
        if reply.is_some_and(|reply| self.put(&reply, ports)) {
            self.counters.replies_sent.add(1);
        }
    }

    /// Sends an ARP message to the wire; returns `false` if there is no wire or no frame.
    fn put(&self, arp: &Arp4, ports: &mut Ports<'_>) -> bool {
        let (Some(wire), Some(frame)) = (self.wire, self.pool.frame_of(&ether_of(arp))) else {
            return false;
        };
        ports.transmit(wire, frame);
        true
    }

    /// Sends the packets of a tunnel to its next hop.
    fn send(&mut self, input: usize, next: [u8; 4], ports: &mut Ports<'_>) {
        let mac = self.next_hops.get(&next).and_then(|(hop, _)| hop.mac());
        let (Some(mac), Some(wire)) = (mac, self.wire) else {
            // The first packet does not wait for the next tick.
            if ports.waiting(input) > 0 {
                self.ask_if_due(next, ports);
            }
            self.counters.unresolved.add(ports.waiting(input) as u64);
            return ports.drain(input, drop);
        };
        let (own, mut short) = (self.config.mac.0.0, 0);
        ports.forward(input, wire, |frame| {
            let Some(addresses) = frame.bytes_mut().first_chunk_mut::<12>() else {
                short += 1;
                return false;
            };
            addresses[..6].copy_from_slice(&mac);
            addresses[6..].copy_from_slice(&own);
            true
        });
        self.counters.short.add(short);
    }
}

/// The fields of a packet that identify its tunnel.
struct Packet {
    at_this_end: (u32, MuxCarrier, u32),
    source: u32,
    is_part: bool,
}

/// Parses the fields that identify the tunnel of a packet; `None` if it is no tunnel's packet. The
/// tunnel's app checks the rest.
fn packet_of(packet: &[u8]) -> Option<Packet> {
    let head = packet.first_chunk::<20>()?;
    if head[0] >> 4 != 4 {
        return None;
    }
    let payload = packet.get(usize::from(head[0] & 0xf) * 4..)?;
    let word = |at: usize| Some(u32::from_be_bytes(*payload.get(at..)?.first_chunk()?));
    let (carrier, tag) = match head[9] {
        PROTOCOL_IPV4 => (MuxCarrier::Ipip, 0),
        PROTOCOL_GRE => {
            let flags = u16::from_be_bytes(*payload.first_chunk()?);
            let at = if flags & HAS_CHECKSUM == 0 { 4 } else { 8 };
            let key = (flags & HAS_KEY != 0).then(|| word(at))?;
            (MuxCarrier::Gre, key?)
        }
        PROTOCOL_UDP if payload.get(2..4)? == VXLAN_PORT.to_be_bytes() => {
            (MuxCarrier::Vxlan, word(12)? >> 8)
        }
        _ => return None,
    };
    let local = u32::from_be_bytes([head[16], head[17], head[18], head[19]]);
    Some(Packet {
        at_this_end: (local, carrier, tag),
        source: u32::from_be_bytes([head[12], head[13], head[14], head[15]]),
        // The flag "more fragments" or an offset is set. (RFC 791, section 3.1)
        is_part: u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0,
    })
}

/// Flags in a GRE header. (RFC 2784, RFC 2890)
const HAS_CHECKSUM: u16 = 0x8000;
const HAS_KEY: u16 = 0x2000;
/// The UDP port of VXLAN. (RFC 7348, section 5)
const VXLAN_PORT: u16 = 4789;
