//! The descriptors of this process: a flow takes the descriptor number of the program's socket.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use carina_wrap::calls::Descriptors;
use carina_wrap::settings::Settings;
use rustix::io::Errno;

use crate::{epoll, relay_process};

/// The calling process, whose descriptors are replaced.
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

    fn any(&self, is_wanted: &dyn Fn(BorrowedFd<'_>) -> bool) -> bool {
        (0..NUMBERS_MAX).any(|number| {
            // SAFETY: the descriptor is used during this call only.
            unsafe { borrowed(number) }.is_some_and(is_wanted)
        })
    }

    fn relay(&self, end: OwnedFd, settings: &Settings) -> Result<(), Errno> {
        relay_process::start(&end, settings)
    }
}

/// Borrows a descriptor that a program passed to a call; `None` when the number cannot be a
/// descriptor.
///
/// # Safety
/// The descriptor is used during the call only. A program that closes it meanwhile gets the error
/// that the kernel has for it, or acts on its own other socket, as with a plain system call.
pub(crate) unsafe fn borrowed<'a>(number: libc::c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: not -1, and the caller's promise for the rest.
    (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
}

/// Descriptor numbers below this are looked at: programs listen on low ones, and pass low ones on.
const NUMBERS_MAX: libc::c_int = 1024;

/// Returns the error of the last system call that failed in this thread.
pub(crate) fn last_error() -> Errno {
    // SAFETY: the C library gives a pointer to this thread's `errno`.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}
