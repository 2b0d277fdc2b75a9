//! What is asked of nodes one at a time, as those ask who have parts of a network on other hosts.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use carina_apps::trace::{TraceRequest, TraceStream};
use carina_vnet::document::Kind;
use carina_vnet_web::FrameSource;

use super::Agent;
use crate::engine_frames::EngineFrames;
use crate::error::{Attempt, Error, Result};
use crate::names::end_of;
use crate::node::Arrived;
use crate::probe::Asks;
use crate::second_ports::port_app_now;
use crate::way::PieceWatch;
use carina_vnet::host_part::LinkEnd;
use carina_vnet::impairment::Impairment;
use carina_vnet::way::Sought;

impl Agent {
    /// What makes a node.
    ///
    /// # Errors
    /// There is no such network or node.
    pub fn kind(&self, name: &str, node: &str) -> Result<Kind> {
        let network = self.network(name)?;
        let part = network.record().part;
        match part.node(node) {
            Some(node) => Ok(node.kind),
            None => Err(network.vnet()?.no_node(node)),
        }
    }

    /// The socket of a node's console: who connects watches, and who types first writes.
    ///
    /// # Errors
    /// There is no such network or node.
    pub fn console(&self, name: &str, node: &str) -> Result<PathBuf> {
        self.kind(name, node)?;
        Ok(self.vnets.vnet(name).console(node))
    }

    /// The round trip of an echo from a node to an address. Where that is the other end of a link
    /// that is a flow of a DIF, the node there is asked by its name, too.
    ///
    /// # Errors
    /// There is no such network or node, or nothing answers within `limit`.
    pub fn echo(&self, name: &str, from: &str, to: Ipv4Addr, limit: Duration) -> Result<Duration> {
        let network = self.network(name)?;
        let (part, vnet) = (network.record().part, network.vnet()?);
        let by_frames = vnet.echo(from, to, limit, Asks::Again)?;
        match vnet.probe_flow_to(&part, from, to, limit) {
            Some(by_name) => by_name,
            None => Ok(by_frames),
        }
    }

    /// Takes a stream of TCP at a port of a node, to its end.
    ///
    /// # Errors
    /// There is no such network or node, or no stream comes within `limit`.
    pub fn receive(&self, name: &str, node: &str, port: u16, limit: Duration) -> Result<Arrived> {
        self.network(name)?.vnet()?.receive(node, port, limit)
    }

    /// Sends a stream of TCP from a node for some time.
    ///
    /// # Errors
    /// There is no such network or node, or no one takes the stream within `limit`.
    pub fn send(
        &self,
        name: &str,
        node: &str,
        to: SocketAddrV4,
        [time, limit]: [Duration; 2],
    ) -> Result<()> {
        self.network(name)?.vnet()?.send(node, to, [time, limit])
    }

    /// Impairs what a node sends at one of its interfaces, or no longer does.
    ///
    /// # Errors
    /// There is no such network, node or interface, or it cannot be impaired so.
    pub fn impair_end(
        &self,
        name: &str,
        [node, interface]: [&str; 2],
        wanted: Option<Impairment>,
    ) -> Result<()> {
        let end = self.end(name, [node, interface])?;
        self.network(name)?.vnet()?.impair_end(end, wanted)
    }

    /// Copies of what passes an interface of a node, with `far` as the name of what is at the other
    /// end of its link, and at most so many bytes of each frame.
    ///
    /// # Errors
    /// There is no such network, node or interface, or its engine does not run.
    pub fn copy_end(
        &self,
        name: &str,
        [node, interface]: [&str; 2],
        far: &str,
        snap_bytes: Option<u32>,
    ) -> Result<Box<dyn FrameSource>> {
        let (link, side) = self.end(name, [node, interface])?;
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
        Ok(Box::new(EngineFrames(stream)))
    }

    /// Watches the ports of a network on this host for echos between two of its nodes, which may be
    /// on other hosts.
    ///
    /// # Errors
    /// There is no such network, or its engine does not run.
    pub fn watch_way(&self, name: &str, sought: &Sought) -> Result<PieceWatch> {
        let network = self.network(name)?;
        let (part, dir) = (network.record().part, self.vnets.vnet(name));
        PieceWatch::begin(&*network.vnet()?, part, dir, sought)
    }

    pub(super) fn end(&self, name: &str, [node, interface]: [&str; 2]) -> Result<LinkEnd> {
        let network = self.network(name)?;
        let part = network.record().part;
        let Some(there) = part.node(node) else {
            return Err(network.vnet()?.no_node(node));
        };
        let found = there
            .interface(interface)
            .ok_or_else(|| Error::NoInterface {
                node: node.to_owned(),
                interface: interface.to_owned(),
            })?;
        Ok(end_of(&part, node, found))
    }

    /// Where a host notes who has been let into which node.
    #[must_use]
    pub fn access_log(&self) -> PathBuf {
        self.vnets.path().with_extension("access")
    }
}

/// What is asked of an engine to copy what passes a port, seen from its node: what it sends, and
/// what it receives, by the names of the two ends.
#[must_use]
pub fn copied_links(port: &str, [near, far]: [&str; 2]) -> Vec<String> {
    vec![
        format!("{port}.output as {near} -> {far}"),
        format!("{port}.input as {far} -> {near}"),
    ]
}
