//! Virtual links that are flows of a DIF of two hosts, like links with `as = "dif"` between hosts.
//!
//! ```text
//!   the graph   source 1..n -> join -> route4 => token bucket => flow port     flow port => sink
//!                                                                   |              |
//!   hosts         member of DIF `hosts` -- shim == wire == shim -- member          |
//!                                                                   +--------------+
//! ```

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use carina_api::control::DifRole;
use carina_apps::sink::SinkConfig;
use carina_client::{FlowSpec, Node, SocketFlow};
use carina_frame_engine::{Graph, GraphError};
use carina_lab::{Network, TestNode};
use carina_sys::allow_cpus;
use carina_vnet_host::flow_port::{FlowPortConfig, FlowSocket};

use super::flow::Flows;
use super::graphs::{look_up, start, unbounded};
use crate::engine::workers::{work, wrong};
use crate::error::{Attempt, Error, Result};
use crate::peer::{app_name, client_of, dif_name};
use crate::rate::Rate;

/// Two hosts with a wire and a DIF between them. Each is a network namespace with a node.
#[derive(Debug)]
pub(super) struct TwoHosts {
    near: TestNode,
    far: TestNode,
}

impl TwoHosts {
    /// Makes the hosts. Their nodes run on the processors `cpus`; afterwards this thread may run on
    /// `all`.
    pub(super) fn new(cpus: &[usize], all: &[usize]) -> Result<TwoHosts> {
        // Processes that this thread starts inherit its processors.
        allow_cpus(None, cpus).attempt("choosing processors")?;
        let started = TwoHosts::started();
        allow_cpus(None, all).attempt("giving the processors back")?;
        let hosts = started?;
        hosts.near.connect(WIRE, &hosts.far, WIRE)?;
        let members = [(&hosts.near, DifRole::Create), (&hosts.far, DifRole::Join)];
        for (node, _) in &members {
            node.ip(&["link", "set", "dev", WIRE, "mtu", MTU])?;
            node.add_eth(WIRE, WIRE)?;
        }
        for (node, role) in members {
            node.add_member(role, DIF, &[WIRE])?;
        }
        Ok(hosts)
    }

    fn started() -> Result<TwoHosts> {
        Ok(TwoHosts {
            near: TestNode::start("near", Network::Own, None)?,
            far: TestNode::start("far", Network::Own, None)?,
        })
    }

    /// Sends flows for a third of `time_ns`, and then for `time_ns`, in which the packets that
    /// arrive at the other host are counted. The graph runs on the processor `cpu`.
    pub(super) fn rate(&self, flows: &Flows, cpu: usize, time_ns: u64) -> Result<Rate> {
        let mut graph = of_flows(flows, self.links(flows.sources.len())?).map_err(wrong)?;
        graph.cpus(&[cpu]);
        let workers = start(&graph)?;
        sleep(Duration::from_nanos(time_ns / 3));
        let (start, before) = (Instant::now(), work(&workers).map_err(wrong)?.0);
        sleep(Duration::from_nanos(time_ns));
        let (wall, after) = (
            start.elapsed().as_nanos() as f64,
            work(&workers).map_err(wrong)?.0,
        );
        match after - before {
            0 => Err(Error::NoAnswer("no frame came through".to_owned())),
            // The nodes do most of the work, so the rate is related to wall-clock time.
            frames => Ok(Rate::of(frames as f64, wall, wall)),
        }
    }

    /// Both ends of `count` flows: where frames enter, and where they leave.
    fn links(&self, count: usize) -> Result<Vec<[Arc<FlowSocket>; 2]>> {
        let (name, dif) = (app_name("link")?, dif_name(DIF)?);
        let registered = client_of(&self.far)?.register(&name, Some(&dif));
        let mut registration = registered.attempt("registering a name")?;
        self.near.wait_for_name_in(DIF, name.as_str())?;
        let ask = |node: Node, link: usize| {
            let own = app_name(&format!("link.{link}"))?;
            let spec = FlowSpec::unreliable();
            let asked = node.allocate_socket(&own, &name, Some(&dif), &spec);
            asked.attempt("asking for a flow")
        };
        let both = |link: usize| -> Result<[SocketFlow; 2]> {
            let (node, ask) = (client_of(&self.near)?, &ask);
            std::thread::scope(|scope| {
                let asking = scope.spawn(move || ask(node, link));
                let request = registration.next_request_timeout(ANSWER);
                let request = request.attempt("waiting for a flow")?;
                let accepted = request.map(|request| registration.accept_request_socket(&request));
                let asked = asking.join().expect("what asks does not panic")?;
                let unasked = || Error::NoAnswer("no flow came to the other host".to_owned());
                Ok([
                    asked,
                    accepted.ok_or_else(unasked)?.attempt("accepting a flow")?,
                ])
            })
        };
        let ends = (0..count).map(both);
        ends.map(|ends| ends.map(|ends| ends.map(|end| FlowSocket::over(end.socket))))
            .collect()
    }
}

/// The graph of the near host up to its flows, and the other ends of the flows with a sink.
fn of_flows(
    flows: &Flows,
    links: Vec<[Arc<FlowSocket>; 2]>,
) -> std::result::Result<Graph, GraphError> {
    let mut graph = Graph::new();
    look_up(&mut graph, &flows.routes)?;
    graph.app("sink", SinkConfig {});
    for (flow, (source, [near, far])) in flows.sources.iter().zip(links).enumerate() {
        graph
            .app(&format!("source{flow}"), source.clone())
            .app(&format!("bucket{flow}"), unbounded())
            .app(&format!("near{flow}"), FlowPortConfig(Some(near)))
            .app(&format!("far{flow}"), FlowPortConfig(Some(far)));
        for link in [
            format!("source{flow}.output -> join.i{flow}"),
            format!("router.o{flow} -> bucket{flow}.input"),
            format!("bucket{flow}.output -> near{flow}.input"),
            format!("far{flow}.output -> sink.i{flow}"),
        ] {
            graph.link(&link)?;
        }
    }
    Ok(graph)
}

/// Name of the interface at either end of the wire, and of the DIF of the shims on it.
const WIRE: &str = "wire";
const DIF: &str = "hosts";
/// MTU for a frame of 1514 bytes and the headers of a DIF, as on the veth interfaces of the other
/// systems.
const MTU: &str = "1700";
/// How long a requested flow may take to arrive at the other host.
const ANSWER: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn frames_of_all_flows_go_into_flows_and_come_out_of_them() {
        let flow = |socket: UnixDatagram| FlowSocket::over(OwnedFd::from(socket));
        let link = |_| {
            let (near, far) = UnixDatagram::pair().unwrap();
            [near, far].map(flow)
        };
        let links: Vec<_> = (0..3).map(link).collect();
        let workers = start(&of_flows(&Flows::by_number(3, 64), links).unwrap()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let arrived = |flow: usize| {
            let counts = workers.link_counts().unwrap();
            let from = format!("far{flow}");
            let link = counts.into_iter().find(|(name, _)| name.from.app == from);
            link.unwrap().1.packets
        };
        while (0..3).any(|flow| arrived(flow) < 1000) {
            assert!(Instant::now() < deadline);
            sleep(Duration::from_millis(1));
        }
    }
}
