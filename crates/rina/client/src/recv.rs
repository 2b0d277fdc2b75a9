//! The receiving half of a flow.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use carina_ring::{Consumer, Corrupt, PieceRef};
use carina_sys::{Doorbell, Epoll};

use crate::batch::SduBatch;
use crate::doorbell_wait::DoorbellWait;
use crate::error::Error;
use crate::link::{FlowInfo, Link};
use crate::spin_then_sleep::SpinThenSleep;
use crate::stats::FlowStats;

mod fragment;
mod lease;
mod to_file;
mod waiting;

pub use self::fragment::Fragment;
use self::lease::Leases;
pub use self::lease::{Leased, SduLease};
pub use self::to_file::{Passing, ToFile};

/// The receiving half of a flow: reads the SDUs of the remote application.
///
/// Dropping only this half, while the sending half is in use, does not end the flow. SDUs from the
/// remote application then fill the ring, and its sending waits.
#[derive(Debug)]
pub struct FlowReceiver {
    ring: Consumer,
    data_doorbell: Doorbell,
    peer_doorbell: Doorbell,
    link: Arc<Link>,
    /// An SDU of which non-blocking calls have received some fragments.
    partial: Option<PartialSdu>,
    /// SDUs that the caller reads in place; their space is not returned yet.
    leases: Leases,
    /// Received bytes of the ring at which their space is returned to the sender.
    owed_max: u64,
    /// Calls that found the ring empty since the control socket was last checked.
    empty_looks: u32,
    armed: bool,
    pollable: OnceLock<Epoll>,
    spin_then_sleep: SpinThenSleep,
    doorbell_wait: DoorbellWait,
    stats: FlowStats,
}

/// The beginning of an SDU that arrives in several fragments.
#[derive(Debug, Default)]
struct PartialSdu {
    /// The bytes of these fragments that are kept.
    kept: Vec<u8>,
    /// Total bytes of the fragments received so far.
    length: u64,
}

/// What was found at the front of the ring.
enum Front {
    /// A whole SDU. Its first bytes are in the buffer now; the value is their number.
    Sdu(usize),
    /// A fragment of an SDU; the other fragments are separate records of the ring.
    Part,
    /// The ring is empty.
    Nothing,
}

impl FlowReceiver {
    pub(crate) fn new(
        ring: Consumer,
        data_doorbell: Doorbell,
        peer_doorbell: Doorbell,
        link: Arc<Link>,
    ) -> FlowReceiver {
        FlowReceiver {
            data_doorbell,
            peer_doorbell,
            link,
            partial: None,
            leases: Leases::default(),
            owed_max: ring.capacity() as u64 / 8,
            ring,
            empty_looks: 0,
            armed: false,
            pollable: OnceLock::new(),
            spin_then_sleep: SpinThenSleep::new(),
            doorbell_wait: DoorbellWait::default(),
            stats: FlowStats::default(),
        }
    }

    /// Returns the names at the ends of the flow, its DIF and its limits.
    #[must_use]
    pub fn info(&self) -> &FlowInfo {
        self.link.info()
    }

    /// Waits for one SDU, copies it into `buffer` and returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] when the remote application has closed the flow and all its SDUs were
    /// received; [`Error::FlowFailed`] or [`Error::NodeGone`] when the flow failed;
    /// [`Error::SduTooLarge`] when the SDU is longer than `buffer`. In the last case `buffer`
    /// contains its beginning, the rest is lost, and the next call receives the next SDU.
    #[inline]
    pub fn recv(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        if let Some(length) = self.take_known(buffer) {
            return Ok(length);
        }
        self.recv_waiting(buffer)
    }

    fn recv_waiting(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        loop {
            match self.take_whole_sdu(buffer)? {
                Front::Sdu(length) => return Ok(length),
                Front::Nothing => {
                    self.wait(None)?;
                }
                Front::Part => {
                    let received = self.recv_fragments(buffer, None)?;
                    return Ok(received.expect("without a deadline only an error ends the wait"));
                }
            }
        }
    }

    /// Receives an SDU like [`Self::recv`], but waits for at most `limit`. `None` when no SDU
    /// arrived.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`].
    #[inline]
    pub fn recv_timeout(
        &mut self,
        buffer: &mut [u8],
        limit: Duration,
    ) -> Result<Option<usize>, Error> {
        if let Some(length) = self.take_known(buffer) {
            return Ok(Some(length));
        }
        self.recv_within(buffer, limit)
    }

    fn recv_within(&mut self, buffer: &mut [u8], limit: Duration) -> Result<Option<usize>, Error> {
        // The clock is read only when the call has to wait.
        let mut known = None;
        let mut until = || *known.get_or_insert_with(|| Instant::now().checked_add(limit));
        loop {
            match self.take_whole_sdu(buffer)? {
                Front::Sdu(length) => return Ok(Some(length)),
                Front::Part => return self.recv_fragments(buffer, until()),
                Front::Nothing if !self.wait(until())? => return Ok(None),
                Front::Nothing => {}
            }
        }
    }

    /// Receives an SDU if a whole one has arrived, otherwise returns `None`. It never waits.
    /// Fragments of an incomplete SDU are kept until the others arrive. After the flow has ended,
    /// up to seven calls may still return `None` before one returns the error.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`].
    #[inline]
    pub fn try_recv(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        if let Some(length) = self.take_known(buffer) {
            return Ok(Some(length));
        }
        match self.take_whole_sdu(buffer)? {
            Front::Sdu(length) => Ok(Some(length)),
            Front::Nothing => self.note_empty().map(|()| None),
            Front::Part => {
                let Some(partial) = self.keep_fragments(buffer.len())? else {
                    return Ok(None);
                };
                let kept = partial.kept.len().min(buffer.len());
                buffer[..kept].copy_from_slice(&partial.kept[..kept]);
                self.count(partial.length, kept).map(|()| Some(kept))
            }
        }
    }

    /// Waits for one SDU of at most `max` bytes and returns it as a vector.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`], with `max` in place of the length of the buffer.
    pub fn recv_vec(&mut self, max: usize) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(partial) = self.keep_fragments(max)? {
                self.count(partial.length, partial.kept.len())?;
                return Ok(partial.kept);
            }
            self.wait(None)?;
        }
    }

    /// Like [`Self::recv_vec`], but never waits: returns `None` when no whole SDU has arrived.
    /// After the flow has ended, up to seven calls may still return `None` before one returns the
    /// error.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv_vec`].
    pub fn try_recv_vec(&mut self, max: usize) -> Result<Option<Vec<u8>>, Error> {
        match self.keep_fragments(max)? {
            None => self.note_empty().map(|()| None),
            Some(partial) => {
                self.count(partial.length, partial.kept.len())?;
                Ok(Some(partial.kept))
            }
        }
    }

    /// Waits for one SDU, and receives with it all others that have arrived and fit into `batch`.
    /// The former contents of `batch` are dropped. Returns the number of SDUs.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`], when not even the first SDU could be received.
    pub fn recv_burst(&mut self, batch: &mut SduBatch) -> Result<usize, Error> {
        batch.clear();
        let length = self.recv(batch.room())?;
        batch.take(length);
        self.fill(batch)
    }

    /// Receives all SDUs that have arrived and fit into `batch`; never waits. The former contents
    /// of `batch` are dropped. Returns the number of SDUs, which may be 0. After the flow has
    /// ended, up to seven calls may still return 0 before one returns the error.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`], when not even the first SDU could be received.
    pub fn try_recv_burst(&mut self, batch: &mut SduBatch) -> Result<usize, Error> {
        batch.clear();
        match self.try_recv(batch.room())? {
            None => Ok(0),
            Some(length) => {
                batch.take(length);
                self.fill(batch)
            }
        }
    }

    /// Waits for the next fragment of an SDU and returns it in place in the ring.
    ///
    /// Do not mix this call with `recv` calls within one SDU of several fragments.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`], except that no SDU is too large.
    pub fn peek(&mut self) -> Result<Fragment<'_>, Error> {
        while self.front()?.is_none() {
            self.wait(None)?;
        }
        Ok(Fragment::new(self))
    }

    /// Like [`Self::peek`], but returns `None` at once when no fragment has arrived. After the flow
    /// has ended, up to seven calls may still return `None` before one returns the error.
    ///
    /// # Errors
    ///
    /// As for [`Self::peek`].
    pub fn try_peek(&mut self) -> Result<Option<Fragment<'_>>, Error> {
        if self.front()?.is_none() {
            return self.note_empty().map(|()| None);
        }
        Ok(Some(Fragment::new(self)))
    }

    /// Returns the counters of the receiving half since the flow was allocated.
    #[must_use]
    pub fn stats(&self) -> FlowStats {
        self.stats
    }

    /// Returns the next fragment in the ring, and disarms the ring's doorbell; `None` if the ring
    /// is empty.
    #[inline]
    fn front(&mut self) -> Result<Option<PieceRef<'_>>, Error> {
        if self.armed {
            self.armed = false;
            self.ring.disarm();
        }
        self.ring.peek().map_err(broken)
    }

    /// Receives the next SDU if an earlier look at the ring already found it, it is one fragment,
    /// and it fits into `buffer`. Otherwise returns `None`.
    #[inline]
    fn take_known(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if self.partial.is_some() {
            return None;
        }
        let length = self.ring.take_sdu(buffer)?;
        self.stats.sdus_received += 1;
        self.release_gathered();
        self.stats.bytes_received += length as u64;
        Some(length)
    }

    /// Receives the next SDU if it has arrived and is one fragment.
    fn take_whole_sdu(&mut self, buffer: &mut [u8]) -> Result<Front, Error> {
        let partial = self.partial.is_some();
        let Some(fragment) = self.front()? else {
            return Ok(Front::Nothing);
        };
        if partial || fragment.more() {
            return Ok(Front::Part);
        }
        let length = fragment.len();
        let kept = fragment.copy_to(buffer);
        self.step();
        self.count(length as u64, kept).map(|()| Front::Sdu(kept))
    }

    /// Receives an SDU of several fragments into `buffer` as the fragments arrive. If `until`
    /// passes before the last one, the fragments are kept for a later call.
    #[cold]
    fn recv_fragments(
        &mut self,
        buffer: &mut [u8],
        until: Option<Instant>,
    ) -> Result<Option<usize>, Error> {
        let PartialSdu { kept, mut length } = self.partial.take().unwrap_or_default();
        let mut filled = kept.len().min(buffer.len());
        buffer[..filled].copy_from_slice(&kept[..filled]);
        loop {
            let Some(fragment) = self.front()? else {
                if self.wait(until)? {
                    continue;
                }
                self.partial = Some(PartialSdu {
                    kept: buffer[..filled].to_vec(),
                    length,
                });
                return Ok(None);
            };
            // Copied only while everything before has fitted into the buffer.
            if filled as u64 == length {
                filled += fragment.copy_to(&mut buffer[filled..]);
            }
            length += fragment.len() as u64;
            let more = fragment.more();
            self.step();
            if !more {
                return self.count(length, filled).map(|()| Some(filled));
            }
        }
    }

    /// Moves the fragments that have arrived into memory, keeping at most the first `max` bytes of
    /// the SDU. Returns the SDU once it is complete.
    fn keep_fragments(&mut self, max: usize) -> Result<Option<PartialSdu>, Error> {
        let mut partial = self.partial.take();
        loop {
            let Some(fragment) = self.front()? else {
                self.partial = partial;
                return Ok(None);
            };
            let (length, more) = (fragment.len(), fragment.more());
            let sdu = partial.get_or_insert_default();
            let filled = sdu.kept.len();
            // Copied only while everything before has been kept.
            if filled as u64 == sdu.length {
                let room = max.saturating_sub(filled);
                sdu.kept.resize(filled + length.min(room), 0);
                fragment.copy_to(&mut sdu.kept[filled..]);
            }
            sdu.length += length as u64;
            self.step();
            if !more {
                return Ok(partial);
            }
        }
    }

    /// Adds further SDUs of one fragment to `batch` while they have arrived and fit.
    fn fill(&mut self, batch: &mut SduBatch) -> Result<usize, Error> {
        while !batch.is_full() {
            // On an error, stops here: the next call returns the error, and the SDUs before it
            // count as received.
            let Ok(Some(fragment)) = self.front() else {
                break;
            };
            let length = fragment.len();
            if fragment.more() || length > batch.room().len() {
                break;
            }
            fragment.copy_to(batch.room());
            self.step();
            self.count(length as u64, length)?;
            batch.take(length);
        }
        Ok(batch.len())
    }

    /// Counts a received SDU; an error when not all of its bytes were kept.
    #[inline]
    fn count(&mut self, length: u64, kept: usize) -> Result<(), Error> {
        self.stats.sdus_received += 1;
        self.stats.bytes_received += length;
        if (kept as u64) < length {
            self.stats.sdus_too_large += 1;
            return Err(Error::SduTooLarge {
                len: length,
                max: kept as u64,
            });
        }
        Ok(())
    }

    /// Consumes the fragment at the front.
    #[inline]
    fn step(&mut self) {
        self.ring.skip();
        self.release_gathered();
    }

    /// Returns space to the sender once enough has accumulated. The sender never needs more than a
    /// quarter of the ring at once, so an eighth may be held back.
    #[inline]
    fn release_gathered(&mut self) {
        if self.ring.consumed().wrapping_sub(self.ring.released()) >= self.owed_max {
            self.release();
        }
    }

    /// Returns the space of all received fragments to the sender, up to the first lease that is
    /// held, and wakes the sender if it waits for space.
    #[inline(never)]
    fn release(&mut self) {
        let upto = self.leases.releasable(self.ring.consumed());
        if self.ring.release_to(upto) {
            self.stats.doorbells_rung += 1;
            self.peer_doorbell.signal();
        }
    }
}

/// The error for a ring whose records or indices the sender has corrupted.
fn broken(corrupt: Corrupt) -> Error {
    Error::FlowFailed {
        reason: format!("the remote end broke the ring: {corrupt}"),
    }
}
