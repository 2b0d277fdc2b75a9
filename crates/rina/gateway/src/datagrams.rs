//! Datagrams between a UDP socket and a flow that is a socket of messages.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// What a look for datagrams gave.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub count: u64,
    /// Too long, or the other socket had no room.
    pub dropped: u64,
    /// The flow has ended.
    pub is_over: bool,
}

/// Moves what a flow has to the UDP socket of its peer: `deliver` sends one datagram.
pub(crate) fn from_flow(
    flow: impl AsFd,
    buffer: &mut [u8],
    mut deliver: impl FnMut(&[u8]) -> bool,
) -> Moved {
    let mut moved = Moved::default();
    for _ in 0..BURST {
        match recv(&flow, &mut *buffer, RecvFlags::DONTWAIT) {
            // An SDU of no bytes and the end look the same but for the hang-up.
            Ok((_, 0)) if has_hung_up(&flow) => {
                moved.is_over = true;
                return moved;
            }
            Ok((_, bytes)) => {
                moved.count += 1;
                moved.dropped += u64::from(!deliver(&buffer[..bytes]));
            }
            Err(Errno::AGAIN) => return moved,
            Err(Errno::INTR) => {}
            Err(_) => {
                moved.is_over = true;
                return moved;
            }
        }
    }
    moved
}

/// Gives a datagram to a flow.
pub(crate) fn to_flow(flow: impl AsFd, datagram: &[u8], sdu_max: u64, moved: &mut Moved) {
    // The reader of a flow takes an SDU of no bytes for the end.
    if datagram.is_empty() || datagram.len() as u64 > sdu_max {
        moved.dropped += 1;
        return;
    }
    match send(flow, datagram, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(_) => moved.count += 1,
        Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => moved.is_over = true,
        // No room: a network of datagrams drops.
        Err(_) => moved.dropped += 1,
    }
}

/// Sends a datagram; false when it cannot be sent. Where the kernel reports instead that the peer
/// refused an earlier datagram, the datagram is sent a second time.
pub(crate) fn send_udp(socket: impl AsFd, datagram: &[u8]) -> bool {
    let sent = || send(&socket, datagram, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    match sent() {
        Err(Errno::CONNREFUSED) => sent().is_ok(),
        other => other.is_ok(),
    }
}

fn has_hung_up(socket: impl AsFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(PollFlags::HUP)
}

/// Datagrams moved in a row, before those of others.
pub(crate) const BURST: usize = 64;

/// Longest datagram, in bytes.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 65_536;
