//! In a guest: a virtio device on the PCI bus, driven from user space through sysfs, as of VIRTIO
//! 1.2 §4.1 (modern devices only).
//!
//! No IOMMU stands between the device and memory here: the device gets physical addresses of huge
//! pages. Their file stays when the process ends, so that a device that was not stopped does not
//! write into memory of others.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carina_sys::{EventFd, Mapping, PAGE_BYTES};
use carina_vhost_user::features::VERSION_1;
use carina_wire::vmpi::DEVICE_MAC;

use super::device::QueueDevice;
use super::device_memory::{DeviceMemory, RingAddresses};
use super::driver_half::{DriverHalf, Transport};
use super::{FROM_GUEST, TO_GUEST};
use crate::hl::Side;
use crate::ll::VmpiImpl;
use crate::ll::pci::{
    PciAddress, check_address, claim, device_directory, devices_with_id, file_error, open_file,
    write,
};

/// PCI vendor and device of a network device. (VIRTIO 1.2 §4.1.2)
const PCI_ID: (&str, &str) = ("0x1af4", "0x1041");

/// The devices for VMPI of this system, sorted by address.
///
/// # Errors
/// When sysfs cannot be read, or a device that it has.
pub fn guest_devices() -> io::Result<Vec<PciAddress>> {
    let mut found = devices_with_id(PCI_ID)?;
    let mut failed = None;
    found.retain(|address| match mac_of(address) {
        Ok(mac) => mac == DEVICE_MAC,
        Err(error) => {
            failed = Some(error);
            false
        }
    });
    match failed {
        // Of a system without the device for VMPI another card may be as it likes.
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// The guest's side of a link over the device at `address`, taken from the kernel's driver if that
/// has it. Needs root.
///
/// # Errors
/// What sysfs says, with the file; `InvalidData` when it is no such device; `OutOfMemory` when
/// there are too few huge pages.
pub fn open_guest(address: &str) -> io::Result<Box<dyn VmpiImpl + Send>> {
    check_address(address)?;
    claim(address)?;
    let mut device = PciDevice::open(address)?;
    // First of all, so that the queues of a process that was killed are left alone.
    device.reset()?;
    let memory = DeviceMemory::physical(&format!("carina-vmpi-{address}"))?;
    let (tx, rx) = (memory.pipe(FROM_GUEST)?, memory.pipe(TO_GUEST)?);
    let mut half = DriverHalf::new(device, memory);
    half.start()?;
    Ok(Box::new(QueueDevice::new(Side::Guest, half, tx, rx)))
}

fn mac_of(address: &str) -> io::Result<[u8; 6]> {
    let directory = device_directory(address);
    if let Some(mac) = mac_of_interface(&directory) {
        return Ok(mac);
    }
    if directory.join("driver").exists() {
        // Another's, which is left alone.
        return Ok([0; 6]);
    }
    write(&directory.join("enable"), "1")?;
    let device = PciDevice::open(address)?;
    Ok([0, 1, 2, 3, 4, 5].map(|at| device.specific.read_u8(at)))
}

/// The address of the interface that the kernel's driver has made of a device.
fn mac_of_interface(directory: &Path) -> Option<[u8; 6]> {
    let virtio = entry_with_prefix(directory, "virtio")?;
    let interface = entry_with_prefix(&virtio.join("net"), "")?;
    let text = fs::read_to_string(interface.join("address")).ok()?;
    let mut bytes = text
        .trim()
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16));
    let mut mac = [0; 6];
    for to in &mut mac {
        *to = bytes.next()?.ok()?;
    }
    Some(mac)
}

fn entry_with_prefix(directory: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(prefix))
    })
}

/// Registers of a device, in a BAR.
#[derive(Clone)]
struct Registers {
    bar: Arc<Mapping>,
    offset: usize,
    len: usize,
}

impl Registers {
    fn at(&self, offset: usize, bytes: usize) -> usize {
        assert!(
            offset <= self.len && bytes <= self.len - offset,
            "register {offset:#x} of {:#x} bytes",
            self.len
        );
        self.offset + offset
    }

    fn read_u8(&self, at: usize) -> u8 {
        self.bar.atomic_u8(self.at(at, 1)).load(Ordering::Acquire)
    }

    fn write_u8(&self, at: usize, value: u8) {
        let to = self.bar.atomic_u8(self.at(at, 1));
        to.store(value, Ordering::Release);
    }

    fn read_u16(&self, at: usize) -> u16 {
        let from = self.bar.atomic_u16(self.at(at, 2));
        u16::from_le(from.load(Ordering::Acquire))
    }

    fn write_u16(&self, at: usize, value: u16) {
        let to = self.bar.atomic_u16(self.at(at, 2));
        to.store(value.to_le(), Ordering::Release);
    }

    fn read_u32(&self, at: usize) -> u32 {
        let from = self.bar.atomic_u32(self.at(at, 4));
        u32::from_le(from.load(Ordering::Acquire))
    }

    fn write_u32(&self, at: usize, value: u32) {
        let to = self.bar.atomic_u32(self.at(at, 4));
        to.store(value.to_le(), Ordering::Release);
    }

    /// In halves, the lower first, as VIRTIO 1.2 §4.1.3.1 wants it.
    fn write_u64(&self, at: usize, value: u64) {
        self.write_u32(at, value as u32);
        self.write_u32(at + 4, (value >> 32) as u32);
    }
}

/// The device, as of VIRTIO 1.2 §4.1.4.
struct PciDevice {
    address: PciAddress,
    common: Registers,
    notify: Registers,
    notify_multiplier: u32,
    specific: Registers,
    /// Where each ring's notification goes, in `notify`.
    notify_at: [usize; 2],
}

// Common configuration. (VIRTIO 1.2 §4.1.4.3)
const DEVICE_FEATURE_SELECT: usize = 0;
const DEVICE_FEATURE: usize = 4;
const DRIVER_FEATURE_SELECT: usize = 8;
const DRIVER_FEATURE: usize = 12;
const DEVICE_STATUS: usize = 20;
const QUEUE_SELECT: usize = 22;
const QUEUE_SIZE: usize = 24;
const QUEUE_ENABLE: usize = 28;
const QUEUE_NOTIFY_OFF: usize = 30;
const QUEUE_DESC: usize = 32;
const QUEUE_DRIVER: usize = 40;
const QUEUE_DEVICE: usize = 48;

// Device status. (VIRTIO 1.2 §2.1)
const ACKNOWLEDGE: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;

/// How long a device may take to reset.
const RESET: Duration = Duration::from_secs(1);

impl PciDevice {
    fn open(address: &str) -> io::Result<PciDevice> {
        let directory = device_directory(address);
        let path = directory.join("config");
        let config = fs::read(&path).map_err(|error| file_error(&path, &error))?;
        let capabilities = Capabilities::of(&config);
        let mut bars: [Option<Arc<Mapping>>; 6] = Default::default();
        let mut registers = |kind: u8, name: &str| {
            let missing = || bad(address, &format!("no capability of virtio for its {name}"));
            let place = capabilities.find(kind).ok_or_else(missing)?;
            let bar = match bars.get(usize::from(place.bar)).ok_or_else(missing)? {
                Some(bar) => Arc::clone(bar),
                None => {
                    let path = directory.join(format!("resource{}", place.bar));
                    let bar = Arc::new(map_bar(&path)?);
                    bars[usize::from(place.bar)] = Some(Arc::clone(&bar));
                    bar
                }
            };
            let (offset, len) = (place.offset as usize, place.len as usize);
            if offset > bar.len() || len > bar.len() - offset {
                return Err(bad(
                    address,
                    &format!("{name} outside of BAR {}", place.bar),
                ));
            }
            Ok((Registers { bar, offset, len }, place))
        };
        let (common, _) = registers(COMMON, "common configuration")?;
        let (notify, notify_place) = registers(NOTIFY, "notifications")?;
        let (specific, _) = registers(SPECIFIC, "own configuration")?;
        Ok(PciDevice {
            address: address.to_owned(),
            common,
            notify,
            notify_multiplier: notify_place.multiplier,
            specific,
            notify_at: [0; 2],
        })
    }

    fn set_status(&self, bits: u8) {
        let status = self.common.read_u8(DEVICE_STATUS);
        self.common.write_u8(DEVICE_STATUS, status | bits);
    }

    /// Negotiates features: none but that of modern devices.
    fn negotiate(&self) -> io::Result<()> {
        let common = &self.common;
        let half = |select: u32| {
            common.write_u32(DEVICE_FEATURE_SELECT, select);
            u64::from(common.read_u32(DEVICE_FEATURE))
        };
        let offered = half(0) | half(1) << 32;
        if offered & VERSION_1 == 0 {
            return Err(bad(&self.address, "no device of VIRTIO 1.0 or later"));
        }
        for select in [0, 1] {
            common.write_u32(DRIVER_FEATURE_SELECT, select);
            common.write_u32(DRIVER_FEATURE, (VERSION_1 >> (32 * select)) as u32);
        }
        self.set_status(FEATURES_OK);
        if common.read_u8(DEVICE_STATUS) & FEATURES_OK == 0 {
            // Such a device insists on an IOMMU, for one.
            return Err(bad(
                &self.address,
                "it wants features that are not known here",
            ));
        }
        Ok(())
    }

    fn place_ring(&mut self, ring: usize, at: &RingAddresses) -> io::Result<()> {
        let common = &self.common;
        common.write_u16(QUEUE_SELECT, ring as u16);
        common.write_u16(QUEUE_SIZE, at.size);
        common.write_u64(QUEUE_DESC, at.descriptors);
        common.write_u64(QUEUE_DRIVER, at.driver);
        common.write_u64(QUEUE_DEVICE, at.device);
        let offset = u32::from(common.read_u16(QUEUE_NOTIFY_OFF));
        let offset = offset
            .checked_mul(self.notify_multiplier)
            .map(|offset| offset as usize);
        let len = self.notify.len;
        self.notify_at[ring] = offset
            .filter(|offset| offset.is_multiple_of(2) && offset + 2 <= len)
            .ok_or_else(|| bad(&self.address, "a notification outside of its BAR"))?;
        common.write_u16(QUEUE_ENABLE, 1);
        Ok(())
    }
}

impl Transport for PciDevice {
    fn reset(&mut self) -> io::Result<[u16; 2]> {
        let common = &self.common;
        common.write_u8(DEVICE_STATUS, 0);
        let begin = Instant::now();
        while common.read_u8(DEVICE_STATUS) != 0 {
            if begin.elapsed() > RESET {
                let text = format!("PCI device {}: it does not reset", self.address);
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let size = |ring: usize| {
            common.write_u16(QUEUE_SELECT, ring as u16);
            common.read_u16(QUEUE_SIZE)
        };
        match [size(TO_GUEST), size(FROM_GUEST)] {
            [0, _] | [_, 0] => Err(bad(&self.address, "no pair of queues")),
            sizes => Ok(sizes),
        }
    }

    fn start(&mut self, _: &DeviceMemory, rings: &[RingAddresses; 2]) -> io::Result<()> {
        self.set_status(ACKNOWLEDGE);
        self.set_status(DRIVER);
        self.negotiate()?;
        for (ring, at) in rings.iter().enumerate() {
            self.place_ring(ring, at)?;
        }
        self.set_status(DRIVER_OK);
        Ok(())
    }

    fn is_alive(&mut self, _now_ns: u64) -> bool {
        true
    }

    fn kick(&self, ring: usize) {
        self.notify.write_u16(self.notify_at[ring], ring as u16);
    }

    fn signal(&self) -> Option<&EventFd> {
        None
    }
}

fn map_bar(path: &Path) -> io::Result<Mapping> {
    let file = open_file(path)?;
    let bytes = fs::metadata(path).map_err(|error| file_error(path, &error))?;
    let bytes = (bytes.len() as usize).next_multiple_of(PAGE_BYTES);
    Mapping::shared(file.as_fd(), 0, bytes).map_err(|error| file_error(path, &error))
}

fn bad(address: &str, what: &str) -> io::Error {
    let text = format!("PCI device {address}: {what}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

// Kinds of capabilities. (VIRTIO 1.2 §4.1.4)
const COMMON: u8 = 1;
const NOTIFY: u8 = 2;
const SPECIFIC: u8 = 4;

/// The capabilities in a device's configuration space.
struct Capabilities<'a> {
    config: &'a [u8],
}

/// Where registers lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    bar: u8,
    offset: u32,
    len: u32,
    /// Of notifications: what a ring's offset is multiplied by.
    multiplier: u32,
}

impl Capabilities<'_> {
    fn of(config: &[u8]) -> Capabilities<'_> {
        Capabilities { config }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.config.get(at).copied()
    }

    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.config.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    /// The first capability of virtio of a kind.
    fn find(&self, kind: u8) -> Option<Place> {
        const FIRST: usize = 0x34;
        const VENDOR: u8 = 9;
        let mut at = usize::from(self.byte(FIRST)? & !3);
        // There is room for this many; a list that bites its tail ends.
        for _ in 0..48 {
            if at < 0x40 {
                return None;
            }
            if self.byte(at)? == VENDOR && self.byte(at + 3)? == kind {
                return Some(Place {
                    bar: self.byte(at + 4)?,
                    offset: self.word(at + 8)?,
                    len: self.word(at + 12)?,
                    multiplier: match kind {
                        NOTIFY => self.word(at + 16)?,
                        _ => 0,
                    },
                });
            }
            at = usize::from(self.byte(at + 1)? & !3);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_found_and_loops_end() {
        let mut config = vec![0; 256];
        config[0x34] = 0x40;
        config[0x40..0x44].copy_from_slice(&[0x11, 0x50, 0, 0]);
        config[0x50..0x56].copy_from_slice(&[9, 0x40, 20, NOTIFY, 4, 0]);
        config[0x58..0x64].copy_from_slice(&[0, 0x30, 0, 0, 0, 0x10, 0, 0, 4, 0, 0, 0]);
        let capabilities = Capabilities::of(&config);
        let place = Place {
            bar: 4,
            offset: 0x3000,
            len: 0x1000,
            multiplier: 4,
        };
        assert_eq!(capabilities.find(NOTIFY), Some(place));
        assert_eq!(capabilities.find(COMMON), None);
        assert_eq!(Capabilities::of(&config[..0x52]).find(NOTIFY), None);
        assert_eq!(Capabilities::of(&[]).find(COMMON), None);
    }
}
