//! Keeps a socket in the epoll to which a program added it before `connect`, as nginx does.
//!
//! An epoll watches the open file, not the descriptor number. When a flow replaces a socket, its
//! file must therefore be added. This module remembers the last request for each number. It uses
//! the request only if the kernel can remove the old file, which shows that the epoll still
//! watched it.

use std::os::fd::RawFd;

use carina_wrap::watched::{Watched, WatchedSockets};
use libc::{c_int, epoll_event};

/// The requests of this process. A child of `fork` has those of its parent.
static WATCHED: WatchedSockets = WatchedSockets::new();

/// `epoll_ctl(2)`: also remembers the sockets that a program adds or changes.
///
/// # Safety
/// As of `epoll_ctl(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    socket: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the arguments are the caller's, and the kernel checks them.
    let done = unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, operation, socket, event) };
    let is_change = operation == libc::EPOLL_CTL_ADD || operation == libc::EPOLL_CTL_MOD;
    if done == 0 && is_change && crate::wrap().is_some() {
        // SAFETY: the kernel has just read the event through this pointer.
        let event = unsafe { std::ptr::read_unaligned(event) };
        let (events, data) = (event.events, event.u64);
        WATCHED.note(Watched {
            epoll,
            socket,
            events,
            data,
        });
    }
    done as c_int
}

/// Removes a socket from the epoll that watches it, and returns what was watched; `None` if none
/// watches it.
pub(crate) fn forget(socket: RawFd) -> Option<Watched> {
    let watched = WATCHED.take(socket)?;
    let mut event = epoll_event { events: 0, u64: 0 };
    // SAFETY: the event is a local; the kernel checks both descriptors.
    let removed = unsafe {
        libc::syscall(
            libc::SYS_epoll_ctl,
            watched.epoll,
            libc::EPOLL_CTL_DEL,
            socket,
            &raw mut event,
        )
    };
    (removed == 0).then_some(watched)
}

/// Adds the file that now has the socket's number to the epoll.
pub(crate) fn watch_again(watched: Watched) {
    let mut event = epoll_event {
        events: watched.events,
        u64: watched.data,
    };
    // SAFETY: as above.
    let added = unsafe {
        libc::syscall(
            libc::SYS_epoll_ctl,
            watched.epoll,
            libc::EPOLL_CTL_ADD,
            watched.socket,
            &raw mut event,
        )
    };
    if added == 0 {
        WATCHED.note(watched);
    }
}
