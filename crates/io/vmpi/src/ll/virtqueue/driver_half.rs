//! The driver half: the guest's, or of another front end.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use carina_sys::EventFd;
use carina_vring::{DriverBuffer, DriverRing, Fault, SplitDriver};
use carina_wire::vmpi::{BLOCK_HEADER_BYTES, BlockError, BlockHeader};

use super::device_memory::{DeviceMemory, RING_SIZE_MAX, RingAddresses};
use super::pipe::Pipe;
use super::queues::{Broken, Judge, QueueState, Queues};
use super::{FROM_GUEST, TO_GUEST};

/// How a driver half reaches its device.
pub(super) trait Transport: Send {
    /// Stops the device, which forgets the rings, and says how long each ring may be at most.
    ///
    /// # Errors
    /// There is no device.
    fn reset(&mut self) -> io::Result<[u16; 2]>;

    /// Starts the device with these rings, which are in this memory.
    ///
    /// # Errors
    /// The device refuses.
    fn start(&mut self, memory: &DeviceMemory, rings: &[RingAddresses; 2]) -> io::Result<()>;

    /// Whether the device is there still.
    fn is_alive(&mut self, now_ns: u64) -> bool;

    /// Tells the device to look at a ring.
    fn kick(&self, ring: usize);

    /// What the device signals. `None`: it does not, and is polled.
    fn signal(&self) -> Option<&EventFd>;

    /// Takes note of signals, so that the next one wakes again.
    fn silence(&self) {
        if let Some(signal) = self.signal() {
            signal.drain();
        }
    }
}

/// The queues of a device.
pub(super) struct DriverHalf<T: Transport> {
    transport: T,
    memory: DeviceMemory,
    state: State,
    is_armed: bool,
    kicks: u64,
}

enum State {
    Stopped { until_ns: u64 },
    Running(Box<Rings>),
}

struct Rings {
    from_guest: SplitDriver,
    to_guest: SplitDriver,
    /// Blocks that the device has, in their order.
    sent: VecDeque<Sent>,
    /// Buffers that the device has, in their order.
    posted: VecDeque<Posted>,
    next_slot: u16,
    next_header: u16,
    /// Bytes of a buffer for records.
    chunk: usize,
    buffers: Vec<DriverBuffer>,
}

struct Sent {
    id: u16,
    /// The index behind its records in the pipe; a block without any has none.
    end: Option<u64>,
}

struct Posted {
    id: u16,
    slot: u16,
}

/// The longest block that is sent: the other end frees what it has read of longer ones late.
const BLOCK_BYTES_MAX: usize = 64 << 10;

/// Descriptors that a block takes at most: its header, and records that cross the end of the pipe
/// or of a page.
const DESCRIPTORS_MAX: usize = 4;

/// Between attempts to start a device.
const RETRY_NS: u64 = 100_000_000;

impl<T: Transport> DriverHalf<T> {
    pub(super) fn new(transport: T, memory: DeviceMemory) -> DriverHalf<T> {
        DriverHalf {
            transport,
            memory,
            state: State::Stopped { until_ns: 0 },
            is_armed: false,
            kicks: 0,
        }
    }

    /// Starts the device anew.
    pub(super) fn start(&mut self) -> io::Result<()> {
        self.state = State::Stopped { until_ns: 0 };
        let sizes = self.transport.reset()?;
        let ring = |ring: usize| {
            let size = sizes[ring].min(RING_SIZE_MAX);
            // The largest power of two.
            let size = 1 << (u16::BITS - 1 - size.max(1).leading_zeros());
            self.memory.ring(ring, size).map_err(io::Error::other)
        };
        let (mut to_guest, to_addresses) = ring(TO_GUEST)?;
        let (mut from_guest, from_addresses) = ring(FROM_GUEST)?;
        to_guest.disarm();
        from_guest.disarm();
        let chunk = chunk_bytes(self.memory.pipe_bytes(), to_guest.room());
        self.transport
            .start(&self.memory, &[to_addresses, from_addresses])?;
        self.state = State::Running(Box::new(Rings {
            from_guest,
            to_guest,
            sent: VecDeque::new(),
            posted: VecDeque::new(),
            next_slot: 0,
            next_header: 0,
            chunk,
            buffers: Vec::with_capacity(DESCRIPTORS_MAX),
        }));
        Ok(())
    }

    fn stop(&mut self, until_ns: u64) {
        self.state = State::Stopped { until_ns };
    }

    fn kick(&mut self, ring: usize) {
        let State::Running(rings) = &mut self.state else {
            return;
        };
        let wants = match ring {
            TO_GUEST => rings.to_guest.wants_kick(),
            _ => rings.from_guest.wants_kick(),
        };
        if wants {
            self.transport.kick(ring);
            self.kicks += 1;
        }
    }
}

impl Rings {
    /// Gives the device every buffer for which the pipe has room.
    fn post(&mut self, memory: &DeviceMemory, pipe: &mut Pipe) {
        let mut free = pipe.room().saturating_sub(self.posted.len() * self.chunk);
        let mut next = pipe.put.committed() + (self.posted.len() * self.chunk) as u64;
        while free >= self.chunk && self.to_guest.room() >= 2 {
            let slot = self.next_slot;
            let offset = next as usize & (pipe.capacity() - 1);
            let header = memory.header(TO_GUEST, slot);
            self.buffers.clear();
            self.buffers
                .push(DriverBuffer::writable(header, BLOCK_HEADER_BYTES as u32));
            memory.buffers(TO_GUEST, offset, self.chunk, &mut self.buffers);
            let Ok(id) = self.to_guest.add(&self.buffers) else {
                break;
            };
            self.posted.push_back(Posted { id, slot });
            self.next_slot = (slot + 1) % RING_SIZE_MAX;
            next += self.chunk as u64;
            free -= self.chunk;
        }
        self.to_guest.publish();
    }

    /// Takes back the blocks that the device has read.
    fn reclaim(&mut self, pipe: &mut Pipe) -> Result<(), Broken> {
        while let Some(done) = self.from_guest.poll()? {
            let sent = self.sent.pop_front();
            let sent = sent.filter(|sent| sent.id == done.id);
            let sent = sent.ok_or(Fault::UsedId { id: done.id.into() })?;
            if let Some(end) = sent.end {
                pipe.release_to(end);
            }
        }
        if self.sent.is_empty() {
            // What was discarded is in no block.
            pipe.release();
        }
        Ok(())
    }

    fn write_header(&mut self, memory: &DeviceMemory, header: BlockHeader) {
        let slot = self.next_header;
        self.next_header = (slot + 1) % RING_SIZE_MAX;
        memory.write_header(FROM_GUEST, slot, &header.encode());
        let address = memory.header(FROM_GUEST, slot);
        self.buffers.clear();
        self.buffers
            .push(DriverBuffer::readable(address, BLOCK_HEADER_BYTES as u32));
    }

    /// Sends what the pipe has, as far as there are descriptors.
    fn send(&mut self, memory: &DeviceMemory, pipe: &mut Pipe, header: BlockHeader) {
        while self.from_guest.room() >= DESCRIPTORS_MAX {
            let Some(run) = pipe.run(BLOCK_BYTES_MAX) else {
                break;
            };
            let (offset, len) = (run.offset(), run.len());
            let end = run.step(len);
            self.write_header(memory, header);
            memory.buffers(FROM_GUEST, offset, len, &mut self.buffers);
            let id = self.from_guest.add(&self.buffers);
            let id = id.expect("there are as many descriptors as a block takes at most");
            self.sent.push_back(Sent { id, end: Some(end) });
        }
        self.from_guest.publish();
    }

    /// Puts the records of a block that has come into the pipe, where they lie already.
    fn take(&mut self, pipe: &mut Pipe, written: usize, is_taken: bool) -> Result<(), Broken> {
        let bytes = written.saturating_sub(BLOCK_HEADER_BYTES);
        if bytes > self.chunk || !bytes.is_multiple_of(8) {
            let room = self.chunk;
            return Err(Broken::Block { bytes, room });
        }
        let bytes = if is_taken {
            bytes
        } else {
            // The link that the records before belong to has ended.
            pipe.discard();
            0
        };
        // The room was free when the buffer was posted.
        if let Ok(stretch) = pipe.put.stretch(bytes) {
            stretch.commit(bytes);
        }
        pipe.put_gap(self.chunk - bytes);
        Ok(())
    }
}

impl<T: Transport> Queues for DriverHalf<T> {
    fn look(&mut self, now_ns: u64) -> QueueState {
        match &self.state {
            State::Running(_) if self.transport.is_alive(now_ns) => return QueueState::Running,
            State::Running(_) => self.stop(now_ns + RETRY_NS),
            State::Stopped { until_ns } if now_ns < *until_ns => {}
            State::Stopped { .. } => match self.start() {
                Ok(()) => return QueueState::Running,
                Err(_) => self.stop(now_ns + RETRY_NS),
            },
        }
        QueueState::Detached
    }

    fn receive(&mut self, pipe: &mut Pipe, judge: &mut Judge<'_>) -> Result<(), Broken> {
        let State::Running(rings) = &mut self.state else {
            return Ok(());
        };
        while let Some(done) = rings.to_guest.poll()? {
            let posted = rings.posted.pop_front();
            let posted = posted.filter(|posted| posted.id == done.id);
            let posted = posted.ok_or(Fault::UsedId { id: done.id.into() })?;
            let written = done.written as usize;
            let header = if written < BLOCK_HEADER_BYTES {
                Err(BlockError::Foreign)
            } else {
                BlockHeader::decode(self.memory.read_header(TO_GUEST, posted.slot))
            };
            rings.take(pipe, written, judge(header))?;
        }
        pipe.publish();
        rings.post(&self.memory, pipe);
        self.kick(TO_GUEST);
        Ok(())
    }

    fn is_blocked(&mut self, _pipe: &mut Pipe) -> bool {
        matches!(&self.state, State::Running(rings) if rings.posted.is_empty())
    }

    fn send(&mut self, pipe: &mut Pipe, header: BlockHeader) -> Result<(), Broken> {
        if let State::Running(rings) = &mut self.state {
            rings.reclaim(pipe)?;
            rings.send(&self.memory, pipe, header);
            self.kick(FROM_GUEST);
        }
        Ok(())
    }

    fn send_bare(&mut self, header: BlockHeader) -> Result<bool, Broken> {
        let State::Running(rings) = &mut self.state else {
            return Ok(false);
        };
        if rings.from_guest.room() == 0 {
            return Ok(false);
        }
        rings.write_header(&self.memory, header);
        let Ok(id) = rings.from_guest.add(&rings.buffers) else {
            return Ok(false);
        };
        rings.sent.push_back(Sent { id, end: None });
        rings.from_guest.publish();
        self.kick(FROM_GUEST);
        Ok(true)
    }

    fn recycle(&mut self, pipe: &mut Pipe) {
        if let State::Running(rings) = &mut self.state {
            rings.post(&self.memory, pipe);
            self.kick(TO_GUEST);
        }
    }

    fn arm(&mut self, wants_room: bool) -> bool {
        let State::Running(rings) = &mut self.state else {
            return true;
        };
        self.is_armed = true;
        self.transport.silence();
        rings.to_guest.arm() && (!wants_room || rings.from_guest.arm())
    }

    fn disarm(&mut self) {
        if !std::mem::take(&mut self.is_armed) {
            return;
        }
        if let State::Running(rings) = &mut self.state {
            rings.to_guest.disarm();
            rings.from_guest.disarm();
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.transport.signal().map(AsFd::as_fd)
    }

    fn reset(&mut self, until_ns: u64) {
        // A device that broke a ring may still write into buffers that it has.
        let _ = self.transport.reset();
        self.stop(until_ns);
    }

    fn kicks(&self) -> u64 {
        self.kicks
    }
}

impl<T: Transport> Drop for DriverHalf<T> {
    fn drop(&mut self) {
        // The device writes no more before the memory goes.
        let _ = self.transport.reset();
    }
}

/// Bytes of a buffer: as many buffers as the ring has descriptors for share the pipe, so that an
/// idle link's blocks do not use it up. A power of two, and thus within a page.
fn chunk_bytes(pipe_bytes: usize, descriptors: usize) -> usize {
    let chains = (descriptors / 2).max(1);
    (pipe_bytes / chains).clamp(4096, pipe_bytes / 8)
}
