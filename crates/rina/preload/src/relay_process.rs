//! Starts the process of a relay, `carina wrap --relay`.
//!
//! ```text
//!  program -- clone, no signal at its end --> child -- clone --> the relay, in its own session
//!     |                                         |
//!     +-- waits for ----------------------------+ ends at once
//! ```
//!
//! The program must not learn of the new processes: the child has no signal at its end, so that
//! `wait` does not report it, and the relay is no child of the program. A relay has none of the
//! program's descriptors.

use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use carina_wrap::settings::{Settings, VARIABLE};
use libc::{c_int, c_long, sigset_t};
use rustix::io::Errno;

/// Starts the relay at `end`.
///
/// # Errors
/// `EOPNOTSUPP` without a path of `carina`; the kernel's refusal.
pub(crate) fn start(end: &OwnedFd, settings: &Settings) -> Result<(), Errno> {
    let unsupported = Errno::OPNOTSUPP;
    let carina = settings.carina.as_ref().ok_or(unsupported)?;
    let carina = CString::new(carina.as_os_str().as_bytes()).map_err(|_| unsupported)?;
    let settings = settings.encode().map_err(|_| unsupported)?;
    let settings = CString::new(format!("{VARIABLE}={settings}")).map_err(|_| unsupported)?;
    let words = [
        c"carina".as_ptr(),
        c"wrap".as_ptr(),
        c"--relay".as_ptr(),
        ptr::null(),
    ];
    let env = [settings.as_ptr(), ptr::null()];
    // SAFETY: for the two sets of signals zero is a value, and the calls write only these.
    let (all, mut old): (sigset_t, sigset_t) = unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        (all, std::mem::zeroed())
    };
    // SAFETY: as above. No handler of the program may run in the child.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old) };
    // SAFETY: the child has a copy of this memory, in which no other thread runs: it makes system
    // calls only, and never returns from here.
    let child = unsafe { clone(0) };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            if clone(libc::SIGCHLD) == 0 {
                become_relay(
                    end.as_raw_fd(),
                    carina.as_ptr(),
                    words.as_ptr(),
                    env.as_ptr(),
                    &old,
                );
            }
            libc::syscall(libc::SYS_exit_group, 0);
        }
    }
    let outcome = if child < 0 {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::NOMEM))
    } else {
        Ok(())
    };
    if child > 0 {
        // SAFETY: no memory is involved.
        unsafe { libc::waitpid(child as c_int, ptr::null_mut(), libc::__WCLONE) };
    }
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, ptr::null_mut()) };
    outcome
}

/// A copy of this process, as by `fork`, but without the handlers of `pthread_atfork`.
///
/// # Safety
/// The child makes system calls only.
unsafe fn clone(signal_at_end: c_int) -> c_long {
    // SAFETY: without a stack the child uses its copy of this one.
    unsafe { libc::syscall(libc::SYS_clone, signal_at_end, 0, 0, 0, 0) }
}

/// Becomes the relay; returns only if that fails.
///
/// # Safety
/// Called in the child only; the pointers are those of `execve(2)`.
unsafe fn become_relay(
    end: RawFd,
    carina: *const c_char,
    words: *const *const c_char,
    env: *const *const c_char,
    mask: &sigset_t,
) {
    // SAFETY: these are system calls on descriptors and on the caller's pointers.
    unsafe {
        if end == 0 {
            libc::syscall(libc::SYS_fcntl, 0, libc::F_SETFD, 0);
        } else {
            libc::syscall(libc::SYS_dup3, end, 0, 0);
        }
        let null = libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            c"/dev/null".as_ptr(),
            libc::O_RDWR,
        ) as c_int;
        for output in [1, 2] {
            if null != output {
                libc::syscall(libc::SYS_dup3, null, output, 0);
            }
        }
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
        libc::syscall(libc::SYS_setsid);
        libc::syscall(libc::SYS_chdir, c"/".as_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut());
        libc::syscall(libc::SYS_execve, carina, words, env);
    }
}
