//! Which process serves a control descriptor that several have.
//!
//! The kernel gives a forked child the descriptors of its parent but not its threads. A program may
//! still become a daemon after `rina_open`, and a server may fork for each flow: the names stay
//! registered as long as any process has the control descriptor, and no longer.
//!
//! So a child has a thread of its own for each control descriptor of its parent, which sleeps until
//! it serves. A lock on a file that all of them have decides which process serves; the lock
//! belongs to a process and ends with it.
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
//! An heir knows what its parent knew at the fork. Names registered later are not handed down.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

use super::control_protocol::errno;
use super::control_service::{ControlService, serve};

/// The place of a switchboard. It is used again and never freed, so that a fork can hold its lock
/// from one function to the next.
#[derive(Default)]
pub(super) struct ServiceSlot {
    place: Mutex<Option<ControlService>>,
}

type HeldLocks = (
    MutexGuard<'static, Vec<&'static ServiceSlot>>,
    Vec<MutexGuard<'static, Option<ControlService>>>,
);

static SLOTS: Mutex<Vec<&'static ServiceSlot>> = Mutex::new(Vec::new());

thread_local! {
    /// All locks, from before a fork until after it.
    static HELD_LOCKS: RefCell<Option<HeldLocks>> = const { RefCell::new(None) };
}

impl ServiceSlot {
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<ControlService>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the file whose lock decides which process serves.
pub(super) fn service_lock() -> Result<OwnedFd, Errno> {
    memfd_create(c"rina-control", MemfdFlags::CLOEXEC)
}

/// Starts the thread of a new switchboard.
pub(super) fn start_service(service: ControlService) -> Result<(), Errno> {
    static HOOKS: Once = Once::new();
    HOOKS.call_once(|| {
        // SAFETY: the three functions are of the kind that is asked for and live for ever.
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

/// Waits for the lock of the file and takes it.
fn acquire_service_lock(service_lock: RawFd) -> Result<(), Errno> {
    // SAFETY: a structure of plain numbers, all of which may be 0.
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

/// Starts a thread to which no signal of the application goes.
fn start(work: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
    // SAFETY: sets of signals are plain bits; both are valid for the calls.
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
    // SAFETY: as above; it puts back what was.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
    started.map(drop).map_err(errno)
}

/// No switchboard is in the middle of anything while the memory is copied.
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
        // Without a thread to spare the child is no heir; the parent goes on all the same.
        let _ = start(move || take_over(slot, service_lock));
    }
}

/// Waits until the parent, and every heir before this one, has ended or has nothing to serve.
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

/// The thread holds a message of 64 KiB on the heap and little on its stack.
const STACK_BYTES: usize = 128 * 1024;
