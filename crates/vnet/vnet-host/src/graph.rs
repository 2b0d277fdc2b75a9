//! Builds the engine's graph of a network's links.

#[cfg(test)]
mod isolation;

use std::collections::BTreeSet;
use std::sync::Arc;

use carina_apps::shaper::ShaperConfig;
use carina_apps::tunnel_mux::{MuxTunnel, TunnelMuxConfig, WIRE};
use carina_frame_engine::Graph;
use carina_ports::af_packet::AfPacketConfig;
use carina_vnet::document::Rate;
use carina_vnet::host_part::{Far, FarHost, HostPart, LinkPart, Nic, Users};

use crate::carrier::{FarLink, carrier_of};
use crate::error::{Error, Result};
use crate::far_flow::{Flows, pair_of};
use crate::flow_port::FlowPortConfig;
use crate::names::{MUX_APP, UNDERLAY_APP, card_app, flow_app, rate_app, tunnel_app};
use crate::nics;
use crate::port_selection::PortSelection;
use crate::underlay::{NEEDED, UnderlayPort};
use carina_vnet::host_part::LinkEnd;

/// The graph of a part. A link within this host has two ports and a shaper in each direction. A
/// link to another host has a port, a shaper for what it sends, and a tunnel or a flow. Links in
/// `kernel` are left out: they use the kernel's path.
pub(crate) fn graph_of(
    part: &HostPart,
    underlay: Option<&UnderlayPort>,
    flows: &Flows,
    ports: &PortSelection,
    kernel: &BTreeSet<u32>,
) -> Result<Graph> {
    let mut graph = Graph::new();
    let mut tunnels = Vec::new();
    for link in &part.links {
        match &link.far {
            Far::Here(_) if kernel.contains(&link.number) => {}
            Far::Here(_) => {
                for side in [0, 1] {
                    let next = format!("{}.input", ports.app((link.number, 1 - side)));
                    add_port(&mut graph, (link, side), ports, &next)?;
                }
            }
            Far::Nic(nic) => add_nic(&mut graph, (link, nic), ports)?,
            // `AccessPoints::add` adds these, because it needs more than the part.
            Far::Users(_) => {}
            Far::Host(_) if pair_of(link).is_some() => {
                let flow = flow_app(link.number);
                graph.app(
                    &flow,
                    FlowPortConfig(flows.get(&link.number).map(Arc::clone)),
                );
                add_port(&mut graph, (link, 0), ports, &format!("{flow}.input"))?;
                let port = ports.app((link.number, 0));
                graph.link(&format!("{flow}.output -> {port}.input"))?;
            }
            Far::Host(far) => {
                let underlay = underlay.ok_or_else(|| Error::Unsupported {
                    what: format!("link {} to host {}", link.number, far.host),
                    instead: NEEDED,
                })?;
                let ends = (part, link, far);
                tunnels.push(add_far(&mut graph, ends, ports, underlay)?);
            }
        }
    }
    if let Some(underlay) = underlay.filter(|_| !tunnels.is_empty()) {
        add_underlay(&mut graph, underlay, tunnels)?;
    }
    Ok(graph)
}

/// Adds the port of an end on this host, and the shaper from it to app port `next`.
fn add_port(
    graph: &mut Graph,
    (link, side): (&LinkPart, usize),
    ports: &PortSelection,
    next: &str,
) -> Result<()> {
    let end = (link.number, side);
    let (app, rate) = (ports.app(end), rate_app(link.number, side));
    add_port_app(graph, end, ports);
    graph.app(&rate, shaper(rate_of(link)));
    graph.link(&format!("{app}.output -> {rate}.input"))?;
    graph.link(&format!("{rate}.output -> {next}"))?;
    Ok(())
}

/// Adds the app of an end's port, without links.
pub(crate) fn add_port_app(graph: &mut Graph, end: LinkEnd, ports: &PortSelection) {
    graph.app(&ports.app(end), AfPacketConfig::of(&ports.port(end)));
}

/// Adds the link between a node and a physical card of the host.
fn add_nic(graph: &mut Graph, (link, nic): (&LinkPart, &Nic), ports: &PortSelection) -> Result<()> {
    let card = card_app(link.number);
    graph.app(&card, nics::port_of(nic)?);
    add_port(graph, (link, 0), ports, &format!("{card}.input"))?;
    let own = ports.app((link.number, 0));
    graph.link(&format!("{card}.output -> {own}.input"))?;
    Ok(())
}

/// Adds a link to another host, without the interface through which its tunnel leaves.
fn add_far(
    graph: &mut Graph,
    (part, link, far): (&HostPart, &LinkPart, &FarHost),
    ports: &PortSelection,
    underlay: &UnderlayPort,
) -> Result<MuxTunnel> {
    let carrier = carrier_of(link)?;
    let near = part.interface(&link.near);
    let near = near.expect("the part was checked: its links end at interfaces");
    if usize::from(near.mtu) + carrier.overhead() > underlay.mtu {
        let interface = &underlay.wanted.interface;
        let has = underlay.mtu;
        return Err(Error::Unsupported {
            what: format!(
                "link {} has packets of {} bytes and {} bytes of tunnel headers, but {interface} \
                 carries packets of {has} bytes",
                link.number,
                near.mtu,
                carrier.overhead()
            ),
            instead: "raise the MTU of the interface",
        });
    }
    let (local, remote) = (far.local, far.remote);
    let inside = FarLink {
        link,
        near,
        local,
        remote,
    };
    let node_side = carrier.add(graph, &inside)?;
    add_port(graph, (link, 0), ports, &node_side)?;
    graph.link(&format!(
        "{node_side} -> {}.input",
        ports.app((link.number, 0))
    ))?;
    let (carrier, tag) = carrier.tag(link);
    Ok(MuxTunnel {
        name: tunnel_app(link.number),
        carrier,
        local,
        remote,
        tag,
    })
}

/// Adds the interface that all tunnels share.
fn add_underlay(graph: &mut Graph, port: &UnderlayPort, tunnels: Vec<MuxTunnel>) -> Result<()> {
    for MuxTunnel { name, .. } in &tunnels {
        graph.link(&format!("{name}.south -> {MUX_APP}.{name}"))?;
        graph.link(&format!("{MUX_APP}.{name} -> {name}.south"))?;
    }
    let config = TunnelMuxConfig {
        mac: port.mac,
        tunnels,
        gateway: port.wanted.gateway,
    };
    graph.app(MUX_APP, config);
    add_underlay_port(graph, port);
    graph.link(&format!("{MUX_APP}.{WIRE} -> {UNDERLAY_APP}.input"))?;
    graph.link(&format!("{UNDERLAY_APP}.output -> {MUX_APP}.{WIRE}"))?;
    Ok(())
}

/// Adds the app of the underlay's interface, without links, or replaces it by an equal one.
pub(crate) fn add_underlay_port(graph: &mut Graph, port: &UnderlayPort) {
    let interface = AfPacketConfig {
        netns: Some(port.wanted.netns.clone()),
        promiscuous: false,
        ..AfPacketConfig::of(&port.wanted.interface)
    };
    graph.app(UNDERLAY_APP, interface);
}

/// The rate of what this host sends into a link.
pub(crate) fn rate_of(link: &LinkPart) -> Rate {
    match &link.far {
        Far::Users(users) => rate_of_all(link.rate, users),
        _ => link.rate,
    }
}

/// Limit of the frames that the node sends to all users together: the rate of a user times their
/// number.
fn rate_of_all(rate: Rate, users: &Users) -> Rate {
    let count = users.addresses.len().max(1) as u64;
    Rate::from_bps(rate.bps().saturating_mul(count).min(1 << 63)).unwrap_or(rate)
}

/// The shaper of a rate.
pub(crate) fn shaper(rate: Rate) -> ShaperConfig {
    ShaperConfig::of_rate(rate.bps())
}

#[cfg(test)]
mod tests {
    use carina_frame_engine::LinkName;

    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn graph_joins_the_two_ports_of_a_link_and_no_others() {
        let links = part(&["a b", "b c"]);
        let graph = graph_of(
            &links,
            None,
            &Flows::new(),
            &PortSelection::default(),
            &BTreeSet::new(),
        )
        .unwrap();
        graph.check().unwrap();
        assert_eq!(graph.apps().count(), 8);
        let of = |link: &LinkName| {
            let number = |app: &str| app.split('-').next().map(str::to_owned);
            (number(&link.from.app), number(&link.to.app))
        };
        assert_eq!(graph.links().count(), 8);
        assert!(graph.links().map(of).all(|(from, to)| from == to));
        let ports = graph.apps().filter(|(_, kind)| *kind == "af_packet");
        assert_eq!(ports.count(), 4);
    }
}
