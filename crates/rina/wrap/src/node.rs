//! The messages that a wrapped program exchanges with its node.
//!
//! No call leaves a descriptor open that the program does not know. Each request uses a connection
//! of its own, which is closed after the answer. Only the connection of a registration stays open:
//! it is the program's listening socket.

use std::cell::Cell;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carina_api::ipc::{self, Flow, MESSAGE_BYTES_MAX, Mode, Reply, Request, VERSION};
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec};
use carina_sys::{send_with_fds, unread_bytes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, shutdown, socket_with,
};

use crate::label::Label;
use crate::unix_name::bind_label;

/// A flow that was requested from the node and not answered yet.
pub(crate) struct Allocation {
    connection: OwnedFd,
}

/// The flow that a program requests from the node.
pub(crate) struct AllocationRequest<'a> {
    pub local: &'a AppName,
    pub remote: &'a AppName,
    pub dif: Option<&'a DifName>,
    /// Number of filler bytes that the node reads off the attached socket before it passes the
    /// socket on.
    pub filler: u32,
    /// Whether the allocation continues when its connection to the node is closed.
    pub detached: bool,
}

impl AllocationRequest<'_> {
    fn message(&self, spec: FlowSpec, mode: Mode) -> Request {
        Request::Allocate {
            version: VERSION,
            local: self.local.clone(),
            remote: self.remote.clone(),
            dif: self.dif.cloned(),
            spec,
            mode,
            membarrier: false,
            ring_bytes: None,
            filler: self.filler,
            detached: self.detached,
            closes: true,
        }
    }
}

impl Allocation {
    /// Requests a flow and attaches the socket `end`, which becomes the flow's end at the node.
    /// Does not wait for the answer.
    pub(crate) fn start(
        node: &Path,
        request: &AllocationRequest<'_>,
        end: OwnedFd,
    ) -> Result<Allocation, Errno> {
        let connection = connection(None)?;
        connect_to_node(&connection, node)?;
        let request = request.message(FlowSpec::reliable(), Mode::Stream);
        send(connection.as_fd(), &request, &[end.as_fd()])?;
        Ok(Allocation { connection })
    }

    /// Waits for the answer until `deadline`; returns false if the node has not answered by then.
    ///
    /// # Errors
    /// Why there is no flow; `EINTR` when a signal arrived first.
    pub(crate) fn finish(&self, deadline: Instant) -> Result<bool, Errno> {
        if !wait_readable(self.connection.as_fd(), deadline)? {
            return Ok(false);
        }
        match receive(self.connection.as_fd(), RecvFlags::DONTWAIT)? {
            Some((Reply::Flow(_), _)) => Ok(true),
            Some((Reply::Error(refusal), _)) => Err(errno(&refusal.error)),
            Some(_) => Err(Errno::PROTO),
            None => Err(Errno::CONNABORTED),
        }
    }
}

/// A flow of datagrams that a program needs.
#[derive(Debug, Clone)]
pub(crate) struct DatagramRequest {
    pub local: AppName,
    pub name: AppName,
    pub dif: Option<DifName>,
}

/// An unreliable flow that was requested from the node and not answered yet. It is requested by the
/// name of a wrapped UDP server first ([`datagram_name`]), then by the plain name, which a server
/// behind `carina expose udp` has.
pub(crate) struct DatagramAllocation {
    connection: OwnedFd,
    node: PathBuf,
    request: DatagramRequest,
    is_second: bool,
}

impl DatagramAllocation {
    /// Requests the flow. Does not wait for the answer.
    pub(crate) fn start(
        node: &Path,
        request: DatagramRequest,
    ) -> Result<DatagramAllocation, Errno> {
        let name = datagram_name(&request.name)?;
        Ok(DatagramAllocation {
            connection: Self::request(node, &request, &name)?,
            node: node.to_owned(),
            request,
            is_second: false,
        })
    }

    fn request(node: &Path, request: &DatagramRequest, remote: &AppName) -> Result<OwnedFd, Errno> {
        let connection = connection(None)?;
        connect_to_node(&connection, node)?;
        let request = AllocationRequest {
            local: &request.local,
            remote,
            dif: request.dif.as_ref(),
            filler: 0,
            detached: false,
        };
        let message = request.message(FlowSpec::unreliable(), Mode::Socket);
        send(connection.as_fd(), &message, &[])?;
        Ok(connection)
    }

    /// Returns the program's end of the flow; `None` if the node has not answered yet. After
    /// `None`, the descriptor to wait for may be another one.
    ///
    /// # Errors
    /// Why there is no flow.
    pub(crate) fn try_finish(&mut self) -> Result<Option<OwnedFd>, Errno> {
        match receive(self.connection.as_fd(), RecvFlags::DONTWAIT) {
            Ok(Some((Reply::Flow(_), Some(end)))) => Ok(Some(end)),
            Ok(Some((Reply::Flow(_), None))) => Err(Errno::MFILE),
            Ok(Some((Reply::Error(refusal), _))) => {
                if self.is_second || refusal.error.code != ErrorCode::UnknownName {
                    return Err(errno(&refusal.error));
                }
                self.is_second = true;
                self.connection = Self::request(&self.node, &self.request, &self.request.name)?;
                Ok(None)
            }
            Ok(Some(_)) => Err(Errno::PROTO),
            Ok(None) => Err(Errno::CONNABORTED),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for the answer until `deadline`, and returns the program's end of the flow.
    ///
    /// # Errors
    /// As [`DatagramAllocation::try_finish`]; `ETIMEDOUT` if the node has not answered by then.
    pub(crate) fn finish(mut self, deadline: Instant) -> Result<OwnedFd, Errno> {
        loop {
            if !wait_readable(self.connection.as_fd(), deadline)? {
                return Err(Errno::TIMEDOUT);
            }
            if let Some(end) = self.try_finish()? {
                return Ok(end);
            }
        }
    }
}

impl AsFd for DatagramAllocation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// Returns the name under which a wrapped UDP server is registered. A TCP server on the same port
/// has the plain name.
pub(crate) fn datagram_name(name: &AppName) -> Result<AppName, Errno> {
    AppName::new(format!("{name}/udp")).map_err(|_| Errno::NAMETOOLONG)
}

/// Registers a name whose flows the caller accepts one by one, and waits for the answer.
pub(crate) fn register_datagrams(
    node: &Path,
    name: &AppName,
    dif: Option<&DifName>,
) -> Result<OwnedFd, Errno> {
    register_on(connection(None)?, node, name, dif, [false, false])
}

/// Registers a name and waits for the answer. The node accepts flows to the name after [`listen`];
/// each flow arrives as one message with a descriptor.
pub(crate) fn register(
    node: &Path,
    label: Label,
    name: &AppName,
    dif: Option<&DifName>,
    shared: bool,
) -> Result<OwnedFd, Errno> {
    register_on(connection(Some(label))?, node, name, dif, [true, shared])
}

fn register_on(
    connection: OwnedFd,
    node: &Path,
    name: &AppName,
    dif: Option<&DifName>,
    [streams, shared]: [bool; 2],
) -> Result<OwnedFd, Errno> {
    connect_to_node(&connection, node)?;
    let request = Request::Register {
        version: VERSION,
        name: name.clone(),
        dif: dif.cloned(),
        streams,
        shared,
    };
    send(connection.as_fd(), &request, &[])?;
    let deadline = Instant::now() + REGISTRATION_LIMIT;
    if !wait_readable(connection.as_fd(), deadline)? {
        return Err(Errno::TIMEDOUT);
    }
    match receive(connection.as_fd(), RecvFlags::DONTWAIT)? {
        Some((Reply::Registered(_), _)) => Ok(connection),
        Some((Reply::Error(refusal), _)) => Err(match refusal.error.code {
            ErrorCode::DuplicateName => Errno::ADDRINUSE,
            ErrorCode::AccessDenied => Errno::ACCESS,
            _ => Errno::ADDRNOTAVAIL,
        }),
        Some(_) => Err(Errno::PROTO),
        None => Err(Errno::CONNABORTED),
    }
}

/// Tells the node to accept flows for a registration from now on, and waits until the node has read
/// that: a client that connects after `listen` has returned must not be refused.
pub(crate) fn listen(registration: BorrowedFd<'_>) -> Result<(), Errno> {
    send(registration, &Request::Listen {}, &[])?;
    let limit = Instant::now() + NODE_LIMIT;
    while unread_bytes(registration).is_ok_and(|bytes| bytes > 0) && Instant::now() < limit {
        std::thread::sleep(UNREAD_PAUSE);
    }
    Ok(())
}

/// Withdraws a registered name, and waits until the node has done so: the same program may register
/// the name again at once.
pub(crate) fn unregister(registration: &OwnedFd) {
    let limit = Instant::now() + NODE_LIMIT;
    if shutdown(registration, Shutdown::Write).is_err() {
        return;
    }
    // The node closes its end after it has withdrawn the name.
    while wait_readable(registration.as_fd(), limit) != Ok(false) {
        match receive(registration.as_fd(), RecvFlags::DONTWAIT) {
            Ok(Some(_)) | Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(None) | Err(_) => return,
        }
    }
}

/// Receives the next flow of a registration. Without `flags` the call waits unless the descriptor
/// is non-blocking.
///
/// # Errors
/// `EAGAIN`, `EINTR`; `ENETDOWN` when the node has ended.
pub(crate) fn accept(
    registration: BorrowedFd<'_>,
    flags: RecvFlags,
) -> Result<(Flow, OwnedFd), Errno> {
    for _ in 0..OTHER_MESSAGES_MAX {
        match receive(registration, flags)? {
            Some((Reply::Flow(flow), Some(end))) => return Ok((flow, end)),
            // The remote program gave up, or this process had no free descriptor for the flow.
            Some(_) => {}
            None => return Err(Errno::NETDOWN),
        }
    }
    Err(Errno::AGAIN)
}

fn connection(label: Option<Label>) -> Result<OwnedFd, Errno> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let connection = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    if let Some(label) = label {
        bind_label(connection.as_fd(), label)?;
    }
    Ok(connection)
}

fn connect_to_node(connection: &OwnedFd, node: &Path) -> Result<(), Errno> {
    // The send timeout also limits how long connect(2) waits for a place in a full queue.
    set_socket_timeout(connection, Timeout::Send, Some(NODE_LIMIT))?;
    connect(connection, &SocketAddrUnix::new(node)?).map_err(|error| match error {
        Errno::NOENT | Errno::CONNREFUSED => Errno::NETUNREACH,
        Errno::AGAIN => Errno::TIMEDOUT,
        error => error,
    })
}

/// Sends a request to the node.
pub(crate) fn send(
    to: BorrowedFd<'_>,
    request: &Request,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let bytes = ipc::encode(request).map_err(|_| Errno::MSGSIZE)?;
    let sent = send_with_fds(to, &bytes, fds);
    sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
}

/// Receives one message and its descriptor; `None` at the end of the connection. A malformed
/// message is `EPROTO`. Unlike `recv_with_fds` the call returns `EINTR` when a signal arrives,
/// because the program's `accept` or `connect` must then end with it.
pub(crate) fn receive(
    from: BorrowedFd<'_>,
    flags: RecvFlags,
) -> Result<Option<(Reply, Option<OwnedFd>)>, Errno> {
    let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
    buffer.resize(MESSAGE_BYTES_MAX, 0);
    let received = receive_into(&mut buffer, from, flags);
    // At the end of a thread the buffer is not kept.
    let _ = BUFFER.try_with(|kept| kept.set(buffer));
    received
}

fn receive_into(
    buffer: &mut [u8],
    from: BorrowedFd<'_>,
    flags: RecvFlags,
) -> Result<Option<(Reply, Option<OwnedFd>)>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(from, &mut slices, &mut control, flags)?;
    let mut end = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut rights) = message {
            end = rights.next();
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let reply = ipc::decode(&buffer[..received.bytes]).map_err(|_| Errno::PROTO)?;
    Ok(Some((reply, end)))
}

/// Waits until a connection is readable; false if it is not by `deadline`.
pub(crate) fn wait_readable(connection: BorrowedFd<'_>, deadline: Instant) -> Result<bool, Errno> {
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
    let mut fds = [PollFd::from_borrowed_fd(connection, PollFlags::IN)];
    Ok(poll(&mut fds, Some(&limit))? > 0)
}

/// Converts the reason for a refused flow to the error that `connect` returns to the program.
fn errno(error: &ErrorBody) -> Errno {
    match error.code {
        ErrorCode::TimedOut => Errno::TIMEDOUT,
        ErrorCode::LinkDown => Errno::NETUNREACH,
        ErrorCode::AccessDenied => Errno::ACCESS,
        ErrorCode::NotFound | ErrorCode::SpecNotMet => Errno::HOSTUNREACH,
        ErrorCode::LimitReached => Errno::AGAIN,
        _ => Errno::CONNREFUSED,
    }
}

thread_local! {
    /// The buffer of [`receive`], so that its pages are not requested from the system, and returned
    /// to the system, with each message.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Longest time that the node may take to accept a connection or a message.
const NODE_LIMIT: Duration = Duration::from_secs(10);

/// Pause before looking again whether the node has read a message, which has no answer.
const UNREAD_PAUSE: Duration = Duration::from_micros(20);

/// Longest time that the node may take to register a name.
const REGISTRATION_LIMIT: Duration = Duration::from_secs(30);

/// Largest number of messages without a flow that one call of `accept` skips.
const OTHER_MESSAGES_MAX: usize = 64;
