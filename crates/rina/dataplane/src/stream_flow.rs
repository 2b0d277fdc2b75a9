//! The app for a flow's end whose application holds the other end of a stream socket.
//!
//! The flow carries the bytes of each direction as SDUs of one byte or more, whose boundaries have
//! no meaning. An empty SDU ends its direction.
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
//! If the peer closes the flow gracefully without an empty SDU, both directions end. If the flow
//! fails, this end resets a TCP connection after the data that it has delivered, and closes any
//! other kind of socket.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};

use carina_engine::counters::Value;
use carina_engine::{App, Close, Links, Packet, record_cost};
use carina_sys::{Interest, peer_has_unread};
use carina_time::{Duration, Instant};
use carina_wire::Payload;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown};

use crate::breath_budget::BreathBudget;
use crate::flow::cut;
use crate::read_size::{READ_BYTES_MAX, READ_BYTES_MIN, next_read_bytes};
use crate::socket_end::SocketEnd;
use crate::stream_socket::StreamSocket;

/// The app of a flow's end over a stream socket.
pub(crate) struct StreamFlow {
    base: SocketEnd<StreamSocket>,
    budget: BreathBudget,
    /// Longest SDU that the flow carries, in bytes.
    sdu_max: usize,
    /// Largest number of bytes that the next call of [`StreamFlow::read`] reads.
    read_bytes: usize,
    /// Whether the application sends nothing more. The empty SDU is then among the pieces, or sent.
    has_read_end: bool,
    /// Packets that wait for the socket, each with the ring bytes for which the peer gets credit
    /// once the packet is written.
    output: VecDeque<(Packet, u64)>,
    to_application: ToApplication,
    /// Whether the last packet of the peer was a piece of an SDU that continues.
    is_within_sdu: bool,
    /// Whether the application accepts no more bytes, so that bytes for it are discarded.
    is_deaf: bool,
    /// Whether `is_deaf` is set because the application has closed its socket, not because of
    /// `shutdown(Read)`.
    has_closed: bool,
    /// Whether bytes were discarded because the application had closed its socket.
    has_discarded: bool,
    /// Whether the peer refused the flow. The socket is then left open, because an application that
    /// attached it may use it for another purpose.
    is_refused: bool,
    has_failed: bool,
    /// Once the flow has failed: the time at which this end discards what the application has not
    /// read. Whenever the socket accepts bytes, the time is set again.
    give_up_at: Option<Instant>,
}

/// State of the direction toward the application.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ToApplication {
    Open,
    /// The peer has sent the empty SDU, but data before it still waits for the socket.
    Ending,
    Ended,
}

/// Result of reading the socket.
enum Look {
    Bytes(Packet),
    Nothing,
    End,
    Broken(String),
}

impl StreamFlow {
    pub(crate) fn new(
        base: SocketEnd<StreamSocket>,
        budget: BreathBudget,
        sdu_max: usize,
    ) -> StreamFlow {
        StreamFlow {
            base,
            budget,
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

    /// Reads bytes that the application has written, directly into a buffer of the pool.
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
                self.read_bytes = next_read_bytes(asked, bytes);
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

    /// Handles the end of the application's bytes: queues the empty SDU. If the application has
    /// closed its socket completely, also stops writing to it.
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

    /// Ends the flow if everything that the application wrote is on the link and nothing more goes
    /// to the application. Returns whether it has ended the flow.
    fn end_when_done(&mut self, links: &mut Links) -> bool {
        let is_over = self.is_deaf || self.to_application == ToApplication::Ended;
        if self.base.flow.is_done || !self.has_read_end || !self.base.pieces.is_empty() || !is_over
        {
            return false;
        }
        if self.has_discarded {
            self.fail(
                links,
                "the application closed its end before it had read all bytes".into(),
            );
        } else {
            self.base.end(links, Close::Graceful(String::new()));
        }
        true
    }

    /// Handles a packet from the peer's link. Returns false if the data plane has no buffer for it.
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

    /// Appends a packet to those that wait for the socket. Small packets share a buffer. Returns
    /// false if no buffer is free.
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

    /// Writes waiting packets to the socket, until the socket accepts no more. Returns true if it
    /// wrote something or ended the direction.
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
                Err(Errno::AGAIN) if self.base.socket.grow() => {}
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
            // If the connection is broken, the next read reports the error.
            let _ = shutdown(&self.base.socket, Shutdown::Write);
            moved = true;
        }
        moved
    }

    /// Removes `bytes` bytes that the socket has accepted from the front of the waiting packets.
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

    /// Discards waiting packets, because the application accepts no more bytes. What the
    /// application wrote before is still read.
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

    /// Writes the peer's data to the socket, and handles the end of the flow. Returns whether
    /// anything happened.
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

    /// Handles the end of the flow by the peer, after everything it sent was written to the socket.
    fn peer_closed(&mut self, links: &mut Links, close: Close) {
        match close {
            Close::Graceful(_) => {
                // If this end has ended its own direction too, the socket need not linger.
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

    /// Gives up on a failed flow whose application has read nothing for [`UNDELIVERED_MAX`].
    fn check_patience(&mut self, now: Instant, links: &mut Links) {
        let has_failed = matches!(links.closed(self.base.flow.input), Some(Close::Failed(_)));
        if !has_failed || self.output.is_empty() {
            return;
        }
        let deadline = *self.give_up_at.get_or_insert(now + UNDELIVERED_MAX);
        if now >= deadline {
            let lost = self.output.len() as u64;
            self.base.flow.row.add(Value::DropFlowEnded, lost);
            self.fail(
                links,
                "the application did not read the remaining bytes".into(),
            );
        }
    }

    /// Discards what the application writes, until it has read everything or has closed its socket.
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
        // A flow that has not ended yet fails, because the data plane ends.
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

    fn prepare(&mut self, now: Instant, links: &mut Links) {
        if !self.base.flow.is_done {
            self.base.flow.note_channel(links);
            self.check_patience(now, links);
        }
    }

    fn pull(&mut self, now: Instant, links: &mut Links) -> bool {
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
            let is_due = self.base.is_readable && !self.has_read_end && piece_max > 0;
            if !is_due || !self.budget.has_room(now) {
                break;
            }
            self.base.socket.take_filler();
            match self.read() {
                Look::Bytes(packet) => {
                    moved = true;
                    self.budget.spend(now, packet.len());
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

    fn push(&mut self, _now: Instant, links: &mut Links) -> bool {
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

    fn arm(&mut self, _now: Instant, links: &mut Links) -> bool {
        let is_reading = !self.has_read_end;
        self.base
            .may_sleep(links, is_reading, !self.output.is_empty())
    }

    fn disarm(&mut self) {
        self.base.disarm();
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.give_up_at
    }

    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        vec![(self.base.socket.as_fd(), Interest::ReadWriteEdge)]
    }
}

/// Largest number of reads of the socket per call of the app.
const READS_MAX: usize = 8;

/// Largest number of slices that one write passes to the kernel.
const SLICES_MAX: usize = 32;

/// Packets shorter than this share a buffer while they wait for the socket, in bytes.
const SMALL_BYTES: usize = 4096;

/// Length of a buffer that small packets share, in bytes.
const BATCH_BYTES: usize = 16_384;

/// How long this end of a failed flow waits for an application that reads nothing.
const UNDELIVERED_MAX: Duration = Duration::from_secs(10);

const NO_BUFFERS: &str = "the data plane has no buffers left";
