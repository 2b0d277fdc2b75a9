//! The process of a VM, which a port watches until it ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use carina_sys::{Epoll, Interest, Ready};

use super::qemu::Process;

/// The process of a VM, if it runs. Its end is an event where the kernel has pidfds, and is seen at
/// the next tick elsewhere.
#[derive(Debug)]
pub(super) struct Watch {
    epoll: Epoll,
    process: Option<Process>,
    pidfd: Option<OwnedFd>,
    /// The process id, for another thread; 0 if no process is watched.
    shown: Arc<AtomicI32>,
}

impl Watch {
    /// Watches no process yet.
    pub(super) fn new() -> io::Result<Watch> {
        Ok(Watch {
            epoll: Epoll::new()?,
            process: None,
            pidfd: None,
            shown: Arc::default(),
        })
    }

    /// Watches a process. Returns false if the process has ended already.
    pub(super) fn begin(&mut self, process: Process) -> bool {
        self.end();
        let pidfd = process.pidfd();
        if !process.is_running() {
            return false;
        }
        self.process = Some(process);
        self.shown.store(process.pid, Ordering::Relaxed);
        self.pidfd = pidfd.filter(|pidfd| self.epoll.add(pidfd, 0, Interest::Read).is_ok());
        true
    }

    /// The process id; `None` if no process is watched.
    pub(super) fn pid(&self) -> Option<i32> {
        self.process.map(|process| process.pid)
    }

    /// The process id as another thread may read it; 0 while no process is watched.
    pub(super) fn shown(&self) -> Arc<AtomicI32> {
        Arc::clone(&self.shown)
    }

    /// Handles an event. Returns true if the process has ended.
    pub(super) fn on_readable(&mut self) -> bool {
        let mut ready: Vec<Ready> = Vec::new();
        let has_ended = self.epoll.wait(&mut ready, Some(0)).is_ok() && !ready.is_empty();
        if has_ended {
            self.end();
        }
        has_ended
    }

    /// Looks at a process whose end is no event. Returns true if the process has ended.
    pub(super) fn on_tick(&mut self) -> bool {
        let process = self.process.filter(|_| self.pidfd.is_none());
        let has_ended = process.is_some_and(|process| !process.is_running());
        if has_ended {
            self.end();
        }
        has_ended
    }

    fn end(&mut self) {
        if let Some(pidfd) = self.pidfd.take() {
            // The pidfd was registered when it was created.
            let _ = self.epoll.del(&pidfd);
        }
        self.process = None;
        self.shown.store(0, Ordering::Relaxed);
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
