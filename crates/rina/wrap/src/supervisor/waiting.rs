//! Calls that take time, and the thread that watches them.
//!
//! | what waits | where | time limit |
//! |---|---|---|
//! | `accept`, `recvfrom` on a blocking socket | in a list, without a thread | `SO_RCVTIMEO` |
//! | `connect`, `bind` | in a thread of the supervisor | the limits of the kernel and the node |
//! | a flow whose `accept` a signal interrupted | in a list | 5 s |
//!
//! Every 100 ms the watching thread asks the kernel which programs still wait, and ends the calls
//! for which no program waits any more.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_seccomp::{Notification, interrupt};
use carina_sys::EventFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_timeout};
use rustix::process::Pid;
use rustix::thread::gettid;

use crate::calls::Accepted;

/// A call that waits for a flow or a datagram, without a thread.
pub(super) struct Parked {
    pub notification: Notification,
    pub socket: OwnedFd,
    deadline: Option<Instant>,
}

/// All calls that wait, and the flows that were not delivered.
pub(super) struct Waiting {
    parked: Mutex<Vec<Parked>>,
    busy: Mutex<HashMap<u64, Pid>>,
    untaken: Mutex<Vec<(u64, Instant, Accepted)>>,
    /// Wakes the thread that watches; without anything to watch, it sleeps without a limit.
    wakeup: EventFd,
    is_asleep: AtomicBool,
    is_over: AtomicBool,
}

impl Waiting {
    pub(super) fn new() -> std::io::Result<Waiting> {
        Ok(Waiting {
            parked: Mutex::default(),
            busy: Mutex::default(),
            untaken: Mutex::default(),
            wakeup: EventFd::new()?,
            is_asleep: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    }

    /// Keeps a call until its socket is readable.
    ///
    /// # Errors
    /// `ENOBUFS`: the largest number of calls waits already.
    pub(super) fn park(&self, notification: Notification, socket: OwnedFd) -> Result<(), Errno> {
        let limit = socket_timeout(&socket, Timeout::Recv).ok().flatten();
        let mut parked = lock(&self.parked);
        if parked.len() >= PARKED_MAX {
            return Err(Errno::NOBUFS);
        }
        parked.push(Parked {
            notification,
            socket,
            deadline: limit.and_then(|limit| Instant::now().checked_add(limit)),
        });
        drop(parked);
        self.wakeup.signal();
        Ok(())
    }

    /// Runs `act`, which may block. If the program no longer waits for call `id`, the watching
    /// thread interrupts it.
    pub(super) fn busy<T>(&self, id: u64, act: impl FnOnce() -> T) -> T {
        lock(&self.busy).insert(id, gettid());
        if self.is_asleep.load(Ordering::SeqCst) {
            self.wakeup.signal();
        }
        let done = act();
        lock(&self.busy).remove(&id);
        done
    }

    /// Keeps a flow that could not be delivered to the program, for its next `accept` on this
    /// socket.
    pub(super) fn keep(&self, socket: BorrowedFd<'_>, accepted: Accepted) {
        let mut untaken = lock(&self.untaken);
        if let Some(socket) = identity(socket)
            && untaken.len() < UNTAKEN_MAX
        {
            untaken.push((socket, Instant::now() + UNTAKEN_LIMIT, accepted));
            self.wakeup.signal();
        }
    }

    /// Removes and returns the flow that was kept for this socket; `None` if no flow was kept.
    pub(super) fn kept(&self, socket: BorrowedFd<'_>) -> Option<Accepted> {
        let mut untaken = lock(&self.untaken);
        if untaken.is_empty() {
            return None;
        }
        let socket = identity(socket)?;
        let at = untaken.iter().position(|(of, ..)| *of == socket)?;
        Some(untaken.remove(at).2)
    }

    /// Watches waiting calls until [`Waiting::end`]. `retry` tries a waiting call again and returns
    /// it if it must wait longer; `is_valid` says whether a program still waits for a call;
    /// `expired` answers a call whose time limit has passed.
    pub(super) fn watch(
        &self,
        retry: impl Fn(Parked) -> Option<Parked>,
        is_valid: impl Fn(u64) -> bool,
        expired: impl Fn(&Parked),
    ) {
        let (mut waiting, mut checked) = (Vec::new(), Instant::now());
        while !self.is_over.load(Ordering::SeqCst) {
            // A call that is parked while this thread works rings the bell, so it is not missed.
            waiting.append(&mut lock(&self.parked));
            let readable = self.poll(&waiting);
            let mut is_readable = readable.into_iter();
            let mut still = Vec::with_capacity(waiting.len());
            for parked in waiting.drain(..) {
                if is_readable.next() == Some(true) {
                    still.extend(retry(parked));
                } else {
                    still.push(parked);
                }
            }
            let now = Instant::now();
            if now.duration_since(checked) >= TICK {
                checked = now;
                still.retain(|parked| is_valid(parked.notification.id));
                let busy = lock(&self.busy).clone();
                for (_, thread) in busy.into_iter().filter(|(id, _)| !is_valid(*id)) {
                    let _ = interrupt(thread);
                }
                lock(&self.untaken).retain(|(_, limit, _)| *limit > now);
            }
            still.retain(|parked| {
                let is_late = parked.deadline.is_some_and(|deadline| deadline <= now);
                if is_late {
                    expired(parked);
                }
                !is_late
            });
            waiting = still;
        }
    }

    /// Waits for the bell, for one of the sockets or, when anything waits, for the next tick.
    /// Returns for each socket whether it is readable.
    fn poll(&self, waiting: &[Parked]) -> Vec<bool> {
        self.is_asleep.store(true, Ordering::SeqCst);
        let is_idle =
            waiting.is_empty() && lock(&self.busy).is_empty() && lock(&self.untaken).is_empty();
        self.is_asleep.store(is_idle, Ordering::SeqCst);
        let sockets = waiting.iter().map(|parked| parked.socket.as_fd());
        let mut fds: Vec<_> = std::iter::once(self.wakeup.as_fd())
            .chain(sockets)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let tick = Timespec::try_from(TICK).ok();
        let polled = poll(&mut fds, if is_idle { None } else { tick.as_ref() });
        self.is_asleep.store(false, Ordering::SeqCst);
        self.wakeup.drain();
        let is_readable = |fd: &PollFd<'_>| polled.is_ok() && !fd.revents().is_empty();
        fds.iter().skip(1).map(is_readable).collect()
    }

    /// Ends [`Waiting::watch`].
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wakeup.signal();
    }
}

/// Returns the inode number of an open socket.
fn identity(socket: BorrowedFd<'_>) -> Option<u64> {
    Some(rustix::fs::fstat(socket).ok()?.st_ino)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often the watching thread checks whether programs still wait.
const TICK: Duration = Duration::from_millis(100);

/// Largest number of such calls that wait at a time; each needs a descriptor of the supervisor.
const PARKED_MAX: usize = 4096;

/// Largest number of flows that are kept because programs did not get them.
const UNTAKEN_MAX: usize = 64;

/// How long a flow is kept that a program did not get.
const UNTAKEN_LIMIT: Duration = Duration::from_secs(5);
