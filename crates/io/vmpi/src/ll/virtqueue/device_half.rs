//! The device half of the virtqueues: the host's side, behind a vhost-user socket.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use carina_vhost_user::{Device, Half, Port};
use carina_vring::{DeviceRing, Taken};
use carina_wire::vmpi::{BLOCK_HEADER_BYTES, BlockError, BlockHeader};

use super::pipe::Pipe;
use super::queues::{BlockCheck, Broken, QueueState, Queues};
use super::{FROM_GUEST, TO_GUEST};

/// The device half for the queues of a guest, or of a front end in another process.
pub(super) struct DeviceHalf {
    port: Arc<Port>,
    /// The header of a block that was not read completely, and how many bytes of the block were
    /// read.
    rest: Option<(BlockHeader, usize)>,
    is_armed: bool,
    kicks: u64,
}

/// Largest number of chains that are taken from the ring in one call.
const BURST: usize = 32;

/// The half stops filling the pipe at this many bytes until its records are read. The records are
/// then still in the cache when they are read, and other guests are served in between.
const PENDING_BYTES: u64 = 256 << 10;

impl DeviceHalf {
    pub(super) fn new(port: Arc<Port>) -> DeviceHalf {
        DeviceHalf {
            port,
            rest: None,
            is_armed: false,
            kicks: 0,
        }
    }

    /// Calls `visit` with a running ring, while the device is locked. If `visit` finds a fault of
    /// the ring, the guest is disconnected. Returns `None` if the ring is not running or the
    /// control thread holds the device.
    fn visit<T>(
        &mut self,
        ring: usize,
        visit: impl FnOnce(&mut Self, &mut dyn DeviceRing) -> Result<T, Broken>,
    ) -> Result<Option<T>, Broken> {
        let port = Arc::clone(&self.port);
        let Some(mut device) = port.try_lock() else {
            return Ok(None);
        };
        let Some(mut running) = device.ring(ring) else {
            return Ok(None);
        };
        let half: &mut dyn DeviceRing = match running.half {
            Half::Split(half) => half,
            Half::Packed(half) => half,
        };
        let done = visit(self, half);
        if let Err(Broken::Ring(fault)) = &done {
            device.cut_off(*fault);
            return done.map(Some);
        }
        half.put_back();
        half.publish();
        self.kicks += u64::from(running.signal());
        done.map(Some)
    }

    fn receive_from(
        &mut self,
        ring: &mut dyn DeviceRing,
        pipe: &mut Pipe,
        check: &mut BlockCheck<'_>,
    ) -> Result<(), Broken> {
        while pipe.pending() < PENDING_BYTES {
            let count = ring.take(BURST)?;
            if count == 0 {
                break;
            }
            for chain in 0..count {
                let is_done = self.receive_chain(ring.taken(), chain, pipe, check);
                if let Ok(false) = is_done {
                    return Ok(());
                }
                ring.complete(0);
                is_done?;
            }
        }
        Ok(())
    }

    /// Copies the records of one chain into the pipe. Returns false if not all of them had room.
    fn receive_chain(
        &mut self,
        taken: &Taken,
        chain: usize,
        pipe: &mut Pipe,
        check: &mut BlockCheck<'_>,
    ) -> Result<bool, Broken> {
        let bytes = taken.readable(chain);
        let mut header = [0; BLOCK_HEADER_BYTES];
        let header = match taken.read(chain, 0, &mut header) {
            BLOCK_HEADER_BYTES => BlockHeader::decode(header),
            _ => Err(BlockError::Foreign),
        };
        let is_taken = check(header);
        let done = match (self.rest.take(), header) {
            // If another block has taken its place, the headers differ, because an epoch is never
            // used twice.
            (Some((rest, done)), Ok(header)) if rest == header => done,
            _ => BLOCK_HEADER_BYTES,
        };
        let left = bytes.saturating_sub(done);
        if !is_taken || left == 0 {
            return Ok(true);
        }
        if !left.is_multiple_of(8) {
            return Err(Broken::Block {
                bytes: left,
                room: bytes,
            });
        }
        let part = left.min(pipe.room());
        // The pipe has room for `part` bytes.
        if let Ok(mut stretch) = pipe.put.stretch(part) {
            taken.read_into(chain, done, &mut stretch);
            stretch.commit(part);
            pipe.publish();
        }
        if part < left {
            self.rest = header.ok().map(|header| (header, done + part));
            return Ok(false);
        }
        Ok(true)
    }

    /// Fills the guest's buffers from the pipe.
    fn send_to(
        ring: &mut dyn DeviceRing,
        pipe: &mut Pipe,
        header: BlockHeader,
    ) -> Result<(), Broken> {
        let header = header.encode();
        while pipe.pending() > 0 {
            let count = ring.take(BURST)?;
            if count == 0 {
                break;
            }
            for chain in 0..count {
                let taken = ring.taken();
                let room = taken.writable(chain);
                let room = room.saturating_sub(BLOCK_HEADER_BYTES) & !7;
                let Some(run) = pipe.run(room) else {
                    if pipe.pending() == 0 {
                        return Ok(());
                    }
                    // A buffer without room for a record breaks the rules.
                    return Err(Broken::Block { bytes: 0, room });
                };
                taken.write(chain, 0, &header);
                let written = taken.write_from(chain, BLOCK_HEADER_BYTES, &run);
                run.step(written);
                ring.complete((BLOCK_HEADER_BYTES + written) as u32);
            }
        }
        Ok(())
    }

    fn send_header(ring: &mut dyn DeviceRing, header: BlockHeader) -> Result<bool, Broken> {
        if ring.take(1)? == 0 {
            return Ok(false);
        }
        let written = ring.taken().write(0, 0, &header.encode());
        ring.complete(written as u32);
        Ok(true)
    }
}

impl Queues for DeviceHalf {
    fn poll_state(&mut self, _now_ns: u64) -> QueueState {
        let Some(mut device) = self.port.try_lock() else {
            // The control thread is changing the device. The next look sees the result.
            return QueueState::Running;
        };
        let runs = |device: &mut Device| {
            [TO_GUEST, FROM_GUEST]
                .iter()
                .all(|ring| device.ring(*ring).is_some())
        };
        match device.is_connected() {
            false => QueueState::Detached,
            true if runs(&mut device) => QueueState::Running,
            true => {
                self.rest = None;
                QueueState::Stopped
            }
        }
    }

    fn receive(&mut self, pipe: &mut Pipe, check: &mut BlockCheck<'_>) -> Result<(), Broken> {
        let received =
            |half: &mut Self, ring: &mut dyn DeviceRing| half.receive_from(ring, pipe, check);
        self.visit(FROM_GUEST, received).map(|_| ())
    }

    fn is_blocked(&mut self, pipe: &mut Pipe) -> bool {
        self.rest.is_some() || pipe.pending() >= PENDING_BYTES
    }

    fn send(&mut self, pipe: &mut Pipe, header: BlockHeader) -> Result<(), Broken> {
        if pipe.pending() > 0 {
            let sent = |_: &mut Self, ring: &mut dyn DeviceRing| Self::send_to(ring, pipe, header);
            self.visit(TO_GUEST, sent)?;
        }
        pipe.release();
        Ok(())
    }

    fn send_bare(&mut self, header: BlockHeader) -> Result<bool, Broken> {
        let sent = self.visit(TO_GUEST, |_, ring| Self::send_header(ring, header));
        Ok(sent?.unwrap_or(false))
    }

    fn recycle(&mut self, _pipe: &mut Pipe) {}

    fn arm(&mut self, wants_room: bool) -> bool {
        self.is_armed = true;
        self.port.clear_events();
        let Some(mut device) = self.port.try_lock() else {
            return false;
        };
        let mut arm = |ring| device.ring(ring).is_none_or(|ring| ring.half.any().arm());
        let is_armed = arm(FROM_GUEST) && (!wants_room || arm(TO_GUEST));
        // If memory is lost, do not sleep: the next look disconnects the guest.
        is_armed && !device.is_memory_lost()
    }

    fn disarm(&mut self) {
        if !std::mem::take(&mut self.is_armed) {
            return;
        }
        if let Some(mut device) = self.port.try_lock() {
            for ring in [FROM_GUEST, TO_GUEST] {
                if let Some(ring) = device.ring(ring) {
                    ring.half.any().disarm();
                }
            }
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.port.wait_fd())
    }

    fn reset(&mut self, _until_ns: u64) {
        // A guest that broke a ring has already been disconnected. Otherwise the queues are intact.
        self.rest = None;
    }

    fn kicks(&self) -> u64 {
        self.kicks
    }

    fn vm(&self) -> Option<i32> {
        self.port.peer_pid()
    }
}
