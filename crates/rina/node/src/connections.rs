//! Connections of applications to `ipc.sock`: what each stands for, and replies to them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use carina_api::ipc::{self, FlowRequest, Refusal, Reply};
use carina_api::{AppName, DifName, ErrorBody, IpcpId, PortId};
use carina_sys::{Credentials, send_with_fds};

/// One connection.
pub struct Connection {
    pub socket: OwnedFd,
    pub peer: Credentials,
    pub role: Role,
}

/// What a connection is.
pub enum Role {
    /// Nothing yet, or an allocation that has been answered.
    New,
    /// A registration.
    App(App),
    /// An allocation that waits for its answer.
    Allocating(PortId),
}

/// A registration.
pub struct App {
    pub name: AppName,
    /// The DIF asked for; `None` for all.
    pub dif: Option<DifName>,
    /// The IPCPs in which it is registered or about to be.
    pub ipcps: Vec<IpcpId>,
    /// Those of them that have not confirmed the registration yet.
    pub pending_ipcps: BTreeSet<IpcpId>,
    /// Flow requests that arrived before all IPCPs had confirmed.
    pub deferred_requests: Vec<FlowRequest>,
    /// Flow requests without an answer, by their number within the connection.
    pub requests: BTreeMap<u32, PortId>,
    pub next_request: u32,
}

/// Number of a connection, never used twice.
pub type ConnectionId = u64;

/// All connections.
#[derive(Default)]
pub struct Connections {
    table: BTreeMap<ConnectionId, Connection>,
    last_id: ConnectionId,
    /// Connections to close once the present events are handled.
    closing: Vec<ConnectionId>,
}

impl Connections {
    /// A number for a new connection.
    pub fn unused_id(&mut self) -> ConnectionId {
        self.last_id += 1;
        self.last_id
    }

    pub fn insert(&mut self, id: ConnectionId, socket: OwnedFd, peer: Credentials) {
        let role = Role::New;
        let connection = Connection { socket, peer, role };
        self.table.insert(id, connection);
    }

    pub fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.table.get(&id)
    }

    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.table.get_mut(&id)
    }

    pub fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        self.table.remove(&id)
    }

    /// The registration that a connection is.
    pub fn app_mut(&mut self, id: ConnectionId) -> Option<&mut App> {
        match &mut self.table.get_mut(&id)?.role {
            Role::App(app) => Some(app),
            _ => None,
        }
    }

    /// All connections that are registrations.
    pub fn apps(&self) -> impl Iterator<Item = (ConnectionId, &Connection, &App)> {
        self.table
            .iter()
            .filter_map(|(id, connection)| match &connection.role {
                Role::App(app) => Some((*id, connection, app)),
                _ => None,
            })
    }

    /// As [`Connections::apps`], to be changed.
    pub fn apps_mut(&mut self) -> impl Iterator<Item = (ConnectionId, &mut App)> {
        self.table
            .iter_mut()
            .filter_map(|(id, connection)| match &mut connection.role {
                Role::App(app) => Some((*id, app)),
                _ => None,
            })
    }

    /// The allocation of a connection is answered: the connection may be used again.
    pub fn end_allocation(&mut self, id: ConnectionId) {
        if let Some(connection) = self.table.get_mut(&id) {
            connection.role = Role::New;
        }
    }

    /// Takes a flow request off an application's list.
    pub fn take_request(&mut self, id: ConnectionId, request: u32) -> Option<PortId> {
        self.app_mut(id)?.requests.remove(&request)
    }

    /// Sends a reply; `false` when the application does not read, and is about to be disconnected.
    pub fn send_reply(&mut self, id: ConnectionId, reply: &Reply, fds: &[BorrowedFd<'_>]) -> bool {
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

    /// Refuses a request of an application.
    pub fn send_refusal(&mut self, id: ConnectionId, request: Option<u32>, error: ErrorBody) {
        let (code, reason) = (error.code, &error.message);
        tracing::debug!(connection = id, ?code, reason, "request refused");
        self.send_reply(id, &Reply::Error(Refusal { request, error }), &[]);
    }

    /// Closes a connection once the present events are handled.
    pub fn close_later(&mut self, id: ConnectionId) {
        self.closing.push(id);
    }

    /// The connections that are to be closed now.
    pub fn take_closing(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.closing)
    }
}

/// Sends one message with descriptors.
///
/// # Errors
/// The socket's error.
pub fn send<T: serde::Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    let bytes = ipc::encode(message).map_err(std::io::Error::other)?;
    send_with_fds(socket, &bytes, fds)
}
