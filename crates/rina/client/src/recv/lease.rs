//! SDUs that are read in place in the ring, for as long as the reader wants, in any number.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use carina_ring::Lease;

use super::FlowReceiver;
use crate::error::Error;

/// A received SDU of one fragment, in place in the ring. Unlike a [`Fragment`](super::Fragment), it
/// borrows nothing: further SDUs can be received meanwhile, and the memory stays mapped even after
/// the flow was dropped.
///
/// Dropping the lease gives its space back; the sender gets the space with the receiver's next call
/// that receives, waits or arms, or with [`FlowReceiver::release_leases`]. Space returns in the
/// order of the ring: a lease that is held also keeps the space behind it. A program that holds
/// leases of three quarters of the ring stops the sender.
#[derive(Debug)]
pub struct SduLease {
    lease: Lease,
    returned: Arc<AtomicBool>,
}

/// What a look for an SDU in place found.
#[derive(Debug)]
pub enum Leased {
    /// A whole SDU, in place.
    InPlace(SduLease),
    /// A whole SDU that came in several fragments, copied.
    Copied(Vec<u8>),
}

/// The leases of a receiver that were handed out, oldest first.
#[derive(Debug, Default)]
pub(super) struct Leases(VecDeque<(u64, Arc<AtomicBool>)>);

impl SduLease {
    /// Returns the length of the SDU in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lease.len()
    }

    /// Whether the SDU has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lease.is_empty()
    }

    /// Returns the address of the SDU in the ring. The sender shares this memory and may change it
    /// at any time. It stays mapped while this value lives.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.lease.as_ptr()
    }

    /// Copies the SDU into a new vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.lease.to_vec()
    }
}

impl Drop for SduLease {
    fn drop(&mut self) {
        // Release: the reads of the SDU stay before the release of its space.
        self.returned.store(true, Ordering::Release);
    }
}

impl Leases {
    /// Index of the ring up to which space can be released, when everything before `consumed` was
    /// received.
    #[inline]
    pub(super) fn releasable(&mut self, consumed: u64) -> u64 {
        while let Some((start, returned)) = self.0.front() {
            if !returned.load(Ordering::Acquire) {
                return *start;
            }
            self.0.pop_front();
        }
        consumed
    }
}

impl FlowReceiver {
    /// Returns the next SDU in place if it has arrived, otherwise `None`. It never waits. An SDU of
    /// several fragments is copied, with at most `max` bytes. After the flow has ended, up to seven
    /// calls may still return `None` before one returns the error.
    ///
    /// # Errors
    ///
    /// As for [`Self::try_recv_vec`].
    pub fn try_lease(&mut self, max: usize) -> Result<Option<Leased>, Error> {
        let partial = self.partial.is_some();
        match self.front()? {
            None => return self.note_empty().map(|()| None),
            Some(fragment) if partial || fragment.more() => {
                return Ok(self.try_recv_vec(max)?.map(Leased::Copied));
            }
            Some(_) => {}
        }
        let next = self.ring.next().map_err(super::broken)?;
        let lease = next.expect("the fragment that was found at the front stays there");
        let length = lease.len();
        let returned = Arc::new(AtomicBool::new(false));
        let entry = (lease.start(), Arc::clone(&returned));
        self.leases.0.push_back(entry);
        self.count(length as u64, length)?;
        Ok(Some(Leased::InPlace(SduLease { lease, returned })))
    }

    /// Receives the next SDU if a whole one has arrived: `make` is called with its length and
    /// returns where to copy it, with what to return. It never waits, and returns `None` when no
    /// whole SDU has arrived. An SDU of several fragments is copied twice.
    ///
    /// # Errors
    ///
    /// As for [`Self::try_recv_vec`].
    pub fn try_recv_with<T>(
        &mut self,
        max: usize,
        make: impl FnOnce(usize, &mut dyn FnMut(&mut [u8])) -> T,
    ) -> Result<Option<T>, Error> {
        let partial = self.partial.is_some();
        let Some(fragment) = self.front()? else {
            return self.note_empty().map(|()| None);
        };
        if partial || fragment.more() {
            let sdu = self.try_recv_vec(max)?;
            return Ok(sdu.map(|sdu| make(sdu.len(), &mut |to| to.copy_from_slice(&sdu))));
        }
        let length = fragment.len();
        let made = make(length, &mut |to| {
            fragment.copy_to(to);
        });
        self.step();
        self.count(length as u64, length)?;
        Ok(Some(made))
    }

    /// Whether an SDU of one fragment has arrived, which any call that receives returns next.
    pub fn has_sdu(&mut self) -> bool {
        self.partial.is_none() && matches!(self.front(), Ok(Some(fragment)) if !fragment.more())
    }

    /// Waits until a fragment has arrived or `until` has passed; returns whether one has.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`], except that no SDU is too large.
    pub fn wait_until(&mut self, until: Instant) -> Result<bool, Error> {
        while self.front()?.is_none() {
            if !self.wait(Some(until))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the space of dropped leases, and of everything else that was received, to the
    /// sender.
    pub fn release_leases(&mut self) {
        self.release();
    }
}
