//! Connections of applications to `ipc.sock`: who is there, and their messages.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use carina_api::ipc::{self, FlowRequest, MESSAGE_BYTES_MAX, Refusal, Reply, Request, VERSION};
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, IpcpId, PortId};
use carina_sys::{
    Credentials, Interest, accept_seqpacket, peer_credentials, recv_with_fds, send_with_fds,
};

use crate::core::{Core, Token};

/// One connection.
pub struct Conn {
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
    Asking(PortId),
}

/// A registration.
pub struct App {
    pub name: AppName,
    /// The DIF asked for; `None` for all.
    pub dif: Option<DifName>,
    /// Where it is registered now, or asked to be.
    pub ipcps: Vec<IpcpId>,
    /// Those of them that have not said yet that it is.
    pub unanswered: BTreeSet<IpcpId>,
    /// Requests for flows that came before all had said so.
    pub held: Vec<FlowRequest>,
    /// Flow requests without an answer, by their number within the connection.
    pub requests: BTreeMap<u32, PortId>,
    pub next_request: u32,
}

/// Number of a connection, never used twice.
pub type ConnId = u64;

impl Core {
    /// Accepts who knocks, within the limits.
    pub fn accept_all(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let socket = match accept_seqpacket(&self.listener) {
                Ok(socket) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => return tracing::warn!(%error, "ipc.sock: accept failed"),
            };
            let Ok(peer) = peer_credentials(&socket) else {
                continue;
            };
            let usage = self.usage.entry(peer.uid).or_default();
            if usage.connections >= self.limits.connections_per_uid {
                let what = format!(
                    "user {} has {} connections; that is the limit",
                    peer.uid, usage.connections
                );
                let error = ErrorBody::new(ErrorCode::LimitReached, what);
                // The connection is about to be closed; a refusal that cannot be sent is lost.
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
            let id = self.next_conn;
            self.next_conn += 1;
            if let Err(error) = self
                .epoll
                .add(&socket, Token::Conn(id).pack(), Interest::Read)
            {
                tracing::warn!(%error, "ipc.sock: a connection cannot be watched");
                continue;
            }
            usage.connections += 1;
            self.conns.insert(
                id,
                Conn {
                    socket,
                    peer,
                    role: Role::New,
                },
            );
        }
    }

    /// Reads what an application said.
    pub fn read_conn(&mut self, id: ConnId) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(conn) = self.conns.get(&id) else {
                return;
            };
            let mut buffer = std::mem::take(&mut self.message);
            buffer.resize(MESSAGE_BYTES_MAX, 0);
            let received = recv_with_fds(&conn.socket, &mut buffer);
            let request = match received {
                Ok(datagram) if datagram.bytes == 0 => None,
                // Descriptors from an application have no meaning and are closed here.
                Ok(datagram) => Some(ipc::decode::<Request>(&buffer[..datagram.bytes])),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.message = buffer;
                    return;
                }
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    let error = ErrorBody::new(ErrorCode::BadRequest, error.to_string());
                    self.refuse(id, None, error);
                    None
                }
                Err(_) => None,
            };
            self.message = buffer;
            match request {
                Some(Ok(request)) => self.handle_request(id, request),
                Some(Err(error)) => {
                    self.refuse(id, None, error.into());
                    return self.close_conn(id);
                }
                None => return self.close_conn(id),
            }
        }
    }

    fn handle_request(&mut self, id: ConnId, request: Request) {
        let Some(conn) = self.conns.get(&id) else {
            return;
        };
        let result = match (request, &conn.role) {
            (Request::Register { version, name, dif }, Role::New) => {
                check_version(version).and_then(|()| self.register(id, name, dif))
            }
            (Request::Allocate { version, .. }, Role::New) if version != VERSION => {
                check_version(version)
            }
            (request @ Request::Allocate { .. }, Role::New) => self.allocate(id, request),
            (request @ Request::Respond { .. }, Role::App(_)) => {
                self.respond(id, request);
                Ok(())
            }
            (Request::Respond { request, .. }, _) => {
                let what = "only a registration answers flow requests; register first";
                let error = ErrorBody::new(ErrorCode::Conflict, what);
                return self.refuse(id, Some(request), error);
            }
            (_, _) => Err(ErrorBody::new(
                ErrorCode::Conflict,
                "this connection is in use; each registration and each allocation under way \
                 needs a connection of its own",
            )),
        };
        if let Err(error) = result {
            self.refuse(id, None, error);
        }
    }

    /// Says something to an application. An application that does not read is disconnected at
    /// the end of the turn; false then.
    pub fn say(&mut self, id: ConnId, reply: &Reply, fds: &[BorrowedFd<'_>]) -> bool {
        let Some(conn) = self.conns.get(&id) else {
            return false;
        };
        match send(conn.socket.as_fd(), reply, fds) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, pid = conn.peer.pid, "an application is disconnected");
                self.doomed.push(id);
                false
            }
        }
    }

    /// Refuses something to an application.
    pub fn refuse(&mut self, id: ConnId, request: Option<u32>, error: ErrorBody) {
        self.say(id, &Reply::Error(Refusal { request, error }), &[]);
    }

    /// Ends a connection and what it stood for.
    pub fn close_conn(&mut self, id: ConnId) {
        let Some(conn) = self.conns.remove(&id) else {
            return;
        };
        if let Err(error) = self.epoll.del(&conn.socket) {
            tracing::warn!(%error, "a connection was not watched");
        }
        if let Some(usage) = self.usage.get_mut(&conn.peer.uid) {
            usage.connections -= 1;
        }
        match conn.role {
            Role::New => {}
            Role::App(app) => self.unregister(app),
            Role::Asking(port) => self.withdraw(port, "the application that asked is gone"),
        }
    }
}

/// Sends one message with descriptors.
///
/// # Errors
/// What the socket said.
pub fn send<T: serde::Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    let bytes = ipc::encode(message).map_err(std::io::Error::other)?;
    send_with_fds(socket, &bytes, fds)
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

const ACCEPTS_PER_TURN: usize = 64;
const MESSAGES_PER_TURN: usize = 16;
