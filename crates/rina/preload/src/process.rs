//! Descriptors of this process: a socket is replaced at its number, wherever that stands.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use carina_wrap::calls::Descriptors;
use rustix::io::Errno;

use crate::epoll;

/// This process.
pub(crate) struct ThisProcess;

impl Descriptors for ThisProcess {
    fn replace(&self, old: BorrowedFd<'_>, new: OwnedFd) -> Result<(), Errno> {
        let number = old.as_raw_fd();
        let flags = rustix::io::fcntl_getfd(old)?;
        let cloexec = if flags.contains(rustix::io::FdFlags::CLOEXEC) {
            libc::O_CLOEXEC
        } else {
            0
        };
        let watched = epoll::forget(number);
        // SAFETY: the program owns `number` and has asked for another socket at it by calling
        // `bind` or `connect`; no memory is involved.
        let replaced = unsafe { libc::syscall(libc::SYS_dup3, new.as_raw_fd(), number, cloexec) };
        let outcome = if replaced < 0 {
            Err(last_error())
        } else {
            Ok(())
        };
        if let Some(watched) = watched {
            epoll::watch_again(watched);
        }
        outcome
    }
}

/// A descriptor that a program passed to a call; `None` when it cannot be one.
///
/// # Safety
/// The descriptor is used during the call only. A program that closes it meanwhile gets the error
/// that the kernel has for it, or acts on its own other socket, as with a plain system call.
pub(crate) unsafe fn borrowed<'a>(number: libc::c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: not -1, and the caller's promise for the rest.
    (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
}

/// The error of the system call that failed just now.
pub(crate) fn last_error() -> Errno {
    // SAFETY: the C library gives a pointer to this thread's `errno`.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}
