//! Carriers: encapsulations of links to other hosts.
//!
//! ```text
//!                  the graph of a network
//!   +----------------------------------------------------------+
//!   | port - shaper - [arp] - tunnel - tunnel_mux - af_packet ==|== underlay
//!   |                                   |  |                    |
//!   |            other links to hosts --+--+                    |
//!   +----------------------------------------------------------+
//! ```

use std::net::{IpAddr, Ipv4Addr};

use carina_apps::arp::ArpConfig;
use carina_apps::gre::GreConfig;
use carina_apps::ipip::IpipConfig;
use carina_apps::mac_text::MacText;
use carina_apps::tunnel::{Payload, TunnelConfig};
use carina_apps::tunnel_mux::MuxCarrier;
use carina_apps::vxlan::VxlanConfig;
use carina_frame_engine::{AppConfig, Graph};
use carina_vnet::document::Carrier;
use carina_vnet::host_part::{Far, InterfacePart, LinkPart};
use carina_wire::ether::Mac;

use crate::error::{Error, Result};
use crate::far_flow::{flow_name, pair_of};
use crate::names::{arp_app, tunnel_app};

/// A link to another host, with the addresses of its tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarLink<'a> {
    /// The link to the other host.
    pub link: &'a LinkPart,
    /// The node's interface at the end on this host.
    pub near: &'a InterfacePart,
    /// The tunnel's address on this host.
    pub local: Ipv4Addr,
    /// The tunnel's address on the other host.
    pub remote: Ipv4Addr,
}

/// An encapsulation that carries links to other hosts.
pub(crate) trait LinkCarrier: Sync {
    /// Bytes of headers between the outer Ethernet frame and the inner IP packet.
    fn overhead(&self) -> usize;

    /// The protocol and tag that, together with the addresses, identify the packets of a link.
    fn tag(&self, link: &LinkPart) -> (MuxCarrier, u32);

    /// Adds the tunnel of a link to a graph, as app [`tunnel_app`]. Returns the port to connect
    /// with the port of the node.
    fn add(&self, graph: &mut Graph, link: &FarLink<'_>) -> Result<String>;
}

/// The encapsulation of a link's carrier.
///
/// # Errors
/// This host has no tunnels for the carrier: `dif` uses flows.
pub(crate) fn carrier_of(link: &LinkPart) -> Result<&'static dyn LinkCarrier> {
    match link.carrier {
        Carrier::Gre => Ok(&Gre),
        Carrier::Vxlan => Ok(&Vxlan),
        Carrier::Ipip => Ok(&Ipip),
        // Links with carrier `dif` have no tunnel: module `far_flow` carries them.
        Carrier::Dif => Err(Error::Unsupported {
            what: format!("a tunnel for link {}", link.number),
            instead: "it is a flow of a DIF",
        }),
    }
}

/// Describes how a link reaches another host: `host h2 by gre 192.0.2.1 > 192.0.2.2 tag 7`, or
/// `host h2 by flow link.7 of DIF 192.0.2.1-192.0.2.2`. `None` for a link that does not leave this
/// host.
pub(crate) fn far_words(link: &LinkPart) -> Option<String> {
    let Far::Host(far) = &link.far else {
        return None;
    };
    let host = &far.host;
    if let Some((tag, pair)) = pair_of(link) {
        let (flow, dif) = (flow_name(tag), pair.dif());
        return Some(format!("host {host} by flow {flow} of DIF {dif}"));
    }
    let (word, local, remote) = (link.carrier.word(), far.local, far.remote);
    // IPv4 in IPv4 has no tag.
    let tag = carrier_of(link).map_or(0, |carrier_of| carrier_of.tag(link).1);
    let tag = match tag {
        0 => String::new(),
        tag => format!(" tag {tag}"),
    };
    Some(format!("host {host} by {word} {local} > {remote}{tag}"))
}

struct Gre;

impl LinkCarrier for Gre {
    fn overhead(&self) -> usize {
        IPV4 + 8 + ETHER
    }

    fn tag(&self, link: &LinkPart) -> (MuxCarrier, u32) {
        (MuxCarrier::Gre, link.tag)
    }

    fn add(&self, graph: &mut Graph, link: &FarLink<'_>) -> Result<String> {
        let config = GreConfig {
            local: IpAddr::V4(link.local),
            remote: IpAddr::V4(link.remote),
            key: Some(link.link.tag),
            payload: Payload::Ethernet,
            hop_limit: HOP_LIMIT,
            mac: None,
            next_mac: None,
        };
        Ok(tunnel(graph, link, TunnelConfig(config)))
    }
}

struct Vxlan;

impl LinkCarrier for Vxlan {
    fn overhead(&self) -> usize {
        IPV4 + 8 + 8 + ETHER
    }

    fn tag(&self, link: &LinkPart) -> (MuxCarrier, u32) {
        (MuxCarrier::Vxlan, link.tag)
    }

    fn add(&self, graph: &mut Graph, link: &FarLink<'_>) -> Result<String> {
        let config = VxlanConfig {
            local: IpAddr::V4(link.local),
            remote: IpAddr::V4(link.remote),
            vni: link.link.tag,
            port: VXLAN_PORT,
            hop_limit: HOP_LIMIT,
            mac: None,
            next_mac: None,
        };
        Ok(tunnel(graph, link, TunnelConfig(config)))
    }
}

/// IPv4 in IPv4. It carries no Ethernet: this host answers the node's ARP requests for the other
/// end.
struct Ipip;

impl LinkCarrier for Ipip {
    fn overhead(&self) -> usize {
        IPV4
    }

    fn tag(&self, _: &LinkPart) -> (MuxCarrier, u32) {
        (MuxCarrier::Ipip, 0)
    }

    fn add(&self, graph: &mut Graph, link: &FarLink<'_>) -> Result<String> {
        let config = IpipConfig {
            local: IpAddr::V4(link.local),
            remote: IpAddr::V4(link.remote),
            hop_limit: HOP_LIMIT,
            mac: None,
            next_mac: None,
        };
        let north = tunnel(graph, link, TunnelConfig(config));
        let Mac([rest @ .., last]) = link.near.mac;
        let [a, b, c, d, e] = rest;
        let arp = arp_app(link.link.number);
        let beside = ArpConfig {
            address: link.near.peer,
            // Any address other than the node's.
            mac: MacText(Mac([a, b, c, d, e, last ^ 1])),
            next: link.near.address.address(),
            next_mac: Some(MacText(link.near.mac)),
        };
        graph.app(&arp, beside);
        graph.link(&format!("{arp}.north -> {north}"))?;
        graph.link(&format!("{north} -> {arp}.north"))?;
        Ok(format!("{arp}.south"))
    }
}

/// Adds the app of a tunnel, and returns its port for inner packets.
fn tunnel(graph: &mut Graph, link: &FarLink<'_>, config: impl AppConfig) -> String {
    let app = tunnel_app(link.link.number);
    graph.app(&app, config);
    format!("{app}.north")
}

const IPV4: usize = 20;
const ETHER: usize = 14;
const HOP_LIMIT: u8 = 64;
/// The UDP port of VXLAN (RFC 7348, section 5).
const VXLAN_PORT: u16 = 4789;
