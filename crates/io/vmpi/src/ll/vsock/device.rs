//! One side of a link over a stream.

use std::os::fd::{AsFd, BorrowedFd};

use carina_ring::{Corrupt, Lease, RECORD_HEADER_BYTES, Refused, Slot};
use carina_sys::{Epoll, Interest};

use super::connection::{Connection, INPUT_BYTES};
use super::connector::Connector;
use super::frame::FRAME_HEADER_BYTES;
use crate::hl::Side;
use crate::ll::attach::SILENCE_PATIENT_NS_MAX;
use crate::ll::virtqueue::pipe::Pipe;
use crate::ll::{DownReason, HEARTBEAT_NS, LinkState, Stats, VmpiImpl};

/// One side of a link over a stream.
pub(super) struct StreamDevice {
    side: Side,
    connector: Connector,
    connection: Option<Connection>,
    tx: Pipe,
    rx: Pipe,
    epoll: Epoll,
    reason: DownReason,
    held_until_ns: u64,
    hold_ns: u64,
    next_look_ns: u64,
    now_ns: u64,
    /// Why the connection is to be given up at the next look.
    ended: Option<DownReason>,
    is_armed: bool,
    /// Whether the last look has emptied the socket, so that the next record need not be searched
    /// there once.
    is_emptied: bool,
    stats: Stats,
}

impl StreamDevice {
    pub(super) fn new(side: Side, connector: Connector) -> std::io::Result<StreamDevice> {
        let epoll = Epoll::new()?;
        if let Some(fd) = connector.wait_fd() {
            epoll.add(fd, 0, Interest::Read)?;
        }
        Ok(StreamDevice {
            side,
            connector,
            connection: None,
            tx: Pipe::own(TX_BYTES)?,
            rx: Pipe::own(RX_BYTES)?,
            epoll,
            reason: DownReason::NoPeer,
            held_until_ns: 0,
            hold_ns: HOLD_NS_MIN,
            next_look_ns: 0,
            now_ns: 0,
            ended: None,
            is_armed: false,
            is_emptied: false,
            stats: Stats::default(),
        })
    }

    fn is_up(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.window.is_some())
    }

    /// Accepts a connection that waits. Does nothing if none waits.
    fn connect(&mut self, now_ns: u64) {
        let Some(socket) = self.connector.poll(now_ns) else {
            return;
        };
        if self.epoll.add(&socket, 1, Interest::Read).is_err() {
            return;
        }
        self.tx.discard();
        self.tx.release();
        self.rx.discard();
        self.rx.release();
        self.ended = None;
        self.connection = Some(Connection::new(socket, now_ns));
    }

    /// Ends the connection. Returns whether the link was up.
    fn part(&mut self, reason: DownReason) -> bool {
        let was_up = self.is_up();
        if let Some(connection) = self.connection.take() {
            // The socket was added when the connection was taken.
            let _ = self.epoll.del(&connection.socket);
        }
        // What waits belongs to no link.
        self.tx.discard();
        self.tx.release();
        self.rx.discard();
        self.rx.release();
        self.ended = None;
        self.reason = reason;
        was_up
    }

    fn hold(&mut self, now_ns: u64) {
        self.held_until_ns = now_ns + self.hold_ns;
        self.hold_ns = (self.hold_ns * 2).min(HOLD_NS_MAX);
    }

    /// Moves what has arrived: frames into this side's counts, records into the pipe. If `reads` is
    /// true, reads the socket first.
    fn receive(&mut self, reads: bool) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if self.ended.is_some() {
            return;
        }
        let mut is_end = false;
        if reads && connection.input.waiting().len() < INPUT_BYTES {
            match connection.read() {
                Ok(read) => is_end = read == Some(0),
                Err(_) => is_end = true,
            }
        }
        if let Err(reason) = connection.sort(&mut self.rx, self.now_ns) {
            self.ended = Some(reason);
        } else if is_end {
            // Records that arrived before the end are lost with the link.
            self.ended = Some(DownReason::PeerLeft);
        }
        self.rx.publish();
    }

    /// Sends records that wait, as far as the peer's window allows.
    fn send(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if self.ended.is_some() {
            return;
        }
        self.tx.publish();
        loop {
            connection.fill(&mut self.tx, self.now_ns);
            if connection.out.waiting().is_empty() {
                break;
            }
            match connection.write() {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    self.ended = Some(DownReason::PeerLeft);
                    break;
                }
            }
        }
        self.tx.release();
        let waits = connection.is_stuck;
        if waits != connection.waits_to_write {
            let interest = if waits {
                Interest::ReadWrite
            } else {
                Interest::Read
            };
            // The socket was added when the connection was taken.
            let _ = self.epoll.modify(&connection.socket, 1, interest);
            connection.waits_to_write = waits;
        }
    }

    /// Follows the time: the preface, the heartbeat and the silence of the peer.
    fn look(&mut self, now_ns: u64) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let gap_ns = now_ns.saturating_sub(connection.looked_ns).min(LOOK_NS_MAX);
        connection.looked_ns = now_ns;
        if connection.heard_ns == now_ns {
            connection.silent_ns = 0;
        } else {
            connection.silent_ns += gap_ns;
        }
        let limit_ns = match connection.window {
            // The stream ends with the peer's process: only a system that hangs is silent.
            Some(_) => SILENCE_PATIENT_NS_MAX,
            None => PREFACE_NS_MAX,
        };
        if connection.silent_ns >= limit_ns && self.ended.is_none() {
            let silent_ms = now_ns.saturating_sub(connection.heard_ns) / 1_000_000;
            self.ended = Some(DownReason::PeerSilent { silent_ms });
        }
        if now_ns >= self.next_look_ns {
            self.next_look_ns = now_ns + HEARTBEAT_NS;
            if connection.out.waiting().is_empty() {
                connection.beat();
            }
        }
        if connection.window.is_some() && now_ns - connection.since_ns >= GOOD_NS {
            self.hold_ns = HOLD_NS_MIN;
        }
    }

    /// Free room for records that this side may queue.
    fn room(&mut self) -> usize {
        let queued = self.tx.pending();
        let Some(connection) = &mut self.connection else {
            return 0;
        };
        let room = connection.flight.room(queued, LONGEST_COST);
        self.tx.room().min(room as usize)
    }
}

impl VmpiImpl for StreamDevice {
    fn side(&self) -> Side {
        self.side
    }

    fn record_bytes_max(&self) -> usize {
        LONGEST_BYTES
    }

    fn link(&mut self, now_ns: u64) -> LinkState {
        self.now_ns = now_ns;
        if self.connection.is_none() {
            if now_ns >= self.next_look_ns {
                self.next_look_ns = now_ns + HEARTBEAT_NS;
            }
            if now_ns < self.held_until_ns {
                self.connector.refuse_others();
                return LinkState::Down(self.reason.clone());
            }
            self.connect(now_ns);
        }
        let was_up = self.is_up();
        self.receive(true);
        let connection = self.connection.as_ref();
        self.is_emptied = connection.is_some_and(|connection| connection.is_drained);
        self.look(now_ns);
        self.send();
        if let Some(reason) = self.ended.take() {
            if matches!(
                reason,
                DownReason::Violation { .. } | DownReason::WrongVersion { .. }
            ) {
                self.hold(now_ns);
                self.stats.violations += 1;
            }
            // A link that never was up did not go down.
            self.stats.downs += u64::from(was_up);
            self.part(reason);
            return LinkState::Down(self.reason.clone());
        }
        if self.connection.is_some() {
            self.connector.refuse_others();
        }
        if self.is_up() {
            self.stats.ups += u64::from(!was_up);
            LinkState::Up
        } else {
            LinkState::Down(self.reason.clone())
        }
    }

    fn fail(&mut self, now_ns: u64, reason: DownReason) -> DownReason {
        if !self.is_up() {
            return self.reason.clone();
        }
        if let Some(ended) = self.ended.take() {
            self.stats.downs += 1;
            self.part(ended.clone());
            return ended;
        }
        match reason {
            DownReason::Corrupt(_) => self.stats.corrupt += 1,
            _ => self.stats.violations += 1,
        }
        self.hold(now_ns);
        self.part(reason.clone());
        reason
    }

    fn reserve(&mut self, len: usize) -> Result<Slot<'_>, Refused> {
        if self.is_up() && len <= LONGEST_BYTES {
            self.tx.put.reserve(len)
        } else {
            Err(Refused::Full)
        }
    }

    fn free_bytes(&mut self) -> Result<usize, Corrupt> {
        Ok(if self.is_up() { self.room() } else { 0 })
    }

    fn reserve_bytes(&self) -> usize {
        RESERVE_BYTES
    }

    fn publish(&mut self) {
        self.send();
    }

    fn next(&mut self) -> Result<Option<Lease>, Corrupt> {
        if !self.is_up() {
            return Ok(None);
        }
        let mut lease = self.rx.next()?;
        if lease.is_none() {
            let reads = !std::mem::take(&mut self.is_emptied);
            self.receive(reads);
            lease = self.rx.next()?;
        }
        if let (Some(lease), Some(connection)) = (&lease, &mut self.connection) {
            connection.taken += (FRAME_HEADER_BYTES + lease.len()) as u64;
            self.stats.records_in += 1;
        }
        Ok(lease)
    }

    fn release(&mut self) {
        self.rx.release();
        self.send();
    }

    fn release_to(&mut self, index: u64) {
        self.rx.release_to(index);
        self.send();
    }

    fn arm(&mut self, _now_ns: u64) -> bool {
        self.is_armed = true;
        if self.connection.is_none() {
            return true;
        }
        self.receive(true);
        self.send();
        self.ended.is_none() && !self.rx.has_record()
    }

    fn disarm(&mut self) {
        self.is_armed = false;
    }

    fn arm_space(&mut self, bytes: usize) -> Result<bool, Corrupt> {
        self.send();
        Ok(!self.is_up() || self.room() < bytes.min(SPACE_BYTES))
    }

    fn next_deadline_ns(&self) -> u64 {
        if self.ended.is_some() {
            return self.now_ns;
        }
        self.next_look_ns
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn stats(&self) -> Stats {
        self.stats
    }
}

/// Longest record that this side sends, in bytes. The peer accepts [`RECORD_BYTES_MAX`]; records of
/// other flows wait behind a shorter one for less time.
const LONGEST_BYTES: usize = 16 << 10;
const LONGEST_COST: u64 = (FRAME_HEADER_BYTES + RECORD_HEADER_BYTES + LONGEST_BYTES) as u64;

/// Part of the room that channels which send little need not share.
const RESERVE_BYTES: usize = 4 << 10;

/// Room for a piece of an SDU, at most a quarter of [`LONGEST_BYTES`], and for control messages. It
/// is less than the smallest bound on the bytes on the way, without what the peer has not shown.
const SPACE_BYTES: usize = 11 << 10;

/// Sizes of the pipes. The second holds a window whose records are not released yet.
const TX_BYTES: usize = 256 << 10;
const RX_BYTES: usize = 1 << 20;

/// Largest part of the gap between two looks that counts as silence of the peer.
const LOOK_NS_MAX: u64 = 100_000_000;

/// How long the peer may take to send its preface, in nanoseconds.
const PREFACE_NS_MAX: u64 = 5_000_000_000;

/// First hold-off after a failed link. It doubles with each further failure.
const HOLD_NS_MIN: u64 = 500_000_000;
const HOLD_NS_MAX: u64 = 16_000_000_000;
/// A link that was up for this long resets the hold-off.
const GOOD_NS: u64 = 30_000_000_000;
