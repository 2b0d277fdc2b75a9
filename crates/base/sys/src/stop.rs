//! Signals by which a person or a service manager asks a program to stop or to reload, as
//! descriptors.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A descriptor that becomes readable when SIGINT or SIGTERM arrives, or SIGHUP if requested. These
/// signals are blocked for the calling thread and for threads that it starts afterwards.
#[derive(Debug)]
pub struct StopSignal {
    fd: OwnedFd,
}

impl StopSignal {
    /// Blocks SIGINT and SIGTERM, and waits for them from now on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new() -> io::Result<StopSignal> {
        Self::of(&[libc::SIGINT, libc::SIGTERM])
    }

    /// Like [`StopSignal::new`], but waits for SIGHUP too, for a program that cannot continue
    /// without its terminal. Other programs must not use it: a SIGHUP that `nohup` makes them
    /// ignore would stop them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn or_hangup() -> io::Result<StopSignal> {
        Self::of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
    }

    fn of(signals: &[libc::c_int]) -> io::Result<StopSignal> {
        let set = set_of(signals);
        // SAFETY: the set is a local; a null old set is allowed.
        let fd = unsafe {
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

/// Lets SIGINT, SIGTERM and SIGHUP reach the process of this command. A new process inherits the
/// signals that the thread which starts it blocks, and [`StopSignal`] blocks these.
pub fn unblock_stop_signals(command: &mut Command) -> &mut Command {
    let prepare = || {
        let set = set_of(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
        // SAFETY: the set is a local; a null old set is allowed.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
        Ok(())
    };
    // SAFETY: between fork and exec the closure calls only functions of signal sets, which are
    // async-signal-safe, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) }
}

/// The set of these signals. Makes no system call and takes no lock.
fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: zero is a value of a set, which is made empty before signals are added.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

impl AsFd for StopSignal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A descriptor that becomes readable when SIGHUP asks the program to read its configuration again.
/// The signal is blocked for the calling thread and for threads that it starts afterwards.
#[derive(Debug)]
pub struct ReloadSignal {
    signal: StopSignal,
}

impl ReloadSignal {
    /// Blocks SIGHUP, and waits for it from now on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new() -> io::Result<ReloadSignal> {
        let signal = StopSignal::of(&[libc::SIGHUP])?;
        Ok(ReloadSignal { signal })
    }

    /// Whether SIGHUP has arrived since the last call.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn has_come(&self) -> io::Result<bool> {
        let mut what = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.signal, &mut what) {
            Ok(bytes) => Ok(bytes > 0),
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
