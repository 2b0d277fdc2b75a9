//! The data plane's end of VMPI over Xen: it takes regions from the thread that speaks with the
//! xenstore, and uses one at a time.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use carina_ring::{Corrupt, Lease, RECORD_HEADER_BYTES, Refused, Slot};
use carina_sys::{Epoll, EventFd, Interest};

use super::REGION_BYTES;
use super::channels::Channels;
use super::region::Channel;
use crate::hl::Side;
use crate::ll::attach::HEARTBEAT_NS;
use crate::ll::device::Device;
use crate::ll::{DownReason, LinkState, Stats, VmpiImpl};

/// What the thread tells the data plane.
pub(super) enum Change {
    /// There is a new region; it replaces the one before.
    Attach(Box<Device<Channel>>),
    /// The other domain has ended, or it has withdrawn its region.
    Detach,
    /// Regions that follow use these event channels. The region before and its channels are gone.
    Renew(Arc<Channels>),
    /// There is no region for this reason.
    Trouble(String),
}

/// The thread's end of the connection to the data plane.
pub(super) struct Feed {
    changes: Sender<Change>,
    wake: EventFd,
    /// Signalled when the device is dropped and the thread must end.
    pub(super) stop: EventFd,
    pub(super) channels: Arc<Channels>,
}

impl Feed {
    pub(super) fn send(&self, change: Change) {
        // Without a receiver the device was dropped, and the thread ends soon.
        let _ = self.changes.send(change);
        self.wake.signal();
    }

    /// Gives up the region and its event channels without touching them, because the domain may
    /// have been restored, and opens new channels. Returns the former ones.
    ///
    /// # Errors
    /// The kernel opens no further channels; nothing has changed then.
    pub(super) fn renew(&mut self) -> std::io::Result<Arc<Channels>> {
        let channels = Arc::new(Channels::open()?);
        self.channels.lose();
        self.send(Change::Renew(Arc::clone(&channels)));
        Ok(std::mem::replace(&mut self.channels, channels))
    }
}

/// A VMPI device over grants. Dropping it ends its thread.
pub(super) struct XenDevice {
    side: Side,
    current: Option<Box<Device<Channel>>>,
    /// Whether the peer's process lived when the link was last looked at.
    was_attached: bool,
    /// Whether the link was up then.
    was_up: bool,
    reason: DownReason,
    /// Sum of the counters of earlier regions.
    past: Stats,
    looked_ns: u64,
    channels: Arc<Channels>,
    changes: Receiver<Change>,
    wake: EventFd,
    /// Readable when a channel or the thread has rung.
    epoll: Epoll,
    stop: EventFd,
    thread: Option<JoinHandle<()>>,
}

impl XenDevice {
    /// Starts `serve` in a thread, which looks after the xenstore until [`Feed::stop`] rings.
    pub(super) fn start(
        side: Side,
        serve: impl FnOnce(Feed) + Send + 'static,
    ) -> std::io::Result<XenDevice> {
        let channels = Arc::new(Channels::open()?);
        let (sender, changes) = channel();
        let (wake, stop, epoll) = (EventFd::new()?, EventFd::new()?, Epoll::new()?);
        epoll.add(&*channels, CHANNELS, Interest::Read)?;
        epoll.add(&wake, WAKE, Interest::Read)?;
        let feed = Feed {
            changes: sender,
            wake: wake.try_clone()?,
            stop: stop.try_clone()?,
            channels: Arc::clone(&channels),
        };
        let thread = std::thread::Builder::new()
            .name("carina-xen".to_owned())
            .spawn(move || serve(feed))?;
        Ok(XenDevice {
            side,
            current: None,
            was_attached: false,
            was_up: false,
            reason: DownReason::NoPeer,
            past: Stats::default(),
            looked_ns: 0,
            channels,
            changes,
            wake,
            epoll,
            stop,
            thread: Some(thread),
        })
    }

    /// Drops the region. Leases of its records keep its memory until they are dropped.
    fn retire(&mut self) {
        let Some(device) = self.current.take() else {
            return;
        };
        self.past = sum(self.past, device.stats());
        self.past.downs += u64::from(std::mem::take(&mut self.was_up));
        if std::mem::take(&mut self.was_attached) {
            self.reason = DownReason::PeerLeft;
        }
    }

    fn take_changes(&mut self) -> bool {
        let mut has_changed = false;
        while let Ok(change) = self.changes.try_recv() {
            self.retire();
            has_changed = true;
            match change {
                Change::Attach(device) => self.current = Some(device),
                Change::Detach => {}
                Change::Renew(channels) => {
                    // Without the descriptor the link still works by looking at intervals.
                    let _ = self.epoll.add(&*channels, CHANNELS, Interest::Read);
                    // The memory of the region is unmapped before the former channels are dropped.
                    self.channels = channels;
                }
                Change::Trouble(reason) => {
                    let code = "xen";
                    self.reason = DownReason::Violation { code, reason };
                }
            }
        }
        has_changed
    }

    /// The reason in the words of Xen: what a region calls detached is that the peer's process does
    /// not live.
    fn told(&self, reason: DownReason) -> DownReason {
        match reason {
            DownReason::Detached => self.reason.clone(),
            reason => reason,
        }
    }
}

impl VmpiImpl for XenDevice {
    fn side(&self) -> Side {
        self.side
    }

    fn record_bytes_max(&self) -> usize {
        REGION_BYTES / 4 - RECORD_HEADER_BYTES
    }

    fn link(&mut self, now_ns: u64) -> LinkState {
        self.looked_ns = now_ns;
        let had_region = self.current.is_some();
        if self.take_changes() && had_region {
            // Leases of the old region must not be released into the new one.
            return LinkState::Down(self.reason.clone());
        }
        let Some(device) = &mut self.current else {
            return LinkState::Down(self.reason.clone());
        };
        let state = device.link(now_ns);
        self.was_up = state == LinkState::Up;
        if state != LinkState::Down(DownReason::Detached) {
            self.was_attached = true;
            return state;
        }
        if std::mem::take(&mut self.was_attached) {
            self.reason = DownReason::PeerLeft;
        }
        if self.side == Side::Host {
            // The guest's pages are of no more use, and its domain cannot end while they are
            // mapped.
            self.retire();
        }
        LinkState::Down(self.reason.clone())
    }

    fn fail(&mut self, now_ns: u64, reason: DownReason) -> DownReason {
        match &mut self.current {
            Some(device) => {
                self.was_up = false;
                let reason = device.fail(now_ns, reason);
                self.told(reason)
            }
            None => self.reason.clone(),
        }
    }

    fn reserve(&mut self, len: usize) -> Result<Slot<'_>, Refused> {
        match &mut self.current {
            Some(device) => device.reserve(len),
            None => Err(Refused::Full),
        }
    }

    fn free_bytes(&mut self) -> Result<usize, Corrupt> {
        self.current
            .as_mut()
            .map_or(Ok(0), |device| device.free_bytes())
    }

    fn publish(&mut self) {
        if let Some(device) = &mut self.current {
            device.publish();
        }
    }

    fn next(&mut self) -> Result<Option<Lease>, Corrupt> {
        self.current
            .as_mut()
            .map_or(Ok(None), |device| device.next())
    }

    fn release(&mut self) {
        if let Some(device) = &mut self.current {
            device.release();
        }
    }

    fn release_to(&mut self, index: u64) {
        if let Some(device) = &mut self.current {
            device.release_to(index);
        }
    }

    fn arm(&mut self, now_ns: u64) -> bool {
        self.current
            .as_mut()
            .is_none_or(|device| device.arm(now_ns))
    }

    fn disarm(&mut self) {
        self.wake.drain();
        match &mut self.current {
            Some(device) => device.disarm(),
            None => self.channels.clear(),
        }
    }

    fn arm_space(&mut self, bytes: usize) -> Result<bool, Corrupt> {
        self.current
            .as_mut()
            .map_or(Ok(true), |device| device.arm_space(bytes))
    }

    fn next_deadline_ns(&self) -> u64 {
        match &self.current {
            Some(device) => device.next_deadline_ns(),
            None => self.looked_ns + HEARTBEAT_NS,
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn stats(&self) -> Stats {
        let now = self.current.as_ref().map(|device| device.stats());
        sum(self.past, now.unwrap_or_default())
    }
}

impl Drop for XenDevice {
    fn drop(&mut self) {
        self.take_changes();
        // The region goes first, so that the peer sees this side leave.
        self.current = None;
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            // The thread has a deadline for each answer of the xenstore.
            let _ = thread.join();
        }
    }
}

/// Tokens of the descriptors that wake the data plane.
const CHANNELS: u64 = 0;
const WAKE: u64 = 1;

fn sum(one: Stats, other: Stats) -> Stats {
    Stats {
        ups: one.ups + other.ups,
        downs: one.downs + other.downs,
        corrupt: one.corrupt + other.corrupt,
        violations: one.violations + other.violations,
        kicks: one.kicks + other.kicks,
        records_in: one.records_in + other.records_in,
        foreign_blocks: one.foreign_blocks + other.foreign_blocks,
    }
}
