//! Lets a supervisor carry out the socket calls of other programs: the kernel stops a program at
//! such a call and notifies the supervisor.
//!
//! ```text
//!  program -- connect(3, ...) --> kernel: filter --> notification --> Listener::next
//!     ^                                                                  |  copies of descriptors
//!     +------- result, new descriptor <----- Listener::answer, add <-----+  (Listener::descriptor)
//! ```
//!
//! - [`filter`] is the program for the kernel that decides which calls are stopped.
//! - [`spawn`] starts a command with it.
//! - [`Listener`] receives notifications and answers them.
//!
//! After the Linux kernel's *Seccomp BPF (SECure COMPuting with filters)*, "Userspace
//! Notification", and the manual page seccomp_unotify(2).
//!
//! Nothing here trusts the program: whatever it passes is a number until the kernel has checked it.

pub mod filter;
mod listener;
mod signals;
mod socket;
mod start;

pub use crate::listener::{Listener, Notification};
pub use crate::signals::{ForwardedSignal, Signals, interrupt, take_interrupts};
pub use crate::socket::{bind, connect};
pub use crate::start::{StartError, spawn};
