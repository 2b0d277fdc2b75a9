//! One connection through a door, from its request to its end.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, socket_error};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, connect, recv, send,
    shutdown, socket_with,
};

use super::super::proxy_request::{ProxyRequest, RequestError, decode};
use super::super::relay::{Carried, Relay};
use crate::connection::reset;
use crate::dial::{silence, words};

/// A connection of a program in the DIF.
pub(super) struct Connection {
    stage: Stage,
    host: String,
    port: u16,
}

/// What a connection is waiting for.
enum Stage {
    /// The head of the request.
    Request {
        flow: OwnedFd,
        bytes: Vec<u8>,
        until: Instant,
    },
    /// Addresses of the host.
    LookUp { flow: OwnedFd, request: Request },
    /// A server, the first of `rest`.
    Dial {
        flow: OwnedFd,
        request: Request,
        server: Option<OwnedFd>,
        rest: Vec<SocketAddr>,
        until: Option<Instant>,
        why: String,
    },
    /// Bytes of either side.
    Relay(Relay),
    /// The program, to take the answer and end.
    Answered { flow: OwnedFd, until: Instant },
    /// Nothing.
    Over,
}

/// A request, and the bytes behind its head.
struct Request {
    request: ProxyRequest,
    behind: Vec<u8>,
}

/// What a step has come to.
pub(super) enum Step {
    /// An event of a socket, a look-up or the deadline is awaited.
    Wait,
    /// There is more to carry after others had their turn.
    Continue,
    /// The program asks for a destination: it is to be checked and looked up.
    Asked { host: String, port: u16 },
    /// The program's bytes are no request.
    Malformed(RequestError),
    /// A socket to a server was made, which is to be watched.
    Dialed,
    /// The server has accepted.
    Connected,
    /// No server has accepted.
    Unreachable(String),
    /// The server has not answered in time.
    Silent(String),
    /// The connection has ended.
    Over,
}

impl Connection {
    pub(super) fn new(flow: OwnedFd, now: Instant) -> Connection {
        Connection {
            stage: Stage::Request {
                flow,
                bytes: Vec::new(),
                until: now + REQUEST_LIMIT,
            },
            host: String::new(),
            port: 0,
        }
    }

    /// Where the program wants to go.
    pub(super) fn destination(&self) -> (String, u16) {
        (self.host.clone(), self.port)
    }

    /// The socket to the server that is being connected.
    pub(super) fn server(&self) -> Option<&OwnedFd> {
        match &self.stage {
            Stage::Dial { server, .. } => server.as_ref(),
            _ => None,
        }
    }

    pub(super) fn is_looked_up(&self) -> bool {
        matches!(self.stage, Stage::LookUp { .. })
    }

    /// When the connection is to be taken a step further without an event.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Request { until, .. } | Stage::Answered { until, .. } => Some(*until),
            Stage::Dial { until, .. } => *until,
            _ => None,
        }
    }

    /// Connects to the first of these addresses that accepts.
    pub(super) fn dial(&mut self, addresses: Vec<SocketAddr>) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::LookUp { flow, request } => Stage::Dial {
                flow,
                request,
                server: None,
                rest: addresses,
                until: None,
                why: String::new(),
            },
            other => other,
        };
    }

    /// Answers the program, and ends when it has taken the answer.
    pub(super) fn answer(&mut self, text: &str, now: Instant) {
        let flow = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Request { flow, .. } | Stage::LookUp { flow, .. } | Stage::Dial { flow, .. } => {
                flow
            }
            other => {
                self.stage = other;
                return;
            }
        };
        // The buffer of a flow that nothing was sent on holds it.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = send(&flow, text.as_bytes(), flags);
        if sent.is_ok() && shutdown(&flow, Shutdown::Write).is_ok() {
            let until = now + ANSWER_LIMIT;
            self.stage = Stage::Answered { flow, until };
        }
    }

    /// Takes the connection one step further.
    pub(super) fn step(&mut self, now: Instant) -> Step {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Request { flow, bytes, until } => self.read_request(flow, bytes, until, now),
            Stage::Dial {
                flow,
                request,
                server,
                rest,
                until,
                why,
            } => match server {
                Some(server) => {
                    let ends = until.is_some_and(|until| until <= now);
                    self.await_server((flow, request), server, (rest, until, why), ends)
                }
                None => self.try_next((flow, request), rest, why, now),
            },
            Stage::Relay(relay) => self.carry(relay),
            Stage::Answered { flow, until } => {
                if until <= now || has_ended(&flow) {
                    return Step::Over;
                }
                self.stage = Stage::Answered { flow, until };
                Step::Wait
            }
            Stage::Over => Step::Over,
            waiting @ Stage::LookUp { .. } => {
                self.stage = waiting;
                Step::Wait
            }
        }
    }

    fn read_request(
        &mut self,
        flow: OwnedFd,
        mut bytes: Vec<u8>,
        until: Instant,
        now: Instant,
    ) -> Step {
        let mut buffer = [0; 4096];
        loop {
            match decode(&bytes) {
                Ok(Some(request)) => {
                    let behind = bytes.split_off(request.length);
                    (self.host, self.port) = (request.host.clone(), request.port);
                    let (host, port) = self.destination();
                    let request = Request { request, behind };
                    self.stage = Stage::LookUp { flow, request };
                    return Step::Asked { host, port };
                }
                Ok(None) => {}
                Err(error) => {
                    self.stage = Stage::Request { flow, bytes, until };
                    return Step::Malformed(error);
                }
            }
            match recv(&flow, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Step::Over,
                Ok((received, _)) => bytes.extend(&buffer[..received]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if now < until => {
                    self.stage = Stage::Request { flow, bytes, until };
                    return Step::Wait;
                }
                Err(_) => return Step::Over,
            }
        }
    }

    /// Begins to connect to the next address.
    fn try_next(
        &mut self,
        (flow, request): (OwnedFd, Request),
        rest: Vec<SocketAddr>,
        mut why: String,
        now: Instant,
    ) -> Step {
        let mut rest = rest.into_iter();
        let mut server = None;
        for address in rest.by_ref() {
            match begin_to_connect(address) {
                Ok(socket) => {
                    server = Some(socket);
                    break;
                }
                Err(error) => why = words(error),
            }
        }
        let step = match server {
            Some(_) => Step::Dialed,
            None => Step::Unreachable(why.clone()),
        };
        self.stage = Stage::Dial {
            flow,
            request,
            server,
            rest: rest.collect(),
            until: Some(now + CONNECT_LIMIT),
            why,
        };
        step
    }

    /// Sees whether the server has accepted.
    fn await_server(
        &mut self,
        (flow, request): (OwnedFd, Request),
        server: OwnedFd,
        (rest, until, why): (Vec<SocketAddr>, Option<Instant>, String),
        is_late: bool,
    ) -> Step {
        let outcome = match socket_error(&server) {
            Ok(Ok(())) if rustix::net::getpeername(&server).is_ok() => Ok(()),
            Ok(Ok(())) if !is_late => {
                self.stage = Stage::Dial {
                    flow,
                    request,
                    server: Some(server),
                    rest,
                    until,
                    why,
                };
                return Step::Wait;
            }
            Ok(Ok(())) => Err(silence()),
            Ok(Err(error)) | Err(error) => Err(words(error)),
        };
        match outcome {
            Ok(()) => {
                self.stage = Stage::Relay(joined(flow, server, request));
                Step::Connected
            }
            Err(why) if rest.is_empty() => {
                self.stage = Stage::Dial {
                    flow,
                    request,
                    server: None,
                    rest,
                    until: None,
                    why: why.clone(),
                };
                if is_late {
                    Step::Silent(why)
                } else {
                    Step::Unreachable(why)
                }
            }
            Err(why) => {
                // The next step tries the next address, at once.
                self.stage = Stage::Dial {
                    flow,
                    request,
                    server: None,
                    rest,
                    until: None,
                    why,
                };
                self.step(Instant::now())
            }
        }
    }

    fn carry(&mut self, mut relay: Relay) -> Step {
        match relay.carry() {
            Ok(Carried::Ended) => Step::Over,
            Ok(carried) => {
                self.stage = Stage::Relay(relay);
                if carried == Carried::More {
                    Step::Continue
                } else {
                    Step::Wait
                }
            }
            Err(_) => {
                let (flow, server) = relay.into_sockets();
                reset(server);
                drop(flow);
                Step::Over
            }
        }
    }
}

/// Joins a program and its server. A tunnel begins with an answer to the program, another request
/// with its head for the server.
fn joined(flow: OwnedFd, server: OwnedFd, request: Request) -> Relay {
    // Small pieces go out at once; a refusal of the option costs time only.
    let _ = set_tcp_nodelay(&server, true);
    let Request { request, behind } = request;
    match request.head {
        None => Relay::new(flow, server, behind, ESTABLISHED.to_vec(), false),
        Some(mut head) => {
            head.extend(behind);
            Relay::new(flow, server, head, Vec::new(), true)
        }
    }
}

fn begin_to_connect(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Drops what the program still sends, and says whether it has ended.
fn has_ended(flow: &OwnedFd) -> bool {
    let mut buffer = [0; 4096];
    for _ in 0..DROPS_MAX {
        match recv(flow, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return true,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            Err(_) => return true,
        }
    }
    // A program that sends on without end is not heard to its end.
    true
}

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// How long a program may take for the head of its request.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// How long a server may take to accept.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long a program may take to end after an error was answered.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Pieces of a program that are dropped before its connection is closed.
const DROPS_MAX: usize = 64;
