//! A virtio network device. (VIRTIO 1.2 §5.1)
//!
//! It has one pair of split rings. Each buffer is one descriptor: the header of 12 bytes, then the
//! frame. No offloads are used: frames are plain in both directions.

use std::io;
use std::sync::Arc;

use carina_vring::{
    AddressSpace, Completion, DriverBuffer, DriverRing, Fault, RingConfig, SplitDriver, split_bytes,
};

use super::{RingAddresses, VirtioPci};
use crate::dma::{DmaMemory, Part};
use crate::driver::{Counts, Link, Received, Settings};
use crate::error::NicError;

const RECEIVE: usize = 0;
const SEND: usize = 1;

/// `VIRTIO_NET_F_MAC`, `VIRTIO_NET_F_STATUS`.
const FEATURES: u64 = 1 << 5 | 1 << 16;
const STATUS: u64 = 1 << 16;

/// Offset of the status in the device's configuration, behind the MAC address of 6 bytes.
const CONFIG_STATUS: usize = 6;
const LINK_UP: u8 = 1;

/// Size in bytes of the header in front of a frame. (VIRTIO 1.2 §5.1.6)
const HEADER_BYTES: usize = 12;

/// A virtio network device and its rings.
#[derive(Debug)]
pub(crate) struct VirtioNet {
    device: VirtioPci,
    memory: Arc<DmaMemory>,
    settings: Settings,
    features: u64,
    rings: Rings,
    /// The fault of the device, if any; it is then not used until a reset.
    fault: Option<Fault>,
}

#[derive(Debug)]
struct Rings {
    receive: Side,
    send: Side,
}

/// The ring of one direction, and its buffers.
#[derive(Debug)]
struct Side {
    addresses: RingAddresses,
    driver: SplitDriver,
    buffers: Box<[Part]>,
    /// The buffer of each chain, indexed by the chain's id.
    buffer_of: Box<[u16]>,
    /// Buffers that the device does not have.
    free: Vec<u16>,
}

/// Addresses of a ring and of its buffers, which stay the same over a reset.
#[derive(Debug)]
struct Plan {
    addresses: RingAddresses,
    buffers: Box<[Part]>,
}

/// Bytes of memory that a device needs.
pub(crate) fn memory_bytes(settings: &Settings) -> usize {
    let ring: u64 = split_bytes(settings.ring).iter().sum();
    let buffers = usize::from(settings.ring) * (settings.buffer_bytes + 64);
    2 * (ring as usize + buffers + 3 * 4096) + 64 * settings.buffer_bytes
}

impl VirtioNet {
    pub(crate) fn start(
        mut device: VirtioPci,
        mut memory: DmaMemory,
        settings: &Settings,
    ) -> Result<VirtioNet, NicError> {
        // The reset comes first: the device may still use the queues of a process that was killed.
        device.reset()?;
        let mut plan = |ring: usize| -> Result<Plan, NicError> {
            let size_max = device.ring_size(ring);
            if size_max == 0 {
                return Err(NicError::Ring);
            }
            // The largest power of two within the device's limit.
            let size = size_max.min(settings.ring);
            let size = 1 << (u16::BITS - 1 - size.leading_zeros());
            let [descriptors, driver, used] = split_bytes(size);
            let descriptors = memory.part(descriptors as usize, 4096)?;
            let driver = memory.part(driver as usize, 64)?;
            let used = memory.part(used as usize, 64)?;
            let bytes = (HEADER_BYTES + settings.buffer_bytes).next_multiple_of(64);
            let buffers = (0..size).map(|_| memory.part(bytes, 64));
            Ok(Plan {
                addresses: RingAddresses {
                    size,
                    descriptors: descriptors.address,
                    driver: driver.address,
                    device: used.address,
                },
                buffers: buffers.collect::<io::Result<_>>()?,
            })
        };
        let (receive, send) = (plan(RECEIVE)?, plan(SEND)?);
        let memory = Arc::new(memory);
        let rings = Rings {
            receive: Side::new(&memory, receive)?,
            send: Side::new(&memory, send)?,
        };
        let mut net = VirtioNet {
            device,
            memory,
            settings: *settings,
            features: 0,
            rings,
            fault: None,
        };
        net.begin()?;
        Ok(net)
    }

    pub(crate) fn reset(&mut self) -> Result<usize, NicError> {
        self.device.reset()?;
        let lost = self.in_flight();
        self.rings.receive.rewind(&self.memory)?;
        self.rings.send.rewind(&self.memory)?;
        self.begin()?;
        Ok(lost)
    }

    fn begin(&mut self) -> Result<(), NicError> {
        self.fault = None;
        self.features = self.device.negotiate(FEATURES)?;
        let Rings { receive, send } = &mut self.rings;
        self.device.place_ring(RECEIVE, &receive.addresses)?;
        self.device.place_ring(SEND, &send.addresses)?;
        send.driver.disarm();
        receive.driver.disarm();
        let header = [0; HEADER_BYTES];
        for buffer in &send.buffers {
            self.memory.write(buffer.offset, &header);
        }
        for _ in 0..receive.buffers.len() {
            receive.post(self.settings.buffer_bytes);
        }
        receive.driver.publish();
        self.device.start();
        self.device.kick(RECEIVE);
        Ok(())
    }

    pub(crate) fn stop(&mut self) {
        // If the device does not reset, the caller forbids it to access memory next.
        let _ = self.device.reset();
    }

    pub(crate) fn mac(&self) -> [u8; 6] {
        [0, 1, 2, 3, 4, 5].map(|at| self.device.config(at))
    }

    pub(crate) fn link(&self) -> Link {
        let status = self.device.config(CONFIG_STATUS);
        Link {
            is_up: self.features & STATUS == 0 || status & LINK_UP != 0,
            speed_mbps: 0,
        }
    }

    /// Whether the device must be reset: it broke a ring, or reports an error.
    pub(crate) fn is_broken(&self) -> bool {
        self.fault.is_some() || self.device.needs_reset()
    }

    #[inline]
    pub(crate) fn receive(
        &mut self,
        max: usize,
        counts: &mut Counts,
        mut take: impl FnMut(Received<'_>) -> bool,
    ) {
        let side = &mut self.rings.receive;
        if self.fault.is_some() {
            return;
        }
        let mut taken = 0;
        for _ in 0..max {
            let done = match side.driver.poll() {
                Ok(Some(done)) => done,
                Ok(None) => break,
                Err(fault) => {
                    counts.bad_descriptors += 1;
                    self.fault = Some(fault);
                    return;
                }
            };
            taken += 1;
            let buffer = side.take_back(done);
            let wants_more = match frame_of(done, self.settings.buffer_bytes) {
                None => {
                    counts.bad_descriptors += 1;
                    true
                }
                Some(len) => take(Received {
                    memory: &self.memory,
                    offset: buffer.offset + HEADER_BYTES,
                    len,
                    hash: None,
                }),
            };
            side.post(self.settings.buffer_bytes);
            if !wants_more {
                break;
            }
        }
        if taken > 0 {
            side.driver.publish();
            if side.driver.wants_kick() {
                self.device.kick(RECEIVE);
            }
        }
    }

    #[inline]
    pub(crate) fn room(&mut self, counts: &mut Counts) -> usize {
        let side = &mut self.rings.send;
        while self.fault.is_none() {
            match side.driver.poll() {
                Ok(Some(done)) => drop(side.take_back(done)),
                Ok(None) => break,
                Err(fault) => {
                    counts.bad_descriptors += 1;
                    self.fault = Some(fault);
                }
            }
        }
        match self.fault {
            None => side.driver.room(),
            Some(_) => 0,
        }
    }

    /// Puts a frame into the ring, which must have room.
    #[inline]
    pub(crate) fn put(&mut self, frame: &[u8]) {
        let side = &mut self.rings.send;
        let len = (HEADER_BYTES + frame.len()) as u32;
        let memory = &self.memory;
        side.give(|part| {
            memory.write(part.offset + HEADER_BYTES, frame);
            DriverBuffer::readable(part.address, len)
        });
    }

    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.settings.frame_bytes
    }

    #[inline]
    pub(crate) fn flush(&mut self) {
        let side = &mut self.rings.send;
        side.driver.publish();
        if side.driver.wants_kick() {
            self.device.kick(SEND);
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.rings.send.buffers.len() - self.rings.send.driver.room()
    }
}

impl Side {
    fn new(memory: &DmaMemory, plan: Plan) -> Result<Side, NicError> {
        let driver = driver_of(memory, &plan.addresses)?;
        let size = plan.addresses.size;
        Ok(Side {
            addresses: plan.addresses,
            driver,
            buffers: plan.buffers,
            buffer_of: vec![0; usize::from(size)].into(),
            free: (0..size).collect(),
        })
    }

    /// Creates an empty ring at the same address, after the device was reset.
    fn rewind(&mut self, memory: &DmaMemory) -> Result<(), NicError> {
        self.driver = driver_of(memory, &self.addresses)?;
        self.free = (0..self.addresses.size).collect();
        Ok(())
    }

    /// Gives the device a free buffer. Does nothing if no buffer is free.
    #[inline]
    fn give(&mut self, fill: impl FnOnce(Part) -> DriverBuffer) {
        let Some(buffer) = self.free.pop() else {
            return;
        };
        let filled = fill(self.buffers[usize::from(buffer)]);
        match self.driver.add(&[filled]) {
            Ok(id) => self.buffer_of[usize::from(id)] = buffer,
            Err(_) => self.free.push(buffer),
        }
    }

    /// Gives the device a free buffer to receive into.
    #[inline]
    fn post(&mut self, bytes: usize) {
        let len = (HEADER_BYTES + bytes) as u32;
        self.give(|part| DriverBuffer::writable(part.address, len));
    }

    /// Takes the buffer of a chain that the device has returned.
    #[inline]
    fn take_back(&mut self, done: Completion) -> Part {
        let buffer = self.buffer_of[usize::from(done.id)];
        self.free.push(buffer);
        self.buffers[usize::from(buffer)]
    }
}

fn driver_of(memory: &DmaMemory, at: &RingAddresses) -> Result<SplitDriver, NicError> {
    let config = RingConfig {
        size: at.size,
        descriptors: at.descriptors,
        driver: at.driver,
        device: at.device,
        space: AddressSpace::Guest,
        has_event_index: false,
        has_indirect: false,
        is_in_order: false,
        position: 0,
    };
    let ring = memory.for_rings().map_err(io::Error::other)?;
    Ok(SplitDriver::new(&ring, &config).map_err(io::Error::other)?)
}

/// The length of a received frame by the device's report; `None` if the report is impossible.
#[inline]
fn frame_of(done: Completion, buffer_bytes: usize) -> Option<usize> {
    let len = (done.written as usize).checked_sub(HEADER_BYTES)?;
    (len <= buffer_bytes).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_a_device_cannot_have_written_are_refused() {
        let frame = |written| frame_of(Completion { id: 0, written }, 2048);
        assert_eq!(frame(12), Some(0));
        assert_eq!(frame(72), Some(60));
        assert_eq!(frame(2060), Some(2048));
        for wrong in [0, 11, 2061, u32::MAX] {
            assert_eq!(frame(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn buffers_come_back_and_go_out_again() {
        let mut memory = DmaMemory::counted_from(1 << 30, 1).unwrap();
        let [descriptors, driver, device] = split_bytes(4).map(|bytes| bytes as usize);
        let place = |memory: &mut DmaMemory, bytes| memory.part(bytes, 64).unwrap().address;
        let addresses = RingAddresses {
            size: 4,
            descriptors: place(&mut memory, descriptors),
            driver: place(&mut memory, driver),
            device: place(&mut memory, device),
        };
        let buffers = (0..4).map(|_| memory.part(2112, 64).unwrap()).collect();
        let plan = Plan { addresses, buffers };
        let mut side = Side::new(&memory, plan).unwrap();
        for _ in 0..6 {
            side.post(2048);
        }
        side.driver.publish();
        assert_eq!((side.free.len(), side.driver.room()), (0, 0));
        // The device returns the third chain, with a length.
        let used = memory.offset_of(addresses.device, 64).unwrap();
        memory.write(used + 4, &[2, 0, 0, 0, 72, 0, 0, 0]);
        memory.write(used, &[0, 0, 1, 0]);
        let done = side.driver.poll().unwrap().unwrap();
        assert_eq!(frame_of(done, 2048), Some(60));
        let part = side.take_back(done);
        assert_eq!(part, side.buffers[usize::from(side.buffer_of[2])]);
        side.post(2048);
        assert_eq!(side.free.len(), 0);
        // A chain that the device was never given is a fault.
        memory.write(used + 12, &[9, 0, 0, 0, 72, 0, 0, 0]);
        memory.write(used, &[0, 0, 2, 0]);
        assert!(side.driver.poll().is_err());
        side.rewind(&memory).unwrap();
        assert_eq!(side.free.len(), 4);
    }
}
