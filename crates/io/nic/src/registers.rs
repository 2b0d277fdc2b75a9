//! Access to the registers of a device: a trait for drivers, and BARs that implement it.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carina_sys::{Mapping, PAGE_BYTES};

use crate::pci::{file_error, open_file};
use crate::vfio::VfioDevice;

/// The 32-bit registers of a device. Drivers use this trait, so that tests can replace the device
/// by a model.
pub trait Registers {
    /// Reads the register at byte offset `at`.
    fn read(&self, at: u32) -> u32;

    /// Writes `value` to the register at byte offset `at`.
    fn write(&self, at: u32, value: u32);

    /// Sets the bits of `bits` in the register at byte offset `at`; the other bits stay.
    fn set(&self, at: u32, bits: u32) {
        self.write(at, self.read(at) | bits);
    }

    /// Clears the bits of `bits` in the register at byte offset `at`; the other bits stay.
    fn clear(&self, at: u32, bits: u32) {
        self.write(at, self.read(at) & !bits);
    }
}

/// The kernel's interface through which this process accesses a device.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    /// The registers are accessed through the files of the device in this directory of sysfs.
    Sysfs(&'a Path),
    /// The registers are accessed through this open device of VFIO.
    Vfio(&'a VfioDevice),
}

impl Access<'_> {
    /// Reads the configuration space.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn config(&self) -> io::Result<Vec<u8>> {
        match self {
            Access::Sysfs(directory) => {
                let path = directory.join("config");
                fs::read(&path).map_err(|error| file_error(&path, &error))
            }
            Access::Vfio(device) => device.config(),
        }
    }

    /// Maps a BAR.
    ///
    /// # Errors
    /// The kernel's error: there is no such BAR, or it cannot be mapped.
    pub fn bar(&self, number: u8) -> io::Result<Mapping> {
        match self {
            Access::Sysfs(directory) => {
                let path = directory.join(format!("resource{number}"));
                let file = open_file(&path)?;
                let bytes = fs::metadata(&path).map_err(|error| file_error(&path, &error))?;
                let bytes = (bytes.len() as usize).next_multiple_of(PAGE_BYTES);
                let map = Mapping::shared(file.as_fd(), 0, bytes);
                map.map_err(|error| file_error(&path, &error))
            }
            Access::Vfio(device) => {
                let region = device.region(number.into())?;
                Mapping::shared(device.as_fd(), region.offset, region.bytes as usize)
            }
        }
    }
}

/// The registers of a device that has all of them in BAR 0, mapped into this process.
#[derive(Clone, Debug)]
pub struct Bar(Arc<Mapping>);

impl Bar {
    /// Maps the BAR. `bytes` is the size that the driver's registers need.
    ///
    /// # Errors
    /// `InvalidData` if the BAR is smaller; the kernel's error.
    pub fn map(access: Access<'_>, bytes: usize) -> io::Result<Bar> {
        let mapping = access.bar(0)?;
        if mapping.len() < bytes {
            let text = format!("BAR 0 has {:#x} bytes, not {bytes:#x}", mapping.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(Bar(Arc::new(mapping)))
    }
}

impl Registers for Bar {
    #[inline]
    fn read(&self, at: u32) -> u32 {
        u32::from_le(self.0.atomic_u32(at as usize).load(Ordering::Acquire))
    }

    #[inline]
    fn write(&self, at: u32, value: u32) {
        let register = self.0.atomic_u32(at as usize);
        register.store(value.to_le(), Ordering::Release);
    }
}

/// Reads a register repeatedly until its masked bits have the wanted value. Returns false if they
/// do not within the time limit.
pub(crate) fn wait_for(
    registers: &impl Registers,
    at: u32,
    mask: u32,
    wanted: u32,
    limit: Duration,
) -> bool {
    let begin = Instant::now();
    loop {
        if registers.read(at) & mask == wanted {
            return true;
        }
        if begin.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}
