//! The device as its front end has configured it: features, memory, rings.

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use carina_sys::EventFd;
use carina_vring::{
    AddressSpace, DeviceRing, DirtyLog, Fault, GuestMemory, PackedDevice, Region, RingConfig,
    SetupError, SplitDevice,
};

use crate::features::{
    EVENT_IDX, IN_ORDER, INDIRECT_DESC, LOG_ALL, PROTOCOL_FEATURES, RING_PACKED, net,
};
use crate::inflight::Inflight;
use crate::kicks::Kicks;
use crate::progress::Progress;

/// The state of a vhost-user device, which the control thread changes and the data path uses, under
/// one lock.
#[derive(Debug)]
pub struct Device {
    pub(crate) features: u64,
    pub(crate) rings: Vec<Ring>,
    memory: GuestMemory,
    log: Option<DirtyLog>,
    inflight: Option<Inflight>,
    /// The MAC address of a migrated guest that is still to be announced.
    announcement: Option<[u8; 6]>,
    connection: Option<UnixStream>,
    fault: Option<Fault>,
    progress: Arc<Progress>,
    kicks: Arc<Kicks>,
    /// The MTU in bytes that the front end shows to the driver.
    mtu: Option<u16>,
}

/// A ring as messages have configured it. It runs once nothing is missing.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    size: Option<u16>,
    addresses: Option<Addresses>,
    base: u32,
    /// The base that the front end last set.
    given_base: u32,
    kick: Option<EventFd>,
    /// Whether the driver does not kick, so that the data path must poll the ring.
    is_polled: bool,
    call: Option<EventFd>,
    is_enabled: bool,
    half: Option<Half>,
}

/// Addresses of the parts of a ring, in the address space of the front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) descriptors: u64,
    pub(crate) driver: u64,
    pub(crate) device: u64,
    /// Whether writes to the ring itself are marked in the dirty log.
    pub(crate) is_logged: bool,
}

/// The device half of a running ring, of either layout.
#[derive(Debug)]
pub enum Half {
    /// The half of a split ring.
    Split(SplitDevice),
    /// The half of a packed ring.
    Packed(PackedDevice),
}

impl Half {
    /// Returns the half as a trait object, for calls whose speed does not matter.
    pub fn any(&mut self) -> &mut dyn DeviceRing {
        match self {
            Half::Split(half) => half,
            Half::Packed(half) => half,
        }
    }
}

/// A ring that is running and enabled, for use by the data path.
#[derive(Debug)]
pub struct RunningRing<'a> {
    /// The device half of the ring.
    pub half: &'a mut Half,
    call: Option<&'a EventFd>,
}

impl RunningRing<'_> {
    /// Signals the driver about the chains that were published, if the driver requested it. Returns
    /// whether it signalled. This is the only system call of a burst.
    #[inline]
    pub fn signal(&mut self) -> bool {
        let is_wanted = match &mut self.half {
            Half::Split(half) => half.wants_signal(),
            Half::Packed(half) => half.wants_signal(),
        };
        match self.call {
            Some(call) if is_wanted => {
                call.signal();
                true
            }
            _ => false,
        }
    }
}

impl Device {
    pub(crate) fn new(rings: usize, progress: Arc<Progress>, kicks: Arc<Kicks>) -> Device {
        Device {
            features: 0,
            rings: (0..rings).map(|_| Ring::default()).collect(),
            memory: GuestMemory::new(Vec::new()).expect("a table without regions"),
            log: None,
            inflight: None,
            announcement: None,
            connection: None,
            fault: None,
            progress,
            kicks,
            mtu: None,
        }
    }

    /// Returns the feature bits that the driver has accepted.
    #[must_use]
    #[inline]
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Returns the longest frame for the driver, in bytes behind its MAC header. `None` unless the
    /// front end has set an MTU and the driver has accepted the MTU feature. (VIRTIO 1.2 §5.1.4.1)
    #[must_use]
    #[inline]
    pub fn mtu(&self) -> Option<u16> {
        self.mtu.filter(|_| self.features & net::MTU != 0)
    }

    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = Some(mtu);
    }

    /// Returns the largest number of rings that the device can have.
    #[must_use]
    pub fn rings(&self) -> usize {
        self.rings.len()
    }

    /// Whether a front end, such as a QEMU, is connected to the device.
    #[must_use]
    #[inline]
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Returns ring number `index`; `None` unless it is running and enabled. If memory of the front
    /// end is lost, this call disconnects the front end, so that the contents are not used.
    #[inline]
    pub fn ring(&mut self, index: usize) -> Option<RunningRing<'_>> {
        if self.is_memory_lost() {
            self.cut_off(Fault::MemoryLost);
            return None;
        }
        let ring = self.rings.get_mut(index)?;
        if !ring.is_enabled {
            return None;
        }
        Some(RunningRing {
            half: ring.half.as_mut()?,
            call: ring.call.as_ref(),
        })
    }

    /// The MAC address of a guest that has migrated to this host and does not announce itself;
    /// returned once, otherwise `None`. The caller sends a frame from this address, by which
    /// switches learn where the guest is.
    #[must_use]
    #[inline]
    pub fn take_announcement(&mut self) -> Option<[u8; 6]> {
        self.announcement.take()
    }

    pub(crate) fn announce(&mut self, mac: [u8; 6]) {
        self.announcement = Some(mac);
    }

    /// Whether a page that the front end shares is lost: a page of the guest's memory, of the dirty
    /// log, or of the in-flight region. It stays true until the next access to a ring disconnects
    /// the front end.
    #[must_use]
    #[inline]
    pub fn is_memory_lost(&self) -> bool {
        carina_sys::lost_pages() > 0 && self.has_lost_page()
    }

    #[cold]
    fn has_lost_page(&self) -> bool {
        self.fault.is_none()
            && (self.memory.is_lost()
                || self.log.as_ref().is_some_and(DirtyLog::is_lost)
                || self
                    .inflight
                    .as_ref()
                    .is_some_and(|inflight| inflight.mapping.is_lost()))
    }

    /// Disconnects the front end, because its driver broke the rules.
    #[cold]
    pub fn cut_off(&mut self, fault: Fault) {
        // A lost page reads as zeros, which may look like a fault of the driver.
        let fault = if self.is_memory_lost() {
            Fault::MemoryLost
        } else {
            fault
        };
        self.fault = Some(fault);
        for ring in &mut self.rings {
            ring.half = None;
        }
        // The control thread notices the end of the connection and resets the rest.
        if let Some(connection) = &self.connection {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn connection(&self) -> Option<&UnixStream> {
        self.connection.as_ref()
    }

    /// The fault for which the front end was disconnected; returned once.
    pub(crate) fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// Records that a front end has connected.
    pub(crate) fn connected(&mut self, connection: UnixStream) {
        self.reset();
        self.connection = Some(connection);
    }

    /// Resets everything that the front end has configured.
    pub(crate) fn reset(&mut self) {
        for index in 0..self.rings.len() {
            self.set_kick(index, None);
            self.rings[index] = Ring::default();
        }
        let (progress, kicks) = (Arc::clone(&self.progress), Arc::clone(&self.kicks));
        *self = Device {
            fault: self.fault,
            ..Device::new(self.rings.len(), progress, kicks)
        };
    }

    pub(crate) fn set_features(&mut self, features: u64) {
        let was_packed = self.features & RING_PACKED != 0;
        self.features = features;
        if features & PROTOCOL_FEATURES == 0 {
            self.rings
                .iter_mut()
                .for_each(|ring| ring.is_enabled = true);
        }
        if was_packed != (features & RING_PACKED != 0) {
            self.rings.iter_mut().for_each(|ring| ring.half = None);
        }
        self.set_logs();
    }

    pub(crate) fn regions(&self) -> &[Region] {
        self.memory.regions()
    }

    /// Whether the front end has shared memory of a guest.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        !self.regions().is_empty()
    }

    /// Sets the table of the guest's memory. Running rings restart with it at their position.
    pub(crate) fn set_memory(&mut self, memory: GuestMemory) -> Result<(), SetupError> {
        self.memory = memory;
        for index in 0..self.rings.len() {
            if self.halt(index) {
                self.start(index)?;
                self.signal_once(index);
            }
        }
        Ok(())
    }

    /// Stops a running ring for a restart at its position. Returns whether the ring was running.
    /// The data path may have completed chains that it has not published yet: the restarted ring
    /// would take them a second time.
    fn halt(&mut self, index: usize) -> bool {
        let ring = &mut self.rings[index];
        let Some(mut half) = ring.half.take() else {
            return false;
        };
        let half = half.any();
        half.put_back();
        half.publish();
        ring.base = half.position();
        true
    }

    /// Signals the driver of a running ring once: signals for what the ring published before its
    /// restart, or on an earlier eventfd, may be lost.
    fn signal_once(&mut self, index: usize) {
        if let Some(ring) = self.ring(index)
            && let Some(call) = ring.call
        {
            call.signal();
        }
    }

    pub(crate) fn set_size(&mut self, index: usize, size: u16) {
        self.rings[index].size = Some(size);
    }

    pub(crate) fn set_base(&mut self, index: usize, base: u32) {
        let ring = &mut self.rings[index];
        (ring.base, ring.given_base) = (base, base);
    }

    /// Sets the addresses of a ring. If they differ from the previous ones by more than the logging
    /// flag, a running ring is restarted.
    pub(crate) fn set_addresses(
        &mut self,
        index: usize,
        addresses: Addresses,
    ) -> Result<(), SetupError> {
        let ring = &mut self.rings[index];
        let moved = ring.addresses.is_some_and(|old| {
            Addresses {
                is_logged: addresses.is_logged,
                ..old
            } != addresses
        });
        ring.addresses = Some(addresses);
        let restarts = moved && self.halt(index);
        self.start(index)?;
        if restarts {
            self.signal_once(index);
        }
        self.set_logs();
        Ok(())
    }

    pub(crate) fn set_kick(&mut self, index: usize, kick: Option<EventFd>) {
        let ring = &mut self.rings[index];
        if let Some(old) = ring.kick.take() {
            self.kicks.remove(old.into_fd());
        }
        ring.kick = kick;
        if std::mem::take(&mut ring.is_polled) {
            self.poll_rings();
        }
    }

    fn poll_rings(&self) {
        let polled = self.rings.iter().filter(|ring| ring.is_polled);
        self.kicks.poll_rings(polled.count());
    }

    /// Sets the eventfd by which the driver kicks, and starts the ring.
    pub(crate) fn start_by(&mut self, index: usize, kick: OwnedFd) -> Result<(), StartError> {
        let token = index as u64 + 1;
        self.set_kick(index, None);
        self.kicks.add(&kick, token)?;
        self.set_kick(index, Some(EventFd::from_fd(kick)?));
        self.start(index)?;
        Ok(())
    }

    /// Starts a ring whose driver does not kick.
    pub(crate) fn start_polled(&mut self, index: usize) -> Result<(), SetupError> {
        self.set_kick(index, None);
        self.rings[index].is_polled = true;
        self.poll_rings();
        self.start(index)
    }

    /// Sets the eventfd for signals to the driver. `None` means that the driver polls; the previous
    /// eventfd is then kept. QEMU 7.2 also sends this while it has masked the driver's pin, because
    /// the driver takes an interrupt of the same device, and never reverts it. QEMU keeps reading
    /// the previous eventfd, and a driver that really polls requests no signals in its ring.
    pub(crate) fn set_call(&mut self, index: usize, call: Option<EventFd>) {
        let Some(call) = call else { return };
        self.rings[index].call = Some(call);
        self.signal_once(index);
    }

    pub(crate) fn enable(&mut self, index: usize, is_enabled: bool) {
        self.rings[index].is_enabled = is_enabled;
    }

    pub(crate) fn set_log(&mut self, log: DirtyLog) {
        self.log = Some(log);
        self.set_logs();
    }

    pub(crate) fn set_inflight(&mut self, inflight: Inflight) {
        self.inflight = Some(inflight);
    }

    /// Stops a ring. Returns the position at which it is to continue.
    pub(crate) fn stop(&mut self, index: usize) -> u32 {
        self.halt(index);
        let ring = &mut self.rings[index];
        ring.call = None;
        ring.addresses = None;
        self.progress.forget(index);
        self.set_kick(index, None);
        self.rings[index].base
    }

    pub(crate) fn stop_all(&mut self) {
        for index in 0..self.rings.len() {
            self.stop(index);
            self.rings[index].is_enabled = false;
        }
    }

    /// Starts a ring if nothing is missing.
    fn start(&mut self, index: usize) -> Result<(), SetupError> {
        let (features, ring) = (self.features, &mut self.rings[index]);
        let is_started = ring.kick.is_some() || ring.is_polled;
        let (Some(size), Some(at), true) = (ring.size, ring.addresses, is_started) else {
            return Ok(());
        };
        if ring.half.is_some() {
            return Ok(());
        }
        let mut config = RingConfig {
            size,
            descriptors: at.descriptors,
            driver: at.driver,
            device: at.device,
            space: AddressSpace::User,
            has_event_index: features & EVENT_IDX != 0,
            has_indirect: features & INDIRECT_DESC != 0,
            is_in_order: features & IN_ORDER != 0,
            position: ring.base,
        };
        let mut half = if features & RING_PACKED != 0 {
            let mut half = PackedDevice::new(&self.memory, &config)?;
            if let Some(progress) = self.progress.of_ring(index) {
                half.set_progress(progress, &config, ring.given_base);
            }
            Half::Packed(half)
        } else {
            let mut half = SplitDevice::new(&self.memory, &config)?;
            // A device that died may have used more chains, or published fewer, than its front end
            // knows.
            let used = u32::from(half.used_index());
            if used != config.position {
                config.position = used;
                half = SplitDevice::new(&self.memory, &config)?;
            }
            half.set_inflight(match &self.inflight {
                Some(inflight) => inflight.of_ring(index, size, used as u16),
                None => None,
            });
            Half::Split(half)
        };
        // The data path requests kicks only before it sleeps.
        half.any().disarm();
        ring.half = Some(half);
        self.set_logs();
        Ok(())
    }

    fn set_logs(&mut self) {
        let log = self.log.as_ref().filter(|_| self.features & LOG_ALL != 0);
        for ring in &mut self.rings {
            if let Some(half) = &mut ring.half {
                let with_ring = ring.addresses.is_some_and(|at| at.is_logged);
                half.any().set_dirty_log(log.cloned(), with_ring);
            }
        }
    }
}

/// Why a ring does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("its eventfd: {0}")]
    EventFd(#[from] std::io::Error),
}
