//! The links of a network as a graph of the engine.

#[cfg(test)]
mod isolation;

use carina_apps::rate_limiter::RateLimiterConfig;
use carina_apps::tunnel_mux::{MuxTunnel, TunnelMuxConfig, WIRE};
use carina_engine::frames::Graph;
use carina_ports::af_packet::AfPacketConfig;
use carina_vnet::document::Rate;
use carina_vnet::host_part::{Far, FarHost, HostPart, LinkPart};

use crate::carrier::{FarLink, carrier_of};
use crate::error::{Error, Result};
use crate::names::{MUX_APP, UNDERLAY_APP, port, port_app, rate_app, tunnel_app};
use crate::underlay::{NEEDED, UnderlayPort};

/// The graph of a part: for each link its two ports, and a token bucket in each direction; for one
/// to another host its port, a bucket for what leaves, and a tunnel.
pub fn graph_of(part: &HostPart, underlay: Option<&UnderlayPort>) -> Result<Graph> {
    let mut graph = Graph::new();
    let mut tunnels = Vec::new();
    for link in &part.links {
        match &link.far {
            Far::Here(_) => {
                add_port(
                    &mut graph,
                    link,
                    0,
                    &format!("{}.input", port_app(link.number, 1)),
                )?;
                add_port(
                    &mut graph,
                    link,
                    1,
                    &format!("{}.input", port_app(link.number, 0)),
                )?;
            }
            Far::Host(far) => {
                let underlay = underlay.ok_or_else(|| Error::Unsupported {
                    what: format!("link {} to host {}", link.number, far.host),
                    instead: NEEDED,
                })?;
                tunnels.push(add_far(&mut graph, (part, link), far, underlay)?);
            }
        }
    }
    if let Some(underlay) = underlay.filter(|_| !tunnels.is_empty()) {
        add_underlay(&mut graph, underlay, tunnels)?;
    }
    Ok(graph)
}

/// Adds the port of an end on this host, and the bucket of what comes from it to `next`.
fn add_port(graph: &mut Graph, link: &LinkPart, side: usize, next: &str) -> Result<()> {
    let (app, rate) = (port_app(link.number, side), rate_app(link.number, side));
    graph.app(&app, AfPacketConfig::of(&port(link.number, side)));
    graph.app(&rate, limiter(link.rate));
    graph.link(&format!("{app}.output -> {rate}.input"))?;
    graph.link(&format!("{rate}.output -> {next}"))?;
    Ok(())
}

/// Adds a link to another host, but for the interface where its tunnel leaves.
fn add_far(
    graph: &mut Graph,
    (part, link): (&HostPart, &LinkPart),
    far: &FarHost,
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
                "link {} with packets of {} bytes, and {} around them, over {interface}, which \
                 carries {has}",
                link.number,
                near.mtu,
                carrier.overhead()
            ),
            instead: "the interface needs a larger MTU",
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
    add_port(graph, link, 0, &node_side)?;
    graph.link(&format!(
        "{node_side} -> {}.input",
        port_app(link.number, 0)
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

/// Adds the interface that the tunnels share.
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
    let interface = AfPacketConfig {
        netns: Some(port.wanted.netns.clone()),
        promiscuous: false,
        ..AfPacketConfig::of(&port.wanted.interface)
    };
    graph.app(UNDERLAY_APP, interface);
    graph.link(&format!("{MUX_APP}.{WIRE} -> {UNDERLAY_APP}.input"))?;
    graph.link(&format!("{UNDERLAY_APP}.output -> {MUX_APP}.{WIRE}"))?;
    Ok(())
}

/// The bucket of a link: what passes at once after a pause is what its rate gives in 20 ms, and at
/// least ten frames.
fn limiter(rate: Rate) -> RateLimiterConfig {
    let bits_per_second = rate.bps().min(RATE_MAX);
    RateLimiterConfig {
        bits_per_second,
        bucket_bytes: Some((bits_per_second / 8 / 50).max(BUCKET_MIN)),
    }
}

/// The highest rate that the limiter knows; above it no machine sends.
const RATE_MAX: u64 = 1_000_000_000_000;
const BUCKET_MIN: u64 = 10 * 1514;

#[cfg(test)]
mod tests {
    use carina_engine::frames::LinkName;

    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn graph_joins_the_two_ports_of_a_link_and_no_others() {
        let graph = graph_of(&part(&["a b", "b c"]), None).unwrap();
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

    #[test]
    fn buckets_hold_ten_frames_at_least() {
        let of = |text: &str| limiter(text.parse().unwrap());
        assert_eq!(of("8kbps").bucket_bytes, Some(15_140));
        assert_eq!(of("1Gbps").bucket_bytes, Some(2_500_000));
        assert_eq!(of("9000000Gbps").bits_per_second, RATE_MAX);
    }
}
