//! The doorbell of a network whose neighbours are on other threads.

use std::io;

use carina_ring::between::SleepFlag;
use carina_sys::EventFd;

/// Rung by those that put frames on a link to a network that sleeps.
#[derive(Debug)]
pub(super) struct Bell {
    flag: SleepFlag,
    doorbell: EventFd,
}

impl Bell {
    pub(super) fn new() -> io::Result<Bell> {
        Ok(Bell {
            flag: SleepFlag::new(),
            doorbell: EventFd::new()?,
        })
    }

    /// Frames were published: rings when the network sleeps.
    #[inline]
    pub(super) fn ring(&self) {
        if self.flag.must_ring() {
            self.doorbell.signal();
        }
    }

    /// The network is about to sleep, unless it finds frames now.
    pub(super) fn announce_sleep(&self) {
        self.flag.announce();
    }

    pub(super) fn withdraw(&self) {
        self.flag.withdraw();
    }

    pub(super) fn doorbell(&self) -> &EventFd {
        &self.doorbell
    }
}
