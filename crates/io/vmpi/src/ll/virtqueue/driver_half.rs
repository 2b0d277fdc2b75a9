//! The driver half of the virtqueues: the guest's side, or a front end in another process.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use carina_sys::EventFd;
use carina_vring::{DriverBuffer, DriverRing, Fault, SplitDriver};
use carina_wire::vmpi::{BLOCK_HEADER_BYTES, BlockError, BlockHeader};

use super::device_memory::{DeviceMemory, RING_SIZE_MAX, RingAddresses};
use super::pipe::Pipe;
use super::queues::{BlockCheck, Broken, QueueState, Queues};
use super::{FROM_GUEST, TO_GUEST};

/// How a driver half reaches its device.
pub(super) trait Transport: Send {
    /// Resets the device, which forgets the rings. Returns the largest size of each ring.
    ///
    /// # Errors
    /// There is no device.
    fn reset(&mut self) -> io::Result<[u16; 2]>;

    /// Starts the device with the given rings, which lie in `memory`.
    ///
    /// # Errors
    /// The device refuses.
    fn start(&mut self, memory: &DeviceMemory, rings: &[RingAddresses; 2]) -> io::Result<()>;

    /// Whether the device still exists.
    fn is_alive(&mut self, now_ns: u64) -> bool;

    /// Notifies the device of new buffers in a ring.
    fn kick(&self, ring: usize);

    /// The event that the device signals. `None` if the device does not signal and must be polled.
    fn signal(&self) -> Option<&EventFd>;

    /// Clears pending signals, so that the next one wakes this side again.
    fn clear_signal(&self) {
        if let Some(signal) = self.signal() {
            signal.drain();
        }
    }
}

/// The driver half, over one kind of transport.
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
    /// Blocks that the device is reading, in the order in which they were sent.
    sent: VecDeque<Sent>,
    /// Buffers that the device may fill, in the order in which they were posted.
    posted: VecDeque<Posted>,
    next_slot: u16,
    next_header: u16,
    /// Bytes for records in each posted buffer.
    chunk: usize,
    buffers: Vec<DriverBuffer>,
}

struct Sent {
    id: u16,
    /// The index behind the block's last record in the pipe; `None` for a block without records.
    end: Option<u64>,
}

struct Posted {
    id: u16,
    slot: u16,
}

/// Longest block that is sent, in bytes of records. The device returns a block only when it has
/// read all of it, so longer blocks would free their room late.
const BLOCK_BYTES_MAX: usize = 64 << 10;

/// Largest number of descriptors of a block: one for its header, and up to three for records that
/// cross the end of the pipe or of a page.
const DESCRIPTORS_MAX: usize = 4;

/// Time between two attempts to start a device.
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

    /// Resets the device and starts it with empty rings.
    pub(super) fn start(&mut self) -> io::Result<()> {
        self.state = State::Stopped { until_ns: 0 };
        let sizes = self.transport.reset()?;
        let ring = |ring: usize| {
            let size = sizes[ring].min(RING_SIZE_MAX);
            // Rounds down to a power of two.
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
    /// Posts buffers to the device for all free room of the pipe.
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

    /// Collects the blocks that the device has read, and releases their room in the pipe.
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
            // Discarded records are in no block, so nothing else releases their room.
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

    /// Sends the pipe's records in blocks, until the pipe is empty or the ring lacks descriptors.
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

    /// Adds the records of a received block to the pipe. They already lie in the pipe's memory, so
    /// nothing is copied. Unless `is_taken`, they are dropped.
    fn take(&mut self, pipe: &mut Pipe, written: usize, is_taken: bool) -> Result<(), Broken> {
        let bytes = written.saturating_sub(BLOCK_HEADER_BYTES);
        if bytes > self.chunk || !bytes.is_multiple_of(8) {
            let room = self.chunk;
            return Err(Broken::Block { bytes, room });
        }
        let bytes = if is_taken {
            bytes
        } else {
            // The earlier records in the pipe belong to a link that has ended.
            pipe.discard();
            0
        };
        // The room was free when the buffer was posted, and still is.
        if let Ok(stretch) = pipe.put.stretch(bytes) {
            stretch.commit(bytes);
        }
        pipe.put_gap(self.chunk - bytes);
        Ok(())
    }
}

impl<T: Transport> Queues for DriverHalf<T> {
    fn poll_state(&mut self, now_ns: u64) -> QueueState {
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

    fn receive(&mut self, pipe: &mut Pipe, check: &mut BlockCheck<'_>) -> Result<(), Broken> {
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
            rings.take(pipe, written, check(header))?;
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
        self.transport.clear_signal();
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
        // The reset stops a faulty device from writing into buffers that it still has.
        let _ = self.transport.reset();
        self.stop(until_ns);
    }

    fn kicks(&self) -> u64 {
        self.kicks
    }
}

impl<T: Transport> Drop for DriverHalf<T> {
    fn drop(&mut self) {
        // Stops the device before its memory is freed.
        let _ = self.transport.reset();
    }
}

/// Bytes of records of each posted buffer. All buffers of a full ring share the pipe, so that the
/// empty blocks of an idle link do not use up its room. The result is a power of two, so no buffer
/// crosses a page.
fn chunk_bytes(pipe_bytes: usize, descriptors: usize) -> usize {
    let chains = (descriptors / 2).max(1);
    (pipe_bytes / chains).clamp(4096, pipe_bytes / 8)
}
