//! A VMPI device over shared memory: a region, the attach handshake, two rings and doorbells. Each
//! kind of shared memory supplies its own [`Doorbells`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use carina_ring::{Consumer, Corrupt, Lease, Producer, Refused, RingMap, Slot, WakeMode};
use carina_sys::{EventFd, Mapping};

use super::attach::{Attach, Step};
use super::layout::{Layout, STATION_BYTES};
use super::polling::Polling;
use super::station::{FLAG_RINGS, FLAG_TAKES_DOORBELL, Half, Station};
use super::{DownReason, LinkState, Stats, VmpiImpl};
use crate::hl::Side;

/// How the two sides of a device wake each other.
pub(super) trait Doorbells: Send {
    /// Wakes the peer. `peer_doorbell` is the doorbell number that the peer shows; it may be false.
    fn ring(&self, peer_doorbell: u32);

    /// Whether [`Doorbells::ring`] can reach the peer at all.
    fn can_ring(&self) -> bool;

    /// The event that the peer signals to wake this side. `None` if this side cannot be woken.
    fn own(&self) -> Option<&EventFd>;

    /// Clears the pending signals of [`Doorbells::own`].
    fn clear_signal(&mut self) {
        if let Some(doorbell) = self.own() {
            doorbell.drain();
        }
    }

    /// Agrees with the peer, whose half is `peer`, on the interrupt vector of the guest's doorbell.
    /// Returns the vector that this side shows: 0 if the device has only one.
    fn tune(&mut self, _now_ns: u64, _peer: &Half) -> u32 {
        0
    }

    /// Whether the peer can ring [`Doorbells::own`] now.
    fn can_be_rung(&self) -> bool;

    /// This side's doorbell number, which the peer passes to its [`Doorbells::ring`].
    fn doorbell(&self) -> u32;

    /// Whether the peer's system is running.
    fn is_attached(&self) -> bool;

    /// Writes what this kind of memory shows the peer outside of the layout. Called while the link
    /// is down, because an earlier peer may have overwritten it.
    fn show(&self) {}

    /// The process id of the peer's VM, if this side is its host and the process is known.
    fn vm(&self) -> Option<i32> {
        None
    }
}

/// One side of a region.
pub(super) struct Device<B> {
    side: Side,
    doorbells: B,
    station: Station,
    attach: Attach,
    layout: Layout,
    maps: Maps,
    rings: Option<Rings>,
    polling: Polling,
    look_ns: Option<u64>,
    stats: Stats,
}

/// The memory of a region that is mapped already.
pub(super) struct Parts {
    pub(super) station: Mapping,
    /// The ring that this side writes.
    pub(super) tx: Arc<RingMap>,
    /// The ring that the peer writes.
    pub(super) rx: Arc<RingMap>,
    pub(super) layout: Layout,
}

struct Maps {
    tx: Arc<RingMap>,
    rx: Arc<RingMap>,
}

struct Rings {
    tx: Producer,
    rx: Consumer,
}

impl<B: Doorbells> Device<B> {
    /// Opens a side of the region that begins at offset 0 of `fd`.
    pub(super) fn open(
        side: Side,
        fd: BorrowedFd<'_>,
        layout: Layout,
        doorbells: B,
    ) -> io::Result<Device<B>> {
        Device::open_at(side, fd, 0, layout, doorbells)
    }

    /// Opens a side of the region that begins at an offset of `fd`.
    pub(super) fn open_at(
        side: Side,
        fd: BorrowedFd<'_>,
        offset: u64,
        layout: Layout,
        doorbells: B,
    ) -> io::Result<Device<B>> {
        let ring = |from: Side| {
            let at = offset + layout.ring_from(from) as u64;
            RingMap::map(fd, at, layout.capacity()).map(Arc::new)
        };
        let parts = Parts {
            station: Mapping::shared(fd, offset, STATION_BYTES)?,
            tx: ring(side)?,
            rx: ring(side.peer())?,
            layout,
        };
        Ok(Device::from_parts(side, parts, doorbells))
    }

    /// Makes a side of a region whose memory is mapped already.
    pub(super) fn from_parts(side: Side, parts: Parts, doorbells: B) -> Device<B> {
        Device {
            side,
            doorbells,
            station: Station::new(parts.station, side),
            attach: Attach::new(),
            layout: parts.layout,
            maps: Maps {
                tx: parts.tx,
                rx: parts.rx,
            },
            rings: None,
            polling: Polling::default(),
            look_ns: None,
            stats: Stats::default(),
        }
    }

    /// Sets the silence of the peer that ends the link, in nanoseconds.
    pub(super) fn set_silence_max(&mut self, silence_ns_max: u64) {
        self.attach.set_silence_max(silence_ns_max);
    }

    /// The rings while the link is up.
    fn live(&mut self) -> Option<&mut Rings> {
        self.rings.as_mut().filter(|_| self.attach.is_up())
    }

    /// Whether the peer can wake this side and announces that it does. Otherwise this side must
    /// poll.
    fn is_woken(&self) -> bool {
        self.doorbells.can_be_rung() && self.attach.peer().flags & FLAG_RINGS != 0
    }

    fn kick(&mut self) {
        let peer = self.attach.peer();
        if peer.flags & FLAG_TAKES_DOORBELL != 0 {
            self.doorbells.ring(peer.doorbell);
            self.stats.kicks += 1;
        }
    }

    fn show_doorbells(&mut self, now_ns: u64) {
        let vector = self.doorbells.tune(now_ns, &self.attach.peer());
        let mut flags = 0;
        if self.doorbells.can_be_rung() {
            flags |= FLAG_TAKES_DOORBELL;
        }
        if self.doorbells.can_ring() {
            flags |= FLAG_RINGS;
        }
        self.attach
            .set_doorbells(self.doorbells.doorbell(), flags, vector, &self.station);
    }

    /// Whether a page of the region is lost. The memory mapped in its place is not what the peer
    /// sees, so a new epoch does not repair the link.
    fn is_memory_lost(&self) -> bool {
        self.station.is_lost() || self.maps.tx.is_lost() || self.maps.rx.is_lost()
    }

    /// Gives up the link for good, because memory of the region is lost.
    fn lose_memory(&mut self) -> DownReason {
        let reason = DownReason::Corrupt(Corrupt::MemoryLost);
        if *self.attach.reason() != reason {
            self.stats.corrupt += 1;
            self.attach.part(reason.clone(), &self.station);
            // The peer reads this, unless the lost page is the station block.
            self.attach.leave(&self.station);
        }
        reason
    }

    fn down(&mut self) -> LinkState {
        self.stats.downs += 1;
        LinkState::Down(self.attach.reason().clone())
    }
}

impl<B: Doorbells> VmpiImpl for Device<B> {
    fn side(&self) -> Side {
        self.side
    }

    fn record_bytes_max(&self) -> usize {
        self.layout.capacity() - carina_ring::RECORD_HEADER_BYTES
    }

    fn link(&mut self, now_ns: u64) -> LinkState {
        self.look_ns = None;
        if self.is_memory_lost() {
            let reason = self.lose_memory();
            self.attach.rest(now_ns);
            return LinkState::Down(reason);
        }
        self.show_doorbells(now_ns);
        let is_attached = self.doorbells.is_attached();
        if !(is_attached && self.attach.is_up()) {
            self.doorbells.show();
        }
        if !is_attached {
            if self.attach.is_up() {
                self.attach.part(DownReason::Detached, &self.station);
                self.attach.rest(now_ns);
                return self.down();
            }
            self.attach.rest(now_ns);
            return LinkState::Down(DownReason::Detached);
        }
        if self.side == Side::Host && !self.attach.is_up() {
            // Repeated at each look, because a guest may have overwritten the head.
            self.station.write_head(&self.layout);
        }
        if self.attach.wants_vm()
            && let Some(pid) = self.doorbells.vm()
        {
            self.attach.set_vm(pid);
        }
        let (maps, rings) = (&self.maps, &mut self.rings);
        let zero = || {
            *rings = Some(Rings {
                tx: Producer::fresh(Arc::clone(&maps.tx), WakeMode::Fence),
                rx: Consumer::fresh(Arc::clone(&maps.rx), WakeMode::Fence),
            });
        };
        match self.attach.step(now_ns, &self.station, zero) {
            Step::Up => {
                self.stats.ups += 1;
                self.polling.note_activity();
            }
            Step::Down => return self.down(),
            Step::Stay => {}
        }
        if self.attach.is_up() {
            LinkState::Up
        } else {
            LinkState::Down(self.attach.reason().clone())
        }
    }

    fn fail(&mut self, now_ns: u64, reason: DownReason) -> DownReason {
        if !self.attach.is_up() {
            return self.attach.reason().clone();
        }
        if self.is_memory_lost() {
            return self.lose_memory();
        }
        // A peer that restarts shows its new epoch, then zeroes its ring fields. The supposed
        // corruption may have been these zeroes.
        if self.attach.has_peer_changed(&self.station) {
            self.attach.part(DownReason::PeerRestarted, &self.station);
            self.stats.downs += 1;
            return DownReason::PeerRestarted;
        }
        match reason {
            DownReason::Corrupt(_) => self.stats.corrupt += 1,
            _ => self.stats.violations += 1,
        }
        self.attach.fail(now_ns, reason.clone(), &self.station);
        reason
    }

    fn reserve(&mut self, len: usize) -> Result<Slot<'_>, Refused> {
        self.polling.note_activity();
        match self.live() {
            Some(rings) => rings.tx.reserve(len),
            None => Err(Refused::Full),
        }
    }

    fn free_bytes(&mut self) -> Result<usize, Corrupt> {
        self.live().map_or(Ok(0), |rings| rings.tx.free_bytes())
    }

    fn publish(&mut self) {
        if self.live().is_some_and(|rings| rings.tx.publish()) {
            self.kick();
        }
    }

    fn next(&mut self) -> Result<Option<Lease>, Corrupt> {
        let Some(rings) = self.live() else {
            return Ok(None);
        };
        let lease = rings.rx.next()?;
        if lease.is_some() {
            self.polling.note_activity();
            self.stats.records_in += 1;
        }
        Ok(lease)
    }

    fn release(&mut self) {
        if self.live().is_some_and(|rings| rings.rx.release()) {
            self.kick();
        }
    }

    fn release_to(&mut self, index: u64) {
        // A lease of an earlier link may have an index beyond what was read on this link.
        let is_waited_for =
            |rings: &mut Rings| index <= rings.rx.consumed() && rings.rx.release_to(index);
        if self.live().is_some_and(is_waited_for) {
            self.kick();
        }
    }

    fn arm(&mut self, now_ns: u64) -> bool {
        if !self.attach.is_up() {
            return true;
        }
        if self.is_woken() {
            return self.live().is_none_or(|rings| rings.rx.arm());
        }
        self.look_ns = Some(self.polling.next_look_ns(now_ns));
        // If the ring is corrupt, the owner must not sleep; its next read reports the error.
        self.live()
            .is_none_or(|rings| rings.rx.pending_bytes() == Ok(0))
    }

    fn disarm(&mut self) {
        self.doorbells.clear_signal();
        if let Some(rings) = self.live() {
            rings.rx.disarm();
            rings.tx.disarm();
        }
    }

    fn arm_space(&mut self, bytes: usize) -> Result<bool, Corrupt> {
        let is_woken = self.is_woken();
        let Some(rings) = self.live() else {
            return Ok(true);
        };
        if is_woken {
            rings.tx.arm_space(bytes)
        } else {
            Ok(rings.tx.free_bytes()? < bytes.min(rings.tx.capacity()))
        }
    }

    fn next_deadline_ns(&self) -> u64 {
        let beat_ns = self.attach.next_deadline_ns();
        self.look_ns.map_or(beat_ns, |look_ns| look_ns.min(beat_ns))
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.doorbells.own().map(AsFd::as_fd)
    }

    fn stats(&self) -> Stats {
        self.stats
    }
}

impl<B> Drop for Device<B> {
    fn drop(&mut self) {
        // The peer would otherwise notice only by the silence that follows.
        self.attach.leave(&self.station);
    }
}
