//! Drivers of Intel's Ethernet controllers 82574, 82576 and 82599.
//!
//! All three have the same rings (`rings.rs`), with registers at different offsets. They differ in
//! how a device is started, for which each has a module.

mod advanced;
mod e1000e;
mod igb;
mod ixgbe;
mod rings;
mod rss;
#[cfg(test)]
mod tests;

use std::io;

pub(crate) use self::rings::{ReceiveRing, SendForm, SendRing};
use crate::dma::DmaMemory;
use crate::driver::{Counts, Link, Received, Settings};
use crate::error::NicError;
use crate::registers::Registers;

/// A model of Intel's Ethernet controllers that this crate can drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The 82574 (driver `e1000e`).
    E1000e,
    /// The 82576 (driver `igb`).
    Igb,
    /// The 82599 (driver `ixgbe`).
    Ixgbe,
}

impl Model {
    /// Returns the model with this PCI device id; `None` if this crate has no driver for it.
    #[must_use]
    pub fn of(device: u16) -> Option<Model> {
        match device {
            0x10d3 => Some(Model::E1000e),
            0x10c9 => Some(Model::Igb),
            // With SFP+ modules; for backplanes; with SFP+ on a network daughter card.
            0x10fb | 0x10f8 | 0x10fc | 0x154d => Some(Model::Ixgbe),
            _ => None,
        }
    }

    /// Returns the name of the model's driver.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Model::E1000e => "e1000e",
            Model::Igb => "igb",
            Model::Ixgbe => "ixgbe",
        }
    }

    /// Returns the largest number of queues of the model, each a pair of rings.
    #[must_use]
    pub fn queues_max(self) -> usize {
        match self {
            Model::E1000e => 2,
            Model::Igb | Model::Ixgbe => 16,
        }
    }

    /// Number of bytes of BAR 0 that the driver uses.
    pub(crate) fn bar_bytes(self) -> usize {
        ixgbe::BAR_BYTES
    }

    fn send_form(self) -> SendForm {
        match self {
            Model::E1000e => SendForm::Legacy,
            Model::Igb | Model::Ixgbe => SendForm::Advanced,
        }
    }

    /// Bits of a received descriptor for errors of the frame itself, not of checksums in it.
    fn receive_errors(self) -> u32 {
        match self {
            Model::E1000e | Model::Igb => 1 << 31,
            Model::Ixgbe => 1 << 29,
        }
    }

    fn tails(self, queue: u32) -> (u32, u32) {
        match self {
            Model::E1000e => (e1000e::receive(queue) + 0x18, e1000e::send(queue) + 0x18),
            Model::Igb => (igb::receive_tail(queue), igb::send_tail(queue)),
            Model::Ixgbe => (ixgbe::receive_tail(queue), ixgbe::send_tail(queue)),
        }
    }
}

/// Addresses of a pair of rings.
struct Place {
    /// Device address and size in bytes of the receive ring.
    receive: (u64, u32),
    /// Initial tail of the receive ring.
    receive_tail: u32,
    /// Device address and size in bytes of the send ring.
    send: (u64, u32),
}

type Places = [Place];

/// An Intel Ethernet controller that this process drives, with its rings. `R` gives access to its
/// registers.
#[derive(Debug)]
pub struct Intel<R> {
    model: Model,
    registers: R,
    memory: DmaMemory,
    settings: Settings,
    receive: Vec<ReceiveRing>,
    send: Vec<SendRing>,
    mac: [u8; 6],
}

/// Bytes of memory that a device needs.
pub(crate) fn memory_bytes(settings: &Settings) -> usize {
    // Rings, and buffers of both directions, plus what stays unused at the end of huge pages.
    let pair = 2 * usize::from(settings.ring) * (settings.buffer_bytes + 16) + 512;
    settings.queues * pair + settings.buffer_bytes * 64
}

impl<R: Registers> Intel<R> {
    /// Resets a device and starts it.
    ///
    /// # Errors
    /// The device does not complete the reset, a ring of the device does not start, or `memory` is
    /// too small for the rings and buffers of `settings`.
    pub fn start(
        model: Model,
        registers: R,
        mut memory: DmaMemory,
        settings: &Settings,
    ) -> Result<Intel<R>, NicError> {
        let (size, bytes) = (settings.ring, settings.buffer_bytes);
        let mut rings = || -> io::Result<_> {
            let errors = model.receive_errors();
            Ok((
                ReceiveRing::new(&mut memory, size, bytes, errors)?,
                SendRing::new(&mut memory, size, bytes, model.send_form())?,
            ))
        };
        let pairs = (0..settings.queues).map(|_| rings());
        let (receive, send) = pairs.collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
        let mut device = Intel {
            model,
            registers,
            memory,
            settings: *settings,
            receive,
            send,
            mac: [0; 6],
        };
        device.reset()?;
        Ok(device)
    }

    /// Resets and restarts the device. Returns how many frames had not been sent.
    ///
    /// # Errors
    /// The device does not complete the reset, or its rings do not start.
    pub fn reset(&mut self) -> Result<usize, NicError> {
        let registers = &self.registers;
        let is_back = match self.model {
            Model::E1000e => e1000e::reset(registers),
            Model::Igb => igb::reset(registers),
            Model::Ixgbe => ixgbe::reset(registers),
        };
        if !is_back {
            return Err(NicError::Reset);
        }
        self.mac = match self.model {
            Model::Ixgbe => ixgbe::mac(registers),
            _ => e1000e::mac(registers),
        };
        let memory = &self.memory;
        self.receive.iter_mut().for_each(|ring| ring.rewind(memory));
        let lost = self.send.iter_mut().map(|ring| ring.rewind(memory)).sum();
        let places: Vec<Place> = (self.receive.iter().zip(&self.send))
            .map(|(receive, send)| Place {
                receive: receive.place(),
                receive_tail: receive.tail(),
                send: send.place(),
            })
            .collect();
        let settings = &self.settings;
        let is_started = match self.model {
            Model::E1000e => {
                e1000e::start(registers, settings, &places);
                true
            }
            Model::Igb => igb::start(registers, settings, &places),
            Model::Ixgbe => ixgbe::start(registers, settings, &places),
        };
        if is_started {
            Ok(lost)
        } else {
            Err(NicError::Ring)
        }
    }

    /// Returns the model of the device.
    #[must_use]
    pub fn model(&self) -> Model {
        self.model
    }

    /// Stops the device: from now on it neither reads nor writes memory.
    pub fn stop(&mut self) {
        match self.model {
            Model::E1000e => e1000e::reset(&self.registers),
            Model::Igb => igb::reset(&self.registers),
            Model::Ixgbe => ixgbe::reset(&self.registers),
        };
    }

    /// Returns the MAC address of the device.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Returns the state of the link. It reads a register, so do not call it for each burst.
    pub fn link(&self) -> Link {
        match self.model {
            Model::Ixgbe => ixgbe::link(&self.registers),
            _ => e1000e::link(&self.registers),
        }
    }

    /// Whether the device is still set to receive. It is not if another program has reset it, for
    /// instance by writing the sysfs file `reset`. The call reads a register.
    #[must_use]
    pub fn is_running(&self) -> bool {
        match self.model {
            Model::Ixgbe => ixgbe::is_running(&self.registers),
            _ => e1000e::is_running(&self.registers),
        }
    }

    /// Adds the errors that the device has counted since the last call to `counts`. The call reads
    /// registers.
    pub fn count(&self, counts: &mut Counts) {
        let (missed, wrong) = match self.model {
            Model::Ixgbe => ixgbe::missed_and_wrong(&self.registers),
            _ => e1000e::missed_and_wrong(&self.registers),
        };
        // A device that was removed answers with all ones.
        if missed != u64::from(u32::MAX) {
            counts.missed += missed;
            counts.receive_errors += wrong;
        }
    }

    /// Passes received frames to `take`, as [`Nic::receive`](crate::Nic::receive) does, and adds
    /// errors to `counts`.
    #[inline]
    pub fn receive(
        &mut self,
        queue: usize,
        max: usize,
        counts: &mut Counts,
        take: impl FnMut(Received<'_>) -> bool,
    ) {
        let ring = &mut self.receive[queue];
        if ring.receive(&self.memory, max, counts, take) > 0 {
            let (tail, _) = self.model.tails(queue as u32);
            self.registers.write(tail, ring.tail());
        }
    }

    /// Returns the number of frames that a queue accepts now: see [`Nic::room`](crate::Nic::room).
    #[inline]
    pub fn room(&mut self, queue: usize) -> usize {
        self.send[queue].room(&self.memory)
    }

    /// Puts a frame into a queue: see [`Nic::put`](crate::Nic::put).
    #[inline]
    pub fn put(&mut self, queue: usize, frame: &[u8]) {
        self.send[queue].put(&self.memory, frame);
    }

    /// Returns the longest frame that can be put, in bytes.
    #[must_use]
    pub fn frame_bytes_max(&self) -> usize {
        self.send[0]
            .frame_bytes_max()
            .min(self.settings.frame_bytes)
    }

    /// Makes the frames that were put visible to the device: see [`Nic::flush`](crate::Nic::flush).
    #[inline]
    pub fn flush(&mut self, queue: usize) {
        if let Some(tail) = self.send[queue].new_tail() {
            let (_, register) = self.model.tails(queue as u32);
            self.registers.write(register, tail);
        }
    }

    /// Returns the number of frames in the queue that the device had not sent when the driver last
    /// checked.
    #[must_use]
    pub fn in_flight(&self, queue: usize) -> usize {
        self.send[queue].in_flight()
    }
}
