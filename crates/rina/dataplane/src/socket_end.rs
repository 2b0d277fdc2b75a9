//! What ends of flows share whose application holds a socket of the kernel, whether messages
//! ([`crate::socket_flow`]) or bytes ([`crate::stream_flow`]) go over it.
//!
//! When the peer closes in good order while the application has something to read, the socket
//! lingers until the application has read it: what the application writes meanwhile is discarded
//! and counted, so that a program that says a last word before it reads the answer does not fail.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::rc::Rc;

use carina_engine::counters::Value;
use carina_engine::{Close, Links, Packet, Pool};
use carina_sys::peer_has_unread;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};

use crate::flow::{Flow, requested_close};

/// Ring bytes that the peer of a socket end may have on their way to it.
pub(crate) const SOCKET_WINDOW: u64 = 1 << 20;

/// How many socket ends of a data plane linger, which are bounded: an application can keep its
/// descriptors, and with them these.
pub(crate) type Lingering = Rc<Cell<usize>>;

/// The part of a socket end that does not depend on the kind of socket.
pub(crate) struct SocketEnd<S> {
    pub flow: Flow,
    pub socket: S,
    pub pool: Pool,
    /// Pieces of what the application wrote that the link has not taken yet.
    pub pieces: VecDeque<Packet>,
    pub is_readable: bool,
    pub is_writable: bool,
    /// The manager has ordered the end, and the socket is read once more.
    has_request: bool,
    /// Ring bytes taken over from the input link.
    pub taken: u64,
    lingering: Lingering,
    /// The flow is over, and the socket is not.
    pub is_lingering: bool,
}

impl<S: AsFd> SocketEnd<S> {
    pub fn new(flow: Flow, socket: S, pool: Pool, lingering: Lingering) -> SocketEnd<S> {
        SocketEnd {
            flow,
            socket,
            pool,
            pieces: VecDeque::new(),
            is_readable: true,
            is_writable: true,
            has_request: false,
            taken: 0,
            lingering,
            is_lingering: false,
        }
    }

    /// Puts waiting pieces on the link; false when it takes no more.
    pub fn forward(&mut self, links: &mut Links) -> bool {
        while let Some(piece) = self.pieces.front() {
            if !links.may_push(self.flow.output, piece.len()) {
                return false;
            }
            let Some(piece) = self.pieces.pop_front() else {
                break;
            };
            self.flow.count_in(piece.len(), piece.more());
            if links.push(self.flow.output, piece).is_err() {
                self.flow.row.add(Value::DropFlowEnded, 1);
            }
        }
        true
    }

    /// Has the socket read once more when the manager has ordered the end: the application may have
    /// written, or closed the socket, since it was read last.
    pub fn note_request(&mut self) {
        if !self.has_request && self.flow.close_request.borrow().is_some() {
            self.has_request = true;
            self.is_readable = true;
        }
    }

    /// The manager has ordered the end, and what the application wrote is on the link.
    pub fn is_end_due(&self, is_reading: bool) -> bool {
        !(self.is_readable && is_reading)
            && self.pieces.is_empty()
            && self.flow.close_request.borrow().is_some()
    }

    /// Both directions of the socket are closed at its other end.
    pub fn has_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)).is_ok()
            && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    pub fn end(&mut self, links: &mut Links, close: Close) {
        self.flow.end(links, close);
    }

    /// Ends the flow as the manager has ordered.
    pub fn end_as_requested(&mut self, links: &mut Links) {
        let close = requested_close(self.flow.close_request.take());
        self.end(links, close);
    }

    /// Ends the flow and keeps the socket until the application has read what is in it. False, and
    /// nothing is done, when the peer failed, or nothing is unread, or too many sockets linger.
    pub fn start_lingering(&mut self, links: &mut Links, close: &Close) -> bool {
        let is_room = self.lingering.get() < LINGERING_MAX;
        let lingers = is_room
            && matches!(close, Close::Graceful(_))
            && peer_has_unread(&self.socket).unwrap_or(false)
            && shutdown(&self.socket, Shutdown::Write).is_ok();
        if !lingers {
            return false;
        }
        // An SDU of the application of which a part was sent at most.
        let lost = u64::from(!self.pieces.is_empty());
        self.pieces.clear();
        self.flow.row.add(Value::DropFlowEnded, lost);
        self.flow.end_links(links, close.clone());
        self.lingering.set(self.lingering.get() + 1);
        self.is_lingering = true;
        self.is_readable = true;
        links.wake(self.flow.id);
        true
    }

    /// The application has read everything or closed its socket.
    pub fn stop_lingering(&mut self, links: &mut Links) {
        self.is_lingering = false;
        self.lingering.set(self.lingering.get() - 1);
        links.finish(self.flow.id);
    }

    /// Whether the app of this end may sleep. `is_reading` while the application may write,
    /// `has_output` while something waits for the socket.
    pub fn may_sleep(&self, links: &Links, is_reading: bool, has_output: bool) -> bool {
        if self.flow.is_done {
            return !self.is_lingering || !self.is_readable;
        }
        let waits_for_link = !self.pieces.is_empty() || links.piece_max(self.flow.output) == 0;
        let waits_for_socket = !self.is_writable || !has_output;
        (waits_for_link || !self.is_readable || !is_reading) && waits_for_socket
    }

    /// Something rang, which may have been the socket.
    pub fn disarm(&mut self) {
        self.is_readable = true;
        self.is_writable = true;
    }
}

/// Socket ends that linger at a time: fewer than the descriptors that a node may have.
const LINGERING_MAX: usize = 256;
