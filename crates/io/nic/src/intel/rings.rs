//! Descriptor rings of Intel's Ethernet controllers: 16 bytes a descriptor, a head that the device
//! moves and a tail that the driver moves.
//!
//! ```text
//!   receive: read    packet address u64 | 0 u64
//!            written RSS type u32, RSS hash u32 | status and errors u32, length u16, tag u16
//!   send:    read    address u64 | length u16, command u16 | payload length, 0 u32
//!            written                                       | DD 0 u32
//! ```
//!
//! The 82574 receives so with RFCTL.EXTEN set (82574 datasheet, §7.1.5), the 82576 and the 82599
//! always. The short form of sending descriptors is the 82574's legacy one (§7.2.10.1), the long
//! one the advanced data descriptor of the others (82576 datasheet, §7.2.2.3).
//!
//! The device is not trusted: addresses and lengths of buffers are kept here and never read back, a
//! length is checked against its buffer, and a visit looks at each descriptor at most once.

use std::io;
use std::sync::atomic::Ordering;

use crate::dma::{DmaMemory, Part};
use crate::driver::{Counts, Received};

// Status and error bits of a received frame.
const DONE: u32 = 1 << 0;
const END_OF_PACKET: u32 = 1 << 1;

// Command bits of a frame to send.
const SEND_END_OF_PACKET: u32 = 1 << 24;
const SEND_FCS: u32 = 1 << 25;
const SEND_REPORT: u32 = 1 << 27;
const SEND_EXTENDED: u32 = 1 << 29;
const SEND_ADVANCED_DATA: u32 = 3 << 20;

/// The done bit of a sent frame, in the second word of its descriptor.
const SENT: u64 = 1 << 32;

/// Size of a descriptor in bytes.
const DESCRIPTOR_BYTES: usize = 16;

/// Alignment of a ring in bytes.
const RING_ALIGN: usize = 128;

/// Shortest frame that is sent, in bytes without FCS; shorter frames are padded with zeros.
const FRAME_BYTES_MIN: usize = 60;

/// Format of a device's send descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendForm {
    /// The 82574's legacy descriptor.
    Legacy,
    /// The advanced data descriptor of the 82576 and 82599.
    Advanced,
}

/// Descriptors, and one buffer for each.
#[derive(Debug)]
struct Ring {
    descriptors: Part,
    buffers: Box<[Part]>,
    /// Size of a buffer in bytes.
    buffer_bytes: usize,
}

impl Ring {
    fn new(memory: &mut DmaMemory, size: u16, buffer_bytes: usize) -> io::Result<Ring> {
        let bytes = usize::from(size) * DESCRIPTOR_BYTES;
        let descriptors = memory.part(bytes, RING_ALIGN)?;
        let buffers = (0..size).map(|_| memory.part(buffer_bytes, 64));
        Ok(Ring {
            descriptors,
            buffers: buffers.collect::<io::Result<_>>()?,
            buffer_bytes,
        })
    }

    fn size(&self) -> u16 {
        self.buffers.len() as u16
    }

    /// Size of all descriptors in bytes.
    fn bytes(&self) -> u32 {
        (self.buffers.len() * DESCRIPTOR_BYTES) as u32
    }

    fn next(&self, at: u16) -> u16 {
        let next = at + 1;
        if next == self.size() { 0 } else { next }
    }

    fn before(&self, at: u16) -> u16 {
        at.checked_sub(1).unwrap_or(self.size() - 1)
    }

    /// Offset of the second word of a descriptor in the memory.
    fn second(&self, at: u16) -> usize {
        self.descriptors.offset + usize::from(at) * DESCRIPTOR_BYTES + 8
    }

    fn write(&self, memory: &DmaMemory, at: u16, second: u64) {
        let word = self.second(at);
        let address = self.buffers[usize::from(at)].address;
        memory
            .word(word - 8)
            .store(address.to_le(), Ordering::Relaxed);
        memory.word(word).store(second.to_le(), Ordering::Release);
    }

    fn read(&self, memory: &DmaMemory, at: u16) -> u64 {
        u64::from_le(memory.word(self.second(at)).load(Ordering::Acquire))
    }
}

/// A ring of buffers into which a device receives frames.
#[derive(Debug)]
pub(crate) struct ReceiveRing {
    ring: Ring,
    /// The descriptor that the device fills next.
    next: u16,
    /// Whether the last descriptor held a frame that continues in the next buffer.
    is_within_frame: bool,
    /// The error bits of this model.
    errors: u32,
}

impl ReceiveRing {
    pub(crate) fn new(
        memory: &mut DmaMemory,
        size: u16,
        buffer_bytes: usize,
        errors: u32,
    ) -> io::Result<ReceiveRing> {
        Ok(ReceiveRing {
            ring: Ring::new(memory, size, buffer_bytes)?,
            next: 0,
            is_within_frame: false,
            errors,
        })
    }

    /// Gives all buffers to the device after a reset.
    pub(crate) fn rewind(&mut self, memory: &DmaMemory) {
        for at in 0..self.ring.size() {
            self.ring.write(memory, at, 0);
        }
        self.next = 0;
        self.is_within_frame = false;
    }

    /// Device address and size in bytes of the ring.
    pub(crate) fn place(&self) -> (u64, u32) {
        (self.ring.descriptors.address, self.ring.bytes())
    }

    /// Initial value of the tail register. One descriptor always stays with the driver, because
    /// equal head and tail mean an empty ring.
    pub(crate) fn tail(&self) -> u32 {
        self.ring.before(self.next).into()
    }

    /// Passes at most `max` received frames to `take`, until `take` returns false. Returns how many
    /// buffers went back to the device.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        memory: &DmaMemory,
        max: usize,
        counts: &mut Counts,
        mut take: impl FnMut(Received<'_>) -> bool,
    ) -> usize {
        let (mut looked, mut taken) = (0, 0);
        while taken < max && looked < self.ring.buffers.len() {
            let second = self.ring.read(memory, self.next);
            let status = second as u32;
            if status & DONE == 0 {
                break;
            }
            looked += 1;
            let slot = self.next;
            self.next = self.ring.next(slot);
            let wants_more = match self.frame_length(status, second, counts) {
                None => true,
                Some(len) => {
                    taken += 1;
                    // This read follows the read of the status: the device writes the hash before
                    // the status.
                    let first = memory.word(self.ring.second(slot) - 8);
                    let first = u64::from_le(first.load(Ordering::Relaxed));
                    take(Received {
                        memory,
                        offset: self.ring.buffers[usize::from(slot)].offset,
                        len,
                        hash: (first as u32 & 0xf != 0).then_some((first >> 32) as u32),
                    })
                }
            };
            self.ring.write(memory, slot, 0);
            if !wants_more {
                break;
            }
        }
        looked
    }

    /// The length of a frame that is complete in its buffer and without errors. Otherwise `None`,
    /// and the frame is counted.
    #[inline]
    fn frame_length(&mut self, status: u32, second: u64, counts: &mut Counts) -> Option<usize> {
        let len = (second >> 32) as u16 as usize;
        let is_end = status & END_OF_PACKET != 0;
        let is_first = !std::mem::replace(&mut self.is_within_frame, !is_end);
        if len > self.ring.buffer_bytes {
            // A correct device never writes more than the buffer holds.
            counts.bad_descriptors += 1;
            return None;
        }
        if !(is_first && is_end) {
            counts.too_long += u64::from(is_end);
            return None;
        }
        if status & self.errors != 0 {
            counts.receive_errors += 1;
            return None;
        }
        Some(len)
    }
}

/// A ring of buffers from which a device sends frames.
#[derive(Debug)]
pub(crate) struct SendRing {
    ring: Ring,
    form: SendForm,
    /// The descriptor that the driver fills next.
    next: u16,
    /// The oldest descriptor that the device has not returned.
    oldest: u16,
    /// The value of the tail register.
    published: u16,
}

impl SendRing {
    pub(crate) fn new(
        memory: &mut DmaMemory,
        size: u16,
        buffer_bytes: usize,
        form: SendForm,
    ) -> io::Result<SendRing> {
        Ok(SendRing {
            ring: Ring::new(memory, size, buffer_bytes)?,
            form,
            next: 0,
            oldest: 0,
            published: 0,
        })
    }

    /// Empties the ring after the device was reset. Returns how many frames were in it.
    pub(crate) fn rewind(&mut self, memory: &DmaMemory) -> usize {
        let lost = self.in_flight();
        for at in 0..self.ring.size() {
            self.ring.write(memory, at, 0);
        }
        (self.next, self.oldest, self.published) = (0, 0, 0);
        lost
    }

    /// Device address and size in bytes of the ring.
    pub(crate) fn place(&self) -> (u64, u32) {
        (self.ring.descriptors.address, self.ring.bytes())
    }

    /// Number of frames that the device has, or will have with the next tail.
    pub(crate) fn in_flight(&self) -> usize {
        let size = usize::from(self.ring.size());
        (usize::from(self.next) + size - usize::from(self.oldest)) % size
    }

    /// Number of frames for which there is room, after a check which frames were sent.
    #[inline]
    pub(crate) fn room(&mut self, memory: &DmaMemory) -> usize {
        // The loop stops at the published tail, whatever the device writes.
        while self.oldest != self.published && self.ring.read(memory, self.oldest) & SENT != 0 {
            self.oldest = self.ring.next(self.oldest);
        }
        usize::from(self.ring.size()) - 1 - self.in_flight()
    }

    /// Longest frame that fits into a buffer, in bytes.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.ring.buffer_bytes
    }

    /// Puts a frame into the ring. [`SendRing::room`] must have found room, and the frame must not
    /// be longer than [`SendRing::frame_bytes_max`].
    #[inline]
    pub(crate) fn put(&mut self, memory: &DmaMemory, frame: &[u8]) {
        let buffer = self.ring.buffers[usize::from(self.next)];
        memory.write(buffer.offset, frame);
        let mut len = frame.len();
        if len < FRAME_BYTES_MIN {
            let zeros = [0; FRAME_BYTES_MIN];
            memory.write(buffer.offset + len, &zeros[len..]);
            len = FRAME_BYTES_MIN;
        }
        let low = len as u32 | SEND_END_OF_PACKET | SEND_FCS | SEND_REPORT;
        let second = match self.form {
            SendForm::Legacy => u64::from(low),
            SendForm::Advanced => {
                let low = low | SEND_EXTENDED | SEND_ADVANCED_DATA;
                u64::from(low) | (len as u64) << (32 + 14)
            }
        };
        self.ring.write(memory, self.next, second);
        self.next = self.ring.next(self.next);
    }

    /// The tail to write to the device; `None` if the device already has it.
    #[inline]
    pub(crate) fn new_tail(&mut self) -> Option<u32> {
        if self.next == self.published {
            return None;
        }
        self.published = self.next;
        Some(self.next.into())
    }
}
