//! The back end of vhost-user: a guest's virtqueues, by a Unix socket of its QEMU, or of any other
//! front end. (vhost-user protocol, as in QEMU's documentation)
//!
//! ```text
//!  control thread                      data path, once a visit
//!  Port: accepts or connects,   <-->   Port::try_lock -> Device -> Device::ring
//!  answers messages            lock    take, read, write, complete, publish; signal at most once
//! ```
//!
//! A [`Port`] has a thread that waits on the socket and changes the [`Device`] under a lock. The
//! data path never waits for it: when the lock is taken, the visit is left out. So neither a front
//! end that sends half a message nor one that changes its memory stalls other ports.
//!
//! The other end is here for processes without a virtual machine between: [`FrontEnd`].
//!
//! What kind of device it is does not matter here: [`Offer`] has its features.
//!
//! When this process dies, its successor takes the guests' rings where they are: a split ring says
//! so itself, of packed ones a file beside the socket does (`SOCKET.rings`, [`PackedProgress`]).
//!
//! [`PackedProgress`]: carina_vring::PackedProgress
//!
//! # Trust
//! The front end may be hostile. Messages are checked by the crate `vhost` and here; what the
//! guest writes into rings is checked by `carina_vring`. A violation cuts the connection; a new one
//! begins from nothing. Two things a hostile front end (not its guest) can still do: take its
//! memory away by making the file shorter, where the file cannot be sealed against that, and make
//! its own eventfd block. QEMU does neither.
#![forbid(unsafe_code)]

mod device;
mod front_end;
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
