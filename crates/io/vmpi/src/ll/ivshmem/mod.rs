//! ivshmem: a PCI device of stock QEMU whose BAR is memory that host and guest share.
//!
//! On the host the node is the ivshmem server: [`HostPort`] owns the region and hands it to QEMU
//! together with doorbells; the data plane works on [`HostPort::device`]. In the guest
//! [`GuestDevice`] maps the BAR from user space, without a driver. The device and the server
//! protocol are those of QEMU, "Device Specification for Inter-VM shared memory device", version 1;
//! what was learnt about them is in `docs/explanation/vmpi-protocol.md`.

mod guest;
mod host;
mod server;
#[cfg(test)]
mod tests;

pub use guest::{GuestDevice, guest_devices};
pub use host::HostPort;

/// Interrupt vectors that the device is to have (`vectors=` of QEMU): one for each node of the host
/// in the life of a QEMU, because QEMU keeps a vector's first doorbell. A guest polls nodes beyond.
pub const VECTORS: u32 = 32;
