//! The back end of vhost-user: accesses a guest's virtqueues through a Unix socket of its QEMU, or
//! of any other front end. (vhost-user protocol, as in QEMU's documentation)
//!
//! ```text
//!  control thread                      data path, once a visit
//!  Port: accepts or connects,   <-->   Port::try_lock -> Device -> Device::ring
//!  answers messages            lock    take, read, write, complete, publish; signal at most once
//! ```
//!
//! A [`Port`] has a thread that waits on the socket and changes the [`Device`] under a lock. The
//! data path never waits for the lock: if it is held, the data path skips the visit. So neither a
//! front end that sends half a message nor one that changes its memory stalls other ports.
//!
//! [`FrontEnd`] is the other end of the protocol, for processes without a virtual machine.
//!
//! This crate does not depend on the kind of device: [`Offer`] has its features.
//!
//! When this process dies, its successor continues the guests' rings at their position. A split
//! ring holds its position itself; for packed rings a file beside the socket does (`SOCKET.rings`,
//! [`PackedProgress`]).
//!
//! [`PackedProgress`]: carina_vring::PackedProgress
//!
//! # Trust
//! The front end may be hostile. The crate `vhost` and this crate check messages, and
//! `carina_vring` checks what the guest writes into rings. A violation ends the connection; a new
//! connection starts without any state. A hostile front end (not its guest) can still do two
//! things: truncate the file of its memory, if the file cannot be sealed against that, and make its
//! own eventfd block. QEMU does neither.
#![forbid(unsafe_code)]

mod device;
mod front_end;
mod handler;
mod inflight;
mod kicks;
mod port;
mod progress;
mod protocol;
mod shared;

pub mod features;

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;

pub use crate::device::{Device, Half, RunningRing};
pub use crate::front_end::{FrontEnd, FrontEndConfig, RingPlace};
pub use crate::port::{Counts, Port, PortConfig, Role};
pub use crate::shared::Offer;
