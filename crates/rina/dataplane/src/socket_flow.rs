//! The app for a flow's end whose application holds the other end of a SOCK_SEQPACKET socket pair.
//!
//! One message is one SDU. Each SDU costs a system call and two copies by the kernel. This kind of
//! end is for programs that need a file descriptor.
//!
//! When the peer closes gracefully while the application has SDUs to read, the socket lingers until
//! the application has read them. What the application writes meanwhile is discarded and counted.
//! So a program that sends a last message before it reads the answer does not fail.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use carina_engine::counters::Value;
use carina_engine::{App, BURST, Close, Links, Packet, Pool, record_cost};
use carina_sys::{Interest, peer_has_unread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::flow::{Flow, requested_close};

/// Longest SDU of a socket end, in bytes. It must fit completely into the kernel's default socket
/// buffer.
pub const SOCKET_SDU_MAX: usize = 65_536;

/// Most ring bytes that may be in transit to a socket end.
pub(crate) const SOCKET_WINDOW: u64 = 1 << 20;

/// Number of lingering socket ends of a data plane. It is limited, because an application that
/// keeps its descriptors also keeps the sockets open.
pub(crate) type Lingering = Rc<Cell<usize>>;

/// The app of a flow's end over a socket.
pub(crate) struct SocketFlow {
    flow: Flow,
    socket: OwnedFd,
    pool: Pool,
    scratch: Vec<u8>,
    /// Pieces of the application's current message that the link has not accepted yet.
    pieces: VecDeque<Packet>,
    /// The received part of the current SDU for the application.
    assembly: Vec<u8>,
    /// Whether the SDU in `assembly` is complete and waits for the socket.
    is_whole: bool,
    is_readable: bool,
    is_writable: bool,
    /// Whether the application sends nothing more.
    has_hung_up: bool,
    /// Whether the manager has requested the end, and the socket is read a last time.
    has_request: bool,
    /// Ring bytes received from the input link.
    taken: u64,
    lingering: Lingering,
    /// Whether the flow has ended but the socket lingers.
    is_lingering: bool,
}

/// Result of reading the socket.
enum Message {
    Sdu(usize),
    Nothing,
    End,
    Broken(String),
}

impl SocketFlow {
    pub fn new(flow: Flow, socket: OwnedFd, pool: Pool, lingering: Lingering) -> SocketFlow {
        SocketFlow {
            flow,
            socket,
            pool,
            scratch: vec![0; SOCKET_SDU_MAX],
            pieces: VecDeque::new(),
            assembly: Vec::new(),
            is_whole: false,
            is_readable: true,
            is_writable: true,
            has_hung_up: false,
            has_request: false,
            taken: 0,
            lingering,
            is_lingering: false,
        }
    }

    fn read(&mut self) -> Message {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        match recv(&self.socket, &mut self.scratch[..], flags) {
            // An empty SDU and the end of the stream look alike; only the hang-up distinguishes
            // them.
            Ok((_, 0)) if self.peer_is_gone() => Message::End,
            Ok((_, bytes)) if bytes <= SOCKET_SDU_MAX => Message::Sdu(bytes),
            Ok((_, bytes)) => Message::Broken(format!(
                "an SDU of {bytes} bytes; on a socket flow at most {SOCKET_SDU_MAX} are possible"
            )),
            Err(Errno::AGAIN | Errno::INTR) => Message::Nothing,
            Err(Errno::CONNRESET) => Message::End,
            Err(error) => Message::Broken(error.to_string()),
        }
    }

    fn peer_is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)).is_ok()
            && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Splits the message in `scratch` into pieces that the link accepts. Returns false if no
    /// buffer is free.
    fn cut(&mut self, bytes: usize, piece_max: usize) -> bool {
        let mut at = 0;
        loop {
            let piece = (bytes - at).min(piece_max);
            let Some(mut buffer) = self.pool.take(piece) else {
                self.pieces.clear();
                return false;
            };
            buffer
                .as_mut_slice()
                .copy_from_slice(&self.scratch[at..at + piece]);
            at += piece;
            self.pieces
                .push_back(Packet::from_buffer(buffer, at < bytes));
            if at == bytes {
                return true;
            }
        }
    }

    /// Puts waiting pieces on the link. Returns false if it accepts no more.
    fn forward(&mut self, links: &mut Links) -> bool {
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

    /// Writes a complete SDU to the socket. Returns false while the socket accepts none.
    fn flush(&mut self, links: &mut Links) -> bool {
        if !self.is_whole {
            return true;
        }
        if !self.is_writable {
            return false;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&self.socket, &self.assembly, flags) {
            Ok(_) => self.flow.count_out(self.assembly.len(), false),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {
                self.is_writable = false;
                return false;
            }
            Err(Errno::PIPE | Errno::CONNRESET) => {
                self.flow.row.add(Value::DropFlowEnded, 1);
                self.has_hung_up = true;
            }
            Err(error) => self.end(links, Close::Failed(format!("socket of the flow: {error}"))),
        }
        self.assembly.clear();
        self.is_whole = false;
        true
    }

    /// Adds a piece to the current SDU. Returns false if the SDU is too long for the socket.
    fn assemble(&mut self, packet: &Packet) -> bool {
        if self.assembly.len() + packet.len() > SOCKET_SDU_MAX {
            return false;
        }
        packet.append_to(&mut self.assembly);
        self.is_whole = !packet.more();
        true
    }

    /// Writes packets from the link to the socket, while the socket accepts SDUs. The rest stays on
    /// the link.
    fn drain(&mut self, links: &mut Links) -> bool {
        let input = self.flow.input;
        let mut moved = false;
        while !self.flow.is_done && self.flush(links) {
            let Some(packet) = links.pop(input) else {
                break;
            };
            moved = true;
            self.taken += record_cost(packet.len());
            if !self.assemble(&packet) {
                self.flow.row.add(Value::DropTooLong, 1);
                let text = format!("the peer sent an SDU of more than {SOCKET_SDU_MAX} bytes");
                self.end(links, Close::Failed(text));
            }
        }
        if self.flow.is_done {
            return moved;
        }
        links.report(input, self.taken);
        if links.queued(input) > 0 {
            links.leave(input);
        } else if !self.is_whole
            && let Some(close) = links.closed(input).cloned()
        {
            self.peer_closed(links, close);
        }
        moved
    }

    /// Handles the end of the flow by the peer, after everything it sent was written to the socket.
    fn peer_closed(&mut self, links: &mut Links, close: Close) {
        let is_room = self.lingering.get() < LINGERING_MAX;
        let lingers = is_room
            && !self.has_hung_up
            && matches!(close, Close::Graceful(_))
            && peer_has_unread(&self.socket).unwrap_or(false)
            && shutdown(&self.socket, Shutdown::Write).is_ok();
        if !lingers {
            return self.end(links, close);
        }
        // At most one SDU of the application was sent in part; it is lost.
        let lost = u64::from(!self.pieces.is_empty());
        self.pieces.clear();
        self.flow.row.add(Value::DropFlowEnded, lost);
        self.flow.end_links(links, close);
        self.lingering.set(self.lingering.get() + 1);
        self.is_lingering = true;
        self.is_readable = true;
        links.wake(self.flow.id);
    }

    /// Discards what the application writes, until it has read everything or has closed its socket.
    fn linger(&mut self, links: &mut Links) -> bool {
        for _ in 0..BURST {
            let is_over = match self.read() {
                Message::Sdu(_) => {
                    self.flow.row.add(Value::DropFlowEnded, 1);
                    !peer_has_unread(&self.socket).unwrap_or(false)
                }
                Message::Nothing => {
                    self.is_readable = false;
                    return false;
                }
                Message::End | Message::Broken(_) => true,
            };
            if is_over {
                self.is_lingering = false;
                self.lingering.set(self.lingering.get() - 1);
                links.finish(self.flow.id);
                return true;
            }
        }
        true
    }

    fn end(&mut self, links: &mut Links, close: Close) {
        self.flow.end(links, close);
    }

    /// Ends the flow, after the application has closed its socket or the manager has requested the
    /// end.
    fn end_of_stream(&mut self, links: &mut Links, is_close: bool) {
        let close = if is_close {
            Close::Graceful(String::new())
        } else {
            requested_close(self.flow.close_request.take())
        };
        self.end(links, close);
    }
}

/// Reads and discards what the application has written, before the socket is closed. Returns the
/// number of SDUs. The application then has room in its socket when it sees the hang-up, so that
/// `poll` never reports `POLLHUP` without `POLLOUT`. When a socket is closed, the kernel reports
/// the hang-up first.
fn release_room(socket: &OwnedFd, scratch: &mut [u8]) -> u64 {
    if shutdown(socket, Shutdown::Read).is_err() {
        return 0;
    }
    // The application cannot write any more. An empty SDU looks like the end.
    let (mut read, mut empty) = (0, 0);
    while empty < EMPTY_SDUS {
        match recv(
            socket,
            &mut *scratch,
            RecvFlags::DONTWAIT | RecvFlags::TRUNC,
        ) {
            Ok((_, 0)) => empty += 1,
            Ok(_) => (read, empty) = (read + 1, 0),
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    read
}

impl Drop for SocketFlow {
    fn drop(&mut self) {
        let unread = release_room(&self.socket, &mut self.scratch);
        self.flow.row.add(Value::DropFlowEnded, unread);
    }
}

impl App for SocketFlow {
    fn name(&self) -> &str {
        &self.flow.name
    }

    fn prepare(&mut self, _now: u64, links: &mut Links) {
        self.flow.note_channel(links);
        // The socket may accept what was left on the link.
        if !self.flow.is_done
            && self.is_writable
            && (self.is_whole || links.queued(self.flow.input) > 0)
        {
            links.retry(self.flow.input);
        }
    }

    fn pull(&mut self, _now: u64, links: &mut Links) -> bool {
        if self.is_lingering {
            return self.is_readable && self.linger(links);
        }
        if self.flow.is_done {
            return false;
        }
        if !self.has_request && self.flow.close_request.borrow().is_some() {
            // The application may have written to the socket, or closed it, since it was last read.
            self.has_request = true;
            self.is_readable = true;
        }
        let mut moved = false;
        for _ in 0..BURST {
            if !self.forward(links) {
                return moved;
            }
            if self.has_hung_up {
                self.end_of_stream(links, true);
                return true;
            }
            let piece_max = links.piece_max(self.flow.output);
            if !self.is_readable || piece_max == 0 {
                break;
            }
            match self.read() {
                Message::Sdu(bytes) => {
                    moved = true;
                    if !self.cut(bytes, piece_max) {
                        self.flow.row.add(Value::DropNoBuffer, 1);
                        let text = "the data plane has no buffers left".to_owned();
                        self.end(links, Close::Failed(text));
                        return true;
                    }
                }
                Message::Nothing => self.is_readable = false,
                Message::End => self.has_hung_up = true,
                Message::Broken(what) => {
                    self.end(links, Close::Failed(format!("socket of the flow: {what}")));
                    return true;
                }
            }
        }
        if !self.is_readable && self.pieces.is_empty() && self.flow.close_request.borrow().is_some()
        {
            self.end_of_stream(links, false);
        }
        moved
    }

    fn push(&mut self, _now: u64, links: &mut Links) -> bool {
        let mut moved = false;
        while links.next_ready(self.flow.id).is_some() {
            moved |= self.drain(links);
        }
        moved
    }

    fn release_burst(&mut self, _now: u64, _links: &mut Links) {}

    fn arm(&mut self, _now: u64, links: &mut Links) -> bool {
        if self.flow.is_done {
            return !self.is_lingering || !self.is_readable;
        }
        let waits_for_link = !self.pieces.is_empty() || links.piece_max(self.flow.output) == 0;
        let waits_for_socket =
            !self.is_writable || (!self.is_whole && links.queued(self.flow.input) == 0);
        (waits_for_link || (!self.is_readable && !self.has_hung_up)) && waits_for_socket
    }

    fn disarm(&mut self) {
        self.is_readable = true;
        self.is_writable = true;
    }

    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        vec![(self.socket.as_fd(), Interest::ReadWriteEdge)]
    }
}

/// Most lingering socket ends at a time; less than the number of descriptors of a node.
const LINGERING_MAX: usize = 256;

/// After this many consecutive empty SDUs, a socket that was shut down is considered empty.
const EMPTY_SDUS: u32 = 8;

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn application_has_room_before_it_hears_of_the_end() {
        let pair = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        );
        let (node, application) = pair.unwrap();
        let writes = |bytes: &[u8]| send(&application, bytes, SendFlags::NOSIGNAL);
        let events = || {
            let mut fds = [PollFd::new(&application, PollFlags::OUT)];
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            poll(&mut fds, Some(&now)).unwrap();
            fds[0].revents()
        };
        let mut written = 0;
        while writes(&[7; 4_000]).is_ok() {
            written += 1;
        }
        assert!(written > 0 && !events().contains(PollFlags::OUT));
        assert_eq!(release_room(&node, &mut [0; SOCKET_SDU_MAX]), written);
        assert_eq!(events(), PollFlags::OUT);
        assert_eq!(writes(&[7; 4_000]), Err(Errno::PIPE));
        drop(node);
        assert_eq!(events(), PollFlags::OUT | PollFlags::HUP);
    }
}
