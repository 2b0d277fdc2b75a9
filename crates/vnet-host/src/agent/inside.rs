//! What is asked of nodes one at a time, as those ask who have parts of a network on other hosts.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use carina_vnet::document::Kind;

use super::Agent;
use crate::error::Result;
use crate::node::Arrived;

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

    /// The socket of a node's console: who connects watches, and who came first writes.
    ///
    /// # Errors
    /// There is no such network or node.
    pub fn console(&self, name: &str, node: &str) -> Result<PathBuf> {
        self.kind(name, node)?;
        Ok(self.vnets.vnet(name).console(node))
    }

    /// The round trip of an echo from a node to an address.
    ///
    /// # Errors
    /// There is no such network or node, or nothing answers within `limit`.
    pub fn echo(&self, name: &str, from: &str, to: Ipv4Addr, limit: Duration) -> Result<Duration> {
        self.network(name)?.vnet()?.echo(from, to, limit)
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

    /// Where a host notes who has been let into which node.
    #[must_use]
    pub fn access_log(&self) -> PathBuf {
        self.vnets.path().with_extension("access")
    }
}
