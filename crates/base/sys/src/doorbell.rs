//! A doorbell that another holder cannot block.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{Epoll, Interest};

/// A doorbell between processes that do not trust each other: any number of signals collapse into
/// one readable state.
///
/// It is a pipe. Each holder has an open file of its own for it, for reading and writing. The
/// non-blocking mark belongs to the open file, so no holder can clear it for another. A doorbell
/// that a peer has filled completely is readable, so it rings already. (An eventfd cannot be opened
/// a second time; its holders share the mark.) As holders are readers too, none gets `SIGPIPE` when
/// the others are gone.
#[derive(Debug)]
pub struct Doorbell {
    fd: OwnedFd,
}

impl Doorbell {
    /// Makes a doorbell that does not ring.
    ///
    /// # Errors
    /// The kernel's refusal: too many open files, or no `/proc`.
    pub fn new() -> io::Result<Self> {
        let (reader, _writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        open_again(reader.as_fd())
    }

    /// Takes a doorbell received from another process, which must have sent a descriptor made by
    /// [`Doorbell::reopen`].
    ///
    /// # Errors
    /// `InvalidInput` if it is not a pipe; the kernel refuses to set the non-blocking mark.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
        if kind != rustix::fs::FileType::Fifo {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a doorbell must be a pipe, this is {kind:?}"),
            ));
        }
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        Ok(Self { fd })
    }

    /// Rings the doorbell. Never blocks: a full pipe rings already.
    pub fn signal(&self) {
        let _ = rustix::io::write(&self.fd, &[1]);
    }

    /// Silences the doorbell. Returns how often it was rung, at most 65,536; 0 if it was silent.
    pub fn drain(&self) -> usize {
        let (mut count, mut rings) = (0, [0; 512]);
        while count < DRAIN_MAX {
            match rustix::io::read(&self.fd, &mut rings) {
                Ok(read) => {
                    count += read;
                    if read < rings.len() {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        count
    }

    /// Waits until the doorbell rings or `timeout_ns` has passed; `None` waits forever. Returns
    /// whether it rings, and does not silence it.
    ///
    /// # Errors
    /// The kernel's refusal to poll. If a signal interrupts the wait, the result is `false`.
    pub fn wait(&self, timeout_ns: Option<u64>) -> io::Result<bool> {
        crate::eventfd::wait_readable(self.fd.as_fd(), timeout_ns)
    }

    /// Makes a second descriptor of the same open file, for use within this process only.
    ///
    /// # Errors
    /// The kernel's refusal, usually that the process has too many open files.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
        })
    }

    /// Opens the doorbell again, as an open file to send to another process.
    ///
    /// # Errors
    /// The kernel's refusal: too many open files, or no `/proc`.
    pub fn reopen(&self) -> io::Result<OwnedFd> {
        open_again(self.fd.as_fd()).map(|doorbell| doorbell.fd)
    }
}

/// Whether an edge-triggered [`Epoll`] reports each ring of a doorbell that has not been silenced.
/// Kernels 5.5 to 5.13 without later fixes report only the first ring. The test runs once per
/// process.
#[must_use]
pub fn doorbells_ring_again() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| try_to_ring_again().unwrap_or(false))
}

fn try_to_ring_again() -> io::Result<bool> {
    let (doorbell, set, mut ready) = (Doorbell::new()?, Epoll::new()?, Vec::new());
    set.add(&doorbell, 0, Interest::ReadEdge)?;
    for _ in 0..2 {
        doorbell.signal();
        set.wait(&mut ready, Some(0))?;
        if ready.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Doorbell {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn open_again(pipe: BorrowedFd<'_>) -> io::Result<Doorbell> {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&path, flags, Mode::empty()).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{path}: {error}"))
    })?;
    Ok(Doorbell { fd })
}

/// Default capacity of a pipe in bytes; one call silences at most this many rings.
const DRAIN_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_collapse_and_drain_silences() {
        let doorbell = Doorbell::new().unwrap();
        assert!(!doorbell.wait(Some(0)).unwrap());
        assert_eq!(doorbell.drain(), 0);
        doorbell.signal();
        doorbell.signal();
        assert!(doorbell.wait(Some(0)).unwrap());
        assert_eq!(doorbell.drain(), 2);
        assert!(!doorbell.wait(Some(0)).unwrap());
    }

    #[test]
    fn holder_that_jams_its_own_file_blocks_no_other() {
        let doorbell = Doorbell::new().unwrap();
        let hostile = doorbell.reopen().unwrap();
        while rustix::io::write(&hostile, &[0; 4096]).is_ok() {}
        let flags = rustix::fs::fcntl_getfl(&hostile).unwrap();
        rustix::fs::fcntl_setfl(&hostile, flags - OFlags::NONBLOCK).unwrap();
        doorbell.signal();
        assert!(doorbell.wait(Some(0)).unwrap());
        assert_eq!(doorbell.drain(), DRAIN_MAX);
        assert_eq!(doorbell.drain(), 0);
    }

    #[test]
    fn the_last_holder_may_ring_on() {
        let doorbell = Doorbell::new().unwrap();
        let other = Doorbell::from_fd(doorbell.reopen().unwrap()).unwrap();
        drop(doorbell);
        other.signal();
        assert_eq!(other.drain(), 1);
    }

    #[test]
    fn something_else_is_no_doorbell() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = Doorbell::from_fd(file.into()).unwrap_err();
        assert!(error.to_string().contains("must be a pipe"), "{error}");
    }
}
