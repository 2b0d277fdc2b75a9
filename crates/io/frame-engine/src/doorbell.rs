//! The doorbell of a network that has neighbours on other threads.

use std::io;

use carina_ring::between::SleepFlag;
use carina_sys::EventFd;

/// A doorbell. Threads that put frames on a link to a sleeping network ring it.
#[derive(Debug)]
pub(super) struct NetworkDoorbell {
    flag: SleepFlag,
    event: EventFd,
}

impl NetworkDoorbell {
    pub(super) fn new() -> io::Result<NetworkDoorbell> {
        Ok(NetworkDoorbell {
            flag: SleepFlag::new(),
            event: EventFd::new()?,
        })
    }

    /// Rings if the network sleeps; called after frames were published.
    #[inline]
    pub(super) fn ring(&self) {
        if self.flag.must_ring() {
            self.event.signal();
        }
    }

    /// Announces that the network will sleep, unless it finds frames in a last check.
    pub(super) fn announce_sleep(&self) {
        self.flag.announce();
    }

    pub(super) fn withdraw(&self) {
        self.flag.withdraw();
    }

    pub(super) fn event(&self) -> &EventFd {
        &self.event
    }
}
