//! A connection to `ipc.sock`, and the flows made from messages on it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use carina_api::ipc::{self, MESSAGE_BYTES_MAX, Mode, RING_FDS, Reply, Request, SOCKET_FDS};
use carina_ring::WakeMode;
use carina_ring::channel::{Endpoint, Side};
use carina_sys::{connect_seqpacket, membarrier_register, recv_with_fds, send_with_fds};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::error::Error;
use crate::flow::{Flow, SocketFlow, StreamFlow};
use crate::link::{FlowInfo, Link, timespec};
use crate::recv::FlowReceiver;
use crate::send::FlowSender;

/// A connection to the node, for one registration or one allocation.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    answer_limit: Duration,
}

/// A message of the node with the file descriptors that came with it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Connection {
    /// Connects to the node. `answer_limit` limits the connecting and each wait for an answer.
    pub(crate) fn open(path: &Path, answer_limit: Duration) -> Result<Connection, Error> {
        let connected = connect_seqpacket(path, answer_limit);
        let socket = connected.map_err(|source| Error::NoNode {
            path: path.to_path_buf(),
            source,
        })?;
        Ok(Connection {
            socket,
            answer_limit,
        })
    }

    pub(crate) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    pub(crate) fn send_request(&mut self, request: &Request) -> Result<(), Error> {
        self.send_attaching(request, None)
    }

    /// Sends a request together with the descriptor `attached`, and closes the descriptor in this
    /// process. `None`: sends no descriptor.
    pub(crate) fn send_attaching(
        &mut self,
        request: &Request,
        attached: Option<OwnedFd>,
    ) -> Result<(), Error> {
        let bytes = ipc::encode(request).map_err(|error| Error::Protocol(error.to_string()))?;
        let fds: Vec<_> = attached.iter().map(AsFd::as_fd).collect();
        send_with_fds(&self.socket, &bytes, &fds).map_err(broken)
    }

    /// Waits for the answer to the request that `asked` describes.
    pub(crate) fn receive(&mut self, asked: &'static str) -> Result<Answer, Error> {
        if self.wait(Some(self.answer_limit))? {
            Connection::receive_on(self.socket.as_fd())
        } else {
            Err(Error::NoAnswer {
                asked,
                limit: self.answer_limit,
            })
        }
    }

    /// Waits for the next message on a socket that [`Self::into_socket`] returned.
    pub(crate) fn receive_on(socket: BorrowedFd<'_>) -> Result<Answer, Error> {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let datagram = recv_with_fds(socket, &mut buffer).map_err(broken)?;
        if datagram.bytes == 0 {
            return Err(Error::NodeGone);
        }
        let reply = ipc::decode(&buffer[..datagram.bytes])
            .map_err(|error| Error::Protocol(error.to_string()))?;
        Ok(Answer {
            reply,
            fds: datagram.fds,
        })
    }

    /// Reads the next message if one has arrived.
    pub(crate) fn try_hear(&mut self) -> Result<Option<Answer>, Error> {
        if self.wait(Some(Duration::ZERO))? {
            Connection::receive_on(self.socket.as_fd()).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Waits until a message has arrived, for at most `limit` (`None`: no limit). Returns whether
    /// one has.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> Result<bool, Error> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let left = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut fds, left.as_ref()) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Error::system("cannot wait for the node")(error)),
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Registers this process for expedited memory barriers, so that a waker needs no fence. Returns
/// whether the kernel supports them.
pub(crate) fn membarrier() -> bool {
    membarrier_register()
}

/// The error for an answer of another kind than `expected`.
pub(crate) fn unexpected(answer: Answer, expected: &str) -> Error {
    match answer.reply {
        Reply::Error(refusal) => Error::Refused(refusal.error),
        other => Error::Protocol(format!("expected {expected}, got {other:?}")),
    }
}

/// Makes a ring flow of an answer and its descriptors.
pub(crate) fn ring_flow(answer: Answer) -> Result<Flow, Error> {
    let (flow, fds) = flow_of(answer, Mode::Ring)?;
    let [socket, memory, my_rx, my_tx, peer_rx, peer_tx]: [OwnedFd; RING_FDS] = fds
        .try_into()
        .map_err(|fds: Vec<_>| wrong_fds(fds.len(), RING_FDS))?;
    let capacity =
        ipc::ring_bytes_checked(flow.ring_bytes).map_err(|error| Error::Protocol(error.message))?;
    let side = Side::from_tx_ring(flow.tx_ring.into())
        .ok_or_else(|| Error::Protocol(format!("tx_ring is {}, not 0 or 1", flow.tx_ring)))?;
    let wake = if flow.light_wake {
        WakeMode::Light
    } else {
        WakeMode::Fence
    };
    let end = Endpoint::from_fds(
        capacity,
        side,
        wake,
        [memory, my_rx, my_tx, peer_rx, peer_tx],
    )
    .map_err(Error::system("cannot map the memory of the flow"))?;
    let link = Arc::new(Link::new(socket, info_of(flow)));
    let opposite = Arc::clone(end.rx.map());
    let peer = Arc::clone(&link);
    let sender = FlowSender::new(
        end.tx,
        opposite,
        end.my_tx_doorbell,
        end.peer_rx_doorbell,
        peer,
    );
    let receiver = FlowReceiver::new(end.rx, end.my_rx_doorbell, end.peer_tx_doorbell, link);
    Ok(Flow::new(sender, receiver))
}

/// Makes a socket flow of an answer and its descriptor.
pub(crate) fn socket_flow(answer: Answer) -> Result<SocketFlow, Error> {
    let (flow, fds) = flow_of(answer, Mode::Socket)?;
    let [socket]: [OwnedFd; SOCKET_FDS] = fds
        .try_into()
        .map_err(|fds: Vec<_>| wrong_fds(fds.len(), SOCKET_FDS))?;
    Ok(SocketFlow {
        socket,
        info: info_of(flow),
    })
}

/// Converts an answer of the node to a flow that is a byte stream.
pub(crate) fn stream_flow(answer: Answer) -> Result<StreamFlow, Error> {
    let (flow, mut fds) = flow_of(answer, Mode::Stream)?;
    if fds.len() > SOCKET_FDS {
        return Err(wrong_fds(fds.len(), SOCKET_FDS));
    }
    Ok(StreamFlow {
        socket: fds.pop(),
        info: info_of(flow),
    })
}

fn flow_of(answer: Answer, mode: Mode) -> Result<(ipc::Flow, Vec<OwnedFd>), Error> {
    match answer {
        Answer {
            reply: Reply::Flow(flow),
            fds,
        } if flow.mode == mode => Ok((flow, fds)),
        answer => Err(unexpected(answer, "a flow")),
    }
}

pub(crate) fn info_of(flow: ipc::Flow) -> FlowInfo {
    FlowInfo {
        port: flow.port,
        local: flow.local,
        remote: flow.remote,
        dif: flow.dif,
        spec: flow.spec,
        sdu_max: if flow.sdu_max == 0 {
            u64::MAX
        } else {
            flow.sdu_max
        },
    }
}

fn wrong_fds(got: usize, right: usize) -> Error {
    Error::Protocol(format!(
        "{got} descriptors beside a flow; {right} are right"
    ))
}

/// The error for a failed system call on the connection.
fn broken(source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::NotConnected => Error::NodeGone,
        io::ErrorKind::InvalidData => Error::Protocol(source.to_string()),
        _ => Error::System {
            action: "cannot talk to the node",
            source,
        },
    }
}
