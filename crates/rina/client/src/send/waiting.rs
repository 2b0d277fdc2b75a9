//! How a sender waits for space, in a call or through a descriptor, and how it detects the flow's
//! end.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use carina_ring::{State, record_cost};

use super::{FlowSender, broken};
use crate::error::Error;
use crate::link::Woken;

impl FlowSender {
    /// Requests a wake-up through [`Self::space_fd`] for when an SDU of `length` bytes, or the next
    /// fragment of a longer one, can be sent. Returns `false` if it can be sent already: no wake-up
    /// will follow then.
    ///
    /// # Errors
    ///
    /// As for [`Self::send`] when the flow has ended.
    pub fn arm(&mut self, length: usize) -> Result<bool, Error> {
        self.check_end_now()?;
        self.space_doorbell.drain();
        let cost = record_cost(length.min(self.piece_max));
        self.ring.arm_space(cost).map_err(broken)
    }

    /// Returns the doorbell for space, as a descriptor. After [`Self::arm`] it becomes readable
    /// when there is space to send. It does not report the end of the flow; [`Self::poll_fd`] does.
    #[must_use]
    pub fn space_fd(&self) -> BorrowedFd<'_> {
        self.space_doorbell.as_fd()
    }

    /// Returns the descriptor for poll and epoll. After [`Self::arm`] it becomes readable when
    /// there is space to send or the flow has ended. The first call creates it.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when this process has too many open files.
    pub fn poll_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        if self.pollable.get().is_none() {
            let epoll = self.link.pollable(&self.space_doorbell)?;
            let _ = self.pollable.set(epoll);
        }
        Ok(self.pollable.get().expect("it was set just now").as_fd())
    }

    /// Fails if the flow has ended, according to the control socket or the ring.
    pub(super) fn check_end_now(&mut self) -> Result<(), Error> {
        self.until_look = LOOK_EVERY;
        if self.link.check_end() || self.opposite.state() == State::Failed {
            return Err(self.link.failure());
        }
        Ok(())
    }

    /// Waits until `bytes` of the ring are free, or until `until` has passed. It may return
    /// earlier.
    pub(super) fn wait_for_space(
        &mut self,
        bytes: usize,
        until: Option<Instant>,
    ) -> Result<(), Error> {
        let ring = &mut self.ring;
        // A ring that the peer corrupted also ends the wait, so that the error is reported.
        let is_ready = || ring.free_bytes().map_or(true, |free| free >= bytes);
        if self.spin_then_sleep.until(is_ready) {
            return self.ring.free_bytes().map(drop).map_err(broken);
        }
        // The sleep notices messages on the control socket, but the ring's mark of the end wakes no
        // writer. So the mark is checked here.
        if self.link.ended() || self.opposite.state() == State::Failed {
            self.check_end_now()?;
        }
        // If it were woken as soon as one SDU fits, it would sleep again after each SDU.
        let wanted = bytes.max(self.ring.capacity() / 4);
        if !self.ring.arm_space(wanted).map_err(broken)? {
            return Ok(());
        }
        self.stats.sleeps += 1;
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let (link, doorbell) = (&self.link, self.space_doorbell.as_fd());
        let woken = self.spin_then_sleep.sleep(|| link.sleep(doorbell, left));
        self.ring.disarm();
        if woken? == Woken::Doorbell {
            self.space_doorbell.drain();
        }
        self.check_end_now()
    }
}

/// SDUs that are sent between two checks of the control socket. At this interval the system call
/// costs less than a nanosecond per SDU.
pub(super) const LOOK_EVERY: u32 = 1024;
