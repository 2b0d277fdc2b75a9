//! Waiting for many descriptors at once.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

/// The events to wait for on a descriptor. Errors and hang-up are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Readable, as long as bytes wait.
    Read,
    /// Writable, as long as there is room.
    Write,
    /// Readable or writable.
    ReadWrite,
    /// Readable, reported once per change; the reader need not drain the descriptor.
    ReadEdge,
    /// Readable, writable or hung up, reported once per change.
    ReadWriteEdge,
    /// Errors and hang-up only, reported once per change.
    HangUpEdge,
}

/// A descriptor of an [`Epoll`] that is ready, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token that the caller gave to [`Epoll::add`].
    pub token: u64,
    /// Whether the descriptor can be read without blocking (end of file included).
    pub readable: bool,
    /// Whether the descriptor can be written without blocking.
    pub writable: bool,
    /// Whether the peer hung up or the descriptor has an error.
    pub hangup: bool,
}

/// An epoll instance: descriptors to wait for, each with a `u64` token that the caller chose.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// Makes an epoll instance without descriptors.
    ///
    /// # Errors
    /// The kernel's refusal, usually because the process has too many open files.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            fd: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        })
    }

    /// Adds a descriptor. [`Ready`] returns `token` when it is ready.
    ///
    /// # Errors
    /// The kernel's refusal: the descriptor was added before, or cannot be polled.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        epoll::add(
            &self.fd,
            fd,
            epoll::EventData::new_u64(token),
            flags(interest),
        )?;
        Ok(())
    }

    /// Changes token or interest of a descriptor that was added.
    ///
    /// # Errors
    /// The kernel's refusal: the descriptor was never added.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        epoll::modify(
            &self.fd,
            fd,
            epoll::EventData::new_u64(token),
            flags(interest),
        )?;
        Ok(())
    }

    /// Removes a descriptor. Do this before closing it: a duplicate held elsewhere would keep the
    /// entry alive.
    ///
    /// # Errors
    /// The kernel's refusal: the descriptor was never added.
    pub fn del(&self, fd: impl AsFd) -> io::Result<()> {
        epoll::delete(&self.fd, fd)?;
        Ok(())
    }

    /// Waits until a descriptor is ready or `timeout_ns` has passed; `None` waits forever. Clears
    /// `ready`, then puts up to 64 ready descriptors into it.
    ///
    /// If a signal interrupts the wait, it returns early with none.
    ///
    /// # Errors
    /// The kernel's refusal to wait.
    pub fn wait(&self, ready: &mut Vec<Ready>, timeout_ns: Option<u64>) -> io::Result<()> {
        ready.clear();
        let mut timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        // epoll_pwait counts in milliseconds and rounds up. The call that counts in nanoseconds
        // does not exist in all kernels in use.
        if timeout_ns.is_some_and(|ns| 0 < ns && ns < SHORT_NS) {
            let mut this = [PollFd::new(&self.fd, PollFlags::IN)];
            match poll(&mut this, timeout.as_ref()) {
                Ok(0) | Err(Errno::INTR) => return Ok(()),
                Ok(_) => timeout = Some(Timespec::default()),
                Err(error) => return Err(error.into()),
            }
        }
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 64];
        let events = match epoll::wait(&self.fd, &mut events[..], timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        ready.extend(events.iter().map(|event| {
            let (data, flags) = (event.data, event.flags);
            let broken = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            Ready {
                token: data.u64(),
                readable: flags.contains(epoll::EventFlags::IN) || broken,
                writable: flags.contains(epoll::EventFlags::OUT),
                hangup: broken || flags.contains(epoll::EventFlags::RDHUP),
            }
        }));
        Ok(())
    }
}

/// Waits shorter than this, in ns, must not be rounded up to milliseconds.
const SHORT_NS: u64 = 20_000_000;

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    use epoll::EventFlags;
    match interest {
        Interest::Read => EventFlags::IN | EventFlags::RDHUP,
        Interest::Write => EventFlags::OUT,
        Interest::ReadWrite => EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP,
        Interest::ReadEdge => EventFlags::IN | EventFlags::ET,
        Interest::ReadWriteEdge => {
            EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
        }
        Interest::HangUpEdge => EventFlags::ET,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventFd, socketpair_seqpacket};

    #[test]
    fn ready_descriptor_reports_its_token() {
        let (epoll, doorbell) = (Epoll::new().unwrap(), EventFd::new().unwrap());
        let mut ready = Vec::new();
        epoll
            .add(&doorbell, 0xdead_beef_0000_0001, Interest::Read)
            .unwrap();
        epoll.wait(&mut ready, Some(0)).unwrap();
        assert!(ready.is_empty());
        doorbell.signal();
        epoll.wait(&mut ready, None).unwrap();
        assert_eq!(ready.len(), 1);
        assert_eq!(ready[0].token, 0xdead_beef_0000_0001);
        assert!(ready[0].readable && !ready[0].hangup);
        epoll.del(&doorbell).unwrap();
        epoll.wait(&mut ready, Some(0)).unwrap();
        assert!(ready.is_empty());
    }

    #[test]
    fn short_wait_ends_by_itself_and_by_what_is_ready() {
        let (epoll, doorbell) = (Epoll::new().unwrap(), EventFd::new().unwrap());
        let mut ready = Vec::new();
        epoll.add(&doorbell, 5, Interest::ReadEdge).unwrap();
        epoll.wait(&mut ready, Some(50_000)).unwrap();
        assert!(ready.is_empty());
        doorbell.signal();
        epoll.wait(&mut ready, Some(SHORT_NS - 1)).unwrap();
        assert_eq!(ready.len(), 1);
        epoll.wait(&mut ready, Some(50_000)).unwrap();
        assert!(ready.is_empty());
    }

    #[test]
    fn edge_interest_reports_each_signal_once_without_drain() {
        let (epoll, doorbell) = (Epoll::new().unwrap(), EventFd::new().unwrap());
        let mut ready = Vec::new();
        epoll.add(&doorbell, 1, Interest::ReadEdge).unwrap();
        for _ in 0..3 {
            doorbell.signal();
            epoll.wait(&mut ready, Some(0)).unwrap();
            assert_eq!(ready.len(), 1);
            epoll.wait(&mut ready, Some(0)).unwrap();
            assert!(ready.is_empty());
        }
    }

    #[test]
    fn closed_peer_is_a_hangup() {
        let epoll = Epoll::new().unwrap();
        let (mine, theirs) = socketpair_seqpacket().unwrap();
        epoll.add(&mine, 9, Interest::Read).unwrap();
        drop(theirs);
        let mut ready = Vec::new();
        epoll.wait(&mut ready, Some(1_000_000_000)).unwrap();
        assert!(ready[0].hangup && ready[0].readable);
    }

    #[test]
    fn timeout_ends_the_wait() {
        let before = crate::monotonic_ns();
        let mut ready = Vec::new();
        Epoll::new()
            .unwrap()
            .wait(&mut ready, Some(2_000_000))
            .unwrap();
        assert!(ready.is_empty() && crate::monotonic_ns() - before >= 2_000_000);
    }
}
