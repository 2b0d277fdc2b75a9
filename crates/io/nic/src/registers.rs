//! Registers of a device: what its driver reads and writes, and a BAR that has them.

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

/// Registers of 32 bits. A driver is written over this, so that a model of the device can stand in
/// for it in tests.
pub trait Registers {
    /// Reads the register at an offset.
    fn read(&self, at: u32) -> u32;

    /// Writes the register at an offset.
    fn write(&self, at: u32, value: u32);

    /// Sets bits.
    fn set(&self, at: u32, bits: u32) {
        self.write(at, self.read(at) | bits);
    }

    /// Clears bits.
    fn clear(&self, at: u32, bits: u32) {
        self.write(at, self.read(at) & !bits);
    }
}

/// How the kernel shows a device to this process.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    /// By the files of its directory in sysfs.
    Sysfs(&'a Path),
    /// By VFIO.
    Vfio(&'a VfioDevice),
}

impl Access<'_> {
    /// The configuration space.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn config(&self) -> io::Result<Vec<u8>> {
        match self {
            Access::Sysfs(directory) => {
                let path = directory.join("config");
                fs::read(&path).map_err(|error| file_error(&path, &error))
            }
            Access::Vfio(device) => device.config(),
        }
    }

    /// A BAR, mapped.
    ///
    /// # Errors
    /// What the kernel says: there is no such BAR, or it cannot be mapped.
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

/// BAR 0 of a device whose registers all lie there.
#[derive(Clone, Debug)]
pub struct Bar(Arc<Mapping>);

impl Bar {
    /// Maps it; `bytes` is what the driver's registers need.
    ///
    /// # Errors
    /// `InvalidData` when the BAR is smaller; what the kernel says.
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

/// Looks at a register until the masked bits are as wanted; false when the time is over.
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
