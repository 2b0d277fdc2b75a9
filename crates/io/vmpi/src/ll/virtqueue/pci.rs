//! The virtio PCI device in a guest, driven from user space by VIRTIO 1.2 §4.1 (modern devices
//! only). Through VFIO, if the guest has an IOMMU, the device interrupts; through sysfs, it is
//! polled.
//!
//! In both cases the device gets physical addresses of huge pages. No IOMMU translates them,
//! because the device does not offer `VIRTIO_F_ACCESS_PLATFORM` and so bypasses it (§6.1). The
//! file of the huge pages remains when the process ends: a device that was not stopped then cannot
//! write into memory of another process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use carina_nic::pci::{PciAddress, check_address, claim, device_directory, devices_with_id, write};
use carina_nic::vfio::{self, Line, VfioDevice};
use carina_nic::virtio::VirtioPci;
use carina_sys::{EventFd, huge_page_file_exists};
use carina_wire::vmpi::DEVICE_MAC;

use super::device::QueueDevice;
use super::device_memory::{DeviceMemory, RingAddresses};
use super::driver_half::{DriverHalf, Transport};
use super::{FROM_GUEST, TO_GUEST};
use crate::hl::Side;
use crate::ll::VmpiImpl;
use crate::ll::interrupts::{Interrupts, Opened};

/// PCI vendor and device of a network device. (VIRTIO 1.2 §4.1.2)
const PCI_ID: (&str, &str) = ("0x1af4", "0x1041");

/// The PCI devices of this system that carry the VMPI, sorted by address.
///
/// # Errors
/// sysfs cannot be read, or a candidate device cannot be examined and none was found.
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
        // If a VMPI device was found, errors of other cards do not matter.
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// Opens the guest's side of a link over the PCI device at `address`. If the kernel's driver has
/// the device, it is unbound from it. The caller needs root.
///
/// # Errors
/// An error of sysfs, with the file; `InvalidData` if the device is of another kind; `OutOfMemory`
/// if there are too few huge pages.
pub fn open_guest(address: &str, interrupts: Interrupts) -> io::Result<Opened> {
    check_address(address)?;
    let path = device_directory(address);
    let by_vfio = || {
        let vfio = VfioDevice::open(&path, address, Line::Intx)?;
        start(VirtioPci::over_vfio(address, vfio)?)
    };
    let by_sysfs = || {
        vfio::release(&path)?;
        claim(address)?;
        start(VirtioPci::over_sysfs(address)?)
    };
    interrupts.open(&path, by_vfio, by_sysfs)
}

fn start(mut device: VirtioPci) -> io::Result<Box<dyn VmpiImpl + Send>> {
    // The reset comes first: the device may still use the queues of a process that was killed.
    device.reset()?;
    let memory = DeviceMemory::physical(&memory_name(device.address()))?;
    let (tx, rx) = (memory.pipe(FROM_GUEST)?, memory.pipe(TO_GUEST)?);
    let mut half = DriverHalf::new(PciDevice(device), memory);
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
        // A node has given the device memory since this system booted. Reading the MAC address from
        // the device would reset it.
        return Ok(DEVICE_MAC);
    }
    if is_idle(&directory) {
        // The kernel's transport of virtio has the device, but no driver of network cards is
        // loaded that uses it. Nothing is lost when the transport gives it up for a moment.
        write(&directory.join("driver/unbind"), address)?;
        let mac = mac_in_device(&directory, address);
        if !matches!(mac, Ok(DEVICE_MAC)) {
            write(Path::new("/sys/bus/pci/drivers_probe"), address)?;
        }
        return mac;
    }
    if directory.join("driver").exists() {
        // Another driver has the device; it is left alone.
        return Ok([0; 6]);
    }
    mac_in_device(&directory, address)
}

/// The MAC address that the device tells; no driver may have the device.
fn mac_in_device(directory: &Path, address: &str) -> io::Result<[u8; 6]> {
    write(&directory.join("enable"), "1")?;
    let device = VirtioPci::over_sysfs(address)?;
    Ok([0, 1, 2, 3, 4, 5].map(|at| device.config(at)))
}

/// Whether the kernel's `virtio-pci` has the device and no driver of the virtio bus uses it.
fn is_idle(directory: &Path) -> bool {
    let driver = fs::read_link(directory.join("driver"));
    let is_transport = driver.is_ok_and(|path| path.file_name() == Some("virtio-pci".as_ref()));
    let virtio = entry_with_prefix(directory, "virtio");
    is_transport && virtio.is_some_and(|virtio| !virtio.join("driver").exists())
}

/// The MAC address of the interface that the kernel's driver has created for a device. `None` if
/// there is no such interface.
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

/// The transport of the driver half over a virtio PCI device.
struct PciDevice(VirtioPci);

impl Transport for PciDevice {
    fn reset(&mut self) -> io::Result<[u16; 2]> {
        self.0.reset()?;
        match [TO_GUEST, FROM_GUEST].map(|ring| self.0.ring_size(ring)) {
            [0, _] | [_, 0] => {
                let text = format!(
                    "PCI device {}: the device has no pair of queues",
                    self.0.address()
                );
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
            sizes => Ok(sizes),
        }
    }

    fn start(&mut self, _: &DeviceMemory, rings: &[RingAddresses; 2]) -> io::Result<()> {
        // Negotiates only `VIRTIO_F_VERSION_1`, which every modern device has.
        self.0.negotiate(0)?;
        for (ring, at) in rings.iter().enumerate() {
            self.0.place_ring(ring, at)?;
        }
        self.0.start();
        Ok(())
    }

    fn is_alive(&mut self, _now_ns: u64) -> bool {
        true
    }

    fn kick(&self, ring: usize) {
        self.0.kick(ring);
    }

    fn signal(&self) -> Option<&EventFd> {
        self.0.signal()
    }

    fn clear_signal(&self) {
        self.0.clear_signal();
    }
}
