//! Datagram sockets: a UDP socket of a client becomes an unreliable flow to one name.
//!
//! ```text
//!  connect(udp, 198.18.0.1:53), or sendto -- rule: dif --> a flow; one message is one datagram
//! ```
//!
//! The flow is allocated before the call returns, because nothing tells a program later that a
//! datagram socket has a peer. Such a socket has one peer: a socket of the kernel that keeps
//! messages apart (`SOCK_SEQPACKET`) has no more.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Call, Wrap, remote_address};
use crate::addresses::in_family;
use crate::label::Label;
use crate::mark::Mark;
use crate::node::{Allocation, AllocationRequest};
use crate::rule::{Decision, Direction};
use crate::sockets::{Descriptors, is_udp, take_over};
use crate::unix_name::bind_label;

impl Wrap {
    /// `connect` on a UDP socket, or on one that is a flow already (`mark`): if a rule makes the
    /// address a name, allocates a flow to the name and puts it in the place of the socket.
    pub(super) fn connect_datagrams(
        &self,
        process: &impl Descriptors,
        socket: BorrowedFd<'_>,
        mark: Option<Mark>,
        address: SocketAddr,
    ) -> Result<Call<()>, Errno> {
        let (name, dif) = match self.decide(Direction::Connect, address)? {
            Decision::Kernel if mark.is_none() => return Ok(Call::Kernel),
            // The program's socket of the kernel is closed.
            Decision::Kernel => return Err(Errno::ISCONN),
            Decision::Refuse => return Err(Errno::CONNREFUSED),
            Decision::Flow { name, dif } => (name, dif),
        };
        let this = self.source(socket, address)?;
        let local = self.name_of_address(this)?;
        let request = AllocationRequest {
            local: &local,
            remote: &name,
            dif: dif.as_ref(),
            filler: 0,
            detached: false,
        };
        let allocation = Allocation::start_datagrams(&self.settings.node, &request)?;
        let flow = allocation.finish_datagrams(Instant::now() + LIMIT)?;
        let other = Some(address);
        bind_label(flow.as_fd(), Label { this, other })?;
        let mark = Mark::DATAGRAMS.with_if(address.is_ipv6(), Mark::IPV6);
        take_over(process, socket, flow, mark)?;
        Ok(Call::Done(()))
    }

    /// Prepares a socket for a datagram that a program sends to an address. [`Call::Done`] if the
    /// socket is a flow to this address, or has become one now: the datagram must be sent without
    /// the address.
    ///
    /// # Errors
    /// `EISCONN` if the socket is a flow to another address, or the kernel has connected it; the
    /// errors of [`Wrap::connect`].
    pub fn send_to(
        &self,
        process: &impl Descriptors,
        socket: BorrowedFd<'_>,
        to: SocketAddr,
    ) -> Result<Call<()>, Errno> {
        if let Some(mark) = Mark::of(socket) {
            if !mark.has(Mark::DATAGRAMS) {
                return Ok(Call::Kernel);
            }
            let peer = remote_address(socket, mark);
            if peer != Some(in_family(to, mark.has(Mark::IPV6))) {
                return Err(Errno::ISCONN);
            }
            return Ok(Call::Done(()));
        }
        if matches!(self.decide(Direction::Connect, to)?, Decision::Kernel) || !is_udp(socket) {
            return Ok(Call::Kernel);
        }
        if rustix::net::getpeername(socket).is_ok() {
            return Err(Errno::ISCONN);
        }
        self.connect_datagrams(process, socket, None, to)
    }
}

/// Longest time that a flow of datagrams may take. `connect` on a UDP socket does not wait at all
/// in the kernel, so that no program expects it to take long.
const LIMIT: Duration = Duration::from_secs(5);
