//! An eventfd as a doorbell between threads and processes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// A non-blocking eventfd: any number of signals collapse into one readable state.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// Makes an eventfd that does not ring.
    ///
    /// # Errors
    /// The kernel's refusal, usually because the process has too many open files.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd })
    }

    /// Takes an eventfd received from another process.
    ///
    /// The open file is shared with the peer, which may clear its non-blocking mark and fill its
    /// counter at any time; [`EventFd::signal`] would then block until it is drained.
    ///
    /// # Errors
    /// The kernel refuses to set the non-blocking mark.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self { fd })
    }

    /// Rings the doorbell. A full counter is already readable, and a missing peer is no error.
    pub fn signal(&self) {
        // On a valid eventfd this fails only if the counter would overflow, and then it is readable
        // already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Silences the doorbell. Returns how often it was rung; 0 if it was silent.
    ///
    /// Does not block even if a peer has cleared the non-blocking mark of the shared open file.
    pub fn drain(&self) -> u64 {
        use rustix::io::{ReadWriteFlags, preadv2};
        let mut count = [0; 8];
        loop {
            let mut parts = [io::IoSliceMut::new(&mut count)];
            // Offset -1 reads a stream. The flag makes this one call non-blocking.
            match preadv2(&self.fd, &mut parts, u64::MAX, ReadWriteFlags::NOWAIT) {
                Ok(8) => return u64::from_ne_bytes(count),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
                _ => return 0,
            }
        }
        // Kernels before 5.9 support only the mark of the open file.
        match rustix::io::read(&self.fd, &mut count) {
            Ok(8) => u64::from_ne_bytes(count),
            _ => 0,
        }
    }

    /// Waits until the doorbell rings or `timeout_ns` has passed; `None` waits forever. Returns
    /// whether it rings, and does not silence it.
    ///
    /// # Errors
    /// The kernel's refusal to poll. If a signal interrupts the wait, the result is `false`.
    pub fn wait(&self, timeout_ns: Option<u64>) -> io::Result<bool> {
        wait_readable(self.fd.as_fd(), timeout_ns)
    }

    /// Makes a second descriptor of the same eventfd.
    ///
    /// # Errors
    /// The kernel's refusal, usually because the process has too many open files.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
        })
    }

    /// Converts the eventfd into its descriptor.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// Waits until a descriptor is readable or `timeout_ns` has passed. Returns whether it is readable.
///
/// # Errors
/// The kernel's refusal to poll. If a signal interrupts the wait, the result is `false`.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, timeout_ns: Option<u64>) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = timeout_ns.map(|ns| Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    });
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    match poll(&mut fds, timeout.as_ref()) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_collapse_and_drain_silences() {
        let doorbell = EventFd::new().unwrap();
        assert!(!doorbell.wait(Some(0)).unwrap());
        assert_eq!(doorbell.drain(), 0);
        doorbell.signal();
        doorbell.signal();
        assert!(doorbell.wait(Some(0)).unwrap());
        assert_eq!(doorbell.drain(), 2);
        assert!(!doorbell.wait(Some(0)).unwrap());
    }

    #[test]
    fn full_counter_still_rings_and_never_blocks() {
        let doorbell = EventFd::new().unwrap();
        rustix::io::write(&doorbell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        doorbell.signal();
        assert!(doorbell.wait(Some(0)).unwrap());
    }

    #[test]
    fn drain_does_not_block_when_the_peer_cleared_the_mark() {
        let doorbell = EventFd::new().unwrap();
        let flags = rustix::fs::fcntl_getfl(&doorbell).unwrap();
        rustix::fs::fcntl_setfl(&doorbell, flags - rustix::fs::OFlags::NONBLOCK).unwrap();
        assert_eq!(doorbell.drain(), 0);
        doorbell.signal();
        assert_eq!(doorbell.drain(), 1);
    }

    #[test]
    fn received_descriptor_becomes_non_blocking() {
        let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        assert_eq!(EventFd::from_fd(fd).unwrap().drain(), 0);
    }
}
