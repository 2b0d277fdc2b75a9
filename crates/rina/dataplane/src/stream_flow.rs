//! The end of a flow whose application holds the other end of a stream socket.
//!
//! The flow carries the bytes of each direction as SDUs of any length but zero, whose boundaries
//! have no meaning. An SDU of no bytes ends its direction.
//!
//! ```text
//!   application        this end                    flow              the other end
//!   write  ----------> read: an SDU ------------->      ------------> bytes
//!   shutdown(Write) -> read 0: the empty SDU ---->      ------------> shutdown(Write), after them
//!   read   <---------- write, as the socket takes <----      <------- an SDU
//!   read 0 <---------- shutdown(Write) <---------------      <------- the empty SDU
//!   both directions have ended: the flow closes in good order
//!   ECONNRESET, or closed with bytes unread: the flow fails
//! ```
//!
//! A peer that closes the flow in good order without the empty SDU ends both directions. A flow
//! that fails resets a TCP connection behind what was delivered, and closes any other socket.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};

use carina_engine::counters::Value;
use carina_engine::{App, Close, Links, Packet, record_cost};
use carina_sys::{Interest, peer_has_unread};
use carina_wire::Payload;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};

use crate::flow::cut;
use crate::socket_end::SocketEnd;
use crate::stream_socket::StreamSocket;

/// The app for one stream end.
pub(crate) struct StreamFlow {
    base: SocketEnd<StreamSocket>,
    /// Longest SDU that the flow carries, in bytes.
    sdu_max: usize,
    /// Bytes that the next look at the socket asks for.
    read_bytes: usize,
    /// Nothing more comes from the application; the empty SDU is among the pieces, or sent.
    has_read_end: bool,
    /// What waits for the socket, and the ring bytes for which its peer gets credit afterwards.
    output: VecDeque<(Packet, u64)>,
    to_application: ToApplication,
    /// The last packet of the peer was a piece of an SDU that continues.
    is_within_sdu: bool,
    /// The application takes no bytes: what comes for it is discarded.
    is_deaf: bool,
    /// It is deaf because it has closed its socket, not by `shutdown(Read)`.
    has_closed: bool,
    /// Something came for an application that has closed its socket.
    has_discarded: bool,
    /// The peer refused the flow: an application that attached a socket may use it otherwise.
    is_refused: bool,
    has_failed: bool,
    /// When a failed flow gives up delivering, in ns; moves with each write.
    give_up_at: Option<u64>,
}

/// The direction toward the application.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ToApplication {
    Open,
    /// The peer sent the empty SDU, and the socket has not taken everything before it.
    Ending,
    Ended,
}

/// What a look at the socket gave.
enum Look {
    Bytes(Packet),
    Nothing,
    End,
    Broken(String),
}

impl StreamFlow {
    pub fn new(base: SocketEnd<StreamSocket>, sdu_max: usize) -> StreamFlow {
        StreamFlow {
            base,
            sdu_max: sdu_max.clamp(1, READ_BYTES_MAX),
            read_bytes: READ_BYTES_MIN,
            has_read_end: false,
            output: VecDeque::new(),
            to_application: ToApplication::Open,
            is_within_sdu: false,
            is_deaf: false,
            has_closed: false,
            has_discarded: false,
            is_refused: false,
            has_failed: false,
            give_up_at: None,
        }
    }

    /// Reads what the application has written, straight into a buffer of the pool.
    fn read(&mut self) -> Look {
        let Some(mut buffer) = self.base.pool.take(self.read_bytes.min(self.sdu_max)) else {
            self.base.flow.row.add(Value::DropNoBuffer, 1);
            return Look::Broken(NO_BUFFERS.to_owned());
        };
        let asked = buffer.len();
        match recv(
            &self.base.socket,
            buffer.as_mut_slice(),
            RecvFlags::DONTWAIT,
        ) {
            Ok((_, 0)) => Look::End,
            Ok((_, bytes)) => {
                if bytes == asked {
                    self.read_bytes = READ_BYTES_MAX;
                } else if bytes < READ_BYTES_MIN / 4 {
                    self.read_bytes = READ_BYTES_MIN;
                }
                buffer.truncate(bytes);
                let mut packet = Packet::from_buffer(buffer, false);
                packet.fit();
                Look::Bytes(packet)
            }
            Err(Errno::AGAIN | Errno::INTR) => Look::Nothing,
            Err(error) => Look::Broken(format!("socket of the flow: {error}")),
        }
    }

    fn fail(&mut self, links: &mut Links, text: String) {
        self.has_failed = true;
        self.base.end(links, Close::Failed(text));
    }

    fn fail_without_buffer(&mut self, links: &mut Links) {
        self.base.flow.row.add(Value::DropNoBuffer, 1);
        self.fail(links, NO_BUFFERS.to_owned());
    }

    /// The application writes no more. One that has closed its socket altogether takes no more
    /// either, and the flow ends.
    fn end_reading(&mut self, links: &mut Links) {
        self.has_read_end = true;
        let Some(empty) = self.base.pool.take(0) else {
            return self.fail_without_buffer(links);
        };
        self.base
            .pieces
            .push_back(Packet::from_buffer(empty, false));
        if self.base.has_hung_up() {
            self.stop_writing();
        }
    }

    /// Whether the flow is over: all that the application wrote is on the link, and nothing more
    /// goes to it.
    fn end_when_done(&mut self, links: &mut Links) -> bool {
        let is_over = self.is_deaf || self.to_application == ToApplication::Ended;
        if self.base.flow.is_done || !self.has_read_end || !self.base.pieces.is_empty() || !is_over
        {
            return false;
        }
        if self.has_discarded {
            self.fail(
                links,
                "the application closed its end before all was read".into(),
            );
        } else {
            self.base.end(links, Close::Graceful(String::new()));
        }
        true
    }

    /// Takes a packet off the peer's link. False when the data plane has no buffer for it.
    fn take(&mut self, packet: Packet) -> bool {
        let cost = record_cost(packet.len());
        let is_end = packet.is_empty() && !packet.more() && !self.is_within_sdu;
        self.is_within_sdu = packet.more();
        if self.is_deaf || self.to_application != ToApplication::Open {
            self.has_discarded |= self.has_closed && !packet.is_empty();
            self.base.flow.row.add(Value::DropFlowEnded, 1);
            self.base.taken += cost;
            return true;
        }
        self.base.flow.count_out(packet.len(), packet.more());
        if is_end {
            self.to_application = ToApplication::Ending;
        }
        if packet.is_empty() {
            self.base.taken += cost;
            return true;
        }
        self.put_out(packet, cost)
    }

    /// Appends a packet to what waits for the socket. Small ones share a buffer.
    fn put_out(&mut self, mut packet: Packet, cost: u64) -> bool {
        if let Some((last, cost_of_last)) = self.output.back_mut() {
            if last.extend_with(&packet) {
                *cost_of_last += cost;
                return true;
            }
            if packet.len() < SMALL_BYTES {
                let Some(mut batch) = <Packet as Payload>::with_capacity(BATCH_BYTES) else {
                    return false;
                };
                let is_in = batch.extend_with(&packet);
                self.output.push_back((batch, cost));
                return is_in;
            }
        }
        let is_kept = packet.materialise(&self.base.pool);
        self.output.push_back((packet, cost));
        is_kept
    }

    /// Writes what waits, as far as the socket takes it. True when it took something.
    fn write(&mut self, links: &mut Links) -> bool {
        let mut moved = false;
        while self.base.is_writable && !self.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let waiting = self.output.iter().filter_map(|(packet, _)| packet.slices());
            let waiting = waiting.flatten().filter(|slice| !slice.is_empty());
            let count = slices
                .iter_mut()
                .zip(waiting)
                .map(|(to, slice)| *to = IoSlice::new(slice));
            let count = count.count();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let mut none = SendAncillaryBuffer::default();
            match sendmsg(&self.base.socket, &slices[..count], &mut none, flags) {
                Ok(bytes) => {
                    moved = true;
                    self.written(bytes);
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => self.base.is_writable = false,
                Err(Errno::PIPE | Errno::CONNRESET) => self.stop_writing(),
                Err(error) => {
                    self.fail(links, format!("socket of the flow: {error}"));
                    return true;
                }
            }
        }
        if self.to_application == ToApplication::Ending && self.output.is_empty() {
            self.to_application = ToApplication::Ended;
            // Where the connection has broken, reading says so.
            let _ = shutdown(&self.base.socket, Shutdown::Write);
            moved = true;
        }
        moved
    }

    /// The socket has taken bytes off the front of what waits.
    fn written(&mut self, mut bytes: usize) {
        self.give_up_at = None;
        while let Some((packet, cost)) = self.output.front_mut() {
            if packet.len() > bytes {
                packet.advance(bytes);
                return;
            }
            bytes -= packet.len();
            self.base.taken += *cost;
            self.output.pop_front();
        }
    }

    /// The application takes nothing more. What it wrote before is still read.
    fn stop_writing(&mut self) {
        if !self.is_deaf {
            self.is_deaf = true;
            self.has_closed = self.base.has_hung_up();
        }
        self.has_discarded |= self.has_closed && !self.output.is_empty();
        let lost = self.output.len() as u64;
        self.base.flow.row.add(Value::DropFlowEnded, lost);
        self.base.taken += self.output.drain(..).map(|(_, cost)| cost).sum::<u64>();
        self.base.is_readable = true;
    }

    /// Moves what the peer has sent into the socket, and sees to its end.
    fn flush(&mut self, links: &mut Links) -> bool {
        let moved = self.write(links);
        if self.base.flow.is_done {
            return moved;
        }
        let input = self.base.flow.input;
        links.report(input, self.base.taken);
        if self.end_when_done(links) {
            return true;
        }
        if self.output.is_empty()
            && links.queued(input) == 0
            && let Some(close) = links.closed(input).cloned()
        {
            self.peer_closed(links, close);
            return true;
        }
        moved
    }

    /// The peer has ended the flow, and what it sent is in the socket.
    fn peer_closed(&mut self, links: &mut Links, close: Close) {
        match close {
            Close::Graceful(_) => {
                // Both directions have ended, but for what the application does not know yet.
                let is_over = self.has_read_end || self.is_deaf;
                if is_over || !self.base.start_lingering(links, &close) {
                    self.base.end(links, close);
                }
            }
            Close::Refused(_) => {
                self.is_refused = true;
                self.base.end(links, close);
            }
            Close::Failed(text) => self.fail(links, text),
        }
    }

    /// A failed flow does not wait for ever for an application that reads nothing.
    fn check_patience(&mut self, now: u64, links: &mut Links) {
        let has_failed = matches!(links.closed(self.base.flow.input), Some(Close::Failed(_)));
        if !has_failed || self.output.is_empty() {
            return;
        }
        let deadline = *self.give_up_at.get_or_insert(now + UNDELIVERED_NS_MAX);
        if now >= deadline {
            let lost = self.output.len() as u64;
            self.base.flow.row.add(Value::DropFlowEnded, lost);
            self.fail(links, "the application did not read what was left".into());
        }
    }

    /// Discards what the application writes, until it has read everything or closes its socket.
    fn linger(&mut self, links: &mut Links) -> bool {
        for _ in 0..READS_MAX {
            let is_over = match self.read() {
                Look::Bytes(_) => {
                    self.base.flow.row.add(Value::DropFlowEnded, 1);
                    !peer_has_unread(&self.base.socket).unwrap_or(false)
                }
                Look::Nothing => {
                    self.base.is_readable = false;
                    return false;
                }
                Look::End | Look::Broken(_) => true,
            };
            if is_over {
                self.base.stop_lingering(links);
                return true;
            }
        }
        true
    }
}

impl Drop for StreamFlow {
    fn drop(&mut self) {
        if self.is_refused {
            return;
        }
        // A flow that is not done ends with the data plane.
        if self.has_failed || !self.base.flow.is_done {
            self.base.socket.reset();
        } else {
            self.base.socket.shut_down();
        }
    }
}

impl App for StreamFlow {
    fn name(&self) -> &str {
        &self.base.flow.name
    }

    fn prepare(&mut self, now: u64, links: &mut Links) {
        if !self.base.flow.is_done {
            self.base.flow.note_channel(links);
            self.check_patience(now, links);
        }
    }

    fn pull(&mut self, _now: u64, links: &mut Links) -> bool {
        if self.base.is_lingering {
            return self.base.is_readable && self.linger(links);
        }
        if self.base.flow.is_done {
            return false;
        }
        self.base.note_request();
        let mut moved = self.flush(links);
        for _ in 0..READS_MAX {
            if self.base.flow.is_done || !self.base.forward(links) {
                return moved;
            }
            let piece_max = links.piece_max(self.base.flow.output);
            if self.has_read_end || !self.base.is_readable || piece_max == 0 {
                break;
            }
            match self.read() {
                Look::Bytes(packet) => {
                    moved = true;
                    if !cut(packet, piece_max, &mut self.base.pieces) {
                        self.fail_without_buffer(links);
                        return true;
                    }
                }
                Look::Nothing => self.base.is_readable = false,
                Look::End => self.end_reading(links),
                Look::Broken(text) => {
                    self.fail(links, text);
                    return true;
                }
            }
        }
        if self.end_when_done(links) {
            return true;
        }
        if self.base.is_end_due(!self.has_read_end) {
            self.has_failed = true;
            self.base.end_as_requested(links);
        }
        moved
    }

    fn push(&mut self, _now: u64, links: &mut Links) -> bool {
        let mut moved = false;
        while let Some(link) = links.next_ready(self.base.flow.id) {
            while let Some(packet) = links.pop(link) {
                moved = true;
                if self.base.flow.is_done {
                    self.base.flow.row.add(Value::DropFlowEnded, 1);
                } else if !self.take(packet) {
                    self.fail_without_buffer(links);
                }
            }
            if !self.base.flow.is_done {
                moved |= self.flush(links);
            }
        }
        moved
    }

    fn arm(&mut self, _now: u64, links: &mut Links) -> bool {
        let is_reading = !self.has_read_end;
        self.base
            .may_sleep(links, is_reading, !self.output.is_empty())
    }

    fn disarm(&mut self) {
        self.base.disarm();
    }

    fn next_deadline(&self) -> Option<u64> {
        self.give_up_at
    }

    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        vec![(self.base.socket.as_fd(), Interest::ReadWriteEdge)]
    }
}

/// Bytes that one look at the socket asks for, at most: one SDU.
const READ_BYTES_MAX: usize = 65_536;

/// Bytes that a look asks for when the last one gave few: a buffer costs its whole length.
const READ_BYTES_MIN: usize = 16_384;

/// Looks at the socket in one visit.
const READS_MAX: usize = 8;

/// Slices that one write hands to the kernel.
const SLICES_MAX: usize = 32;

/// SDUs below this length share a buffer while they wait, in bytes.
const SMALL_BYTES: usize = 4096;

/// Length of a buffer that small SDUs share, in bytes.
const BATCH_BYTES: usize = 16_384;

/// How long a failed flow waits for an application that reads nothing, in ns.
const UNDELIVERED_NS_MAX: u64 = 10_000_000_000;

const NO_BUFFERS: &str = "the data plane has no buffers left";
