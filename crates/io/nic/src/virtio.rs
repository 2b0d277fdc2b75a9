//! Virtio devices on the PCI bus, driven from user space: modern ones only. (VIRTIO 1.2 §4.1)
//!
//! An IOMMU translates the addresses of such a device only if `VIRTIO_F_ACCESS_PLATFORM` is
//! negotiated (§6.1). This driver does not negotiate it, so the device gets physical addresses of
//! huge pages, also through VFIO.

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

/// `VIRTIO_F_VERSION_1`, the feature that distinguishes modern devices.
pub const VERSION_1: u64 = 1 << 32;

/// Addresses of the three parts of a virtio ring, as the device sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingAddresses {
    /// Number of descriptors of the ring.
    pub size: u16,
    /// Address of the ring's descriptor table.
    pub descriptors: u64,
    /// Address of the driver area, which the driver writes.
    pub driver: u64,
    /// Address of the device area, which the device writes.
    pub device: u64,
}

/// A modern virtio device on the PCI bus, with access to its registers. (VIRTIO 1.2 §4.1.4)
#[derive(Debug)]
pub struct VirtioPci {
    address: PciAddress,
    common: Window,
    notify: Window,
    notify_multiplier: u32,
    specific: Window,
    /// The interrupt status; reading it clears the interrupt. (VIRTIO 1.2 §4.1.4.5)
    isr: Window,
    /// The VFIO device that delivers interrupts; `None` through sysfs.
    vfio: Option<VfioDevice>,
    /// Offset of each ring's notification in `notify`.
    notify_at: Vec<usize>,
}

// Offsets in the common configuration. (VIRTIO 1.2 §4.1.4.3)
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

// Bits of the device status. (VIRTIO 1.2 §2.1)
const ACKNOWLEDGE: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;
const NEEDS_RESET: u8 = 64;

/// Longest time that a reset may take.
const RESET: Duration = Duration::from_secs(1);

impl VirtioPci {
    /// Opens a device, with its BARs mapped through sysfs.
    ///
    /// # Errors
    /// The error of sysfs; `InvalidData` if it is not a modern virtio device.
    pub fn over_sysfs(address: &str) -> io::Result<VirtioPci> {
        let directory = device_directory(address);
        VirtioPci::over(address, Access::Sysfs(Path::new(&directory)))
    }

    /// Opens a device that is bound to vfio-pci.
    ///
    /// # Errors
    /// The error of VFIO; `InvalidData` if it is not a modern virtio device.
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

    /// Returns the PCI address of the device.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Resets the device: the device stops and forgets its rings.
    ///
    /// # Errors
    /// `TimedOut` if it does not complete the reset.
    pub fn reset(&mut self) -> io::Result<()> {
        let common = &self.common;
        common.write_u8(DEVICE_STATUS, 0);
        let begin = Instant::now();
        while common.read_u8(DEVICE_STATUS) != 0 {
            if begin.elapsed() > RESET {
                let text = format!(
                    "PCI device {}: the device does not complete a reset",
                    self.address
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.notify_at.clear();
        Ok(())
    }

    /// Returns the largest number of descriptors that a ring may have; 0 if there is no such ring.
    #[must_use]
    pub fn ring_size(&self, ring: usize) -> u16 {
        self.common.write_u16(QUEUE_SELECT, ring as u16);
        self.common.read_u16(QUEUE_SIZE)
    }

    /// Negotiates `VIRTIO_F_VERSION_1`, and the features of `wanted` that the device offers.
    /// Returns the negotiated features.
    ///
    /// # Errors
    /// `InvalidData` if the device is not modern, or refuses this set of features.
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
            return Err(bad(&self.address, "not a device of VIRTIO 1.0 or later"));
        }
        let agreed = offered & wanted | VERSION_1;
        for select in [0, 1] {
            common.write_u32(DRIVER_FEATURE_SELECT, select);
            common.write_u32(DRIVER_FEATURE, (agreed >> (32 * select)) as u32);
        }
        self.set_status(FEATURES_OK);
        if common.read_u8(DEVICE_STATUS) & FEATURES_OK == 0 {
            // For example, a device that requires an IOMMU refuses.
            return Err(bad(
                &self.address,
                "the device requires features that this driver does not have",
            ));
        }
        Ok(agreed)
    }

    /// Tells the device the addresses of a ring. The caller places rings in the order of their
    /// numbers.
    ///
    /// # Errors
    /// `InvalidData` if the ring's notification is outside the BAR.
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
            .ok_or_else(|| {
                bad(
                    &self.address,
                    "the notification address of a queue is outside \
                its BAR",
                )
            })?;
        self.notify_at.truncate(ring);
        self.notify_at.push(offset);
        common.write_u16(QUEUE_ENABLE, 1);
        Ok(())
    }

    /// Starts the device: it may use its rings from now on.
    pub fn start(&self) {
        self.set_status(DRIVER_OK);
    }

    /// Whether the device reports an error that only a reset can clear. (VIRTIO 1.2 §2.1.1)
    #[must_use]
    pub fn needs_reset(&self) -> bool {
        self.common.read_u8(DEVICE_STATUS) & NEEDS_RESET != 0
    }

    /// Notifies the device that a ring, which was placed before, has new buffers.
    #[inline]
    pub fn kick(&self, ring: usize) {
        self.notify.write_u16(self.notify_at[ring], ring as u16);
    }

    /// Returns the eventfd that the device's interrupt signals; `None` if the device is accessed
    /// through sysfs, which has no interrupts.
    #[must_use]
    pub fn signal(&self) -> Option<&EventFd> {
        self.vfio.as_ref().map(VfioDevice::interrupt)
    }

    /// Clears a pending interrupt: resets its eventfd and unmasks the interrupt, so that the next
    /// interrupt wakes this side again.
    pub fn clear_signal(&self) {
        let Some(vfio) = &self.vfio else { return };
        if vfio.interrupt().drain() > 0 {
            self.isr.read_u8(0);
            // If the device was removed, the caller notices by the lack of answers.
            let _ = vfio.unmask();
        }
    }

    /// Returns the byte at offset `at` of the device-specific configuration; 0 beyond its end.
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

/// Whether a configuration space has a virtio capability of this kind.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn has_capability(config: &[u8], kind: u8) -> bool {
    capabilities::Capabilities::of(config).find(kind).is_some()
}
