//! The guest's end of ivshmem: the PCI device, mapped in user space through sysfs or VFIO.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use carina_nic::pci::{
    PciAddress, check_address, device_directory, devices_with_id, file_error, open_file, write,
};
use carina_nic::vfio::{self, Line, VfioDevice};
use carina_sys::{EventFd, Mapping, PAGE_BYTES};

use super::VECTORS;
use crate::hl::Side;
use crate::ll::device::{Device, Doorbells};
use crate::ll::interrupts::{Interrupts, Opened};
use crate::ll::layout::Layout;
use crate::ll::station::Half;
use crate::ll::{HEARTBEAT_NS, VmpiImpl};

/// Opens the ivshmem devices of a guest for the data plane.
#[derive(Debug)]
pub struct GuestDevice;

/// PCI vendor and device of ivshmem, from QEMU's `docs/specs/pci-ids`.
const PCI_ID: (&str, &str) = ("0x1af4", "0x1110");

/// Offset of the doorbell register in BAR 0, from QEMU's `docs/specs/ivshmem-spec`.
const DOORBELL: usize = 12;

/// Finds the ivshmem devices of this system, sorted by PCI address.
///
/// # Errors
/// When sysfs cannot be read. A system without PCI has no devices.
pub fn guest_devices() -> io::Result<Vec<PciAddress>> {
    devices_with_id(PCI_ID)
}

impl GuestDevice {
    /// Opens the device at `address` for the data plane. The caller needs root to map its BARs.
    ///
    /// # Errors
    /// An error of sysfs or VFIO, with the file; `InvalidData` if the BAR's size is not that of a
    /// region.
    pub fn open(address: &str, interrupts: Interrupts) -> io::Result<Opened> {
        check_address(address)?;
        let path = device_directory(address);
        let by_vfio = || open_vfio(&path, address);
        interrupts.open(&path, by_vfio, || open_sysfs(&path))
    }
}

fn open_sysfs(path: &Path) -> io::Result<Box<dyn VmpiImpl + Send>> {
    vfio::release(path)?;
    write(&path.join("enable"), "1")?;
    let memory = open_file(&path.join("resource2"))?;
    let bytes = fs::metadata(path.join("resource2"))?.len();
    let registers = open_file(&path.join("resource0"))?;
    let doorbell = Doorbell::Mapped {
        page: Mapping::shared(registers.as_fd(), 0, PAGE_BYTES)?,
        offset: bar_start(path)? as usize % PAGE_BYTES + DOORBELL,
    };
    let doorbells = GuestBells::new(doorbell);
    Ok(Box::new(Device::open(
        Side::Guest,
        memory.as_fd(),
        layout_of(bytes)?,
        doorbells,
    )?))
}

fn open_vfio(path: &Path, address: &str) -> io::Result<Box<dyn VmpiImpl + Send>> {
    let device = VfioDevice::open(path, address, Line::Msix)?;
    let (registers, memory) = (device.region(0)?, device.region(2)?);
    let fd = device.as_fd().try_clone_to_owned()?;
    let layout = layout_of(memory.bytes)?;
    let doorbells = GuestBells::new(Doorbell::Vfio { device, registers });
    Ok(Box::new(Device::open_at(
        Side::Guest,
        fd.as_fd(),
        memory.offset,
        layout,
        doorbells,
    )?))
}

/// The doorbells of a guest: how the guest wakes the host, and how the host wakes the guest.
struct GuestBells {
    doorbell: Doorbell,
    /// The vector whose interrupt the guest receives now; 0 after the device is opened.
    routed: u32,
    /// Whether an interrupt has arrived since the guest routed this vector.
    has_heard: bool,
    /// The vector that the guest shows to the host.
    shown: u32,
    next_route_ns: u64,
}

impl GuestBells {
    fn new(doorbell: Doorbell) -> GuestBells {
        GuestBells {
            doorbell,
            routed: 0,
            has_heard: false,
            shown: 0,
            next_route_ns: 0,
        }
    }
}

enum Doorbell {
    /// BAR 0 is mapped through sysfs; there are no interrupts.
    Mapped {
        /// The page that contains the BAR.
        page: Mapping,
        /// Offset of the doorbell register in the page.
        offset: usize,
    },
    /// The device is opened through VFIO, with an interrupt. The registers are written through
    /// VFIO, because the BAR may share its page with another device and VFIO then does not map it.
    Vfio {
        device: VfioDevice,
        registers: vfio::Region,
    },
}

impl Doorbells for GuestBells {
    fn ring(&self, peer_doorbell: u32) {
        // The number comes from shared memory. QEMU ignores a number that no peer has.
        let word = peer_doorbell << 16;
        match &self.doorbell {
            Doorbell::Mapped { page, offset } => {
                page.atomic_u32(*offset)
                    .store(word.to_le(), Ordering::Release);
            }
            Doorbell::Vfio { device, registers } => {
                // If the device was removed, the heartbeat stops and the handshake ends the link.
                let _ = device.write_u32(*registers, DOORBELL as u64, word);
            }
        }
    }

    fn can_ring(&self) -> bool {
        true
    }

    fn own(&self) -> Option<&EventFd> {
        match &self.doorbell {
            Doorbell::Mapped { .. } => None,
            Doorbell::Vfio { device, .. } => Some(device.interrupt()),
        }
    }

    fn clear_signal(&mut self) {
        if self.own().is_some_and(|doorbell| doorbell.drain() > 0) {
            self.has_heard = true;
        }
    }

    /// Routes the interrupt from the vector that a restarted host uses. The guest shows this vector
    /// only after it has received an interrupt there: only that proves that QEMU has connected the
    /// vector to a doorbell.
    fn tune(&mut self, now_ns: u64, peer: &Half) -> u32 {
        let Doorbell::Vfio { device, .. } = &mut self.doorbell else {
            return 0;
        };
        let is_news = peer.epoch != 0 && peer.vector != self.routed;
        if is_news && peer.vector < VECTORS && now_ns >= self.next_route_ns {
            // The limit bounds the cost of a host that keeps changing its vector.
            self.next_route_ns = now_ns + HEARTBEAT_NS;
            // A device with fewer vectors refuses. The guest then receives no interrupt, and polls.
            self.routed = match device.route_interrupt(peer.vector) {
                Ok(()) => peer.vector,
                Err(_) => u32::MAX,
            };
            self.has_heard = false;
        }
        if self.has_heard && self.routed < VECTORS {
            self.shown = self.routed;
        }
        self.shown
    }

    fn can_be_rung(&self) -> bool {
        self.own().is_some()
    }

    fn doorbell(&self) -> u32 {
        0
    }

    fn is_attached(&self) -> bool {
        true
    }
}

/// Physical address at which the firmware placed BAR 0. The BAR is smaller than a page and need not
/// begin at a page boundary.
fn bar_start(path: &Path) -> io::Result<u64> {
    let path = path.join("resource");
    let text = fs::read_to_string(&path).map_err(|e| file_error(&path, &e))?;
    let start = text
        .split_ascii_whitespace()
        .next()
        .and_then(|word| word.strip_prefix("0x"));
    start
        .and_then(|hex| u64::from_str_radix(hex, 16).ok())
        .ok_or_else(|| {
            file_error(
                &path,
                &io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the device has no address for BAR 0",
                ),
            )
        })
}

fn layout_of(bytes: u64) -> io::Result<Layout> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    Layout::new(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}
