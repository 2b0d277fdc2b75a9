//! Waiting for what can be received: in a call, or by a descriptor; and noticing the flow's end.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use carina_ring::{Consumer, State};
use carina_sys::{Epoll, Interest};

use super::FlowReceiver;
use crate::error::Error;

impl FlowReceiver {
    /// Asks to be woken through [`Self::poll_fd`] when something can be received or the flow ends.
    /// Gives `false` when that is so already: then nothing will wake, and `try_recv` has news.
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

    /// The descriptor for poll and epoll: readable after [`Self::arm`] once something can be
    /// received or the flow has ended. It is made by the first call.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when this process has too many open files.
    pub fn poll_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        if self.pollable.get().is_none() {
            let failed = Error::system("cannot make the flow pollable");
            let epoll = self.make_pollable().map_err(failed)?;
            let _ = self.pollable.set(epoll);
        }
        Ok(self.pollable.get().expect("it was set just now").as_fd())
    }

    fn make_pollable(&self) -> std::io::Result<Epoll> {
        let epoll = Epoll::new()?;
        epoll.add(self.data_doorbell.as_fd(), 0, Interest::Read)?;
        epoll.add(self.link.as_fd(), 1, Interest::Read)?;
        Ok(epoll)
    }

    /// Nothing was there: now and then looks whether anything will ever come.
    pub(super) fn note_empty(&mut self) -> Result<(), Error> {
        self.empty_looks += 1;
        if self.empty_looks >= LOOK_EVERY || self.ring.state() != State::Open {
            return self.check_end_now();
        }
        Ok(())
    }

    /// Asks whether the flow has ended, to be called when the ring was found empty.
    pub(super) fn check_end_now(&mut self) -> Result<(), Error> {
        self.empty_looks = 0;
        let ended = self.link.check_end();
        let state = self.ring.state();
        if !ended && state == State::Open {
            return Ok(());
        }
        // The mark of the end comes after the last SDU: look once more for what came between.
        if has_news(&mut self.ring) {
            return Ok(());
        }
        Err(if state == State::Closed {
            Error::Closed
        } else {
            self.link.failure()
        })
    }

    /// Waits until something can be received: `true`, or until the time is over: `false`.
    pub(super) fn wait(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        self.spin_then_sleep.gather(self.stats.sdus_received);
        let ring = &mut self.ring;
        if self.spin_then_sleep.until(|| has_news(ring)) {
            return Ok(true);
        }
        self.release();
        // The sleep looks at the control socket; only the ring's mark of the end wakes no reader.
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

/// Whether a look into the ring shows an SDU, or that the sender broke the ring.
fn has_news(ring: &mut Consumer) -> bool {
    ring.pending_bytes() != Ok(0)
}

/// Calls that find nothing between two looks at the control socket: few, so that a program that
/// calls ten times a second knows within a second, and enough to make the system call cheap.
const LOOK_EVERY: u32 = 8;
