//! Operations inside the nodes of a network: commands, consoles, echo requests and TCP streams.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use super::{Vnet, lock, source_towards};
use crate::error::{Error, Result};
use crate::node::{Arrived, CommandLimits, Output, Sink};
use crate::probe::Asks;
use carina_vnet::report::ConsoleOutput;

impl Vnet {
    /// Runs a shell command in a node, and returns its output when it has ended.
    ///
    /// # Errors
    /// There is no such node, it does not answer, or the command does not end within `limit`. A
    /// command that fails is not an error: its output contains its exit status.
    pub(crate) fn run(&self, node: &str, command: &str, limit: Duration) -> Result<Output> {
        self.node(node)?.run(command, limit)
    }

    /// Like [`Vnet::run`], but hands the output to `sink` while the command runs, and returns the
    /// exit status.
    ///
    /// # Errors
    /// As for [`Vnet::run`]; also if the command was killed.
    pub(crate) fn stream(
        &self,
        node: &str,
        command: &str,
        until: CommandLimits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<i32> {
        self.node(node)?.stream(command, until, sink)
    }

    /// The output of a node's console after byte `since`. Returns as soon as there is any, or after
    /// `wait` without any.
    ///
    /// # Errors
    /// There is no such node.
    pub(crate) fn console_output(
        &self,
        node: &str,
        since: u64,
        wait: Duration,
    ) -> Result<ConsoleOutput> {
        let (next, bytes) = self.node(node)?.console().output_since(since, wait);
        Ok(ConsoleOutput { next, bytes })
    }

    /// Types text at the console of a node.
    ///
    /// # Errors
    /// There is no such node, or a viewer of the console is typing.
    pub(crate) fn console_type(&self, node: &str, text: &str) -> Result<()> {
        self.node(node)?.console().type_in(text.as_bytes())
    }

    /// Round trip of an echo request from a node to an address.
    ///
    /// # Errors
    /// There is no such node, or no reply comes within `limit`.
    pub(crate) fn echo(
        &self,
        from: &str,
        to: Ipv4Addr,
        limit: Duration,
        asks: Asks,
    ) -> Result<Duration> {
        let own = {
            let part = lock(&self.part);
            let wanted = part.node(from).ok_or_else(|| self.no_node(from))?;
            source_towards(wanted, to)
        };
        self.node(from)?.echo(own, to, limit, asks)
    }

    /// Sends a TCP stream from one node to an address of another for the given time, and returns
    /// how much the receiver read.
    ///
    /// # Errors
    /// There is no such node, or the stream does not reach the receiver.
    pub(crate) fn throughput(
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

    /// Receives a TCP stream at a port of a node, until the stream ends.
    ///
    /// # Errors
    /// There is no such node, or no stream arrives within `limit`.
    pub(crate) fn receive(&self, node: &str, port: u16, limit: Duration) -> Result<Arrived> {
        self.node(node)?.receive(port, limit)
    }

    /// Sends a TCP stream from a node for a given time.
    ///
    /// # Errors
    /// There is no such node, or the receiver does not accept the stream within the limit.
    pub(crate) fn send(
        &self,
        node: &str,
        to: SocketAddrV4,
        [time, limit]: [Duration; 2],
    ) -> Result<()> {
        self.node(node)?.send(to, time, limit)
    }
}

/// TCP port at which a node receives a stream.
const STREAM_PORT: u16 = 49_210;
/// How much longer than its duration a stream may take to arrive.
const STREAM: Duration = Duration::from_secs(30);
