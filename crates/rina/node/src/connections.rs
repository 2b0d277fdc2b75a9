//! Connections of applications to `ipc.sock`: the purpose of each, and replies to the application.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use carina_api::ipc::{self, FlowRequest, Refusal, Reply};
use carina_api::{AppName, DifName, ErrorBody, IpcpId, PortId};
use carina_sys::{Credentials, send_with_fds};

/// A connection of an application to `ipc.sock`.
pub(crate) struct Connection {
    pub socket: OwnedFd,
    pub peer: Credentials,
    pub role: Role,
    /// Whether the node closes the connection once the application has its flow.
    pub closes: bool,
    /// Whether the node's `epoll` has the connection.
    pub is_watched: bool,
}

/// The use of a connection to the node's socket.
pub(crate) enum Role {
    /// The client has requested nothing yet, or its allocation has been answered.
    New,
    /// The connection registers an application.
    App(App),
    /// The connection requests the flow with this port-id, and the request has no answer yet.
    Allocating(PortId),
}

/// The registration of an application, which lasts as long as its connection.
pub(crate) struct App {
    pub name: AppName,
    /// Name of the DIF to register in; `None` for all DIFs.
    pub dif: Option<DifName>,
    /// The IPCPs where the application is registered or being registered.
    pub ipcps: Vec<IpcpId>,
    /// The IPCPs among `ipcps` that have not confirmed the registration yet.
    pub pending_ipcps: BTreeSet<IpcpId>,
    /// Flow requests that arrived before all IPCPs had confirmed the registration; the application
    /// gets them afterwards.
    pub deferred_requests: Vec<FlowRequest>,
    /// Flow requests that the application has not answered, by their number in the connection.
    pub requests: BTreeMap<u32, PortId>,
    pub next_request: u32,
    /// State for flows that are accepted as streams without asking the application; `None` if the
    /// node asks it.
    pub listener: Option<StreamListener>,
}

/// The part of a registration for which the node accepts every flow itself, as a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamListener {
    /// Whether the program has called `listen`, so that flows may be accepted.
    pub is_listening: bool,
    /// Whether other registrations of the same name may exist at the same time as this one.
    pub is_shared: bool,
    /// For the leader of a group: the other registrations of its group. Some may have ended.
    pub followers: Vec<ConnectionId>,
    /// For the leader of a group: number of flows that were given out, so that the registrations
    /// take turns.
    pub turn: usize,
}

impl StreamListener {
    /// One that has not been asked to listen.
    pub(crate) fn new(is_shared: bool) -> StreamListener {
        StreamListener {
            is_shared,
            ..StreamListener::default()
        }
    }
}

/// Number of a connection; never reused.
pub(crate) type ConnectionId = u64;

/// All connections of applications to the node.
#[derive(Default)]
pub(crate) struct Connections {
    table: BTreeMap<ConnectionId, Connection>,
    last_id: ConnectionId,
    /// Connections to close after the present events.
    closing: Vec<ConnectionId>,
}

impl Connections {
    /// Returns a number for a new connection.
    pub(crate) fn unused_id(&mut self) -> ConnectionId {
        self.last_id += 1;
        self.last_id
    }

    pub(crate) fn insert(&mut self, id: ConnectionId, socket: OwnedFd, peer: Credentials) {
        let role = Role::New;
        let connection = Connection {
            socket,
            peer,
            role,
            closes: false,
            is_watched: false,
        };
        self.table.insert(id, connection);
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.table.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.table.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        self.table.remove(&id)
    }

    /// The registration of a connection; `None` if the connection has another purpose.
    pub(crate) fn app_mut(&mut self, id: ConnectionId) -> Option<&mut App> {
        match &mut self.table.get_mut(&id)?.role {
            Role::App(app) => Some(app),
            _ => None,
        }
    }

    /// Whether a connection is a registration for which the node accepts flows itself.
    pub(crate) fn takes_streams(&self, id: ConnectionId) -> bool {
        let connection = self.table.get(&id);
        connection.is_some_and(
            |connection| matches!(&connection.role, Role::App(app) if app.listener.is_some()),
        )
    }

    /// All connections with a registration.
    pub(crate) fn apps(&self) -> impl Iterator<Item = (ConnectionId, &Connection, &App)> {
        self.table
            .iter()
            .filter_map(|(id, connection)| match &connection.role {
                Role::App(app) => Some((*id, connection, app)),
                _ => None,
            })
    }

    /// Like [`Connections::apps`], with mutable access.
    pub(crate) fn apps_mut(&mut self) -> impl Iterator<Item = (ConnectionId, &mut App)> {
        self.table
            .iter_mut()
            .filter_map(|(id, connection)| match &mut connection.role {
                Role::App(app) => Some((*id, app)),
                _ => None,
            })
    }

    /// Marks the allocation of a connection as answered, so that the connection can be used again.
    pub(crate) fn end_allocation(&mut self, id: ConnectionId) {
        if let Some(connection) = self.table.get_mut(&id) {
            connection.role = Role::New;
        }
    }

    /// Removes a flow request from an application's registration, and returns its port-id.
    pub(crate) fn take_request(&mut self, id: ConnectionId, request: u32) -> Option<PortId> {
        self.app_mut(id)?.requests.remove(&request)
    }

    /// Sends a reply. Returns false when that fails because the application does not read; its
    /// connection is then closed.
    pub(crate) fn send_reply(
        &mut self,
        id: ConnectionId,
        reply: &Reply,
        fds: &[BorrowedFd<'_>],
    ) -> bool {
        let Some(connection) = self.table.get(&id) else {
            return false;
        };
        match send(connection.socket.as_fd(), reply, fds) {
            Ok(()) => true,
            Err(error) => {
                let pid = connection.peer.pid;
                tracing::debug!(%error, pid, "an application does not read and is disconnected");
                self.closing.push(id);
                false
            }
        }
    }

    /// Sends an error reply to an application.
    pub(crate) fn send_refusal(
        &mut self,
        id: ConnectionId,
        request: Option<u32>,
        error: ErrorBody,
    ) {
        let (code, reason) = (error.code, &error.message);
        tracing::debug!(connection = id, ?code, reason, "request refused");
        self.send_reply(id, &Reply::Error(Refusal { request, error }), &[]);
    }

    /// Closes a connection after the present events.
    pub(crate) fn close_later(&mut self, id: ConnectionId) {
        self.closing.push(id);
    }

    /// Whether the connection exists and is not about to be closed.
    pub(crate) fn is_open(&self, id: ConnectionId) -> bool {
        self.table.contains_key(&id) && !self.closing.contains(&id)
    }

    /// Takes the list of connections to close.
    pub(crate) fn take_closing(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.closing)
    }
}

/// Sends one message with file descriptors.
///
/// # Errors
/// The error of the socket.
pub(crate) fn send<T: serde::Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    let bytes = ipc::encode(message).map_err(std::io::Error::other)?;
    send_with_fds(socket, &bytes, fds)
}
