//! The device as its front end has set it up: features, memory, rings.

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

/// What the control thread sets up and the data path works with, under one lock.
#[derive(Debug)]
pub struct Device {
    pub(crate) features: u64,
    pub(crate) rings: Vec<Ring>,
    memory: GuestMemory,
    log: Option<DirtyLog>,
    inflight: Option<Inflight>,
    /// The address of a guest that is to be announced.
    announcement: Option<[u8; 6]>,
    connection: Option<UnixStream>,
    fault: Option<Fault>,
    progress: Arc<Progress>,
    kicks: Arc<Kicks>,
    /// The MTU that the front end shows to the driver.
    mtu: Option<u16>,
}

/// A ring as messages have set it up; it runs when nothing is missing.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    size: Option<u16>,
    addresses: Option<Addresses>,
    base: u32,
    /// The base as the front end gave it last.
    given_base: u32,
    kick: Option<EventFd>,
    /// The driver does not kick, and the ring is looked at by time.
    is_polled: bool,
    call: Option<EventFd>,
    is_enabled: bool,
    half: Option<Half>,
}

/// Where a ring lies, in addresses of the front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) descriptors: u64,
    pub(crate) driver: u64,
    pub(crate) device: u64,
    /// What is written into the ring is logged.
    pub(crate) is_logged: bool,
}

/// The device half of a running ring.
#[derive(Debug)]
pub enum Half {
    /// Of a split ring.
    Split(SplitDevice),
    /// Of a packed ring.
    Packed(PackedDevice),
}

impl Half {
    /// The half, where its layout does not matter for speed.
    pub fn any(&mut self) -> &mut dyn DeviceRing {
        match self {
            Half::Split(half) => half,
            Half::Packed(half) => half,
        }
    }
}

/// A ring that runs and is enabled.
#[derive(Debug)]
pub struct RunningRing<'a> {
    /// The device half.
    pub half: &'a mut Half,
    call: Option<&'a EventFd>,
}

impl RunningRing<'_> {
    /// Signals the driver, if it asked for that, for what was published; returns whether it did.
    /// The only system call of a burst.
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

    /// Features that the driver has accepted.
    #[must_use]
    #[inline]
    pub fn features(&self) -> u64 {
        self.features
    }

    /// The most bytes that a frame for the driver may have behind its MAC header, if the front end
    /// has said it and the driver has accepted that it is said. (VIRTIO 1.2 §5.1.4.1)
    #[must_use]
    #[inline]
    pub fn mtu(&self) -> Option<u16> {
        self.mtu.filter(|_| self.features & net::MTU != 0)
    }

    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = Some(mtu);
    }

    /// Number of rings that there can be.
    #[must_use]
    pub fn rings(&self) -> usize {
        self.rings.len()
    }

    /// True while a front end is connected.
    #[must_use]
    #[inline]
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// A ring, if it runs and is enabled. A front end whose memory is lost is cut off here, before
    /// what is in it is believed.
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

    /// The MAC address of a guest that came here by migration and does not announce itself, once:
    /// a frame from that address is due, by which switches learn where it is.
    #[must_use]
    #[inline]
    pub fn take_announcement(&mut self) -> Option<[u8; 6]> {
        self.announcement.take()
    }

    pub(crate) fn announce(&mut self, mac: [u8; 6]) {
        self.announcement = Some(mac);
    }

    /// Whether a page of what the front end shares could not be had: of the guest's memory, of the
    /// log of dirty pages, or of the region of chains in flight. True until it is cut off, by the
    /// next look at a ring.
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
                    .is_some_and(|it| it.mapping.is_lost()))
    }

    /// Cuts the front end off: its driver has done what no correct one does.
    #[cold]
    pub fn cut_off(&mut self, fault: Fault) {
        // Zeros in the place of a ring look like a driver's fault too.
        let fault = if self.is_memory_lost() {
            Fault::MemoryLost
        } else {
            fault
        };
        self.fault = Some(fault);
        for ring in &mut self.rings {
            ring.half = None;
        }
        // The control thread sees the end of the connection, and forgets the rest.
        if let Some(connection) = &self.connection {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn connection(&self) -> Option<&UnixStream> {
        self.connection.as_ref()
    }

    /// The fault for which the front end was cut off, once.
    pub(crate) fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    /// A front end has connected.
    pub(crate) fn connected(&mut self, connection: UnixStream) {
        self.reset();
        self.connection = Some(connection);
    }

    /// Forgets everything of the front end.
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

    /// Gives running rings another table of memory.
    /// Whether the front end has shared memory of a guest.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        !self.regions().is_empty()
    }

    pub(crate) fn set_memory(&mut self, memory: GuestMemory) -> Result<(), SetupError> {
        self.memory = memory;
        for index in 0..self.rings.len() {
            let ring = &mut self.rings[index];
            if let Some(mut half) = ring.half.take() {
                ring.base = half.any().position();
                self.start(index)?;
            }
        }
        Ok(())
    }

    pub(crate) fn set_size(&mut self, index: usize, size: u16) {
        self.rings[index].size = Some(size);
    }

    pub(crate) fn set_base(&mut self, index: usize, base: u32) {
        let ring = &mut self.rings[index];
        (ring.base, ring.given_base) = (base, base);
    }

    /// Says where a ring lies; of one that runs only whether it is logged can change.
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
        if moved && let Some(mut half) = ring.half.take() {
            ring.base = half.any().position();
        }
        self.start(index)?;
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

    /// Takes an eventfd by which the driver kicks, and starts the ring.
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

    /// Takes an eventfd for signals. Without one the driver polls, but the one that it had before
    /// is kept: QEMU 7.2 also says so of a driver whose pin is masked for the moment, since it
    /// takes an interrupt of the same device, and never takes it back. It goes on reading the
    /// eventfd, and a driver that polls says in its ring that it wants no signal.
    pub(crate) fn set_call(&mut self, index: usize, call: Option<EventFd>) {
        let Some(call) = call else { return };
        self.rings[index].call = Some(call);
        // Signals for the old one may be lost.
        if let Some(ring) = self.ring(index)
            && let Some(call) = ring.call
        {
            call.signal();
        }
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

    /// Stops a ring; returns from where it is to go on.
    pub(crate) fn stop(&mut self, index: usize) -> u32 {
        let ring = &mut self.rings[index];
        if let Some(mut half) = ring.half.take() {
            let half = half.any();
            half.put_back();
            half.publish();
            ring.base = half.position();
        }
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

    /// Starts a ring for which nothing is missing.
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
            // A device that died has used more, or published less, than its front end knows.
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
        // The data path asks for kicks before it sleeps.
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
