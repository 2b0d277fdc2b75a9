//! The common part of flow ends over a socket of the kernel, which carries either messages
//! ([`crate::socket_flow`]) or bytes ([`crate::stream_flow`]).
//!
//! When the peer closes gracefully while the application has something to read, the socket lingers
//! until the application has read it. What the application writes meanwhile is discarded and
//! counted. So a program that sends a last message before it reads the answer does not fail.

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

/// Largest number of ring bytes that may be in transit to a socket end.
pub(crate) const SOCKET_WINDOW: u64 = 1 << 20;

/// Number of lingering socket ends of a data plane. It is limited, because an application that
/// keeps its descriptors also keeps the sockets open.
pub(crate) type Lingering = Rc<Cell<usize>>;

/// The part of a socket end that does not depend on the kind of socket.
pub(crate) struct SocketEnd<S> {
    pub flow: Flow,
    pub socket: S,
    pub pool: Pool,
    /// Pieces of the application's data that the link has not accepted yet.
    pub pieces: VecDeque<Packet>,
    pub is_readable: bool,
    pub is_writable: bool,
    /// Whether the manager has requested the end, and the socket is read a last time.
    has_request: bool,
    /// Number of ring bytes that the end has received from the input link.
    pub taken: u64,
    lingering: Lingering,
    /// Whether the flow has ended but the socket lingers.
    pub is_lingering: bool,
}

impl<S: AsFd> SocketEnd<S> {
    pub(crate) fn new(flow: Flow, socket: S, pool: Pool, lingering: Lingering) -> SocketEnd<S> {
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

    /// Puts waiting pieces on the link. Returns false if it accepts no more.
    pub(crate) fn forward(&mut self, links: &mut Links) -> bool {
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

    /// Marks the socket readable a last time after the manager has requested the end, because the
    /// application may have written to the socket, or closed it, since it was last read.
    pub(crate) fn note_request(&mut self) {
        if !self.has_request && self.flow.close_request.borrow().is_some() {
            self.has_request = true;
            self.is_readable = true;
        }
    }

    /// Whether the manager has requested the end, and everything that the application wrote is on
    /// the link. `is_reading` is true while the socket is still to be read.
    pub(crate) fn is_end_due(&self, is_reading: bool) -> bool {
        !(self.is_readable && is_reading)
            && self.pieces.is_empty()
            && self.flow.close_request.borrow().is_some()
    }

    /// Whether both directions of the socket are closed at its other end, or the socket has an
    /// error.
    pub(crate) fn has_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)).is_ok()
            && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    pub(crate) fn end(&mut self, links: &mut Links, close: Close) {
        self.flow.end(links, close);
    }

    /// Ends the flow in the way that the manager has requested.
    pub(crate) fn end_as_requested(&mut self, links: &mut Links) {
        let close = requested_close(self.flow.close_request.take());
        self.end(links, close);
    }

    /// Ends the flow, but keeps the socket until the application has read what is in it. Does
    /// nothing and returns false if the peer failed, if nothing is unread, or if too many sockets
    /// linger.
    pub(crate) fn start_lingering(&mut self, links: &mut Links, close: &Close) -> bool {
        let is_room = self.lingering.get() < LINGERING_MAX;
        let lingers = is_room
            && matches!(close, Close::Graceful(_))
            && peer_has_unread(&self.socket).unwrap_or(false)
            && shutdown(&self.socket, Shutdown::Write).is_ok();
        if !lingers {
            return false;
        }
        // At most one SDU of the application was sent in part; it is lost.
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

    /// Ends the lingering, after the application has read everything or has closed its socket.
    pub(crate) fn stop_lingering(&mut self, links: &mut Links) {
        self.is_lingering = false;
        self.lingering.set(self.lingering.get() - 1);
        links.finish(self.flow.id);
    }

    /// Whether the app of this end may sleep. `is_reading` is true while the application may still
    /// write, `has_output` while data waits to be written to the socket.
    pub(crate) fn may_sleep(&self, links: &Links, is_reading: bool, has_output: bool) -> bool {
        if self.flow.is_done {
            return !self.is_lingering || !self.is_readable;
        }
        let waits_for_link = !self.pieces.is_empty() || links.piece_max(self.flow.output) == 0;
        let waits_for_socket = !self.is_writable || !has_output;
        (waits_for_link || !self.is_readable || !is_reading) && waits_for_socket
    }

    /// Marks the socket readable and writable after a wake-up, which it may have caused.
    pub(crate) fn disarm(&mut self) {
        self.is_readable = true;
        self.is_writable = true;
    }
}

/// Largest number of lingering socket ends at a time; less than the number of descriptors of a
/// node.
const LINGERING_MAX: usize = 256;
