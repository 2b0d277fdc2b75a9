//! Virtqueues: the records of the VMPI in the buffers of a virtio device, as for KVM in "Reducing
//! Complexity of Virtual Machine Networking" (S. Vrijders and others, 2016), section IV.
//!
//! ```text
//!  guest's node                                              host's node
//!   pipe -> run -> [ buffers in huge pages ] ~ virtqueue 1 ~> copy -> pipe
//!   pipe <-------- [ buffers in huge pages ] <~ virtqueue 0 ~ copy <- pipe
//! ```
//!
//! The guest's user space drives the device: a virtio-net PCI device of stock QEMU, or, without a
//! virtual machine, a vhost-user front end in another process ([`front_end()`]). The host's node is
//! the vhost-user back end ([`back_end`]). A buffer carries one block: a header of 16 bytes
//! (`carina_wire::vmpi::BlockHeader`), then records in the format of a ring. The last record may
//! continue in the next block. The header names the epochs of sender and receiver. Both sides
//! attach with them by the handshake that regions use ([`super::ivshmem`]), and they distinguish
//! blocks of an earlier link from blocks of this link.
//!
//! Each pipe is a ring within one process. The guest writes its records where the device finds them
//! and reads records where the device has put them, so the guest copies each byte once. The host
//! copies each byte once more, into memory that the guest cannot change, and checks it only there.

mod device;
mod device_half;
mod device_memory;
mod driver_half;
mod front_end;
mod host;
mod pci;
pub(in crate::ll) mod pipe;
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

/// Numbers of the virtqueues: those of a network device with one pair of queues. (VIRTIO 1.2
/// §5.1.2)
const TO_GUEST: usize = 0;
const FROM_GUEST: usize = 1;

/// The features and limits that the host's node offers to the guest's driver.
pub const OFFER: Offer = Offer {
    features: features::VERSION_1,
    rings: 2,
    // 0: there is no MTU, because the device carries no network frames.
    mtu_max: 0,
    config: None,
};

/// Opens the host's side of a link over a port that was created with [`OFFER`]. Only one may exist
/// for a port at a time.
///
/// # Errors
/// `InvalidInput` if `pipe_bytes` is not a power of two or is below 64 KiB; the kernel refuses
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
