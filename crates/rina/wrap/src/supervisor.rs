//! The calls of programs that load no library: a supervisor carries them out.
//!
//! ```text
//!  program -- connect --> kernel --> notification --> Supervisor -- Wrap::connect --> node
//!     ^                                                   |
//!     +-- result; the flow at the socket's number <-------+
//! ```
//!
//! | the call is about | what the supervisor does |
//! |---|---|
//! | a flow or a registration, or a TCP socket that becomes one | it carries the call out |
//! | an address for a TCP socket that stays the kernel's | it makes the call on its copy |
//! | a UDP socket to port 53, where a rule has names | it puts a socket to its [`resolver`] there |
//! | anything else | it lets the kernel carry the call out; nothing was read |
//!
//! It makes a call on a copy only if the program has the right to. So no program can change an
//! address between the decision and the call.
//!
//! One thread at a time receives notifications. It answers quick ones at once; before one that may
//! block it hands the turn to another thread. With `THREADS_MAX` calls that block, the next ones
//! of the program wait.

mod caller;
mod handle;
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

/// Carries out the calls of the programs under one filter.
pub struct Supervisor {
    listener: Listener,
    wrap: Arc<Wrap>,
    resolver: Resolver,
    own: Rights,
    waiting: Waiting,
    /// Held by the thread that receives.
    turn: Mutex<()>,
    threads: AtomicUsize,
    idle_threads: AtomicUsize,
    has_warned: [AtomicBool; 3],
}

/// What is written once, however often it occurs.
#[derive(Clone, Copy)]
enum Warning {
    OtherUser,
    OtherNetwork,
    Hidden,
}

impl Supervisor {
    /// The supervisor of the programs of `listener`.
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

    /// Works until all programs have ended.
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

    /// Starts a thread for the turn that is about to be free, unless one waits for it.
    fn have_successor(self: &Arc<Supervisor>) {
        let threads = self.threads.load(Ordering::SeqCst);
        if self.idle_threads.load(Ordering::SeqCst) > 0 || threads >= THREADS_MAX {
            return;
        }
        let successor = Arc::clone(self);
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        // Without it the turn is free when this thread has answered.
        if builder.spawn(move || successor.receive()).is_ok() {
            self.threads.store(threads + 1, Ordering::SeqCst);
        }
    }

    fn watch(&self) {
        self.waiting.watch(
            |parked| self.accept_parked(parked),
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

/// Whether the call is answered without waiting for anything.
fn is_quick(notification: &Notification) -> bool {
    use SystemCall::{Bind, Connect, Listen};
    !matches!(notification.call, Some(Connect | Bind | Listen))
}

/// Most threads that receive or carry out calls.
const THREADS_MAX: usize = 64;

/// Memory for the stack of each: messages of the node are on the heap.
const STACK_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests;
