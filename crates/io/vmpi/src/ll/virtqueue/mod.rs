//! Virtqueues: the records of the VMPI in the buffers of a virtio device, as for KVM in
//! "Reducing Complexity of Virtual Machine Networking" (S. Vrijders and others, 2016), section IV.
//!
//! ```text
//!  guest's node                                              host's node
//!   pipe -> run -> [ buffers in huge pages ] ~ virtqueue 1 ~> copy -> pipe
//!   pipe <-------- [ buffers in huge pages ] <~ virtqueue 0 ~ copy <- pipe
//! ```
//!
//! The guest's user space drives the device: a virtio-net PCI device of stock QEMU, or, without a
//! virtual machine, a front end of vhost-user in another process ([`front_end()`]). The host's node
//! is the back end of vhost-user ([`back_end`]). What a buffer carries is a block: a header of 16
//! bytes (`carina_wire::vmpi::BlockHeader`) and records as they lie in a ring, of which the last
//! may go on in the next block. The header says who sends it and to whom, so that both sides attach
//! by the same handshake as over a region ([`super::ivshmem`]), and that blocks of an earlier link
//! differ from those of this one.
//!
//! The pipes are rings within each process: the guest's records are written where the device finds
//! them, and read where it has put them, so that the guest copies each byte once. The host copies
//! each byte once more, into memory that a guest cannot change: only then it is looked at.

mod device;
mod device_half;
mod device_memory;
mod driver_half;
mod front_end;
mod host;
mod pci;
mod pipe;
mod queues;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use carina_vhost_user::{Offer, Port, features};

pub use self::front_end::front_end;
pub use self::host::HostPort;
pub use self::pci::{guest_devices, open_guest};

use self::device::QueueDevice;
use self::device_half::DeviceHalf;
use self::pipe::Pipe;
use super::VmpiImpl;
use crate::hl::Side;

/// Numbers of the virtqueues, of a network device with one pair. (VIRTIO 1.2 §5.1.2)
const TO_GUEST: usize = 0;
const FROM_GUEST: usize = 1;

/// What the host's node offers to the driver of the guest.
pub const OFFER: Offer = Offer {
    features: features::VERSION_1,
    rings: 2,
    // No network device, whose MTU it would be.
    mtu_max: 0,
};

/// The host's side of a link, over a port that has [`OFFER`]. Only one may exist for a port at a
/// time.
///
/// # Errors
/// `InvalidInput` when `pipe_bytes` is no power of two or below 64 KiB; the kernel's refusal of
/// memory.
pub fn back_end(port: Arc<Port>, pipe_bytes: usize) -> io::Result<Box<dyn VmpiImpl + Send>> {
    if pipe_bytes < PIPE_BYTES_MIN {
        let text = format!("pipes of {pipe_bytes} bytes: at least {PIPE_BYTES_MIN}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let (tx, rx) = (Pipe::own(pipe_bytes)?, Pipe::own(pipe_bytes)?);
    let half = DeviceHalf::new(port);
    Ok(Box::new(QueueDevice::new(Side::Host, half, tx, rx)))
}

const PIPE_BYTES_MIN: usize = 64 << 10;
