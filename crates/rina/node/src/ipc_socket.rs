//! `ipc.sock`: accepts connections of applications, reads their requests and closes them.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};

use carina_api::ipc::{self, MESSAGE_BYTES_MAX, Refusal, Reply, Request, VERSION};
use carina_api::{ErrorBody, ErrorCode, PortId};
use carina_dataplane::StreamSocket;
use carina_sys::{Interest, accept_seqpacket, peer_credentials, recv_with_fds};

use crate::attached_socket::attached_socket;
use crate::connections::{ConnectionId, Role, StreamListener, send};
use crate::core::{Core, Token};

impl Core {
    /// Accepts waiting connections, within the limits.
    pub(crate) fn accept_all(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let socket = match accept_seqpacket(&self.listener) {
                Ok(socket) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => return tracing::warn!(%error, "ipc.sock: accept failed"),
            };
            let Ok(peer) = peer_credentials(&socket) else {
                continue;
            };
            if let Err(error) = self.users.check_connections(peer.uid, &self.limits) {
                tracing::info!(uid = peer.uid, %error, "connection refused");
                let error = error.into();
                // The connection is closed anyway, so a failure to send the refusal is ignored.
                let _ = send(
                    socket.as_fd(),
                    &Reply::Error(Refusal {
                        request: None,
                        error,
                    }),
                    &[],
                );
                continue;
            }
            let id = self.connections.unused_id();
            self.users.connect(peer.uid);
            self.connections.insert(id, socket, peer);
            // By now the application has often sent its request, and the answer may be the end of
            // the connection.
            self.read_conn(id);
            if self.connections.is_open(id) {
                self.watch_conn(id);
            }
        }
    }

    fn watch_conn(&mut self, id: ConnectionId) {
        let Some(conn) = self.connections.get_mut(id) else {
            return;
        };
        let token = Token::Connection(id).pack();
        match self.epoll.add(&conn.socket, token, Interest::Read) {
            Ok(()) => conn.is_watched = true,
            Err(error) => {
                tracing::warn!(%error, "ipc.sock: a connection cannot be watched");
                self.close_conn(id);
            }
        }
    }

    /// Reads and handles the messages of an application.
    pub(crate) fn read_conn(&mut self, id: ConnectionId) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(conn) = self.connections.get(id) else {
                return;
            };
            let mut buffer = std::mem::take(&mut self.message);
            buffer.resize(MESSAGE_BYTES_MAX, 0);
            let received = recv_with_fds(&conn.socket, &mut buffer);
            let request = match received {
                Ok(datagram) if datagram.bytes == 0 => None,
                Ok(datagram) => {
                    let request = ipc::decode::<Request>(&buffer[..datagram.bytes]);
                    Some((request, datagram.fds))
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.message = buffer;
                    return;
                }
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    let error = ErrorBody::new(ErrorCode::BadRequest, error.to_string());
                    self.connections.send_refusal(id, None, error);
                    None
                }
                Err(_) => None,
            };
            self.message = buffer;
            match request {
                Some((Ok(request), fds)) => {
                    let is_allocation = matches!(request, Request::Allocate { .. });
                    self.handle_message(id, request, fds);
                    if is_allocation {
                        // The application now waits for the answer.
                        return;
                    }
                }
                Some((Err(error), fds)) => {
                    close_all(fds);
                    self.connections.send_refusal(id, None, error.into());
                    return self.close_conn(id);
                }
                None => return self.close_conn(id),
            }
        }
    }

    fn handle_message(&mut self, id: ConnectionId, request: Request, fds: Vec<OwnedFd>) {
        let Some(conn) = self.connections.get(id) else {
            return close_all(fds);
        };
        let mode = match &request {
            Request::Allocate { mode, .. } => Some(*mode),
            Request::Respond { mode, accept, .. } => accept.then_some(*mode),
            Request::Register { .. } | Request::Listen {} => None,
        };
        let attached = attached_socket(mode, fds);
        let result = match (request, &conn.role) {
            (
                Request::Register {
                    version,
                    name,
                    dif,
                    streams,
                    shared,
                },
                Role::New,
            ) => {
                let listener = streams.then(|| StreamListener::new(shared));
                check_version(version)
                    .and(attached)
                    .and_then(|_| self.register(id, name, dif, listener))
            }
            (Request::Listen {}, Role::App(_)) => attached.and_then(|_| self.listen(id)),
            (Request::Allocate { version, .. }, Role::New) if version != VERSION => {
                check_version(version)
            }
            (request @ Request::Allocate { .. }, Role::New) => {
                attached.and_then(|attached| self.allocate(id, request, attached))
            }
            (request @ Request::Respond { .. }, Role::App(_)) => {
                self.on_flow_response(id, request, attached);
                Ok(())
            }
            (Request::Respond { request, .. }, _) => {
                let what = "only a registration answers flow requests; register first";
                let error = ErrorBody::new(ErrorCode::Conflict, what);
                return self.connections.send_refusal(id, Some(request), error);
            }
            (_, _) => Err(ErrorBody::new(
                ErrorCode::Conflict,
                "this connection is in use; each registration and each allocation under way \
                 needs a connection of its own",
            )),
        };
        if let Err(error) = result {
            self.connections.send_refusal(id, None, error);
        }
    }

    fn is_detached(&self, port: PortId) -> bool {
        self.endpoints.get(port).is_some_and(|end| end.is_detached)
    }

    /// Closes a connection, and ends its registration or allocation.
    pub(crate) fn close_conn(&mut self, id: ConnectionId) {
        let Some(conn) = self.connections.remove(id) else {
            return;
        };
        if conn.is_watched
            && let Err(error) = self.epoll.del(&conn.socket)
        {
            tracing::warn!(%error, "a connection was not watched");
        }
        self.users.disconnect(conn.peer.uid);
        match conn.role {
            Role::New => {}
            Role::App(app) => self.unregister(app),
            // The flow comes into being without it.
            Role::Allocating(port) if self.is_detached(port) => {}
            Role::Allocating(port) => {
                self.withdraw_request(port, "the calling application has ended")
            }
        }
    }
}

/// Closes descriptors of a request that is not processed. Does not wait for unsent bytes.
fn close_all(fds: Vec<OwnedFd>) {
    fds.into_iter().map(StreamSocket::new).for_each(drop);
}

fn check_version(version: u32) -> Result<(), ErrorBody> {
    if version == VERSION {
        return Ok(());
    }
    Err(ErrorBody::new(
        ErrorCode::BadVersion,
        format!("the application speaks version {version} of ipc.sock, this node {VERSION}"),
    ))
}

/// Number of connections accepted in a row before other events are handled.
const ACCEPTS_PER_TURN: usize = 64;

/// Number of messages read in a row from one connection before other events are handled.
const MESSAGES_PER_TURN: usize = 16;
