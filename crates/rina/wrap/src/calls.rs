//! Carries out the socket calls of a wrapped program.
//!
//! A program creates a TCP socket. The socket belongs to the kernel until `connect` or `bind` names
//! an address; then the rules decide:
//!
//! ```text
//!                    +-- rule: kernel, or none --------------> the TCP socket, untouched
//!  socket() -- connect()
//!                    +-- rule: dif -- flow allocated --------> one end of an AF_UNIX pair; the
//!                    |                              remote program or the node has the other
//!                    +-- refused ----------------------------> the TCP socket, and the error
//!
//!           -- bind() +-- rule: kernel, or none -------------> the TCP socket, untouched
//!                     +-- rule: dif -- name registered ------> the registration: a connection to
//!                                                              the node, on which flows arrive
//! ```
//!
//! A UDP socket becomes a flow of datagrams by `connect` in the same way. By `bind`, or by a second
//! peer, it becomes a relayed socket, which has many peers.
//!
//! The new socket takes the descriptor number of the old one. From then on the kernel alone handles
//! `read`, `write`, `poll`, `dup`, `fork` and descriptor passing.

mod datagrams;
mod listening;

pub use self::datagrams::SendTo;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use carina_api::AppName;
use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{getpeername, getsockname};

use crate::addresses::{UNSPECIFIED, ephemeral_port, in_family, is_of_this_host, of_family};
use crate::mark::Mark;
use crate::name_table::{address_v4, address_v6};
use crate::node::{Allocation, AllocationRequest};
use crate::rule::{Decision, Direction, Rule};
use crate::settings::Settings;
pub use crate::sockets::{AcceptFlags, Descriptors};
use crate::sockets::{events_now, fill, is_tcp, is_udp, labelled_pair, take_over};
use crate::unix_name::label_of;

/// Outcome of a call: Carina has carried it out, or the kernel must.
#[derive(Debug)]
pub enum Call<T> {
    /// The kernel must carry out the call: the socket is not a flow and does not become one.
    Kernel,
    /// Carina has carried out the call, with this result.
    Done(T),
}

impl<T> Call<T> {
    fn map<U>(self, change: impl FnOnce(T) -> U) -> Call<U> {
        match self {
            Call::Kernel => Call::Kernel,
            Call::Done(result) => Call::Done(change(result)),
        }
    }
}

/// A flow that `accept` returns to a program.
#[derive(Debug)]
pub struct Accepted {
    /// The program's end of the flow.
    pub socket: OwnedFd,
    /// The address that stands for the remote program.
    pub peer: SocketAddr,
}

/// Carries out the socket calls of wrapped programs: `connect`, `bind`, `accept` and others. The
/// rules of the settings decide which sockets become flows.
#[derive(Debug, Clone)]
pub struct Wrap {
    settings: Settings,
}

impl Wrap {
    /// Makes a `Wrap` that carries out the socket calls of wrapped programs; the rules of
    /// `settings` decide which sockets become flows.
    pub fn new(settings: Settings) -> Wrap {
        Wrap { settings }
    }

    /// The settings with which this `Wrap` was made.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Path of `carina`, which supervises static programs that a dynamic program starts.
    pub fn carina(&self) -> Option<&Path> {
        self.settings.carina.as_deref()
    }

    /// Path of the node's socket for applications.
    pub(crate) fn node(&self) -> &Path {
        &self.settings.node
    }

    /// Whether a rule makes flows of connections to hosts by their names.
    pub fn has_names(&self) -> bool {
        self.settings.rules.iter().any(Rule::has_names)
    }

    /// Returns the two addresses that stand for a host name in the name table; `None` when no rule
    /// makes flows of connections to it.
    ///
    /// # Errors
    /// The name table is full or cannot be written.
    pub fn lookup(
        &self,
        host: &str,
    ) -> Result<Option<(Ipv4Addr, Ipv6Addr)>, crate::name_table::NameTableError> {
        if !self.settings.names(host) {
            return Ok(None);
        }
        // Whether the name is registered is not known until the program connects.
        let number = self.settings.table().temporary_number(host)?;
        Ok(Some((address_v4(number), address_v6(number))))
    }

    /// `connect`: if a rule makes the address a name, allocates a flow to the name and puts it in
    /// the place of the socket.
    ///
    /// # Errors
    /// As `connect(2)`: `EINPROGRESS` on a socket that does not block when the flow takes longer
    /// than a millisecond.
    pub fn connect(
        &self,
        process: &impl Descriptors,
        socket: BorrowedFd<'_>,
        address: SocketAddr,
    ) -> Result<Call<()>, Errno> {
        let mark = Mark::of(socket);
        if mark.map_or_else(|| is_udp(socket), |mark| mark.has(Mark::DATAGRAMS)) {
            return self.connect_datagrams(process, socket, mark, address);
        }
        if let Some(mark) = mark.filter(|mark| !mark.has(Mark::LISTENER)) {
            return connect_again(socket, mark).map(Call::Done);
        }
        if mark.is_none() && !is_tcp(socket) {
            return Ok(Call::Kernel);
        }
        let (name, dif) = match self.decide(Direction::Connect, address)? {
            Decision::Kernel => return Ok(Call::Kernel),
            Decision::Refuse => return Err(Errno::CONNREFUSED),
            Decision::Flow { name, dif } => (name, dif),
        };
        if mark.is_none() && getpeername(socket).is_ok() {
            return Ok(Call::Kernel);
        }
        let this = self.source(socket, address)?;
        let local = self.name_of_address(this)?;
        let request = AllocationRequest {
            local: &local,
            remote: &name,
            dif: dif.as_ref(),
            filler: 0,
            detached: false,
        };
        let (ours, theirs) = labelled_pair(this, address)?;
        let is_six = Mark::NONE.with_if(address.is_ipv6(), Mark::IPV6);
        if !rustix::fs::fcntl_getfl(socket)?.contains(OFlags::NONBLOCK) {
            let limit = sockopt::socket_timeout(socket, Timeout::Send)
                .ok()
                .flatten();
            let deadline = Instant::now() + limit.unwrap_or(CONNECT_LIMIT);
            let allocation = Allocation::start(&self.settings.node, &request, theirs)?;
            if !allocation.finish(deadline)? {
                return Err(if limit.is_some() {
                    Errno::INPROGRESS
                } else {
                    Errno::TIMEDOUT
                });
            }
            take_over(process, socket, ours, is_six)?;
            return Ok(Call::Done(()));
        }
        let usual = sockopt::socket_send_buffer_size(&ours)?;
        let request = AllocationRequest {
            filler: fill(ours.as_fd())?,
            detached: true,
            ..request
        };
        let allocation = Allocation::start(&self.settings.node, &request, theirs)?;
        let is_allocated = match allocation.finish(Instant::now() + AT_ONCE) {
            Err(Errno::INTR) => false,
            finished => finished?,
        };
        if is_allocated {
            let _ = sockopt::set_socket_send_buffer_size(&ours, usual / 2);
        }
        take_over(
            process,
            socket,
            ours,
            is_six.with_if(!is_allocated, Mark::PENDING),
        )?;
        if is_allocated {
            Ok(Call::Done(()))
        } else {
            Err(Errno::INPROGRESS)
        }
    }

    /// Whether a rule makes `connect` to this address allocate or refuse a flow.
    pub fn connects(&self, socket: BorrowedFd<'_>, address: SocketAddr) -> bool {
        let decision = self.decide(Direction::Connect, address);
        let mark = Mark::of(socket);
        let is_kernels = || mark.is_none() && (is_tcp(socket) || is_udp(socket));
        (mark.is_some_and(|mark| mark.has(Mark::DATAGRAMS)) || is_kernels())
            && matches!(decision, Ok(Decision::Flow { .. } | Decision::Refuse))
    }

    /// Whether a rule makes `bind` to this address register or refuse a name.
    pub fn binds(&self, socket: BorrowedFd<'_>, address: SocketAddr) -> bool {
        let decision = self.decide(Direction::Listen, address);
        Mark::of(socket).is_none()
            && (is_tcp(socket) || is_udp(socket))
            && matches!(decision, Ok(Decision::Flow { .. } | Decision::Refuse))
    }

    /// Returns the host name for which the name table has this address; `None` for any other
    /// address.
    pub fn name(&self, address: IpAddr) -> Option<String> {
        self.settings.table().name(address).ok().flatten()
    }

    /// Returns the address for an application name of the form `HOST:PORT`: the host's address in
    /// the name table, or the address that `HOST` itself is.
    fn address_of_name(&self, name: &str, is_six: bool) -> SocketAddr {
        let (host, port) = name.rsplit_once(':').unwrap_or((name, "0"));
        let port = port.parse().unwrap_or(0);
        if let Ok(ip) = host.parse::<IpAddr>() {
            return SocketAddr::new(of_family(ip, is_six), port);
        }
        let table = self.settings.table();
        // Remote systems give names as they like: these must not fill the table.
        let number = if host == self.settings.host {
            table.number(host)
        } else {
            table.temporary_number(host)
        };
        match number {
            Ok(number) if is_six => SocketAddr::new(address_v6(number).into(), port),
            Ok(number) => SocketAddr::new(address_v4(number).into(), port),
            Err(_) => SocketAddr::new(of_family(UNSPECIFIED.ip(), is_six), port),
        }
    }

    /// Returns the address for the peer of a datagram flow that came from the application `name`. A
    /// host that is an address belongs to the peer only if a rule makes it a flow: otherwise the
    /// program could take the peer for a host of the kernel's network.
    pub(crate) fn address_of_peer(&self, name: &str, is_six: bool) -> SocketAddr {
        let address = self.address_of_name(name, is_six);
        let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
        let is_kernels = host.parse::<IpAddr>().is_ok()
            && !matches!(
                self.decide(Direction::Connect, address),
                Ok(Decision::Flow { .. })
            );
        let address = if is_kernels {
            let host = host.replace(['.', ':'], "-");
            self.address_of_name(&format!("peer-{host}:{}", address.port()), is_six)
        } else {
            address
        };
        SocketAddr::new(address.ip().to_canonical(), address.port())
    }

    /// Returns the application name under which this program requests flows from `address`.
    pub(crate) fn name_of_address(&self, address: SocketAddr) -> Result<AppName, Errno> {
        let table = self.settings.table();
        let host = match table.name(address.ip()).ok().flatten() {
            Some(host) => host,
            None if is_of_this_host(address.ip()) => self.settings.host.clone(),
            None => address.ip().to_canonical().to_string(),
        };
        AppName::new(format!("{host}:{}", address.port())).map_err(|_| Errno::NAMETOOLONG)
    }

    /// Replaces the wildcard address by the address of this host in the name table; returns any
    /// other address unchanged.
    fn concrete(&self, address: SocketAddr) -> SocketAddr {
        if !address.ip().is_unspecified() {
            return address;
        }
        let mut of_host = self.address_of_name(&self.settings.host, address.is_ipv6());
        of_host.set_port(address.port());
        of_host
    }

    /// Returns the source address of a connection: the address to which the socket is bound,
    /// otherwise the address of this host with an ephemeral port.
    fn source(&self, socket: BorrowedFd<'_>, to: SocketAddr) -> Result<SocketAddr, Errno> {
        let bound = match label_of(socket) {
            Some(label) => Some(label.this),
            None => getsockname(socket)
                .ok()
                .and_then(|name| SocketAddr::try_from(name).ok()),
        };
        let mut source = match bound {
            Some(address) if !address.ip().is_unspecified() => address,
            _ if to.ip().to_canonical().is_loopback() => SocketAddr::new(to.ip(), 0),
            _ => self.concrete(SocketAddr::new(
                of_family(UNSPECIFIED.ip(), to.is_ipv6()),
                0,
            )),
        };
        source.set_port(match bound.map_or(0, |address| address.port()) {
            0 => ephemeral_port()?,
            port => port,
        });
        Ok(source)
    }

    pub(crate) fn decide(
        &self,
        direction: Direction,
        address: SocketAddr,
    ) -> Result<Decision, Errno> {
        let decision = self.settings.decide(direction, address);
        decision.map_err(|_| Errno::NAMETOOLONG)
    }
}

/// Returns the address of this end of a flow or registration, in the family that the program
/// expects; `None` if the socket has no label.
pub fn local_address(socket: BorrowedFd<'_>, mark: Mark) -> Option<SocketAddr> {
    let label = label_of(socket)?;
    Some(in_family(label.this, mark.has(Mark::IPV6)))
}

/// Returns the address of the remote end of a flow, in the family that the program expects; `None`
/// for a registration.
pub fn remote_address(socket: BorrowedFd<'_>, mark: Mark) -> Option<SocketAddr> {
    let label = label_of(socket)?;
    Some(in_family(label.other?, mark.has(Mark::IPV6)))
}

/// Returns the value of `SO_ERROR` of a flow or registration: the outcome of a flow that `connect`
/// requested without waiting, otherwise the kernel's value.
///
/// # Errors
/// The kernel's refusal.
pub fn take_error(socket: BorrowedFd<'_>, mark: Mark) -> Result<Option<Errno>, Errno> {
    if mark.has(Mark::PENDING) {
        let refused = matches!(check_pending(socket, mark)?, Pending::Refused);
        return Ok(refused.then_some(Errno::CONNREFUSED));
    }
    Ok(sockopt::socket_error(socket)?.err())
}

/// Whether this socket is a flow that exists: false for a registration, for a flow that failed, and
/// while the node has not allocated the flow yet.
pub fn is_connected(socket: BorrowedFd<'_>, mark: Mark) -> bool {
    if mark.has(Mark::LISTENER) || mark.has(Mark::FAILED) {
        return false;
    }
    !mark.has(Mark::PENDING) || matches!(check_pending(socket, mark), Ok(Pending::Allocated))
}

/// Whether a send that failed with `EPIPE` is the first one after the remote end has closed this
/// stream. TCP takes the bytes of the first send, and learns only then that nothing reads them.
pub fn is_first_after_close(socket: BorrowedFd<'_>, mark: Mark) -> bool {
    let kinds = [
        Mark::LISTENER,
        Mark::PENDING,
        Mark::FAILED,
        Mark::DATAGRAMS,
        Mark::DISCARDED,
    ];
    !kinds.into_iter().any(|kind| mark.has(kind))
        // Without a hang-up the program itself has ended its direction of the stream.
        && events_now(socket).is_ok_and(|events| events.contains(PollFlags::HUP))
}

/// State of a flow that `connect` requested without waiting.
enum Pending {
    /// The library has requested the flow, and the node has not answered yet.
    Requested,
    /// The flow exists.
    Allocated,
    /// The node refused the flow.
    Refused,
}

/// Returns the state of a flow that `connect` requested without waiting, and updates the mark.
fn check_pending(socket: BorrowedFd<'_>, mark: Mark) -> Result<Pending, Errno> {
    let events = events_now(socket)?;
    if !events.intersects(PollFlags::OUT | PollFlags::HUP | PollFlags::ERR) {
        return Ok(Pending::Requested);
    }
    let answered = mark.without(Mark::PENDING);
    if !events.intersects(PollFlags::HUP | PollFlags::ERR) {
        answered.set(socket)?;
        sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER_BYTES)?;
        return Ok(Pending::Allocated);
    }
    answered.with(Mark::FAILED).set(socket)?;
    // The node closes the other end with unread bytes, which the kernel reports as a reset.
    let _ = sockopt::socket_error(socket)?;
    Ok(Pending::Refused)
}

/// `connect` on a socket that is a flow already: returns the outcome of the earlier `connect`.
fn connect_again(socket: BorrowedFd<'_>, mark: Mark) -> Result<(), Errno> {
    if mark.has(Mark::FAILED) {
        return Err(Errno::CONNABORTED);
    }
    if !mark.has(Mark::PENDING) {
        return Err(Errno::ISCONN);
    }
    match check_pending(socket, mark)? {
        Pending::Requested => Err(Errno::ALREADY),
        Pending::Allocated => Ok(()),
        Pending::Refused => Err(Errno::CONNREFUSED),
    }
}

/// Longest time that `connect` waits on a blocking socket without `SO_SNDTIMEO`: longer than a node
/// waits for the remote application.
const CONNECT_LIMIT: Duration = Duration::from_secs(120);

/// Longest time that `connect` waits on a non-blocking socket. It is enough for a flow within the
/// host, so that most programs need not wait themselves.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Size of the send buffer of a socket whose flow exists, in bytes: the kernel's usual one.
const SEND_BUFFER_BYTES: usize = 106_496;
