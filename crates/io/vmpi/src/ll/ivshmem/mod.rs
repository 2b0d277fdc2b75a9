//! ivshmem: a PCI device of stock QEMU whose BAR is memory that host and guest share.
//!
//! On the host, the node is the ivshmem server: [`HostPort`] owns the region and gives it to QEMU
//! together with doorbells; the data plane works on [`HostPort::device`]. In the guest,
//! [`GuestDevice`] maps the BAR from user space, without a driver. QEMU defines the device and the
//! server protocol in "Device Specification for Inter-VM shared memory device", version 1.
//! `docs/explanation/vmpi-protocol.md` adds how QEMU 7.2 behaves.

mod guest;
mod host;
mod plain;
mod server;
#[cfg(test)]
mod tests;

pub use guest::{GuestDevice, guest_devices};
pub use host::HostPort;
pub use plain::PlainPort;

/// Number of interrupt vectors to configure for the device (`vectors=` of QEMU). Each start of the
/// host's node during the life of a QEMU needs a new vector, because QEMU keeps the first doorbell
/// of a vector. With later nodes the guest polls.
pub const VECTORS: u32 = 32;
