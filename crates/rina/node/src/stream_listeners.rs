//! Registrations for which the node accepts every flow as a byte stream, without asking: the
//! listening sockets of wrapped programs.
//!
//! The node accepts each flow and sends it on the registration's connection, as one message with
//! the flow's descriptor. Processes that share the registration's descriptor share its flows.
//!
//! ```text
//!             listen                       a flow comes
//!   Bound ------------> Listening -----------------------------> accepted; message with descriptor
//!     | a flow comes        | a flow comes, and too many wait already
//!     v                     v
//!   refused              refused
//! ```
//!
//! Shared registrations (`SO_REUSEPORT`) of one name form a group. Only the first, the leader, is
//! registered in the DIFs; all get flows in turn. When the leader ends, the next registration of
//! the group becomes the leader.

use std::os::fd::AsFd;

use carina_api::ipc::Mode;
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec, IpcpId, PortId};
use carina_sys::unread_bytes;
use rustix::net::sockopt::{
    set_socket_send_buffer_size, set_socket_send_buffer_size_force, socket_send_buffer_size,
};

use crate::attached_socket::stream_spec_checked;
use crate::connections::{App, Connection, ConnectionId, Role};
use crate::core::Core;
use crate::endpoints::Stage;
use crate::incoming_flows::IncomingError;
use crate::ipcps::Registrant;

impl Core {
    /// Makes a registration accept flows from now on.
    ///
    /// # Errors
    /// The registration is not one that accepts flows as streams.
    pub(crate) fn listen(&mut self, id: ConnectionId) -> Result<(), ErrorBody> {
        if let Some(connection) = self.connections.get(id) {
            make_room(connection);
        }
        let app = self.connections.app_mut(id);
        let Some(listener) = app.and_then(|app| app.listener.as_mut()) else {
            let what = "only a registration with \"streams\" can listen; this registration must \
                        answer each flow request";
            return Err(ErrorBody::new(ErrorCode::Conflict, what));
        };
        listener.is_listening = true;
        Ok(())
    }

    /// Adds a new shared registration to the group of the registration that has its name. Returns
    /// false if that one is not shared, belongs to another user, or is for another DIF.
    pub(crate) fn join_group(
        &mut self,
        leader: ConnectionId,
        id: ConnectionId,
        dif: Option<&DifName>,
    ) -> bool {
        let uid_of = |id| {
            self.connections
                .get(id)
                .map(|conn: &Connection| conn.peer.uid)
        };
        if uid_of(leader) != uid_of(id) {
            return false;
        }
        let Some(app) = self.connections.app_mut(leader) else {
            return false;
        };
        let is_same_dif = app.dif.as_ref() == dif;
        match &mut app.listener {
            Some(listener) if listener.is_shared && is_same_dif => {
                listener.followers.push(id);
                true
            }
            _ => false,
        }
    }

    /// Passes the leadership of a group to its next registration, when the leader `app` ends.
    /// Returns `app` if the group has no other registration.
    pub(crate) fn pass_on(&mut self, app: App) -> Option<App> {
        let Some(listener) = app.listener.clone() else {
            return Some(app);
        };
        let mut rest = listener.followers.into_iter();
        let next = rest.find(|id| self.connections.app_mut(*id).is_some());
        let Some((next, heir)) = next.and_then(|id| Some((id, self.connections.app_mut(id)?)))
        else {
            return Some(app);
        };
        heir.ipcps.clone_from(&app.ipcps);
        heir.pending_ipcps = app.pending_ipcps;
        if let Some(listener) = &mut heir.listener {
            listener.followers = rest.collect();
        }
        for ipcp in app.ipcps {
            if let Some(ipcp) = self.ipcps.get_mut(ipcp) {
                let name = app.name.clone();
                ipcp.names.insert(name, Registrant::App(next));
            }
        }
        None
    }

    /// Accepts a flow for a registration of the group of `leader`, without asking the application.
    pub(crate) fn accept_stream(
        &mut self,
        leader: ConnectionId,
        ipcp: IpcpId,
        port: PortId,
        [local, remote]: [&AppName; 2],
        spec: FlowSpec,
    ) -> Result<(), IncomingError> {
        let system = |error: ErrorBody| IncomingError::System(error.message);
        stream_spec_checked(Mode::Stream, &spec).map_err(system)?;
        let id = self.next_listener(leader, local)?;
        let unknown = || IncomingError::NotRegistered(local.clone());
        let peer = self.connections.get(id).ok_or_else(unknown)?.peer;
        let app = self.connections.app_mut(id).ok_or_else(unknown)?;
        let request = app.next_request;
        app.next_request = app.next_request.wrapping_add(1);
        self.charge_user(peer.uid, 0)?;
        let stage = Stage::Accepted {
            answer: Some((id, request)),
        };
        let mut end = self.called_end(ipcp, [local, remote], spec, peer, stage);
        end.mode = Mode::Stream;
        self.endpoints.insert(port, end);
        self.accept_incoming(port).map_err(|error| {
            self.remove_endpoint(port);
            system(error)
        })
    }

    /// Chooses the registration of a group that gets the next flow: in turn, among those that
    /// listen and have room.
    fn next_listener(
        &mut self,
        leader: ConnectionId,
        local: &AppName,
    ) -> Result<ConnectionId, IncomingError> {
        let app = self.connections.app_mut(leader);
        let Some(listener) = app.and_then(|app| app.listener.as_mut()) else {
            return Err(IncomingError::NotRegistered(local.clone()));
        };
        listener.turn = listener.turn.wrapping_add(1);
        let turn = listener.turn;
        let mut group = listener.followers.clone();
        group.retain(|id| self.connections.app_mut(*id).is_some());
        if let Some(listener) = self
            .connections
            .app_mut(leader)
            .and_then(|app| app.listener.as_mut())
        {
            listener.followers.clone_from(&group);
        }
        group.push(leader);
        let (mut is_any_listening, members) = (false, group.len());
        for step in 0..members {
            let id = group[(turn + step) % members];
            let Some(connection) = self.connections.get(id) else {
                continue;
            };
            let is_listening = matches!(&connection.role, Role::App(app)
                if app.listener.as_ref().is_some_and(|listener| listener.is_listening));
            is_any_listening |= is_listening;
            if is_listening && has_room(connection) {
                return Ok(id);
            }
        }
        let local = local.clone();
        Err(if is_any_listening {
            IncomingError::Unread(local)
        } else {
            IncomingError::NotListening(local)
        })
    }
}

/// Enlarges the send buffer of a registration's socket, so that as many flows can wait as
/// connections at a listening TCP socket. The kernel limits the buffer to `net.core.wmem_max` if
/// the node has no `CAP_NET_ADMIN`.
fn make_room(connection: &Connection) {
    let text = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
    let number = text.ok().and_then(|text| text.trim().parse::<usize>().ok());
    let flows = number.unwrap_or(BACKLOG_MAX).clamp(1, BACKLOG_MAX);
    // The kernel doubles the number for its own data.
    let bytes = flows * WAITING_FLOW_BYTES / 2 + FLOW_MESSAGE_BYTES;
    let socket = connection.socket.as_fd();
    let usual = socket_send_buffer_size(socket).unwrap_or_default();
    if usual / 2 < bytes && set_socket_send_buffer_size_force(socket, bytes).is_err() {
        let _ = set_socket_send_buffer_size(socket, bytes);
    }
}

/// Whether the registration's socket has room for one more message. The node does not disconnect a
/// program that does not read, because that would close the program's listening socket.
fn has_room(connection: &Connection) -> bool {
    let socket = connection.socket.as_fd();
    match (unread_bytes(socket), socket_send_buffer_size(socket)) {
        (Ok(unread), Ok(room)) => unread + FLOW_MESSAGE_BYTES <= room,
        _ => false,
    }
}

/// Largest number of bytes that one message `flow` occupies in the socket's send buffer: two names
/// and a DIF of 255 bytes each, with each byte escaped, and the kernel's own data for a message.
const FLOW_MESSAGE_BYTES: usize = 8 << 10;

/// Bytes that a message `flow` with usual names occupies, as the kernel counts: about 1,300.
const WAITING_FLOW_BYTES: usize = 2 << 10;

/// Largest number of flows for which the node makes room at one registration: the usual value of
/// `net.core.somaxconn`.
const BACKLOG_MAX: usize = 4096;
