//! A network card that this process drives, of any supported model.

use crate::binding::{AccessMethod, BindError, Holding};
use crate::dma::DmaMemory;
use crate::driver::{Counts, Link, Received, Settings};
use crate::error::NicError;
use crate::intel::{self, Intel, Model};
use crate::pci::{self, PciDevice, device_directory};
use crate::registers::{Access, Bar};
use crate::vfio::{self, Line, VfioDevice};
use crate::virtio::{self, VirtioPci, net::VirtioNet};

/// Configuration of a card, as the caller of [`Nic::open`] chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicConfig {
    /// MTU of the card: longest IP packet in bytes, 68 to [`MTU_MAX`].
    pub mtu: usize,
    /// Number of descriptors of each ring: 64 to 4096, a power of two.
    pub ring: u16,
    /// Number of queues (pairs of a receive ring and a send ring), from 1 to the number that the
    /// device has.
    pub queues: usize,
    /// Whether the card also receives frames for other stations.
    pub is_promiscuous: bool,
    /// Whether the process accesses the device through sysfs or VFIO.
    pub access_method: AccessMethod,
    /// Whether to take the card from the kernel even if routes of this system use it.
    pub is_forced: bool,
}

impl Default for NicConfig {
    /// An MTU of 1500, one pair of rings of 512 descriptors, frames for all stations.
    fn default() -> NicConfig {
        NicConfig {
            mtu: 1500,
            ring: 512,
            queues: 1,
            is_promiscuous: true,
            access_method: AccessMethod::Auto,
            is_forced: false,
        }
    }
}

/// Largest MTU of a card, in bytes.
pub const MTU_MAX: usize = 9000;

/// Size of a MAC header and a VLAN tag, in bytes.
const HEADER_BYTES: usize = 18;

/// A network card that this process drives. Dropping it gives the card back to the kernel driver
/// that had it.
///
/// ```text
///   receive       frames that have come, one by one; their buffers go back to the device
///   room, put     frames to be sent;  flush: the device sees them
/// ```
#[derive(Debug)]
pub struct Nic {
    driver: Driver,
    counts: Counts,
    queues: usize,
    // This field is dropped after `driver`: first the driver stops the device, then it is given
    // back.
    holding: Holding,
    vfio: Option<VfioDevice>,
}

#[derive(Debug)]
enum Driver {
    Intel(Box<Intel<Bar>>),
    Virtio(Box<VirtioNet>),
}

/// The driver that a device needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Intel(Model),
    Virtio,
}

impl Kind {
    fn of(device: &PciDevice) -> Option<Kind> {
        match (device.vendor, device.device) {
            (0x8086, number) => Model::of(number).map(Kind::Intel),
            // Modern devices, and transitional ones, which also have the modern registers. (VIRTIO
            // 1.2 §4.1.2)
            (0x1af4, 0x1041 | 0x1000) => Some(Kind::Virtio),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Intel(model) => model.name(),
            Kind::Virtio => "virtio-net",
        }
    }

    fn queues_max(self) -> usize {
        match self {
            Kind::Intel(model) => model.queues_max(),
            Kind::Virtio => 1,
        }
    }
}

/// Returns the name of the driver for a device; `None` if this crate has none.
#[must_use]
pub fn driver_for(device: &PciDevice) -> Option<&'static str> {
    Kind::of(device).map(Kind::name)
}

impl NicConfig {
    /// Checks the values that are independent of the card. The number of queues is not: it differs
    /// by card.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn check(&self) -> Result<(), NicError> {
        let wrong = |name, value, right: String| Err(NicError::Config { name, value, right });
        if !(68..=MTU_MAX).contains(&self.mtu) {
            return wrong("mtu", self.mtu, format!("68 to {MTU_MAX}"));
        }
        if !(64..=4096).contains(&self.ring) || !self.ring.is_power_of_two() {
            let right = "a power of two from 64 to 4096".to_owned();
            return wrong("ring", self.ring.into(), right);
        }
        if self.queues == 0 {
            return wrong("queues", self.queues, "at least 1".to_owned());
        }
        Ok(())
    }

    fn settings(&self, kind: Kind) -> Result<Settings, NicError> {
        self.check()?;
        let queues_max = kind.queues_max();
        if self.queues > queues_max {
            return Err(NicError::Config {
                name: "queues",
                value: self.queues,
                right: format!("1 to {queues_max} for {}", kind.name()),
            });
        }
        let frame_bytes = self.mtu + HEADER_BYTES;
        Ok(Settings {
            frame_bytes,
            buffer_bytes: (frame_bytes + 4).next_power_of_two().max(2048),
            ring: self.ring,
            queues: self.queues,
            is_promiscuous: self.is_promiscuous,
        })
    }
}

impl Nic {
    /// Takes a card from the kernel's driver and starts it. The caller needs root.
    ///
    /// # Errors
    /// There is no driver for the card, another process uses it, or the system refuses a resource;
    /// the kernel's driver then gets the card back.
    pub fn open(address: &str, config: &NicConfig) -> Result<Nic, NicError> {
        let (kind, device) = kind_at(address)?;
        let settings = config.settings(kind)?;
        let access_method = config.access_method.of(&device)?;
        let holding = Holding::take(&device, access_method, config.is_forced)?;
        let file = holding.file().to_owned();
        let vfio = match access_method {
            AccessMethod::Vfio => {
                let path = device_directory(address);
                Some(VfioDevice::open(&path, address, Line::Intx)?)
            }
            _ => {
                vfio::release(&device_directory(address))?;
                pci::claim(address)?;
                None
            }
        };
        let (driver, vfio) = match kind {
            Kind::Intel(model) => {
                let directory = device_directory(address);
                let access = match &vfio {
                    Some(vfio) => Access::Vfio(vfio),
                    None => Access::Sysfs(&directory),
                };
                let bar = Bar::map(access, model.bar_bytes())?;
                let bytes = intel::memory_bytes(&settings);
                let memory = match &vfio {
                    Some(vfio) => DmaMemory::behind_iommu(vfio, bytes)?,
                    None => DmaMemory::physical(&file, bytes)?,
                };
                let device = Intel::start(model, bar, memory, &settings)?;
                (Driver::Intel(Box::new(device)), vfio)
            }
            Kind::Virtio => {
                let device = match vfio {
                    Some(vfio) => VirtioPci::over_vfio(address, vfio)?,
                    None => VirtioPci::over_sysfs(address)?,
                };
                let bytes = virtio::net::memory_bytes(&settings);
                let memory = DmaMemory::physical(&file, bytes)?;
                let device = VirtioNet::start(device, memory, &settings)?;
                (Driver::Virtio(Box::new(device)), None)
            }
        };
        Ok(Nic {
            driver,
            counts: Counts::default(),
            queues: settings.queues,
            holding,
            vfio,
        })
    }

    /// Returns the PCI address of the card.
    #[must_use]
    pub fn address(&self) -> &str {
        self.holding.address()
    }

    /// Returns the name of this crate's driver for the card.
    #[must_use]
    pub fn driver(&self) -> &'static str {
        match &self.driver {
            Driver::Intel(intel) => intel.model().name(),
            Driver::Virtio(_) => Kind::Virtio.name(),
        }
    }

    /// Returns how the process accesses the card: [`AccessMethod::Sysfs`] or
    /// [`AccessMethod::Vfio`].
    #[must_use]
    pub fn access_method(&self) -> AccessMethod {
        self.holding.access_method()
    }

    /// Returns the MAC address of the card.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        match &self.driver {
            Driver::Intel(intel) => intel.mac(),
            Driver::Virtio(net) => net.mac(),
        }
    }

    /// Returns the number of queues of the card, each a pair of a receive ring and a send ring.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// Returns the length of the longest frame that can be sent, in bytes without FCS.
    #[must_use]
    pub fn frame_bytes_max(&self) -> usize {
        match &self.driver {
            Driver::Intel(intel) => intel.frame_bytes_max(),
            Driver::Virtio(net) => net.frame_bytes_max(),
        }
    }

    /// Returns the state of the card's link. It asks the device, so do not call it for each burst.
    #[must_use]
    pub fn link(&self) -> Link {
        match &self.driver {
            Driver::Intel(intel) => intel.link(),
            Driver::Virtio(net) => net.link(),
        }
    }

    /// Returns the error counters since the card was opened. It asks the device, so do not call it
    /// for each burst.
    pub fn counts(&mut self) -> Counts {
        if let Driver::Intel(intel) = &self.driver {
            intel.count(&mut self.counts);
        }
        self.counts
    }

    /// Whether the device has failed, so that the caller must call [`Nic::reset`] before it uses
    /// the card further.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        match &self.driver {
            Driver::Intel(intel) => !intel.is_running(),
            Driver::Virtio(net) => net.is_broken(),
        }
    }

    /// Resets and restarts the device. Returns how many frames it had not sent.
    ///
    /// # Errors
    /// The device does not complete the reset.
    pub fn reset(&mut self) -> Result<usize, NicError> {
        match &mut self.driver {
            Driver::Intel(intel) => intel.reset(),
            Driver::Virtio(net) => net.reset(),
        }
    }

    /// Passes at most `max` frames that a queue has received to `take`, until `take` returns false.
    /// Does not wait for frames.
    ///
    /// # Panics
    /// There is no such queue.
    #[inline]
    pub fn receive(&mut self, queue: usize, max: usize, take: impl FnMut(Received<'_>) -> bool) {
        match &mut self.driver {
            Driver::Intel(intel) => intel.receive(queue, max, &mut self.counts, take),
            Driver::Virtio(net) => net.receive(max, &mut self.counts, take),
        }
    }

    /// Returns the number of frames that a queue accepts now.
    ///
    /// # Panics
    /// There is no such queue.
    #[inline]
    pub fn room(&mut self, queue: usize) -> usize {
        match &mut self.driver {
            Driver::Intel(intel) => intel.room(queue),
            Driver::Virtio(net) => net.room(&mut self.counts),
        }
    }

    /// Puts a frame into a queue. [`Nic::room`] must have found room, and the frame must not be
    /// longer than [`Nic::frame_bytes_max`].
    ///
    /// # Panics
    /// There is no such queue, or the frame is too long.
    #[inline]
    pub fn put(&mut self, queue: usize, frame: &[u8]) {
        assert!(frame.len() <= self.frame_bytes_max(), "a frame too long");
        match &mut self.driver {
            Driver::Intel(intel) => intel.put(queue, frame),
            Driver::Virtio(net) => net.put(frame),
        }
    }

    /// Makes the frames that were put visible to the device.
    ///
    /// # Panics
    /// There is no such queue.
    #[inline]
    pub fn flush(&mut self, queue: usize) {
        match &mut self.driver {
            Driver::Intel(intel) => intel.flush(queue),
            Driver::Virtio(net) => net.flush(),
        }
    }

    /// Returns the number of frames in the queue that the device had not sent when the driver last
    /// checked.
    #[must_use]
    pub fn in_flight(&self, queue: usize) -> usize {
        match &self.driver {
            Driver::Intel(intel) => intel.in_flight(queue),
            Driver::Virtio(net) => net.in_flight(),
        }
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        match &mut self.driver {
            Driver::Intel(intel) => intel.stop(),
            Driver::Virtio(net) => net.stop(),
        }
        // VFIO releases the device when its descriptors are closed, which must happen before
        // `holding` gives the device back. A virtio driver has these descriptors itself.
        self.vfio = None;
    }
}

fn kind_at(address: &str) -> Result<(Kind, PciDevice), NicError> {
    let device = pci::find_device(address).ok_or_else(|| BindError::NoDevice {
        address: address.to_owned(),
    })?;
    let kind = Kind::of(&device).ok_or_else(|| NicError::Unknown {
        address: address.to_owned(),
        vendor: device.vendor,
        device: device.device,
    })?;
    Ok((kind, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_out_of_range_are_refused_with_what_is_right() {
        let kind = Kind::Intel(Model::E1000e);
        let refusal = |config: NicConfig| config.settings(kind).unwrap_err().to_string();
        let usual = NicConfig::default();
        assert_eq!(
            refusal(NicConfig { mtu: 67, ..usual }),
            "mtu = 67: must be 68 to 9000"
        );
        assert_eq!(
            refusal(NicConfig { ring: 500, ..usual }),
            "ring = 500: must be a power of two from 64 to 4096"
        );
        assert_eq!(
            refusal(NicConfig { queues: 3, ..usual }),
            "queues = 3: must be 1 to 2 for e1000e"
        );
        let settings = usual.settings(kind).unwrap();
        assert_eq!((settings.frame_bytes, settings.buffer_bytes), (1518, 2048));
        let long = NicConfig { mtu: 9000, ..usual };
        assert_eq!(long.settings(kind).unwrap().buffer_bytes, 16_384);
    }
}
