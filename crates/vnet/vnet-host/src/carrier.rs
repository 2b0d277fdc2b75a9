//! What carries a link to another host.
//!
//! ```text
//!                  the graph of a network
//!   +----------------------------------------------------------+
//!   | port - bucket - [arp] - tunnel - tunnel_mux - af_packet ==|== underlay
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

/// A link to another host.
#[derive(Clone, Copy, Debug)]
pub struct FarLink<'a> {
    /// The link.
    pub link: &'a LinkPart,
    /// The interface at its end on this host.
    pub near: &'a InterfacePart,
    /// Its outer address on this host.
    pub local: Ipv4Addr,
    /// Its outer address on the other host.
    pub remote: Ipv4Addr,
}

/// A protocol that carries links to other hosts.
pub trait LinkCarrier: Sync {
    /// Bytes between the packet of IP inside and the frame of Ethernet outside.
    fn overhead(&self) -> usize;

    /// What identifies the packets of a link, beside their addresses.
    fn tag(&self, link: &LinkPart) -> (MuxCarrier, u32);

    /// Adds the tunnel of a link to a graph, as [`tunnel_app`], and returns the port where the
    /// frames of the node go in and come out.
    fn add(&self, graph: &mut Graph, link: &FarLink<'_>) -> Result<String>;
}

/// The carrier that a document names.
///
/// # Errors
/// This host has no such carrier.
pub fn carrier_of(link: &LinkPart) -> Result<&'static dyn LinkCarrier> {
    match link.carrier {
        Carrier::Gre => Ok(&Gre),
        Carrier::Vxlan => Ok(&Vxlan),
        Carrier::Ipip => Ok(&Ipip),
        // No tunnel: `far_flow` carries it.
        Carrier::Dif => Err(Error::Unsupported {
            what: format!("a tunnel for link {}", link.number),
            instead: "it is a flow of a DIF",
        }),
    }
}

/// How a link leads to another host, in words: `host h2 by gre 192.0.2.1 > 192.0.2.2 tag 7`, or
/// `host h2 by flow link.7 of DIF 192.0.2.1-192.0.2.2`.
pub fn far_words(link: &LinkPart) -> Option<String> {
    let Far::Host(far) = &link.far else {
        return None;
    };
    let host = &far.host;
    if let Some((tag, pair)) = pair_of(link) {
        let (flow, dif) = (flow_name(tag), pair.dif());
        return Some(format!("host {host} by flow {flow} of DIF {dif}"));
    }
    let (word, local, remote) = (link.carrier.word(), far.local, far.remote);
    // IPv4 in IPv4 has none.
    let tag = carrier_of(link).map_or(0, |it| it.tag(link).1);
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

/// It carries no Ethernet: the host answers the node's ARP for the other end.
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
            // Any other station than the node will do.
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

/// Adds the app of a tunnel; its port for what it carries.
fn tunnel(graph: &mut Graph, link: &FarLink<'_>, config: impl AppConfig) -> String {
    let app = tunnel_app(link.link.number);
    graph.app(&app, config);
    format!("{app}.north")
}

const IPV4: usize = 20;
const ETHER: usize = 14;
const HOP_LIMIT: u8 = 64;
/// RFC 7348, section 5.
const VXLAN_PORT: u16 = 4789;
