//! A virtio-vsock device for a VM whose host has no `vhost_vsock`. (VIRTIO 1.2 §5.10)
//!
//! ```text
//!  guest: AF_VSOCK                                            host: Unix sockets
//!  connect(2, 1110) -> [ tx queue ] -> Machine -> connect   PATH_1110
//!  listen(22)       <- [ rx queue ] <- Machine <- accept    PATH, "CONNECT 22\n" -> "OK 1073741824\n"
//! ```
//!
//! [`Machine`] is the protocol without I/O: the guest's connections, their state and their credit.
//! [`Device`] serves one guest: it moves bytes between the queues of a vhost-user port and Unix
//! sockets. Programs of the host reach the guest by the dialect that Firecracker and Cloud
//! Hypervisor use ([`hybrid`]).
//!
//! # Trust
//! The guest may be hostile. A packet that breaks the protocol ends only the connection that the
//! packet names. A guest has at most [`CONNECTIONS_MAX`] connections, each with a buffer of
//! [`BUFFER_BYTES`] for what the guest sends.

#![forbid(unsafe_code)]

mod device;
mod header;
pub mod hybrid;
mod machine;
#[cfg(test)]
mod machine_tests;
mod stream;

pub use device::{Counts, Device, DeviceConfig};
pub use header::{
    HEADER_BYTES, HOST_CID, Header, HeaderError, Op, SHUTDOWN_RECEIVE, SHUTDOWN_SEND,
};
pub use machine::{BUFFER_BYTES, CONNECTIONS_MAX, ConnectError, Key, Machine, Outcome};
