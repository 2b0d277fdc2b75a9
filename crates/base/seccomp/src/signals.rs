//! Signals of a supervisor: those that it forwards, and one that interrupts its own threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, sigset_t};
use rustix::io::Errno;

use crate::listener::outcome;

/// A descriptor from which the supervisor process reads the signals that it receives, by
/// signalfd(2). The thread that creates this value blocks the signals, for itself and for the
/// threads that it starts afterwards.
#[derive(Debug)]
pub struct Signals(OwnedFd);

/// A signal that the supervisor received, and who sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardedSignal {
    /// A child process has ended or stopped.
    Child,
    /// A process has sent the signal with this number, so the supervisor forwards it to the program
    /// that it started.
    Sent(i32),
    /// The kernel has sent the signal with this number, for instance for a key of the terminal. The
    /// kernel has sent it to the program as well, so the supervisor does not forward it.
    OfTerminal(i32),
}

impl Signals {
    /// Blocks and receives SIGCHLD, and the signals that end a program, make it reload its
    /// configuration, or tell it that its terminal has another size.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn new() -> io::Result<Signals> {
        let set = set();
        // SAFETY: the set is a local; a null old set is allowed.
        let descriptor = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC)
        };
        outcome(descriptor)?;
        // SAFETY: the kernel has just made this descriptor; nothing else owns it.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Waits for the next signal that [`Signals::new`] blocks. Returns SIGCHLD and the signals of
    /// the terminal as well, which the supervisor does not forward.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn next(&self) -> io::Result<ForwardedSignal> {
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut bytes))?;
        // `ssi_signo` and `ssi_code` (signalfd(2)).
        let field = |at: usize| {
            i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Ok(match (field(0), field(8)) {
            (libc::SIGCHLD, _) => ForwardedSignal::Child,
            (signal, code) if code <= 0 => ForwardedSignal::Sent(signal),
            (signal, _) => ForwardedSignal::OfTerminal(signal),
        })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Lets the signals of [`Signals`] through again, in a process that has been forked.
pub(crate) fn unblock() {
    let set = set();
    // SAFETY: the set is a local; a null old set is allowed.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
}

fn set() -> sigset_t {
    // SAFETY: zero is a value of a set, which is made empty before signals are added.
    unsafe {
        let mut set: sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in SIGNALS {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Prepares this process so that [`interrupt`] can end system calls of its threads with `EINTR`.
///
/// # Errors
/// The kernel's refusal.
pub fn take_interrupts() -> io::Result<()> {
    extern "C" fn nothing(_: c_int) {}
    // SAFETY: zero is a value of all fields; the handler does nothing, and is a function that the
    // process has for good. Without `SA_RESTART` a call that it interrupts fails.
    let taken = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(INTERRUPT, &raw const action, std::ptr::null_mut())
    };
    Ok(outcome(taken)?)
}

/// Interrupts the system call in which a thread of this process waits, if it waits in one.
///
/// # Errors
/// `ESRCH`: the thread has ended.
pub fn interrupt(thread: rustix::process::Pid) -> Result<(), Errno> {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    let thread = thread.as_raw_nonzero().get();
    // SAFETY: the kernel takes numbers, and the signal has a handler or is ignored.
    outcome(unsafe { libc::syscall(libc::SYS_tgkill, process, thread, INTERRUPT) } as c_int)
}

const SIGNALS: [c_int; 8] = [
    libc::SIGCHLD,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
];

/// A signal that no program needs and that is ignored by default.
const INTERRUPT: c_int = libc::SIGURG;
