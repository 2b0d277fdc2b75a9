//! The node of this system, as an application sees it.

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
use crate::registration::Registration;

/// The way to a node. It holds no connection: each registration and each allocation makes its own.
#[derive(Clone, Debug)]
pub struct Node {
    socket: PathBuf,
    ring_bytes: Option<u64>,
    answer_limit: Duration,
}

/// A flow that was asked for and not answered yet.
#[derive(Debug)]
pub struct Allocation {
    connection: Connection,
}

/// A flow that is a byte stream, was asked for and not answered yet.
#[derive(Debug)]
pub struct StreamAllocation {
    connection: Connection,
}

impl Node {
    /// Finds the node of this system: the socket `ipc.sock` in `$CARINA_RUN` when that is set, else
    /// in `/run/carina` for root, else in `$XDG_RUNTIME_DIR/carina`, else in `/tmp/carina-UID`.
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

    /// Finds the node that listens on `socket`, which has `answer_limit` to answer this call and
    /// each one after it. The answer to an allocation comes from the remote application, for which
    /// the node waits as long as its configuration says (`answer_ms`, 10 s by default).
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

    /// The node with another size for the rings of flows allocated through it, in bytes per
    /// direction: a power of two from 4 KiB to 64 MiB. The node's default is `limits.ring_bytes`
    /// of its configuration, 1 MiB unless the processor is emulated.
    #[must_use]
    pub fn with_ring_bytes(mut self, ring_bytes: u64) -> Node {
        self.ring_bytes = Some(ring_bytes);
        self
    }

    /// Registers `name` in `dif`, or in all DIFs.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the name is taken, the DIF unknown, its directory full or a rule
    /// forbids it.
    pub fn register(&self, name: &AppName, dif: Option<&DifName>) -> Result<Registration, Error> {
        let connection = Connection::open(&self.socket, self.answer_limit)?;
        Registration::new(connection, name, dif)
    }

    /// Allocates a flow from `local`, which needs no registration, to `remote`, in `dif` or in the
    /// first DIF that knows the name; waits for the answer of the remote application.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the name is not registered, no DIF meets `spec`, a rule forbids it
    /// or the remote application refuses.
    pub fn allocate(
        &self,
        local: &AppName,
        remote: &AppName,
        dif: Option<&DifName>,
        spec: &FlowSpec,
    ) -> Result<Flow, Error> {
        self.start_allocate(local, remote, dif, spec)?.finish()
    }

    /// Asks for a flow as [`Self::allocate`] does and returns without waiting for the answer.
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`] when the node has gone.
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

    /// Allocates a flow that is a socket; see [`SocketFlow`].
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
        let mut connection = self.ask(local, remote, dif, spec, Mode::Socket)?;
        ipc::socket_flow(connection.receive(ALLOCATION)?)
    }

    /// Allocates a flow that is a byte stream; see [`StreamFlow`]. It must be reliable and in
    /// order.
    ///
    /// With `attached`, a connected stream socket (one end of a pair, or a TCP connection), that
    /// becomes this end of the flow: the node moves its bytes, or the other application is given
    /// the socket itself where it is on this system. Without, the flow has a socket.
    ///
    /// # Errors
    ///
    /// As for [`Self::allocate`]; [`Error::Refused`] also when `attached` is no such socket.
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

    /// Asks for a flow as [`Self::allocate_stream`] does and returns without waiting for the
    /// answer.
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`] when the node has gone.
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
        }
    }
}

impl Allocation {
    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// As for [`Node::allocate`].
    pub fn finish(mut self) -> Result<Flow, Error> {
        ipc::ring_flow(self.connection.receive(ALLOCATION)?)
    }

    /// Gives the flow if the answer is there. After an answer, of whatever kind, the allocation is
    /// over and must be dropped.
    ///
    /// # Errors
    ///
    /// As for [`Node::allocate`].
    pub fn try_finish(&mut self) -> Result<Option<Flow>, Error> {
        self.connection.try_hear()?.map(ipc::ring_flow).transpose()
    }
}

impl AsFd for Allocation {
    /// Readable when the answer is there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl StreamAllocation {
    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// As for [`Node::allocate_stream`].
    pub fn finish(mut self) -> Result<StreamFlow, Error> {
        ipc::stream_flow(self.connection.receive(ALLOCATION)?)
    }

    /// Gives the flow if the answer is there. After an answer, of whatever kind, the allocation is
    /// over and must be dropped.
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
    /// Readable when the answer is there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// How long a node may take to answer, unless [`Node::connect_within`] says otherwise: longer than
/// any node waits for an application by default.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// What is asked for.
const ALLOCATION: &str = "the request for a flow";

/// The refusal of a text that is not a name, made without asking the node.
pub(crate) fn bad_name(text: &str, why: &dyn Display) -> Error {
    let message = format!("{text:?} is not a name: {why}");
    Error::Refused(ErrorBody::new(ErrorCode::BadRequest, message))
}
