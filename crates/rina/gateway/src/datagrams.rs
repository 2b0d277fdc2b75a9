//! Moves datagrams between a UDP socket and a flow in socket mode, where one message is one SDU.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// The result of one call of [`from_flow`] or [`to_flow`]: how many SDUs or datagrams it read, and
/// how many of them it dropped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub count: u64,
    /// Number of datagrams that were dropped, because they were too long or the other socket had no
    /// room.
    pub dropped: u64,
    /// Whether the flow has ended, so that no more datagrams can be moved.
    pub is_over: bool,
}

/// Reads up to [`BURST`] SDUs that wait on a flow and passes each to `deliver`, which sends it as a
/// datagram and returns false if it could not.
pub(crate) fn from_flow(
    flow: impl AsFd,
    buffer: &mut [u8],
    mut deliver: impl FnMut(&[u8]) -> bool,
) -> Moved {
    let mut moved = Moved::default();
    for _ in 0..BURST {
        match recv(&flow, &mut *buffer, RecvFlags::DONTWAIT) {
            // An empty SDU and the end of the flow differ only by the hang-up.
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

/// Sends a datagram as an SDU of a flow; drops and counts it if that is not possible now.
pub(crate) fn to_flow(flow: impl AsFd, datagram: &[u8], sdu_max: u64, moved: &mut Moved) {
    // The reader of a flow takes an empty SDU for the end of the flow.
    if datagram.is_empty() || datagram.len() as u64 > sdu_max {
        moved.dropped += 1;
        return;
    }
    match send(flow, datagram, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(_) => moved.count += 1,
        Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => moved.is_over = true,
        // No room: the datagram is dropped, as in any network of datagrams.
        Err(_) => moved.dropped += 1,
    }
}

/// Sends a datagram; returns false if it could not be sent. If the kernel reports instead that the
/// peer refused an earlier datagram, sends the datagram a second time.
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

/// Largest number of datagrams that are moved in a row, before datagrams of others.
pub(crate) const BURST: usize = 64;

/// Longest datagram that the gateway moves, in bytes.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 65_536;
