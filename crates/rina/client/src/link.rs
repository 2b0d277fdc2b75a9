//! State that both halves of a flow share: the names of its ends, and whether it has ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use carina_api::ipc::{self, FlowNotice};
use carina_api::{AppName, DifName, FlowSpec, PortId};
use carina_sys::{Doorbell, Epoll, Interest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::error::Error;

/// The names at the ends of a flow, its DIF and its limits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FlowInfo {
    /// Port-id of the flow on this system.
    pub port: PortId,
    /// Name of the application at this end.
    pub local: AppName,
    /// Name of the application at the other end.
    pub remote: AppName,
    /// Name of the DIF that carries the flow.
    pub dif: DifName,
    /// The flow specification that the allocating application requested.
    pub spec: FlowSpec,
    /// Longest SDU that the flow carries, in bytes; `u64::MAX` when only memory limits it.
    pub sdu_max: u64,
}

/// How a flow ended.
#[derive(Clone, Debug)]
enum End {
    /// The remote application closed the flow.
    Closed,
    /// The flow failed, for the reason that the node reported.
    Failed(String),
    /// The node has ended.
    NodeGone,
}

/// The flow's control socket. The node reports the end of the flow on it, and closing it
/// deallocates the flow.
///
/// Messages are only peeked, never removed. So the socket stays readable once the flow has ended,
/// and one message wakes both halves of the flow.
#[derive(Debug)]
pub(crate) struct Link {
    socket: OwnedFd,
    info: FlowInfo,
    end: OnceLock<End>,
}

/// Why [`Link::sleep`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The doorbell rang: SDUs or space may be there, or the flow may have ended.
    Doorbell,
    /// The flow has ended. SDUs may still wait in the ring.
    End,
    /// The time limit has passed, or a signal arrived.
    Neither,
}

impl Link {
    pub(crate) fn new(socket: OwnedFd, info: FlowInfo) -> Link {
        Link {
            socket,
            info,
            end: OnceLock::new(),
        }
    }

    pub(crate) fn info(&self) -> &FlowInfo {
        &self.info
    }

    /// Whether this end already knows that the flow has ended. No system call.
    pub(crate) fn ended(&self) -> bool {
        self.end.get().is_some()
    }

    /// Checks the control socket, with one system call, and returns whether the flow has ended.
    pub(crate) fn check_end(&self) -> bool {
        if self.ended() {
            return true;
        }
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        // Mostly there is no message, so clearing a buffer for a whole message would be wasted.
        if let Err(Errno::AGAIN | Errno::INTR) = recv(&self.socket, &mut [0; 1], flags) {
            return false;
        }
        let mut message = [0; 4096];
        let end = match recv(&self.socket, &mut message, flags) {
            Err(Errno::AGAIN | Errno::INTR) => return false,
            Ok((_, 0)) | Err(_) => End::NodeGone,
            Ok((filled, _)) => end_of(&message[..filled]),
        };
        let _ = self.end.set(end);
        true
    }

    /// Makes an epoll set of `doorbell` and the control socket: readable when the doorbell has rung
    /// or the flow has ended.
    pub(crate) fn pollable(&self, doorbell: &Doorbell) -> Result<Epoll, Error> {
        let make = || {
            let epoll = Epoll::new()?;
            epoll.add(doorbell.as_fd(), 0, Interest::Read)?;
            epoll.add(self.as_fd(), 1, Interest::Read)?;
            Ok(epoll)
        };
        make().map_err(Error::system::<std::io::Error>(
            "cannot make the flow pollable",
        ))
    }

    /// The error that describes how the flow ended. Call it once the flow has ended.
    ///
    /// A ring may be marked as failed before the node has sent its notice with the reason. The
    /// first call then waits for the notice, for [`NOTICE_WAIT`] at most.
    pub(crate) fn failure(&self) -> Error {
        if !self.check_end() {
            self.wait_for_notice();
        }
        let without_notice = || End::Failed("the remote end failed".to_owned());
        match self.end.get_or_init(without_notice) {
            End::Closed => Error::Closed,
            End::Failed(reason) => Error::FlowFailed {
                reason: reason.clone(),
            },
            End::NodeGone => Error::NodeGone,
        }
    }

    /// Sleeps until the node's notice has arrived, or for [`NOTICE_WAIT`].
    fn wait_for_notice(&self) {
        let until = Instant::now() + NOTICE_WAIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) if self.check_end() => return,
                // A spurious wake-up.
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// Sleeps until `doorbell` rings, the flow ends, or `limit` has passed (`None`: no limit).
    pub(crate) fn sleep(
        &self,
        doorbell: BorrowedFd<'_>,
        limit: Option<Duration>,
    ) -> Result<Woken, Error> {
        let mut fds = [
            PollFd::from_borrowed_fd(doorbell, PollFlags::IN),
            PollFd::new(&self.socket, PollFlags::IN),
        ];
        let limit = limit.map(timespec);
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::system("cannot wait for the flow's doorbell")(error)),
        }
        let rang = !fds[0].revents().is_empty();
        if !fds[1].revents().is_empty() && self.check_end() && !rang {
            return Ok(Woken::End);
        }
        Ok(if rang {
            Woken::Doorbell
        } else {
            Woken::Neither
        })
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Interprets a message of the node on the control socket as the end of the flow.
fn end_of(message: &[u8]) -> End {
    match ipc::decode(message) {
        Ok(FlowNotice::Closed { graceful: true, .. }) => End::Closed,
        Ok(FlowNotice::Closed {
            reason,
            graceful: false,
        }) => End::Failed(reason),
        Err(error) => End::Failed(format!("cannot parse a notice of the node: {error}")),
    }
}

/// How long the first call that finds a failed ring waits for the node's notice. The notice passes
/// two threads of the node, which share busy processors with other programs. Tests wait longer, as
/// their own notices may be late.
const NOTICE_WAIT: Duration = Duration::from_millis(if cfg!(test) { 2000 } else { 100 });

pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
