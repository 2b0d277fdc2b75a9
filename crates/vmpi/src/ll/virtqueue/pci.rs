//! In a guest: a virtio device on the PCI bus, driven from user space, as of VIRTIO 1.2 §4.1
//! (modern devices only). Through VFIO, where the guest has an IOMMU, it interrupts; through sysfs
//! it is polled.
//!
//! No IOMMU stands between the device and memory either way, because a device that does not offer
//! `VIRTIO_F_ACCESS_PLATFORM` goes past it (§6.1): it gets physical addresses of huge pages. Their
//! file stays when the process ends, so that a device that was not stopped does not write into
//! memory of others.

mod registers;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carina_sys::{EventFd, huge_page_file_exists};
use carina_vhost_user::features::VERSION_1;
use carina_wire::vmpi::DEVICE_MAC;

use self::registers::{Access, COMMON, Finder, ISR, NOTIFY, Registers, SPECIFIC, bad};
use super::device::QueueDevice;
use super::device_memory::{DeviceMemory, RingAddresses};
use super::driver_half::{DriverHalf, Transport};
use super::{FROM_GUEST, TO_GUEST};
use crate::hl::Side;
use crate::ll::VmpiImpl;
use crate::ll::interrupts::{Interrupts, Opened};
use crate::ll::pci::{PciAddress, check_address, claim, device_directory, devices_with_id, write};
use crate::ll::vfio::{self, Line, VfioDevice};

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
pub fn open_guest(address: &str, interrupts: Interrupts) -> io::Result<Opened> {
    check_address(address)?;
    let path = device_directory(address);
    let by_vfio = || {
        let vfio = VfioDevice::open(&path, address, Line::Intx)?;
        start(PciDevice::over_vfio(address, vfio)?)
    };
    let by_sysfs = || {
        vfio::release(&path)?;
        claim(address)?;
        start(PciDevice::over_sysfs(address)?)
    };
    interrupts.open(&path, by_vfio, by_sysfs)
}

fn start(mut device: PciDevice) -> io::Result<Box<dyn VmpiImpl + Send>> {
    // First of all, so that the queues of a process that was killed are left alone.
    device.reset()?;
    let memory = DeviceMemory::physical(&memory_name(&device.address))?;
    let (tx, rx) = (memory.pipe(FROM_GUEST)?, memory.pipe(TO_GUEST)?);
    let mut half = DriverHalf::new(device, memory);
    half.start()?;
    Ok(Box::new(QueueDevice::new(Side::Guest, half, tx, rx)))
}

fn memory_name(address: &str) -> String {
    format!("carina-vmpi-{address}")
}

fn mac_of(address: &str) -> io::Result<[u8; 6]> {
    let directory = device_directory(address);
    if let Some(mac) = mac_of_interface(&directory) {
        return Ok(mac);
    }
    if vfio::is_bound(&directory) && huge_page_file_exists(&memory_name(address)) {
        // A node has given it memory since this system booted. To ask the device itself would
        // reset it.
        return Ok(DEVICE_MAC);
    }
    if directory.join("driver").exists() {
        // Another's, which is left alone.
        return Ok([0; 6]);
    }
    write(&directory.join("enable"), "1")?;
    let device = PciDevice::over_sysfs(address)?;
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

/// The device, as of VIRTIO 1.2 §4.1.4.
struct PciDevice {
    address: PciAddress,
    common: Registers,
    notify: Registers,
    notify_multiplier: u32,
    specific: Registers,
    /// Why it interrupts; read, it takes the interrupt back. (VIRTIO 1.2 §4.1.4.5)
    isr: Registers,
    /// With which it interrupts.
    vfio: Option<VfioDevice>,
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
const COMMON_BYTES: usize = 56;

// Device status. (VIRTIO 1.2 §2.1)
const ACKNOWLEDGE: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;

/// How long a device may take to reset.
const RESET: Duration = Duration::from_secs(1);

impl PciDevice {
    fn over_sysfs(address: &str) -> io::Result<PciDevice> {
        let directory = device_directory(address);
        PciDevice::over(address, Access::Sysfs(&directory))
    }

    fn over_vfio(address: &str, vfio: VfioDevice) -> io::Result<PciDevice> {
        let mut device = PciDevice::over(address, Access::Vfio(&vfio))?;
        device.vfio = Some(vfio);
        Ok(device)
    }

    fn over(address: &str, access: Access<'_>) -> io::Result<PciDevice> {
        let mut finder = Finder::new(address, access)?;
        let (common, _) = finder.registers(COMMON, COMMON_BYTES, "common configuration")?;
        let (notify, notify_place) = finder.registers(NOTIFY, 2, "notifications")?;
        let (isr, _) = finder.registers(ISR, 1, "interrupt status")?;
        let (specific, _) = finder.registers(SPECIFIC, 6, "own configuration")?;
        Ok(PciDevice {
            address: address.to_owned(),
            common,
            notify,
            notify_multiplier: notify_place.multiplier,
            specific,
            isr,
            vfio: None,
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
        let len = self.notify.len();
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
        self.vfio.as_ref().map(VfioDevice::interrupt)
    }

    fn silence(&self) {
        let Some(vfio) = &self.vfio else { return };
        if vfio.interrupt().drain() > 0 {
            self.isr.read_u8(0);
            // A device that was taken away falls silent, which is noticed.
            let _ = vfio.unmask();
        }
    }
}
