//! Carina's side of the benchmark: the graph of virtual links that leave a host.

use std::net::{IpAddr, Ipv4Addr};
use std::thread::sleep;
use std::time::{Duration, Instant};

use carina_apps::ipip::IpipConfig;
use carina_apps::join::JoinConfig;
use carina_apps::mac_text::MacText;
use carina_apps::rate_limiter::RateLimiterConfig;
use carina_apps::route4::{Route4, Route4Config};
use carina_apps::sink::SinkConfig;
use carina_apps::source::SourceConfig;
use carina_apps::tunnel::TunnelConfig;
use carina_frame::PoolConfig;
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{Graph, GraphError, Workers};
use carina_ports::af_packet::AfPacketConfig;
use carina_wire::ether::Mac;

use super::flow::Flows;
use super::veths::Veths;
use crate::engine::workers::{work, wrong};
use crate::error::{Attempt, Result};
use crate::rate::Rate;

/// Runs the graph of the flows on one worker: for a third of `time_ns` to warm up, and then for
/// `time_ns`, in which it is measured.
pub(super) fn measure(flows: &Flows, cpu: usize, time_ns: u64) -> Result<Rate> {
    let mut graph = of_flows(flows).map_err(wrong)?;
    graph.cpus(&[cpu]);
    let workers = start(&graph)?;
    sleep(Duration::from_nanos(time_ns / 3));
    let (start, before) = (Instant::now(), work(&workers).map_err(wrong)?);
    sleep(Duration::from_nanos(time_ns));
    let (wall, after) = (start.elapsed(), work(&workers).map_err(wrong)?);
    let (frames, cpu) = ((after.0 - before.0) as f64, (after.1 - before.1) as f64);
    Ok(Rate::of(frames, wall.as_nanos() as f64, cpu))
}

/// Runs the same graph between the veth interfaces of a system, in the system's namespace, until
/// the returned value is dropped.
pub(super) fn on_veths(veths: &Veths, cpu: usize) -> Result<Option<Workers>> {
    let mut graph = of_veths(veths).map_err(wrong)?;
    graph.cpus(&[cpu]);
    // The worker is a child of this thread, so it runs in the same namespace.
    veths.within(|| start(&graph)).map(Some)
}

/// Runs a graph until the returned value is dropped.
pub(super) fn start(graph: &Graph) -> Result<Workers> {
    let counters = CounterFile::private().attempt("counters")?;
    let mut workers = Workers::new(PoolConfig::default(), counters);
    workers.configure(graph).map_err(wrong)?;
    Ok(workers)
}

fn of_flows(flows: &Flows) -> std::result::Result<Graph, GraphError> {
    let mut graph = Graph::new();
    for (flow, source) in flows.sources.iter().enumerate() {
        graph.app(&format!("source{flow}"), source.clone());
        graph.link(&format!("source{flow}.output -> join.i{flow}"))?;
        graph.app("sink", SinkConfig {});
        graph.link(&format!("tunnel{flow}.south -> sink.i{flow}"))?;
    }
    links(&mut graph, &flows.routes, flows.sources.len())?;
    Ok(graph)
}

fn of_veths(veths: &Veths) -> std::result::Result<Graph, GraphError> {
    let (mut graph, flows) = (Graph::new(), veths.flows());
    for flow in 0..flows {
        for (app, interface) in [("in", Veths::entry(flow)), ("out", Veths::exit(flow))] {
            graph.app(&format!("{app}{flow}"), AfPacketConfig::of(&interface));
        }
        graph.link(&format!("in{flow}.output -> join.i{flow}"))?;
        graph.link(&format!("tunnel{flow}.south -> out{flow}.input"))?;
    }
    links(&mut graph, &Flows::by_number(flows, 64).routes, flows)?;
    Ok(graph)
}

/// Adds the apps in the middle: an app that joins the packets, the look-up, and for each link a
/// token bucket that is never empty and one end of a tunnel.
fn links(
    graph: &mut Graph,
    routes: &[Route4],
    flows: usize,
) -> std::result::Result<(), GraphError> {
    look_up(graph, routes)?;
    // No packet comes back.
    graph.app("silence", nothing()).app("back", SinkConfig {});
    for flow in 0..flows {
        let (bucket, tunnel) = (format!("bucket{flow}"), format!("tunnel{flow}"));
        graph
            .app(&bucket, unbounded())
            .app(&tunnel, TunnelConfig(ipip(flow)));
        graph.link(&format!("router.o{flow} -> {bucket}.input"))?;
        graph.link(&format!("{bucket}.output -> {tunnel}.north"))?;
        graph.link(&format!("silence.o{flow} -> {tunnel}.south"))?;
        graph.link(&format!("{tunnel}.north -> back.i{flow}"))?;
    }
    Ok(())
}

/// Adds `join`, which joins the packets, and `router`, which looks up their links.
pub(super) fn look_up(graph: &mut Graph, routes: &[Route4]) -> std::result::Result<(), GraphError> {
    let routes = routes.to_vec();
    graph
        .app("join", JoinConfig {})
        .app("router", Route4Config { routes, file: None });
    graph.link("join.output -> router.input")?;
    Ok(())
}

fn nothing() -> SourceConfig {
    SourceConfig {
        count: Some(0),
        ..SourceConfig::default()
    }
}

/// A token bucket that is never empty.
pub(super) fn unbounded() -> RateLimiterConfig {
    RateLimiterConfig {
        bits_per_second: 1_000_000_000_000,
        bucket_bytes: None,
    }
}

fn ipip(flow: usize) -> IpipConfig {
    let end = |host| IpAddr::V4(Ipv4Addr::new(192, 168, flow as u8, host));
    let mac = |end| MacText(Mac([2, 0, 0, end, 0, flow as u8]));
    IpipConfig {
        local: end(1),
        remote: end(2),
        hop_limit: 64,
        mac: Some(mac(1)),
        next_mac: Some(mac(2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_all_flows_come_to_the_end_of_their_links() {
        let workers = start(&of_flows(&Flows::by_number(3, 64)).unwrap()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let arrived = |flow: usize| {
            let counts = workers.link_counts().unwrap();
            let from = format!("tunnel{flow}");
            let link = counts
                .into_iter()
                .find(|(name, _)| name.from.app == from && name.to.app == "sink");
            link.unwrap().1.packets
        };
        while (0..3).any(|flow| arrived(flow) < 1000) {
            assert!(Instant::now() < deadline);
            sleep(Duration::from_millis(1));
        }
    }
}
