//! Builds the apps and links of a configuration.

use carina_apps::mac_mux::{MacMuxConfig, MuxPort, UPLINK};
use carina_apps::mac_text::MacText;
use carina_apps::pcap_filter::PcapFilterConfig;
use carina_apps::tunnel::TunnelConfig;
use carina_frame_engine::Graph;
use carina_graph::graph_file::{GraphFileError, Kind, read_app};

use super::{Resolver, Traffic, TrafficPort, Tunnel, TunnelProtocol};

/// The app that connects the ports with each other and with the uplink.
pub const MUX: &str = "mux";

/// The apps between a port and the mux: the suffixes of their names.
pub(super) mod step {
    pub(crate) const PORT: &str = "port";
    pub(crate) const EGRESS_RATE: &str = "txrate";
    pub(crate) const INGRESS_RATE: &str = "rxrate";
    pub(crate) const FILTER: &str = "filter";
    pub(crate) const GATEWAY: &str = "gateway";
    pub(crate) const TUNNEL: &str = "tunnel";
    pub(crate) const ARP: &str = "arp";
    pub(crate) const ND: &str = "nd";
    pub(crate) const ESP: &str = "esp";
}

/// The name of an app of a port: prefix and suffix.
pub(super) fn app_name(stem: &str, step: &str) -> String {
    format!("{stem}_{step}")
}

/// The kinds of apps that can be a port or the uplink: those whose frames have MAC headers.
#[must_use]
pub fn port_kinds() -> Vec<Kind> {
    let kinds = carina_ports::KINDS.into_iter();
    kinds.filter(|kind| kind.name != "tun").collect()
}

/// Builds the graph of a configuration.
///
/// # Errors
/// An app is of an unknown kind or has an invalid configuration. This cannot happen with a
/// configuration that [`read`](super::read) has returned.
pub fn graph(traffic: &Traffic, kinds: &[Kind]) -> Result<Graph, GraphFileError> {
    let mut graph = Graph::new();
    let ports = traffic.ports.iter().map(|port| MuxPort {
        name: port.stem(),
        mac: port.mac.map(MacText),
        vlan: port.vlan,
    });
    let mux = MacMuxConfig {
        ports: ports.collect(),
        ..MacMuxConfig::default()
    };
    graph.app(MUX, mux);
    if let Some(uplink) = &traffic.uplink {
        graph.app_of(UPLINK, read_app(UPLINK, uplink.clone(), kinds)?);
        graph.link(&format!("{UPLINK}.output -> {MUX}.{UPLINK}"))?;
        graph.link(&format!("{MUX}.{UPLINK} -> {UPLINK}.input"))?;
    }
    for port in &traffic.ports {
        add_port(&mut graph, port, kinds)?;
    }
    graph.check()?;
    Ok(graph)
}

/// The chain of apps between a port and the mux that is being built.
struct AppChain<'a> {
    graph: &'a mut Graph,
    stem: String,
    /// App and output at the end of the chain, where frames from the port arrive so far.
    out: String,
    /// App and input at the end of the chain, to which frames to the port must go.
    back: String,
}

impl AppChain<'_> {
    /// Appends an app to the chain. `egress` is its input and output for frames from the port,
    /// `ingress` its input and output for frames to the port; `None` if such frames do not pass the
    /// app.
    fn put(
        &mut self,
        step: &str,
        egress: Option<[&str; 2]>,
        ingress: Option<[&str; 2]>,
    ) -> Result<(), GraphFileError> {
        let app = app_name(&self.stem, step);
        if let Some([input, output]) = egress {
            self.graph.link(&format!("{} -> {app}.{input}", self.out))?;
            self.out = format!("{app}.{output}");
        }
        if let Some([input, output]) = ingress {
            self.graph
                .link(&format!("{app}.{output} -> {}", self.back))?;
            self.back = format!("{app}.{input}");
        }
        Ok(())
    }
}

const THROUGH: Option<[&str; 2]> = Some(["input", "output"]);
const NORTH_TO_SOUTH: Option<[&str; 2]> = Some(["north", "south"]);
const SOUTH_TO_NORTH: Option<[&str; 2]> = Some(["south", "north"]);

fn add_port(graph: &mut Graph, port: &TrafficPort, kinds: &[Kind]) -> Result<(), GraphFileError> {
    let stem = port.stem();
    let name = |step| app_name(&stem, step);
    let end = name(step::PORT);
    graph.app_of(&end, read_app(&end, port.app.clone(), kinds)?);
    if let Some(rate) = port.egress_rate {
        graph.app(&name(step::EGRESS_RATE), rate);
    }
    if let Some(rate) = port.ingress_rate {
        graph.app(&name(step::INGRESS_RATE), rate);
    }
    let has_filter = port.ingress_filter.is_some() || port.egress_filter.is_some();
    if has_filter || port.state.is_some() {
        let filter = PcapFilterConfig {
            filter: port.egress_filter.clone(),
            back_filter: port.ingress_filter.clone(),
            state: port.state,
            ..PcapFilterConfig::default()
        };
        graph.app(&name(step::FILTER), filter);
    }
    let mut chain = AppChain {
        out: format!("{end}.output"),
        back: format!("{end}.input"),
        stem: stem.clone(),
        graph,
    };
    if port.egress_rate.is_some() {
        chain.put(step::EGRESS_RATE, THROUGH, None)?;
    }
    if has_filter || port.state.is_some() {
        chain.put(step::FILTER, THROUGH, Some(["back_input", "back_output"]))?;
    }
    if let Some(tunnel) = &port.tunnel {
        add_tunnel(&mut chain, tunnel)?;
    }
    let resolver = port.tunnel.as_ref().and_then(|tunnel| {
        let resolver = tunnel.resolver.as_ref()?;
        Some((tunnel.protects_resolver, resolver))
    });
    if let Some((true, resolver)) = resolver {
        add_resolver(&mut chain, resolver, kinds)?;
    }
    if let Some(esp) = &port.esp {
        let app = app_name(&stem, step::ESP);
        chain
            .graph
            .app_of(&app, read_app(&app, esp.clone(), kinds)?);
        chain.put(step::ESP, NORTH_TO_SOUTH, SOUTH_TO_NORTH)?;
    }
    if let Some((false, resolver)) = resolver {
        add_resolver(&mut chain, resolver, kinds)?;
    }
    if port.ingress_rate.is_some() {
        chain.put(step::INGRESS_RATE, None, THROUGH)?;
    }
    chain
        .graph
        .link(&format!("{} -> {MUX}.{stem}", chain.out))?;
    chain
        .graph
        .link(&format!("{MUX}.{stem} -> {}", chain.back))?;
    Ok(())
}

fn add_tunnel(chain: &mut AppChain<'_>, tunnel: &Tunnel) -> Result<(), GraphFileError> {
    if let Some(gateway) = tunnel.gateway {
        let app = app_name(&chain.stem, step::GATEWAY);
        chain.graph.app(&app, gateway);
        // The gateway's side towards the port is the station's segment.
        chain.put(step::GATEWAY, SOUTH_TO_NORTH, NORTH_TO_SOUTH)?;
    }
    let app = app_name(&chain.stem, step::TUNNEL);
    match tunnel.protocol {
        TunnelProtocol::L2tpv3(config) => chain.graph.app(&app, TunnelConfig(config)),
        TunnelProtocol::Gre(config) => chain.graph.app(&app, TunnelConfig(config)),
        TunnelProtocol::Vxlan(config) => chain.graph.app(&app, TunnelConfig(config)),
        TunnelProtocol::Ipip(config) => chain.graph.app(&app, TunnelConfig(config)),
    };
    chain.put(step::TUNNEL, NORTH_TO_SOUTH, SOUTH_TO_NORTH)
}

fn add_resolver(
    chain: &mut AppChain<'_>,
    resolver: &Resolver,
    kinds: &[Kind],
) -> Result<(), GraphFileError> {
    let (step, config) = match resolver {
        Resolver::Arp(config) => (step::ARP, config),
        Resolver::Nd(config) => (step::ND, config),
    };
    let app = app_name(&chain.stem, step);
    chain
        .graph
        .app_of(&app, read_app(&app, config.clone(), kinds)?);
    chain.put(step, NORTH_TO_SOUTH, SOUTH_TO_NORTH)
}
