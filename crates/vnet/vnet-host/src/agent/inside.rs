//! Operations on single nodes, for roles that combine the parts of a network on several hosts.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use carina_graph::trace::{TraceRequest, TraceStream};
use carina_vnet::document::Kind;
use carina_vnet_web::FrameSource;

use super::Agent;
use crate::engine_frames::EngineFrames;
use crate::error::{Attempt, Error, Result};
use crate::names::end_of;
use crate::node::Arrived;
use crate::paths::Hold;
use crate::port_selection::port_app_now;
use crate::probe::Asks;
use crate::trace::PieceWatch;
use carina_vnet::host_part::LinkEnd;
use carina_vnet::impairment::Impairment;
use carina_vnet::trace::Sought;

impl Agent {
    /// The kind of a node: virtual machine, namespace or bridge.
    ///
    /// # Errors
    /// There is no such network or node.
    pub fn kind(&self, name: &str, node: &str) -> Result<Kind> {
        let network = self.network(name)?;
        let part = network.record().part.clone();
        match part.node(node) {
            Some(node) => Ok(node.kind),
            None => Err(network.vnet()?.no_node(node)),
        }
    }

    /// Path of the socket of a node's console. A client that connects sees the output; the first
    /// that types may write.
    ///
    /// # Errors
    /// There is no such network or node.
    pub fn console(&self, name: &str, node: &str) -> Result<PathBuf> {
        self.kind(name, node)?;
        Ok(self.vnets.vnet(name).console(node))
    }

    /// Round trip of an echo request from a node to an address. If the address is at the other end
    /// of a link with carrier `dif`, the other node is also probed over the DIF by its name.
    ///
    /// # Errors
    /// There is no such network or node, or no reply comes within `limit`.
    pub fn echo(&self, name: &str, from: &str, to: Ipv4Addr, limit: Duration) -> Result<Duration> {
        let network = self.network(name)?;
        let (part, vnet) = (network.record().part.clone(), network.vnet()?);
        let by_frames = vnet.echo(from, to, limit, Asks::Again)?;
        match vnet.probe_flow_to(&part, from, to, limit) {
            Some(by_name) => by_name,
            None => Ok(by_frames),
        }
    }

    /// Receives a TCP stream at a port of a node, until the stream ends.
    ///
    /// # Errors
    /// There is no such network or node, or no stream arrives within `limit`.
    pub fn receive(&self, name: &str, node: &str, port: u16, limit: Duration) -> Result<Arrived> {
        self.network(name)?.vnet()?.receive(node, port, limit)
    }

    /// Sends a TCP stream from a node for a given time.
    ///
    /// # Errors
    /// There is no such network or node, or the receiver does not accept the stream within `limit`.
    pub fn send(
        &self,
        name: &str,
        node: &str,
        to: SocketAddrV4,
        [time, limit]: [Duration; 2],
    ) -> Result<()> {
        self.network(name)?.vnet()?.send(node, to, [time, limit])
    }

    /// Sets or removes the impairment of frames that a node sends at one of its interfaces.
    ///
    /// # Errors
    /// There is no such network, node or interface, or the impairment is invalid.
    pub fn impair_end(
        &self,
        name: &str,
        [node, interface]: [&str; 2],
        wanted: Option<Impairment>,
    ) -> Result<()> {
        let end = self.end(name, [node, interface])?;
        self.network(name)?.vnet()?.impair_end(end, wanted)
    }

    /// Holds links in the network's engine, where their frames can be captured, until the returned
    /// value is dropped.
    ///
    /// # Errors
    /// There is no such network or link, or the engine cannot run the link.
    pub fn hold(&self, name: &str, links: &[u32]) -> Result<Hold> {
        let network = self.network(name)?;
        let record = network.record();
        let is_known = |link: u32| {
            record
                .part
                .links
                .iter()
                .any(|candidate| candidate.number == link)
        };
        match links.iter().find(|link| !is_known(**link)) {
            Some(link) => Err(Error::NoLink {
                vnet: name.to_owned(),
                link: *link,
            }),
            None => network.vnet()?.hold(links),
        }
    }

    /// Captures the frames that pass an interface of a node, at most a given number of bytes of
    /// each. `far` is the name under which the capture shows the other end of the link.
    ///
    /// # Errors
    /// There is no such network, node or interface, or the network's engine does not run.
    pub fn copy_end(
        &self,
        name: &str,
        [node, interface]: [&str; 2],
        far: &str,
        snap_bytes: Option<u32>,
    ) -> Result<Box<dyn FrameSource>> {
        let (link, side) = self.end(name, [node, interface])?;
        let hold = self.hold(name, &[link])?;
        let counters = self.counters(name);
        let request = TraceRequest {
            snap_bytes,
            links: copied_links(
                &port_app_now(&counters, link, side),
                [&format!("{node}:{interface}"), far],
            ),
        };
        let stream = TraceStream::open(&counters, &request)
            .map_err(|error| std::io::Error::other(error.to_string()))
            .attempt("copying frames")?;
        Ok(Box::new(EngineFrames {
            stream,
            _hold: hold,
        }))
    }

    /// Watches the ports of a network on this host for the echo requests of a trace between two
    /// nodes, which may be on other hosts.
    ///
    /// # Errors
    /// There is no such network, or its engine does not run.
    pub fn watch_trace(&self, name: &str, sought: &Sought) -> Result<PieceWatch> {
        let network = self.network(name)?;
        let (part, dir) = (network.record().part.clone(), self.vnets.vnet(name));
        PieceWatch::begin(&*network.vnet()?, part, dir, sought)
    }

    pub(super) fn end(&self, name: &str, [node, interface]: [&str; 2]) -> Result<LinkEnd> {
        let network = self.network(name)?;
        let part = network.record().part.clone();
        let Some(part_node) = part.node(node) else {
            return Err(network.vnet()?.no_node(node));
        };
        let found = part_node
            .interface(interface)
            .ok_or_else(|| Error::NoInterface {
                node: node.to_owned(),
                interface: interface.to_owned(),
            })?;
        Ok(end_of(&part, node, found))
    }

    /// Path of the log of users who opened consoles or ran commands in nodes of this host.
    #[must_use]
    pub fn access_log(&self) -> PathBuf {
        self.vnets.path().with_extension("access")
    }
}

/// The arguments with which an engine captures a port: the frames that the node sends and those
/// that it receives, with the names of the two ends.
#[must_use]
pub fn copied_links(port: &str, [near, far]: [&str; 2]) -> Vec<String> {
    vec![
        format!("{port}.output as {near} -> {far}"),
        format!("{port}.input as {far} -> {near}"),
    ]
}
