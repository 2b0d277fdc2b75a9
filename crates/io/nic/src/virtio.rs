//! Virtio devices on the PCI bus, driven from user space: modern ones only. (VIRTIO 1.2 §4.1)
//!
//! No IOMMU stands between such a device and memory unless `VIRTIO_F_ACCESS_PLATFORM` is
//! negotiated (§6.1), which it is not here: it gets physical addresses of huge pages, also through
//! VFIO.

mod capabilities;
pub(crate) mod net;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use carina_sys::EventFd;

use self::capabilities::{COMMON, Finder, ISR, NOTIFY, SPECIFIC, Window, bad};
use crate::pci::{PciAddress, device_directory};
use crate::registers::Access;
use crate::vfio::VfioDevice;

/// `VIRTIO_F_VERSION_1`: what sets modern devices apart.
pub const VERSION_1: u64 = 1 << 32;

/// Where the device finds a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingAddresses {
    /// Number of descriptors.
    pub size: u16,
    /// The descriptors.
    pub descriptors: u64,
    /// What the driver writes.
    pub driver: u64,
    /// What the device writes.
    pub device: u64,
}

/// The device, as of VIRTIO 1.2 §4.1.4.
#[derive(Debug)]
pub struct VirtioPci {
    address: PciAddress,
    common: Window,
    notify: Window,
    notify_multiplier: u32,
    specific: Window,
    /// Why it interrupts; read, it takes the interrupt back. (VIRTIO 1.2 §4.1.4.5)
    isr: Window,
    /// With which it interrupts.
    vfio: Option<VfioDevice>,
    /// Where each ring's notification goes, in `notify`.
    notify_at: Vec<usize>,
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
const NEEDS_RESET: u8 = 64;

/// How long a device may take to reset.
const RESET: Duration = Duration::from_secs(1);

impl VirtioPci {
    /// A device whose BARs are mapped through sysfs.
    ///
    /// # Errors
    /// What sysfs says; `InvalidData` when it is no modern virtio device.
    pub fn over_sysfs(address: &str) -> io::Result<VirtioPci> {
        let directory = device_directory(address);
        VirtioPci::over(address, Access::Sysfs(Path::new(&directory)))
    }

    /// A device that vfio-pci has.
    ///
    /// # Errors
    /// What VFIO says; `InvalidData` when it is no modern virtio device.
    pub fn over_vfio(address: &str, vfio: VfioDevice) -> io::Result<VirtioPci> {
        let mut device = VirtioPci::over(address, Access::Vfio(&vfio))?;
        device.vfio = Some(vfio);
        Ok(device)
    }

    fn over(address: &str, access: Access<'_>) -> io::Result<VirtioPci> {
        let mut finder = Finder::new(address, access)?;
        let (common, _) = finder.registers(COMMON, COMMON_BYTES, "common configuration")?;
        let (notify, notify_place) = finder.registers(NOTIFY, 2, "notifications")?;
        let (isr, _) = finder.registers(ISR, 1, "interrupt status")?;
        let (specific, _) = finder.registers(SPECIFIC, 6, "own configuration")?;
        Ok(VirtioPci {
            address: address.to_owned(),
            common,
            notify,
            notify_multiplier: notify_place.multiplier,
            specific,
            isr,
            vfio: None,
            notify_at: Vec::new(),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Stops the device, which forgets its rings.
    ///
    /// # Errors
    /// `TimedOut` when it does not come back.
    pub fn reset(&mut self) -> io::Result<()> {
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
        self.notify_at.clear();
        Ok(())
    }

    /// How many descriptors a ring may have; 0: there is no such ring.
    #[must_use]
    pub fn ring_size(&self, ring: usize) -> u16 {
        self.common.write_u16(QUEUE_SELECT, ring as u16);
        self.common.read_u16(QUEUE_SIZE)
    }

    /// Negotiates features: that of modern devices, and those of `wanted` that are offered. Returns
    /// what is agreed upon.
    ///
    /// # Errors
    /// `InvalidData`: it is no modern device, or it insists on other features.
    pub fn negotiate(&self, wanted: u64) -> io::Result<u64> {
        self.set_status(ACKNOWLEDGE);
        self.set_status(DRIVER);
        let common = &self.common;
        let half = |select: u32| {
            common.write_u32(DEVICE_FEATURE_SELECT, select);
            u64::from(common.read_u32(DEVICE_FEATURE))
        };
        let offered = half(0) | half(1) << 32;
        if offered & VERSION_1 == 0 {
            return Err(bad(&self.address, "no device of VIRTIO 1.0 or later"));
        }
        let agreed = offered & wanted | VERSION_1;
        for select in [0, 1] {
            common.write_u32(DRIVER_FEATURE_SELECT, select);
            common.write_u32(DRIVER_FEATURE, (agreed >> (32 * select)) as u32);
        }
        self.set_status(FEATURES_OK);
        if common.read_u8(DEVICE_STATUS) & FEATURES_OK == 0 {
            // Such a device insists on an IOMMU, for one.
            return Err(bad(
                &self.address,
                "it wants features that are not known here",
            ));
        }
        Ok(agreed)
    }

    /// Tells the device of a ring. Rings are placed in the order of their numbers.
    ///
    /// # Errors
    /// `InvalidData`: its notification lies outside of the BAR.
    pub fn place_ring(&mut self, ring: usize, at: &RingAddresses) -> io::Result<()> {
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
        let offset = offset
            .filter(|offset| offset.is_multiple_of(2) && offset + 2 <= len)
            .ok_or_else(|| bad(&self.address, "a notification outside of its BAR"))?;
        self.notify_at.truncate(ring);
        self.notify_at.push(offset);
        common.write_u16(QUEUE_ENABLE, 1);
        Ok(())
    }

    /// Lets the device begin.
    pub fn start(&self) {
        self.set_status(DRIVER_OK);
    }

    /// Whether the device has found that it cannot go on. (VIRTIO 1.2 §2.1.1)
    #[must_use]
    pub fn needs_reset(&self) -> bool {
        self.common.read_u8(DEVICE_STATUS) & NEEDS_RESET != 0
    }

    /// Tells the device to look at a ring that was placed.
    #[inline]
    pub fn kick(&self, ring: usize) {
        self.notify.write_u16(self.notify_at[ring], ring as u16);
    }

    /// What becomes readable when the device interrupts, where VFIO has it.
    #[must_use]
    pub fn signal(&self) -> Option<&EventFd> {
        self.vfio.as_ref().map(VfioDevice::interrupt)
    }

    /// Takes note of an interrupt, so that the next one wakes again.
    pub fn silence(&self) {
        let Some(vfio) = &self.vfio else { return };
        if vfio.interrupt().drain() > 0 {
            self.isr.read_u8(0);
            // A device that was taken away falls silent, which is noticed.
            let _ = vfio.unmask();
        }
    }

    /// A byte of the configuration that its kind of device has; 0 behind its end.
    #[must_use]
    pub fn config(&self, at: usize) -> u8 {
        if at < self.specific.len() {
            self.specific.read_u8(at)
        } else {
            0
        }
    }

    fn set_status(&self, bits: u8) {
        let status = self.common.read_u8(DEVICE_STATUS);
        self.common.write_u8(DEVICE_STATUS, status | bits);
    }
}

/// Whether a configuration space has a capability of virtio of a kind.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn has_capability(config: &[u8], kind: u8) -> bool {
    capabilities::Capabilities::of(config).find(kind).is_some()
}
