//! A supervisor that carries out the socket calls of programs which load no library, such as static
//! ones.
//!
//! ```text
//!  program -- connect --> kernel --> notification --> Supervisor -- Wrap::connect --> node
//!     ^                                                   |
//!     +-- result; the flow at the socket's number <-------+
//! ```
//!
//! | the call is about | what the supervisor does |
//! |---|---|
//! | a flow or a registration, or a TCP socket that becomes one | it carries out the call |
//! | an address for a TCP socket that stays in the kernel | it calls on its copy of the socket |
//! | `connect` of a UDP socket | it connects its copy, or a flow takes the place |
//! | `bind` of a UDP socket | it binds its copy, or a relay takes the place |
//! | a datagram on a flow or to a relay | it moves the datagram between the two memories |
//! | a UDP socket to a name server, if a rule has names | its `resolver` takes the place |
//! | anything else | it lets the kernel carry out the call, and reads no memory of the program |
//!
//! The supervisor calls with its own copy of the address, so that no program can change the address
//! between the decision and the call. It does so only if the program has the right to make the
//! call.
//!
//! One thread at a time receives notifications. It answers quick calls at once. Before a call that
//! may block, it hands receiving over to another thread. While `THREADS_MAX` calls block, further
//! calls of the programs wait.

mod caller;
mod datagrams;
mod handle;
mod message;
mod resolver;
mod run;
mod waiting;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::{io, thread};

use carina_seccomp::filter::Call as SystemCall;
use carina_seccomp::{Listener, Notification, take_interrupts};

use crate::calls::Wrap;
use crate::supervisor::caller::Rights;
use crate::supervisor::resolver::Resolver;
use crate::supervisor::waiting::{Waiting, lock};

pub use carina_seccomp::StartError;

pub use crate::supervisor::run::run;

/// Carries out the socket calls of all programs that run under one seccomp filter.
pub struct Supervisor {
    listener: Listener,
    wrap: Arc<Wrap>,
    resolver: Resolver,
    own: Rights,
    waiting: Waiting,
    /// Locked by the one thread that receives notifications.
    turn: Mutex<()>,
    threads: AtomicUsize,
    idle_threads: AtomicUsize,
    has_warned: [AtomicBool; 3],
}

/// A warning that is written at most once.
#[derive(Clone, Copy)]
enum Warning {
    OtherUser,
    OtherNetwork,
    Hidden,
}

impl Supervisor {
    /// Makes the supervisor of the programs whose calls arrive at `listener`.
    ///
    /// # Errors
    /// `/proc` is not mounted; the kernel's refusal.
    pub fn new(listener: Listener, wrap: Wrap) -> io::Result<Supervisor> {
        take_interrupts()?;
        let own = Rights::of("thread-self");
        let wrap = Arc::new(wrap);
        Ok(Supervisor {
            listener,
            resolver: Resolver::new(Arc::clone(&wrap))?,
            wrap,
            own: own.ok_or_else(|| io::Error::other("/proc/self is not readable"))?,
            waiting: Waiting::new()?,
            turn: Mutex::new(()),
            threads: AtomicUsize::new(1),
            idle_threads: AtomicUsize::new(0),
            has_warned: [const { AtomicBool::new(false) }; 3],
        })
    }

    /// Carries out calls until all programs have ended.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn serve(self) -> io::Result<()> {
        let supervisor = Arc::new(self);
        let watching = Arc::clone(&supervisor);
        let watch = thread::Builder::new().spawn(move || watching.watch())?;
        supervisor.receive();
        supervisor.waiting.end();
        let _ = watch.join();
        Ok(())
    }

    fn receive(self: &Arc<Supervisor>) {
        loop {
            self.idle_threads.fetch_add(1, Ordering::SeqCst);
            let turn = lock(&self.turn);
            self.idle_threads.fetch_sub(1, Ordering::SeqCst);
            let slow = loop {
                match self.listener.next() {
                    Ok(Some(notification)) if is_quick(&notification) => {
                        self.handle(&notification);
                    }
                    Ok(Some(notification)) => break notification,
                    Ok(None) | Err(_) => return,
                }
            };
            self.have_successor();
            drop(turn);
            self.waiting.busy(slow.id, || self.handle(&slow));
        }
    }

    /// Starts a thread that takes over receiving, unless an idle thread waits for that.
    fn have_successor(self: &Arc<Supervisor>) {
        let threads = self.threads.load(Ordering::SeqCst);
        if self.idle_threads.load(Ordering::SeqCst) > 0 || threads >= THREADS_MAX {
            return;
        }
        let successor = Arc::clone(self);
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        // Without a successor, this thread receives again after it has answered.
        if builder.spawn(move || successor.receive()).is_ok() {
            self.threads.store(threads + 1, Ordering::SeqCst);
        }
    }

    fn watch(&self) {
        self.waiting.watch(
            |parked| self.retry(parked),
            |id| self.listener.is_valid(id),
            |parked| {
                let id = parked.notification.id;
                let _ = self.listener.answer(id, Err(rustix::io::Errno::AGAIN));
            },
        );
    }

    fn warn_once(&self, warning: Warning, thread: u32) {
        if self.has_warned[warning as usize].swap(true, Ordering::Relaxed) {
            return;
        }
        let what = match warning {
            Warning::OtherUser => {
                "has changed its user, groups or user namespace: its new connections and \
                 registrations that would be flows fail with EACCES"
            }
            Warning::OtherNetwork => {
                "has entered another network namespace: its connections that are not flows fail \
                 with EACCES"
            }
            Warning::Hidden => {
                "does not let its descriptors be read (it is not dumpable, or the system forbids \
                 ptrace): the kernel carries out its calls, and no connection becomes a flow"
            }
        };
        eprintln!("carina wrap: thread {thread} of the program {what}");
    }
}

/// Whether the supervisor can carry out the call without waiting for anything.
fn is_quick(notification: &Notification) -> bool {
    use SystemCall::{Bind, Connect, Listen};
    !matches!(notification.call, Some(Connect | Bind | Listen))
}

/// Largest number of threads that receive or carry out calls.
const THREADS_MAX: usize = 64;

/// Stack size of each thread in bytes; messages of the node are on the heap.
const STACK_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests;
