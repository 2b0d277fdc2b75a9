//! The library that `carina wrap` puts into a program with `LD_PRELOAD`. It replaces the functions
//! of the C library that use socket addresses or start programs. Each function asks [`carina_wrap`]
//! first, and does what the C library would do if the socket is neither a flow nor a registration
//! of Carina.
//!
//! ```text
//!  program -- connect(fd, address) --> this library -- Wrap::connect --> Done: the answer
//!                                           |
//!                                           +-- Kernel: the system call, with the same arguments
//! ```
//!
//! The library has no threads and opens no descriptor that outlives a call. It keeps the settings
//! in memory, read once, and two kinds of hints: which sockets the program has put into which
//! epoll, and which numbers were listening or relayed sockets. A datagram socket with many peers
//! has a process of its own beside the program, the relay.

mod address;
mod calls;
mod epoll;
mod exec;
mod exec_descriptor;
mod exec_environment;
mod exec_lists;
mod exec_words;
mod listeners;
mod lookup;
mod messages;
mod options;
mod process;
mod relay_process;
mod relayed;

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use carina_wrap::calls::Wrap;
use carina_wrap::settings::{Settings, VARIABLE};
use libc::c_int;
use rustix::io::Errno;

/// Returns the `Wrap` for the settings in the environment; `None` when the program is not wrapped.
///
/// The first call reads the settings, without a lock: in a child that was forked while another
/// thread held the lock, this function would never return.
fn wrap() -> Option<&'static Wrap> {
    let known = WRAP.load(Ordering::Acquire);
    if !known.is_null() {
        // SAFETY: a pointer in `WRAP` came from `Box::into_raw`, and its box is never freed.
        return unsafe { (*known).as_ref() };
    }
    let made = Box::into_raw(Box::new(read_settings()));
    let (now, other) = (Ordering::AcqRel, Ordering::Acquire);
    let first = match WRAP.compare_exchange(ptr::null_mut(), made, now, other) {
        Ok(_) => made,
        Err(first) => {
            // SAFETY: another thread was first, so `made` is in no other place.
            drop(unsafe { Box::from_raw(made) });
            first
        }
    };
    // SAFETY: as above.
    unsafe { (*first).as_ref() }
}

/// The settings, once they have been read.
static WRAP: AtomicPtr<Option<Wrap>> = AtomicPtr::new(ptr::null_mut());

fn read_settings() -> Option<Wrap> {
    let text = std::env::var(VARIABLE).ok()?;
    match Settings::decode(&text) {
        Ok(settings) => Some(Wrap::new(settings)),
        Err(error) => {
            eprintln!(
                "carina wrap: the environment variable {VARIABLE} has been changed since carina \
                 wrap set it: {error}"
            );
            None
        }
    }
}

/// Converts a result to that of a C function: the value, or -1 with `errno` set.
fn result(outcome: Result<c_int, Errno>) -> c_int {
    match outcome {
        Ok(value) => value,
        Err(error) => {
            // SAFETY: the C library gives a pointer to this thread's `errno`.
            unsafe { *libc::__errno_location() = error.raw_os_error() };
            -1
        }
    }
}
