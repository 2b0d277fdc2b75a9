//! How a receiver waits, in a call or through a descriptor, and how it detects the flow's end.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use carina_ring::{Consumer, State};

use super::FlowReceiver;
use crate::error::Error;

impl FlowReceiver {
    /// Requests a wake-up through [`Self::poll_fd`] for when something can be received or the flow
    /// has ended. Returns `false` if there already is something to receive: call `try_recv` then,
    /// because no wake-up will follow.
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`] when the flow has ended.
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.release();
        if has_news(&mut self.ring) {
            return Ok(false);
        }
        self.data_doorbell.drain();
        self.armed = self.ring.arm();
        if self.armed {
            self.check_end_now()?;
        }
        Ok(self.armed)
    }

    /// Returns the descriptor for poll and epoll. After [`Self::arm`] it becomes readable when
    /// something can be received or the flow has ended. The first call creates it.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when this process has too many open files.
    pub fn poll_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        if self.pollable.get().is_none() {
            let epoll = self.link.pollable(&self.data_doorbell)?;
            let _ = self.pollable.set(epoll);
        }
        Ok(self.pollable.get().expect("it was set just now").as_fd())
    }

    /// Called when the ring was empty. On every eighth call, or when the ring is marked as ended,
    /// checks whether the flow has ended.
    pub(super) fn note_empty(&mut self) -> Result<(), Error> {
        self.empty_looks += 1;
        if self.empty_looks >= LOOK_EVERY || self.ring.state() != State::Open {
            return self.check_end_now();
        }
        Ok(())
    }

    /// Checks whether the flow has ended. Call it when the ring was found empty.
    pub(super) fn check_end_now(&mut self) -> Result<(), Error> {
        self.empty_looks = 0;
        let ended = self.link.check_end();
        let state = self.ring.state();
        if !ended && state == State::Open {
            return Ok(());
        }
        // The sender marks the end after its last SDU: SDUs may have arrived before the mark was
        // read.
        if has_news(&mut self.ring) {
            return Ok(());
        }
        Err(if state == State::Closed {
            Error::Closed
        } else {
            self.link.failure()
        })
    }

    /// Waits until something can be received, or until `until` has passed. Returns `false` in the
    /// second case.
    pub(super) fn wait(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        self.spin_then_sleep.gather(self.stats.sdus_received);
        let ring = &mut self.ring;
        if self.spin_then_sleep.until(|| has_news(ring)) {
            return Ok(true);
        }
        self.release();
        // The sleep notices messages on the control socket, but the ring's mark of the end wakes no
        // reader. So the mark is checked here.
        if self.link.ended() || self.ring.state() != State::Open {
            self.check_end_now()?;
        }
        if !self.ring.arm() {
            return Ok(true);
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        self.stats.sleeps += 1;
        let (doorbell_wait, doorbell, link) =
            (&mut self.doorbell_wait, &self.data_doorbell, &self.link);
        let woken = self
            .spin_then_sleep
            .sleep(|| doorbell_wait.sleep(doorbell, link, left));
        self.ring.disarm();
        woken?;
        if has_news(&mut self.ring) {
            return Ok(true);
        }
        self.check_end_now()?;
        Ok(has_news(&mut self.ring) || until.is_none_or(|until| Instant::now() < until))
    }
}

/// Whether the ring contains an SDU, or the sender has corrupted the ring.
fn has_news(ring: &mut Consumer) -> bool {
    ring.pending_bytes() != Ok(0)
}

/// Calls that find the ring empty between two checks of the control socket. The number is small, so
/// that a program that calls ten times a second detects the end within a second. It is large enough
/// to make the cost of the system call small.
const LOOK_EVERY: u32 = 8;
