//! The app for a flow's end whose application holds the other end of a SOCK_SEQPACKET socket pair.
//!
//! One message is one SDU. Each SDU costs a system call and two copies by the kernel. This kind of
//! end is for programs that need a file descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use carina_engine::counters::Value;
use carina_engine::{App, BURST, Close, Links, Packet, record_cost};
use carina_sys::{Interest, peer_has_unread};
use carina_time::Instant;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::socket_end::SocketEnd;

/// Longest SDU of a socket end, in bytes. It must fit completely into the kernel's default socket
/// buffer.
pub const SOCKET_SDU_MAX: usize = 65_536;

/// The app of a flow's end over a socket.
pub(crate) struct SocketFlow {
    base: SocketEnd<OwnedFd>,
    scratch: Vec<u8>,
    /// The received part of the current SDU for the application.
    assembly: Vec<u8>,
    /// Whether the SDU in `assembly` is complete and waits for the socket.
    is_whole: bool,
    /// Whether the application sends nothing more.
    has_hung_up: bool,
}

/// Result of reading the socket.
enum Message {
    Sdu(usize),
    Nothing,
    End,
    Broken(String),
}

impl SocketFlow {
    pub(crate) fn new(base: SocketEnd<OwnedFd>) -> SocketFlow {
        SocketFlow {
            base,
            scratch: vec![0; SOCKET_SDU_MAX],
            assembly: Vec::new(),
            is_whole: false,
            has_hung_up: false,
        }
    }

    fn read(&mut self) -> Message {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        match recv(&self.base.socket, &mut self.scratch[..], flags) {
            // An empty SDU and the end of the stream look alike; only the hang-up distinguishes
            // them.
            Ok((_, 0)) if self.base.has_hung_up() => Message::End,
            Ok((_, bytes)) if bytes <= SOCKET_SDU_MAX => Message::Sdu(bytes),
            Ok((_, bytes)) => Message::Broken(format!(
                "an SDU of {bytes} bytes; on a socket flow at most {SOCKET_SDU_MAX} are possible"
            )),
            Err(Errno::AGAIN | Errno::INTR) => Message::Nothing,
            Err(Errno::CONNRESET) => Message::End,
            Err(error) => Message::Broken(error.to_string()),
        }
    }

    /// Splits the message in `scratch` into pieces that the link accepts. Returns false if no
    /// buffer is free.
    fn cut(&mut self, bytes: usize, piece_max: usize) -> bool {
        let mut at = 0;
        loop {
            let piece = (bytes - at).min(piece_max);
            let Some(mut buffer) = self.base.pool.take(piece) else {
                self.base.pieces.clear();
                return false;
            };
            buffer
                .as_mut_slice()
                .copy_from_slice(&self.scratch[at..at + piece]);
            at += piece;
            self.base
                .pieces
                .push_back(Packet::from_buffer(buffer, at < bytes));
            if at == bytes {
                return true;
            }
        }
    }

    /// Writes a complete SDU to the socket. Returns false while the socket accepts none.
    fn flush(&mut self, links: &mut Links) -> bool {
        if !self.is_whole {
            return true;
        }
        if !self.base.is_writable {
            return false;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&self.base.socket, &self.assembly, flags) {
            Ok(_) => self.base.flow.count_out(self.assembly.len(), false),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {
                self.base.is_writable = false;
                return false;
            }
            Err(Errno::PIPE | Errno::CONNRESET) => {
                self.base.flow.row.add(Value::DropFlowEnded, 1);
                self.has_hung_up = true;
            }
            Err(error) => self
                .base
                .end(links, Close::Failed(format!("socket of the flow: {error}"))),
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
        let input = self.base.flow.input;
        let mut moved = false;
        while !self.base.flow.is_done && self.flush(links) {
            let Some(packet) = links.pop(input) else {
                break;
            };
            moved = true;
            self.base.taken += record_cost(packet.len());
            if !self.assemble(&packet) {
                self.base.flow.row.add(Value::DropTooLong, 1);
                let text = format!("the peer sent an SDU of more than {SOCKET_SDU_MAX} bytes");
                self.base.end(links, Close::Failed(text));
            }
        }
        if self.base.flow.is_done {
            return moved;
        }
        links.report(input, self.base.taken);
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
        if self.has_hung_up || !self.base.start_lingering(links, &close) {
            self.base.end(links, close);
        }
    }

    /// Discards what the application writes, until it has read everything or has closed its socket.
    fn linger(&mut self, links: &mut Links) -> bool {
        for _ in 0..BURST {
            let is_over = match self.read() {
                Message::Sdu(_) => {
                    self.base.flow.row.add(Value::DropFlowEnded, 1);
                    !peer_has_unread(&self.base.socket).unwrap_or(false)
                }
                Message::Nothing => {
                    self.base.is_readable = false;
                    return false;
                }
                Message::End | Message::Broken(_) => true,
            };
            if is_over {
                self.base.stop_lingering(links);
                return true;
            }
        }
        true
    }
}

/// Reads and discards the SDUs that the application has written, before the socket is closed.
/// Returns the number of SDUs. The application then has room in its socket when it sees the
/// hang-up, so that `poll` never reports `POLLHUP` without `POLLOUT`. When a socket is closed, the
/// kernel reports the hang-up first.
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
        let unread = release_room(&self.base.socket, &mut self.scratch);
        self.base.flow.row.add(Value::DropFlowEnded, unread);
    }
}

impl App for SocketFlow {
    fn name(&self) -> &str {
        &self.base.flow.name
    }

    fn prepare(&mut self, _now: Instant, links: &mut Links) {
        self.base.flow.note_channel(links);
        // The socket may accept what was left on the link.
        if !self.base.flow.is_done
            && self.base.is_writable
            && (self.is_whole || links.queued(self.base.flow.input) > 0)
        {
            links.retry(self.base.flow.input);
        }
    }

    fn pull(&mut self, _now: Instant, links: &mut Links) -> bool {
        if self.base.is_lingering {
            return self.base.is_readable && self.linger(links);
        }
        if self.base.flow.is_done {
            return false;
        }
        self.base.note_request();
        let mut moved = false;
        for _ in 0..BURST {
            if !self.base.forward(links) {
                return moved;
            }
            if self.has_hung_up {
                self.base.end(links, Close::Graceful(String::new()));
                return true;
            }
            let piece_max = links.piece_max(self.base.flow.output);
            if !self.base.is_readable || piece_max == 0 {
                break;
            }
            match self.read() {
                Message::Sdu(bytes) => {
                    moved = true;
                    if !self.cut(bytes, piece_max) {
                        self.base.flow.row.add(Value::DropNoBuffer, 1);
                        let text = "the data plane has no buffers left".to_owned();
                        self.base.end(links, Close::Failed(text));
                        return true;
                    }
                }
                Message::Nothing => self.base.is_readable = false,
                Message::End => self.has_hung_up = true,
                Message::Broken(what) => {
                    self.base
                        .end(links, Close::Failed(format!("socket of the flow: {what}")));
                    return true;
                }
            }
        }
        if self.base.is_end_due(true) {
            self.base.end_as_requested(links);
        }
        moved
    }

    fn push(&mut self, _now: Instant, links: &mut Links) -> bool {
        let mut moved = false;
        while links.next_ready(self.base.flow.id).is_some() {
            moved |= self.drain(links);
        }
        moved
    }

    fn release_burst(&mut self, _now: Instant, _links: &mut Links) {}

    fn arm(&mut self, _now: Instant, links: &mut Links) -> bool {
        let has_output = self.is_whole || links.queued(self.base.flow.input) > 0;
        let waits_for_link = !self.base.pieces.is_empty();
        (waits_for_link || !self.has_hung_up) && self.base.may_sleep(links, true, has_output)
    }

    fn disarm(&mut self) {
        self.base.disarm();
    }

    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        vec![(self.base.socket.as_fd(), Interest::ReadWriteEdge)]
    }
}

/// After this many consecutive empty SDUs, a socket that was shut down is considered empty.
const EMPTY_SDUS: u32 = 8;

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
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
