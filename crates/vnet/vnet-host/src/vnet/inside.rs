//! Work inside of the nodes of a network: commands, consoles, echos, streams.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use super::{Vnet, lock, source_towards};
use crate::error::{Error, Result};
use crate::node::{Arrived, Output, Sink, Until};
use crate::probe::Asks;
use carina_vnet::report::ConsoleSaid;

impl Vnet {
    /// Runs a shell command in a node to its end.
    ///
    /// # Errors
    /// There is no such node, or it does not answer. A command that fails is reported by its
    /// status.
    pub fn run(&self, node: &str, command: &str, limit: Duration) -> Result<Output> {
        self.node(node)?.run(command, limit)
    }

    /// As [`Vnet::run`], but hands over the output as it comes; the exit status.
    ///
    /// # Errors
    /// As there; the command was killed.
    pub fn stream(
        &self,
        node: &str,
        command: &str,
        until: Until<'_>,
        sink: &mut dyn Sink,
    ) -> Result<i32> {
        self.node(node)?.stream(command, until, sink)
    }

    /// What the console of a node has said since so many bytes.
    ///
    /// # Errors
    /// There is no such node.
    pub fn console_said(&self, node: &str, since: u64, wait: Duration) -> Result<ConsoleSaid> {
        let (next, bytes) = self.node(node)?.console().said_since(since, wait);
        Ok(ConsoleSaid { next, bytes })
    }

    /// Types at the console of a node.
    ///
    /// # Errors
    /// There is no such node, or a viewer types there.
    pub fn console_type(&self, node: &str, text: &str) -> Result<()> {
        self.node(node)?.console().type_in(text.as_bytes())
    }

    /// The round trip of an echo from one node to an address.
    ///
    /// # Errors
    /// There is no such node, or nothing answers within `limit`.
    pub fn echo(&self, from: &str, to: Ipv4Addr, limit: Duration, asks: Asks) -> Result<Duration> {
        let own = {
            let part = lock(&self.part);
            let wanted = part.node(from).ok_or_else(|| self.no_node(from))?;
            source_towards(wanted, to)
        };
        self.node(from)?.echo(own, to, limit, asks)
    }

    /// What arrives of a stream that one node sends to an address of another for some time.
    ///
    /// # Errors
    /// There is no such node, or the stream does not get there.
    pub fn throughput(
        &self,
        [from, to]: [&str; 2],
        address: Ipv4Addr,
        time: Duration,
    ) -> Result<Arrived> {
        let (sender, receiver) = (self.node(from)?, self.node(to)?);
        let to = SocketAddrV4::new(address, STREAM_PORT);
        std::thread::scope(|scope| {
            let received = scope.spawn(|| receiver.receive(STREAM_PORT, time + STREAM));
            sender.send(to, time, STREAM)?;
            received
                .join()
                .unwrap_or(Err(Error::Ended("who takes the stream")))
        })
    }

    /// Takes a stream at a port of a node.
    ///
    /// # Errors
    /// There is no such node, or no stream comes.
    pub fn receive(&self, node: &str, port: u16, limit: Duration) -> Result<Arrived> {
        self.node(node)?.receive(port, limit)
    }

    /// Sends a stream from a node for some time, if someone takes it within a limit.
    ///
    /// # Errors
    /// There is no such node, or no one takes the stream.
    pub fn send(&self, node: &str, to: SocketAddrV4, [time, limit]: [Duration; 2]) -> Result<()> {
        self.node(node)?.send(to, time, limit)
    }
}

/// The port of TCP at which a node takes a stream.
const STREAM_PORT: u16 = 49_210;
/// How long a stream may take to get there.
const STREAM: Duration = Duration::from_secs(30);
