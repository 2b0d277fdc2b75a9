//! Datagram sockets: a UDP socket becomes an unreliable flow to one name, or a relayed socket with
//! many peers.
//!
//! ```text
//!  connect(udp, 198.18.0.1:53), or the first sendto -- rule: dif --> a flow
//!  sendto to another address ---------------------------------------> relayed, the flow included
//!  bind(udp, 0.0.0.0:53) -- rule: dif ------------------------------> relayed, with a name
//! ```
//!
//! On a flow, one message is one datagram. On a relayed socket, a [header](crate::datagram_header)
//! with the peer's address is before each. The flow to the first peer is allocated before the call
//! returns, because nothing tells a program later that a datagram socket has a peer.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, getpeername, getsockname, sockopt};

use super::listening::is_six_only;
use super::{Call, Wrap, local_address, remote_address};
use crate::addresses::in_family;
use crate::datagram_header;
use crate::label::Label;
use crate::mark::Mark;
use crate::node::{DatagramAllocation, DatagramRequest, datagram_name};
use crate::relay_connect::flow_of_peer;
use crate::relay_start::{Start, prepare, wait_until_started};
use crate::rule::{Decision, Direction};
use crate::sockets::{Descriptors, is_udp, take_over};
use crate::unix_name::bind_label;

/// How a datagram to an address must be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendTo {
    /// The kernel sends the datagram to its address.
    Kernel,
    /// The program's socket is the end of a flow to the address: the library writes the datagram
    /// alone.
    Connected,
    /// The program's socket leads to a relay: the library writes this header, which has the
    /// address, and then the datagram.
    Relayed([u8; datagram_header::BYTES]),
}

impl Wrap {
    /// `connect` on a UDP socket, or on one that is a flow already (`mark`): if a rule makes the
    /// address a name, allocates a flow to the name and puts it in the place of the socket. A
    /// relayed socket gets the flow that it has to this peer.
    pub(super) fn connect_datagrams(
        &self,
        process: &impl Descriptors,
        socket: BorrowedFd<'_>,
        mark: Option<Mark>,
        address: SocketAddr,
    ) -> Result<Call<()>, Errno> {
        if let Some(mark) = mark.filter(|mark| mark.has(Mark::RELAYED))
            && let Some(flow) = flow_of_peer(socket, canonical(address))?
        {
            let this = local_address(socket, mark).ok_or(Errno::INVAL)?;
            let other = Some(address);
            // A flow that the relay has requested has a label already.
            let _ = bind_label(flow.as_fd(), Label { this, other });
            take_over(process, socket, flow, mark.without(Mark::RELAYED))?;
            return Ok(Call::Done(()));
        }
        let (name, dif) = match self.decide(Direction::Connect, address)? {
            Decision::Kernel if mark.is_none() => return Ok(Call::Kernel),
            // The program's socket of the kernel is closed.
            Decision::Kernel => return Err(Errno::ISCONN),
            Decision::Refuse => return Err(Errno::CONNREFUSED),
            Decision::Flow { name, dif } => (name, dif),
        };
        let this = self.source(socket, address)?;
        let local = self.name_of_address(this)?;
        let request = DatagramRequest { local, name, dif };
        let allocation = DatagramAllocation::start(&self.settings.node, request)?;
        let flow = allocation.finish(Instant::now() + LIMIT)?;
        let other = Some(address);
        bind_label(flow.as_fd(), Label { this, other })?;
        let mark = Mark::DATAGRAMS.with_if(address.is_ipv6(), Mark::IPV6);
        take_over(process, socket, flow, mark)?;
        Ok(Call::Done(()))
    }

    /// `bind` on a UDP socket: if a rule makes the address a name, registers the name and makes the
    /// socket a relayed one.
    pub(super) fn bind_datagrams(
        &self,
        process: &impl Descriptors,
        socket: BorrowedFd<'_>,
        address: SocketAddr,
    ) -> Result<Call<()>, Errno> {
        let is_six_only = is_six_only(socket);
        let bound = self.at_free_port(
            address,
            is_six_only,
            |_| false,
            |local, name, dif| {
                let start = Start {
                    local,
                    is_six: is_six(socket),
                    name: Some(datagram_name(name)?),
                    dif: dif.cloned(),
                    peer: None,
                };
                self.relay(process, socket, &start, None)
            },
        )?;
        Ok(bound.map(|(done, _)| done))
    }

    /// Prepares a socket for a datagram that a program sends to an address.
    ///
    /// - The kernel has the socket until the first address for which a rule makes a flow. With it,
    ///   the socket becomes the flow to that address, or, if the program has bound the socket, a
    ///   relayed socket.
    /// - The first datagram to another address, whatever the rules say, turns the flow into a
    ///   relayed socket: its other end is a relay, which sends each datagram to its address.
    ///
    /// # Errors
    /// `EISCONN` if the kernel has connected the socket; the errors of [`Wrap::connect`].
    pub fn send_to(
        &self,
        process: &impl Descriptors,
        socket: BorrowedFd<'_>,
        to: SocketAddr,
    ) -> Result<SendTo, Errno> {
        let Some(mark) = Mark::of(socket) else {
            return self.first_send_to(process, socket, to);
        };
        if !mark.has(Mark::DATAGRAMS) {
            return Ok(SendTo::Kernel);
        }
        if !mark.has(Mark::RELAYED) {
            let peer = remote_address(socket, mark);
            if peer == Some(in_family(to, mark.has(Mark::IPV6))) {
                return Ok(SendTo::Connected);
            }
            let start = Start {
                local: local_address(socket, mark).ok_or(Errno::NOTCONN)?,
                is_six: mark.has(Mark::IPV6),
                name: None,
                dif: None,
                peer: peer.map(canonical),
            };
            self.relay(process, socket, &start, Some(socket))?;
        }
        Ok(SendTo::Relayed(datagram_header::encode(to)))
    }

    /// Like [`Wrap::send_to`], for a socket of the kernel. One that is bound keeps its port for the
    /// kernel's peers.
    fn first_send_to(
        &self,
        process: &impl Descriptors,
        socket: BorrowedFd<'_>,
        to: SocketAddr,
    ) -> Result<SendTo, Errno> {
        if matches!(self.decide(Direction::Connect, to)?, Decision::Kernel) || !is_udp(socket) {
            return Ok(SendTo::Kernel);
        }
        if getpeername(socket).is_ok() {
            return Err(Errno::ISCONN);
        }
        let bound = getsockname(socket)
            .ok()
            .and_then(|name| SocketAddr::try_from(name).ok())
            .filter(|bound| bound.port() != 0);
        let Some(local) = bound else {
            self.connect_datagrams(process, socket, None, to)?;
            return Ok(SendTo::Connected);
        };
        let start = Start {
            local,
            is_six: is_six(socket),
            name: None,
            dif: None,
            peer: None,
        };
        self.relay(process, socket, &start, Some(socket))?;
        Ok(SendTo::Relayed(datagram_header::encode(to)))
    }

    /// Starts a relay, and puts the program's end in the place of the socket.
    fn relay(
        &self,
        process: &impl Descriptors,
        socket: BorrowedFd<'_>,
        start: &Start,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), Errno> {
        let (ours, theirs) = prepare(start, descriptor)?;
        process.relay(theirs, &self.settings)?;
        wait_until_started(ours.as_fd())?;
        let label = Label {
            this: start.local,
            other: None,
        };
        bind_label(ours.as_fd(), label)?;
        let mark = Mark::DATAGRAMS.with(Mark::RELAYED);
        take_over(
            process,
            socket,
            ours,
            mark.with_if(start.is_six, Mark::IPV6),
        )
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn is_six(socket: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::INET6)
}

/// Longest time that a flow of datagrams may take. `connect` on a UDP socket does not wait at all
/// in the kernel, so that no program expects it to take long.
const LIMIT: Duration = Duration::from_secs(5);
