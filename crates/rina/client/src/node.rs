//! The node of this system, as an application uses it.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use carina_api::ipc::{Mode, Request, VERSION};
use carina_api::paths::RunDir;
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec};

use crate::error::Error;
use crate::flow::{Flow, SocketFlow, StreamFlow};
use crate::ipc::{self, Connection};
use crate::registration::{PendingRegistration, Registration};

/// Access to a node. It holds no connection: each registration and each allocation opens its own.
#[derive(Clone, Debug)]
pub struct Node {
    socket: PathBuf,
    ring_bytes: Option<u64>,
    answer_limit: Duration,
}

/// A flow that was requested from the node, in ring mode; its answer has not been read yet.
#[derive(Debug)]
pub struct Allocation {
    connection: Connection,
}

/// A flow that was requested from the node, in socket mode; its answer has not been read yet.
#[derive(Debug)]
pub struct SocketAllocation {
    connection: Connection,
}

/// A flow that was requested from the node, in stream mode; its answer has not been read yet.
#[derive(Debug)]
pub struct StreamAllocation {
    connection: Connection,
}

impl Node {
    /// Finds the node of this system. Its socket is `ipc.sock` in `$CARINA_RUN` if set, in
    /// `/run/carina` for root, otherwise in `$XDG_RUNTIME_DIR/carina`, otherwise in
    /// `/tmp/carina-UID`.
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`] when nothing listens there.
    pub fn connect() -> Result<Node, Error> {
        Node::connect_to(RunDir::from_env().ipc_sock())
    }

    /// Finds the node that listens on `socket`.
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`] when nothing listens there.
    pub fn connect_to(socket: impl AsRef<Path>) -> Result<Node, Error> {
        Node::connect_within(socket, ANSWER_LIMIT)
    }

    /// Finds the node that listens on `socket`. The node has `answer_limit` to answer this call and
    /// each later call. An allocation also waits for the remote application, for up to `answer_ms`
    /// of the node's configuration (default: 10 s).
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`] when nothing listens there.
    pub fn connect_within(socket: impl AsRef<Path>, answer_limit: Duration) -> Result<Node, Error> {
        let socket = socket.as_ref().to_path_buf();
        Connection::open(&socket, answer_limit)?;
        Ok(Node {
            socket,
            ring_bytes: None,
            answer_limit,
        })
    }

    /// Sets the ring size of flows that are allocated through this value, in bytes per direction: a
    /// power of two from 4 KiB to 64 MiB. The default is `limits.ring_bytes` of the node's
    /// configuration, which is 1 MiB unless the processor is emulated.
    #[must_use]
    pub fn with_ring_bytes(mut self, ring_bytes: u64) -> Node {
        self.ring_bytes = Some(ring_bytes);
        self
    }

    /// Registers the application name `name` in `dif`; `None` for all DIFs. Waits for the node's
    /// answer.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the name is taken, the DIF is unknown, the DIF's directory is full,
    /// or an access rule forbids the registration.
    pub fn register(&self, name: &AppName, dif: Option<&DifName>) -> Result<Registration, Error> {
        self.start_register(name, dif)?.finish()
    }

    /// Requests a registration like [`Self::register`], but does not wait for the answer.
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`] when no node listens any more.
    pub fn start_register(
        &self,
        name: &AppName,
        dif: Option<&DifName>,
    ) -> Result<PendingRegistration, Error> {
        let connection = Connection::open(&self.socket, self.answer_limit)?;
        PendingRegistration::new(connection, name, dif)
    }

    /// Allocates a flow from `local`, which need not be registered, to `remote`. It uses `dif`, or
    /// the first DIF that knows `remote`. Waits for the answer of the remote application.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when `remote` is not registered, no DIF meets `spec`, an access rule
    /// forbids the flow, or the remote application refuses it.
    pub fn allocate(
        &self,
        local: &AppName,
        remote: &AppName,
        dif: Option<&DifName>,
        spec: &FlowSpec,
    ) -> Result<Flow, Error> {
        self.start_allocate(local, remote, dif, spec)?.finish()
    }

    /// Requests a flow like [`Self::allocate`], but does not wait for the answer.
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`] when no node listens any more.
    pub fn start_allocate(
        &self,
        local: &AppName,
        remote: &AppName,
        dif: Option<&DifName>,
        spec: &FlowSpec,
    ) -> Result<Allocation, Error> {
        self.ask(local, remote, dif, spec, Mode::Ring)
            .map(|connection| Allocation { connection })
    }

    /// Allocates a flow that uses a socket in place of rings; see [`SocketFlow`].
    ///
    /// # Errors
    ///
    /// As for [`Self::allocate`].
    pub fn allocate_socket(
        &self,
        local: &AppName,
        remote: &AppName,
        dif: Option<&DifName>,
        spec: &FlowSpec,
    ) -> Result<SocketFlow, Error> {
        self.start_allocate_socket(local, remote, dif, spec)?
            .finish()
    }

    /// Requests a flow like [`Self::allocate_socket`], but does not wait for the answer.
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`] when the node has gone.
    pub fn start_allocate_socket(
        &self,
        local: &AppName,
        remote: &AppName,
        dif: Option<&DifName>,
        spec: &FlowSpec,
    ) -> Result<SocketAllocation, Error> {
        self.ask(local, remote, dif, spec, Mode::Socket)
            .map(|connection| SocketAllocation { connection })
    }

    /// Allocates a flow that is a byte stream; see [`StreamFlow`]. `spec` must ask for a flow that
    /// is reliable and in order.
    ///
    /// `attached` is a connected stream socket (one end of a pair, or a TCP connection) that
    /// becomes this end of the flow. The node moves its bytes. If the other application is on this
    /// system, the node may pass the socket to that application instead. If `attached` is `None`,
    /// the node creates a socket, and the result contains it.
    ///
    /// # Errors
    ///
    /// As for [`Self::allocate`]; also [`Error::Refused`] when `attached` is not a connected stream
    /// socket.
    pub fn allocate_stream(
        &self,
        local: &AppName,
        remote: &AppName,
        dif: Option<&DifName>,
        spec: &FlowSpec,
        attached: Option<OwnedFd>,
    ) -> Result<StreamFlow, Error> {
        self.start_allocate_stream(local, remote, dif, spec, attached)?
            .finish()
    }

    /// Requests a flow like [`Self::allocate_stream`], but does not wait for the answer.
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`] when no node listens any more.
    pub fn start_allocate_stream(
        &self,
        local: &AppName,
        remote: &AppName,
        dif: Option<&DifName>,
        spec: &FlowSpec,
        attached: Option<OwnedFd>,
    ) -> Result<StreamAllocation, Error> {
        let mut connection = Connection::open(&self.socket, self.answer_limit)?;
        let request = self.request(local, remote, dif, spec, Mode::Stream);
        connection.send_attaching(&request, attached)?;
        Ok(StreamAllocation { connection })
    }

    pub(crate) fn ask(
        &self,
        local: &AppName,
        remote: &AppName,
        dif: Option<&DifName>,
        spec: &FlowSpec,
        mode: Mode,
    ) -> Result<Connection, Error> {
        let mut connection = Connection::open(&self.socket, self.answer_limit)?;
        connection.send_request(&self.request(local, remote, dif, spec, mode))?;
        Ok(connection)
    }

    fn request(
        &self,
        local: &AppName,
        remote: &AppName,
        dif: Option<&DifName>,
        spec: &FlowSpec,
        mode: Mode,
    ) -> Request {
        Request::Allocate {
            version: VERSION,
            local: local.clone(),
            remote: remote.clone(),
            dif: dif.cloned(),
            spec: *spec,
            mode,
            membarrier: mode == Mode::Ring && ipc::membarrier(),
            ring_bytes: self.ring_bytes.filter(|_| mode == Mode::Ring),
            filler: 0,
            detached: false,
            closes: false,
        }
    }
}

impl Allocation {
    /// Waits for the answer and returns the flow.
    ///
    /// # Errors
    ///
    /// As for [`Node::allocate`].
    pub fn finish(mut self) -> Result<Flow, Error> {
        ipc::ring_flow(self.connection.receive(ALLOCATION)?)
    }

    /// Returns the flow if the answer has arrived, otherwise `None`. After a flow or an error the
    /// allocation has ended; drop it then.
    ///
    /// # Errors
    ///
    /// As for [`Node::allocate`].
    pub fn try_finish(&mut self) -> Result<Option<Flow>, Error> {
        self.connection.try_hear()?.map(ipc::ring_flow).transpose()
    }
}

impl AsFd for Allocation {
    /// The descriptor is readable when the answer has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl StreamAllocation {
    /// Waits for the answer and returns the flow.
    ///
    /// # Errors
    ///
    /// As for [`Node::allocate_stream`].
    pub fn finish(mut self) -> Result<StreamFlow, Error> {
        ipc::stream_flow(self.connection.receive(ALLOCATION)?)
    }

    /// Returns the flow if the answer has arrived, otherwise `None`. After a flow or an error the
    /// allocation has ended; drop it then.
    ///
    /// # Errors
    ///
    /// As for [`Node::allocate_stream`].
    pub fn try_finish(&mut self) -> Result<Option<StreamFlow>, Error> {
        let answer = self.connection.try_hear()?;
        answer.map(ipc::stream_flow).transpose()
    }
}

impl AsFd for StreamAllocation {
    /// The descriptor is readable when the answer has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl SocketAllocation {
    /// Waits for the answer and returns the flow.
    ///
    /// # Errors
    ///
    /// As for [`Node::allocate_socket`].
    pub fn finish(mut self) -> Result<SocketFlow, Error> {
        ipc::socket_flow(self.connection.receive(ALLOCATION)?)
    }

    /// Returns the flow if the answer has arrived, otherwise `None`. After a flow or an error the
    /// allocation has ended; drop it then.
    ///
    /// # Errors
    ///
    /// As for [`Node::allocate_socket`].
    pub fn try_finish(&mut self) -> Result<Option<SocketFlow>, Error> {
        let answer = self.connection.try_hear()?;
        answer.map(ipc::socket_flow).transpose()
    }
}

impl AsFd for SocketAllocation {
    /// Readable when the answer is there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// Default time for the node to answer; [`Node::connect_within`] sets another. It is longer than
/// any node waits for an application by default.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// The phrase for an allocation in errors.
const ALLOCATION: &str = "the request for a flow";

/// The error for a text that is not a valid name, found without asking the node.
pub(crate) fn bad_name(text: &str, why: &dyn Display) -> Error {
    let message = format!("{text:?} is not a name: {why}");
    Error::Refused(ErrorBody::new(ErrorCode::BadRequest, message))
}
