//! Handling of the front end's messages. Only this module uses the crate `vhost`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carina_sys::{EventFd, Mapping, Memory, PAGE_BYTES};
use carina_vring::{DirtyLog, GuestMemory, Region, SplitInflight};
use rustix::net::{RecvFlags, recv};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig,
    VhostUserSharedMsg, VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    BackendReqHandler, Error, GpuBackend, Result, VhostUserBackendReqHandlerMut,
};

use crate::device::Addresses;
use crate::features::{LOG_ALL, PROTOCOL_FEATURES, net};
use crate::inflight::Inflight;
use crate::shared::{Offer, Shared};

/// One connection of a front end.
pub(crate) struct Connection {
    handler: BackendReqHandler<Mutex<Handler>>,
    socket: UnixStream,
    shared: Arc<Shared>,
}

/// The outcome of handling a message.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The message was handled.
    Handled,
    /// The front end has closed the connection.
    Closed,
    /// The message was invalid, or the connection failed.
    Refused(Error),
}

impl Connection {
    pub(crate) fn new(socket: UnixStream, shared: Arc<Shared>) -> io::Result<Connection> {
        let handler = Handler {
            offer: shared.offer,
            shared: Arc::clone(&shared),
        };
        Ok(Connection {
            shared,
            socket: socket.try_clone()?,
            handler: BackendReqHandler::from_stream(socket, Arc::new(Mutex::new(handler))),
        })
    }

    /// Reads a message and answers it. If a message has arrived in part, waits for the rest.
    pub(crate) fn handle(&mut self) -> Outcome {
        let front = self.front();
        if let Some(front) = front
            && (front[0], front[1] & VERSION_AND_REPLY, front[2]) == (SEND_RARP, 1, 8)
        {
            return match self.announce(front[1]) {
                Ok(()) => Outcome::Handled,
                Err(error) => Outcome::Refused(error),
            };
        }
        if let Some(front) = front
            && (front[0], front[1] & VERSION_AND_REPLY, front[2]) == (NET_SET_MTU, 1, 8)
        {
            return match self.set_mtu(&front) {
                Ok(()) => Outcome::Handled,
                Err(error) => Outcome::Refused(error),
            };
        }
        let early = front.filter(|front| front[0] == SET_VRING_ENABLE);
        match self.handler.handle_request() {
            Ok(()) | Err(Error::SocketRetry(_)) => Outcome::Handled,
            Err(Error::Disconnected | Error::SocketBroken(_)) => Outcome::Closed,
            Err(Error::InactiveFeature(_)) if early.is_some() => {
                match early.map(|early| self.enable(&early)) {
                    Some(Err(error)) => Outcome::Refused(error),
                    _ => Outcome::Handled,
                }
            }
            Err(error) => Outcome::Refused(error),
        }
    }

    /// The header of the message that waits, and the first 8 bytes of its body. It serves for
    /// messages that the crate `vhost` refuses: `SET_VRING_ENABLE`, which QEMU also sends before
    /// `SET_FEATURES`, `SEND_RARP` and `NET_SET_MTU`.
    fn front(&self) -> Option<[u32; 5]> {
        let mut front = [0; FRONT_BYTES];
        let (len, _) = recv(&self.socket, &mut front[..], RecvFlags::PEEK).ok()?;
        let (words, _) = front.as_chunks::<4>();
        let mut message = [0; 5];
        for (to, word) in message.iter_mut().zip(words) {
            *to = u32::from_ne_bytes(*word);
        }
        (len == front.len()).then_some(message)
    }

    /// Handles a `SET_VRING_ENABLE` that the crate refused: enables or disables a ring.
    fn enable(&mut self, &[request, flags, _, index, num]: &[u32; 5]) -> Result<()> {
        if index as usize >= self.shared.offer.rings || num > 1 {
            return Err(Error::InvalidParam);
        }
        self.device().enable(index as usize, num == 1);
        self.acknowledge(request, flags, 0)
    }

    /// Handles `NET_SET_MTU`: sets the MTU that the driver sees. For an MTU that this device does
    /// not support, the answer is an error and the previous MTU stays. If the front end requested
    /// no answer, the connection is closed instead.
    fn set_mtu(&mut self, &[request, flags, _, low, high]: &[u32; 5]) -> Result<()> {
        let mut message = [0; FRONT_BYTES];
        let read = self.socket.read_exact(&mut message);
        read.map_err(Error::SocketBroken)?;
        let Offer {
            features, mtu_max, ..
        } = self.shared.offer;
        if features & net::MTU == 0 {
            return Err(Error::InvalidOperation("an MTU, which was not offered"));
        }
        let mtu = u64::from(low) | u64::from(high) << 32;
        // The minimum of IPv4. (RFC 791 §3.2)
        if (68..=u64::from(mtu_max)).contains(&mtu) {
            self.device().set_mtu(mtu as u16);
            self.shared.changed.signal();
            return self.acknowledge(request, flags, 0);
        }
        if flags & NEED_REPLY == 0 {
            return Err(wrong(format!("MTU {mtu}: must be 68 to {mtu_max}")));
        }
        self.acknowledge(request, flags, 1)
    }

    /// Handles `SEND_RARP`: a migrated guest is to be announced, because its driver does not do so.
    /// The body begins with the bytes of the guest's MAC address, independent of the byte order.
    fn announce(&mut self, flags: u32) -> Result<()> {
        let mut message = [0; FRONT_BYTES];
        let read = self.socket.read_exact(&mut message);
        read.map_err(Error::SocketBroken)?;
        let mut mac = [0; 6];
        mac.copy_from_slice(&message[12..18]);
        // A group address cannot be the address of a station. (IEEE 802-2014 §8.2.2)
        if mac[0] & 1 != 0 {
            return Err(Error::InvalidParam);
        }
        self.device().announce(mac);
        self.shared.changed.signal();
        self.acknowledge(SEND_RARP, flags, 0)
    }

    fn device(&self) -> MutexGuard<'_, crate::device::Device> {
        let lock = self.shared.device.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers whether a message succeeded, if its flags request that. A `status` of 0 means
    /// success.
    fn acknowledge(&mut self, request: u32, flags: u32, status: u32) -> Result<()> {
        if flags & NEED_REPLY == 0 {
            return Ok(());
        }
        // Flags: version 1, and reply; a body of 8 bytes follows.
        let reply = [request, 5, 8, status, 0].map(u32::to_ne_bytes);
        let written = self.socket.write_all(reply.as_flattened());
        written.map_err(Error::SocketBroken)
    }
}

/// Numbers of messages. (vhost-user, "Front-end message types")
const SET_VRING_ENABLE: u32 = 18;
const SEND_RARP: u32 = 19;
const NET_SET_MTU: u32 = 20;

/// Length of a message's header and a body of 8 bytes.
const FRONT_BYTES: usize = 20;

/// Flag bits of a message: the version, which is 1, and the reply bit.
const VERSION_AND_REPLY: u32 = 7;

/// Flag of a message that requests an acknowledgement.
const NEED_REPLY: u32 = 1 << 3;

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

struct Handler {
    offer: Offer,
    shared: Arc<Shared>,
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

fn wrong(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
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
        Ok(mtu
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

    fn get_config(&mut self, _: u32, _: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Err(Error::InvalidOperation("no configuration space"))
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
