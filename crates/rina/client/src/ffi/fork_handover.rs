//! Decides which process serves a control descriptor that several processes share after a fork.
//!
//! The kernel gives a forked child the descriptors of its parent, but not its threads. A program
//! may become a daemon after `rina_open`, and a server may fork for each flow. The names must stay
//! registered as long as any process holds the control descriptor, and no longer.
//!
//! Therefore the child starts a thread for each control descriptor of its parent. The thread (an
//! *heir*) sleeps until its process has to serve. All these processes share a file, and the process
//! that holds the file's lock serves. The lock ends with the process that holds it.
//!
//! ```text
//!               rina_open                                   the holder of the lock ends,
//!                   |             fork                      or has served to the end
//!                   v      (in the child only)
//!  no thread --> serving ------------------------> heir ------------------------> serving
//!                   |                                                                |
//!                   +------> the last copy of the control descriptor is closed <-----+
//! ```
//!
//! An heir knows what its parent knew at the fork. It does not learn of names registered later.

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use carina_sys::socketpair_seqpacket;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

use super::control_protocol::errno;
use super::control_service::{ControlService, ServiceSlot, serve};
use super::flow_marker::never_restart_waits;
use crate::node::Node;

type HeldLocks = (
    MutexGuard<'static, Vec<&'static ServiceSlot>>,
    Vec<MutexGuard<'static, Option<ControlService>>>,
);

static SLOTS: Mutex<Vec<&'static ServiceSlot>> = Mutex::new(Vec::new());

thread_local! {
    /// The locks of all slots, held from before a fork until after it.
    static HELD_LOCKS: RefCell<Option<HeldLocks>> = const { RefCell::new(None) };
}

/// Creates a control descriptor and starts its control service.
pub(super) fn open(node: &Node) -> Result<OwnedFd, Errno> {
    let (control, mine) = socketpair_seqpacket().map_err(errno)?;
    never_restart_waits(control.as_fd())?;
    start_service(ControlService::new(service_lock()?, node.clone(), mine))?;
    Ok(control)
}

/// Creates the lock file that the parent and its forked children share. The process that holds the
/// lock runs the control service.
fn service_lock() -> Result<OwnedFd, Errno> {
    memfd_create(c"rina-control", MemfdFlags::CLOEXEC)
}

/// Starts the thread of a new control service.
fn start_service(service: ControlService) -> Result<(), Errno> {
    static HOOKS: Once = Once::new();
    HOOKS.call_once(|| {
        // SAFETY: the three functions have the required type and are never unloaded.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    });
    let mut slots = all_slots();
    let free = slots.iter().copied().find(|slot| slot.lock().is_none());
    let slot = free.unwrap_or_else(|| {
        let slot: &'static ServiceSlot = Box::leak(Box::default());
        slots.push(slot);
        slot
    });
    acquire_service_lock(service.service_lock().as_raw_fd())?;
    *slot.lock() = Some(service);
    let started = start(move || serve(slot));
    if started.is_err() {
        *slot.lock() = None;
    }
    started
}

fn all_slots() -> MutexGuard<'static, Vec<&'static ServiceSlot>> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the lock of the file and acquires it.
fn acquire_service_lock(service_lock: RawFd) -> Result<(), Errno> {
    // SAFETY: `flock` is a structure of plain numbers, all of which may be 0.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = libc::F_WRLCK as libc::c_short;
    loop {
        // SAFETY: the call reads the structure and keeps no pointer to it.
        if unsafe { libc::fcntl(service_lock, libc::F_SETLKW, &raw const whole) } == 0 {
            return Ok(());
        }
        match errno(std::io::Error::last_os_error()) {
            Errno::INTR => {}
            error => return Err(error),
        }
    }
}

/// Starts a thread that blocks all signals, so that the application's signals go to its own
/// threads.
fn start(work: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    // SAFETY: signal sets are plain bits; both are valid for the calls.
    let before = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let started = thread::Builder::new()
        .name("rina-control".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(work);
    // SAFETY: as above; the call restores the earlier mask.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
    started.map(drop).map_err(errno)
}

/// Locks all slots, so that no control service is changing its state while the kernel copies the
/// memory.
extern "C" fn before_fork() {
    let slots = all_slots();
    let locks = slots.iter().map(|slot| slot.lock()).collect();
    HELD_LOCKS.set(Some((slots, locks)));
}

extern "C" fn in_parent() {
    HELD_LOCKS.set(None);
}

extern "C" fn in_child() {
    HELD_LOCKS.set(None);
    for slot in all_slots().iter().copied() {
        let service_lock = match &*slot.lock() {
            Some(service) => service.service_lock().as_raw_fd(),
            None => continue,
        };
        // If no thread can be started, this child never serves. The parent serves as before.
        let _ = start(move || take_over(slot, service_lock));
    }
}

/// Waits for the lock, which the parent and every earlier heir release when they end or have
/// nothing more to serve. Then serves the control descriptor.
fn take_over(slot: &'static ServiceSlot, service_lock: RawFd) {
    if acquire_service_lock(service_lock).is_err() {
        return;
    }
    let is_over = match slot.lock().as_mut() {
        Some(service) => service.drop_closed_names().is_err(),
        None => true,
    };
    if is_over {
        *slot.lock() = None;
    } else {
        serve(slot);
    }
}

/// Stack size of the thread. The thread keeps messages of 64 KiB on the heap and little on its
/// stack.
const STACK_BYTES: usize = 128 * 1024;
