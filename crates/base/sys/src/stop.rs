//! The wish of a person or a service manager that a program ends, as a descriptor.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Readable once SIGINT or SIGTERM has come, or SIGHUP where that is asked for. They are blocked
/// for the calling thread and those it makes afterwards.
#[derive(Debug)]
pub struct StopSignal {
    fd: OwnedFd,
}

impl StopSignal {
    /// Waits for SIGINT and SIGTERM from here on.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn new() -> io::Result<StopSignal> {
        Self::of(&[libc::SIGINT, libc::SIGTERM])
    }

    /// Waits for SIGHUP too, as a program does that lives on a terminal. One that may go on
    /// without must not: a signal that `nohup` has it ignore would end it.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn or_hangup() -> io::Result<StopSignal> {
        Self::of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
    }

    fn of(signals: &[libc::c_int]) -> io::Result<StopSignal> {
        // SAFETY: the set is a local, made empty before signals are added; a null old set is
        // allowed.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor; nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(StopSignal { fd })
    }
}

impl AsFd for StopSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// SIGHUP as the wish that a program reads its configuration again. It is blocked for the calling
/// thread and those it makes afterwards.
#[derive(Debug)]
pub struct ReloadSignal {
    signal: StopSignal,
}

impl ReloadSignal {
    /// Waits for SIGHUP from here on.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn new() -> io::Result<ReloadSignal> {
        let signal = StopSignal::of(&[libc::SIGHUP])?;
        Ok(ReloadSignal { signal })
    }

    /// Whether it has come since this was last asked.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn has_come(&self) -> io::Result<bool> {
        let mut what = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.signal, &mut what) {
            Ok(bytes) => Ok(bytes > 0),
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
