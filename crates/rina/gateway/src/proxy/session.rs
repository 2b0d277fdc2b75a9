//! One connection of a client.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use carina_client::StreamAllocation;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::dial::Dial;
use crate::proxy::handshake::{Asked, Handshake, Heard};
use crate::proxy::relay::Relay;

/// A client of a proxy whose connection to a server is not established yet.
pub(crate) struct Session {
    pub state: State,
    /// Time at which the session ends if its state has not changed; `None` for no limit.
    pub until: Option<Instant>,
}

/// The step in which a session is, from reading the request to connecting or refusing.
pub(crate) enum State {
    /// The proxy reads the request, in which the client names its destination.
    Reading {
        client: OwnedFd,
        handshake: Handshake,
        input: Vec<u8>,
    },
    /// A thread looks up the addresses of the destination.
    LookingUp(Pending),
    /// The session waits to request a flow, because too many other sessions wait for the node's
    /// answer.
    Queued(Pending, AllocationRequest),
    /// The session has requested a flow, and the node has not answered.
    Asking(Pending, StreamAllocation),
    /// The proxy connects by TCP to one address. If this fails, it tries the other addresses of the
    /// list, the last one first.
    Dialing(Pending, Dial<()>, Vec<SocketAddr>),
    /// The proxy has sent a refusal, and leaves the socket open for a while so that the client can
    /// read it.
    Closing(OwnedFd),
}

/// The flow that a session will request: name of the application, and DIF if a rule names one.
pub(crate) struct AllocationRequest {
    pub dif: Option<carina_api::DifName>,
    pub name: carina_api::AppName,
}

/// A client that has named its destination and waits for the connection.
pub(crate) struct Pending {
    pub client: OwnedFd,
    pub handshake: Handshake,
    pub asked: Asked,
    /// Bytes for the server that the client has already sent behind its request.
    pub early: Vec<u8>,
}

/// The result of reading bytes of a client in state `Reading`.
pub(crate) enum Progress {
    /// The request is incomplete; the client must send more.
    Waiting,
    /// The client has requested a connection.
    Asked(Pending),
    /// The client has sent an invalid request: send these bytes, close the socket, and log the
    /// text.
    Wrong(OwnedFd, Vec<u8>, String),
    /// The client has disconnected.
    Gone,
}

impl Session {
    /// A session of a client that has just connected.
    pub(crate) fn new(client: OwnedFd, handshake: Handshake, now: Instant) -> Session {
        Session {
            state: State::Reading {
                client,
                handshake,
                input: Vec::new(),
            },
            until: Some(now + HANDSHAKE_LIMIT),
        }
    }

    /// Sends a client a refusal and makes a session that lets the client read it. `None` if the
    /// refusal could not be sent.
    pub(crate) fn closing(client: OwnedFd, answer: &[u8], now: Instant) -> Option<Session> {
        send_now(&client, answer).ok()?;
        shutdown(&client, Shutdown::Write).ok()?;
        Some(Session {
            state: State::Closing(client),
            until: Some(now + CLOSING_LIMIT),
        })
    }

    pub(crate) fn client(&self) -> &OwnedFd {
        match &self.state {
            State::Reading { client, .. } | State::Closing(client) => client,
            State::LookingUp(pending)
            | State::Queued(pending, _)
            | State::Asking(pending, _)
            | State::Dialing(pending, ..) => &pending.client,
        }
    }
}

/// Reads bytes from the client, and answers them.
pub(crate) fn read(
    client: OwnedFd,
    mut handshake: Handshake,
    mut input: Vec<u8>,
    buffer: &mut [u8],
) -> (Progress, Option<State>) {
    loop {
        match handshake.hear(&mut input) {
            Heard::More => {}
            Heard::Send(bytes) => match send_now(&client, &bytes) {
                Ok(()) => continue,
                Err(_) => return (Progress::Gone, None),
            },
            Heard::Asked(asked) => {
                let pending = Pending {
                    client,
                    handshake,
                    asked,
                    early: input,
                };
                return (Progress::Asked(pending), None);
            }
            Heard::Wrong { answer, why } => return (Progress::Wrong(client, answer, why), None),
        }
        match recv(&client, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return (Progress::Gone, None),
            Ok((_, count)) => input.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let state = State::Reading {
                    client,
                    handshake,
                    input,
                };
                return (Progress::Waiting, Some(state));
            }
            Err(_) => return (Progress::Gone, None),
        }
    }
}

/// Discards further bytes of a client that was refused. False when the client has closed the
/// connection.
pub(crate) fn discard(client: &OwnedFd, buffer: &mut [u8]) -> bool {
    for _ in 0..DISCARDS_MAX {
        match recv(client, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return false,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return error == Errno::AGAIN,
        }
    }
    // A client that sends without end does not read either.
    false
}

impl Pending {
    /// Makes the relay between the client and `server`, a connected socket. The relay first sends
    /// the bytes that the client already sent for the server.
    pub(crate) fn connected(self, server: OwnedFd) -> Result<Relay, String> {
        let Pending {
            client,
            mut asked,
            early,
            ..
        } = self;
        let mut first = std::mem::take(&mut asked.head);
        match &mut asked.body {
            Some(body) => {
                let taken = body.take(&early).map_err(|error| error.to_string())?;
                first.extend_from_slice(&early[..taken]);
            }
            None => first.extend_from_slice(&early),
        }
        Ok(Relay::new(
            client,
            server,
            asked.established,
            first,
            asked.body,
        ))
    }
}

/// Sends a short message; the buffer of a connection that has sent little has room for it.
fn send_now(client: impl AsFd, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match send(client, bytes, flags) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(Errno::AGAIN),
        Err(error) => Err(error),
    }
}

/// Longest time that a client may take to name its destination.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Longest time that the socket of a refused client stays open.
const CLOSING_LIMIT: Duration = Duration::from_secs(2);

/// Largest number of reads in a row from a refused client.
const DISCARDS_MAX: usize = 64;
