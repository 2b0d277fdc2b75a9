//! One side of a link over virtqueues: a pair of queues, a pipe for each direction, and the attach
//! handshake.

use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;

use carina_ring::{Corrupt, Lease, Refused, Slot};
use carina_wire::vmpi::{BlockError, BlockHeader};

use super::pipe::Pipe;
use super::queues::{Broken, QueueState, Queues};
use crate::hl::Side;
use crate::ll::attach::{Attach, Step};
use crate::ll::polling::Polling;
use crate::ll::station::{Board, Half, VERSION};
use crate::ll::{DownReason, LinkState, Stats, VmpiImpl};

/// One side of the link.
pub(super) struct QueueDevice<Q: Queues> {
    side: Side,
    queues: Q,
    tx: Pipe,
    rx: Pipe,
    board: Blocks,
    attach: Attach,
    polling: Polling,
    look_ns: Option<u64>,
    now_ns: u64,
    broken: Option<Broken>,
    is_armed: bool,
    stats: Stats,
}

/// The handshake fields of both sides. Over virtqueues, the headers of blocks carry them.
#[derive(Debug, Default)]
struct Blocks {
    mine: Cell<Half>,
    /// Whether `mine` has changed and no block has carried it to the peer yet.
    is_due: Cell<bool>,
    peer: RefCell<Option<Half>>,
    peer_version: Cell<Option<u32>>,
}

impl Board for Blocks {
    fn show(&self, half: &Half) {
        self.mine.set(*half);
        self.is_due.set(true);
    }

    fn read_peer(&self) -> Half {
        self.peer.borrow().unwrap_or_default()
    }

    fn version(&self) -> Option<u32> {
        self.peer_version.get()
    }
}

impl Blocks {
    /// Records what the header of a block says about its sender. Returns the header if it is valid.
    fn note(&self, block: Result<BlockHeader, BlockError>) -> Option<BlockHeader> {
        match block {
            Ok(header) => {
                self.peer_version.set(Some(VERSION));
                let mut peer = self.peer.borrow_mut();
                let half = peer.get_or_insert_default();
                half.epoch = header.epoch;
                half.seen = header.seen;
                // Every block shows that the peer is alive.
                half.heartbeat = half.heartbeat.wrapping_add(1);
                Some(header)
            }
            Err(BlockError::Version(other)) => {
                self.peer_version.set(Some(other));
                None
            }
            Err(BlockError::Foreign) => None,
        }
    }

    fn note_life(&self) {
        if let Some(peer) = &mut *self.peer.borrow_mut() {
            peer.heartbeat = peer.heartbeat.wrapping_add(1);
        }
    }

    /// Forgets the peer's fields, because the queues are stopped and the peer is absent.
    fn forget_peer(&self) {
        *self.peer.borrow_mut() = None;
    }

    fn header(&self) -> BlockHeader {
        let Half { epoch, seen, .. } = self.mine.get();
        BlockHeader { epoch, seen }
    }
}

impl<Q: Queues> QueueDevice<Q> {
    pub(super) fn new(side: Side, queues: Q, tx: Pipe, rx: Pipe) -> QueueDevice<Q> {
        QueueDevice {
            side,
            queues,
            tx,
            rx,
            board: Blocks::default(),
            attach: Attach::new(),
            polling: Polling::default(),
            look_ns: None,
            now_ns: 0,
            broken: None,
            is_armed: false,
            stats: Stats::default(),
        }
    }

    fn receive(&mut self) {
        if self.broken.is_some() {
            return;
        }
        let (board, attach) = (&self.board, &self.attach);
        let mut foreign = 0;
        let mut check = |block| {
            foreign += u64::from(block == Err(BlockError::Foreign));
            let header = board.note(block);
            header.is_some_and(|header| attach.takes(header.epoch, header.seen))
        };
        let received = self.queues.receive(&mut self.rx, &mut check);
        self.stats.foreign_blocks += foreign;
        self.note(received);
        if self.queues.is_blocked(&mut self.rx) {
            // The full pipe kept the peer from sending, so its silence does not count.
            self.board.note_life();
        }
    }

    /// Sends the records that wait, and a block with this side's fields if those have changed.
    fn send(&mut self) {
        if self.broken.is_some() {
            return;
        }
        let header = self.board.header();
        if self.attach.is_up() {
            let sent = self.queues.send(&mut self.tx, header);
            self.note(sent);
        }
        // While a record is only partly sent, an empty block must not come between its parts: it
        // would end the record.
        let is_between = self.attach.is_up() && self.tx.pending() > 0;
        if self.board.is_due.get() && !is_between {
            let sent = self.queues.send_bare(header);
            if let Some(sent) = self.note(sent) {
                self.board.is_due.set(!sent);
            }
        }
    }

    fn note<T>(&mut self, done: Result<T, Broken>) -> Option<T> {
        done.map_err(|broken| self.broken = Some(broken)).ok()
    }

    /// Gives the link up when the other half broke the queues.
    fn give_up_broken(&mut self, now_ns: u64) -> Option<DownReason> {
        let broken = self.broken.take()?;
        let reason = DownReason::BrokenQueue {
            what: broken.to_string(),
        };
        let was_up = self.attach.is_up();
        self.attach.fail(now_ns, reason.clone(), &self.board);
        self.board.forget_peer();
        self.queues.reset(self.attach.next_deadline_ns());
        self.stats.corrupt += 1;
        was_up.then_some(reason)
    }

    fn state(&self) -> LinkState {
        if self.attach.is_up() {
            LinkState::Up
        } else {
            LinkState::Down(self.attach.reason().clone())
        }
    }

    fn down(&mut self) -> LinkState {
        self.stats.downs += 1;
        LinkState::Down(self.attach.reason().clone())
    }

    /// Whether records or changed fields wait until the other half provides buffers.
    fn waits_for_room(&mut self) -> bool {
        self.board.is_due.get() || self.tx.pending() > 0
    }
}

impl<Q: Queues> VmpiImpl for QueueDevice<Q> {
    fn side(&self) -> Side {
        self.side
    }

    fn record_bytes_max(&self) -> usize {
        // A record must fit into the pipe at the other end beside a buffer that is only partly
        // filled.
        self.tx.capacity() / 2 - carina_ring::RECORD_HEADER_BYTES
    }

    fn link(&mut self, now_ns: u64) -> LinkState {
        self.look_ns = None;
        self.now_ns = now_ns;
        if let Some(reason) = self.give_up_broken(now_ns) {
            return LinkState::Down(reason);
        }
        match self.queues.poll_state(now_ns) {
            QueueState::Detached => {
                self.board.forget_peer();
                if self.attach.is_up() {
                    self.attach.part(DownReason::Detached, &self.board);
                    self.attach.rest(now_ns);
                    return self.down();
                }
                self.attach.rest(now_ns);
                return LinkState::Down(DownReason::Detached);
            }
            QueueState::Stopped => self.board.forget_peer(),
            QueueState::Running => self.receive(),
        }
        if self.attach.wants_vm()
            && let Some(pid) = self.queues.vm()
        {
            self.attach.set_vm(pid);
        }
        let (tx, rx) = (&mut self.tx, &mut self.rx);
        let discard = || {
            tx.discard();
            rx.discard();
        };
        let step = self.attach.step(now_ns, &self.board, discard);
        if !self.attach.is_up() {
            // The records that arrived belong to no link. Their room is needed for what the peer
            // sends next.
            self.rx.discard();
            self.release();
        }
        self.send();
        match step {
            Step::Up => {
                self.stats.ups += 1;
                self.polling.note_activity();
            }
            Step::Down => return self.down(),
            Step::Stay => {}
        }
        self.state()
    }

    fn fail(&mut self, now_ns: u64, reason: DownReason) -> DownReason {
        if !self.attach.is_up() {
            return self.attach.reason().clone();
        }
        if self.attach.has_peer_changed(&self.board) {
            self.attach.part(DownReason::PeerRestarted, &self.board);
            self.stats.downs += 1;
            return DownReason::PeerRestarted;
        }
        match reason {
            DownReason::Corrupt(_) => self.stats.corrupt += 1,
            _ => self.stats.violations += 1,
        }
        self.attach.fail(now_ns, reason.clone(), &self.board);
        self.send();
        reason
    }

    fn reserve(&mut self, len: usize) -> Result<Slot<'_>, Refused> {
        self.polling.note_activity();
        if self.attach.is_up() {
            self.tx.put.reserve(len)
        } else {
            Err(Refused::Full)
        }
    }

    fn free_bytes(&mut self) -> Result<usize, Corrupt> {
        Ok(if self.attach.is_up() {
            self.tx.room()
        } else {
            0
        })
    }

    fn publish(&mut self) {
        self.tx.publish();
        self.send();
    }

    fn next(&mut self) -> Result<Option<Lease>, Corrupt> {
        if !self.attach.is_up() {
            return Ok(None);
        }
        let mut lease = self.rx.next()?;
        if lease.is_none() {
            self.receive();
            lease = self.rx.next()?;
        }
        if lease.is_some() {
            self.polling.note_activity();
            self.stats.records_in += 1;
        }
        Ok(lease)
    }

    fn release(&mut self) {
        self.rx.release();
        self.queues.recycle(&mut self.rx);
    }

    fn release_to(&mut self, index: u64) {
        self.rx.release_to(index);
        self.queues.recycle(&mut self.rx);
    }

    fn arm(&mut self, now_ns: u64) -> bool {
        if !self.attach.is_up() {
            return true;
        }
        self.is_armed = true;
        if self.queues.wait_fd().is_some() {
            let wants_room = self.waits_for_room();
            return !self.rx.has_record() && self.broken.is_none() && self.queues.arm(wants_room);
        }
        self.look_ns = Some(self.polling.next_look_ns(now_ns));
        self.receive();
        !self.rx.has_record()
    }

    fn disarm(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            self.queues.disarm();
        }
    }

    fn arm_space(&mut self, bytes: usize) -> Result<bool, Corrupt> {
        // Room appears when the other half takes the records that wait; `arm` asks to be woken for
        // that.
        self.send();
        Ok(!self.attach.is_up() || self.tx.room() < bytes.min(self.tx.capacity()))
    }

    fn next_deadline_ns(&self) -> u64 {
        if self.broken.is_some() {
            return self.now_ns;
        }
        let beat_ns = self.attach.next_deadline_ns();
        self.look_ns.map_or(beat_ns, |look_ns| look_ns.min(beat_ns))
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.queues.wait_fd()
    }

    fn stats(&self) -> Stats {
        Stats {
            kicks: self.queues.kicks(),
            ..self.stats
        }
    }
}

impl<Q: Queues> Drop for QueueDevice<Q> {
    fn drop(&mut self) {
        // The peer would otherwise notice only by the silence that follows.
        self.tx.discard();
        self.attach.leave(&self.board);
        self.send();
    }
}
