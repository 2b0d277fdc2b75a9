//! Sockets that listen: `bind`, `listen` and `accept`.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use carina_api::{AppName, DifName};
use rustix::io::Errno;
use rustix::net::{RecvFlags, sockopt};

use super::{AcceptFlags, Accepted, Call, Wrap, remote_address};
use crate::addresses::{UNSPECIFIED, ephemeral_port};
use crate::label::Label;
use crate::mark::Mark;
use crate::node;
use crate::rule::{Decision, Direction};
use crate::sockets::{Descriptors, is_tcp, is_udp, set_flags, take_over, unbound_address};
use crate::unix_name::{bind_label, label_of};

impl Wrap {
    /// `bind`: if a rule makes the address a name, registers the name and puts the registration in
    /// the place of the socket.
    ///
    /// # Errors
    /// As `bind(2)`: `EADDRINUSE` when the name is taken, `EACCES` when a rule forbids it.
    pub fn bind(
        &self,
        process: &impl Descriptors,
        socket: BorrowedFd<'_>,
        address: SocketAddr,
    ) -> Result<Call<()>, Errno> {
        if Mark::of(socket).is_some() {
            return Err(Errno::INVAL);
        }
        if is_udp(socket) {
            return self.bind_datagrams(process, socket, address);
        }
        if !is_tcp(socket) {
            return Ok(Call::Kernel);
        }
        let shared = sockopt::socket_reuseport(socket).unwrap_or(false);
        let node = &self.settings.node;
        let is_six_only = is_six_only(socket);
        let has_six_only = |name: &AppName| {
            address.is_ipv4() && process.any(&|other| self.is_six_only_at(other, name))
        };
        let register = |this, name: &AppName, dif: Option<&DifName>| {
            let label = Label { this, other: None };
            node::register(node, label, name, dif, shared)
        };
        let registered = self.at_free_port(address, is_six_only, has_six_only, register)?;
        let Call::Done((registration, has_both)) = registered else {
            return Ok(Call::Kernel);
        };
        let mark = Mark::LISTENER
            .with_if(address.is_ipv6(), Mark::IPV6)
            .with_if(is_six_only && has_both, Mark::BOTH);
        take_over(process, socket, registration, mark)?;
        Ok(Call::Done(()))
    }

    /// Whether a socket of the program is for IPv6 only and has the name that a socket for IPv4 at
    /// its port would get.
    fn is_six_only_at(&self, socket: BorrowedFd<'_>, name: &AppName) -> bool {
        let wanted = Mark::LISTENER.with(Mark::V6ONLY).with(Mark::BOTH);
        let is_wanted = Mark::of(socket).is_some_and(|mark| mark.has(wanted));
        let label = is_wanted.then(|| label_of(socket)).flatten();
        label.is_some_and(|label| {
            matches!(self.decide(Direction::Listen, label.this),
                Ok(Decision::Flow { name: of_socket, .. }) if of_socket == *name)
        })
    }

    /// Registers the name that the rules have for an address; for port 0, tries several ports until
    /// one is free. If the name is taken, a socket for IPv6 only gets the name with `/ipv6`, and a
    /// socket beside one for IPv6 only (`has_six_only`) the name with `/ipv4`. Returns what was
    /// registered, and whether under the name of the rules.
    pub(super) fn at_free_port<T>(
        &self,
        address: SocketAddr,
        is_six_only: bool,
        has_six_only: impl Fn(&AppName) -> bool,
        register: impl Fn(SocketAddr, &AppName, Option<&DifName>) -> Result<T, Errno>,
    ) -> Result<Call<(T, bool)>, Errno> {
        let attempts = if address.port() == 0 {
            PORT_ATTEMPTS
        } else {
            1
        };
        let mut result = Err(Errno::ADDRINUSE);
        for _ in 0..attempts {
            let mut address = address;
            if address.port() == 0 {
                address.set_port(ephemeral_port()?);
            }
            let (name, dif) = match self.decide(Direction::Listen, address)? {
                Decision::Kernel => return Ok(Call::Kernel),
                Decision::Refuse => return Err(Errno::ACCESS),
                Decision::Flow { name, dif } => (name, dif),
            };
            result = register(address, &name, dif.as_ref()).map(|done| (done, true));
            let is_taken = matches!(result, Err(Errno::ADDRINUSE));
            if is_taken && (is_six_only || has_six_only(&name)) {
                // A server with a socket for each family has given the name to the other one.
                let family = if is_six_only { "ipv6" } else { "ipv4" };
                let name = AppName::new(format!("{name}/{family}"));
                let name = name.map_err(|_| Errno::NAMETOOLONG)?;
                result = register(address, &name, dif.as_ref()).map(|done| (done, false));
            }
            if !matches!(result, Err(Errno::ADDRINUSE)) {
                break;
            }
        }
        result.map(Call::Done)
    }

    /// `listen`: tells the node to accept flows to the registered name from now on.
    ///
    /// # Errors
    /// As `listen(2)`.
    pub fn listen(
        &self,
        process: &impl Descriptors,
        socket: BorrowedFd<'_>,
    ) -> Result<Call<()>, Errno> {
        match Mark::of(socket) {
            Some(mark) if mark.has(Mark::LISTENER) => {}
            Some(mark) if mark.has(Mark::DATAGRAMS) => return Err(Errno::OPNOTSUPP),
            Some(_) => return Err(Errno::INVAL),
            None => {
                // A socket without an address gets the wildcard address and a free port.
                let Some(address) = unbound_address(socket) else {
                    return Ok(Call::Kernel);
                };
                match self.bind(process, socket, address)? {
                    Call::Kernel => return Ok(Call::Kernel),
                    Call::Done(()) => {}
                }
            }
        }
        node::listen(socket)?;
        if let Some(mark) = Mark::of(socket) {
            mark.with(Mark::ACCEPTING).set(socket)?;
        }
        Ok(Call::Done(()))
    }

    /// `accept`: returns the next flow to the registered name. Waits for it if the socket blocks.
    ///
    /// # Errors
    /// As `accept(2)`; `ENETDOWN` when the node has ended.
    pub fn accept(
        &self,
        socket: BorrowedFd<'_>,
        flags: AcceptFlags,
    ) -> Result<Call<Accepted>, Errno> {
        self.accept_by(socket, flags, RecvFlags::empty())
    }

    /// Like [`Wrap::accept`], but without waiting, whatever the descriptor's own flags say.
    ///
    /// # Errors
    /// As [`Wrap::accept`]; `EAGAIN` when no flow waits.
    pub fn accept_now(
        &self,
        socket: BorrowedFd<'_>,
        flags: AcceptFlags,
    ) -> Result<Call<Accepted>, Errno> {
        self.accept_by(socket, flags, RecvFlags::DONTWAIT)
    }

    fn accept_by(
        &self,
        socket: BorrowedFd<'_>,
        flags: AcceptFlags,
        receive: RecvFlags,
    ) -> Result<Call<Accepted>, Errno> {
        let Some(mark) = Mark::of(socket) else {
            return Ok(Call::Kernel);
        };
        if !mark.has(Mark::LISTENER.with(Mark::ACCEPTING)) {
            return Err(Errno::INVAL);
        }
        let (flow, end) = node::accept(socket, receive)?;
        if label_of(end.as_fd()).is_none() {
            let this = self.concrete(label_of(socket).ok_or(Errno::INVAL)?.this);
            let other = Some(self.address_of_name(flow.remote.as_str(), this.is_ipv6()));
            // If the label cannot be bound, the program only gets no address; the flow still works.
            let _ = bind_label(end.as_fd(), Label { this, other });
        }
        let of_family = Mark::NONE.with_if(mark.has(Mark::IPV6), Mark::IPV6);
        of_family.set(end.as_fd())?;
        set_flags(end.as_fd(), flags)?;
        let peer = remote_address(end.as_fd(), of_family).unwrap_or(UNSPECIFIED);
        Ok(Call::Done(Accepted { socket: end, peer }))
    }
}

/// Whether a socket that has no address yet is for IPv6 only.
pub(super) fn is_six_only(socket: BorrowedFd<'_>) -> bool {
    sockopt::ipv6_v6only(socket) == Ok(true)
}

/// Number of ports that are tried for a socket that asks for no port.
const PORT_ATTEMPTS: usize = 16;
