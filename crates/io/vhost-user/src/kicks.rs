//! The events that wake a sleeping data path: kicks of drivers, changes of the device, and a timer
//! for rings whose driver does not kick.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use carina_sys::{Epoll, Interest};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A set of descriptors. It is readable when the data path should look at the rings.
#[derive(Debug)]
pub(crate) struct Kicks {
    epoll: Epoll,
    timer: OwnedFd,
    /// Number of rings without a descriptor for kicks.
    polled: AtomicUsize,
}

impl Kicks {
    pub(crate) fn new() -> io::Result<Kicks> {
        let epoll = Epoll::new()?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll.add(&timer, u64::MAX, Interest::ReadEdge)?;
        Ok(Kicks {
            epoll,
            timer,
            polled: AtomicUsize::new(0),
        })
    }

    /// Adds a descriptor that wakes the data path when it becomes readable.
    pub(crate) fn add(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        self.epoll.add(fd, token, Interest::ReadEdge)
    }

    /// Removes a descriptor that was added.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        // Fails only if this process has already closed the descriptor.
        let _ = self.epoll.del(fd);
    }

    /// Sets how many rings must be polled by the timer.
    pub(crate) fn poll_rings(&self, count: usize) {
        self.polled.store(count, Ordering::Relaxed);
        self.look_again();
    }

    /// Clears the events that have woken the data path, so that the next one wakes it again.
    pub(crate) fn clear_events(&self) {
        let mut ready = Vec::new();
        // An error has no consequence, because the data path looks at the rings anyway.
        let _ = self.epoll.wait(&mut ready, Some(0));
        self.look_again();
    }

    fn look_again(&self) {
        if self.polled.load(Ordering::Relaxed) == 0 {
            return;
        }
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: 0,
                tv_nsec: LOOK_EVERY_NS,
            },
        };
        // Cannot fail: this process owns the timer, and the time is valid.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }
}

impl AsFd for Kicks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Interval of the timer in nanoseconds, at which a sleeping data path polls rings whose driver
/// does not kick.
const LOOK_EVERY_NS: i64 = 250_000;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn wakes_within(kicks: &Kicks, time: Duration) -> bool {
        let mut this = [PollFd::new(kicks, PollFlags::IN)];
        let time = rustix::event::Timespec::try_from(time).unwrap();
        poll(&mut this, Some(&time)).unwrap() == 1
    }

    #[test]
    fn time_wakes_again_and_again_while_a_ring_is_polled() {
        let kicks = Kicks::new().unwrap();
        assert!(!wakes_within(&kicks, Duration::from_millis(5)));
        kicks.poll_rings(1);
        let begin = Instant::now();
        for _ in 0..20 {
            assert!(wakes_within(&kicks, Duration::from_secs(10)));
            kicks.clear_events();
        }
        assert!(
            begin.elapsed() >= Duration::from_millis(4),
            "it does not spin"
        );
        kicks.poll_rings(0);
        assert!(wakes_within(&kicks, Duration::from_secs(10)));
        kicks.clear_events();
        assert!(!wakes_within(&kicks, Duration::from_millis(5)));
    }
}
