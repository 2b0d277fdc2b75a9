//! Requests of the front end, one method each.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, MutexGuard, PoisonError};

use carina_sys::{EventFd, Mapping, Memory, PAGE_BYTES};
use carina_vring::{DirtyLog, GuestMemory, Region, SplitInflight};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};

use crate::device::Addresses;
use crate::features::{LOG_ALL, PROTOCOL_FEATURES, net};
use crate::inflight::Inflight;
use crate::shared::{Offer, Shared};

/// Answers the requests of one connection.
pub(crate) struct Handler {
    pub(crate) offer: Offer,
    pub(crate) shared: Arc<Shared>,
}

impl Handler {
    fn device(&self) -> MutexGuard<'_, crate::device::Device> {
        // If a thread panicked while it held the lock, the device is reset before it is used.
        let lock = self.shared.device.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    fn index(&self, index: u32) -> Result<usize> {
        let index = index as usize;
        (index < self.offer.rings).then_some(index).ok_or_else(|| {
            wrong(format!(
                "ring {index} does not exist; the device has {} rings",
                self.offer.rings
            ))
        })
    }

    /// Wakes the data path, so that it looks at every ring.
    fn changed(&self) {
        self.shared.changed.signal();
    }
}

/// The error for a request with an invalid value.
pub(crate) fn wrong(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ReqHandlerError(io::Error::other(reason))
}

/// Accepts only an eventfd: writing to another kind of descriptor could block the thread.
fn eventfd(file: File) -> Result<OwnedFd> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let name = std::fs::read_link(link).map_err(wrong)?;
    if !name.to_string_lossy().contains("[eventfd]") {
        return Err(wrong(format!(
            "the front end sent {} in place of an eventfd",
            name.display()
        )));
    }
    Ok(file.into())
}

fn region(of: &VhostUserMemoryRegion, file: &File) -> Result<Region> {
    let (offset, len) = (of.mmap_offset, of.memory_size);
    let (mapping, at) = Mapping::of_peer(file.as_fd(), offset, len).map_err(|error| {
        let guest = of.guest_phys_addr;
        wrong(format!("region of {len} bytes at {guest:#x}: {error}"))
    })?;
    Region::new(Arc::new(mapping), at, of.guest_phys_addr, of.user_addr, len).map_err(wrong)
}

fn is_same(region: &Region, of: &VhostUserMemoryRegion) -> bool {
    (region.guest(), region.user(), region.len())
        == (of.guest_phys_addr, of.user_addr, of.memory_size)
}

impl VhostUserBackendReqHandlerMut for Handler {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.device().stop_all();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.offer.features | PROTOCOL_FEATURES | LOG_ALL)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !self.get_features()?;
        if unknown != 0 {
            return Err(wrong(format!("features {unknown:#x} were not offered")));
        }
        self.device().set_features(features);
        self.changed();
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<vhost::VhostUserMemoryRegionBase>>> {
        let regions = regions.iter().zip(&files);
        let regions: Result<Vec<Region>> = regions.map(|(of, file)| region(of, file)).collect();
        let memory = GuestMemory::new(regions?).map_err(wrong)?;
        self.device().set_memory(memory).map_err(wrong)?;
        self.changed();
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let index = self.index(index)?;
        let size = u16::try_from(num).map_err(|_| wrong(format!("ring of {num} descriptors")))?;
        self.device().set_size(index, size);
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let index = self.index(index)?;
        let addresses = Addresses {
            descriptors: descriptor,
            driver: available,
            device: used,
            is_logged: flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG),
        };
        self.device()
            .set_addresses(index, addresses)
            .map_err(wrong)?;
        self.changed();
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let index = self.index(index)?;
        self.device().set_base(index, base);
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let at = self.index(index)?;
        let base = self.device().stop(at);
        Ok(VhostUserVringState::new(index, base))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let index = self.index(u32::from(index))?;
        match fd {
            Some(file) => {
                let kick = eventfd(file)?;
                self.device().start_by(index, kick).map_err(wrong)?;
            }
            // The driver does not kick (`VHOST_USER_VRING_NOFD_MASK`).
            None => self.device().start_polled(index).map_err(wrong)?,
        }
        self.changed();
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let index = self.index(u32::from(index))?;
        let call = match fd {
            Some(file) => Some(EventFd::from_fd(eventfd(file)?).map_err(wrong)?),
            None => None,
        };
        self.device().set_call(index, call);
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _fd: Option<File>) -> Result<()> {
        // The descriptor is not used: the end of the connection reports a fault.
        self.index(u32::from(index)).map(|_| ())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        let mtu = match self.offer.features & net::MTU {
            0 => VhostUserProtocolFeatures::empty(),
            _ => VhostUserProtocolFeatures::MTU,
        };
        let config = match self.offer.config {
            None => VhostUserProtocolFeatures::empty(),
            Some(_) => VhostUserProtocolFeatures::CONFIG,
        };
        Ok(mtu
            | config
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::RARP
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        // The answer counts pairs of rings, as for a network device.
        Ok(self.offer.rings as u64 / 2)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let index = self.index(index)?;
        self.device().enable(index, enable);
        self.changed();
        Ok(())
    }

    fn get_config(&mut self, at: u32, len: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let Some(config) = self.offer.config else {
            return Err(Error::InvalidOperation("no configuration space"));
        };
        // The front end may ask for more than the device has; the rest is zeros.
        let end = at.checked_add(len).filter(|end| *end <= CONFIG_BYTES_MAX);
        let end = end.ok_or_else(|| wrong(format!("{len} bytes of configuration at {at}")))?;
        let bytes = (at..end).map(|at| config.get(at as usize).copied().unwrap_or_default());
        Ok(bytes.collect())
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("no configuration space"))
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("not a GPU"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("no shared objects"))
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (rings, size) = (wanted.num_queues, wanted.queue_size);
        if usize::from(rings) > self.offer.rings || rings == 0 || size == 0 {
            return Err(wrong(format!(
                "in-flight region for {rings} rings of {size}"
            )));
        }
        let bytes = usize::from(rings) * SplitInflight::bytes(size);
        let whole = bytes.next_multiple_of(PAGE_BYTES);
        let memory = Memory::anonymous("carina-in-flight", whole).map_err(wrong)?;
        let mapping = Arc::new(memory.map().map_err(wrong)?);
        self.device().set_inflight(Inflight {
            mapping,
            offset: 0,
            rings: usize::from(rings),
            size,
        });
        let given = VhostUserInflight::new(whole as u64, 0, rings, size);
        Ok((given, File::from(memory.into_fd())))
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        let (mapping, offset) =
            Mapping::of_peer(file.as_fd(), given.mmap_offset, given.mmap_size).map_err(wrong)?;
        self.device().set_inflight(Inflight {
            mapping: Arc::new(mapping),
            offset,
            rings: usize::from(given.num_queues),
            size: given.queue_size,
        });
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(carina_vring::REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        of: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<vhost::VhostUserMemoryRegionBase>> {
        let region = region(of, &file)?;
        let mut device = self.device();
        let mut regions = device.regions().to_vec();
        // QEMU 7.2 adds each region once for each pair of rings.
        regions.retain(|old| !is_same(old, of));
        regions.push(region);
        let memory = GuestMemory::new(regions).map_err(wrong)?;
        device.set_memory(memory).map_err(wrong)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, of: &VhostUserSingleMemoryRegion) -> Result<()> {
        let mut device = self.device();
        let mut regions = device.regions().to_vec();
        // It also removes each region that often.
        regions.retain(|region| !is_same(region, of));
        let memory = GuestMemory::new(regions).map_err(wrong)?;
        device.set_memory(memory).map_err(wrong)
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("no device state"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("no device state"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("no shared memory of the device"))
    }

    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        let (mapping, at) =
            Mapping::of_peer(file.as_fd(), log.mmap_offset, log.mmap_size).map_err(wrong)?;
        let log = usize::try_from(log.mmap_size)
            .ok()
            .and_then(|bytes| DirtyLog::new(Arc::new(mapping), at, bytes));
        let log = log.ok_or_else(|| wrong("the log of dirty pages is outside its file"))?;
        self.device().set_log(log);
        Ok(())
    }
}

/// Largest size of a configuration space in bytes. (vhost-user, "Virtio device config space")
const CONFIG_BYTES_MAX: u32 = 256;
