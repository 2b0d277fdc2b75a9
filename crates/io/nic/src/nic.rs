//! A network card that this process drives.

use crate::binding::{BindError, Holding, Way};
use crate::dma::DmaMemory;
use crate::driver::{Counts, Link, Received, Settings};
use crate::error::NicError;
use crate::intel::{self, Intel, Model};
use crate::pci::{self, PciDevice, device_directory};
use crate::registers::{Access, Bar};
use crate::vfio::{self, Line, VfioDevice};
use crate::virtio::{self, VirtioPci, net::VirtioNet};

/// What a card is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicConfig {
    /// Longest IP packet in bytes, 68 to [`MTU_MAX`].
    pub mtu: usize,
    /// Descriptors of each ring: 64 to 4096, a power of two.
    pub ring: u16,
    /// Pairs of rings, from 1 to what the device has.
    pub queues: usize,
    /// Frames for other stations are received too.
    pub is_promiscuous: bool,
    /// How the device is reached.
    pub way: Way,
    /// A card over which routes of this system go is taken all the same.
    pub is_forced: bool,
}

impl Default for NicConfig {
    /// An MTU of 1500, rings of 512, one pair of them, all frames.
    fn default() -> NicConfig {
        NicConfig {
            mtu: 1500,
            ring: 512,
            queues: 1,
            is_promiscuous: true,
            way: Way::Auto,
            is_forced: false,
        }
    }
}

/// The highest MTU in bytes.
pub const MTU_MAX: usize = 9000;

/// A MAC header and a tag.
const HEADER_BYTES: usize = 18;

/// A network card that this process drives, from when it is opened until it is dropped: then it is
/// given back to the driver of the kernel that had it.
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
    // Given back after the driver has stopped the device.
    holding: Holding,
    vfio: Option<VfioDevice>,
}

#[derive(Debug)]
enum Driver {
    Intel(Box<Intel<Bar>>),
    Virtio(Box<VirtioNet>),
}

/// Which driver a device wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Intel(Model),
    Virtio,
}

impl Kind {
    fn of(device: &PciDevice) -> Option<Kind> {
        match (device.vendor, device.device) {
            (0x8086, number) => Model::of(number).map(Kind::Intel),
            // Modern; transitional, which has the modern registers as well. (VIRTIO 1.2 §4.1.2)
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

/// The driver that there is here for a device; `None`: there is no driver.
#[must_use]
pub fn driver_for(device: &PciDevice) -> Option<&'static str> {
    Kind::of(device).map(Kind::name)
}

impl NicConfig {
    /// Checks what no card can have. How many queues there can be differs by card.
    ///
    /// # Errors
    /// The first value that is out of its range.
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
        let most = kind.queues_max();
        if self.queues > most {
            return Err(NicError::Config {
                name: "queues",
                value: self.queues,
                right: format!("1 to {most} for {}", kind.name()),
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
    /// Takes a card from the kernel's driver and starts it. Needs root.
    ///
    /// # Errors
    /// There is no driver for it, another process has it, or the system refuses what it needs; the
    /// kernel's driver then has it again.
    pub fn open(address: &str, config: &NicConfig) -> Result<Nic, NicError> {
        let (kind, device) = kind_at(address)?;
        let settings = config.settings(kind)?;
        let way = config.way.of(&device)?;
        let holding = Holding::take(&device, way, config.is_forced)?;
        let file = holding.file().to_owned();
        let vfio = match way {
            Way::Vfio => {
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

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> &str {
        self.holding.address()
    }

    /// The name of the driver here.
    #[must_use]
    pub fn driver(&self) -> &'static str {
        match &self.driver {
            Driver::Intel(intel) => intel.model().name(),
            Driver::Virtio(_) => Kind::Virtio.name(),
        }
    }

    /// How it is reached: [`Way::Sysfs`] or [`Way::Vfio`].
    #[must_use]
    pub fn way(&self) -> Way {
        self.holding.way()
    }

    /// Its own address.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        match &self.driver {
            Driver::Intel(intel) => intel.mac(),
            Driver::Virtio(net) => net.mac(),
        }
    }

    /// Pairs of rings.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// The longest frame that can be sent, in bytes without FCS.
    #[must_use]
    pub fn frame_bytes_max(&self) -> usize {
        match &self.driver {
            Driver::Intel(intel) => intel.frame_bytes_max(),
            Driver::Virtio(net) => net.frame_bytes_max(),
        }
    }

    /// How its link is. Asks the device: not for each burst.
    #[must_use]
    pub fn link(&self) -> Link {
        match &self.driver {
            Driver::Intel(intel) => intel.link(),
            Driver::Virtio(net) => net.link(),
        }
    }

    /// What was counted since it was opened. Asks the device: not for each burst.
    pub fn counts(&mut self) -> Counts {
        if let Driver::Intel(intel) = &self.driver {
            intel.count(&mut self.counts);
        }
        self.counts
    }

    /// Whether the device has to be reset before it goes on.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        match &self.driver {
            Driver::Intel(intel) => !intel.is_running(),
            Driver::Virtio(net) => net.is_broken(),
        }
    }

    /// Resets the device and starts it anew; returns how many frames it had not sent.
    ///
    /// # Errors
    /// It does not come back.
    pub fn reset(&mut self) -> Result<usize, NicError> {
        match &mut self.driver {
            Driver::Intel(intel) => intel.reset(),
            Driver::Virtio(net) => net.reset(),
        }
    }

    /// Hands at most `max` frames of a queue to `take`, until that says that it wants no more.
    ///
    /// # Panics
    /// When there is no such queue.
    #[inline]
    pub fn receive(&mut self, queue: usize, max: usize, take: impl FnMut(Received<'_>) -> bool) {
        match &mut self.driver {
            Driver::Intel(intel) => intel.receive(queue, max, &mut self.counts, take),
            Driver::Virtio(net) => net.receive(max, &mut self.counts, take),
        }
    }

    /// How many frames a queue takes at present.
    ///
    /// # Panics
    /// When there is no such queue.
    #[inline]
    pub fn room(&mut self, queue: usize) -> usize {
        match &mut self.driver {
            Driver::Intel(intel) => intel.room(queue),
            Driver::Virtio(net) => net.room(&mut self.counts),
        }
    }

    /// Puts a frame into a queue for which [`Nic::room`] found room, and which is at most
    /// [`Nic::frame_bytes_max`] long.
    ///
    /// # Panics
    /// When there is no such queue, or the frame is longer.
    #[inline]
    pub fn put(&mut self, queue: usize, frame: &[u8]) {
        assert!(frame.len() <= self.frame_bytes_max(), "a frame too long");
        match &mut self.driver {
            Driver::Intel(intel) => intel.put(queue, frame),
            Driver::Virtio(net) => net.put(frame),
        }
    }

    /// Shows the device what was put.
    ///
    /// # Panics
    /// When there is no such queue.
    #[inline]
    pub fn flush(&mut self, queue: usize) {
        match &mut self.driver {
            Driver::Intel(intel) => intel.flush(queue),
            Driver::Virtio(net) => net.flush(),
        }
    }

    /// Frames that the device had not sent when it was looked at last.
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
        // VFIO gives a device up with its descriptors, which the driver may have.
        self.vfio = None;
    }
}

fn kind_at(address: &str) -> Result<(Kind, PciDevice), NicError> {
    let device = pci::look(address).ok_or_else(|| BindError::NoDevice {
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
